"""How an attempt ends: what a handler may raise or return, and an outcome mapper may answer."""

from __future__ import annotations

from datetime import timedelta


class Outcome(Exception):
    """Base of all. A handler raises or returns one; an outcome mapper returns one."""


class Success(Outcome):
    """The task succeeded, with this result: at most 64 KiB; text becomes UTF-8."""

    def __init__(self, result: bytes | str | None = None) -> None:
        super().__init__("success")
        self.result = result


class Failure(Outcome):
    """The attempt failed, and the queue's policy decides what follows: what any other exception means, too.

    Args:
        error: The exception, or a message.
        type: A stable name that the queue's globs match, such as `http.503`; by default the exception's own name.
        detail: More for programs, of any format, up to 64 KiB.
    """

    def __init__(self, error: BaseException | str = "", *, type: str | None = None, detail: str = "") -> None:
        super().__init__(error)  # read as text only when it is told
        self.error = error if isinstance(error, BaseException) else None
        self.type = type
        self.detail = detail


class Permanent(Failure):
    """The attempt failed and the task must not run again: it is a dead letter at once."""


class Retryable(Failure):
    """The attempt failed and may run again, whatever the queue's globs say, while attempts are left."""


class RetryAfter(Failure):
    """The attempt failed, and the task is due again after this delay. It spends an attempt.

    Args:
        delay: From now, by the storage's clock.
        error: The exception, or a message.
        type: As in `Failure`.
        detail: As in `Failure`.
    """

    def __init__(
        self,
        delay: timedelta,
        error: BaseException | str = "",
        *,
        type: str | None = None,
        detail: str = "",
    ) -> None:
        super().__init__(error, type=type, detail=detail)
        self.delay = delay


class Snooze(Outcome):
    """Not now: the task is due again after this delay, and no attempt is spent."""

    def __init__(self, delay: timedelta) -> None:
        super().__init__("snooze")
        self.delay = delay

"""Between the contract's durations and instants and Python's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp


def to_duration(span: timedelta | None) -> Duration | None:
    """The contract's form of a span; None stays None."""
    if span is None:
        return None
    duration = Duration()
    duration.FromTimedelta(span)
    return duration


def to_timestamp(instant: datetime | None) -> Timestamp | None:
    """The contract's form of an instant; None stays None.

    Raises:
        ValueError: the instant has no time zone, so nobody can say when it is.
    """
    if instant is None:
        return None
    if instant.utcoffset() is None:
        raise ValueError("a datetime needs a time zone, for instance datetime.now(timezone.utc)")
    timestamp = Timestamp()
    timestamp.FromDatetime(instant)
    return timestamp


def from_timestamp(timestamp: Timestamp) -> datetime:
    """An instant in UTC."""
    return timestamp.ToDatetime(tzinfo=UTC)


def seconds(duration: Duration) -> float:
    """A duration in seconds."""
    return duration.seconds + duration.nanos / 1e9

"""A client of the newer contract. It compares what comes back with what it sent, and fails loudly.

Usage: client.py ADDRESS PART, with the stubs of newer_contract.py in PYTHONPATH. PART is
`until_dead`, `from_dead_on` or `after_the_end`, in this order.
"""

import sys
import time

import grpc
from google.protobuf import duration_pb2
from rdq.v1 import task_pb2, task_service_pb2 as service, task_service_pb2_grpc

QUEUE = "unknown-fields"
# Twice what the server may take on a busy machine.
WITHIN_S = 20

# The same task for every call: fields that the server knows beside those that it does not.
# Every value is one that the other end of its encoding is reached with.
TASK = task_pb2.Task(
    id="newer",
    queue=QUEUE,
    handler_ref="handler",
    payload=b"\x00\xff payload",
    initial_backoff=duration_pb2.Duration(nanos=10_000_000),
    newer_text="text, ü, 😀",
    newer_message=task_pb2.Task.Newer(
        note="outer",
        numbers=[-1, 0, 2**31 - 1],
        inner=task_pb2.Task.Newer(note="inner", inner=task_pb2.Task.Newer(note="innermost")),
    ),
    newer_map={"": 0, "a": 1, "z": -(2**63)},
    newer_packed=[0, -1, 2**31 - 1],
    newer_kind=task_pb2.Task.NEWER_KIND_NEGATIVE,
    newer_strings=["", "b", ""],
    newer_fixed=2**64 - 1,
    newer_double=-0.5,
    newer_flag=False,
    newer_bytes=b"",
    newer_last=b"\x00last\xff",
)


def attempt(number: int, outcome: "task_pb2.AttemptOutcome") -> task_pb2.Attempt:
    """An attempt with fields that the server does not know, told apart by its number."""
    return task_pb2.Attempt(
        outcome=outcome,
        error=task_pb2.AttemptError(
            type="newer.error",
            message="message",
            detail="detail",
            stack="stack",
            newer_text=f"error {number}",
            newer_packed=[number, -(2**63)],
            newer_kind=task_pb2.Task.NEWER_KIND_ODD,
        ),
        newer_text=f"attempt {number}",
        newer_map={"number": str(number)},
        newer_message=task_pb2.Task.Newer(note=f"note {number}", numbers=[number]),
        newer_last=bytes([number, 255]),
    )


RETRYABLE = task_pb2.ATTEMPT_OUTCOME_RETRYABLE_FAILURE
PERMANENT = task_pb2.ATTEMPT_OUTCOME_PERMANENT_FAILURE
# One that came from another system, one that failed, one that failed for good, one that succeeded.
CARRIED, FAILED, DIED, DONE = (
    attempt(1, RETRYABLE),
    attempt(2, RETRYABLE),
    attempt(3, PERMANENT),
    attempt(4, task_pb2.ATTEMPT_OUTCOME_UNSPECIFIED),
)
CARRIED.attempt_no = 1


def newer(message) -> dict:
    """Every field that the server does not know, at every level, with its presence."""
    found = {}
    for field, value in message.ListFields():
        if field.name.startswith("newer_"):
            is_map = field.message_type and field.message_type.GetOptions().map_entry
            found[field.name] = dict(value) if is_map else value
        elif field.name == "attempts":
            found[field.name] = [newer(attempt) for attempt in value]
        elif field.name == "error":
            found[field.name] = newer(value)
    return found


class Client:
    """The calls of the story, each with its check."""

    def __init__(self, address: str) -> None:
        channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(channel).result(timeout=WITHIN_S)
        self.tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        self.raw = {
            name: channel.unary_unary(f"/rdq.v1.TaskService/{name}")
            for name in ("Enqueue", "Get")
        }

    def check(self, where: str, task: task_pb2.Task, attempts: list) -> None:
        """The task has all that was sent, and these attempts, in full."""
        expected = newer(TASK)
        expected["attempts"] = [newer(attempt) for attempt in attempts]
        came = newer(task)
        assert came == expected, f"{where}:\n{came}\ninstead of\n{expected}"
        assert task.payload == TASK.payload, where

    def check_reads(self, attempts: list, dead: bool = False) -> None:
        """Every RPC that reads the task gives it back whole."""
        self.check("Get", self.tasks.Get(service.GetRequest(id=TASK.id)).task, attempts)
        request = service.ListRequest(queue=QUEUE, include_attempts=True)
        self.check("List", self.only(self.tasks.List(request).tasks), attempts)
        request = service.DlqListRequest(queue=QUEUE, include_attempts=True)
        if dead:
            self.check("DlqList", self.only(self.tasks.DlqList(request).tasks), attempts)
        else:
            assert not self.tasks.DlqList(request).tasks

    @staticmethod
    def only(tasks) -> task_pb2.Task:
        (task,) = [task for task in tasks if task.id == TASK.id]
        return task

    def claim(self, follow: bool, attempts: list) -> service.ClaimedTask:
        """Claims, once the task is due."""
        request = service.ClaimDueRequest(queues=[QUEUE], worker_id="newer", follow=follow, limit=1)
        deadline = time.monotonic() + WITHIN_S
        while time.monotonic() < deadline:
            stream = self.tasks.ClaimDue(request, timeout=WITHIN_S)
            for message in stream:
                for claimed in message.tasks:
                    where = "ClaimDue, follow" if follow else "ClaimDue"
                    self.check(where, claimed.task, attempts)
                    stream.cancel()
                    return claimed
            time.sleep(0.02)
        raise AssertionError("the task is not due")

    def fail(self, claimed: service.ClaimedTask, attempt: task_pb2.Attempt) -> None:
        self.tasks.Fail(
            service.FailRequest(id=TASK.id, claim_token=claimed.claim_token, attempt=attempt)
        )

    def work_to_the_end(self, attempts: list) -> None:
        """Claims and completes on a `Work` stream."""

        def requests():
            start = service.WorkStart(queues=[QUEUE], worker_id="newer")
            yield service.WorkRequest(start=start, credits=1)
            claimed = yield from wait_for_claim()
            complete = service.CompleteRequest(
                id=TASK.id, claim_token=claimed.claim_token, attempt=DONE
            )
            outcome = service.WorkOutcome(
                seq=1, resolution=service.Resolution(complete=complete)
            )
            yield service.WorkRequest(outcomes=[outcome])

        claims = []

        def wait_for_claim():
            while not claims:
                time.sleep(0.01)
            return claims[0]
            yield  # a generator, so that `yield from` hands the claim over

        for message in self.tasks.Work(requests(), timeout=WITHIN_S):
            for claimed in message.tasks:
                self.check("Work", claimed.task, attempts)
                claims.append(claimed)
            for ack in message.outcome_acks:
                assert ack.result.HasField("resolved"), ack
                return
        raise AssertionError("the stream ended before the outcome was acknowledged")

    def check_raw(self) -> None:
        """The bytes of unknown fields are those that were sent, whatever their encoding."""
        answer = self.raw["Get"](service.GetRequest(id="raw").SerializeToString())
        for what, piece in ODD.items():
            assert piece in answer, f"{what} is not in the answer as it was sent: {answer!r}"

    def enqueue_raw(self) -> None:
        known = task_pb2.Task(
            id="raw", queue=QUEUE, handler_ref="handler", delay=duration_pb2.Duration(seconds=3600)
        ).SerializeToString()
        # Among the known fields, before them and behind them.
        task = ODD["a group"] + known + b"".join(ODD.values())
        self.raw["Enqueue"](b"\x0a" + varint(len(task)) + task)


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def key(number: int, wire_type: int) -> bytes:
    return varint(number << 3 | wire_type)


# Encodings that no generator writes, and that are valid all the same.
ODD = {
    "a group": key(1000, 3) + key(1, 0) + b"\x05" + key(2, 3) + key(2, 4) + key(1000, 4),
    "a padded varint": key(1001, 0) + b"\x81\x80\x80\x00",
    "a padded length": key(1002, 2) + b"\x83\x80\x00" + b"abc",
    "a repeated field apart": key(1003, 0) + b"\x01" + key(1004, 5) + b"\0\0\0\1" + key(1003, 0) + b"\x02",
    "an unpacked one after a packed one": key(1005, 2) + b"\x02\x01\x02" + key(1005, 0) + b"\x03",
}


def until_dead(client: Client) -> None:
    sent = task_pb2.Task()
    sent.CopyFrom(TASK)
    sent.attempts.append(CARRIED)
    assert client.tasks.Enqueue(service.EnqueueRequest(task=sent)).created
    client.enqueue_raw()
    client.check_raw()
    client.check_reads([CARRIED])
    client.fail(client.claim(follow=False, attempts=[CARRIED]), FAILED)
    client.check_reads([CARRIED, FAILED])
    client.fail(client.claim(follow=True, attempts=[CARRIED, FAILED]), DIED)
    client.check_reads([CARRIED, FAILED, DIED], dead=True)


def from_dead_on(client: Client) -> None:
    client.check_raw()
    client.check_reads([CARRIED, FAILED, DIED], dead=True)
    selector = service.Selector(ids=service.TaskIds(ids=[TASK.id]))
    counts = list(client.tasks.Redrive(service.RedriveRequest(queue=QUEUE, selector=selector)))
    assert counts[-1].done and counts[-1].count == 1, counts
    client.check_reads([CARRIED, FAILED, DIED])
    client.work_to_the_end([CARRIED, FAILED, DIED])


def after_the_end(client: Client) -> None:
    client.check_raw()
    client.check_reads([CARRIED, FAILED, DIED, DONE])
    task = client.tasks.Get(service.GetRequest(id=TASK.id)).task
    assert task.status == task_pb2.TASK_STATUS_SUCCEEDED, task
    outcomes = [attempt.outcome for attempt in task.attempts]
    assert outcomes == [RETRYABLE, RETRYABLE, PERMANENT, task_pb2.ATTEMPT_OUTCOME_SUCCESS], outcomes


if __name__ == "__main__":
    PARTS = {"until_dead": until_dead, "from_dead_on": from_dead_on, "after_the_end": after_the_end}
    PARTS[sys.argv[2]](Client(sys.argv[1]))

"""The tricky pure parts."""

from __future__ import annotations

import itertools
import pickle
from datetime import datetime, timedelta, timezone

import grpc
import pytest
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2

import rdq
from rdq import _ids, _status, _time
from rdq._backoff import Backoff
from rdq._batches import batches
from rdq._connection import retry_delay
from rdq._stubs.v1 import error_reason_pb2, task_pb2, task_service_pb2
from rdq._worker.conclusion import outcome_of, resolution
from rdq._worker.delivery import start_margin, timeout_in
from rdq._worker.handlers import Ended, Handlers, NoSuchVersion, Unroutable


def test_backoff_doubles_to_its_bound_and_starts_again() -> None:
    backoff = Backoff(0.1, 5.0)
    bounds = []
    for _ in range(100):
        bounds.append(backoff.bound())
        assert 0 <= backoff.next() <= bounds[-1]
    assert bounds[:7] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0])
    assert bounds[-1] == 5.0
    backoff.reset()
    assert backoff.bound() == 0.1


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], []),
        ([1, 1, 1, 1, 1, 1, 1], [3, 3, 1]),
        ([94], [1]),
        ([95], [1]),
        ([500], [1]),
        ([44, 44], [2]),
        ([44, 45], [1, 1]),
        ([1, 500, 1], [1, 1, 1]),
    ],
)
def test_batches_are_cut_by_items_and_by_bytes(sizes: list[int], expected: list[int]) -> None:
    """At most 3 items and 100 bytes, where each item costs 6 bytes more; a larger one goes alone."""
    made = list(batches(sizes, lambda size: size, 3, 100))
    assert [len(batch) for batch in made] == expected
    assert list(itertools.chain.from_iterable(made)) == sizes


def test_a_batch_is_no_larger_than_it_is_counted() -> None:
    request = task_service_pb2.EnqueueBatchRequest()
    counted = 0
    for size in (0, 1, 127, 128, 16_384, 2 << 20):
        task = request.tasks.add(payload=bytes(size))
        counted += task.ByteSize() + 6
        assert request.ByteSize() <= counted


def test_every_reason_of_the_contract_has_its_type() -> None:
    for value in error_reason_pb2.ErrorReason.DESCRIPTOR.values:
        if value.number == 0:
            continue
        metadata = {"k": "v", "outcome_unknown": "true"}
        item = task_service_pb2.ItemError(code=9, reason=value.name, message="m", metadata=metadata)
        error = _status.of_item(item)
        assert type(error) is not rdq.RdqError
        assert "".join(word.title() for word in error.reason.split("_")) == type(error).__name__
        assert getattr(rdq, type(error).__name__) is type(error)
        assert (error.code, error.message) == (grpc.StatusCode.FAILED_PRECONDITION, "m")
        assert error.outcome_unknown
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert copy.__dict__ == error.__dict__


def test_an_unknown_reason_is_the_base_type_with_the_code() -> None:
    item = task_service_pb2.ItemError(code=5, message="m")
    item.ParseFromString(item.SerializeToString() + bytes([0x10, 0xE7, 0x07]))  # reason 999
    error = _status.of_item(item)
    assert type(error) is rdq.RdqError
    assert (error.code, error.reason) == (grpc.StatusCode.NOT_FOUND, "999")
    nothing = _status.of_item(task_service_pb2.ItemError(code=77))
    assert (nothing.code, nothing.reason) == (grpc.StatusCode.UNKNOWN, "")


def call_error(code: grpc.StatusCode, *details: object, domain: str = "rdq") -> rdq.RdqError:
    status = status_pb2.Status()
    for detail in details:
        if isinstance(detail, str):
            detail = error_details_pb2.ErrorInfo(domain=domain, reason=detail)
        packed = AnyMessage()
        packed.Pack(detail)  # type: ignore[arg-type]
        status.details.append(packed)
    trailing = grpc.aio.Metadata(("grpc-status-details-bin", status.SerializeToString()))
    return _status.of_call(grpc.aio.AioRpcError(code, grpc.aio.Metadata(), trailing, "text"))


def test_what_is_retried() -> None:
    """The table of the clients' README."""
    code = grpc.StatusCode
    retried = [
        (code.UNAVAILABLE, "STORAGE_UNAVAILABLE"),
        (code.UNAVAILABLE, "CLOSED"),
        (code.UNAVAILABLE, "FROM_THE_FUTURE"),
        (code.ABORTED, "CONTENTION"),
        (code.RESOURCE_EXHAUSTED, "OVERLOADED"),
        (code.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED"),
    ]
    not_retried = [
        (code.ABORTED, "FROM_THE_FUTURE"),
        (code.RESOURCE_EXHAUSTED, "STORAGE_FULL"),
        (code.RESOURCE_EXHAUSTED, "MESSAGE_TOO_LARGE"),
        (code.RESOURCE_EXHAUSTED, "FROM_THE_FUTURE"),
        (code.INTERNAL, "INTERNAL"),
        (code.FAILED_PRECONDITION, "STALE_CLAIM"),
        (code.NOT_FOUND, "NOT_FOUND"),
        (code.CANCELLED, "FROM_THE_FUTURE"),
    ]
    for status, reason in retried:
        assert call_error(status, reason).retryable, reason
    for status, reason in not_retried:
        error = call_error(status, reason)
        assert retry_delay(error, Backoff(0.1, 5)) is None, reason


def test_a_retry_is_not_before_the_time_that_the_server_names() -> None:
    asked = error_details_pb2.RetryInfo(retry_delay=Duration(seconds=2))
    error = call_error(grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED", asked)
    assert error.retry_after == timedelta(seconds=2)
    for _ in range(100):
        delay = retry_delay(error, Backoff(0.1, 5.0))
        assert delay is not None
        assert 2.0 <= delay <= 2.1


def test_another_services_reason_is_none() -> None:
    error = call_error(grpc.StatusCode.NOT_FOUND, "NOT_FOUND", domain="example.com")
    assert type(error) is rdq.RdqError
    assert error.code is grpc.StatusCode.NOT_FOUND


def test_garbage_in_the_details_is_no_reason() -> None:
    trailing = grpc.aio.Metadata(("grpc-status-details-bin", b"\xff\xff"))
    error = _status.of_call(grpc.aio.AioRpcError(grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), trailing, "text"))
    assert (type(error), error.message) == (rdq.RdqError, "text")


def test_ids_are_ulids_in_order_of_their_making() -> None:
    ids = [_ids.new_task_id() for _ in range(1_000)]
    assert len(set(ids)) == 1_000
    assert {len(id) for id in ids} == {26}
    assert [id[:10] for id in ids] == sorted(id[:10] for id in ids)
    assert len(_ids.new_worker_id().encode()) <= 240
    assert _ids.new_worker_id() != _ids.new_worker_id()


def test_an_instant_needs_a_time_zone() -> None:
    with pytest.raises(ValueError, match="time zone"):
        _time.to_timestamp(datetime(2026, 1, 1))
    there = datetime(2026, 1, 1, 12, tzinfo=timezone(timedelta(hours=5)))
    timestamp = _time.to_timestamp(there)
    assert timestamp is not None
    assert _time.from_timestamp(timestamp) == there


@pytest.mark.parametrize(
    ("lease", "margin"), [(60.0, 6.0), (1.0, 0.1), (0.3, 0.1), (0.2, 0.1), (0.1, 0.05), (0.01, 0.005)]
)
def test_how_much_of_a_lease_a_handler_needs(lease: float, margin: float) -> None:
    """A tenth or 100 ms, whichever is more, but never more than half."""
    assert start_margin(lease) == pytest.approx(margin)


def test_a_timeout_counts_from_the_claim() -> None:
    claimed = task_service_pb2.ClaimedTask(lease_remaining=Duration(seconds=4))
    assert timeout_in(claimed, 5.0) is None
    claimed.execution_timeout.CopyFrom(Duration(seconds=30))
    assert timeout_in(claimed, 5.0) == pytest.approx(28.0)
    claimed.execution_timeout.CopyFrom(Duration(seconds=2))
    assert timeout_in(claimed, 5.0) == pytest.approx(0.8)
    claimed.lease_remaining.CopyFrom(Duration(seconds=0))
    assert timeout_in(claimed, 5.0) == 0.0


def test_which_handler() -> None:
    handlers = Handlers()
    for version in ("1", "2"):
        handlers.add("send", version, lambda job: None)
    handlers.add("call", None, lambda job: None)

    def find(ref: str, version: str | None, exact: bool = False) -> object:
        return handlers.find(ref, version, exact=exact)

    assert find("send", "1") is not find("send", "2")
    assert find("send", None) is find("send", "2")
    assert find("send", "3") is find("send", "2")
    assert find("call", "3") is find("call", None)
    with pytest.raises(NoSuchVersion):
        find("send", "3", exact=True)
    with pytest.raises(NoSuchVersion):
        find("call", "3", exact=True)
    assert find("send", None, exact=True) is find("send", "2")
    with pytest.raises(Unroutable):
        find("other", None)
    with pytest.raises(ValueError, match="already"):
        handlers.add("call", None, lambda job: None)
    with pytest.raises(TypeError):
        handlers.add("x", None, "not a function")  # type: ignore[arg-type]


def conclude(ended: Ended) -> task_service_pb2.Resolution:
    job = rdq.Job(task_service_pb2.ClaimedTask(), 0.0)
    return resolution("id", b"token", outcome_of(job, ended, None))


def test_outcomes_may_be_returned_as_well_as_raised() -> None:
    for outcome, call in [
        (rdq.Success("r"), "complete"),
        (rdq.Failure("f"), "fail"),
        (rdq.Permanent("p"), "dead_letter"),
        (rdq.Retryable("r"), "fail"),
        (rdq.RetryAfter(timedelta(seconds=1), "r"), "reschedule"),
        (rdq.Snooze(timedelta(seconds=1)), "release"),
    ]:
        assert conclude(Ended(value=outcome)).WhichOneof("call") == call
        assert conclude(Ended(error=outcome)).WhichOneof("call") == call
    retryable = conclude(Ended(error=rdq.Retryable("r"))).fail.attempt
    assert retryable.outcome == task_pb2.ATTEMPT_OUTCOME_RETRYABLE_FAILURE
    assert conclude(Ended(error=ValueError("v"))).fail.attempt.outcome == task_pb2.ATTEMPT_OUTCOME_UNSPECIFIED


def test_a_result_of_another_type_is_a_failure_that_says_so() -> None:
    error = conclude(Ended(value={"no": "bytes"})).fail.attempt.error
    assert error.type == "TypeError"
    assert "dict" in error.message
    assert conclude(Ended(value="ñ")).complete.result == "ñ".encode()
    assert conclude(Ended(value=bytearray(b"b"))).complete.result == b"b"


def test_a_huge_error_is_cut_before_it_is_sent() -> None:
    error = rdq.Failure("m" * (10 << 20), type="t" * 1_000, detail="d" * (10 << 20))
    assert conclude(Ended(error=error)).ByteSize() < 1 << 20


def test_an_error_whose_text_cannot_be_read_is_still_told() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    error = conclude(Ended(error=Broken())).fail.attempt.error
    assert error.type.endswith("Broken")
    assert "RuntimeError" in error.message


def test_the_representation_of_a_task_tells_no_content() -> None:
    claimed = task_service_pb2.ClaimedTask(task=task_pb2.Task(id="i", payload=b"secret", headers={"k": "secret"}))
    job = rdq.Job(claimed, 0.0)
    assert "secret" not in repr(job)
    assert "secret" not in repr(job.task)
    assert "secret" not in repr(rdq.NewTask(queue="q", handler_ref="h", payload="secret", headers={"k": "secret"}))

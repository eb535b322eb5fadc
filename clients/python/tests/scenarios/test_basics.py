"""Enqueueing, working, and what comes of it."""

from __future__ import annotations

import rdq

from ..harness.scene import Scene
from ..harness.waiting import finished


async def test_happy_path(scene: Scene) -> None:
    """One task and many are enqueued, worked, and succeed with the handler's result."""

    async def shout(job: rdq.Job) -> str:
        return job.text.upper()

    async with scene.worker("mail", {"shout": shout}):
        one = await scene.client.enqueue("mail", "shout", "hello")
        many = await scene.client.enqueue_many(
            rdq.NewTask(queue="mail", handler_ref="shout", payload=f"task {n}") for n in range(40)
        )
        ids = [admission.id for admission in many if isinstance(admission, rdq.Admission)]
        assert len(set(ids)) == 40
        tasks = await finished(scene.client, one.id, *ids)

    assert one.created
    assert [task.status for task in tasks] == [rdq.TaskStatus.SUCCEEDED] * 41
    assert tasks[0].result == b"HELLO"
    assert [task.result.decode() for task in tasks[1:]] == [f"TASK {n}" for n in range(40)]
    assert all(task.attempts[0].outcome is rdq.AttemptOutcome.SUCCESS for task in tasks)

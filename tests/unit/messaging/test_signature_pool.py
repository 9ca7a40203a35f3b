"""Signatures verified by two threads: in order, all of them, without waiting for the helper."""

from __future__ import annotations

import threading

from waypost import limits
from waypost.messaging.connection import SharedBatch, SignaturePool

WAIT_SECONDS = 60.0


def test_shared_jobs_return_in_order() -> None:
    hand = SignaturePool()
    for count in (0, 1, limits.AGP_POOL_MIN_SIGNATURES, 200):
        assert hand.run(lambda job: job * job, range(count)) == [job * job for job in range(count)]


def test_jobs_done_by_the_helper_are_not_repeated() -> None:
    done: list[int] = []
    sharing = SharedBatch(done.append, range(5))
    sharing.help()
    assert sorted(done) == list(range(5))
    verified: list[int] = []

    def verify(job: int) -> bool:
        verified.append(job)
        return job != 3

    shared = SharedBatch(verify, range(5))
    shared.help()
    assert shared.finish() == [True, True, True, False, True]
    assert sorted(verified) == list(range(5))


def test_a_delayed_helper_thread_blocks_no_caller() -> None:
    taken, free = threading.Event(), threading.Event()

    def job_of(job: int) -> int:
        if threading.current_thread() is helper:
            taken.set()
            free.wait(WAIT_SECONDS)
        return -job

    sharing = SharedBatch(job_of, range(8))
    helper = threading.Thread(target=sharing.help)
    helper.start()
    try:
        assert taken.wait(WAIT_SECONDS)
        assert sharing.finish() == [-job for job in range(8)]  # while the helper still has its first one
        assert helper.is_alive()
    finally:
        free.set()
        helper.join(WAIT_SECONDS)

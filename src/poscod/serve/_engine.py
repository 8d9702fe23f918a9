# SPDX-License-Identifier: BSD-3-Clause
"""Computing off the event loop, and many small requests at once.

Convention: a job is put into a bounded queue and its caller awaits the answer. A thread takes the oldest job together with all
others of the same layout that wait at that moment: nobody ever waits for company, so one request alone is as fast as it can be,
and under load the cost of a call is shared. If a joint call fails, each job is tried alone and only the guilty one is refused. A job
whose answer is another job is followed by that one without a detour over the event loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from poscod.serve._say import Refusal


@dataclass(eq=False)
class Job:
    """Something to compute: ``run(jobs)`` returns one answer per job, or the job that follows it; jobs of one key may be run together, None stays alone."""

    run: Callable[[Sequence[Job]], Sequence[Any]]
    payload: Any
    rows: int = 1
    key: Any = None
    future: asyncio.Future[Any] = field(init=False)


class Engine:
    """A few threads and the queue before them; jobs of up to `joint_rows` rows are run together, up to `max_jobs` wait."""

    def __init__(self, threads: int, joint_rows: int, max_jobs: int) -> None:
        self._joint_rows, self._max_jobs = joint_rows, max_jobs
        self._jobs: deque[Job] = deque()
        self._ready = threading.Condition()
        self._closing = False
        self._threads = [
            threading.Thread(target=self._work, name=f"poscod-compute-{i}", daemon=True) for i in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def compute(self, job: Job, until: float) -> Any:
        """Run a job in a thread and return its answer; one that is too late is skipped if it has not begun."""
        loop = asyncio.get_running_loop()
        job.future = loop.create_future()
        with self._ready:
            if self._closing:
                raise Refusal(503, "The service is shutting down.", {"Retry-After": "1"})
            if len(self._jobs) >= self._max_jobs:
                raise Refusal(503, "Too many requests are waiting: try again later.", {"Retry-After": "1"})
            self._jobs.append(job)
            self._ready.notify()
        timer = loop.call_at(until, _expire, job)
        try:
            return await job.future
        finally:
            timer.cancel()

    def close(self, seconds: float) -> None:
        """Finish what is queued and stop the threads."""
        with self._ready:
            self._closing = True
            self._ready.notify_all()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _take(self) -> list[Job]:
        with self._ready:
            while not self._jobs:
                if self._closing:
                    return []
                self._ready.wait()
            first = self._jobs.popleft()
            jobs, rows, rest = [first], first.rows, deque[Job]()
            for job in self._jobs:
                if first.key is not None and job.key == first.key and rows + job.rows <= self._joint_rows:
                    jobs.append(job)
                    rows += job.rows
                else:
                    rest.append(job)
            self._jobs = rest
            if rest:
                self._ready.notify()
            return jobs

    def _work(self) -> None:
        # Far inputs overflow on their way to a score that rejects them; that is no news for a log.
        with np.errstate(all="ignore"):
            while jobs := self._take():
                if jobs := [job for job in jobs if not job.future.done()]:
                    self._hand_over(jobs, _answers(jobs))

    def _hand_over(self, jobs: Sequence[Job], answers: Sequence[Any]) -> None:
        """Queue the jobs among the answers, which their callers have been let in for, and deliver the rest."""
        done = []
        for job, answer in zip(jobs, answers, strict=True):
            if isinstance(answer, Job):
                answer.future = job.future
                with self._ready:
                    self._jobs.append(answer)  # this thread takes it, or one that it wakes
            else:
                done.append((job, answer))
        if done:
            jobs[0].future.get_loop().call_soon_threadsafe(_deliver, done)


def _answers(jobs: Sequence[Job]) -> Sequence[Any]:
    """Return an answer or an exception per job."""
    try:
        return jobs[0].run(jobs)
    except Exception as error:
        if len(jobs) == 1:
            return [error]
        return [answer for job in jobs for answer in _answers([job])]


def _expire(job: Job) -> None:
    sentence = "There was no answer in time: try again later."
    _deliver([(job, Refusal(503, sentence, {"Retry-After": "1"}, limit="seconds"))])


def _deliver(answers: Sequence[tuple[Job, Any]]) -> None:
    for job, answer in answers:
        if not job.future.done():
            if isinstance(answer, Exception):
                job.future.set_exception(answer)
            else:
                job.future.set_result(answer)

"""What Snakemake calls. It imports next to nothing: every inner Snakemake imports it too."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo  # type: ignore[import-untyped]
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor  # type: ignore[import-untyped]

LOOK_SECONDS = 1.0  # between two looks into the ledgers of running steps, for messages only
IDLE_SECONDS = 60.0  # between two looks where nothing but an end can happen, which wakes us


class Executor(RemoteExecutor):  # type: ignore[misc]
    """One submission and one success for a step, however many allocations it takes.

    Everything that can go wrong with one step fails that step, never the whole workflow.
    """

    def __init__(self, workflow: Any, logger: Any) -> None:
        # Before the base class: its thread looks for active jobs at once.
        self._wake = threading.Event()
        self._closing = False
        self._cancelling = False
        self._arguments = ""
        super().__init__(workflow, logger)

    def __post_init__(self) -> None:
        from .follow import Follower
        from .start import Starter

        try:
            self._starter = Starter(self, self._wake.set)
        except BaseException:
            # Snakemake shuts down only executors that it has got.
            self._closing = True
            self.wait = False
            self._wake.set()
            raise
        self._follower = Follower(self, self._starter)

    def run_job(self, job: Any) -> None:
        try:
            self._starter.submit(job)
        except Exception as error:
            kind = "" if isinstance(error, WorkflowError) else f"{type(error).__name__}: "
            self.report_job_error(SubmittedJobInfo(job), msg=f"{kind}{error}\n")
        self._wake.set()  # an allocation may have ended before it was known to be active

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        for info in active_jobs:
            if self._cancelling or self._follower.still_active(info):
                yield info

    async def sleep(self) -> None:
        """Until an allocation ends. It blocks only this thread, in which nothing else runs."""
        seconds = 0.01 if self._closing else LOOK_SECONDS if self._any_opted_in() else IDLE_SECONDS
        self._wake.wait(seconds)
        self._wake.clear()

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        # Not the given list: it is empty while the other thread looks at the jobs.
        self._cancelling = True
        try:
            self._starter.stop_all()
        finally:
            self.logger.info(
                "Steps are stopped, their checkpoints kept. To go on: snakemake --unlock, then "
                "the same command as before with --rerun-incomplete."
            )

    def shutdown(self) -> None:
        self._closing = True
        self._wake.set()
        super().shutdown()
        if count := self._follower.went_on:
            steps = "1 step" if count == 1 else f"{count} steps"
            self.logger.info(f"{steps} went on after interruption.")

    def additional_general_args(self) -> str:
        return self._arguments

    def format_job_exec_with(self, job: Any, arguments: str) -> str:
        """The inner command with further arguments. They come last, so they count."""
        self._arguments = arguments
        try:
            return str(self.format_job_exec(job))
        finally:
            self._arguments = ""

    def _any_opted_in(self) -> bool:
        with self.lock:
            infos = list(self.active_jobs)
        return any(info.aux and info.aux["step"].directory is not None for info in infos)

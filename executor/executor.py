"""What Snakemake calls. It imports next to nothing: every inner Snakemake imports it too."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo  # type: ignore[import-untyped]
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor  # type: ignore[import-untyped]
from snakemake_interface_executor_plugins.utils import (  # type: ignore[import-untyped]
    encode_target_jobs_cli_args,
    format_cli_value,
)

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
        self._step_tmpdir: Path | None = None
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

    def get_job_args(self, job: Any) -> str:
        """As the interface has it, but quoted for the shell."""
        values = encode_target_jobs_cli_args(job.get_target_spec())
        values += [str(path) for path in job.get_wait_for_files()]
        values += [str(path) for path in self.dag.get_unneeded_temp_files(job)]
        return requote(super().get_job_args(job), values)

    def get_snakefile(self) -> Path:
        return Path(self.snakefile)  # the interface quotes paths right

    def additional_general_args(self) -> str:
        return self._arguments

    def format_job_exec_with(self, job: Any, arguments: str, tmpdir: Path) -> str:
        """The inner command with further arguments, which come last, so they count.

        It waits for `tmpdir` to be there instead of this process' own folder: a checkpoint may be
        made before it has looked, and restored when this process is gone.
        """
        self._arguments = arguments
        self._step_tmpdir = tmpdir
        try:
            return str(self.format_job_exec(job))
        finally:
            self._arguments = ""
            self._step_tmpdir = None

    @property
    def tmpdir(self) -> str:
        return str(self._step_tmpdir or super().tmpdir)

    def _any_opted_in(self) -> bool:
        with self.lock:
            infos = list(self.active_jobs)
        return any(info.aux and info.aux["step"].directory is not None for info in infos)


def requote(arguments: str, values: list[str]) -> str:
    """The interface quotes values with repr, which a shell reads otherwise: it runs `$(…)` after
    a single quote, and takes a line feed for two characters. In one pass, so that no value is
    looked for within another."""
    right = {format_cli_value(value, quote=True): shlex.quote(value) for value in values}
    if not right:
        return arguments
    longest_first = sorted(right, key=len, reverse=True)
    wrong = "|".join(re.escape(text) for text in longest_first)
    return re.sub(rf"(?<= )(?:{wrong})(?= |$)", lambda found: right[found[0]], arguments)

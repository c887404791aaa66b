"""Starting steps: what Snakemake hands over becomes an allocation on this machine."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo  # type: ignore[import-untyped]

from . import decide
from .events import Tail
from .optin import opted_in, partly, rule_may_opt_in
from .runner import machine
from .runner.durable import private_folder
from .runner.ledger import Ledger
from .schedulers.local import LocalScheduler, Request
from .settings import ExecutorSettings
from .stepdir import UNREADABLE, StepDirectory
from .steps import describe, name_of
from .surroundings import Engine, bounds, end_process, find_root

STOP_SECONDS = 30.0  # for steps to stop in order, before they are killed
RUNNER = Path(__file__).parent / "runner"
ADOPTED = "adopted-"


@dataclass(slots=True)
class Followed:
    """What the executor remembers of a submitted step, in SubmittedJobInfo.aux["step"]."""

    name: str
    log: Path
    directory: StepDirectory | None = None  # None: not opted in
    ledger: Tail | None = None
    progress: decide.Progress = field(default_factory=decide.Progress)
    seconds: int = 0  # how long an allocation lasts, 0: no bound
    cores: int = 1
    mem_mb: int = 0
    went_on: bool = False
    seeks: int = 0  # runners in a row that found another one at work


class Starter:
    """Makes step directories and allocations. Raises what goes wrong with one step."""

    def __init__(self, executor: Any, wake: Callable[[], None]) -> None:
        """Raises WorkflowError where a step will ask for checkpoints that cannot be had."""
        self._executor = executor
        self._logger = executor.logger
        self.settings = executor.workflow.executor_settings or ExecutorSettings()
        self._workdir = Path.cwd()
        self._root = find_root(self.settings, executor.workflow.persistence)
        self._engine = Engine(self.settings, self._root, self._logger)
        if any(map(rule_may_opt_in, {job.rule for job in executor.dag.needrun_jobs()})):
            self._engine.require()
        self.scheduler = LocalScheduler(*bounds(executor.workflow), wake)

    def submit(self, job: Any) -> None:
        if opted_in(job):
            self._submit_step(job)
        else:
            self._submit_plain(job)

    def stop_all(self) -> None:
        self.scheduler.stop(STOP_SECONDS)

    def _submit_plain(self, job: Any) -> None:
        """As any executor would run it: the inner command, nothing around it."""
        if held_back := partly(job):
            self._logger.warning(
                f"{name_of(job)}: runs without checkpoints, for these rules of the group are "
                f"without cedana=1: {', '.join(held_back)}."
            )
        allocation = secrets.token_hex(8)
        private_folder(self._root / "logs")
        followed = self._followed(job, self._root / "logs" / f"{allocation}.log")
        command = ("/bin/sh", "-c", str(self._executor.format_job_exec(job)))
        request = self._request(allocation, followed, command)
        self._report_submitted(job, allocation, followed)
        self.scheduler.submit(request)

    def _submit_step(self, job: Any) -> None:
        engine, criu = self._engine.require()
        self._engine.require_for(job)
        directory = StepDirectory(self._root, describe(job, self._workdir))
        followed = self._followed(job, directory.path / "step.log", directory)
        followed.seconds = self._seconds(job)
        if (pid := directory.living_runner()) and not directory.what_changed():
            self._adopt(job, pid, followed)
            return
        if pid:
            self._logger.warning(
                f"step {followed.name}: an older version of it still runs: stopped."
            )
            end_process(pid, STOP_SECONDS)
        if said := directory.open():
            self._logger.warning(f"step {followed.name}: begins anew: {'; '.join(said)}.")
        directory.forget_ended()
        directory.write_command(self._command(job, directory.path))
        directory.write_spec(self._spec(engine, criu), {})
        followed.ledger = Tail(directory.path / "ledger", from_end=True)
        followed.progress = decide.Progress(newest=directory.newest_generation())
        allocation = secrets.token_hex(8)
        request = self._runner_request(allocation, followed)
        self._report_submitted(job, allocation, followed)
        self.scheduler.submit(request)

    def _adopt(self, job: Any, pid: int, followed: Followed) -> None:
        followed.went_on = True
        assert followed.directory is not None
        followed.ledger = Tail(followed.directory.path / "ledger", from_end=True)
        followed.progress = decide.Progress(newest=followed.directory.newest_generation())
        allocation = ADOPTED + secrets.token_hex(4)
        self._logger.info(f"step {followed.name}: still runs (process {pid}), it is followed.")
        self._report_submitted(job, allocation, followed)
        self.scheduler.adopt(allocation, pid)

    def start_runner(self, allocation: str, followed: Followed) -> None:
        """One more allocation of a step."""
        self.scheduler.submit(self._runner_request(allocation, followed))

    def _runner_request(self, allocation: str, followed: Followed) -> Request:
        assert followed.directory is not None
        self._note_submitted(allocation, followed.directory)
        bound = ("--seconds", str(followed.seconds)) if followed.seconds else ()
        command = (
            sys.executable, "-I", "-S", str(RUNNER), str(followed.directory.path),
            "--allocation", allocation, *bound,
        )  # fmt: skip
        return self._request(allocation, followed, command)

    def _note_submitted(self, allocation: str, directory: StepDirectory) -> None:
        """The ledger's event. That it cannot be written is no reason not to run the step."""
        step = directory.step
        common = {
            "workflow": str(self._executor.workflow.main_snakefile),
            "rule": step.rule,
            "wildcards": dict(step.wildcards),
            "step": step.key,
            "allocation": allocation,
            "generation": directory.newest_generation(),
            "host": os.uname().nodename,
            "engine": self._engine.require()[0],
            **machine.facts(),
        }
        writer = f"executor-{os.uname().nodename}-{os.getpid()}"
        try:
            Ledger(directory.path / "ledger", writer, common).write("submitted")
        except UNREADABLE as error:
            self._logger.warning(f"the ledger of {step.name} cannot be written: {error}")

    def _request(self, allocation: str, followed: Followed, command: tuple[str, ...]) -> Request:
        directory = followed.directory
        return Request(
            id=allocation,
            command=command,
            cwd=self._workdir,
            log=directory.path / "runner.log" if directory else followed.log,
            environment={**os.environ, **self._executor.envvars()},
            cores=followed.cores,
            mem_mb=followed.mem_mb,
            whole_group=directory is None,
        )

    def _followed(self, job: Any, log: Path, directory: StepDirectory | None = None) -> Followed:
        mem_mb = job.resources.get("mem_mb", 0)
        return Followed(
            name=name_of(job),
            log=log,
            directory=directory,
            cores=job.threads,
            mem_mb=mem_mb if isinstance(mem_mb, int) else 0,
        )

    def _seconds(self, job: Any) -> int:
        """How long an allocation lasts: the shorter of setting and resource; 0: no bound."""
        runtime = job.resources.get("runtime", 0)
        minutes = runtime if isinstance(runtime, int | float) else 0
        bounds = [self.settings.local_allocation, round(minutes * 60)]
        return min((seconds for seconds in bounds if seconds > 0), default=0)

    def _command(self, job: Any, stepdir: Path) -> str:
        # What the step still needs when this process is gone lies with the step.
        arguments = (
            f"--runtime-source-cache-path {shlex.quote(str(stepdir / 'source-cache'))} "
            f"--shadow-prefix {shlex.quote(str(stepdir))}"
        )
        return str(self._executor.format_job_exec_with(job, arguments, stepdir / "inner"))

    def _spec(self, engine: str, criu: str) -> dict[str, object]:
        settings = self.settings
        return {
            "workflow": str(self._executor.workflow.main_snakefile),
            "engine": engine,
            "criu": criu,
            "interval": settings.seconds("interval"),
            "mtbf": settings.mtbf,
            "lead_time": settings.seconds("lead_time"),
            "keep_generations": settings.keep_generations,
            "max_bytes": settings.max_bytes,
            "dump_slots": settings.dump_slots,
            "slots_dir": str(self._root / "slots"),
            "allow_uncheckpointed": settings.allow_uncheckpointed,
        }

    def _report_submitted(self, job: Any, allocation: str, followed: Followed) -> None:
        # Before the start, so that Snakemake's marker of an incomplete step is never too late.
        self._executor.report_job_submission(SubmittedJobInfo(job, allocation, {"step": followed}))

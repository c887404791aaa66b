"""The executor: one submission and one success for a step, however many allocations it takes."""

from __future__ import annotations

import os
import secrets
import shlex
import sys
import threading
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo
from snakemake_interface_executor_plugins.executors.remote import RemoteExecutor

from . import decide
from .events import Tail, tell
from .optin import opted_in, partly, rule_may_opt_in
from .runner.durable import private_folder
from .settings import ExecutorSettings
from .steps import StepDirectory, describe, name_of
from .surroundings import Engine, bounds, end_process, find_root

STOP_SECONDS = 30.0  # for steps to stop after Ctrl-C, before they are killed
MOST_SEEKS = 3
LOOK_SECONDS = 1.0  # between two looks into the ledgers of running steps, for messages only
RUNNER = Path(__file__).parent / "runner"


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


class Executor(RemoteExecutor):
    """Everything that can go wrong with one step fails that step, never the whole workflow."""

    def __init__(self, workflow: Any, logger: Any) -> None:
        # Before the base class: its thread looks for active jobs at once.
        self._wake = threading.Event()
        self._closing = False
        self._cancelling = False
        self._step_arguments = ""
        self._went_on = 0
        super().__init__(workflow, logger)

    def __post_init__(self) -> None:
        from .schedulers.local import LocalScheduler

        self._settings = self.workflow.executor_settings or ExecutorSettings()
        self._workdir = Path.cwd()
        self._root = find_root(self._settings, self.workflow.persistence)
        self._limits = decide.Limits(self._settings.max_restores)
        self._engine = Engine(self._settings, self._root, self.logger)
        self._scheduler = LocalScheduler(*bounds(self.workflow), self._wake.set)
        try:
            if any(map(rule_may_opt_in, {job.rule for job in self.dag.needrun_jobs()})):
                self._engine.require()
        except WorkflowError:
            # Snakemake shuts down only executors that it has got.
            self._closing = True
            self.wait = False
            self._wake.set()
            raise

    # What Snakemake calls

    def run_job(self, job: Any) -> None:
        try:
            if opted_in(job):
                self._submit_step(job)
            else:
                self._submit_plain(job)
        except (OSError, ValueError, WorkflowError) as error:
            self.report_job_error(SubmittedJobInfo(job), msg=f"{name_of(job)}: {error}\n")

    async def check_active_jobs(
        self, active_jobs: list[SubmittedJobInfo]
    ) -> AsyncGenerator[SubmittedJobInfo, None]:
        for info in active_jobs:
            if self._cancelling or self._still_active(info):
                yield info

    def cancel_jobs(self, active_jobs: list[SubmittedJobInfo]) -> None:
        # Not the given list: it is empty while the other thread looks at the jobs.
        self._cancelling = True
        try:
            self._scheduler.stop(STOP_SECONDS)
        finally:
            self.logger.info(
                "Steps are stopped, their checkpoints kept. To go on: snakemake --unlock, then "
                "the same command as before with --rerun-incomplete."
            )

    def shutdown(self) -> None:
        self._closing = True
        self._wake.set()
        super().shutdown()
        if self._went_on:
            steps = "1 step" if self._went_on == 1 else f"{self._went_on} steps"
            self.logger.info(f"{steps} went on after interruption.")

    async def sleep(self) -> None:
        """Until an allocation ends. It blocks only this thread, in which nothing else runs."""
        seconds = 0.01 if self._closing else LOOK_SECONDS if self._looks_needed() else 60.0
        self._wake.wait(seconds)
        self._wake.clear()

    def additional_general_args(self) -> str:
        return self._step_arguments

    # Starting

    def _submit_plain(self, job: Any) -> None:
        """As any executor would run it: the inner command, nothing around it."""
        if held_back := partly(job):
            self.logger.warning(
                f"{name_of(job)}: runs without checkpoints, for these rules of the group are "
                f"without cedana=1: {', '.join(held_back)}."
            )
        allocation = secrets.token_hex(8)
        private_folder(self._root / "logs")
        followed = self._followed(job, self._root / "logs" / f"{allocation}.log")
        self._report_submitted(job, allocation, followed)
        self._start(allocation, followed, ("/bin/sh", "-c", self.format_job_exec(job)), group=True)

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
            self.logger.warning(
                f"step {followed.name}: an older version of it still runs: stopped."
            )
            end_process(pid, STOP_SECONDS)
        if said := directory.open():
            self.logger.warning(f"step {followed.name}: begins anew: {'; '.join(said)}.")
        directory.forget_ended()
        directory.write_command(self._command(job, directory.path))
        directory.write_spec(self._spec(engine, criu), {})
        followed.ledger = Tail(directory.path / "ledger", from_end=True)
        followed.progress = decide.Progress(newest=directory.newest_generation())
        allocation = secrets.token_hex(8)
        self._report_submitted(job, allocation, followed)
        self._start_runner(allocation, followed)

    def _adopt(self, job: Any, pid: int, followed: Followed) -> None:
        followed.went_on = True
        assert followed.directory is not None
        followed.ledger = Tail(followed.directory.path / "ledger", from_end=True)
        allocation = f"adopted-{secrets.token_hex(4)}"
        self.logger.info(f"step {followed.name}: still runs (process {pid}), it is followed.")
        self._report_submitted(job, allocation, followed)
        self._scheduler.adopt(allocation, pid)

    def _start_runner(self, allocation: str, followed: Followed) -> None:
        assert followed.directory is not None
        bound = ("--seconds", str(followed.seconds)) if followed.seconds else ()
        command = (
            sys.executable, "-I", "-S", str(RUNNER), str(followed.directory.path),
            "--allocation", allocation, *bound,
        )  # fmt: skip
        self._start(allocation, followed, command, group=False)

    def _start(
        self, allocation: str, followed: Followed, command: tuple[str, ...], *, group: bool
    ) -> None:
        from .schedulers.local import Request

        log = followed.directory.path / "runner.log" if followed.directory else followed.log
        self._scheduler.submit(
            Request(
                id=allocation,
                command=command,
                cwd=self._workdir,
                log=log,
                environment={**os.environ, **self.envvars()},
                cores=followed.cores,
                mem_mb=followed.mem_mb,
                whole_group=group,
            )
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
        bounds = [self._settings.local_allocation, round(minutes * 60)]
        return min((seconds for seconds in bounds if seconds > 0), default=0)

    def _command(self, job: Any, stepdir: Path) -> str:
        # What the step still needs when this process is gone lies with the step.
        self._step_arguments = (
            f"--runtime-source-cache-path {shlex.quote(str(stepdir / 'source-cache'))} "
            f"--shadow-prefix {shlex.quote(str(stepdir))}"
        )
        try:
            return str(self.format_job_exec(job))
        finally:
            self._step_arguments = ""

    def _spec(self, engine: str, criu: str) -> dict[str, object]:
        settings = self._settings
        return {
            "workflow": str(self.workflow.main_snakefile),
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
        self.report_job_submission(SubmittedJobInfo(job, allocation, {"step": followed}))

    # Following

    def _still_active(self, info: SubmittedJobInfo) -> bool:
        assert info.aux is not None
        followed: Followed = info.aux["step"]
        try:
            return self._advance(info, followed)
        except Exception as error:
            # An exception here would shut the whole workflow down, with its jobs left running.
            self._scheduler.forget(str(info.external_jobid))
            message = f"step {followed.name}: {type(error).__name__}: {error}\n"
            self.report_job_error(info, msg=message)
            return False

    def _advance(self, info: SubmittedJobInfo, followed: Followed) -> bool:
        """Do what is to be done now; is the job still active?"""
        allocation = str(info.external_jobid)
        self._tell_events(followed)
        state = self._scheduler.state(allocation)
        action = self._decide(followed, allocation, state)
        if isinstance(action, decide.Wait):
            return True
        self._tell_events(followed)  # those between the first look and the end
        self._scheduler.forget(allocation)
        match action:
            case decide.Succeed():
                self._succeed(info, followed)
                return False
            case decide.Fail():
                self._fail(info, followed, action, state.message)
                return False
            case decide.Continue():
                self._continue(info, followed, action)
            case decide.Adopt():
                return self._follow_holder(info, followed)
        return True

    def _decide(self, followed: Followed, allocation: str, state: Any) -> decide.Action:
        if followed.directory is None:
            return decide.decide_plain(state.name, state.status)
        if state.name in decide.ALIVE:
            return decide.Wait()
        # Of a runner that was adopted, only its exit record tells its allocation's name.
        own = None if allocation.startswith("adopted-") else allocation
        record = followed.directory.exit_record(own)
        newest = followed.directory.newest_generation()
        if record is not None and record.restored:
            followed.went_on = True
        return decide.decide(state.name, record, newest, followed.progress, self._limits)

    def _succeed(self, info: SubmittedJobInfo, followed: Followed) -> None:
        self._went_on += followed.went_on
        if followed.directory is not None:
            followed.directory.tidy()
        else:
            followed.log.unlink(missing_ok=True)
        self.report_job_success(info)

    def _fail(
        self, info: SubmittedJobInfo, followed: Followed, action: decide.Fail, message: str
    ) -> None:
        kept = ""
        if followed.directory is not None:
            if not action.keep:
                followed.directory.drop_generations()
            elif newest := followed.directory.newest_generation():
                kept = f" Generation {newest} is kept: running the workflow again goes on from it."
        more = f" ({message})" if message else ""
        text = f"step {followed.name}: {action.message}{more}.{kept} Its log is {followed.log}. "
        self.report_job_error(info, msg=text, aux_logs=[str(followed.log)])

    def _continue(
        self, info: SubmittedJobInfo, followed: Followed, action: decide.Continue
    ) -> None:
        where = f"from generation {action.generation}" if action.generation else "from the start"
        followed.went_on = followed.went_on or action.generation > 0
        followed.progress = action.progress
        self.logger.info(
            f"step {followed.name}: {action.why}; goes on {where} "
            f"(continuation {action.progress.restores} of at most {self._limits.max_restores})."
        )
        info.external_jobid = secrets.token_hex(8)
        self._start_runner(info.external_jobid, followed)

    def _follow_holder(self, info: SubmittedJobInfo, followed: Followed) -> bool:
        """Our runner found another one at work: follow it, or if it is gone, try once more."""
        assert followed.directory is not None
        followed.seeks += 1
        if pid := followed.directory.living_runner():
            info.external_jobid = f"adopted-{secrets.token_hex(4)}"
            self._scheduler.adopt(info.external_jobid, pid)
            return True
        if followed.seeks < MOST_SEEKS:
            info.external_jobid = secrets.token_hex(8)
            self._start_runner(info.external_jobid, followed)
            return True
        self._fail(info, followed, decide.Fail("another runner works on the step elsewhere"), "")
        return False

    def _tell_events(self, followed: Followed) -> None:
        for event in followed.ledger.new() if followed.ledger is not None else ():
            if text := tell(event):
                self.logger.info(f"step {followed.name}: {text}")

    def _looks_needed(self) -> bool:
        with self.lock:
            infos = list(self.active_jobs)
        return any(info.aux and info.aux["step"].directory is not None for info in infos)

"""Following steps from their submission to their one success or error."""

from __future__ import annotations

import secrets
from typing import Any

from snakemake_interface_executor_plugins.executors.base import SubmittedJobInfo  # type: ignore[import-untyped]

from . import decide
from .events import tell
from .start import ADOPTED, Followed, Starter

MOST_SEEKS = 3


class Follower:
    """Looks at steps, decides, acts."""

    def __init__(self, executor: Any, starter: Starter) -> None:
        self._executor = executor
        self._logger = executor.logger
        self._starter = starter
        self._scheduler = starter.scheduler
        self._limits = decide.Limits(starter.settings.max_restores)
        self.went_on = 0  # steps that succeeded after an interruption

    def still_active(self, info: SubmittedJobInfo) -> bool:
        assert info.aux is not None
        followed: Followed = info.aux["step"]
        try:
            return self._advance(info, followed)
        except Exception as error:
            # An exception here would shut the whole workflow down, with its jobs left running.
            self._scheduler.forget(str(info.external_jobid))
            message = f"step {followed.name}: {type(error).__name__}: {error}\n"
            self._executor.report_job_error(info, msg=message)
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
        own = None if allocation.startswith(ADOPTED) else allocation
        record = followed.directory.exit_record(own)
        newest = followed.directory.newest_generation()
        if record is not None and record.restored:
            followed.went_on = True
        return decide.decide(
            state.name, state.status, record, newest, followed.progress, self._limits
        )

    def _succeed(self, info: SubmittedJobInfo, followed: Followed) -> None:
        self.went_on += followed.went_on
        if followed.directory is not None:
            followed.directory.tidy()
        else:
            followed.log.unlink(missing_ok=True)
        self._executor.report_job_success(info)

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
        self._executor.report_job_error(info, msg=text, aux_logs=[str(followed.log)])

    def _continue(
        self, info: SubmittedJobInfo, followed: Followed, action: decide.Continue
    ) -> None:
        where = f"from generation {action.generation}" if action.generation else "from the start"
        followed.went_on = followed.went_on or action.generation > 0
        followed.progress = action.progress
        self._logger.info(
            f"step {followed.name}: {action.why}; goes on {where} "
            f"(continuation {action.progress.restores} of at most {self._limits.max_restores})."
        )
        info.external_jobid = secrets.token_hex(8)
        self._starter.start_runner(info.external_jobid, followed)

    def _follow_holder(self, info: SubmittedJobInfo, followed: Followed) -> bool:
        """Our runner found another one at work: follow it, or if it is gone, try once more."""
        assert followed.directory is not None
        followed.seeks += 1
        if pid := followed.directory.living_runner():
            info.external_jobid = ADOPTED + secrets.token_hex(4)
            self._scheduler.adopt(info.external_jobid, pid)
            return True
        if followed.seeks < MOST_SEEKS:
            info.external_jobid = secrets.token_hex(8)
            self._starter.start_runner(info.external_jobid, followed)
            return True
        self._fail(info, followed, decide.Fail("another runner works on the step elsewhere"), "")
        return False

    def _tell_events(self, followed: Followed) -> None:
        for event in followed.ledger.new() if followed.ledger is not None else ():
            if text := tell(event):
                self._logger.info(f"step {followed.name}: {text}")

"""The user's own check of what a restored step made."""

from __future__ import annotations

import os

from . import tree
from .ledger import UNKNOWN
from .run import Run, say

NOT_ASKED = "not asked for"


def outputs(run: Run) -> None:
    """Run the check and write its result to the ledger. It does not change how the step ended."""
    if not run.spec.check:
        run.event("output_verified", rc=NOT_ASKED)
        return
    rc = _check(run)
    run.event("output_verified", rc=rc)
    say(f"the output check ended with {rc}")


def _check(run: Run) -> int | str:
    try:
        check = tree.start(
            ["bash", "-c", run.spec.check],
            log=run.stepdir / "step.log",
            cwd=run.spec.workdir,
            environment={**os.environ, **run.spec.environment, tree.MARK: str(run.stepdir)},
            namespace=False,
            umask=run.umask,
        )
    except tree.NotStarted as error:
        say(f"the output check cannot be started: {error}")
        return UNKNOWN
    while not run.signals.stop:
        status = tree.reap().get(check.pid)
        if status is not None:
            return os.waitstatus_to_exitcode(status)
        run.signals.wait(60)
    tree.kill(check)
    return UNKNOWN

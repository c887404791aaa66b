"""Asks the scheduler whether an earlier allocation is over."""

from __future__ import annotations

import re
import shutil

from .lease import Holder

_PATIENCE = 30.0  # seconds
_OVER = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED REVOKED "
    "TIMEOUT".split()
)


def over(holder: Holder) -> bool | None:
    """Whether Slurm says that nothing of the holder's allocation runs; None where it cannot say."""
    squeue = shutil.which("squeue")
    if squeue is None or not re.fullmatch(r"\d+(_\d+)?", holder.allocation):
        return None
    import subprocess  # only the rare caller pays for it

    command = [squeue, "--noheader", "--states=all", "--format=%T", "--jobs", holder.allocation]
    try:
        ended = subprocess.run(  # noqa: S603
            command, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return judged(ended.returncode, ended.stdout, ended.stderr)


def judged(status: int, said: str, complained: str) -> bool | None:
    """What squeue's answer about one job means."""
    if status != 0:
        return True if "Invalid job id" in complained else None
    states = {line.split()[0].rstrip("+") for line in said.splitlines() if line.strip()}
    # A job that Slurm has forgotten and one that is still running are told apart by a state only.
    return states <= _OVER if states else None

"""A runner's life: take the lease, begin, watch and checkpoint the step, end."""

from __future__ import annotations

import math
import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from . import allocations, estimate, kernel, lease, machine, spec, tree, verify
from .begin import CANNOT_WORK, begin
from .checkpoint import HELD, Failed, final, heartbeat
from .durable import Damaged, Unsafe
from .engines import Engine
from .generations import Catalog, NoHardLinks
from .ledger import Ledger
from .run import Ending, Run, say
from .signals import Signals

STOPPED = 99
_LONGEST_BACKOFF = 64
_FOREIGN_PAUSE = 5.0  # seconds until a step is looked at again that had foreign files open
_CLOSING = 5.0  # seconds kept free before the end of an allocation, to kill and write
_SIGNAL_GRACE = 1.0  # seconds in which a signal to everybody reaches the runner too
# Why a step can never be checkpointed as it is; other failures may have passed by the next time.
_LASTING = frozenset(
    "foreign_file connection terminal device deleted_file mount namespace locked_file".split()
)
_COPIED_LOG = 16 << 20  # bytes of the step's output copied to the allocation's log


@dataclass(slots=True)
class _Plan:
    """Monotonic times at which something is due; inf = never."""

    end: float = math.inf
    final: float = math.inf
    heartbeat: float = math.inf
    sign: float = 0.0
    backoff: int = 1
    foreign: int = 0

    def next(self) -> float:
        return min(self.end, self.final, self.heartbeat, self.sign)


def main(stepdir: Path, allocation: str, seconds: float) -> int:
    """Run the step of this folder in an allocation that lasts `seconds`; returns exit status."""
    signals = Signals()
    signals.listen()
    umask = os.umask(0o077)
    begun = time.monotonic()
    try:
        run = _open(stepdir, allocation, seconds, umask, signals)
    except lease.Held as error:
        say(str(error))
        return HELD
    except (spec.BadSpec, OSError, ValueError, Damaged, Unsafe, NoHardLinks) as error:
        say(f"the runner cannot work: {error}")
        return _last_words(stepdir, allocation, str(error))
    run.begun = begun
    status, ended = _live(run)
    return _close(run, status, ended)


def _open(stepdir: Path, allocation: str, seconds: float, umask: int, signals: Signals) -> Run:
    what = spec.read(stepdir)
    kernel.adopt_orphans()
    held = lease.acquire(
        stepdir,
        allocation,
        gone=allocations.over,
        kill_survivors=lambda: tree.kill_marked(stepdir),
    )
    (stepdir / "exit.json").unlink(missing_ok=True)
    common = {
        "workflow": what.workflow,
        "rule": what.rule,
        "wildcards": what.wildcards,
        "step": what.key,
        "allocation": allocation,
        "host": os.uname().nodename,
        "engine": what.engine,
        **machine.facts(),
    }
    writer = f"runner-{allocation}-{held.holder.number}"
    catalog = Catalog(stepdir, what.key)
    run = Run(
        stepdir=stepdir,
        spec=what,
        allocation=allocation,
        seconds=seconds,
        umask=umask,
        signals=signals,
        lease=held,
        ledger=Ledger(stepdir / "ledger", writer, common),
        catalog=catalog,
        engine=_engine(what, stepdir),
    )
    if what.engine != "none":
        catalog.probe()
    run.generation = catalog.newest_number()
    return run


def _engine(what: spec.Spec, stepdir: Path) -> Engine:
    # Only the engine that is used is imported: half of the runner's start is imports.
    if what.engine == "criu":
        from .engines.criu import Criu

        return Criu(what.criu, stepdir, what.max_bytes)
    from .engines.none import NoEngine

    return NoEngine()


def _live(run: Run) -> tuple[int, spec.Exit]:
    try:
        log_from = _log_size(run)
        run.tree = begin(run)
        _know_engine(run)
        status, ended = _watch(run)
        _copy_log(run, log_from)
        return status, ended
    except Ending as error:
        return error.status, _exit(run, reason=error.reason, message=error.message)
    except Exception as error:
        # A fault of the runner: the tree is killed all the same, and the text is kept.
        import traceback

        traceback.print_exc(file=sys.stdout)
        message = f"fault of the runner: {type(error).__name__}: {error}"
        return CANNOT_WORK, _exit(run, reason="failed", message=message)
    finally:
        _kill_all(run)


def _know_engine(run: Run) -> None:
    """After the start, for it takes a tenth of a second. Raises Ending where it cannot work."""
    if run.engine.name == "none":
        run.checkpoints = False
        return
    if run.restored:
        return
    why = run.engine.check()
    if why and not run.spec.allow_uncheckpointed:
        raise Ending("failed", CANNOT_WORK, f"{run.engine.name} does not work here: {why}")
    if why:
        say(f"{run.engine.name} does not work here, the step runs without checkpoints: {why}")
        run.checkpoints = False
        return
    run.engine_version = run.engine.version()


def _watch(run: Run) -> tuple[int, spec.Exit]:
    plan = _Plan(end=run.end - min(_CLOSING, run.seconds / 10))
    _plan_final(run, plan)
    _plan_heartbeat(run, plan)
    while True:
        if (ended := _ended(run)) is not None:
            return ended
        if run.signals.stop:
            return _stopped(run, "terminated", "told to stop")
        now = time.monotonic()
        if now >= plan.sign:
            _give_sign(run)
            plan.sign = now + lease.REFRESH
            if not run.costs:
                _plan_final(run, plan)
        if run.checkpoints and (run.signals.lead or now >= plan.final):
            if _final(run, plan):
                return _stopped(run, "limit", "")
        elif now >= plan.heartbeat:
            _heartbeat(run, plan)
        elif now >= plan.end:
            return _at_the_end(run)
        else:
            run.signals.wait(plan.next() - now)


def _costs(run: Run) -> list[estimate.Cost]:
    if run.costs:
        return run.costs
    assert run.tree is not None
    return [estimate.first_cost(tree.memory(run.tree))]


def _plan_final(run: Run, plan: _Plan) -> None:
    if run.checkpoints and run.seconds != math.inf:
        plan.final = run.end - estimate.lead(run.spec.lead_time, _costs(run), run.seconds)


def _plan_heartbeat(run: Run, plan: _Plan) -> None:
    seconds = estimate.interval(run.spec.interval, run.spec.mtbf, _costs(run))
    if not run.checkpoints or not seconds:
        plan.heartbeat = math.inf
        return
    chance = int.from_bytes(os.urandom(4)) / 2**32
    plan.heartbeat = time.monotonic() + estimate.jittered(seconds * plan.backoff, chance)


def _heartbeat(run: Run, plan: _Plan) -> None:
    try:
        heartbeat(run)
    except Failed as error:
        _tell_failed(run, error)
        if error.reason == "no_slot" or (error.reason == "foreign_file" and plan.foreign < 3):
            # A file may be open for a moment only: look again soon before it is said to be so.
            plan.foreign += error.reason == "foreign_file"
            plan.heartbeat = time.monotonic() + _FOREIGN_PAUSE
            return
        plan.backoff = min(_LONGEST_BACKOFF, 2 * plan.backoff)
    else:
        plan.backoff, plan.foreign = 1, 0
    _plan_heartbeat(run, plan)
    _plan_final(run, plan)


def _final(run: Run, plan: _Plan) -> bool:
    """The last checkpoint; False where there is none and the step runs on."""
    soon = run.signals.lead and time.monotonic() < plan.final - 2 * estimate.MARGIN
    reason = "preemption" if soon and run.seconds != math.inf else "limit"
    try:
        final(run, reason)
    except Failed as error:
        _tell_failed(run, error)
        run.signals.lead = False
        again = time.monotonic() + max(_CLOSING, max(cost.frozen for cost in _costs(run)))
        plan.final = again if again < plan.end else math.inf
        plan.heartbeat = math.inf
        return False
    return True


def _tell_failed(run: Run, error: Failed) -> None:
    if error.reason in ("abandoned", "step_ended"):
        return
    say(f"no checkpoint: {error}")
    run.event("checkpoint_failed", reason=error.reason, excerpt=error.text)
    run.trouble = str(error)
    run.lasting = error.reason in _LASTING
    run.broken_off = run.broken_off or error.reason == "timeout"


def _give_sign(run: Run) -> None:
    try:
        held = run.lease.held()
    except OSError as error:
        say(f"the step's folder does not answer: {error}")
        return
    if not held:
        raise Ending("held", HELD, "another runner has taken the step over")


def _ended(run: Run) -> tuple[int, spec.Exit] | None:
    """What came of the step, if its first process has ended."""
    assert run.tree is not None
    status = tree.reap().get(run.tree.pid)
    if status is None:
        return None
    rc = os.waitstatus_to_exitcode(status)
    rc = 128 - rc if rc < 0 else rc
    if rc and _told_to_stop(run, rc):
        # Slurm signals every process: that the step failed now says nothing about the step.
        return _stopped(run, "terminated", f"the step ended with {rc} when it was told to stop")
    if rc and run.broken_off:
        # A killed CRIU may leave a trap in the step: that is no failure of the step's own.
        return _stopped(run, "limit", f"the step ended with {rc} after a dump was broken off")
    if rc == 0 and run.restored:
        verify.outputs(run)
    run.event("exited", rc=rc)
    signalled = rc - 128 if 128 < rc < 128 + signal.NSIG else 0
    return rc, _exit(run, rc=rc, signal_=signalled, reason="ended", message="")


def _told_to_stop(run: Run, rc: int) -> bool:
    by_signal = rc in (128 + signal.SIGTERM, 128 + signal.SIGINT, 128 + signal.SIGHUP)
    deadline = time.monotonic() + (_SIGNAL_GRACE if by_signal else _SIGNAL_GRACE / 5)
    while not run.signals.stop and (left := deadline - time.monotonic()) > 0:
        run.signals.wait(left)
    return bool(run.signals.stop)


def _at_the_end(run: Run) -> tuple[int, spec.Exit]:
    if run.generation or not run.lasting or run.spec.allow_uncheckpointed:
        return _stopped(run, "limit", run.trouble)
    return CANNOT_WORK, _exit(run, reason="uncheckpointable", message=run.trouble, stopping=True)


def _stopped(run: Run, reason: str, message: str) -> tuple[int, spec.Exit]:
    run.event("stopped", reason=reason, signal=run.signals.stop)
    ended = _exit(run, signal_=run.signals.stop, reason=reason, message=message, stopping=True)
    return STOPPED, ended


def _exit(
    run: Run,
    *,
    reason: str,
    message: str,
    rc: int | str = spec.UNKNOWN,
    signal_: int = 0,
    stopping: bool = False,
) -> spec.Exit:
    return spec.Exit(
        allocation=run.allocation,
        rc=rc,
        stopping=stopping,
        signal=signal_,
        generation=run.generation,
        restored=run.restored,
        reason=reason,
        message=message,
    )


def _kill_all(run: Run) -> None:
    """Nothing of the step outlives its runner."""
    left = tree.kill(run.tree) if run.tree is not None else []
    tree.kill_children()
    if run.tree is None or not run.tree.namespaced:
        left += tree.kill_marked(run.stepdir)
    if left:
        say(f"processes of the step cannot be killed: {left}")
    run.survivors = left


def _close(run: Run, status: int, ended: spec.Exit) -> int:
    if ended.reason != "held":  # the step's folder is another runner's by then
        try:
            spec.write_exit(run.stepdir, ended)
        except OSError as error:
            say(f"exit.json cannot be written: {error}")
    run.signals.ignore()  # the interpreter's own end would let a late one decide the exit status
    if ended.message:
        say(f"{ended.reason}: {ended.message}")
    try:
        if not run.survivors:
            run.lease.release()
    except OSError as error:
        say(f"the lease cannot be given back: {error}")
    return status


def _last_words(stepdir: Path, allocation: str, why: str) -> int:
    ended = spec.Exit(allocation, spec.UNKNOWN, False, 0, 0, 0, "failed", why)
    try:
        spec.write_exit(stepdir, ended)
    except OSError as error:
        say(f"exit.json cannot be written: {error}")
    return CANNOT_WORK


def _log_size(run: Run) -> int:
    try:
        return (run.stepdir / "step.log").stat().st_size
    except FileNotFoundError:
        return 0


def _copy_log(run: Run, begin_: int) -> None:
    """In a Slurm job: what the step said in this allocation, into the job's own log."""
    if "SLURM_JOB_ID" not in os.environ:
        return
    with (run.stepdir / "step.log").open("rb") as log:
        end = log.seek(0, os.SEEK_END)
        log.seek(max(begin_, end - _COPIED_LOG))
        while data := log.read(1 << 16):
            say(data.decode(errors="replace"))

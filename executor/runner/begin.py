"""How an allocation begins: from the newest generation that can be restored, or fresh."""

from __future__ import annotations

import os
import time

from . import estimate, ledger, machine, tree
from .durable import Damaged, Foreign, Unsafe
from .engines import RestoreFailed
from .filecut import put_back
from .generations import Generation
from .run import Ending, Run, say
from .tree import Tree

WRONG_NODE = 98
CANNOT_WORK = 96
_PID_PATIENCE = (0.5, 2.0, 5.0)  # seconds between tries while a pid is in use


def begin(run: Run) -> Tree:
    """Start or restore the step. Raises Ending where it must not run here."""
    failed = 0
    if run.engine.name != "none":
        for generation in run.catalog.candidates():
            run.generation = max(run.generation, generation.number)
            try:
                return _restore(run, generation)
            except _Unusable as error:
                failed += 1
                say(f"generation {generation.number} cannot be restored: {error}")
                run.event(
                    "restore_failed",
                    generation=generation.number,
                    reason=error.reason,
                    excerpt=error.text,
                )
            if run.signals.stop:
                raise Ending("terminated", 99, "told to stop before a generation was restored")
    return _fresh(run, failed)


class _Unusable(Exception):
    """This generation does not come back."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason = reason
        self.text = text

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


def _restore(run: Run, generation: Generation) -> Tree:
    try:
        run.catalog.verify(generation)
    except (Damaged, Unsafe) as error:
        raise _Unusable("damaged", str(error)) from error
    _fit(run, generation)
    begun = time.monotonic()
    _put_back(run, generation)
    restored = _processes(run, generation)
    run.restored = generation.number
    run.costs += _known_costs(generation)
    run.event("restored", seconds=time.monotonic() - begun)
    say(f"restored generation {generation.number}")
    return restored


def _fit(run: Run, generation: Generation) -> None:
    """Raises Ending where the newest whole generation fits other machines only."""
    run.engine_version = run.engine.version()
    here = machine.image_facts() | {
        "engine": run.engine.name,
        "engine_version": run.engine_version,
        "namespaced": os.geteuid() == 0,
    }
    why = run.engine.check() or machine.misfit(generation.facts, here)
    if why:
        run.event("wrong_node", generation=generation.number, reason=why)
        raise Ending("wrong_node", WRONG_NODE, f"generation {generation.number}: {why}")


def _put_back(run: Run, generation: Generation) -> None:
    aside = run.stepdir / "aside" / f"{int(time.time())}.{os.urandom(4).hex()}"
    try:
        put_back(generation.cut, run.catalog.store, run.spec.own, aside)
    except (Damaged, Foreign, Unsafe) as error:
        raise _Unusable("files", str(error)) from error
    except OSError as error:
        # The file system, not the generation: an older one would fare no better.
        run.event(
            "restore_failed", generation=generation.number, reason="io_error", excerpt=str(error)
        )
        raise Ending("failed", CANNOT_WORK, f"files cannot be put back: {error}") from error


def _processes(run: Run, generation: Generation) -> Tree:
    namespaced = bool(generation.facts.get("namespaced"))
    frozen = generation.facts.get("frozen_seconds")
    deadline = estimate.restore_deadline(frozen if isinstance(frozen, (int, float)) else 0)
    for pause in (*_PID_PATIENCE, None):
        try:
            return run.engine.restore(generation.image, namespaced=namespaced, deadline=deadline)
        except RestoreFailed as error:
            if error.reason != "pid_in_use":
                raise _Unusable(error.reason, error.excerpt) from error
            if pause is None or run.signals.stop:
                run.event(
                    "wrong_node",
                    generation=generation.number,
                    reason="pid_in_use",
                    excerpt=error.excerpt,
                )
                raise Ending(
                    "wrong_node", WRONG_NODE, f"a pid is in use: {error.excerpt}"
                ) from error
        run.signals.wait(pause)
    raise AssertionError("the last try returns or raises")


def _known_costs(generation: Generation) -> list[estimate.Cost]:
    """What the step's checkpoints took in earlier allocations, as its manifest remembers it."""
    said = generation.facts.get("costs")
    pairs = said if isinstance(said, list) else []
    return [estimate.Cost(float(frozen), float(total)) for frozen, total in pairs]


def _fresh(run: Run, failed: int) -> Tree:
    if failed and _fresh_before(run):
        raise Ending("failed", CANNOT_WORK, "no generation can be restored, for the second time")
    started = _start(run)
    run.event("started", after_failed_restores=failed)
    say("started from the beginning" + (f": {failed} generations failed" if failed else ""))
    return started


def _fresh_before(run: Run) -> bool:
    """Whether this step began anew once already because nothing could be restored."""
    events = ledger.read(run.stepdir / "ledger").events
    return any(each["event"] == "started" and each.get("after_failed_restores") for each in events)


def _start(run: Run) -> Tree:
    environment = {**os.environ, **run.spec.environment, tree.MARK: str(run.stepdir)}
    command = ["bash", str(run.stepdir / "command.sh")]

    def start(namespace: bool) -> Tree:
        return tree.start(
            command,
            log=run.stepdir / "step.log",
            cwd=run.spec.workdir,
            environment=environment,
            namespace=namespace,
            umask=run.umask,
        )

    try:
        if os.geteuid() == 0 and run.engine.name != "none":
            try:
                return start(namespace=True)
            except tree.NotStarted as error:
                say(f"no namespace of its own: {error}")
        return start(namespace=False)
    except tree.NotStarted as error:
        raise Ending("failed", CANNOT_WORK, f"the step cannot be started: {error}") from error

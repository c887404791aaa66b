"""One checkpoint of a running step: from the freeze to the seal."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from . import estimate, machine, proc, slots, tree
from .durable import Damaged, Foreign, Unsafe
from .engines import DumpFailed
from .filecut import Cut, finish, take
from .generations import Draft, Fenced, Generation
from .run import Ending, Run, say
from .sizes import bytes_text
from .tree import Tree

HELD = 97
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_KNOWN_COSTS = 200  # of earlier checkpoints that a manifest remembers


class Failed(Exception):
    """No checkpoint was made; the step runs on. `reason` is one of docs/ledger.md's."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(reason, text)
        self.reason = reason
        self.text = text

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}" if self.text else self.reason


class _Foreign(Exception):
    """The step writes files that are not its own: they would not be put back."""

    def __init__(self, files: tuple[Path, ...]) -> None:
        super().__init__(files)
        self.files = files


def heartbeat(run: Run) -> None:
    """Checkpoint and let the step go on. Raises Failed, or Ending when the step is lost."""
    _make_room(run)
    with slots.slot(run.spec.slots_dir, run.spec.dump_slots) as free:
        if not free:
            raise Failed("no_slot", "")
        _checkpoint(run, "heartbeat", leave_running=True)


def final(run: Run, reason: str) -> None:
    """Checkpoint and leave the step standing still. Raises Failed, and then it runs on."""
    assert run.tree is not None
    with slots.slot(run.spec.slots_dir, run.spec.dump_slots):  # a last chance waits for nobody
        try:
            _checkpoint(run, reason, leave_running=False)
        except BaseException:
            tree.thaw(run.tree)
            raise


def _checkpoint(run: Run, reason: str, *, leave_running: bool) -> None:
    begun = time.monotonic()
    number = max(run.catalog.newest_number(), run.generation) + 1
    try:
        draft = run.catalog.begin(number)
    except (OSError, Unsafe, Fenced) as error:
        raise _failed(error) from error
    try:
        generation, parts = _sealed(run, draft, leave_running)
    except BaseException as error:
        _abandon(run, draft)
        raise _failed(error) from error
    total = time.monotonic() - begun
    run.generation = generation.number
    run.costs.append(estimate.Cost(parts.frozen, total))
    run.event(
        "checkpoint",
        reason=reason,
        frozen_seconds=parts.frozen,
        hashing_seconds=parts.hashing,
        total_seconds=total,
        image_bytes=parts.image_bytes,
        cut_bytes=generation.cut.bytes,
        files=generation.cut.file_count,
        storage=machine.storage(run.stepdir),
    )
    amount = bytes_text(parts.image_bytes + generation.cut.new_bytes)
    say(f"generation {generation.number} sealed ({amount}, frozen {parts.frozen:.1f} s)")
    _prune(run, run.spec.keep_generations)


@dataclass(frozen=True, slots=True)
class _Parts:
    frozen: float
    hashing: float
    image_bytes: int


def _sealed(run: Run, draft: Draft, leave_running: bool) -> tuple[Generation, _Parts]:
    assert run.tree is not None
    running = run.tree
    own = _real(run)
    previous = next((each.cut for each in run.catalog.candidates()), None)
    cuts: list[Cut] = []

    def frozen() -> None:
        _refuse(run, running, own)
        cuts.append(take(run.spec.own, run.catalog.store, previous))

    stood = run.engine.dump(
        running,
        draft.image,
        leave_running=leave_running,
        frozen=frozen,
        deadline=_deadline(run, leave_running),
        wanted=lambda: not run.signals.stop,
    )
    thawed = time.monotonic()
    image_bytes = sum(path.lstat().st_size for path in draft.image.iterdir())
    cut = finish(cuts[0], run.catalog.store)
    if not run.lease.held():
        raise Fenced("another runner has taken the step over")
    facts = _facts(run, running, stood.seconds)
    generation = run.catalog.seal(draft, cut, facts)
    return generation, _Parts(stood.seconds, time.monotonic() - thawed, image_bytes)


def _refuse(run: Run, running: Tree, own: frozenset[Path]) -> None:
    """While all tasks stand still: raise where an image of them must not be kept."""
    pids = tree.members(running)
    # What waits for delivery now is in the image: the restored step would die of it. Whoever was
    # signalled before the freeze got it together with this runner.
    if run.signals.stop or proc.asked_to_stop(pids):
        raise DumpFailed("abandoned", "the step has been told to stop")
    files = tree.open_for_writing(pids)
    if foreign := sorted(file for file in files if own.isdisjoint((file, *file.parents))):
        raise _Foreign(tuple(foreign))


def _real(run: Run) -> frozenset[Path]:
    """The files and folders that the step may have open for writing, as /proc names them."""
    own = run.spec.own
    step = (run.stepdir / name for name in ("step.log", "tmp", "shadow"))
    named: Iterable[Path] = (*own.files, *own.directories, *run.spec.shared_append, *step)
    return frozenset(Path(os.path.realpath(path)) for path in named)


def _deadline(run: Run, leave_running: bool) -> float:
    usual = estimate.dump_deadline(run.costs or [estimate.first_cost(0)])
    left = run.end - time.monotonic()
    return usual if leave_running else max(1.0, min(usual, left))


def _facts(run: Run, running: Tree, frozen: float) -> dict[str, object]:
    """What the manifest remembers beside the files."""
    costs = [(cost.frozen, cost.total) for cost in run.costs[-_KNOWN_COSTS:]]
    return {
        **machine.image_facts(),
        "engine": run.engine.name,
        "engine_version": run.engine_version,
        "namespaced": running.namespaced,
        "allocation": run.allocation,
        "lease": run.lease.holder.number,
        "frozen_seconds": frozen,
        "costs": costs,
    }


def _failed(error: BaseException) -> BaseException:
    """The same as this project's words have it."""
    if isinstance(error, DumpFailed):
        return Failed(error.reason, error.excerpt)
    if isinstance(error, _Foreign):
        names = ", ".join(map(str, error.files[:5]))
        return Failed("foreign_file", f"open for writing, but not the step's own: {names}")
    if isinstance(error, Fenced):
        return Ending("held", HELD, str(error))
    if isinstance(error, (Damaged, Foreign, Unsafe)):
        return Failed("cut", str(error))
    if isinstance(error, OSError):
        return Failed("no_space" if error.errno in _NO_SPACE else "io_error", str(error))
    return error


def _abandon(run: Run, draft: Draft) -> None:
    try:
        run.catalog.abandon(draft)
    except OSError as error:
        say(f"what is left of a failed checkpoint stays: {error}")


def _make_room(run: Run) -> None:
    """Prune below max_bytes. Raises Failed where one more generation would not fit."""
    most = run.spec.max_bytes
    if not most:
        return
    for keep in range(run.spec.keep_generations, 0, -1):
        used = run.catalog.bytes_used()
        if used + used / max(1, len(run.catalog.numbers())) <= most:
            return
        _prune(run, keep)
    used = run.catalog.bytes_used()
    if used + used / max(1, len(run.catalog.numbers())) > most:
        raise Failed("max_bytes", f"{bytes_text(used)} are kept, {bytes_text(most)} allowed")


def _prune(run: Run, keep: int) -> None:
    try:
        gone = run.catalog.prune(keep)
    except OSError as error:
        say(f"old generations stay: {error}")
        return
    if gone:
        run.event("pruned", pruned=gone)

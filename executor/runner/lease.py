"""Who runs a step: at most one runner at a time.

Holders are numbered. Holder N+1 takes over by creating record N+1, which succeeds once, after it
has found holder N gone. The highest number is the holder; a runner that finds a higher one than
its own has lost the step and stops it. A lease keeps two runners apart; what a runner that was cut
off writes meanwhile, the numbered generations refuse.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from . import proc
from .durable import fsync_folder, private_folder, read_json, write_json

REFRESH = 10.0  # seconds between two signs of life of a holder
SILENCE = 150.0  # seconds without one after which a machine nobody can ask counts as gone
_MOST_BYTES = 1 << 16
_RECORD = re.compile(r"([0-9]{6,})\.json")


class Held(Exception):
    """The step has a live holder; the text names it."""


@dataclass(frozen=True, slots=True)
class Holder:
    """One record. `machine` is the boot and the process namespace, within which pids mean one
    thing; `start` is the process' start in clock ticks."""

    number: int
    host: str
    machine: str
    pid: int
    start: int
    allocation: str
    released: bool

    def describe(self) -> str:
        return f"allocation {self.allocation}, process {self.pid} on {self.host}"


def machine() -> str:
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {Path('/proc/self/ns/pid').readlink()}"


def current(stepdir: Path) -> Holder | None:
    """The newest holder, alive or not. Raises OSError or ValueError where it cannot be read."""
    folder = stepdir / "lease"
    numbers = _numbers(folder)
    return _read(folder, max(numbers)) if numbers else None


def alive(holder: Holder) -> bool | None:
    """Whether its runner is alive: None where this machine cannot tell."""
    if holder.released:
        return False
    if holder.machine == machine():
        return proc.alive(holder.pid, holder.start)
    return False if holder.host == os.uname().nodename and _rebooted(holder) else None


def _rebooted(holder: Holder) -> bool:
    """Another boot of the same host: nothing of the former one is left."""
    return holder.machine.split()[0] != machine().split()[0]


class Lease:
    """A lease that this process holds."""

    def __init__(self, stepdir: Path, holder: Holder) -> None:
        self.holder = holder
        self._folder = stepdir / "lease"
        self._path = self._folder / _name(holder.number)

    def held(self) -> bool:
        """Give a sign of life, and say whether no other runner has taken the step over.

        Raises OSError where the file system does not answer.
        """
        try:
            os.utime(self._path)
        except FileNotFoundError:  # two holders later the record is cleared away
            return False
        return not (self._folder / _name(self.holder.number + 1)).exists()

    def release(self) -> None:
        """Say that the runner and all its processes are gone. The number stays used."""
        write_json(self._path, asdict(self.holder) | {"released": True})


def acquire(
    stepdir: Path,
    allocation: str,
    *,
    gone: Callable[[Holder], bool | None],
    kill_survivors: Callable[[], list[int]],
    silence: float = SILENCE,
) -> Lease:
    """Become the holder. Raises Held where another runner is alive.

    Of a holder on this machine the processes that outlived it are killed first. Of one elsewhere
    `gone` is asked: True, False, or None when it cannot tell; then the holder's signs of life are
    awaited for `silence` seconds by this machine's own clock.
    """
    private_folder(stepdir / "lease")
    while True:
        last = current(stepdir)
        if last is not None:
            _see_it_gone(stepdir, last, gone, silence)
        if left := kill_survivors():
            raise Held(f"processes of an earlier runner cannot be killed: {left}")
        holder = _own_record(1 if last is None else last.number + 1, allocation)
        if _create(stepdir / "lease", holder):
            _forget(stepdir / "lease", holder.number)
            return Lease(stepdir, holder)
        # Another runner was faster: judge that one.


def _see_it_gone(
    stepdir: Path, last: Holder, gone: Callable[[Holder], bool | None], silence: float
) -> None:
    living = alive(last)
    if living is None and (answer := gone(last)) is not None:
        living = not answer
    if living is None:
        living = _gives_sign(stepdir / "lease" / _name(last.number), silence)
    if living:
        raise Held(f"the step is run by {last.describe()}")


def _gives_sign(path: Path, silence: float) -> bool:
    """Whether the record is touched within `silence` seconds. Its times are the server's: only
    that they change counts, not what they are."""

    def seen() -> int:
        # Opening makes a network file system ask its server instead of its memory.
        with path.open("rb") as file:
            return os.fstat(file.fileno()).st_mtime_ns

    before = seen()
    deadline = time.monotonic() + silence
    while (left := deadline - time.monotonic()) > 0:
        time.sleep(min(1.0, left))
        with contextlib.suppress(FileNotFoundError):
            if seen() != before:
                return True
    return False


def _own_record(number: int, allocation: str) -> Holder:
    own = proc.process(os.getpid())
    assert own is not None
    host = os.uname().nodename
    return Holder(number, host, machine(), own.pid, own.start, allocation, released=False)


def _create(folder: Path, holder: Holder) -> bool:
    """Publish the record under its number, once. False where the number is taken."""
    draft = folder / f"draft.{os.urandom(8).hex()}"
    write_json(draft, asdict(holder))
    try:
        os.link(draft, folder / _name(holder.number))
    except FileExistsError:
        # The answer to a link that succeeded may have been lost on its way.
        if not (folder / _name(holder.number)).samefile(draft):
            return False
    finally:
        draft.unlink()
    fsync_folder(folder)
    return True


def _forget(folder: Path, number: int) -> None:
    """Remove what earlier holders left, but for the last one: a slow reader may be at it."""
    for old in _numbers(folder):
        if old < number - 1:
            (folder / _name(old)).unlink(missing_ok=True)


def _numbers(folder: Path) -> list[int]:
    try:
        names = [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return []
    return [int(match[1]) for name in names if (match := _RECORD.fullmatch(name))]


def _read(folder: Path, number: int) -> Holder:
    text = read_json(folder / _name(number), _MOST_BYTES)
    fields = {key: text[key] for key in Holder.__slots__ if key in text}
    try:
        holder = Holder(**fields)
    except TypeError as error:
        raise ValueError(f"not a lease record: {json.dumps(text)[:200]}") from error
    if not isinstance(holder.pid, int) or holder.number != number:
        raise ValueError(f"not a lease record: {json.dumps(text)[:200]}")
    return holder


def _name(number: int) -> str:
    return f"{number:06d}.json"

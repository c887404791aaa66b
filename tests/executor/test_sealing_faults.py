"""Killed, or failing, at any system call of sealing and putting back, nothing sealed is lost.

Shown for the death of the process and for errors of the file system; a loss of power, after which
what was not flushed is gone, is not tried here.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import sealer
from proving import PROVING, SEED
from storage import make_stepdir, sealed, seen

import snakemake_executor_plugin_cedana.runner as runner
from snakemake_executor_plugin_cedana.runner.cut import Own
from snakemake_executor_plugin_cedana.runner.filecut import put_back
from snakemake_executor_plugin_cedana.runner.generations import Catalog

STRACE = shutil.which("strace")
pytestmark = pytest.mark.skipif(STRACE is None, reason="needs strace")

QUICK = 12
"""How many points a quick sample tries of each sweep."""

KILLED_BY_SIGKILL = -9
CALL = re.compile(r"^(?:\[pid +\d+\] |\d+ +)?(\w+)\(")
UNINTERESTING = {"exit_group", "rt_sigaction", "brk", "mmap", "munmap", "sched_setaffinity"}
CAN_FAIL = {
    "openat": "ENOSPC",
    "mkdir": "ENOSPC",
    "mkdirat": "EDQUOT",
    "write": "ENOSPC",
    "pwrite64": "EIO",
    "copy_file_range": "ENOSPC",
    "ftruncate": "EDQUOT",
    "fsync": "EIO",
    "close": "EDQUOT",
    "chmod": "EIO",
    "fchmod": "EIO",
    "link": "EIO",
    "linkat": "EIO",
    "rename": "EIO",
    "renameat": "ENOSPC",
    "unlink": "EIO",
    "unlinkat": "EIO",
    "utimensat": "EIO",
    "symlinkat": "ENOSPC",
    "lseek": "EIO",
    "getdents64": "EIO",
    "newfstatat": "EIO",
}


class Place:
    """A step with two sealed generations and files that have changed since."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        (self.work / "results").mkdir(parents=True)
        (self.work / "tree" / "inner").mkdir(parents=True)
        self.own = Own(*sealer.own_of(self.work))
        self.catalog = Catalog(make_stepdir(folder), sealer.KEY)
        self.write("first\n")
        sealed(self.catalog, self.own)
        self.write("second\n")
        sealed(self.catalog, self.own)
        self.at_newest = self.seen()
        self.write("since\n")
        (self.work / "tree" / "new").write_text("new")
        (self.work / "tree" / "inner" / "a").unlink()

    def write(self, text: str) -> None:
        for path in (*self.own.files, self.work / "tree" / "inner" / "a"):
            with path.open("a") as file:
                file.write(text * 300)
        (self.work / "tree" / "b").unlink(missing_ok=True)
        (self.work / "tree" / "b").hardlink_to(self.own.files[0])

    def seen(self) -> dict[str, tuple[object, ...]]:
        return seen(*self.own.files, *self.own.directories)

    def run(self, what: str, *options: str) -> subprocess.CompletedProcess[str]:
        assert STRACE is not None
        parent = Path(runner.__path__[0]).parent
        program = [sys.executable, "-I", "-S", sealer.__file__, str(parent), what, str(self.folder)]
        log = self.folder / "strace.log"
        return subprocess.run(
            [STRACE, "-f", "-o", str(log), *options, "--", *program],
            capture_output=True,
            text=True,
            timeout=120,
        )


def points(place: Place, what: str) -> list[tuple[str, int]]:
    """Return (system call, its count since the program began) for every call of the work."""
    assert 0 == place.run(what, "-e", "trace=%file,%desc").returncode
    counts: Counter[str] = Counter()
    found, working = [], False
    for line in (place.folder / "strace.log").read_text().splitlines():
        match = CALL.match(line)
        if match is None:
            continue
        name = match[1]
        counts[name] += 1
        if '"/begin"' in line or '"/end"' in line:
            working = '"/begin"' in line
        elif working and name not in UNINTERESTING:
            found.append((name, counts[name]))
    assert len(found) > 50
    return found


def sample(found: list[tuple[str, int]]) -> list[tuple[str, int]]:
    if PROVING:
        return found
    return random.Random(SEED).sample(found, min(QUICK, len(found)))  # noqa: S311


def sweep(
    folder: Path,
    what: str,
    inject: Callable[[str], str | None],
    check: Callable[[Place, int], None],
) -> None:
    """Run the work once for every point, with what inject says at it, on a place of its own."""
    template = Place(folder / "0")
    found = [point for point in points(template, what) if inject(point[0])]
    hit = 0
    for number, (name, count) in enumerate(sample(found), 1):
        place = Place(folder / str(number))
        order = f"inject={name}:{inject(name)}:when={count}"
        ended = place.run(what, "-e", "trace=%file,%desc", "-e", order)
        assert ended.returncode in (0, 3, KILLED_BY_SIGKILL), (order, ended.stderr)
        hit += ended.returncode != 0
        try:
            check(place, ended.returncode)
        except BaseException as error:
            error.add_note(f"{order} (of {len(found)} points; seed {SEED})")
            raise
        shutil.rmtree(place.folder)
    assert hit > 0


def check_sealed(place: Place, status: int) -> None:
    """The catalog has N or N + 1, all whole; without a kill no leftover; the next one seals."""
    numbers = [each.number for each in place.catalog.candidates()]
    assert numbers in ([2, 1], [3, 2, 1], [3, 2])
    for found in Catalog(place.catalog.folder.parent, sealer.KEY).candidates():
        place.catalog.verify(found)
    if status == 3:
        assert len(numbers) == len([p for p in place.catalog.folder.iterdir() if p.is_dir()])
        needed = {p.name for each in place.catalog.candidates() for p in each.cut.parts()}
        assert needed == place.catalog.store.names()
    assert 0 == place.run("seal").returncode
    newest = next(place.catalog.candidates())
    assert max(numbers) + 1 == newest.number
    place.catalog.verify(newest)
    left = {path.name for path in place.catalog.folder.iterdir()}
    kept = list(place.catalog.candidates())
    assert 2 == len(kept)
    assert {f"{g.number:06d}.json" for g in kept} | {g.folder.name for g in kept} == left
    put_back(newest.cut, place.catalog.store, place.own, place.folder / "step" / "aside" / "9")


def check_put_back(place: Place, status: int) -> None:
    """Called again it ends as if nothing had happened, and nothing that was new is lost."""
    assert 0 == place.run("put_back").returncode

    assert place.at_newest == place.seen()
    names = {path.name for path in place.work.rglob("*")}
    assert {"results", "out.txt", "step.log", "tree", "inner", "a", "b"} == names
    aside = place.folder / "step" / "aside" / "1" / str(place.work / "tree").lstrip("/")
    assert "new" == (aside / "new").read_text()


CHECKS = {"seal": check_sealed, "put_back": check_put_back}


@pytest.mark.parametrize("what", ["seal", "put_back"])
def test_killed_at_any_system_call(tmp_path: Path, what: str) -> None:
    sweep(tmp_path, what, lambda _: "signal=KILL", CHECKS[what])


@pytest.mark.parametrize("what", ["seal", "put_back"])
def test_error_at_any_system_call(tmp_path: Path, what: str) -> None:
    def error(name: str) -> str | None:
        return f"error={CAN_FAIL[name]}" if name in CAN_FAIL else None

    sweep(tmp_path, what, error, CHECKS[what])


def test_template_puts_back_what_it_should(tmp_path: Path) -> None:
    """The sweeps are worth something only if the undisturbed work passes their checks."""
    for what, check in CHECKS.items():
        place = Place(tmp_path / what)
        check(place, place.run(what).returncode)

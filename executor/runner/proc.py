"""What /proc says about processes. A process that ends while it is read is passed over."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_DELETED = " (deleted)"
_ASKED_TO_STOP = 1 << (signal.SIGTERM - 1) | 1 << (signal.SIGINT - 1)


@dataclass(frozen=True, slots=True)
class Process:
    """One process; pid and start (clock ticks since boot) together are never used twice."""

    pid: int
    parent: int
    start: int
    state: str


def process(pid: int) -> Process | None:
    """The process of this pid, or None where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The program's name stands in brackets and may hold anything, brackets and blanks too.
    fields = text[text.rindex(")") + 2 :].split()
    return Process(pid, int(fields[1]), int(fields[19]), fields[0])


def alive(pid: int, start: int) -> bool:
    """Whether this very process runs; one that ended and waits for its parent does not."""
    found = process(pid)
    return found is not None and found.start == start and found.state not in "ZX"


def processes() -> Iterator[Process]:
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and (found := process(int(name))) is not None:
            yield found


def descendants(root: int) -> list[Process]:
    """Everything below root, without root itself, parents before children."""
    children: dict[int, list[Process]] = {}
    for each in processes():
        children.setdefault(each.parent, []).append(each)
    found: list[Process] = []
    queue = [root]
    while queue:
        below = children.get(queue.pop(0), [])
        found += below
        queue += [each.pid for each in below]
    return found


def ancestors(pid: int) -> set[int]:
    found: set[int] = set()
    while pid > 0 and (here := process(pid)) is not None:
        pid = here.parent
        found.add(pid)
    return found


def carrying(variable: str, value: str) -> list[Process]:
    """Processes whose environment holds the variable with this value: ours and readable ones."""
    wanted = os.fsencode(f"{variable}={value}")
    found = []
    for each in processes():
        with contextlib.suppress(OSError):
            if wanted in Path(f"/proc/{each.pid}/environ").read_bytes().split(b"\0"):
                found.append(each)
    return found


def send(to: Process, number: int) -> bool:
    """Signal exactly this process, never one that got its pid later. False where it is gone."""
    try:
        handle = os.pidfd_open(to.pid)
    except ProcessLookupError:
        return False
    try:
        # The descriptor holds the process that has the pid now: only then the start is compared.
        if (now := process(to.pid)) is None or now.start != to.start:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def asked_to_stop(pids: Iterable[int]) -> bool:
    """Whether SIGTERM or SIGINT waits to be delivered to one of them."""
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
                name, _, value = line.partition(":")
                if name in ("SigPnd", "ShdPnd") and int(value, 16) & _ASKED_TO_STOP:
                    return True
    return False


def memory(pids: Iterable[int]) -> int:
    """Resident bytes of all of them together; pages that they share count more than once."""
    pages = 0
    for pid in pids:
        with contextlib.suppress(OSError, IndexError):
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def open_for_writing(pids: Iterable[int]) -> set[Path]:
    """Regular files with a name that one of them may write through a descriptor or a map."""
    found: set[Path] = set()
    for pid in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.update(_descriptors(Path(f"/proc/{pid}")))
            found.update(_writable_maps(Path(f"/proc/{pid}")))
    return found


def _descriptors(proc: Path) -> Iterator[Path]:
    for number in os.listdir(proc / "fd"):  # noqa: PTH208
        with contextlib.suppress(FileNotFoundError):
            if _may_write((proc / "fdinfo" / number).read_text()):
                yield from _named(proc / "fd" / number)


def _may_write(fdinfo: str) -> bool:
    for line in fdinfo.splitlines():
        if line.startswith("flags:"):
            return int(line.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _writable_maps(proc: Path) -> Iterator[Path]:
    for line in (proc / "maps").read_text(errors="surrogateescape").splitlines():
        span, rights, _, _, inode, *rest = line.split(maxsplit=5)
        if rights[1] == "w" and rights[3] == "s" and inode != "0" and rest:
            begin, end = (int(each, 16) for each in span.split("-"))
            link = proc / "map_files" / f"{begin:x}-{end:x}"
            try:
                yield from _named(link)
            except PermissionError:  # map_files takes more rights than maps
                if rest[0].startswith("/") and not rest[0].endswith(_DELETED):
                    yield Path(rest[0].replace("\\012", "\n"))


def _named(link: Path) -> Iterator[Path]:
    """The name behind a link of /proc, unless the file has none left: that is in the image."""
    status = link.stat()
    if stat.S_ISREG(status.st_mode) and status.st_nlink:
        name = str(link.readlink())
        # "/memfd:", "/dev/zero" and System V memory have no link count; the rest is on a disk.
        yield Path(name.removesuffix(_DELETED))

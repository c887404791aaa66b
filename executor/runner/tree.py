"""A step's processes: start them, list them, kill every one of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from . import kernel, proc

MARK = "CEDANA_STEPDIR"

# The first process only waits. In a namespace it is the one that ignores signals nobody handles,
# which the step must not be; and a step that leaves children behind leaves them to it.
_FIRST = ["/bin/sh", "-c", '"$@"; exit "$?"', "step"]
_HIGHEST_DESCRIPTOR = 1 << 20


class NotStarted(Exception):
    """The step could not be started: the text says which call failed."""


@dataclass(frozen=True, slots=True)
class Tree:
    """The processes below and with pid, a child of this process."""

    pid: int
    namespaced: bool


def start(
    command: list[str],
    *,
    log: Path,
    cwd: Path,
    environment: Mapping[str, str],
    namespace: bool,
    umask: int = 0o022,
) -> Tree:
    """Run command in a session of its own; its output is appended to log, its input is empty.

    With namespace it sees only its own processes, and all end when the first one or this process
    ends. Raises NotStarted, and then nothing runs.
    """
    heard, said = os.pipe()
    try:
        pid = _fork_into_namespace() if namespace else os.fork()
    except OSError as error:
        os.close(heard)
        os.close(said)
        raise NotStarted(str(error)) from error
    if pid == 0:
        os.close(heard)
        _become(command, said, log, cwd, dict(environment), namespace, umask)
    os.close(said)
    with os.fdopen(heard, "rb") as pipe:
        why = pipe.read()
    if why:
        os.waitpid(pid, 0)
        raise NotStarted(why.decode(errors="replace"))
    return Tree(pid, namespace)


def _fork_into_namespace() -> int:
    """Fork a child that is the first process of a new namespace; stay outside of it."""
    outside = os.open("/proc/self/ns/pid", os.O_RDONLY)
    try:
        kernel.unshare(kernel.NEW_PID)
        try:
            pid = os.fork()
        except OSError:
            kernel.enter(outside, kernel.NEW_PID)
            raise
        if pid:
            kernel.enter(outside, kernel.NEW_PID)
        return pid
    finally:
        os.close(outside)


def _become(
    command: list[str],
    said: int,
    log: Path,
    cwd: Path,
    environment: dict[str, str],
    namespace: bool,
    umask: int,
) -> None:
    """Be the step's first process. Never returns; why it failed goes to `said`."""
    try:
        said = fcntl.fcntl(said, fcntl.F_DUPFD_CLOEXEC, 3)  # out of the way of the three streams
        signal.set_wakeup_fd(-1)
        kernel.die_with_parent()
        # The parent may have ended before that line: then nobody reads the pipe any more.
        watch = select.poll()
        watch.register(said, 0)
        if watch.poll(0):
            os._exit(1)
        if namespace:
            kernel.unshare(kernel.NEW_MOUNT)
            kernel.own_proc()
        else:
            kernel.adopt_orphans()
        os.setsid()
        os.umask(umask)
        _open_streams(said, log)
        os.chdir(cwd)
        for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two
            signal.signal(number, signal.SIG_DFL)
        os.execve(_FIRST[0], [*_FIRST, *command], environment)  # noqa: S606
    except BaseException as error:
        with contextlib.suppress(OSError):
            os.write(said, str(error).encode(errors="replace") or b"unknown")
    os._exit(127)


def _open_streams(said: int, log: Path) -> None:
    """Nothing that was opened outside of a namespace may stay open: it could not be restored."""
    os.closerange(0, said)
    os.closerange(said + 1, _HIGHEST_DESCRIPTOR)
    null = os.open("/dev/null", os.O_RDONLY)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    output = os.open(log, flags, 0o600)
    assert (null, output) == (0, 1)
    os.dup2(1, 2)
    os.set_inheritable(0, True)
    os.set_inheritable(1, True)


def members(tree: Tree) -> list[int]:
    """The pids of all its processes, the first one first; empty when it has ended."""
    first = proc.process(tree.pid)
    if first is None or first.state in "ZX":
        return []
    below = [each.pid for each in proc.descendants(tree.pid) if each.state not in "ZX"]
    return [tree.pid, *below]


def open_for_writing(pids: Iterable[int]) -> set[Path]:
    """Regular files, not deleted, that one of the processes may write."""
    return proc.open_for_writing(pids)


def memory(tree: Tree) -> int:
    """Resident bytes of all its processes together."""
    return proc.memory(members(tree))


def thaw(tree: Tree) -> None:
    """Let a tree go on that a dump left stopped."""
    for pid in members(tree):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def kill(tree: Tree, patience: float = 30.0) -> list[int]:
    """Kill and reap all of it. Returns the pids that were still there after `patience` seconds."""
    kernel.adopt_orphans()  # one that is not reaped keeps its pid, which a restore may need
    first = proc.process(tree.pid)
    if first is None or first.parent != os.getpid():
        return []  # it ended and was reaped: the pid may be anybody's by now
    # The first process goes last: its children would pass to this process, and out of sight.
    # It is stopped, for a shell would write that they were killed.
    proc.send(first, signal.SIGSTOP)
    below = [] if tree.namespaced else _stop_all(tree.pid)
    deadline = time.monotonic() + patience
    for each in below:
        proc.send(each, signal.SIGKILL)
    while (left := _living(below)) and time.monotonic() < deadline:
        time.sleep(0.002)
    proc.send(first, signal.SIGKILL)
    # When the first one is reaped, the children it had are this process' own.
    for awaited in ([tree.pid], [each.pid for each in below]):
        while (here := [pid for pid in awaited if _unreaped(pid)]) and time.monotonic() < deadline:
            time.sleep(0.002)
        left += here
    return sorted(set(left))


def _stop_all(root: int) -> list[proc.Process]:
    """Stop everything below root, so that nothing new is born while it is being killed."""
    stopped: dict[tuple[int, int], proc.Process] = {}
    while True:
        found = {(each.pid, each.start): each for each in proc.descendants(root)}
        new = found.keys() - stopped.keys()
        if not new:
            return list(stopped.values())
        for key in new:
            proc.send(found[key], signal.SIGSTOP)
            stopped[key] = found[key]


def _living(some: Iterable[proc.Process]) -> list[int]:
    return [each.pid for each in some if proc.alive(each.pid, each.start)]


def _unreaped(pid: int) -> bool:
    """Whether a child of this process has not ended yet; what is no child is not awaited."""
    try:
        return os.waitpid(pid, os.WNOHANG) == (0, 0)
    except ChildProcessError:
        return False


def kill_marked(stepdir: Path, patience: float = 30.0) -> list[int]:
    """Kill what an earlier runner of this step left behind on this machine.

    Returns the pids that were still there after `patience` seconds.
    """
    spared = {os.getpid(), *proc.ancestors(os.getpid())}
    deadline = time.monotonic() + patience
    while True:
        left = [each for each in proc.carrying(MARK, str(stepdir)) if each.pid not in spared]
        left = [each for each in left if each.state not in "ZX"]
        if not left or time.monotonic() > deadline:
            return [each.pid for each in left]
        for each in left:
            proc.send(each, signal.SIGKILL)
        reap()
        time.sleep(0.005)


def kill_children(spared: Iterable[int] = (), patience: float = 30.0) -> None:
    """Kill and reap every descendant of this process but the spared ones and what is below them."""
    deadline = time.monotonic() + patience
    kept = set(spared)
    while time.monotonic() < deadline:
        left = [each for each in proc.descendants(os.getpid()) if each.pid not in kept]
        kept.update(each.pid for each in left if each.parent in kept)
        left = [each for each in left if each.pid not in kept]
        if not left:
            return
        for each in left:
            proc.send(each, signal.SIGKILL)
        reap()
        time.sleep(0.005)


def children() -> set[int]:
    """The pids of this process' own children."""
    return {each.pid for each in proc.processes() if each.parent == os.getpid()}


def reap() -> dict[int, int]:
    """The wait statuses of all children that have ended, by pid."""
    ended: dict[int, int] = {}
    with contextlib.suppress(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            ended[found[0]] = found[1]
    return ended

"""Checkpoints by CRIU's command line.

As root a step has a process and a mount namespace of its own, so any pid is free at its restore;
all its mounts are taken from the machine. As an ordinary user `criu --unprivileged` is called
(its file has the capabilities), and the step's pids must be free.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from .. import tree as trees
from ..tree import Tree
from . import DumpFailed, Frozen, RestoreFailed

_MOST_LOG = 256 * 1024  # bytes kept of what CRIU says: a restore that spins says 25 MB a second
_MOST_GHOST = (1 << 32) - 1  # bytes of one deleted file: more does not fit into CRIU's number
_PROBE = 30.0  # seconds
_PATIENCE = 0.2  # seconds between two questions whether the dump is still wanted
# CRIU calls it at each stage of a dump. After post-dump it waits for the answer, and with it waits
# the frozen step. It reaches the runner's pipes through /proc, for CRIU closes what it inherits;
# those of a runner that is gone cannot be opened or give an end, and CRIU lets the step go on.
_SCRIPT = """#!/bin/sh
case $CRTOOLS_SCRIPT_ACTION in
pre-dump) echo begun >"$CEDANA_TOLD" ;;
post-dump)
    echo frozen >"$CEDANA_TOLD"
    read -r answer <"$CEDANA_ANSWER" && [ "$answer" = go ] ;;
esac
"""
_DUMP_SIGNS = (
    ("no_space", r"No space left|Disk quota exceeded"),
    ("io_error", r"Input/output error|Stale file handle|Read-only file system"),
    ("connection", r"tcp|inet: |sk-inet|unix: .*(external|peer)|[Ss]ocket|netlink"),
    ("terminal", r"tty|pty"),
    ("locked_file", r"file lock"),
    ("deleted_file", r"ghost|unlinked|link.?remap"),
    ("mount", r"mnt: |mount"),
    ("namespace", r"namespace"),
    ("device", r"device|/dev/"),
    ("permission", r"not permitted|Permission denied|capabilit"),
)
_RESTORE_SIGNS = (
    ("pid_in_use", r"Can't fork for \d+: File exists|Pid \d+ do not match expected|pid .* in use"),
    ("file_changed", r"has bad (size|mode)|Can't get .*lock"),
    ("mount", r"mnt: |mount|mnt-v2"),
    ("file_missing", r"No such file"),
    ("permission", r"not permitted|Permission denied|capabilit"),
)


class Criu:
    """Calls one CRIU program; `work` is a private folder for what it needs meanwhile."""

    name = "criu"

    def __init__(self, program: str, work: Path, ghost_limit: int = 0) -> None:
        self._program = program
        self._work = work
        self._ghost_limit = str(min(ghost_limit or _MOST_GHOST, _MOST_GHOST))
        self._user = [] if os.geteuid() == 0 else ["--unprivileged"]

    def version(self) -> str:
        match = re.search(r"Version: *(\S+)", self._probe("--version")[1])
        return match[1] if match else "unknown"

    def check(self) -> str:
        if not os.access(self._program, os.X_OK):
            return f"there is no CRIU at {self._program!r}"
        status, said = self._probe("check", *self._user)
        return "" if status == 0 else _excerpt(said) or f"criu check ends with {status}"

    def _probe(self, *arguments: str) -> tuple[int, str]:
        try:
            ended = subprocess.run(  # noqa: S603
                [self._program, *arguments],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=_PROBE, cwd="/", env=_environment(self._work),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return -1, str(error)
        return ended.returncode, ended.stdout.decode(errors="replace")

    def dump(
        self,
        tree: Tree,
        image: Path,
        *,
        leave_running: bool,
        frozen: Callable[[], None],
        deadline: float,
        wanted: Callable[[], bool],
    ) -> Frozen:
        with self._folder() as work:
            script = work / "at-stage"
            script.write_text(_SCRIPT)
            script.chmod(0o700)
            command = [
                self._program, "dump", *self._user, *_mounts(tree.namespaced, restore=False),
                "--tree", str(tree.pid), "--images-dir", str(image), "--work-dir", str(work),
                "--leave-running" if leave_running else "--leave-stopped",
                "--ghost-limit", self._ghost_limit, "--link-remap", "--file-locks",
                "--manage-cgroups=ignore", "--action-script", str(script), "-v1",
            ]  # fmt: skip
            with _Call(command, work, time.monotonic() + deadline) as call:
                status = call.run(frozen, wanted)
        if call.refusal is not None:
            raise call.refusal
        if not call.gave_up and call.froze and not status:
            return Frozen(call.frozen_seconds)
        trees.thaw(tree)  # a CRIU that was killed may have left tasks stopped
        if call.gave_up:
            raise DumpFailed(call.gave_up, "")
        raise _dump_failed(tree, status, call.said)

    def restore(self, image: Path, *, namespaced: bool, deadline: float) -> Tree:
        with self._folder() as work:
            pidfile = work / "pid"
            command = [
                self._program, "restore", *self._user, *_mounts(namespaced, restore=True),
                "--images-dir", str(image), "--work-dir", str(work), "--pidfile", str(pidfile),
                "--restore-detached", "--restore-sibling", "--link-remap", "--file-locks",
                "--manage-cgroups=ignore", "-v1",
            ]  # fmt: skip
            before = trees.children()
            with _Call(command, work, time.monotonic() + deadline) as call:
                status = call.run(lambda: None, lambda: True)
            if status == 0 and not call.gave_up:
                with contextlib.suppress(OSError, ValueError):
                    return Tree(int(pidfile.read_text()), namespaced)
            trees.kill_children(spared=before)
        if call.gave_up:
            raise RestoreFailed(call.gave_up, f"no end after {deadline:.0f} s")
        excerpt = _excerpt(call.said) or f"criu restore ends with {status}"
        raise RestoreFailed(_reason(_RESTORE_SIGNS, call.said), excerpt)

    @contextlib.contextmanager
    def _folder(self) -> Iterator[Path]:
        """Statistics, pid file and script stay out of the image: its files are sealed."""
        path = Path(tempfile.mkdtemp(prefix="criu.", dir=self._work)).resolve()
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)


class _Call:
    """One run of CRIU: its log is read and cut, its stages are answered, its time is limited."""

    def __init__(self, command: list[str], work: Path, deadline: float) -> None:
        self._deadline = deadline
        self._told, told = os.pipe()
        answer, self._answer = os.pipe()
        self._ends = (self._told, told, answer, self._answer)
        self.said = ""
        self.gave_up = ""
        self.refusal: BaseException | None = None
        self.froze = False
        self.frozen_seconds = 0.0
        self._begun = time.monotonic()
        own = f"/proc/{os.getpid()}/fd"
        environment = _environment(work) | {
            "CEDANA_TOLD": f"{own}/{told}",
            "CEDANA_ANSWER": f"{own}/{answer}",
        }
        self._criu = subprocess.Popen(  # noqa: S603
            command,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=environment, cwd="/", process_group=0,
        )  # fmt: skip

    def __enter__(self) -> _Call:
        return self

    def __exit__(self, *_: object) -> None:
        if self._criu.poll() is None:
            self._criu.kill()
            self._criu.wait()
        assert self._criu.stdout is not None
        self._criu.stdout.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                os.close(end)

    def run(self, frozen: Callable[[], None], wanted: Callable[[], bool]) -> int:
        """The exit status of CRIU. A child that keeps its output open does not hold this up."""
        assert self._criu.stdout is not None
        log = self._criu.stdout.fileno()
        os.set_blocking(log, False)
        open_ = {log, self._told}
        kept = b""
        while (status := self._criu.poll()) is None:
            self._give_up_in_time(wanted)
            for end in select.select(list(open_), [], [], 0.02)[0]:
                data = os.read(end, 65536)
                if not data:
                    open_.discard(end)
                elif end == log:
                    kept = (kept + data)[-_MOST_LOG:]
                else:
                    self._at_stage(data.decode(), frozen)
        ended = time.monotonic()
        with contextlib.suppress(BlockingIOError):
            kept = (kept + os.read(log, _MOST_LOG))[-_MOST_LOG:]
        self.frozen_seconds = ended - self._begun
        self.said = kept.decode(errors="replace")
        return status

    def _give_up_in_time(self, wanted: Callable[[], bool]) -> None:
        if self.gave_up:
            return
        if time.monotonic() > self._deadline:
            self.gave_up = "timeout"
        elif not self.froze and not wanted():
            self.gave_up = "abandoned"
        if self.gave_up:
            self._criu.kill()

    def _at_stage(self, said: str, frozen: Callable[[], None]) -> None:
        if "begun" in said:
            self._begun = time.monotonic()
        if "frozen" in said:
            answer = b"go\n"
            self.froze = True
            try:
                frozen()
            except BaseException as error:
                self.refusal = error
                answer = b"no\n"
            with contextlib.suppress(BrokenPipeError):
                os.write(self._answer, answer)


def _mounts(namespaced: bool, *, restore: bool) -> list[str]:
    """All mounts of the step's namespace are those of the machine, on both ends."""
    if not namespaced:
        return []
    return ["--external", "mnt[]:ms", *(["--root", "/"] if restore else [])]


def _environment(work: Path) -> dict[str, str]:
    # Without XDG_RUNTIME_DIR an unprivileged CRIU complains and probes the kernel at every call.
    path = os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    return {"PATH": path, "LC_ALL": "C", "XDG_RUNTIME_DIR": str(work)}


def _dump_failed(tree: Tree, status: int, said: str) -> DumpFailed:
    if not trees.members(tree):
        return DumpFailed("step_ended", "")
    return DumpFailed(_reason(_DUMP_SIGNS, said), _excerpt(said) or f"criu dump ends with {status}")


def _reason(signs: tuple[tuple[str, str], ...], said: str) -> str:
    """The first reason whose signs are in the lines that say what went wrong."""
    errors = "\n".join(_errors(said))
    return next((name for name, sign in signs if re.search(sign, errors)), "engine")


def _errors(said: str) -> list[str]:
    # That RLIMIT_NOFILE cannot be raised is said at every call in a container, and harms nothing.
    lines = [line.strip() for line in said.splitlines() if "Error" in line]
    return [line for line in lines if "RLIMIT_NOFILE" not in line]


def _excerpt(said: str) -> str:
    """The first lines that say what went wrong: the later ones follow from them."""
    lines = _errors(said) or said.strip().splitlines()[-3:]
    return "\n".join(line[:300] for line in lines[:5])

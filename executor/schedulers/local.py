"""Allocations on this machine: child processes, started within cores and memory.

Each child has a thread that waits for it, so an end is known at once and nothing polls.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ADOPTED_POLL_SECONDS = 0.5  # only where the kernel has no pidfd
KILLED_WAIT_SECONDS = 10.0  # until the kernel has taken a killed process away


@dataclass(frozen=True, slots=True)
class Request:
    """What to start, and what it takes."""

    id: str
    command: tuple[str, ...]
    cwd: Path
    log: Path  # appended to; made with mode 0600
    environment: Mapping[str, str]
    cores: int
    mem_mb: int
    whole_group: bool  # on a stop: signal the child alone (it stops its own), or its whole group


@dataclass(frozen=True, slots=True)
class State:
    """`name` as in decide.py; `status` as subprocess gives it, None if it is not known."""

    name: str
    status: int | None = None
    message: str = ""


@dataclass(slots=True)
class _Allocation:
    request: Request | None  # None: adopted
    state: State
    pid: int = 0
    ended: threading.Event = field(default_factory=threading.Event)


class LocalScheduler:
    """First come, first served: a large request is not overtaken, so it cannot starve.

    A request for more than there is gets all there is, and runs alone.
    """

    def __init__(self, cores: int, mem_mb: int, wake: Callable[[], None]) -> None:
        """`wake` is called, from any thread, whenever an allocation has ended."""
        self._cores = max(cores, 1)
        self._mem_mb = max(mem_mb, 1)
        self._free_cores = self._cores
        self._free_mem_mb = self._mem_mb
        self._wake = wake
        self._lock = threading.RLock()
        self._waiting: deque[str] = deque()
        self._allocations: dict[str, _Allocation] = {}
        self._closed = False
        self._patience_ends = 0.0

    def submit(self, request: Request) -> None:
        """Take the request; start it now or when there is room."""
        with self._lock:
            self._allocations[request.id] = _Allocation(request, State("PENDING"))
            self._waiting.append(request.id)
            self._start_what_fits()

    def adopt(self, id: str, pid: int) -> None:
        """Follow a process that this one did not start. Its exit status will not be known."""
        allocation = _Allocation(None, State("RUNNING"), pid)
        with self._lock:
            self._allocations[id] = allocation
        self._watch(allocation, lambda: _wait_for_stranger(pid))

    def state(self, id: str) -> State:
        """UNKNOWN for an id never seen."""
        with self._lock:
            allocation = self._allocations.get(id)
            return allocation.state if allocation else State("UNKNOWN")

    def forget(self, id: str) -> None:
        """The caller has dealt with the end of this allocation."""
        with self._lock:
            self._allocations.pop(id, None)

    def stop(self, patience: float) -> None:
        """Start nothing more; end what runs: SIGTERM, and SIGKILL after `patience` seconds.

        A KeyboardInterrupt meanwhile (the user's second Ctrl-C) kills at once, and is raised again.
        """
        with self._lock:
            self._closed = True
            self._patience_ends = time.monotonic() + patience
            for id in self._waiting:
                self._allocations[id].state = State("CANCELLED")
                self._allocations[id].ended.set()
            self._waiting.clear()
            running = [one for one in self._allocations.values() if not one.ended.is_set()]
        for allocation in running:
            _signal(allocation, signal.SIGTERM)
        try:
            _wait_all(running, patience)
        finally:
            for allocation in running:
                _signal(allocation, signal.SIGKILL)
            _wait_all(running, KILLED_WAIT_SECONDS)

    def _start_what_fits(self) -> None:
        while self._waiting and not self._closed:
            allocation = self._allocations[self._waiting[0]]
            assert allocation.request is not None
            cores, mem_mb = self._share(allocation.request)
            if cores > self._free_cores or mem_mb > self._free_mem_mb:
                return
            self._waiting.popleft()
            self._free_cores -= cores
            self._free_mem_mb -= mem_mb
            self._start(allocation, allocation.request)

    def _share(self, request: Request) -> tuple[int, int]:
        return (
            min(max(request.cores, 1), self._cores),
            min(max(request.mem_mb, 0), self._mem_mb),
        )

    def _start(self, allocation: _Allocation, request: Request) -> None:
        try:
            process = _popen(request)
        except OSError as error:
            # Its end is told by a thread of its own, for the caller holds the lock.
            message = f"{request.command[0]} could not be started: {error}"
            self._watch(allocation, lambda: (127, message))
            return
        allocation.pid = process.pid
        allocation.state = State("RUNNING")
        self._watch(allocation, lambda: self._wait_for_child(process, request.whole_group))

    def _wait_for_child(self, process: subprocess.Popen[bytes], group: bool) -> tuple[int, str]:
        # A leader that has ended but is not yet reaped keeps its number, so that the rest of its
        # group can be waited for and killed without hitting a stranger.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        if group and self._closed:
            while _group_lives(process.pid) and time.monotonic() < self._patience_ends:
                time.sleep(0.02)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        return process.wait(), ""

    def _watch(self, allocation: _Allocation, wait: Callable[[], tuple[int | None, str]]) -> None:
        def follow() -> None:
            status, message = wait()
            self._end(allocation, status, message)

        threading.Thread(target=follow, name="cedana-allocation", daemon=True).start()

    def _end(self, allocation: _Allocation, status: int | None, message: str) -> None:
        with self._lock:
            ended = "COMPLETED" if status == 0 else "FAILED"
            name = "CANCELLED" if self._closed else ended
            allocation.state = State(name, status, message)
            if allocation.request is not None:
                cores, mem_mb = self._share(allocation.request)
                self._free_cores += cores
                self._free_mem_mb += mem_mb
            allocation.ended.set()
            self._start_what_fits()
        self._wake()


def _popen(request: Request) -> subprocess.Popen[bytes]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
    log = os.open(request.log, flags, 0o600)
    try:
        # A session of its own: Ctrl-C in the terminal is for Snakemake alone, which then stops its
        # steps in order; and a step outlives a Snakemake that was killed.
        return subprocess.Popen(  # noqa: S603  (a list of arguments; nothing is parsed)
            request.command,
            cwd=request.cwd,
            env=dict(request.environment),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)


def _signal(allocation: _Allocation, number: signal.Signals) -> None:
    if not allocation.pid or allocation.ended.is_set():
        return
    with suppress(ProcessLookupError, PermissionError):
        if allocation.request is not None and allocation.request.whole_group:
            os.killpg(allocation.pid, number)
        else:
            os.kill(allocation.pid, number)


def _group_lives(group: int) -> bool:
    """Is there a process in the group that has not ended?"""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # pid (name) state ppid pgrp …; the name may hold anything, so from its end.
            state, _, pgrp = stat.read_text(errors="replace").rpartition(")")[2].split()[:3]
            if int(pgrp) == group and state not in "ZX":
                return True
    return False


def _wait_all(allocations: list[_Allocation], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for allocation in allocations:
        allocation.ended.wait(max(0.0, deadline - time.monotonic()))


def _wait_for_stranger(pid: int) -> tuple[None, str]:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return None, ""
    except OSError:
        while Path(f"/proc/{pid}").exists():
            time.sleep(ADOPTED_POLL_SECONDS)
        return None, ""
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        poll.poll()
    finally:
        os.close(descriptor)
    return None, ""


def usable_cores() -> int:
    """How many processors this process may use."""
    return len(os.sched_getaffinity(0))


def machine_mem_mb() -> int:
    """Physical memory in MB (10^6 bytes, as Snakemake's mem_mb)."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000

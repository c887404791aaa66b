"""Allocations on this machine: within cores and memory, ends known at once, all stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from snakemake_executor_plugin_cedana.schedulers.local import (
    LocalScheduler,
    Request,
    State,
    machine_mem_mb,
    usable_cores,
)

PATIENCE = 20.0


class Bench:
    """A scheduler, and the requests of one test."""

    def __init__(self, folder: Path, cores: int, mem_mb: int) -> None:
        self.folder = folder
        self.woken = threading.Semaphore(0)
        self.scheduler = LocalScheduler(cores, mem_mb, self.woken.release)

    def submit(
        self, id: str, script: str, cores: int = 1, mem_mb: int = 0, *, group: bool = True
    ) -> None:
        self.scheduler.submit(
            Request(
                id=id,
                command=("/bin/sh", "-c", script),
                cwd=self.folder,
                log=self.folder / f"{id}.log",
                environment={"PATH": os.environ["PATH"], "GREETING": "hello"},
                cores=cores,
                mem_mb=mem_mb,
                whole_group=group,
            )
        )

    def name(self, id: str) -> str:
        return self.scheduler.state(id).name

    def names(self, ids: str) -> list[str]:
        return [self.name(id) for id in ids]

    def end(self, count: int = 1) -> None:
        for _ in range(count):
            assert self.woken.acquire(timeout=PATIENCE)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Callable[[int, int], Bench]]:
    made: list[Bench] = []

    def make(cores: int = 2, mem_mb: int = 1000) -> Bench:
        made.append(Bench(tmp_path, cores, mem_mb))
        return made[-1]

    yield make
    for each in made:
        each.scheduler.stop(0)


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_status_of_the_child_is_told_and_its_output_kept(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    here = bench()
    here.submit("a", "echo $GREETING; echo oops >&2; cat; exit 3")
    here.end()

    assert State("FAILED", 3) == here.scheduler.state("a")
    assert "hello\noops\n" == (tmp_path / "a.log").read_text()
    assert 0o600 == (tmp_path / "a.log").stat().st_mode & 0o777


def test_death_by_signal_is_a_negative_status(bench: Callable[..., Bench]) -> None:
    here = bench()
    here.submit("a", "kill -9 $$")
    here.end()

    assert State("FAILED", -9) == here.scheduler.state("a")


def test_end_is_known_within_a_tenth_of_a_second(bench: Callable[..., Bench]) -> None:
    """By the child's exit, not by looking now and then."""
    here, delays = bench(), []
    for number in range(5):
        stamp = here.folder / "ended"
        here.submit(str(number), f"sleep 0.3; date +%s.%N > {stamp}")
        here.end()
        delays.append(time.time() - float(stamp.read_text()))

    assert sorted(delays)[2] < 0.1


def test_no_more_start_than_there_are_cores(bench: Callable[..., Bench]) -> None:
    here = bench(2)
    for id in "abcd":
        here.submit(id, "sleep 60")

    assert ["RUNNING", "RUNNING", "PENDING", "PENDING"] == here.names("abcd")


def test_an_end_starts_the_next_one(bench: Callable[..., Bench]) -> None:
    here = bench(1)
    here.submit("a", "sleep 0.2")
    here.submit("b", "true")
    assert "PENDING" == here.name("b")
    here.end(2)

    assert ["COMPLETED", "COMPLETED"] == here.names("ab")


def test_no_more_start_than_fit_into_memory(bench: Callable[..., Bench]) -> None:
    here = bench(9, 1000)
    here.submit("a", "sleep 60", mem_mb=600)
    here.submit("b", "sleep 60", mem_mb=401)

    assert ["RUNNING", "PENDING"] == here.names("ab")


def test_memory_that_just_fits_is_given(bench: Callable[..., Bench]) -> None:
    here = bench(9, 1000)
    here.submit("a", "sleep 60", mem_mb=600)
    here.submit("b", "sleep 60", mem_mb=400)

    assert ["RUNNING", "RUNNING"] == here.names("ab")


def test_request_for_more_than_there_is_gets_all_and_runs_alone(
    bench: Callable[..., Bench],
) -> None:
    here = bench(2, 1000)
    here.submit("a", "sleep 0.2", cores=64, mem_mb=10**9)
    here.submit("b", "true")
    assert ["RUNNING", "PENDING"] == here.names("ab")
    here.end(2)

    assert ["COMPLETED", "COMPLETED"] == here.names("ab")


def test_large_request_is_not_overtaken(bench: Callable[..., Bench]) -> None:
    here = bench(2)
    here.submit("a", "sleep 60")
    here.submit("large", "sleep 60", cores=2)
    here.submit("b", "true")

    assert "PENDING" == here.name("large") == here.name("b")


def test_what_was_taken_is_given_back(bench: Callable[..., Bench]) -> None:
    here = bench(2, 1000)
    for number in range(20):
        here.submit(str(number), "true", cores=number % 3, mem_mb=number * 100)
    here.end(20)
    here.submit("all", "sleep 60", cores=2, mem_mb=1000)

    assert "RUNNING" == here.name("all")


def test_program_that_cannot_be_started_is_a_failure_in_words(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    here = bench(1)
    for id in "ab":
        here.scheduler.submit(
            Request(id, ("/no/such/program",), tmp_path, tmp_path / id, {}, 1, 0, True)
        )
    here.end(2)
    state = here.scheduler.state("a")

    assert ("FAILED", 127) == (state.name, state.status)
    assert "/no/such/program could not be started" in state.message
    assert "FAILED" == here.name("b")


def test_log_is_never_written_through_a_link(bench: Callable[..., Bench], tmp_path: Path) -> None:
    here = bench()
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "a.log").symlink_to(tmp_path / "victim")
    here.submit("a", "echo ruin")
    here.end()

    assert "FAILED" == here.name("a")
    assert "precious" == (tmp_path / "victim").read_text()


def test_unknown_and_forgotten_ids_are_unknown(bench: Callable[..., Bench]) -> None:
    here = bench()
    here.submit("a", "true")
    here.end()
    here.scheduler.forget("a")

    assert ["UNKNOWN", "UNKNOWN"] == here.names("ax")


def test_child_has_a_session_of_its_own(bench: Callable[..., Bench], tmp_path: Path) -> None:
    """So Ctrl-C in the terminal does not reach it."""
    here = bench()
    here.submit("a", "echo $$; cut -d' ' -f6 < /proc/$$/stat")
    here.end()
    pid, session = (tmp_path / "a.log").read_text().split()

    assert pid == session


def test_stop_lets_what_runs_end_in_order_and_starts_nothing_more(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    here = bench(1)
    here.submit("a", "trap 'sleep 0.3; echo tidy > tidy; exit 7' TERM; touch up; sleep 60 & wait")
    here.submit("b", "touch b")
    until((tmp_path / "up").exists)
    here.scheduler.stop(PATIENCE)

    assert "tidy\n" == (tmp_path / "tidy").read_text()
    assert ["CANCELLED", "CANCELLED"] == here.names("ab")
    assert not (tmp_path / "b").exists()


def test_stop_kills_what_does_not_end(bench: Callable[..., Bench], tmp_path: Path) -> None:
    here = bench()
    here.submit("a", "trap '' TERM; touch up; while :; do sleep 0.1; done")
    until((tmp_path / "up").exists)
    begun = time.monotonic()
    here.scheduler.stop(0.3)

    assert State("CANCELLED", -9) == here.scheduler.state("a")
    assert time.monotonic() - begun < 5


def test_stop_reaches_children_that_outlive_their_leader(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    here = bench()
    ignoring = "import signal,time,os; signal.signal(15,1); open('up','w').write(str(os.getpid()))"
    here.submit("a", f'"{sys.executable}" -c "{ignoring}; time.sleep(60)" & wait')
    until(lambda: (tmp_path / "up").exists() and (tmp_path / "up").read_text() != "")
    here.scheduler.stop(0.5)
    pid = int((tmp_path / "up").read_text())

    until(lambda: not _alive(pid))


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_stop_signals_only_the_leader_where_it_stops_its_own(
    bench: Callable[..., Bench], tmp_path: Path
) -> None:
    """A runner decides itself how its step ends."""
    here = bench()
    script = "trap 'echo told > child; exit' TERM; touch up; while :; do sleep 0.05; done"
    here.submit("a", f"trap 'kill -9 $!; exit 0' TERM; ({script}) & wait", group=False)
    until((tmp_path / "up").exists)
    here.scheduler.stop(PATIENCE)

    assert "CANCELLED" == here.name("a")
    assert not (tmp_path / "child").exists()


def test_end_of_a_process_of_somebody_else_is_noticed_at_once(bench: Callable[..., Bench]) -> None:
    here = bench()
    stranger = subprocess.Popen(["/bin/sleep", "60"])
    here.scheduler.adopt("a", stranger.pid)
    assert "RUNNING" == here.name("a")
    begun = time.monotonic()
    stranger.kill()
    here.end()

    assert State("FAILED", None) == here.scheduler.state("a")
    assert time.monotonic() - begun < 1
    stranger.wait()


def test_adopting_a_process_that_is_gone_is_its_end(bench: Callable[..., Bench]) -> None:
    here = bench()
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    here.scheduler.adopt("a", gone.pid)
    here.end()

    assert "FAILED" == here.name("a")


def test_stop_ends_an_adopted_process_too(bench: Callable[..., Bench]) -> None:
    here = bench()
    stranger = subprocess.Popen(["/bin/sleep", "60"])
    here.scheduler.adopt("a", stranger.pid)
    threading.Thread(target=stranger.wait, daemon=True).start()
    here.scheduler.stop(PATIENCE)

    until(lambda: stranger.returncode is not None)
    assert -signal.SIGTERM == stranger.returncode


def test_this_machine_has_cores_and_memory() -> None:
    assert 1 <= usable_cores() <= (os.cpu_count() or 0)
    assert 100 < machine_mem_mb()

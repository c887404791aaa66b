"""One runner a step: who holds it, who has lost it, who may take it over."""

from __future__ import annotations

import dataclasses
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path

import pytest
from processes import until

from snakemake_executor_plugin_cedana.runner import allocations, lease, proc, tree
from snakemake_executor_plugin_cedana.runner.lease import Held, Holder, Lease


@pytest.fixture
def stepdir(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path


def take(stepdir: Path, allocation: str = "7", **more: object) -> Lease:
    given: dict[str, object] = {
        "gone": lambda _: None,
        "kill_survivors": list,
        "silence": 0.3,
        **more,
    }
    return lease.acquire(stepdir, allocation, **given)  # type: ignore[arg-type]


def change(stepdir: Path, **fields: object) -> None:
    now = lease.current(stepdir)
    assert now is not None
    path = stepdir / f"lease/{now.number:06d}.json"
    path.write_text(json.dumps(dataclasses.asdict(now) | fields))


@pytest.fixture
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """A living process that is not this one."""
    running = subprocess.Popen(["/bin/sleep", "60"])
    yield running
    running.kill()
    running.wait()


def hold(stepdir: Path, pid: int) -> None:
    """Let another living process hold the lease."""
    found = proc.process(pid)
    assert found is not None
    take(stepdir)
    change(stepdir, pid=pid, start=found.start)


def test_nobody_holds_what_was_never_taken(stepdir: Path) -> None:
    assert lease.current(stepdir) is None


def test_a_holder_is_recorded_with_all_that_tells_it_from_others(stepdir: Path) -> None:
    own = proc.process(os.getpid())
    assert own is not None
    taken = take(stepdir, "42")

    assert (
        Holder(1, os.uname().nodename, lease.machine(), own.pid, own.start, "42", False)
        == taken.holder
        == lease.current(stepdir)
    )
    assert lease.alive(taken.holder)


def test_a_second_runner_is_refused_while_the_first_lives(
    stepdir: Path, stranger: subprocess.Popen[bytes]
) -> None:
    hold(stepdir, stranger.pid)

    with pytest.raises(Held, match=f"allocation 7, process {stranger.pid} on"):
        take(stepdir)


def test_a_stopped_holder_is_alive(stepdir: Path, stranger: subprocess.Popen[bytes]) -> None:
    hold(stepdir, stranger.pid)
    stranger.send_signal(signal.SIGSTOP)

    with pytest.raises(Held):
        take(stepdir)


def test_a_dead_holder_is_followed_under_the_next_number(
    stepdir: Path, stranger: subprocess.Popen[bytes]
) -> None:
    hold(stepdir, stranger.pid)
    stranger.kill()
    stranger.wait()

    assert 2 == take(stepdir).holder.number


def test_a_holder_that_waits_to_be_reaped_is_dead(
    stepdir: Path, stranger: subprocess.Popen[bytes]
) -> None:
    hold(stepdir, stranger.pid)
    stranger.kill()

    def zombie() -> bool:
        found = proc.process(stranger.pid)
        return found is not None and found.state == "Z"

    until(zombie)
    assert 2 == take(stepdir).holder.number


def test_a_pid_that_became_somebody_elses_holds_nothing(
    stepdir: Path, stranger: subprocess.Popen[bytes]
) -> None:
    hold(stepdir, stranger.pid)
    change(stepdir, start=1)

    assert 2 == take(stepdir).holder.number


def test_a_holder_before_the_last_boot_is_dead(stepdir: Path) -> None:
    take(stepdir)
    change(stepdir, machine=f"00000000-boot {Path('/proc/self/ns/pid').readlink()}")

    assert 2 == take(stepdir).holder.number


def test_survivors_are_killed_before_the_lease_is_taken(
    stepdir: Path, stranger: subprocess.Popen[bytes]
) -> None:
    hold(stepdir, stranger.pid)
    stranger.kill()
    stranger.wait()
    left = subprocess.Popen(
        ["/bin/sleep", "60"], env={tree.MARK: str(stepdir), "PATH": os.environ["PATH"]}
    )
    until(lambda: proc.carrying(tree.MARK, str(stepdir)))
    taken = take(stepdir, kill_survivors=lambda: tree.kill_marked(stepdir))

    assert 2 == taken.holder.number
    assert [] == proc.carrying(tree.MARK, str(stepdir))
    left.wait()


def test_survivors_that_cannot_be_killed_keep_the_lease(
    stepdir: Path, stranger: subprocess.Popen[bytes]
) -> None:
    with pytest.raises(Held, match=r"cannot be killed: \[17\]"):
        take(stepdir, kill_survivors=lambda: [17])
    assert lease.current(stepdir) is None


def elsewhere(stepdir: Path) -> None:
    take(stepdir)
    change(stepdir, host="n2", machine="otherboot pid:[1]", pid=1)


def test_a_holder_elsewhere_is_gone_when_the_scheduler_says_so(stepdir: Path) -> None:
    elsewhere(stepdir)
    asked: list[Holder] = []

    def gone(holder: Holder) -> bool:
        asked.append(holder)
        return True

    assert 2 == take(stepdir, gone=gone, silence=60).holder.number
    assert ["n2"] == [holder.host for holder in asked]


def test_a_holder_elsewhere_is_alive_when_the_scheduler_says_so(stepdir: Path) -> None:
    elsewhere(stepdir)

    with pytest.raises(Held, match="on n2"):
        take(stepdir, gone=lambda _: False)


def test_where_nobody_can_be_asked_a_holder_that_gives_no_sign_is_gone(stepdir: Path) -> None:
    elsewhere(stepdir)
    began = time.monotonic()

    assert 2 == take(stepdir, silence=0.5).holder.number
    assert time.monotonic() - began >= 0.5


def test_where_nobody_can_be_asked_a_sign_of_life_keeps_the_lease(stepdir: Path) -> None:
    elsewhere(stepdir)
    code = "import os, sys, time; time.sleep(0.5); os.utime(sys.argv[1])"
    touching = subprocess.Popen([sys.executable, "-c", code, str(stepdir / "lease/000001.json")])
    with pytest.raises(Held, match="on n2"):
        take(stepdir, silence=10)
    touching.wait()


def test_signs_of_life_do_not_depend_on_the_clock(stepdir: Path) -> None:
    """The file server's clock may be years off: only a change counts."""
    elsewhere(stepdir)
    os.utime(stepdir / "lease/000001.json", (4e9, 4e9))

    assert 2 == take(stepdir, silence=0.3).holder.number


def test_another_namespace_on_this_machine_cannot_be_judged(stepdir: Path) -> None:
    boot = lease.machine().split()[0]
    take(stepdir)
    change(stepdir, machine=f"{boot} pid:[1]")
    now = lease.current(stepdir)

    assert now is not None
    assert lease.alive(now) is None


def test_a_released_lease_is_free_at_once(stepdir: Path) -> None:
    taken = take(stepdir)
    taken.release()
    began = time.monotonic()

    assert 2 == take(stepdir, silence=60).holder.number
    assert time.monotonic() - began < 30


def test_a_holder_notices_that_it_was_followed(stepdir: Path) -> None:
    first = take(stepdir)
    assert first.held()
    change(stepdir, host="n2", machine="otherboot pid:[1]")
    second = take(stepdir, gone=lambda _: True)

    assert not first.held()
    assert second.held()


def test_a_holder_that_was_away_for_long_notices_it_too(stepdir: Path) -> None:
    """By then its own record and that of its follower are cleared away."""
    first = take(stepdir)
    for _ in range(4):
        change(stepdir, host="n2", machine="otherboot pid:[1]")
        last = take(stepdir, gone=lambda _: True)

    assert not first.held()
    assert last.held()
    assert 2 >= len(list((stepdir / "lease").iterdir()))


def _contend(stepdir: Path, barrier: Barrier, winners: Path) -> None:
    barrier.wait()
    try:
        taken = take(stepdir, allocation=str(os.getpid()))
    except Held:
        return
    (winners / str(taken.holder.number)).touch(exist_ok=False)
    barrier_end = time.monotonic() + 1.0
    while time.monotonic() < barrier_end:
        assert taken.held()
        time.sleep(0.05)


@pytest.mark.parametrize("before", ["nothing", "dead"])
def test_of_many_that_try_at_once_one_gets_it(stepdir: Path, before: str) -> None:
    if before == "dead":
        take(stepdir)
        change(stepdir, pid=2**22 - 1, start=1)
    winners = stepdir / "winners"
    winners.mkdir()
    context = multiprocessing.get_context("fork")
    for round_ in range(3):
        barrier = context.Barrier(8)
        runners = [
            context.Process(target=_contend, args=(stepdir, barrier, winners)) for _ in range(8)
        ]
        for each in runners:
            each.start()
        for each in runners:
            each.join()

        assert round_ + 1 == len(list(winners.iterdir()))
        assert [0] * 8 == [each.exitcode for each in runners]


def test_a_lost_answer_to_the_link_does_not_lose_the_lease(
    stepdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = os.link

    def lossy(*paths: Path) -> None:
        link(*paths)
        raise FileExistsError

    monkeypatch.setattr(os, "link", lossy)

    assert 1 == take(stepdir).holder.number


def test_a_record_that_makes_no_sense_frees_nothing(stepdir: Path) -> None:
    take(stepdir)
    (stepdir / "lease/000001.json").write_text('{"pid": "x"}')

    with pytest.raises(ValueError, match="not a lease record"):
        take(stepdir)


def test_a_lease_folder_of_everybody_is_refused(stepdir: Path) -> None:
    (stepdir / "lease").mkdir()
    (stepdir / "lease").chmod(0o777)

    with pytest.raises(Exception, match="open to others"):
        take(stepdir)


@pytest.mark.parametrize(
    ("answer", "over"),
    [
        ((0, "RUNNING\n", ""), False),
        ((0, "COMPLETING\n", ""), False),
        ((0, "TIMEOUT\n", ""), True),
        ((0, "NODE_FAIL\nCANCELLED+\n", ""), True),
        ((0, "COMPLETED\nRUNNING\n", ""), False),
        ((0, "SOMETHING_NEW\n", ""), False),
        ((0, "", ""), None),
        ((1, "", "slurm_load_jobs error: Invalid job id specified"), True),
        ((1, "", "slurm_load_jobs error: Unable to contact slurm controller"), None),
    ],
)
def test_only_a_known_end_of_a_job_frees_its_lease(
    answer: tuple[int, str, str], over: bool | None
) -> None:
    assert over is allocations.judged(*answer)


def fake_squeue(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "squeue").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=":")


def test_slurm_is_asked_about_the_holders_job(
    stepdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_squeue(stepdir, f'echo "$@" >{stepdir}/asked; echo FAILED', monkeypatch)
    holder = Holder(1, "n2", "b p", 1, 1, "4711", False)

    assert allocations.over(holder) is True
    assert "--jobs 4711" in (stepdir / "asked").read_text()


@pytest.mark.parametrize("name", ["abc", "1;rm", "--help", ""])
def test_slurm_is_not_asked_about_what_is_no_job(
    name: str, stepdir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_squeue(stepdir, f"touch {stepdir}/asked; echo FAILED", monkeypatch)

    assert allocations.over(Holder(1, "n2", "b p", 1, 1, name, False)) is None
    assert not (stepdir / "asked").exists()

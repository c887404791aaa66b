"""A step's whole life under the runner, with real processes and a real CRIU."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from processes import Step, criu, lines, make_step, until

from snakemake_executor_plugin_cedana.runner import loop
from snakemake_executor_plugin_cedana.runner.checkpoint import Failed
from snakemake_executor_plugin_cedana.runner.run import Run
from snakemake_executor_plugin_cedana.runner.signals import Signals
from snakemake_executor_plugin_cedana.runner.spec import Exit
from snakemake_executor_plugin_cedana.runner.tree import Tree

COUNT = "for i in $(seq 1 {n}); do echo $i >>out.txt; sleep 0.02; done\n"

PROGRAMS = {
    "append": """
import hashlib, time
table = bytearray(range(256)) * 4096
with open("out.txt", "a") as out:
    for i in range(300):
        table[i * 7919 % len(table)] ^= i % 256
        out.write(f"{i} {hashlib.sha256(table).hexdigest()}\\n")
        out.flush()
        time.sleep(0.01)
""",
    "in place": """
import os, time
with open("out.txt", "wb+") as out:
    out.write(bytes(64 * 1024)); out.flush()
    total = 0
    for i in range(300):
        out.seek(i * 997 % 65000)
        before = out.read(8)
        total += sum(before) + i
        out.seek(i * 991 % 65000)
        out.write(total.to_bytes(8, "big")); out.flush()
        time.sleep(0.01)
""",
    "threads": """
import queue, threading, time
to_write = queue.Queue(4)
def make(name):
    for i in range(200):
        to_write.put((name, i)); time.sleep(0.01)
    to_write.put(None)
makers = [threading.Thread(target=make, args=(n,)) for n in range(4)]
for each in makers: each.start()
seen, ended = {}, 0
while ended < 4:
    got = to_write.get()
    if got is None: ended += 1
    else:
        assert seen.get(got[0], -1) + 1 == got[1]
        seen[got[0]] = got[1]
        with open("out.txt", "a") as out: out.write("x\\n")
with open("out.txt", "a") as out: out.write(f"{sorted(seen.items())}\\n")
""",
}
SCRIPTS = {
    **{name: f"python3 - <<'P'{program}P\n" for name, program in PROGRAMS.items()},
    "pipes": (
        "for i in $(seq 1 250); do echo $i; sleep 0.01; done"
        " | while read -r a; do echo $((a * a)); done | tee -a out.txt | sha256sum >sum.txt\n"
        "cat sum.txt >>out.txt\n"
    ),
    "delete and make anew": (
        "for i in $(seq 1 250); do rm -f out.txt; echo $i >out.txt; echo $i >>all.txt; sleep 0.01;"
        " done; cat all.txt >>out.txt\n"
    ),
}


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Step]]:
    made: list[Step] = []

    def maker(script: str, **changes: object) -> Step:
        place = tmp_path / str(len(made))
        place.mkdir()
        made.append(make_step(place, script, **changes))
        return made[-1]

    yield maker
    for step in made:
        step.close()


def with_criu(make: Callable[..., Step], script: str, **changes: object) -> Step:
    step = make(script, engine="criu", criu=criu(), **changes)
    files = [str(step.workdir / name) for name in ("out.txt", "sum.txt", "all.txt")]
    step.write(own={"files": files, "directories": [str(step.stepdir / "tmp")]})
    return step


def output(step: Step) -> bytes:
    return (step.workdir / "out.txt").read_bytes()


def signal_all(step: Step, number: int) -> None:
    for pid in step.processes():
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def interrupted(step: Step, by: str) -> int:
    """Run the step until it is interrupted in this way after a checkpoint; the exit status."""
    if by == "own clock":
        step.write(interval=0, lead_time=4)
        status, said = step.run("first", "--seconds", "5.5")
        print(said)
        return status
    running = step.start("first")
    until(lambda: step.sealed() or running.poll() is not None, "a generation")
    assert step.sealed(), running.communicate()[0]
    time.sleep(0.15)
    if by == "kill of all":
        signal_all(step, signal.SIGKILL)
        running.kill()
    elif by == "terminate all":
        signal_all(step, signal.SIGTERM)
        running.terminate()
    else:
        running.send_signal(getattr(signal, by))
    print(running.communicate(timeout=60)[0])
    return running.returncode


@pytest.mark.parametrize("pattern", SCRIPTS)
@pytest.mark.parametrize(
    ("by", "status"),
    [
        ("own clock", 99),
        ("SIGUSR1", 99),
        ("SIGTERM", 99),
        ("terminate all", 99),
        ("SIGKILL", -9),
        ("kill of all", -9),
    ],
)
def test_a_restored_step_makes_what_an_uninterrupted_one_makes(
    make: Callable[..., Step], pattern: str, by: str, status: int
) -> None:
    plain = make(SCRIPTS[pattern])
    assert 0 == plain.run("whole")[0]
    step = with_criu(make, SCRIPTS[pattern], interval=0.4)

    assert status == interrupted(step, by)
    until(lambda: not step.processes(), "the step is gone")
    step.forget_outputs()
    assert 0 == step.run("second")[0]
    assert step.exit()["restored"] >= 1
    assert output(plain) == output(step)


def test_a_step_that_ends_leaves_its_status(make: Callable[..., Step]) -> None:
    step = make("exit 7\n")

    assert 7 == step.run("1")[0]
    assert {
        "schema": 1,
        "allocation": "1",
        "rc": 7,
        "stopping": False,
        "signal": 0,
        "generation": 0,
        "restored": 0,
        "reason": "ended",
        "message": "",
    } == step.exit()


def test_a_step_killed_by_a_signal_has_the_status_a_shell_gives(make: Callable[..., Step]) -> None:
    step = make("kill -ABRT $$\n")

    assert 134 == step.run("1")[0]
    assert (134, 6) == (step.exit()["rc"], step.exit()["signal"])


def test_a_step_in_a_namespace_may_kill_itself(make: Callable[..., Step]) -> None:
    """The first process of a namespace ignores what nobody handles; the step is not the first."""
    step = with_criu(make, "kill -TERM $$; sleep 9\n")

    assert 143 == step.run("1")[0]


def test_the_step_reads_nothing_and_its_output_is_appended_to_the_log(
    make: Callable[..., Step],
) -> None:
    step = make("cat; echo out; echo err >&2; ls -l /proc/self/fd >fds; umask >mask\n")
    (step.stepdir / "step.log").write_text("before\n")
    assert 0 == step.run("1")[0]

    assert "before\nout\nerr\n" == (step.stepdir / "step.log").read_text()
    assert 5 == len((step.workdir / "fds").read_text().splitlines())  # 0, 1, 2, its folder, a head
    assert f"{current_umask():04o}" == ((step.workdir / "mask").read_text().strip())


def current_umask() -> int:
    now = os.umask(0o22)
    os.umask(now)
    return now


def test_a_step_does_not_see_other_processes_and_its_own_proc_is_right(
    make: Callable[..., Step],
) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root")
    step = with_criu(make, "ls /proc | grep -c '^[0-9]' >out.txt; readlink /proc/self >>out.txt\n")
    assert 0 == step.run("1")[0]
    count, own = output(step).split()

    assert int(count) < 8
    assert int(own) < 20


def test_children_that_a_step_leaves_behind_end_with_it(make: Callable[..., Step]) -> None:
    step = make("setsid sleep 100 & sleep 0.1\n")

    assert 0 == step.run("1")[0]
    assert [] == step.processes()


@pytest.mark.parametrize("engine", ["none", "criu"])
def test_a_killed_runner_takes_its_tree_along_or_the_next_one_ends_it(
    make: Callable[..., Step], engine: str
) -> None:
    step = with_criu(make, COUNT.format(n=2000)) if engine == "criu" else make("sleep 100; :\n")
    running = step.start("1")
    until(lambda: step.events("started") and len(step.processes()) >= 2, "the step runs")
    running.kill()
    running.wait()
    if engine == "criu" and os.geteuid() == 0:
        until(lambda: not step.processes(), "its tree is gone")
    old = set(step.processes())
    second = step.start("2")
    until(lambda: step.events("started")[1:], "a second start")

    assert not old & set(step.processes())
    second.terminate()
    assert 99 == second.wait(60)
    assert [] == step.processes()


def test_a_second_runner_is_refused_and_harms_nothing(make: Callable[..., Step]) -> None:
    step = make(COUNT.format(n=60))
    first = step.start("1")
    until(lambda: lines(step.workdir / "out.txt") > 3)
    status, said = step.run("2")

    assert 97 == status
    assert f"process {first.pid}" in said
    assert 0 == first.wait(60)
    assert "1" == step.exit()["allocation"]
    assert [str(i) for i in range(1, 61)] == output(step).decode().split()


def test_of_many_runners_at_once_one_works(make: Callable[..., Step]) -> None:
    step = make(COUNT.format(n=60) + "while [ ! -e go ]; do sleep 0.02; done\n")
    runners = [step.start(str(number)) for number in range(6)]
    until(lambda: 5 == sum(each.poll() is not None for each in runners), "five are refused")
    (step.workdir / "go").touch()
    statuses = sorted(each.wait(60) for each in runners)

    assert [0] + [97] * 5 == statuses
    assert [str(i) for i in range(1, 61)] == output(step).decode().split()


def test_on_sigterm_no_checkpoint_is_begun(make: Callable[..., Step]) -> None:
    step = with_criu(make, COUNT.format(n=1000), interval=0)
    running = step.start("1")
    until(lambda: lines(step.workdir / "out.txt") > 3)
    running.terminate()

    assert 99 == running.wait(60)
    assert ([], "terminated", True, 15) == (
        step.sealed(),
        step.exit()["reason"],
        step.exit()["stopping"],
        step.exit()["signal"],
    )
    assert [] == step.events("checkpoint", "checkpoint_failed")


def test_a_step_that_fails_as_everybody_is_told_to_stop_has_not_failed(
    make: Callable[..., Step],
) -> None:
    """Slurm signals all processes; the step may be gone before the runner looks."""
    step = make("trap 'exit 1' TERM; echo 1 >out.txt; while :; do sleep 0.01; done\n")
    running = step.start("1")
    until(lambda: lines(step.workdir / "out.txt"))
    signal_all(step, signal.SIGTERM)
    time.sleep(0.1)
    running.terminate()

    assert 99 == running.wait(60)
    assert ("unknown", True) == (step.exit()["rc"], step.exit()["stopping"])


def test_the_lead_signal_makes_one_checkpoint_and_stops(make: Callable[..., Step]) -> None:
    step = with_criu(make, COUNT.format(n=1000), interval=0)
    running = step.start("1")
    until(lambda: lines(step.workdir / "out.txt") > 3)
    running.send_signal(signal.SIGUSR1)

    assert 99 == running.wait(60)
    assert ([1], "limit", 1) == (step.sealed(), step.exit()["reason"], step.exit()["generation"])
    assert ["limit"] == [event["reason"] for event in step.events("checkpoint")]


def test_a_limit_is_met_with_half_of_a_short_allocation_left(make: Callable[..., Step]) -> None:
    step = with_criu(make, COUNT.format(n=1000), interval=0)
    began = time.monotonic()
    status, _ = step.run("1", "--seconds", "6")
    took = time.monotonic() - began

    assert (99, [1]) == (status, step.sealed())
    assert 2.9 < took < 5.9


def test_a_step_goes_on_over_many_allocations(make: Callable[..., Step]) -> None:
    step = with_criu(make, COUNT.format(n=150), interval=0, lead_time=4)
    for number in range(1, 20):
        status, _ = step.run(str(number), "--seconds", "5")
        if status != 99:
            break
        step.forget_outputs()

    assert 0 == status
    assert number >= 3
    assert [str(i) for i in range(1, 151)] == output(step).decode().split()
    assert 1 == len(step.events("started"))
    assert number - 1 == len(step.events("restored"))


def damage(step: Step, number: int) -> None:
    image = next((step.stepdir / "generations").glob(f"{number:06d}.*/image/pages-1.img"))
    data = bytearray(image.read_bytes())
    data[len(data) // 2] = (data[len(data) // 2] + 1) % 256
    image.chmod(0o600)
    image.write_bytes(data)


def run_to_generation(step: Step, number: int) -> None:
    running = step.start("first")
    until(lambda: step.sealed()[-1:] >= [number], f"generation {number}")
    running.kill()
    running.wait()
    until(lambda: not step.processes())


def test_a_damaged_generation_is_passed_over_for_an_older_one(make: Callable[..., Step]) -> None:
    step = with_criu(make, COUNT.format(n=120), interval=0.3)
    run_to_generation(step, 2)
    newest = step.sealed()[-1]
    damage(step, newest)
    step.forget_outputs()
    status, said = step.run("second")

    assert (0, newest - 1) == (status, step.exit()["restored"])
    assert f"generation {newest} cannot be restored: damaged" in said
    assert [("damaged", newest)] == [
        (event["reason"], event["generation"]) for event in step.events("restore_failed")
    ]
    assert [str(i) for i in range(1, 121)] == output(step).decode().split()


def test_when_nothing_can_be_restored_the_step_begins_anew_once(make: Callable[..., Step]) -> None:
    step = with_criu(make, "rm -f out.txt\n" + COUNT.format(n=100), interval=0.3)
    run_to_generation(step, 1)
    for number in step.sealed():
        damage(step, number)
    running = step.start("second")
    until(lambda: len(step.events("started")) == 2, "a fresh start")
    running.kill()
    running.wait()
    until(lambda: not step.processes())
    for number in step.sealed():
        damage(step, number)
    status, _ = step.run("third")

    assert [0, 1] <= [event["after_failed_restores"] for event in step.events("started")]
    assert (96, "failed") == (status, step.exit()["reason"])
    assert "for the second time" in step.exit()["message"]


def test_an_image_of_a_better_processor_is_for_another_node(
    make: Callable[..., Step],
) -> None:
    """The newest generation is never given up for where the runner has landed."""
    from snakemake_executor_plugin_cedana.runner import generations

    step = with_criu(make, COUNT.format(n=1000), interval=0.3)
    run_to_generation(step, 1)
    catalog = generations.Catalog(step.stepdir, step.said["key"])
    newest = next(catalog.candidates())
    draft = catalog.begin(newest.number + 1)
    for file in newest.image.iterdir():
        (draft.image / file.name).write_bytes(file.read_bytes())
    flags = [*newest.facts["cpu_flags"], "avx9000"]
    catalog.seal(draft, newest.cut, {**newest.facts, "cpu_flags": flags})
    status, said = step.run("second")

    assert (98, "wrong_node") == (status, step.exit()["reason"])
    assert "this processor lacks avx9000" in said
    assert 1 == len(step.events("started"))
    assert ["wrong_node"] == [event["event"] for event in step.events("wrong_node")]


def test_a_file_open_for_writing_outside_the_own_set_is_named(make: Callable[..., Step]) -> None:
    step = with_criu(make, "exec 7>foreign.txt\n" + COUNT.format(n=80), interval=0.3)
    status, _ = step.run("1")
    failed = step.events("checkpoint_failed")

    assert (0, []) == (status, step.sealed())
    assert "foreign_file" == failed[0]["reason"]
    assert str(step.workdir / "foreign.txt") in failed[0]["excerpt"]
    assert [str(i) for i in range(1, 81)] == output(step).decode().split()


def test_a_foreign_file_that_may_be_shared_is_no_hindrance(make: Callable[..., Step]) -> None:
    step = with_criu(make, "exec 7>>foreign.txt\n" + COUNT.format(n=80), interval=0.3)
    step.write(shared_append=[str(step.workdir / "foreign.txt")])

    assert 0 == step.run("1")[0]
    assert step.sealed()


def test_a_step_that_cannot_be_checkpointed_says_so_at_its_limit(
    make: Callable[..., Step],
) -> None:
    step = with_criu(make, "exec 7>foreign.txt\n" + COUNT.format(n=1000), interval=0)
    status, _ = step.run("1", "--seconds", "4")

    assert (96, "uncheckpointable") == (status, step.exit()["reason"])
    assert "foreign.txt" in step.exit()["message"]


def test_a_network_connection_is_named_and_the_step_runs_on(make: Callable[..., Step]) -> None:
    program = """
import socket, time
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
for i in range(60):
    client.sendall(b"x"); assert peer.recv(1) == b"x"; time.sleep(0.02)
open("out.txt", "w").write("done")
"""
    step = with_criu(make, f"python3 - <<'P'{program}P\n", interval=0.3)
    status, _ = step.run("1")

    assert (0, b"done", []) == (status, output(step), step.sealed())
    assert "connection" == step.events("checkpoint_failed")[0]["reason"]


def test_after_a_failed_checkpoint_the_next_one_comes_later(make: Callable[..., Step]) -> None:
    step = with_criu(make, COUNT.format(n=300), interval=0.2)
    engine = step.stepdir.parent / "criu"
    engine.write_text(f'#!/bin/sh\n[ "$1" = dump ] && exit 1\nexec {criu()} "$@"\n')
    engine.chmod(0o755)
    step.write(criu=str(engine))
    status, _ = step.run("1")
    times = [event["monotonic"] for event in step.events("checkpoint_failed")]

    assert 0 == status
    assert 3 <= len(times) <= 8
    assert times[-1] - times[-2] > 1.5 * (times[1] - times[0])


@pytest.mark.parametrize(
    ("reason", "status", "rc"), [("timeout", 99, "unknown"), ("no_space", 133, 133)]
)
def test_a_step_that_a_broken_off_dump_has_killed_is_not_said_to_have_failed(
    reason: str, status: int, rc: int | str
) -> None:
    """CRIU is killed when it hangs, and may leave a trap in the step."""
    ended = subprocess.Popen(["/bin/sh", "-c", "exit 133"])
    run = SimpleNamespace(
        tree=Tree(ended.pid, namespaced=False),
        signals=Signals(),
        event=lambda *_, **__: None,
        broken_off=False,
        restored=0,
        generation=1,
        allocation="1",
    )
    run.signals.listen()
    try:
        loop._tell_failed(cast(Run, run), Failed(reason, ""))
        found: list[tuple[int, Exit]] = []

        def over() -> bool:
            found.extend(filter(None, [loop._ended(cast(Run, run))]))
            return bool(found)

        until(over)
    finally:
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        ended.returncode = 133

    assert (status, rc) == (found[0][0], found[0][1].rc)


def test_an_engine_that_does_not_work_is_an_error(make: Callable[..., Step]) -> None:
    step = make(COUNT.format(n=1000), engine="criu", criu="/nowhere/criu")
    status, _ = step.run("1")

    assert (96, "failed") == (status, step.exit()["reason"])
    assert "/nowhere/criu" in step.exit()["message"]
    assert [] == step.processes()


def test_an_engine_that_does_not_work_is_no_error_where_that_is_allowed(
    make: Callable[..., Step],
) -> None:
    step = make(COUNT.format(n=5), engine="criu", criu="/nowhere/criu", allow_uncheckpointed=True)

    assert 0 == step.run("1")[0]


def test_a_spec_that_makes_no_sense_is_told(make: Callable[..., Step]) -> None:
    step = make("exit 0\n", interval="often")
    status, _ = step.run("1")

    assert 96 == status
    assert "interval must be seconds or auto" in step.exit()["message"]


def test_a_restored_step_is_checked_as_asked_for(make: Callable[..., Step]) -> None:
    step = with_criu(make, COUNT.format(n=60), interval=0.3, check="test $(wc -l <out.txt) = 61")
    run_to_generation(step, 1)
    status, _ = step.run("second")

    assert 0 == status
    assert [1] == [event["rc"] for event in step.events("output_verified")]


def test_an_old_exit_record_is_gone_while_the_step_runs(make: Callable[..., Step]) -> None:
    step = make("sleep 0.3; test ! -e ../step/exit.json\n")
    (step.stepdir / "exit.json").write_text("{}")

    assert 0 == step.run("1")[0]


def test_the_store_stays_within_its_bound_on_heartbeats(make: Callable[..., Step]) -> None:
    step = with_criu(make, COUNT.format(n=100), interval=0.2, max_bytes=1)
    status, _ = step.run("1")

    assert (0, "max_bytes") == (status, step.events("checkpoint_failed")[-1]["reason"])
    assert len(step.sealed()) <= 1


def test_no_more_dumps_than_allowed_go_on_at_once(make: Callable[..., Step]) -> None:
    import fcntl

    step = with_criu(make, COUNT.format(n=60), interval=0.2, dump_slots=1)
    slots = Path(step.said["slots_dir"])
    slots.mkdir()
    with (slots / "slot.0").open("w") as taken:
        fcntl.flock(taken, fcntl.LOCK_EX)
        status, _ = step.run("1")

    assert (0, []) == (status, step.sealed())
    assert "no_slot" == step.events("checkpoint_failed")[0]["reason"]


def test_the_command_line_is_explained() -> None:
    from processes import RUNNER

    ended = subprocess.run(
        [sys.executable, "-I", "-S", str(RUNNER), "--what"], capture_output=True, text=True
    )
    assert 2 == ended.returncode
    assert "usage: runner STEPDIR --allocation ID [--seconds N]" in ended.stderr

"""A step's processes: started right, listed whole, killed to the last one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import until

from snakemake_executor_plugin_cedana.runner import proc, tree
from snakemake_executor_plugin_cedana.runner.tree import NotStarted, Tree

KINDS = [
    pytest.param(False, id="plain"),
    pytest.param(
        True,
        id="namespace",
        marks=pytest.mark.skipif(os.geteuid() != 0, reason="namespaces of its own need root"),
    ),
]


@pytest.fixture(params=KINDS)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[..., Tree]]:
    made: list[Tree] = []

    def starter(script: str, **more: str) -> Tree:
        made.append(
            tree.start(
                ["bash", "-c", script],
                log=tmp_path / "log",
                cwd=tmp_path,
                environment={"PATH": os.environ["PATH"], **more},
                namespace=request.param,
                umask=0o027,
            )
        )
        return made[-1]

    yield starter
    for each in made:
        tree.kill(each)


def status(of: Tree) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(of.pid, 0)[1])


def test_the_first_process_has_the_status_of_the_command(start: Callable[..., Tree]) -> None:
    assert 7 == status(start("exit 7"))


def test_a_command_killed_by_a_signal_ends_with_128_and_more(start: Callable[..., Tree]) -> None:
    assert 128 + signal.SIGKILL == status(start("kill -9 $$"))


def test_a_command_may_end_itself_by_a_signal_that_nobody_handles(
    start: Callable[..., Tree],
) -> None:
    assert 128 + signal.SIGTERM == status(start("kill -TERM $$; sleep 5"))


def test_what_is_not_there_is_not_found(tmp_path: Path) -> None:
    missing = tree.start(
        ["/nowhere"], log=tmp_path / "l", cwd=tmp_path, environment={}, namespace=False
    )

    assert 127 == status(missing)
    assert "not found" in (tmp_path / "l").read_text()


def zombies() -> set[int]:
    """Ended processes that this one has not waited for."""
    mine = (os.getpid(), "Z")
    return {each.pid for each in proc.processes() if (each.parent, each.state) == mine}


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    before = zombies()
    with pytest.raises(NotStarted, match="No such file"):
        tree.start(
            ["true"], log=tmp_path / "l", cwd=tmp_path / "no", environment={}, namespace=False
        )
    assert set() == zombies() - before


def test_a_log_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "l").symlink_to(tmp_path / "victim")
    with pytest.raises(NotStarted, match="symbolic"):
        tree.start(["true"], log=tmp_path / "l", cwd=tmp_path, environment={}, namespace=False)
    assert not (tmp_path / "victim").exists()


def test_a_step_has_its_own_session_umask_input_and_signals(
    start: Callable[..., Tree], tmp_path: Path
) -> None:
    with (tmp_path / "inherited").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        step = start(
            "umask; echo $(ls /proc/self/fd); readlink /proc/$$/fd/0;"
            " grep SigIgn /proc/$$/status; touch made"
        )
        assert 0 == status(step)
    mask, descriptors, null, ignored = (tmp_path / "log").read_text().splitlines()

    assert "0027" == mask
    assert "/dev/null" == null
    # the two ends of the substitution's pipe may still be there, and the folder that is listed
    assert {"0", "1", "2", "3"} == set(descriptors.split())
    assert 0 == int(ignored.split()[1], 16) & (1 << (signal.SIGPIPE - 1))
    assert 0o640 == (tmp_path / "made").stat().st_mode & 0o777
    assert 0o600 == (tmp_path / "log").stat().st_mode & 0o777


def test_all_members_are_listed_also_those_left_behind(
    start: Callable[..., Tree], tmp_path: Path
) -> None:
    step = start("(setsid sleep 50 & sleep 0) ; (sleep 50 | sleep 50) & touch up; sleep 50")
    until(lambda: len(tree.members(step)) >= 6)

    assert step.pid == tree.members(step)[0]
    tree.kill(step)
    assert [] == tree.members(step)


def test_nothing_survives_a_kill(start: Callable[..., Tree], tmp_path: Path) -> None:
    mark = f"X{os.urandom(8).hex()}"
    script = (
        "trap '' TERM INT HUP; for i in 1 2 3 4 5; do (setsid sleep 60 &) ; (sleep 60 & sleep 60) &"
        " done; while :; do (sleep 0.01 &); done"
    )
    step = start(script, MARKED=mark)
    until(lambda: len(proc.carrying("MARKED", mark)) > 12)
    began = time.monotonic()

    assert [] == tree.kill(step)
    assert time.monotonic() - began < 10
    until(lambda: not [p for p in proc.carrying("MARKED", mark) if p.state not in "ZX"])


def test_a_stopped_tree_is_killed_too(start: Callable[..., Tree]) -> None:
    step = start("sleep 60 & sleep 60; :")
    until(lambda: len(tree.members(step)) >= 4)
    for pid in tree.members(step):
        os.kill(pid, signal.SIGSTOP)

    assert [] == tree.kill(step)
    assert [] == tree.members(step)


def test_a_kill_writes_nothing_into_the_log(start: Callable[..., Tree], tmp_path: Path) -> None:
    step = start("sleep 60; echo after")
    until(lambda: len(tree.members(step)) >= 3)
    tree.kill(step)

    assert "" == (tmp_path / "log").read_text()


def test_a_pid_that_became_somebody_elses_is_not_killed() -> None:
    stranger = subprocess.Popen(
        [sys.executable, "-c", "import os, time; print(os.spawnvp(os.P_NOWAIT, 'sleep', "
         "['sleep', '30']), flush=True); time.sleep(30)"],
        stdout=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        assert stranger.stdout is not None
        grandchild = int(stranger.stdout.readline())

        assert [] == tree.kill(Tree(grandchild, namespaced=True), patience=0.1)
        assert proc.process(grandchild) is not None
        os.kill(grandchild, signal.SIGKILL)
    finally:
        stranger.kill()
        stranger.wait()
        stranger.stdout.close()  # type: ignore[union-attr]


def test_a_process_that_got_the_pid_later_is_not_signalled() -> None:
    other = subprocess.Popen(["/bin/sleep", "30"])
    try:
        now = proc.process(other.pid)
        assert now is not None
        before = proc.Process(now.pid, now.parent, now.start - 1, now.state)

        assert not proc.send(before, signal.SIGKILL)
        assert other.poll() is None
        assert proc.send(now, signal.SIGKILL)
    finally:
        other.kill()
        other.wait()


def test_a_dead_parent_takes_the_first_process_along(tmp_path: Path) -> None:
    code = (
        "import os, sys, time; sys.path[:0] = sys.argv[1:2]\n"
        "from pathlib import Path\n"
        "from runner import tree\n"
        "t = tree.start(['sleep', '60'], log=Path(sys.argv[2]), cwd=Path('/'),"
        " environment=dict(os.environ), namespace=False)\n"
        "print(t.pid, flush=True); time.sleep(60)\n"
    )
    folder = str(Path(tree.__file__).parent.parent)
    parent = subprocess.Popen(
        [sys.executable, "-c", code, folder, str(tmp_path / "l")], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    first = int(parent.stdout.readline())
    found = proc.process(first)
    assert found is not None
    parent.kill()
    parent.wait()
    parent.stdout.close()

    until(lambda: not proc.alive(first, found.start))


def test_files_that_may_be_written_are_found(start: Callable[..., Tree], tmp_path: Path) -> None:
    (tmp_path / "read").write_text("x")
    program = """
import mmap, os, time
a = open("written", "w"); b = open("read"); c = open("gone", "w"); os.unlink("gone")
m = open("mapped", "wb+"); m.truncate(8192); shared = mmap.mmap(m.fileno(), 8192); m.close()
r = open("read"); private = mmap.mmap(r.fileno(), 0, prot=mmap.PROT_READ)
anonymous = mmap.mmap(-1, 4096); os.memfd_create("mine"); os.mkfifo("pipe")
p = os.open("pipe", os.O_RDWR)
d = open("kept", "w"); os.link("kept", "other"); os.unlink("kept")
n = open("new\\nline", "a"); open("ready", "w"); time.sleep(50)
"""
    step = start(f"exec {sys.executable} -c '{program}'")
    until(lambda: (tmp_path / "ready").exists())
    names = {path.name for path in tree.open_for_writing(tree.members(step))}

    assert {"log", "written", "mapped", "kept", "new\nline"} == names


def test_a_signal_that_waits_for_its_delivery_is_seen(start: Callable[..., Tree]) -> None:
    step = start("sleep 60; :")
    until(lambda: len(tree.members(step)) >= 3)
    leaf = tree.members(step)[-1]
    os.kill(leaf, signal.SIGSTOP)
    until(lambda: "T" == getattr(proc.process(leaf), "state", ""))
    os.kill(leaf, signal.SIGUSR2)
    assert not proc.asked_to_stop(tree.members(step))
    os.kill(leaf, signal.SIGTERM)

    assert proc.asked_to_stop(tree.members(step))


def test_what_an_earlier_runner_left_is_found_by_its_mark_and_killed(
    start: Callable[..., Tree], tmp_path: Path
) -> None:
    start("sleep 60 & setsid sleep 60; :", CEDANA_STEPDIR=str(tmp_path))
    start("sleep 60 & sleep 60; :", CEDANA_STEPDIR=f"{tmp_path}x")
    until(lambda: len(proc.carrying(tree.MARK, str(tmp_path))) >= 4)
    until(lambda: len(proc.carrying(tree.MARK, f"{tmp_path}x")) >= 4)

    assert [] == tree.kill_marked(tmp_path)
    assert [] == [p for p in proc.carrying(tree.MARK, str(tmp_path)) if p.state != "Z"]
    assert 4 <= len(proc.carrying(tree.MARK, f"{tmp_path}x"))


def test_a_process_name_with_brackets_and_blanks_is_read(tmp_path: Path) -> None:
    program = tmp_path / "a) R (1 2"
    program.symlink_to("/bin/sleep")
    odd = subprocess.Popen([program, "30"])
    try:
        until(lambda: ") R (1 2) S " in Path(f"/proc/{odd.pid}/stat").read_text())
        found = proc.process(odd.pid)

        assert found is not None
        assert (odd.pid, os.getpid(), "S") == (found.pid, found.parent, found.state)
    finally:
        odd.kill()
        odd.wait()


def test_a_pid_nobody_has_is_no_process() -> None:
    limit = int(Path("/proc/sys/kernel/pid_max").read_text())

    assert proc.process(limit + 1) is None
    assert not proc.alive(limit + 1, 0)


def test_starting_leaves_no_descriptor_and_no_child(
    start: Callable[..., Tree], tmp_path: Path
) -> None:
    before = list(Path("/proc/self/fd").iterdir())
    for _ in range(20):
        tree.kill(start("sleep 9"))

    assert len(before) == len(list(Path("/proc/self/fd").iterdir()))


def test_a_process_cannot_be_made_and_that_is_told(tmp_path: Path) -> None:
    """In a process of its own, for the limit counts all processes of a user who is not root."""
    code = (
        "import os, resource, sys; sys.path[:0] = sys.argv[1:2]\n"
        "from pathlib import Path\n"
        "from runner import tree\n"
        "os.setgroups([]) if os.geteuid() == 0 else None\n"
        "os.setresuid(12345, 12345, 12345) if os.geteuid() == 0 else None\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
        "try: tree.start(['true'], log=Path('/dev/null'), cwd=Path('/'), environment={},"
        " namespace=False)\n"
        "except tree.NotStarted as error: print(error)\n"
    )
    folder = tmp_path / "copy"
    subprocess.run(["/bin/cp", "-r", str(Path(tree.__file__).parent.parent), folder], check=True)
    for above in (folder, *folder.parents):
        if above.is_relative_to(tmp_path.parents[2]) and above.stat().st_uid == os.geteuid():
            above.chmod(above.stat().st_mode | 0o055)
    ended = subprocess.run(
        [sys.executable, "-c", code, str(folder)], capture_output=True, text=True
    )

    assert "Resource temporarily unavailable" in ended.stdout, ended.stderr

"""CRIU's command line, with a real CRIU and with ones that misbehave."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import criu, lives, until

from snakemake_executor_plugin_cedana.runner import machine, proc, tree
from snakemake_executor_plugin_cedana.runner.engines import (
    DUMP_REASONS,
    RESTORE_REASONS,
    DumpFailed,
    RestoreFailed,
)
from snakemake_executor_plugin_cedana.runner.engines import criu as engine_module
from snakemake_executor_plugin_cedana.runner.engines.criu import Criu
from snakemake_executor_plugin_cedana.runner.engines.none import NoEngine
from snakemake_executor_plugin_cedana.runner.tree import Tree

COUNT = "for i in $(seq 1 2000); do echo $i >>out; sleep 0.02; done"


@pytest.fixture(
    params=[
        pytest.param(False, id="plain"),
        pytest.param(
            True,
            id="namespace",
            marks=pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root"),
        ),
    ]
)
def start(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Tree]]:
    made: list[Tree] = []

    def starter(script: str) -> Tree:
        made.append(
            tree.start(
                ["bash", "-c", script],
                log=tmp_path / "log",
                cwd=tmp_path,
                environment={"PATH": os.environ["PATH"]},
                namespace=request.param,
            )
        )
        until(lambda: len(tree.members(made[-1])) >= 2)
        return made[-1]

    yield starter
    for each in made:
        tree.kill(each)


def dump(
    engine: Criu,
    of: Tree,
    image: Path,
    *,
    leave_running: bool = True,
    frozen: Callable[[], None] = lambda: None,
    deadline: float = 60,
    wanted: Callable[[], bool] = lambda: True,
) -> float:
    image.mkdir(mode=0o700)
    return engine.dump(
        of, image, leave_running=leave_running, frozen=frozen, deadline=deadline, wanted=wanted
    ).seconds


def states(of: Tree) -> set[str]:
    return {found.state for pid in tree.members(of) if (found := proc.process(pid))}


def size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def goes_on(path: Path) -> None:
    before = size(path)
    until(lambda: size(path) > before, "the step goes on")


def fake(tmp_path: Path, script: str) -> Criu:
    path = tmp_path / "fake-criu"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return Criu(str(path), tmp_path)


def test_it_tells_its_version_and_that_it_works(tmp_path: Path) -> None:
    engine = Criu(criu(), tmp_path)

    assert machine.version(engine.version())[:1] >= (3,)
    assert "" == engine.check()


def test_every_task_stands_still_while_the_cut_is_taken(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    engine, step = Criu(criu(), tmp_path), start(COUNT)
    seen: list[object] = []

    def frozen() -> None:
        before = (tmp_path / "out").read_bytes() if (tmp_path / "out").exists() else b""
        time.sleep(0.2)
        seen.extend([states(step), (tmp_path / "out").read_bytes() == before])

    until(lambda: size(tmp_path / "out"))
    seconds = dump(engine, step, tmp_path / "image", frozen=frozen)

    assert [{"t"}, True] == seen
    assert 0.2 <= seconds < 10
    goes_on(tmp_path / "out")


def test_a_final_dump_leaves_the_step_standing_still(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    engine, step = Criu(criu(), tmp_path), start(COUNT)
    dump(engine, step, tmp_path / "image", leave_running=False)

    assert {"T"} == states(step)
    tree.thaw(step)
    goes_on(tmp_path / "out")


@pytest.mark.parametrize("leave_running", [True, False])
def test_a_cut_that_fails_leaves_the_step_running(
    start: Callable[[str], Tree], tmp_path: Path, leave_running: bool
) -> None:
    engine, step = Criu(criu(), tmp_path), start(COUNT)

    def frozen() -> None:
        raise OSError(28, "disk full")

    with pytest.raises(OSError, match="disk full"):
        dump(engine, step, tmp_path / "image", leave_running=leave_running, frozen=frozen)
    goes_on(tmp_path / "out")


def test_a_restored_tree_is_a_child_with_its_own_status(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    engine = Criu(criu(), tmp_path)
    step = start("for i in $(seq 1 50); do sleep 0.02; done; exit 9")
    dump(engine, step, tmp_path / "image", leave_running=False)
    tree.kill(step)
    files = sorted((tmp_path / "image").iterdir())
    restored = engine.restore(tmp_path / "image", namespaced=step.namespaced, deadline=60)

    assert 9 == os.waitstatus_to_exitcode(os.waitpid(restored.pid, 0)[1])
    assert files == sorted((tmp_path / "image").iterdir())


def test_an_image_can_be_restored_again_and_again(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    engine, step = Criu(criu(), tmp_path), start(COUNT)
    dump(engine, step, tmp_path / "image", leave_running=False)
    tree.kill(step)
    for _ in range(3):
        step = engine.restore(tmp_path / "image", namespaced=step.namespaced, deadline=60)
        goes_on(tmp_path / "out")
        assert [] == tree.kill(step)


def test_a_restored_tree_can_be_dumped_again(start: Callable[[str], Tree], tmp_path: Path) -> None:
    engine, step = Criu(criu(), tmp_path), start(COUNT)
    for number in range(3):
        dump(engine, step, tmp_path / str(number), leave_running=False)
        tree.kill(step)
        step = engine.restore(tmp_path / str(number), namespaced=step.namespaced, deadline=60)
    goes_on(tmp_path / "out")
    assert [] == tree.kill(step)


def test_a_pid_in_use_is_recognised(tmp_path: Path) -> None:
    engine = Criu(criu(), tmp_path)
    step = tree.start(
        ["sleep", "60"], log=tmp_path / "l", cwd=tmp_path, environment={}, namespace=False
    )
    dump(engine, step, tmp_path / "image")
    try:
        with pytest.raises(RestoreFailed, match="pid_in_use"):
            engine.restore(tmp_path / "image", namespaced=False, deadline=60)
    finally:
        tree.kill(step)


def test_a_file_that_is_gone_is_named_and_nothing_is_left(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    engine, step = Criu(criu(), tmp_path), start(f"exec 7>gone; {COUNT}")
    dump(engine, step, tmp_path / "image", leave_running=False)
    tree.kill(step)
    (tmp_path / "gone").unlink()
    before = tree.children()
    with pytest.raises(RestoreFailed, match="gone"):
        engine.restore(tmp_path / "image", namespaced=step.namespaced, deadline=60)

    assert before == tree.children()


def test_a_short_pages_file_ends_at_the_deadline_and_leaves_nothing(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    """CRIU spins for ever on it, and writes its log without end."""
    engine, step = Criu(criu(), tmp_path), start(COUNT)
    dump(engine, step, tmp_path / "image", leave_running=False)
    tree.kill(step)
    pages = max((tmp_path / "image").glob("pages-*.img"), key=lambda path: path.stat().st_size)
    os.truncate(pages, 0)
    before, began = tree.children(), time.monotonic()
    with pytest.raises(RestoreFailed):
        engine.restore(tmp_path / "image", namespaced=step.namespaced, deadline=3)

    assert time.monotonic() - began < 30
    assert before == tree.children()
    assert not list(tmp_path.glob("criu.*"))


def test_a_dump_that_hangs_is_given_up_and_the_step_runs_on(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    engine, step = fake(tmp_path, "exec sleep 60"), start(COUNT)
    with pytest.raises(DumpFailed, match="timeout"):
        dump(engine, step, tmp_path / "image", deadline=0.3)
    goes_on(tmp_path / "out")


def test_a_dump_that_is_no_longer_wanted_is_given_up(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    engine, step = fake(tmp_path, "exec sleep 60"), start(COUNT)
    with pytest.raises(DumpFailed, match="abandoned"):
        dump(engine, step, tmp_path / "image", wanted=lambda: False)
    goes_on(tmp_path / "out")


def test_a_dump_that_says_it_worked_but_froze_nothing_has_failed(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    engine, step = fake(tmp_path, "exit 0"), start(COUNT)
    with pytest.raises(DumpFailed):
        dump(engine, step, tmp_path / "image")


def goes_on_or_ends(path: Path, step: Tree) -> bool:
    """Whether the step goes on; False where nothing is left of it."""
    before = size(path)
    until(lambda: size(path) > before or not lives(step.pid), "the step goes on or ends")
    return lives(step.pid)


def test_a_killed_criu_never_leaves_the_step_standing_still(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    """It runs on, or it is gone: CRIU may be killed while its own code runs in the step."""
    path = tmp_path / "killed-criu"
    path.write_text(f'#!/bin/sh\n"{criu()}" "$@" &\nsleep 0.06; kill -9 $!; wait $!\n')
    path.chmod(0o755)
    step = start(COUNT)
    for number in range(3):
        with contextlib.suppress(DumpFailed):
            dump(Criu(str(path), tmp_path), step, tmp_path / str(number))
        if not goes_on_or_ends(tmp_path / "out", step):
            return
    dump(Criu(criu(), tmp_path), step, tmp_path / "image")
    goes_on(tmp_path / "out")


def test_a_dead_runner_does_not_leave_the_step_frozen(tmp_path: Path) -> None:
    """The hook that waits for the runner ends with it, and CRIU lets the step go on."""
    step = tree.start(
        ["bash", "-c", COUNT],
        log=tmp_path / "l",
        cwd=tmp_path,
        environment={"PATH": os.environ["PATH"]},
        namespace=False,
    )
    code = (
        "import os, sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from pathlib import Path\n"
        "from runner.engines.criu import Criu\n"
        "from runner.tree import Tree\n"
        "def frozen(): print('frozen', flush=True); time.sleep(60)\n"
        "Criu(sys.argv[2], Path(sys.argv[3])).dump(Tree(int(sys.argv[4]), False),"
        " Path(sys.argv[3]) / 'image', leave_running=True, frozen=frozen, deadline=60,"
        " wanted=lambda: True)\n"
    )
    (tmp_path / "image").mkdir()
    folder = str(Path(tree.__file__).parent.parent)
    runner = subprocess.Popen(
        [sys.executable, "-c", code, folder, criu(), str(tmp_path), str(step.pid)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert runner.stdout is not None
        assert "frozen\n" == runner.stdout.readline()
        runner.kill()
        runner.wait()
        runner.stdout.close()
        goes_on(tmp_path / "out")
    finally:
        tree.kill(step)


def test_a_step_that_ends_during_a_dump_has_ended(tmp_path: Path) -> None:
    step = tree.start(["true"], log=tmp_path / "l", cwd=tmp_path, environment={}, namespace=False)
    until(lambda: not tree.members(step))
    with pytest.raises(DumpFailed, match="step_ended"):
        dump(Criu(criu(), tmp_path), step, tmp_path / "image")
    tree.reap()


def test_a_deleted_file_that_is_open_comes_back(
    start: Callable[[str], Tree], tmp_path: Path
) -> None:
    script = (
        "exec 7<>gone; rm gone; head -c 3000000 /dev/zero >&7; echo hidden >&7; touch ready;"
        " while [ ! -e go ]; do sleep 0.02; done; tail -c 7 /proc/$$/fd/7 >back"
    )
    engine, step = Criu(criu(), tmp_path), start(script)
    until((tmp_path / "ready").exists)
    dump(engine, step, tmp_path / "image", leave_running=False)
    tree.kill(step)
    step = engine.restore(tmp_path / "image", namespaced=step.namespaced, deadline=60)
    (tmp_path / "go").touch()

    assert 0 == os.waitstatus_to_exitcode(os.waitpid(step.pid, 0)[1])
    assert "hidden\n" == (tmp_path / "back").read_text()


def test_what_is_said_without_end_is_cut(tmp_path: Path) -> None:
    loud = fake(tmp_path, "yes 'Error (x): loud' | head -c 30000000; exit 1")
    (tmp_path / "image").mkdir()
    with pytest.raises(RestoreFailed) as failed:
        loud.restore(tmp_path / "image", namespaced=False, deadline=60)

    assert len(failed.value.excerpt) < 2000


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    assert "/nowhere/criu" in Criu("/nowhere/criu", tmp_path).check()
    assert "unknown" == Criu("/nowhere/criu", tmp_path).version()


def test_reasons_are_those_of_the_lists() -> None:
    assert {name for name, _ in engine_module._DUMP_SIGNS} <= set(DUMP_REASONS)
    assert {name for name, _ in engine_module._RESTORE_SIGNS} <= set(RESTORE_REASONS)


def test_the_engine_none_dumps_nothing(start: Callable[[str], Tree], tmp_path: Path) -> None:
    engine, step = NoEngine(), start(COUNT)
    with pytest.raises(DumpFailed):
        engine.dump(
            step,
            tmp_path,
            leave_running=True,
            frozen=lambda: None,
            deadline=1,
            wanted=lambda: True,
        )
    with pytest.raises(RestoreFailed):
        engine.restore(tmp_path, namespaced=False, deadline=1)
    assert ("none", "", "none") == (engine.name, engine.check(), engine.version())


FACTS = {
    "uid": 1000,
    "architecture": "x86_64",
    "cpu_flags": ["avx", "sse"],
    "kernel": "6.1.0-13-amd64",
    "engine": "criu",
    "engine_version": "4.2.1",
    "namespaced": False,
}


@pytest.mark.parametrize(
    ("here", "why"),
    [
        ({}, ""),
        ({"cpu_flags": ["avx", "sse", "avx512f"], "kernel": "6.18.1"}, ""),
        ({"engine_version": "4.9"}, ""),
        ({"kernel": "6.1.99"}, ""),
        ({"uid": 0}, "uid is 0 here, 1000 in the image"),
        ({"architecture": "aarch64"}, "architecture is 'aarch64' here"),
        ({"cpu_flags": ["sse"]}, "lacks avx"),
        ({"engine_version": "3.19"}, "engine 3.19 here, 4.2.1 there"),
        ({"kernel": "5.15.0"}, "kernel 5.15.0 here is older"),
        ({"engine": "none"}, "engine is 'none' here"),
    ],
)
def test_an_image_fits_a_machine_that_has_all_it_may_need(
    here: dict[str, object], why: str
) -> None:
    said = machine.misfit(FACTS, {**FACTS, "namespaced": True, **here})

    assert why in said if why else "" == said


def test_an_image_from_a_namespace_needs_one() -> None:
    assert "namespace" in machine.misfit({**FACTS, "namespaced": True}, FACTS)


@pytest.mark.parametrize("name", ["uid", "architecture", "cpu_flags", "engine"])
def test_an_image_that_does_not_say_what_it_needs_fits_nowhere(name: str) -> None:
    image = {key: value for key, value in FACTS.items() if key != name}

    assert "" != machine.misfit(image, FACTS)


def _able(program: str) -> str:
    """A copy of CRIU that an ordinary user can use, or why there is none."""
    place = Path("/opt") if os.access("/opt", os.W_OK) else Path.home()
    copy = place / f"criu-capable.{os.getpid()}"
    shutil.copy(program, copy)
    copy.chmod(0o755)
    rights = "cap_dac_read_search,cap_sys_ptrace,cap_checkpoint_restore,cap_setpcap=eip"
    setcap = shutil.which("setcap", path=f"{os.environ['PATH']}:/sbin:/usr/sbin")
    if setcap is None or subprocess.run([setcap, rights, copy]).returncode:
        copy.unlink()
        pytest.skip("needs setcap")
    return str(copy)


def test_an_ordinary_user_dumps_and_restores(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to become an ordinary user with a capable CRIU")
    program = _able(criu())
    work = Path(program).with_suffix(".work")
    work.mkdir()
    os.chown(work, 12345, 12345)
    runner = work / "executor"
    shutil.copytree(Path(tree.__file__).parents[1], runner)
    code = (
        "import os, sys, time; sys.path.insert(0, sys.argv[1])\n"
        "from runner import kernel, tree; from runner.engines.criu import Criu\n"
        "import tempfile, random\n"  # this Python may lie where the user cannot enter
        "os.setgroups([]); os.setresgid(12345, 12345, 12345);"
        " os.setresuid(12345, 12345, 12345)\n"
        "kernel._prctl(4, 1)\n"  # be readable for the hook, as after an execve
        "exec(sys.argv[4], {})\n"
    )
    inner = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from runner import kernel, tree\n"
        "from runner.engines.criu import Criu\n"
        "kernel.adopt_orphans()\n"
        "work = Path(sys.argv[3]); engine = Criu(sys.argv[2], work); image = work / 'image'\n"
        "image.mkdir(); print(engine.check() or 'works')\n"
        "step = tree.start(['bash', '-c', 'for i in $(seq 1 60); do sleep 0.02; done; exit 5'],"
        " log=work / 'log', cwd=work, environment=dict(os.environ), namespace=False)\n"
        "time.sleep(0.3)\n"
        "engine.dump(step, image, leave_running=True, frozen=lambda: None, deadline=60,"
        " wanted=lambda: True); print('dumped')\n"
        "tree.kill(step); step = engine.restore(image, namespaced=False, deadline=60)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(step.pid, 0)[1]))\n"
    )
    try:
        ended = subprocess.run(
            [sys.executable, "-c", code, str(runner), program, str(work), inner],
            capture_output=True,
            text=True,
            cwd="/",
            timeout=120,
        )
        assert ["works", "dumped", "5"] == ended.stdout.split(), ended.stderr
    finally:
        Path(program).unlink()
        shutil.rmtree(work)

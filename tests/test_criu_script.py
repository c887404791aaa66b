"""scripts/criu: it takes a CRIU that works, says why there is none, and what it brings restores."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from machine import NOBODY

SCRIPT = Path(__file__).parents[1] / "scripts" / "criu"
TOOLS = "awk bash chmod chown cmp dirname env flock grep mkdir mktemp realpath rm setpriv timeout"

# Counts until it is told to stop, and then tells by its exit status that it was.
COUNTER = """
import pathlib, sys, time
for number in range(1_000):
    print(number, flush=True)
    if pathlib.Path("stop").exists():
        sys.exit(7)
    time.sleep(0.02)
"""


def run(*arguments: str | Path, path: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = dict(os.environ) | ({} if path is None else {"PATH": path})
    return subprocess.run(
        [SCRIPT, *arguments], env=environment, capture_output=True, text=True, timeout=120
    )


def fake_criu(folder: Path, code: int) -> Path:
    """A program that ends with this code and names its folder, as the unpacked copy does."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "criu"
    program.write_text(f"#!/bin/sh\necho said by {folder}\nexit {code}\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A folder for PATH with what the script looks around with; apt-get is not in it."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name in TOOLS.split():
        found = shutil.which(name)
        if found is None:
            pytest.skip(f"there is no {name}")
        (folder / name).symlink_to(found)
    return folder


def test_one_in_path_that_works_is_taken(tools: Path, tmp_path: Path) -> None:
    criu = fake_criu(tools, 0)
    ended = run(tmp_path / "target", path=str(tools))
    assert (0, f"{criu}\n", "") == (ended.returncode, ended.stdout, ended.stderr)
    assert not (tmp_path / "target").exists()


def test_an_earlier_copy_is_taken_where_the_one_in_path_fails(tools: Path, tmp_path: Path) -> None:
    fake_criu(tools, 1)
    copy = fake_criu(tmp_path / "target/criu/usr/sbin", 0)
    ended = run(tmp_path / "target", path=str(tools))
    assert (0, f"{copy}\n", "") == (ended.returncode, ended.stdout, ended.stderr)


def test_a_copy_that_was_moved_is_not_taken(tools: Path, tmp_path: Path) -> None:
    fake_criu(tools, 1)
    fake_criu(tmp_path / "target/criu/usr/sbin", 0)
    (tmp_path / "target").rename(tmp_path / "moved")
    ended = run("--find", tmp_path / "moved", path=str(tools))
    assert (1, "") == (ended.returncode, ended.stdout)
    assert "none works here" in ended.stderr


def test_without_apt_it_says_so_and_makes_nothing(tools: Path, tmp_path: Path) -> None:
    fake_criu(tools, 1)
    ended = run(tmp_path / "target", path=str(tools))
    assert (1, "") == (ended.returncode, ended.stdout)
    assert ("apt-get" if os.geteuid() == 0 else "run as root") in ended.stderr
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("arguments", [["--unknown"], ["one", "two"]])
def test_bad_usage(arguments: list[str]) -> None:
    ended = run(*arguments)
    assert (2, "") == (ended.returncode, ended.stdout)
    assert "usage:" in ended.stderr


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder that an ordinary user can reach, which pytest's own are not."""
    folder = Path(tempfile.mkdtemp(prefix="criu-"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.parametrize("ordinary", [False, True], ids=["root", "ordinary user"])
def test_what_it_prints_dumps_and_restores(ordinary: bool, home: Path) -> None:
    root = os.geteuid() == 0
    if not ordinary and not root:
        pytest.skip("needs root")
    python = shutil.which("python3", path="/usr/bin")
    if python is None:
        pytest.skip("needs a python3 that ordinary users can start")
    # Only an ordinary user's needs the second path.
    found = run("--find", *(["--capabilities"] if ordinary else []))
    if found.returncode:
        pytest.skip(found.stderr.strip())
    criu = [found.stdout.split("\n")[-2], *(["--unprivileged"] if ordinary else [])]

    user = NOBODY if ordinary and root else None
    environment = dict(os.environ) | {"XDG_RUNTIME_DIR": str(home)}
    images, log, output = home / "images", home / "log", home / "numbers"
    images.mkdir()
    output.touch()
    if user is not None:
        for file in (home, images, output):
            os.chown(file, user, user)

    def start(*command: str | Path, out: Path, session: bool) -> subprocess.Popen[bytes]:
        with out.open("w") as stream:
            return subprocess.Popen(
                command,
                cwd=home,
                env=environment,
                user=user,
                group=user,
                extra_groups=None if user is None else [],
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                start_new_session=session,
            )

    def control(*arguments: str) -> None:
        ended = start(*criu, *arguments, "-D", images, out=log, session=False)
        assert ended.wait(60) == 0, log.read_text()

    def numbers() -> list[int]:
        return [int(line) for line in output.read_text().split()]

    counter = start(python, "-I", "-c", COUNTER, out=output, session=True)
    try:
        wait_until(lambda: len(numbers()) > 3)
        control("dump", "-t", str(counter.pid))
        assert -9 == counter.wait(10)
        before = len(numbers())
        # Restored as a child of this process, which can then wait for its real exit status.
        control("restore", "--restore-detached", "--restore-sibling")
        wait_until(lambda: len(numbers()) > before)
    finally:
        (home / "stop").touch()  # ends it in either life
    _, status = os.waitpid(counter.pid, 0)
    assert 7 == os.waitstatus_to_exitcode(status)
    assert list(range(len(numbers()))) == numbers()


def wait_until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not true():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)

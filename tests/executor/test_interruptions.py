"""Steps that go on after interruptions: real Snakemake, real runners, real CRIU."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import criu, until
from snakes import Snake

NUMBERS = "".join(f"{number}\n" for number in range(1, 61))
FROM_ZERO = "".join(f"{number}\n" for number in range(60))


@pytest.fixture
def snake(tmp_path: Path) -> Iterator[Snake]:
    made = Snake(tmp_path / "work", "slow")
    yield made
    made.close()


@pytest.fixture
def asked() -> tuple[str, ...]:
    """Checkpoints every two seconds."""
    return ("--cedana-criu", criu(), "--cedana-interval", "2")


def test_every_kind_of_rule_goes_on_after_its_allocation_ends(
    snake: Snake, asked: tuple[str, ...]
) -> None:
    """Snakemake sees one submission and one success of each, and the right outputs."""
    limits = ("--cedana-local-allocation", "15", "--cedana-lead-time", "3")
    said = snake.run(*asked, *limits, "--jobs", "5", "--config", "pause=0.3")

    assert NUMBERS == snake.read("shell.txt") == snake.read("shell.log")
    assert NUMBERS == snake.read("shadow.txt")
    assert FROM_ZERO == snake.read("run.txt") == snake.read("script.txt")
    assert NUMBERS + FROM_ZERO == snake.read("pair.txt")
    assert "5 steps went on after interruption." in said
    for rule in ("shell_", "run_", "script_", "shadow_"):
        assert 1 == said.count(f"rule {rule}:")
        assert 1 == len(snake.events(rule, "started"))
        assert snake.events(rule, "restored")
    assert "Error" not in said
    assert [] == list(snake.root.glob("steps/*/generations/*"))  # after success nothing is kept
    assert [] == list(snake.root.glob("steps/*/store"))


def test_messages_tell_what_was_sealed_and_restored(snake: Snake, asked: tuple[str, ...]) -> None:
    limits = ("--cedana-local-allocation", "12", "--cedana-lead-time", "3")
    said = snake.run(*asked, *limits, "shell.txt", "--config", "pause=0.3")

    assert "step shell_: generation 1 sealed (" in said
    assert "MB, frozen 0." in said
    assert "the allocation reached its time limit; goes on from generation" in said
    assert "step shell_: restored generation" in said


def test_killed_runner_is_followed_by_one_that_restores(
    snake: Snake, asked: tuple[str, ...]
) -> None:
    running = snake.start(*asked, "shell.txt", "--config", "pause=0.3")
    until(snake.sealed)
    os.kill(snake.runner("shell_"), signal.SIGKILL)
    assert 0 == running.wait(120)
    said = snake.read("main.log")

    assert "the allocation ended (FAILED) without a word; goes on from generation" in said
    assert "1 step went on after interruption." in said
    assert NUMBERS == snake.read("shell.txt")


def test_killed_snakemake_and_runner_leave_a_step_that_goes_on(
    snake: Snake, asked: tuple[str, ...]
) -> None:
    arguments = (*asked, "shell.txt", "--config", "pause=0.3", "check=test -s shell.txt")
    running = snake.start(*arguments)
    until(snake.sealed)
    runner = snake.runner("shell_")
    running.kill()
    running.wait()
    os.kill(runner, signal.SIGKILL)
    snake.run(*arguments, "--unlock")
    said = snake.run(*arguments, "--rerun-incomplete")

    assert "step shell_: restored generation" in said
    assert "output check passed" in said
    assert 1 == len(snake.events("shell_", "started"))
    assert [0] == [event["rc"] for event in snake.events("shell_", "output_verified")]
    assert NUMBERS == snake.read("shell.txt")


def test_snakemake_stopped_by_ctrl_c_goes_on_later(snake: Snake, asked: tuple[str, ...]) -> None:
    arguments = (*asked, "run.txt", "--config", "pause=0.3")
    running = snake.start(*arguments)
    until(snake.sealed)
    running.send_signal(signal.SIGINT)
    assert 0 != running.wait(60)
    snake.run(*arguments, "--unlock")
    said = snake.run(*arguments, "--rerun-incomplete")

    assert "step run_: restored generation" in said
    assert "1 step went on after interruption." in said
    assert FROM_ZERO == snake.read("run.txt")


def test_changed_rule_does_not_go_on_from_an_old_checkpoint(
    snake: Snake, asked: tuple[str, ...]
) -> None:
    running = snake.start(*asked, "shell.txt", "--config", "pause=0.3", "param=1")
    until(snake.sealed)
    running.send_signal(signal.SIGINT)
    running.wait(60)
    snake.run("--unlock")
    changed = ("--config", "pause=0", "count=3", "param=2", "--rerun-incomplete")
    said = snake.run(*asked, "shell.txt", *changed)

    assert "step shell_: begins anew: rule shell_: params changed" in said
    assert "restored" not in said
    assert "1\n2\n3\n" == snake.read("shell.txt")


def test_finished_step_that_is_forced_begins_anew(snake: Snake, asked: tuple[str, ...]) -> None:
    arguments = (*asked, "shell.txt", "--config", "pause=0.1")
    snake.run(*arguments)
    said = snake.run(*arguments, "--force")

    assert "restored" not in said
    assert 2 == len(snake.events("shell_", "started"))

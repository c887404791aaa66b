"""Real Snakemake with the executor: what users see. Without checkpoints; see test_interruptions."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import lives, until
from snakes import Snake

from snakemake_executor_plugin_cedana.executor import requote

NONE = ("--cedana-engine", "none", "--cedana-allow-uncheckpointed")
HOSTILE = ["a b\ny", 'it\'s $(touch HACKED) `id` "q"!', "ü\\n*;touch HACKED", "-~%s#&$HOME"]


@pytest.fixture
def snake(tmp_path: Path) -> Iterator[Callable[[str], Snake]]:
    made: list[Snake] = []

    def make(workflow: str, folder: str = "work") -> Snake:
        made.append(Snake(tmp_path / folder, workflow))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("opted_in", ["1", "0"])
def test_every_kind_of_rule_gives_what_the_local_executor_gives(
    snake: Callable[..., Snake], opted_in: str
) -> None:
    here, oracle = snake("kinds"), snake("kinds", "oracle")
    oracle.run("--retries", "2", "--config", "cedana=0", executor="local")
    said = here.run(*NONE, "--retries", "2", "--config", f"cedana={opted_in}")

    assert oracle.read("done.txt") == here.read("done.txt") != ""
    assert not (here.folder / "run.txt").exists()  # temp()
    assert not (here.folder / "undeclared.txt").exists()  # shadow
    assert (here.folder / "bench" / "shell.tsv").exists()
    assert 1 == said.count("Trying to restart job")
    assert ("start anew" in said) == (opted_in == "1")
    assert "Nothing to be done" in here.run(*NONE, "--config", f"cedana={opted_in}")


@pytest.mark.parametrize("opted_in", ["1", "0"])
def test_names_from_hell_are_names(snake: Callable[..., Snake], opted_in: str) -> None:
    here = snake("names")
    (here.folder / "names.json").write_text(json.dumps(HOSTILE))
    here.run(*NONE, "--config", f"cedana={opted_in}")

    assert sorted(HOSTILE) == sorted(path.stem for path in (here.folder / "out").iterdir())
    for name in HOSTILE:
        assert name == (here.folder / "out" / f"{name}.txt").read_text()
    assert [] == list(here.folder.rglob("HACKED"))


def test_requoting_touches_whole_values_only() -> None:
    values = ["it's $(x)", "a b", "$(x)", "x\ny"]
    said = requote(""" --t "it's $(x)" 'a b' '$(x)' 'x\\ny' "it's $(x)"z""", values)

    assert """ --t 'it'"'"'s $(x)' 'a b' '$(x)' 'x\ny' "it's $(x)"z""" == said


def test_step_that_fails_is_an_error_with_status_and_log(snake: Callable[..., Snake]) -> None:
    here = snake("kinds")
    (here.folder / "kinds.smk").write_text(
        "rule f:\n output: 'f'\n resources: cedana=1\n shell: 'echo some words; touch f; exit 3'\n"
    )
    said = here.run(*NONE, rc=1)
    stepdir = here.step("f")

    assert "step f: the step failed with exit status 1" in said
    assert str(stepdir / "step.log") in said
    assert "some words" in (stepdir / "step.log").read_text()
    assert not (here.folder / "f").exists()
    assert "Rerun" not in here.run(*NONE, rc=1)  # no marker of an incomplete step is left


def test_step_without_checkpoints_that_fails_keeps_its_log(snake: Callable[..., Snake]) -> None:
    here = snake("kinds")
    (here.folder / "kinds.smk").write_text("rule f:\n output: 'f'\n shell: 'echo words; false'\n")
    said = here.run(rc=1)
    log = next((here.root / "logs").iterdir())

    assert str(log) in said
    assert "words" in log.read_text()


def test_not_opted_in_means_no_engine_no_runner_and_no_trace(
    snake: Callable[..., Snake], tmp_path: Path
) -> None:
    here = snake("kinds")
    spy = tmp_path / "criu"
    spy.write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    spy.chmod(0o755)
    (here.folder / "kinds.smk").write_text(
        "rule f:\n output: 'f'\n shell: 'env > f; tr \"\\\\0\" \" \" < /proc/$PPID/cmdline > c'\n"
    )
    here.run("--cedana-criu", str(spy))

    assert not (tmp_path / "called").exists()
    assert [] == here.steps()
    assert [] == list((here.root / "logs").iterdir())
    assert "CEDANA_STEPDIR" not in here.read("f")
    assert str(here.root) not in here.read("f")
    assert "--shadow-prefix" not in here.read("c")
    assert "--mode remote" in here.read("c")


def test_opted_in_step_without_an_engine_is_an_error_before_anything_starts(
    snake: Callable[..., Snake],
) -> None:
    here = snake("kinds")
    for arguments in (["--cedana-engine", "none"], ["--cedana-criu", "/no/such/criu"]):
        said = here.run(*arguments, rc=1)

        assert "Steps ask for checkpoints (resource cedana=1), but" in said
        assert "--cedana-allow-uncheckpointed" in said
        assert "rule shell_" not in said


def test_engine_criu_is_never_replaced_by_none(snake: Callable[..., Snake]) -> None:
    asked = ("--cedana-engine", "criu", "--cedana-criu", "/no/such/criu")
    said = snake("kinds").run(*asked, "--cedana-allow-uncheckpointed", rc=1)

    assert "there is no program '/no/such/criu'" in said


def test_engine_auto_falls_back_with_one_warning(snake: Callable[..., Snake]) -> None:
    asked = ("--cedana-criu", "/no/such/criu", "--cedana-allow-uncheckpointed")
    said = snake("kinds").run(*asked, "--retries", "2")

    assert 1 == said.count("run without checkpoints (there is no program '/no/such/criu')")


def test_value_app_is_refused_clearly(snake: Callable[..., Snake]) -> None:
    here = snake("kinds")
    (here.folder / "kinds.smk").write_text(
        "rule f:\n output: 'f'\n resources: cedana='app'\n shell: 'touch f'\n"
    )
    said = here.run(*NONE, rc=1)

    assert "f: resource cedana='app' is not supported: give 1" in said
    assert not (here.folder / "f").exists()


def test_group_with_a_member_that_is_not_opted_in_runs_without_checkpoints(
    snake: Callable[..., Snake],
) -> None:
    here = snake("kinds")
    (here.folder / "kinds.smk").write_text(
        "rule b:\n input: 'a'\n output: 'b'\n group: 'g'\n shell: 'cp a b'\n"
        "rule a:\n output: 'a'\n group: 'g'\n resources: cedana=1\n shell: 'echo 1 > a'\n"
    )
    said = here.run(*NONE)

    assert "without cedana=1: b." in said
    assert "1\n" == here.read("b")
    assert [] == here.steps()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cedana-interval", "soon"], "--cedana-interval 'soon' is not allowed: give a number"),
        (["--cedana-keep-generations", "0"], "--cedana-keep-generations 0 is not allowed"),
        (["--cedana-dir", "/proc/version"], "(/proc/version is not one)"),
        (["--cedana-engine", "cedana"], "--cedana-engine"),
        (["--cedana-dir", "/proc/cedana"], "cannot be used"),
    ],
)
def test_wrong_setting_stops_everything_before_it_starts(
    snake: Callable[..., Snake], arguments: list[str], message: str
) -> None:
    here = snake("kinds")
    said = here.run(*arguments, rc=2 if "cedana" == arguments[1] else 1)

    assert message in said
    assert not here.root.exists()


def test_folder_that_others_can_enter_is_refused(
    snake: Callable[..., Snake], tmp_path: Path
) -> None:
    (tmp_path / "open").mkdir(mode=0o755)
    said = snake("kinds").run(*NONE, "--cedana-dir", str(tmp_path / "open"), rc=1)

    assert "is open to others" in said


def test_cores_bound_what_runs_at_the_same_time(snake: Callable[..., Snake]) -> None:
    here = snake("kinds")
    (here.folder / "kinds.smk").write_text(
        "rule all:\n input: expand('{i}', i=range(3))\n"
        "rule f:\n output: '{i}'\n threads: 2\n"
        " shell: 'date +%s.%N > {output}; sleep 0.5; date +%s.%N >> {output}'\n"
    )
    here.run("--cores", "2")
    spans = sorted(tuple(map(float, here.read(str(i)).split())) for i in range(3))

    assert spans[0][1] <= spans[1][0]
    assert spans[1][1] <= spans[2][0]


def test_secrets_of_the_workflow_reach_the_step_but_no_file(
    snake: Callable[..., Snake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_SECRET", "hunter2")
    here = snake("kinds")
    (here.folder / "kinds.smk").write_text(
        "envvars: 'MY_SECRET'\n"
        "rule f:\n output: 'f'\n resources: cedana=1\n"
        " shell: 'printf %s $MY_SECRET | md5sum > f'\n"
    )
    here.run(*NONE)

    assert "2ab96390c7dbe3439de74d0c9b0b1767  -\n" == here.read("f")
    for path in here.root.rglob("*"):
        assert not path.is_file() or b"hunter2" not in path.read_bytes(), path


def test_ctrl_c_stops_steps_and_says_how_to_go_on(snake: Callable[..., Snake]) -> None:
    here = snake("slow")
    running = here.start(*NONE, "shell.txt", "run.txt", "--config", "pause=1")
    until(lambda: here.read("shell.txt") and here.read("run.txt"))
    runner = here.runner("shell_")
    running.send_signal(signal.SIGINT)
    assert running.wait(60) != 0
    said = here.read("main.log")

    assert "To go on: snakemake --unlock, then" in said
    assert "--rerun-incomplete" in said
    assert "Error in rule" not in said
    assert not lives(runner)
    size = len(here.read("shell.txt"))
    time.sleep(1.5)
    assert size >= len(here.read("shell.txt"))  # nobody writes any more
    here.run(*NONE, "--unlock")
    here.run(*NONE, "--rerun-incomplete", "shell.txt", "run.txt", "--config", "pause=0", "count=3")
    assert "1\n2\n3\n" == here.read("shell.txt")


def test_runner_that_outlived_snakemake_is_followed_never_doubled(
    snake: Callable[..., Snake],
) -> None:
    here = snake("slow")
    asked = (*NONE, "shell.txt", "--config", "pause=0.2", "count=60")
    running = here.start(*asked)
    until(lambda: here.read("shell.txt"))
    runner = here.runner("shell_")
    running.kill()
    running.wait()
    here.run(*asked, "--unlock")
    said = here.run(*asked, "--rerun-incomplete")

    assert f"step shell_: still runs (process {runner}), it is followed." in said
    assert "1 step went on after interruption." in said
    assert runner == here.runner("shell_")
    assert 1 == len(here.events("shell_", "started"))
    assert "".join(f"{i}\n" for i in range(1, 61)) == here.read("shell.txt")


def test_runner_of_an_older_version_of_the_rule_is_stopped_and_the_step_begins_anew(
    snake: Callable[..., Snake],
) -> None:
    here = snake("slow")
    asked = (*NONE, "shell.txt")
    running = here.start(*asked, "--config", "pause=0.5", "param=1")
    until(lambda: here.read("shell.txt"))
    runner = here.runner("shell_")
    running.kill()
    running.wait()
    here.run(*asked, "--unlock")
    changed = ("--rerun-incomplete", "--config", "pause=0", "count=3", "param=2")
    said = here.run(*asked, *changed)

    assert "an older version of it still runs: stopped" in said
    assert "step shell_: begins anew: rule shell_: params changed; its old checkpoints are" in said
    assert not lives(runner)
    assert "1\n2\n3\n" == here.read("shell.txt")
    assert 1 == len(list((here.root / "aside").iterdir()))


def test_allocation_that_ends_without_checkpoints_twice_is_an_error(
    snake: Callable[..., Snake],
) -> None:
    here = snake("slow")
    said = here.run(
        *NONE, "shell.txt", "--cedana-local-allocation", "2", "--config", "pause=1", rc=1
    )

    assert "the allocation reached its time limit; goes on from the start (continuation 1" in said
    assert "2 allocations in a row sealed no newer generation" in said
    assert 2 == len(here.events("shell_", "submitted"))


def test_runtime_in_minutes_bounds_an_allocation(snake: Callable[..., Snake]) -> None:
    here = snake("slow")
    asked = (*NONE, "shell.txt", "--set-resources", "shell_:runtime=1", "--config", "pause=1")
    here.start(*asked)
    until(lambda: here.read("shell.txt"))
    command = Path(f"/proc/{here.runner('shell_')}/cmdline").read_text().split("\0")

    assert ["--seconds", "60"] == command[-3:-1]

"""`status`: what a folder of steps says about them, however little of it can be read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from snakemake_executor_plugin_cedana.__main__ import main
from snakemake_executor_plugin_cedana.runner import lease
from snakemake_executor_plugin_cedana.status import NoSteps, table

EXIT = {"schema": 1, "allocation": "a", "rc": 0, "stopping": False, "signal": 0, "generation": 2}
EXIT |= {"restored": 0, "reason": "ended", "message": ""}


def make_step(root: Path, name: str, wildcards: dict[str, str] | None = None) -> Path:
    stepdir = root / "steps" / name
    for folder in ("generations", "ledger", "store"):
        (stepdir / folder).mkdir(parents=True, mode=0o700)
    spec = {"schema": 1, "rule": name, "wildcards": wildcards or {}}
    (stepdir / "spec.json").write_text(json.dumps(spec))
    return stepdir


def seal(stepdir: Path, number: int, age: float) -> None:
    path = stepdir / "generations" / f"{number:06d}.json"
    path.write_text("{}")
    os.utime(path, (1000 - age, 1000 - age))


def note(stepdir: Path, writer: str, *events: tuple[str, str, int, str]) -> None:
    lines = [
        {"schema": 1, "step": "k", "event": e, "allocation": a, "generation": g, "time": t}
        for e, a, g, t in events
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (stepdir / "ledger" / f"{writer}.jsonl").write_text(text + '{"torn')


def leave(stepdir: Path, **said: object) -> None:
    (stepdir / "exit.json").write_text(json.dumps(EXIT | said))


def rows(root: Path) -> dict[str, list[str]]:
    found = [line.split("  ") for line in table(root, now=1000).splitlines()]
    return {cells[0]: [cell.strip() for cell in cells[1:] if cell.strip()] for cells in found}


def test_interrupted_step_is_shown_with_its_newest_generation(tmp_path: Path) -> None:
    stepdir = make_step(tmp_path, "align", {"s": "x"})
    seal(stepdir, 9, 500)
    seal(stepdir, 10, 125)
    leave(stepdir, reason="limit", rc="unknown", stopping=True)
    note(stepdir, "one", ("started", "a", 0, "1"), ("checkpoint", "a", 9, "2"))
    note(stepdir, "two", ("restored", "b", 9, "3"), ("checkpoint", "b", 10, "4"))

    shown = rows(tmp_path)["align(s=x)"]
    assert ["interrupted", "2", "10", "2 min"] == shown[:4]
    assert shown[4].endswith("kB")
    assert "checkpoint 10 4" == shown[5]


@pytest.mark.parametrize(
    ("said", "state"),
    [
        ({}, "done"),
        ({"rc": 3}, "failed (3)"),
        ({"rc": "unknown", "reason": "terminated"}, "interrupted"),
        ({"rc": "unknown", "reason": "wrong_node"}, "interrupted"),
        ({"rc": "unknown", "reason": "uncheckpointable"}, "uncheckpointable"),
    ],
)
def test_state_is_what_the_exit_record_says(
    tmp_path: Path, said: dict[str, object], state: str
) -> None:
    leave(make_step(tmp_path, "r"), **said)

    assert state == rows(tmp_path)["r"][0]


def test_step_that_left_nothing_has_not_started(tmp_path: Path) -> None:
    make_step(tmp_path, "r")

    assert ["not started", "0", "-", "-", "0 B", "-"] == rows(tmp_path)["r"]


def test_step_with_a_living_runner_runs_and_with_a_dead_one_does_not(tmp_path: Path) -> None:
    stepdir = make_step(tmp_path, "r")
    held = lease.acquire(stepdir, "a", gone=lambda _: None, kill_survivors=list)
    assert "running" == rows(tmp_path)["r"][0]

    held.release()
    assert "not started" == rows(tmp_path)["r"][0]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"rule": 3, "wildcards": {}}'])
def test_step_that_cannot_be_read_does_not_hide_the_others(tmp_path: Path, text: str) -> None:
    (make_step(tmp_path, "bad") / "spec.json").write_text(text)
    make_step(tmp_path, "good")
    shown = rows(tmp_path)

    assert "unreadable" == shown["bad"][0]
    assert "not started" == shown["good"][0]


def test_names_cannot_forge_lines_or_terminal_codes(tmp_path: Path) -> None:
    make_step(tmp_path, "r", {"s": "x\n\x1b[31mdone\u202e"})
    said = table(tmp_path, now=1000)

    assert 2 == len(said.splitlines())
    assert all(line.isprintable() for line in said.splitlines())


def test_working_directory_and_cedana_dir_show_the_same(tmp_path: Path) -> None:
    root = tmp_path / ".snakemake" / "auxiliary" / "cedana"
    make_step(root, "r")

    assert table(root) == table(tmp_path)


def test_folder_without_steps_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(NoSteps):
        table(tmp_path)
    assert 1 == main(["status", str(tmp_path)])
    assert f"there are no steps in {tmp_path}" in capsys.readouterr().err


def test_module_shows_the_table(tmp_path: Path) -> None:
    make_step(tmp_path, "r")
    command = [sys.executable, "-m", "snakemake_executor_plugin_cedana", "status", str(tmp_path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout

    assert said.startswith("step")
    assert "not started" in said

"""What the tests of processes share: a CRIU that works here, step folders, runners."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import snakemake_executor_plugin_cedana
from snakemake_executor_plugin_cedana.runner import proc

RUNNER = Path(snakemake_executor_plugin_cedana.__file__).parent / "runner"
KEY = "ab" * 32
PATIENCE = 60.0


FIND = Path(__file__).resolve().parents[2] / "scripts" / "criu"


@cache
def found_criu() -> tuple[str, str]:
    """The CRIU to test with, and why there is none."""
    if path := os.environ.get("CEDANA_TEST_CRIU", ""):
        return path, ""
    found = subprocess.run([FIND, "--find"], capture_output=True, text=True)
    return found.stdout.strip(), "" if found.returncode == 0 else found.stderr.strip()


def criu() -> str:
    """Skip the test where no CRIU works; in CI that is a failure."""
    path, why = found_criu()
    if why:
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no CRIU: {why}")
    return path


def lives(pid: int) -> bool:
    """Whether a process is there that has not ended; whoever is to reap it may be slow."""
    found = proc.process(pid)
    return found is not None and found.state not in "ZX"


def until(true: Callable[[], object], what: str = "") -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, f"never: {what or true}"
        time.sleep(0.01)


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


@dataclass
class Step:
    """A step's folder with its spec.json, and the folder that it works in."""

    stepdir: Path
    workdir: Path
    said: dict[str, Any]
    runners: list[subprocess.Popen[str]] = field(default_factory=list)

    def write(self, **changes: object) -> None:
        self.said.update(changes)
        (self.stepdir / "spec.json").write_text(json.dumps(self.said))

    def start(self, allocation: str, *more: str, **environment: str) -> subprocess.Popen[str]:
        """Start a runner; its lines go to its standard output."""
        command = [sys.executable, "-I", "-S", str(RUNNER), str(self.stepdir)]
        running = subprocess.Popen(
            [*command, "--allocation", allocation, *more],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **environment},
        )
        self.runners.append(running)
        return running

    def run(self, allocation: str, *more: str) -> tuple[int, str]:
        said, _ = (running := self.start(allocation, *more)).communicate(timeout=PATIENCE)
        return running.returncode, said

    def exit(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads((self.stepdir / "exit.json").read_text())
        return said

    def sealed(self) -> list[int]:
        return sorted(int(path.stem) for path in self.stepdir.glob("generations/*.json"))

    def events(self, *names: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for path in sorted(self.stepdir.glob("ledger/*.jsonl")):
            found += map(json.loads, path.read_text().splitlines())
        found.sort(key=lambda event: str(event["time"]))
        return [event for event in found if not names or event["event"] in names]

    def processes(self) -> list[int]:
        """The living processes of this step, found by the mark in their environment."""
        mark = f"CEDANA_STEPDIR={self.stepdir}".encode()
        found = []
        for each in Path("/proc").glob("[0-9]*"):
            try:
                if mark in (each / "environ").read_bytes().split(b"\0"):
                    found.append(int(each.name))
            except OSError:
                continue
        return found

    def forget_outputs(self) -> None:
        """What Snakemake does when a step is interrupted: its outputs are removed."""
        for name in self.said["own"]["files"]:
            Path(name).unlink(missing_ok=True)
        for name in self.said["own"]["directories"]:
            shutil.rmtree(name, ignore_errors=True)

    def close(self) -> None:
        for running in self.runners:
            if running.poll() is None:
                running.kill()
            running.wait()
            if running.stdout is not None:
                running.stdout.close()
        for pid in self.processes():
            os.kill(pid, signal.SIGKILL)


def make_step(place: Path, script: str, **changes: object) -> Step:
    """A step that runs a bash script in a folder of its own and writes `out.txt` there."""
    stepdir, workdir = place / "step", place / "work"
    for folder in (stepdir, stepdir / "tmp", workdir):
        folder.mkdir(mode=0o700)
    (stepdir / "command.sh").write_text(script)
    said = {
        "schema": 1,
        "key": KEY,
        "fingerprint": "f",
        "workflow": "/w/Snakefile",
        "rule": "count",
        "wildcards": {"sample": "a"},
        "workdir": str(workdir),
        "engine": "none",
        "criu": "",
        "interval": 0,
        "mtbf": 86400,
        "lead_time": "auto",
        "keep_generations": 2,
        "max_bytes": 0,
        "dump_slots": 0,
        "slots_dir": str(place / "slots"),
        "own": {"files": [str(workdir / "out.txt")], "directories": [str(stepdir / "tmp")]},
        "shared_append": [],
        "check": "",
        "allow_uncheckpointed": False,
        "environment": {"TMPDIR": str(stepdir / "tmp")},
    }
    step = Step(stepdir, workdir, said)
    step.write(**changes)
    return step

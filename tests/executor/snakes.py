"""What the tests of the executor share: real Snakemake in a folder of its own."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

WORKFLOWS = Path(__file__).parent / "workflows"
PATIENCE = 300.0


@dataclass
class Snake:
    """A working directory with a workflow, and the Snakemakes that were started in it."""

    folder: Path
    workflow: str
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        shutil.copytree(WORKFLOWS, self.folder, dirs_exist_ok=True)

    def command(self, *arguments: str, executor: str = "cedana") -> list[str]:
        command = [sys.executable, "-m", "snakemake", "--snakefile", f"{self.workflow}.smk"]
        jobs = ["--jobs", "6"] if executor == "cedana" else []
        return [*command, "--executor", executor, "--cores", "6", *jobs, *arguments]

    def run(self, *arguments: str, executor: str = "cedana", rc: int = 0) -> str:
        """Run to the end; returns all that was said."""
        ended = subprocess.run(
            self.command(*arguments, executor=executor),
            cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        said = ended.stdout + ended.stderr
        assert rc == ended.returncode, said
        return said

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it in a process group of its own, its words in main.log."""
        with (self.folder / "main.log").open("a") as log:
            running = subprocess.Popen(
                self.command(*arguments),
                cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, text=True,
                start_new_session=True,
            )  # fmt: skip
        self.started.append(running)
        return running

    def read(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    @property
    def root(self) -> Path:
        return self.folder / ".snakemake" / "auxiliary" / "cedana"

    def steps(self) -> list[Path]:
        return sorted((self.root / "steps").iterdir())

    def step(self, rule: str) -> Path:
        """The directory of the only step of a rule."""
        found = [path for path in self.steps() if self.spec(path).get("rule") == rule]
        assert len(found) == 1, (rule, found)
        return found[0]

    def spec(self, stepdir: Path) -> dict[str, Any]:
        path = stepdir / "spec.json"
        said: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return said

    def events(self, rule: str, *names: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        for path in sorted(self.step(rule).glob("ledger/*.jsonl")):
            found += map(json.loads, path.read_text().splitlines())
        found.sort(key=lambda event: str(event["time"]))
        return [event for event in found if not names or event["event"] in names]

    def runner(self, rule: str) -> int:
        """The process of the runner that has the step's lease."""
        newest = max(self.step(rule).glob("lease/0*.json"))
        return int(json.loads(newest.read_text())["pid"])

    def sealed(self) -> int:
        """Number of the newest generation of the only step there is."""
        found = self.root.glob("steps/*/generations/*.json")
        return max((int(path.stem) for path in found), default=0)

    def close(self) -> None:
        """End everything that was started here, found by its working directory or its marks."""
        for running in self.started:
            if running.poll() is None:
                running.kill()
            running.wait()
        for proc in Path("/proc").glob("[0-9]*"):
            try:
                here = (proc / "cwd").readlink().is_relative_to(self.folder)
                if here and int(proc.name) != os.getpid():
                    os.kill(int(proc.name), signal.SIGKILL)
            except OSError:
                continue

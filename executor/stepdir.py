"""The directory of a step: what the executor writes there, and what it finds there."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from .runner import lease
from .runner.durable import Damaged, Unsafe, private_folder, read_json, write_json
from .runner.spec import Exit, read_exit
from .steps import Step, changes

SCHEMA = 1
UNREADABLE = (OSError, ValueError, Unsafe, Damaged)
MALFORMED = (*UNREADABLE, KeyError, TypeError, AttributeError)
MOST_BYTES = 64 << 20  # of a JSON file of ours


class StepDirectory:
    """`<cedana-dir>/steps/<key>`: everything about one step."""

    def __init__(self, root: Path, step: Step) -> None:
        self.root = root
        self.step = step
        self.path = root / "steps" / step.key

    def open(self) -> list[str]:
        """Make the directory. One of a different step is moved aside; says what changed."""
        private_folder(self.root / "steps")
        said: list[str] = []
        if self.path.exists():
            said = self._moved_aside()
        private_folder(self.path)
        for name in ("tmp", "shadow", "inner", "source-cache", "ledger", "generations"):
            private_folder(self.path / name)
        write_json(
            self.path / "fingerprint.json",
            {"schema": SCHEMA, "key": self.step.key, "parts": dict(self.step.parts)},
        )
        return said

    def what_changed(self) -> list[str]:
        """How the step differs from the one that the directory was made for, in words."""
        if not self.path.exists():
            return []
        try:
            parts = read_json(self.path / "fingerprint.json", MOST_BYTES)["parts"]
            return changes(parts, self.step.parts)
        except MALFORMED as error:
            return [f"what it was made from cannot be read ({error})"]

    def _moved_aside(self) -> list[str]:
        said = self.what_changed()
        if not said:
            return []
        private_folder(self.root / "aside")
        aside = self.root / "aside" / f"{self.step.key}.{int(time.time())}.{secrets.token_hex(4)}"
        self.path.rename(aside)
        return [*said, f"its old checkpoints are in {aside}"]

    def living_runner(self) -> int:
        """Process of the runner that works on the step on this machine; 0: none is known to."""
        try:
            holder = lease.current(self.path)
            return holder.pid if holder is not None and lease.alive(holder) else 0
        except UNREADABLE:
            return 0  # a runner of ours looks at it again and refuses what it cannot read

    def newest_generation(self) -> int:
        """Number of the newest published generation, 0: none."""
        names = (self.path / "generations").glob("*.json")
        return max((int(path.stem) for path in names if path.stem.isdecimal()), default=0)

    def exit_record(self, allocation: str | None) -> Exit | None:
        """What the runner of this allocation left; None: nothing. No allocation: of whichever."""
        try:
            found = read_exit(self.path)
        except UNREADABLE:
            return None  # as if nothing were there: never taken for an end
        wanted = found is not None and allocation in (None, found.allocation)
        return found if wanted else None

    def forget_ended(self) -> None:
        """The checkpoints of a step that had its end are worth nothing to the next attempt."""
        record = self.exit_record(None)
        if record is not None and record.reason == "ended" and isinstance(record.rc, int):
            self.drop_generations()

    def write_command(self, command: str) -> None:
        """command.sh, replaced as a whole."""
        text = f"#!/bin/sh\ncd -- {shlex.quote(self.step.workdir)} || exit 96\n{command}\n"
        draft = self.path / f"command.sh.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(draft, flags, 0o700), "wb") as file:
            file.write(text.encode("utf-8", "surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(self.path / "command.sh")

    def write_spec(self, settings: Mapping[str, object], environment: Mapping[str, str]) -> None:
        """spec.json: all that the runner knows of the step."""
        step = self.step
        tmp, shadow = str(self.path / "tmp"), str(self.path / "shadow")
        spec = {
            "schema": SCHEMA,
            "key": step.key,
            "fingerprint": step.fingerprint,
            "rule": step.rule,
            "wildcards": dict(step.wildcards),
            "workdir": step.workdir,
            "own": {"files": list(step.files), "directories": [*step.directories, tmp, shadow]},
            "shared_append": [],
            "check": step.check,
            "environment": {**environment, "TMPDIR": tmp},
            **settings,
        }
        write_json(self.path / "spec.json", spec)

    def drop_generations(self) -> None:
        """After an end, good or bad, nothing may go on from a checkpoint of that attempt."""
        self._empty("generations", "store", "aside", "tmp", "shadow", "source-cache")
        (self.path / "exit.json").unlink(missing_ok=True)

    def tidy(self) -> None:
        """After success only the story stays: spec, log, ledger, exit record."""
        self._empty("generations", "store", "aside", "tmp", "shadow", "source-cache")

    def _empty(self, *names: str) -> None:
        # The commit points go first: without them the rest is rubbish that nothing goes on from.
        for commit in (self.path / "generations").glob("*.json"):
            commit.unlink(missing_ok=True)
        for name in names:
            folder = self.path / name
            if folder.is_symlink() or not folder.exists():
                continue
            shutil.rmtree(folder, ignore_errors=True)
            if name not in ("store", "aside"):
                private_folder(folder)

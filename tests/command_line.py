"""The program as a user starts it: in this process, where that is fast, or in one of its own."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cedana_poc.cli import main

# The key of the pseudonyms is made in the user's configuration; that of the tests is their own.
_CONFIG = tempfile.TemporaryDirectory(prefix="config-")
PROGRAM = [sys.executable, "-c", "from cedana_poc.cli import main; main()"]


@dataclass(frozen=True)
class Ended:
    """How the program ended and what it printed."""

    code: int
    out: str
    err: str


def cedana_poc(*arguments: str | Path) -> Ended:
    """Run the command in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        patch.setattr(sys, "argv", ["cedana-poc", *map(str, arguments)])
        patch.setenv("XDG_CONFIG_HOME", _CONFIG.name)
        try:
            main()
        except SystemExit as ended:
            code = int(ended.code or 0)
    return Ended(code, out.getvalue(), err.getvalue())


def environment(**changed: str) -> Mapping[str, str]:
    """The environment of a process of its own."""
    return {**os.environ, "XDG_CONFIG_HOME": _CONFIG.name, **changed}


def process(*arguments: str | Path, **changed: str) -> Ended:
    """Run the command in a process of its own, with changed environment variables."""
    ended = subprocess.run(
        [*PROGRAM, *map(str, arguments)], capture_output=True, text=True, env=environment(**changed)
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)

"""One output alone, for the tests that are about one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from cedana_poc import output


def write_text(path: Path, text: str) -> None:
    output.write({path: text}, {})


def write_tables(directory: Path, tables: Mapping[str, output.Table]) -> None:
    output.write({}, {directory: tables})

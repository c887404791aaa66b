"""`python -m snakemake_executor_plugin_cedana status [DIR]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from .status import NoSteps, table


def main(arguments: list[str] | None = None) -> int:
    """0: shown; 1: there is nothing to show; 2: wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m snakemake_executor_plugin_cedana")
    commands = parser.add_subparsers(dest="command", required=True)
    status = commands.add_parser("status", help="show the steps that have checkpoints")
    status.add_argument(
        "dir",
        nargs="?",
        type=Path,
        default=Path(),
        help="a --cedana-dir, or a working directory of Snakemake (default: this one)",
    )
    given = parser.parse_args(arguments)
    try:
        print(table(given.dir))
    except NoSteps as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

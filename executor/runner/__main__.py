"""Started by its path, so that the plugin's package is not imported on the node:
`python -I -S …/runner STEPDIR --allocation ID [--seconds N]`."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

USAGE = "usage: runner STEPDIR --allocation ID [--seconds N]"


def arguments(given: list[str]) -> tuple[Path, str, float]:
    """The step's folder, the allocation's name and its seconds. Raises ValueError."""
    stepdir, allocation, seconds = "", "", math.inf
    rest = list(given)
    while rest:
        word = rest.pop(0)
        if word in ("--allocation", "--seconds"):
            if not rest:
                raise ValueError(f"{word} takes a value")
            value = rest.pop(0)
            if word == "--allocation":
                allocation = value
            else:
                seconds = float(value)
        elif word.startswith("-") or stepdir:
            raise ValueError(f"not understood: {word}")
        else:
            stepdir = word
    if not stepdir or not allocation or not seconds > 0:
        raise ValueError("a folder and an allocation are needed, and more than no time")
    return Path(stepdir).resolve(), allocation, seconds


def start() -> int:
    try:
        stepdir, allocation, seconds = arguments(sys.argv[1:])
    except ValueError as error:
        print(f"{USAGE}\n{error}", file=sys.stderr)
        return 2
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    loop = importlib.import_module("runner.loop")
    status: int = loop.main(stepdir, allocation, seconds)
    return status


if __name__ == "__main__":
    sys.exit(start())

"""The full proofs and benchmarks; writes docs/proof.md. Run by `make prove`.

Every number in the document is what this run measured on the machine it names; a promise that was
not kept stands there as not kept.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import cli_start
import speed

ROOT = Path(__file__).resolve().parent.parent
RATIO, MARGIN, MEMORY, START = 1.5, 4.0, 500, 0.3
"""The promises: read + repair + classify over the peer; seconds of the whole command beyond 1.5
times the peer; peak memory in MB; seconds of `cedana-poc --help`."""


def run_tests() -> tuple[int, str]:
    """The whole test suite with twenty times the random examples; its exit code and last line."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "-q", "-rs", "--timeout=1800"]
    with subprocess.Popen(
        command, cwd=ROOT, env={**os.environ, "PROVE": "1"}, stdout=subprocess.PIPE, text=True
    ) as running:
        lines = []
        for line in running.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    return running.returncode, "\n".join([re.sub("=+ ?", "", lines[-1]).strip(), *skipped])


def machine() -> str:
    """Processor, memory and system."""
    cpu = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    memory = re.search(r"MemTotal:\s*(\d+)", Path("/proc/meminfo").read_text())
    return (
        f"{os.cpu_count()} × {cpu[1] if cpu else platform.machine()}, "
        f"{int(memory[1]) >> 20 if memory else '?'} GiB, {platform.system()} {platform.release()}, "
        f"Python {platform.python_version()}, DuckDB {version('duckdb')}"
    )


def kept(figures: Mapping[str, float]) -> list[tuple[str, str, bool]]:
    """(promise, measured, kept or not) for one file size."""
    ratio = figures["read_repair_classify_over_peer"]
    beyond = figures["command_seconds_less_peer_times_1.5"]
    memory = max(figures["command_peak_mb"], figures["read_repair_classify_peak_mb"])
    return [
        (f"read + repair + classify at most {RATIO} × the peer", f"{ratio:.2f} ×", ratio <= RATIO),
        (
            f"whole command at most 1.5 × the peer + {MARGIN} s",
            f"+ {beyond:.2f} s",
            beyond <= MARGIN,
        ),
        (f"peak memory at most {MEMORY} MB", f"{memory:.0f} MB", memory <= MEMORY),
    ]


def section(figures: Mapping[str, float]) -> str:
    """The part of the document about one file size."""
    promises = "\n".join(
        f"| {promise} | {measured} | {'kept' if holds else '**not kept**'} |"
        for promise, measured, holds in kept(figures)
    )
    rows = "\n".join(f"| {name} | {value:,} |" for name, value in figures.items())
    return f"""
### {figures["rows"]:,.0f} rows, {figures["megabytes"]:,.0f} MB

| promise | measured | |
| --- | --- | --- |
{promises}

| figure (medians) | |
| --- | --- |
{rows}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "proof.md")
    parser.add_argument("--jobs", type=int, nargs="+", default=[500_000, 2_000_000])
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    code, tests = run_tests()
    start = cli_start.median_seconds()
    sections = "".join(section(speed.measure(jobs, arguments.rounds)) for jobs in arguments.jobs)
    arguments.out.write_text(
        f"""# Proof

Written by `make prove` on {datetime.now(UTC):%Y-%m-%d} (UTC).
Machine: {machine()}.

## Tests

Every test, with twenty times the random examples of `make test`:

    {tests.replace(chr(10), chr(10) + "    ")}

## Start of the command

`cedana-poc --help`: {start:.2f} s, promised {START} s:
{"kept" if start <= START else "**not kept**"}.

## Speed and memory of `analyze`

The file has four rows a job and 29 columns (`benchmarks/make_sacct.py`). The peer is a bare
DuckDB aggregate over the same columns of the same file (`PEER` in `benchmarks/speed.py`); it
repairs nothing and checks nothing. Pairs of runs in turn, every run in a process of its own; of
the pair the work is timed without imports, of the command everything. Reading includes the
SHA-256 of the file.
{sections}"""
    )
    print(f"wrote {arguments.out}")
    return code


if __name__ == "__main__":
    sys.exit(main())

"""Speed and memory of `cedana-poc analyze` beside a bare DuckDB aggregate over the same file.

    python benchmarks/speed.py [--jobs 500000] [--rounds 5] [--json OUT]

The peer reads the same columns of the same file with DuckDB's own CSV reader and answers the naive
question: runs, node-, CPU- and GPU-hours by partition and state, and how many reached their limit.
It repairs nothing, checks nothing and knows one dialect. Each figure is the median of pairs run in
turn, every run in a process of its own, so that a machine whose speed drifts does not matter; of
those two only the work is timed, of the command everything.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MAKE_FILE = Path(__file__).with_name("make_sacct.py")

PEER = """
import duckdb
---
duckdb.sql(f'''
SELECT Partition, State, count(*),
  sum(seconds * NNodes::BIGINT) / 3600, sum(seconds * NCPUS::BIGINT) / 3600,
  sum(seconds * coalesce(try_cast(regexp_extract(AllocTRES, 'gres/gpu=([0-9]+)', 1) AS BIGINT), 0)),
  count(*) FILTER (seconds >= epoch(try_cast(replace(Timelimit, '-', ' days ') AS INTERVAL))),
  min(Submit), max(Eligible), min(Start), max("End"), count(DISTINCT "User"), max(Account),
  max(QOS), max(Cluster), max(JobIDRaw), max(NodeList), max(WorkDir), max(JobName), max(ExitCode)
FROM (
  SELECT *, epoch(try_cast(replace(Elapsed, '-', ' days ') AS INTERVAL)) AS seconds
  FROM read_csv('{sys.argv[1]}', delim='|', header=true, all_varchar=true, quote='', escape='')
  WHERE NOT contains(JobID, '.')
)
GROUP BY Partition, State ORDER BY Partition, State
''').fetchall()
"""

OURS = """
from pathlib import Path
from cedana_poc import walls
from cedana_poc.sacct.load import load
---
with load([Path(sys.argv[1])]) as loaded:
    walls.classify(loaded.connection, loaded.scratch)
"""

TIMED = """
import resource, sys, time
imports, work = sys.argv.pop(1).split('---')
exec(imports)
start = time.perf_counter()
exec(work)
wall = time.perf_counter() - start
print(wall, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def inside(program: str, file: Path) -> tuple[float, float]:
    """Seconds of a program's work, without its imports, and the process's peak memory in MB."""
    command = [sys.executable, "-c", TIMED, program, str(file)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    wall, memory = out.split()[-2:]
    return float(wall), int(memory) / 1024


def whole_command(file: Path, folder: Path) -> tuple[float, float]:
    """Seconds of the whole command with its HTML page, and its peak memory in MB."""
    command = [
        str(Path(sys.executable).with_name("cedana-poc")),
        "analyze",
        str(file),
        "--html",
        str(folder / "page.html"),
        "--json",
        str(folder / "analysis.json"),
        "--names",
    ]
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with {status}")
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def measure(jobs: int, rounds: int) -> dict[str, float]:
    """All figures for a file of `jobs` jobs in four rows each."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = folder / "sacct.psv"
        subprocess.run(
            [sys.executable, str(MAKE_FILE), str(file), "--jobs", str(jobs)], check=True
        )  # in a process of its own: its peak memory would be counted as its parent's children's
        inside(PEER, file)
        peers, ours, commands = [], [], []
        for _ in range(rounds):
            peers.append(inside(PEER, file))
            ours.append(inside(OURS, file))
            commands.append(whole_command(file, folder))
        size = file.stat().st_size

    def median(pairs: list[float]) -> float:
        return round(statistics.median(pairs), 3)

    return {
        "rows": jobs * 4,
        "megabytes": round(size / 1e6),
        "peer_seconds": median([p[0] for p in peers]),
        "read_repair_classify_seconds": median([o[0] for o in ours]),
        "read_repair_classify_over_peer": median(
            [o[0] / p[0] for o, p in zip(ours, peers, strict=True)]
        ),
        "command_seconds": median([c[0] for c in commands]),
        "command_seconds_less_peer_times_1.5": median(
            [c[0] - 1.5 * p[0] for c, p in zip(commands, peers, strict=True)]
        ),
        "read_repair_classify_peak_mb": round(max(o[1] for o in ours)),
        "command_peak_mb": round(max(c[1] for c in commands)),
        "peer_peak_mb": round(max(p[1] for p in peers)),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--jobs", type=int, default=500_000, help="jobs in the file, four rows each"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    figures = measure(arguments.jobs, arguments.rounds)
    for name, value in figures.items():
        print(f"{name:40} {value:>12,}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""How long `cedana-poc --help` takes, as a whole process. python benchmarks/cli_start.py"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path


def median_seconds(rounds: int = 11) -> float:
    """Median wall time of `cedana-poc --help`, after one run that does not count."""
    command = [str(Path(sys.executable).with_name("cedana-poc")), "--help"]
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


if __name__ == "__main__":
    print(f"{median_seconds():.3f} s")

"""Seals one generation, or puts one back, as a process that a test kills at any system call.

Run as `python -I -S sealer.py PARENT_OF_RUNNER seal|put_back FOLDER`. Between two looks at the
paths `/begin` and `/end` lies the work. Exit status: 0 done, 3 an error was told and cleaned up.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

KEY = "5" * 40


def own_of(work: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    return (work / "results" / "out.txt", work / "step.log"), (work / "tree",)


def main(parent: str, what: str, folder: str) -> int:
    sys.path.insert(0, parent)
    from runner.durable import Damaged, Foreign  # type: ignore[import-not-found]
    from runner.filecut import Own, finish, put_back, take  # type: ignore[import-not-found]
    from runner.generations import Catalog  # type: ignore[import-not-found]

    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})  # one thread: calls come in one order
    stepdir, own = Path(folder) / "step", Own(*own_of(Path(folder) / "work"))
    catalog = Catalog(stepdir, KEY)
    Path("/begin").exists()
    draft = None
    try:
        newest = next(catalog.candidates())
        if what == "put_back":
            put_back(newest.cut, catalog.store, own, stepdir / "aside" / "1")
        else:
            draft = catalog.begin(newest.number + 1)
            (draft.image / "core.img").write_bytes(b"core" * 2000)
            (draft.image / "pages-1.img").write_bytes(b"page" * 2000)
            cut = finish(take(own, catalog.store, newest.cut), catalog.store)
            catalog.seal(draft, cut, {"by": "sealer"})
            catalog.prune(2)
    except (OSError, Damaged, Foreign) as error:
        if draft is not None:
            catalog.abandon(draft)
        print(repr(error))
        return 3
    finally:
        Path("/end").exists()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

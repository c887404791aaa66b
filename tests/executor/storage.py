"""What the tests of storage share: trees of files, what is in them, faults at the n-th call."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from snakemake_executor_plugin_cedana.runner.cut import Cut, Own
from snakemake_executor_plugin_cedana.runner.filecut import finish, take
from snakemake_executor_plugin_cedana.runner.generations import Catalog, Generation

KEY = "5" * 40


def seen(*roots: Path) -> dict[str, tuple[Any, ...]]:
    """Return all that is at and below the roots: kinds, modes, times, bytes, targets, names.

    Names of one file have the same first name; a removed root is not there.
    """
    below = (sorted(root.rglob("*")) if not root.is_symlink() else [] for root in roots)
    paths = [path for root, inner in zip(roots, below, strict=True) for path in (root, *inner)]
    first: dict[int, str] = {}
    found: dict[str, tuple[Any, ...]] = {}
    for path in paths:
        if not os.path.lexists(path):
            continue
        status = path.lstat()
        content: object = None
        if stat.S_ISREG(status.st_mode):
            content = path.read_bytes(), first.setdefault(status.st_ino, str(path))
        elif stat.S_ISLNK(status.st_mode):
            content = str(path.readlink())
        found[str(path)] = (status.st_mode, status.st_mtime_ns, content)
    return found


def inodes(root: Path) -> set[int]:
    return {path.lstat().st_ino for path in regular(root)}


def regular(root: Path) -> list[Path]:
    """Return the regular files below a folder, not through links."""
    return [path for path in sorted(root.rglob("*")) if stat.S_ISREG(path.lstat().st_mode)]


def make_stepdir(folder: Path) -> Path:
    stepdir = folder / "step"
    stepdir.mkdir(mode=0o700)
    return stepdir


def cut_of(own: Own, catalog: Catalog, previous: Cut | None = None) -> Cut:
    catalog.probe()
    return finish(take(own, catalog.store, previous), catalog.store)


def sealed(
    catalog: Catalog, own: Own | None = None, files: dict[str, bytes] | None = None
) -> Generation:
    """Seal the next generation, with an image of these files."""
    draft = catalog.begin(catalog.newest_number() + 1)
    for name, data in (files or {"core.img": b"core" * 300, "pages-1.img": b"p" * 9000}).items():
        (draft.image / name).write_bytes(data)
    cut = cut_of(own, catalog) if own else Cut()
    return catalog.seal(draft, cut, {"host": "n1"})


@contextmanager
def folder_of_everyone() -> Iterator[Path]:
    """Yield a new folder that ordinary users can work in, which pytest's is not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o1777)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)

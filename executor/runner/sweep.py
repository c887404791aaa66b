"""Removing what no published generation needs: drafts of dead runners, parts of lost cuts."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

from . import manifest as manifests
from .durable import Damaged
from .manifest import FOLDER_NAME
from .published import is_published, numbers, place
from .store import Store

_PROBE = re.compile(r"\.probe\.[0-9a-f]{16}(\.link)?")
_GIVEN_UP = ".given-up"


def sweep(folder: Path, store: Store) -> None:
    """Remove all drafts in a folder of generations, then the parts that nothing needs.

    The order closes a race with a runner that does not know it has lost the lease. Parts are
    listed first. A draft is begun before its parts are made, so the draft of any listed part is
    then either given up here, after which it cannot be published, or published and read in the
    last step.
    """
    if not folder.exists():
        return
    parts = store.names()
    _give_up_drafts(folder)
    needed: set[str] = set()
    try:
        for number in numbers(folder):
            found = manifests.read(place(folder, number))
            needed.update(part.name for part in found.cut.parts())
    except Damaged:
        return  # what that one needs is not known; it will be pruned in its turn
    store.remove(parts - needed)


def _give_up_drafts(folder: Path) -> None:
    for path in sorted(folder.iterdir()):
        if _PROBE.fullmatch(path.name):
            path.unlink(missing_ok=True)
        elif path.name.endswith(_GIVEN_UP):
            _remove(path)
        elif FOLDER_NAME.fullmatch(path.name) and not is_published(folder, path.name):
            with contextlib.suppress(FileNotFoundError):
                _give_up(path)


def _give_up(draft: Path) -> None:
    """Rename a draft, so that its owner can no longer link its manifest, and remove it."""
    given_up = draft.with_name(draft.name + _GIVEN_UP)
    draft.rename(given_up)
    if is_published(draft.parent, draft.name):  # its owner was faster than this renaming
        given_up.rename(draft)
    else:
        _remove(given_up)


def _remove(path: Path) -> None:
    """Remove a folder of ours; what a file server keeps in it (.nfs…) waits for the next time."""
    with contextlib.suppress(OSError):
        shutil.rmtree(path)

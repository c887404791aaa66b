"""The catalog of a step's generations: begin, seal, find, verify, prune.

A generation is a folder with a unique name and a manifest in it. It is published by a hard link of
that manifest to `generations/NNNNNN.json`, which is the only commit point: before the link it does
not exist, after it nobody else can publish the number. A generation that does not verify must not
be restored. One process at a time works on a catalog (the lease); where that fails, the link and
the order of sweeping make sure that the loser notices.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import images, published
from . import manifest as manifests
from .cut import Cut
from .durable import (
    Damaged,
    Unsafe,
    check_private,
    fsync_folder,
    open_own,
    parallel,
    private_folder,
    write_new,
)
from .manifest import Manifest
from .store import Store
from .sweep import sweep

__all__ = ["Catalog", "Damaged", "Draft", "Fenced", "Generation", "NoHardLinks", "Unsafe"]

_FEWEST_VERIFIED = 2


class Fenced(Exception):
    """Somebody else has published this number or a later one: stop the step, it is not ours."""


class NoHardLinks(Exception):
    """The file system cannot publish generations safely."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A generation being made; `image` is an empty private folder for the engine's dump."""

    number: int
    folder: Path
    image: Path


@dataclass(frozen=True, slots=True)
class Generation:
    """A published generation, as its manifest describes it; not verified by itself."""

    number: int
    folder: Path
    image: Path
    facts: dict[str, Any]
    cut: Cut


class Catalog:
    """The generations of the step with this key below its step directory."""

    def __init__(self, stepdir: Path, key: str) -> None:
        self.key = key
        self.folder = stepdir / "generations"
        self.store = Store(stepdir / "store")
        self._open_drafts: set[str] = set()
        self._verified: set[int] = set()

    # --- making one -------------------------------------------------------------------------------

    def probe(self) -> None:
        """Make sure, at the start, that generations can be published here.

        Raises:
            NoHardLinks: the file system has none.
            Unsafe: the folders are not private, or new files are not ours (root squash).
            OSError: it is full, read-only or broken.
        """
        self._make_folders()
        name = self.folder / f".probe.{secrets.token_hex(8)}"
        link = name.with_name(f"{name.name}.link")
        try:
            write_new(name, b"")
            os.close(open_own(name))
            try:
                os.link(name, link, follow_symlinks=False)
            except OSError as error:
                if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS):
                    raise NoHardLinks(
                        f"{self.folder}: this file system has no hard links ({error.strerror}), "
                        "and generations are published by one; keep step directories elsewhere"
                    ) from None
                raise
            if not name.samefile(link):
                raise NoHardLinks(f"{self.folder}: a hard link here is a copy")
        finally:
            link.unlink(missing_ok=True)
            name.unlink(missing_ok=True)

    def begin(self, number: int) -> Draft:
        """Make the folder of a generation to be; comes before the dump and the file cut.

        Raises:
            Fenced: the number or a later one is published already.
            OSError, Unsafe: nothing was made.
        """
        self._make_folders()
        self._check_newest(number - 1)
        folder = self.folder / f"{number:06d}.{secrets.token_hex(8)}"
        try:
            private_folder(folder)
            private_folder(folder / "image")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._open_drafts.add(folder.name)
        return Draft(number, folder, folder / "image")

    def seal(self, draft: Draft, cut: Cut, facts: dict[str, Any]) -> Generation:
        """Publish a draft with a finished cut.

        Raises:
            Fenced: somebody else published this number or a later one; stop the step.
            OSError, Damaged, Unsafe, ValueError, TypeError: not published (abandon it), unless
                only the flush after the link failed; abandon tells the two apart.
        """
        facts = json.loads(json.dumps(facts, allow_nan=False))  # as a reader will have them
        files = images.flush(draft.image)
        if any(not part.sha256 for part in cut.parts()):
            raise ValueError("a file cut must be finished before it is sealed")
        for part in cut.parts():
            os.close(self.store.open(part))
        found = Manifest(self.key, draft.number, os.geteuid(), draft.folder.name, files, facts, cut)
        write_new(draft.folder / "manifest.json", manifests.to_bytes(found))
        fsync_folder(draft.folder)
        fsync_folder(self.folder)
        self._publish(draft)
        self._open_drafts.discard(draft.folder.name)
        self._verified.add(draft.number)
        return Generation(draft.number, draft.folder, draft.image, facts, cut)

    def abandon(self, draft: Draft) -> None:
        """Remove a draft and the parts that only it needed; leaves it if it was published.

        What cannot be removed now is left for prune.
        """
        self._open_drafts.discard(draft.folder.name)
        with contextlib.suppress(OSError):
            self._sweep()

    def _make_folders(self) -> None:
        private_folder(self.folder)
        private_folder(self.store.folder)

    def _check_newest(self, allowed: int) -> None:
        newest = self.newest_number()
        if newest > allowed:
            raise Fenced(f"{self.folder}: generation {newest} is published already")

    def _publish(self, draft: Draft) -> None:
        """Link the manifest to its number: the commit point."""
        self._check_newest(draft.number - 1)
        ours, public = draft.folder / "manifest.json", self._public(draft.number)
        try:
            os.link(ours, public, follow_symlinks=False)
        except OSError as error:
            # A file server's reply may be lost after the link was made; the inode tells.
            if not published.same(ours, public):
                if error.errno == errno.EEXIST:
                    raise Fenced(f"{public} was published by another runner") from None
                raise
        try:
            # Later numbers may have come, and this one been pruned, since we looked.
            self._check_newest(draft.number)
        except Fenced:
            public.unlink()
            raise
        fsync_folder(self.folder)

    def _public(self, number: int) -> Path:
        return published.place(self.folder, number)

    def _sweep(self) -> None:
        if not self._open_drafts:
            sweep(self.folder, self.store)

    # --- finding one ------------------------------------------------------------------------------

    def numbers(self) -> list[int]:
        """Return the published numbers, newest first."""
        return published.numbers(self.folder)

    def newest_number(self) -> int:
        """Return the newest published number, 0 where there is none."""
        return max(self.numbers(), default=0)

    def candidates(self) -> Iterator[Generation]:
        """Yield the published generations, newest first, unverified.

        One whose manifest cannot be read comes with an empty cut and no facts; verify tells why.
        """
        for number in self.numbers():
            with contextlib.suppress(FileNotFoundError):  # pruned meanwhile
                yield self._generation(number)

    def _generation(self, number: int) -> Generation:
        try:
            found = manifests.read(self._public(number))
        except Damaged:
            nowhere = self.folder / f"{number:06d}.unreadable"
            return Generation(number, nowhere, nowhere / "image", {}, Cut())
        folder = self.folder / found.folder
        return Generation(number, folder, folder / "image", found.facts, found.cut)

    def verify(self, generation: Generation) -> None:
        """Read every byte of a generation and compare it with the manifest; sizes come first.

        Raises:
            Damaged: with the file and what is wrong with it.
        """
        public = self._public(generation.number)
        try:
            found = manifests.read(public)
            self._check_manifest(public, found, generation)
            image = self.folder / found.folder / "image"
            check_private(self.folder / found.folder)
            check_private(image)
            if any(found.cut.parts()):
                check_private(self.store.folder)
            for part in found.cut.parts():
                os.close(self.store.open(part))
            images.check(image, found.files)
            parallel(self.store.verify, found.cut.parts())
        except FileNotFoundError as error:
            raise Damaged(str(error.filename), "is missing") from None
        except Unsafe as error:
            raise Damaged(error.path, error.why) from None
        self._verified.add(generation.number)

    def _check_manifest(self, public: Path, found: Manifest, generation: Generation) -> None:
        for what, is_there, expected in (
            ("key", found.key, self.key),
            ("number", found.number, generation.number),
            ("user", found.uid, os.geteuid()),
        ):
            if is_there != expected:
                raise Damaged(public, f"is of {what} {is_there}, not {expected}")
        if (found.facts, found.cut) != (generation.facts, generation.cut):
            raise Damaged(public, "has changed since it was read")
        inner = self.folder / found.folder / "manifest.json"
        if manifests.read(inner) != found:
            raise Damaged(inner, "is not the published manifest")

    # --- removing them ----------------------------------------------------------------------------

    def prune(self, keep: int) -> list[int]:
        """Remove all but the newest generations and what no published one needs; return numbers.

        Kept are the newest `keep`, and as many more as it takes to keep two that verify.
        """
        removed = []
        good = 0
        for number in self.numbers():
            if good >= max(keep, _FEWEST_VERIFIED):
                removed.append(number)
            elif self._is_good(number):
                good += 1
        for number in reversed(removed):
            self._public(number).unlink(missing_ok=True)
            self._verified.discard(number)
        if removed:
            fsync_folder(self.folder)
        self._sweep()
        return removed

    def bytes_used(self) -> int:
        """Return what all generations and parts take up on the file system, in bytes."""
        folders = (self.folder, self.store.folder)
        paths = [path for folder in folders for path in folder.rglob("*")]
        used = 0
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                used += path.lstat().st_blocks * 512
        return used

    def _is_good(self, number: int) -> bool:
        if number in self._verified:
            return True
        try:
            self.verify(self._generation(number))
        except (Damaged, OSError):
            return False
        return True

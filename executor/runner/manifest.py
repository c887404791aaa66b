"""The manifest of a generation: what it consists of, written so that any changed byte shows.

The file is JSON in one fixed form (sorted keys, no spaces) with the SHA-256 of its content beside
it. A reader accepts that form only: a flipped byte changes the value, the hash or the form.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .cut import Cut
from .durable import Damaged, Unsafe, parse_json, read_own

SCHEMA = 1
MOST_BYTES = 1 << 29
FOLDER_NAME = re.compile(r"([0-9]{6,})\.[0-9a-f]{16}")


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file of an image: its path below the image folder, its bytes, its SHA-256."""

    path: str
    size: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Everything a published generation says about itself."""

    key: str
    number: int
    uid: int
    folder: str
    files: tuple[StoredFile, ...]
    facts: dict[str, Any]
    cut: Cut


def to_bytes(manifest: Manifest) -> bytes:
    """Return the manifest as it is stored; facts must be JSON with text keys."""
    content = {
        "schema": SCHEMA,
        "key": manifest.key,
        "number": manifest.number,
        "uid": manifest.uid,
        "folder": manifest.folder,
        "files": [[file.path, file.size, file.sha256] for file in manifest.files],
        "facts": manifest.facts,
        "cut": manifest.cut.to_json(),
    }
    return _fixed_form(content)


def read(path: Path) -> Manifest:
    """Return the manifest at path; what it names is not looked at.

    Raises:
        FileNotFoundError: there is none.
        Damaged: it is not exactly what was written, not ours, or of a newer version.
    """
    try:
        data = read_own(path, MOST_BYTES)
    except Unsafe as error:
        raise Damaged(path, error.why) from None
    document = parse_json(path, data)
    try:
        content = document["manifest"]
        if content["schema"] != SCHEMA:
            raise Damaged(path, f"has schema {content['schema']}, which this version cannot read")
        if data != _fixed_form(content):
            raise Damaged(path, "is not what was written")
        return _manifest(content)
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise Damaged(path, f"is no manifest: {error!r}") from None
    except Damaged as error:
        raise Damaged(path, error.why) from None


def _fixed_form(content: object) -> bytes:
    digest = hashlib.sha256(_plain_json(content)).hexdigest()
    return _plain_json({"manifest": content, "sha256": digest})


def _plain_json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def _manifest(content: dict[str, Any]) -> Manifest:
    files = tuple(StoredFile(path, size, sha) for path, size, sha in content["files"])
    found = FOLDER_NAME.fullmatch(content["folder"])
    if found is None or int(found[1]) != content["number"]:
        raise ValueError(f"{content['folder']} is not the folder of number {content['number']}")
    for file in files:
        if os.path.normpath(file.path) != file.path or file.path.startswith(("/", "..")):
            raise ValueError(f"{file.path} is no file of an image")
    return Manifest(
        key=content["key"],
        number=content["number"],
        uid=content["uid"],
        folder=content["folder"],
        files=files,
        facts=content["facts"],
        cut=Cut.from_json(content["cut"]),
    )

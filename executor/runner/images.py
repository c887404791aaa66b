"""The files of a process image: made private and durable, and compared with the manifest."""

from __future__ import annotations

import os
from pathlib import Path

from .durable import (
    Damaged,
    Unsafe,
    check_private,
    fsync_folder,
    open_own,
    parallel,
    sha256_of,
    sha256_of_range,
)
from .manifest import StoredFile


def flush(image: Path) -> tuple[StoredFile, ...]:
    """Make every file of an image private and durable, and return what they are.

    Raises:
        OSError: the image is lost; never flush it again.
        Unsafe: there is something else than files and folders of ours in it.
    """
    check_private(image)
    paths, folders = _walk(image)
    files = parallel(lambda path: _flush_file(image, path), paths)
    for folder in reversed(folders):
        (image / folder).chmod(0o700)
        fsync_folder(image / folder)
    return tuple(files)


def check(image: Path, files: tuple[StoredFile, ...]) -> None:
    """Raise Damaged unless an image holds exactly these files with these bytes; sizes come first.

    The folder it lies in may hold the manifest beside it and nothing else.
    """
    for path in image.parent.iterdir():
        if path.name not in ("image", "manifest.json"):
            raise Damaged(path, "is not part of the generation")
    there = set(_walk(image)[0])
    expected = {file.path: file for file in files}
    for name in sorted(there ^ expected.keys()):
        why = "is missing" if name in expected else "is not part of the generation"
        raise Damaged(image / name, why)
    for file in files:
        size = (image / file.path).lstat().st_size
        if size != file.size:
            raise Damaged(image / file.path, f"is {size} bytes long, not {file.size}")
    parallel(lambda file: _check_file(image, file), files)


def _walk(image: Path, below: str = "") -> tuple[list[str], list[str]]:
    """Return the paths of all files and all folders of an image, relative to it.

    Raises:
        Unsafe: something else is in it, or something that is not ours.
    """
    files: list[str] = []
    folders = [below]
    with os.scandir(image / below) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        path = f"{below}/{entry.name}" if below else entry.name
        if entry.is_dir(follow_symlinks=False):
            more_files, more_folders = _walk(image, path)
            files += more_files
            folders += more_folders
        elif entry.is_file(follow_symlinks=False):
            files.append(path)
        else:
            raise Unsafe(image / path, "is neither a file nor a folder")
        if entry.stat(follow_symlinks=False).st_uid != os.geteuid():
            raise Unsafe(image / path, "belongs to somebody else")
    return files, folders


def _flush_file(image: Path, path: str) -> StoredFile:
    file = open_own(image / path)
    try:
        os.fchmod(file, 0o600)
        os.fsync(file)
        size = os.fstat(file).st_size
        return StoredFile(path, size, sha256_of_range(file, 0, size))
    finally:
        os.close(file)


def _check_file(image: Path, file: StoredFile) -> None:
    if sha256_of(image / file.path) != file.sha256:
        raise Damaged(image / file.path, "has other bytes than were stored")

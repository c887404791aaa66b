"""The one way this package writes files: whole, or not at all.

A file is written under a private name in the folder it goes to, flushed to the device, and then
renamed over the earlier one. Whoever opens the path finds the whole earlier file or the whole new
one, also after a full disk, an I/O error or a kill. A folder of tables is built beside its place
and swapped in as a whole. Several outputs all wait so, and are then renamed one after the other.

Limits: a hard link to the earlier file keeps the earlier content; a process killed outright can
leave a file `.cedana-poc-….tmp` behind; between two renames a kill
leaves some outputs new and some old, and an earlier folder under such a name.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import io
import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from cedana_poc.errors import UserError

Cell: TypeAlias = str | int | float
Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[Cell]]]
"""A header, whose names carry the units, and rows as long as the header."""

MARKER = "cedana-poc-data.json"
MARKER_SCHEMA = "cedana-poc/data/1"

_STARTS_A_FORMULA = tuple("=+-@\t\r\n\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}"
                          "\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}")  # fmt: skip


# --- text -----------------------------------------------------------------------------------------


def to_json(analysis: Mapping[str, Any]) -> str:
    """Return the analysis document as JSON that any parser reads: no NaN, valid UTF-8."""
    text = json.dumps(analysis, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    return _utf8(text).decode()


def to_csv(table: Table) -> str:
    """Return a table as CSV with quoting by RFC 4180 and lines that end in a line feed.

    Texts are always quoted and numbers never. A text that a spreadsheet would take for a formula
    gets a leading apostrophe, so that a job name cannot run anything on the reader's machine.
    """
    header, rows = table
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
    for row in (header, *rows):
        writer.writerow([_harmless(cell) for cell in row])
    return text.getvalue()


def _harmless(cell: Cell) -> Cell:
    if isinstance(cell, str):
        return f"'{cell}" if cell.startswith(_STARTS_A_FORMULA) else cell
    if not math.isfinite(cell):
        raise ValueError(f"{cell} in a table: a figure that cannot be computed is 'unknown'")
    return cell


def _utf8(text: str) -> bytes:
    # A byte that was not UTF-8 came in as a lone surrogate. It goes out as \udcXX, which in JSON
    # is the very escape for it.
    return text.encode("utf-8", "backslashreplace")


# --- files ----------------------------------------------------------------------------------------


def check_writable(path: Path) -> None:
    """Fail now if `write` would fail at this file for a reason that can be known beforehand.

    Raises:
        UserError: path is no regular file, is read-only, or its folder takes no new file.
    """
    with _told_to_user(path):
        target = _target(path)
        _existing(target, path)
        _probe(target.parent)


def write(texts: Mapping[Path, str], folders: Mapping[Path, Mapping[str, Table]]) -> None:
    """Write files and folders of tables, all of them or none; earlier ones stay whole until then.

    A text becomes a file of UTF-8. A new file gets the mode the umask asks for, a replaced one
    keeps its mode and, where permitted, its owner and group. If the path is a symbolic link, the
    link stays and the file it leads to is replaced, unless the link is another user's: in a shared
    folder anyone can put a link in the place of an output.

    Each table becomes `NAME.csv` in its folder, which appears as a whole. An earlier folder is
    replaced only if it is empty or holds nothing but what this tool wrote: the files that its
    `cedana-poc-data.json` lists, with the SHA-256 they had.

    Raises:
        UserError: one could not be written. The others have been taken back, except that a file
            which replaced an earlier one stays where replacing another file failed.
    """
    with contextlib.ExitStack() as leaving:
        staged: list[_File | _Folder] = []
        for path, tables in folders.items():
            staged.append(_Folder(path, tables))
            leaving.callback(staged[-1].discard)
        for path, text in texts.items():
            staged.append(_File(path, text))
            leaving.callback(staged[-1].discard)
        _put_in_place(sorted(staged, key=lambda one: one.is_final))
    with contextlib.ExitStack() as finishing:
        for one in staged:
            finishing.callback(one.finish)


def _put_in_place(staged: Sequence[_File | _Folder]) -> None:
    with contextlib.ExitStack() as undo:
        for one in staged:
            one.put_in_place()
            undo.callback(one.take_back)
        undo.pop_all()


class _File:
    """A text that waits, whole and on the device, beside the place it goes to.

    Attributes:
        is_final: once in place it cannot be taken back, since it replaces an earlier file.
    """

    def __init__(self, path: Path, text: str) -> None:
        self._named = path
        with _told_to_user(path):
            self._target = _target(path)
            earlier = _existing(self._target, path)
            self.is_final = earlier is not None
            self._temp = _beside(self._target)
            try:
                _create(self._temp, _utf8(text), earlier)
            except BaseException:
                self.discard()
                raise

    def put_in_place(self) -> None:
        with _told_to_user(self._named):
            self._temp.replace(self._target)

    def take_back(self) -> None:
        if not self.is_final:
            _discard(self._target)

    def finish(self) -> None:
        _confirm(self._target)

    def discard(self) -> None:
        _discard(self._temp)


def create_private(path: Path, data: bytes) -> None:
    """Create path with mode 0600, complete from the first moment it can be seen.

    Raises:
        FileExistsError: path exists, perhaps since a moment ago; it is unchanged.
        OSError: it could not be written; nothing is left.
    """
    temp = _beside(path)
    try:
        _create(temp, data, private=True)
        os.link(temp, path)
    finally:
        _discard(temp)
    _confirm(path)


@contextlib.contextmanager
def _told_to_user(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"cannot be written: {error.strerror or error}",
            where=str(path),
            hint="name another path or remove the cause; what was there before is unchanged",
        ) from error


def _target(path: Path) -> Path:
    if not path.is_symlink():
        return path
    if path.lstat().st_uid not in (os.geteuid(), 0):
        raise UserError(
            "is a symbolic link of another user", where=str(path), hint="name the file itself"
        )
    return Path(os.path.realpath(path))


def _existing(target: Path, path: Path) -> os.stat_result | None:
    """Return the status of the file to be replaced, or None if there is none."""
    if not target.parent.is_dir():
        raise UserError(f"there is no folder {target.parent}", where=str(path), hint="create it")
    try:
        status = target.stat()
    except FileNotFoundError:
        return None
    if stat.S_ISDIR(status.st_mode):
        raise UserError("is a directory", where=str(path), hint="name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise UserError("is not a regular file", where=str(path), hint="name a file")
    if not os.access(target, os.W_OK, effective_ids=True):
        raise UserError("is write-protected", where=str(path), hint="chmod u+w or another path")
    return status


def _probe(folder: Path) -> None:
    # Only a try tells: os.access knows nothing of quotas, squashed roots or full inode tables.
    temp = _beside(folder / "probe")
    os.close(os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    temp.unlink()


def _beside(path: Path) -> Path:
    return path.parent / f".cedana-poc-{secrets.token_hex(8)}.tmp"


def _create(
    path: Path, data: bytes, earlier: os.stat_result | None = None, *, private: bool = False
) -> None:
    """Create path, which must not exist, write all data and flush it to the device."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
        if earlier is not None:
            _take_over(file, earlier)
        elif not private:
            os.fchmod(file, 0o666 & ~_umask())
        os.fsync(file)
    finally:
        os.close(file)


def _take_over(file: int, earlier: os.stat_result) -> None:
    """Give file the owner, group and mode of the earlier file, as far as that is permitted."""
    mode = earlier.st_mode & 0o777
    try:
        os.fchown(file, earlier.st_uid if os.geteuid() == 0 else -1, earlier.st_gid)
    except PermissionError:
        mode &= ~0o070  # what it allowed its group it did not allow the writer's group
    os.fchmod(file, mode)


def _umask() -> int:
    # Reading it means setting it; 0o077 errs on the private side for another thread.
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()


def _confirm(path: Path) -> None:
    """Flush the folder that holds path, so that its new name survives a power cut."""
    try:
        _flush(path.parent)
    except OSError as error:
        raise UserError(
            f"is complete, but the file system did not confirm it: {error.strerror}",
            where=str(path),
            hint="check the file system and write it again",
        ) from error


def _flush(folder: Path) -> None:
    try:
        opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        # Some file systems do not offer it, and a folder may be writable but not readable.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise


# --- a folder of tables ---------------------------------------------------------------------------


def check_tables_folder(directory: Path) -> None:
    """Fail now if `write` would fail at this folder for a reason known beforehand.

    Raises:
        UserError: directory holds anything that this tool did not write, or its parent folder
            takes no new entry.
    """
    with _told_to_user(directory):
        folder = _target(directory)
        _existing_folder(folder, directory)
        _probe(folder.parent)


class _Folder:
    """Tables that wait, whole and on the device, beside the folder they become.

    Attributes:
        is_final: never: an earlier folder is put aside, and put back if need be.
    """

    is_final = False

    def __init__(self, path: Path, tables: Mapping[str, Table]) -> None:
        contents = {f"{name}.csv": _utf8(to_csv(table)) for name, table in tables.items()}
        contents[MARKER] = _marker(contents)
        self._named = path
        self._earlier_files: Sequence[Path] = ()
        with _told_to_user(path):
            self._target = _target(path)
            self._earlier = _existing_folder(self._target, path)
            self._temp, self._aside = _beside(self._target), _beside(self._target)
            try:
                _build(self._temp, contents, self._earlier)
            except BaseException:
                self.discard()
                raise

    def put_in_place(self) -> None:
        with _told_to_user(self._named):
            if self._earlier is None:
                self._temp.rename(self._target)
                return
            self._target.rename(self._aside)
            try:
                # Looked at again under a name that nobody else knows: a file may have come since.
                self._earlier_files = _own_files(self._aside, self._named)
                self._temp.rename(self._target)
            except BaseException:
                self._put_back()
                raise

    def take_back(self) -> None:
        with contextlib.suppress(OSError):
            self._target.rename(self._temp)
        if self._earlier is not None:
            self._put_back()

    def _put_back(self) -> None:
        try:
            self._aside.rename(self._target)
        except OSError as error:
            raise UserError(
                f"could not be replaced nor put back: {error.strerror}",
                where=str(self._named),
                hint=f"the earlier folder is kept as {self._aside}",
            ) from error

    def finish(self) -> None:
        """Remove the earlier folder, which nothing will ask for any more."""
        if self._earlier is not None:
            _remove(self._aside, self._earlier_files, self._named)
        _confirm(self._target)

    def discard(self) -> None:
        shutil.rmtree(self._temp, ignore_errors=True)


def _marker(contents: Mapping[str, bytes]) -> bytes:
    files = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    return _utf8(json.dumps({"schema": MARKER_SCHEMA, "files": files}, indent=2) + "\n")


def _existing_folder(folder: Path, named: Path) -> os.stat_result | None:
    if not folder.parent.is_dir():
        raise UserError(f"there is no folder {folder.parent}", where=str(named), hint="create it")
    try:
        status = folder.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISDIR(status.st_mode):
        raise UserError("is not a directory", where=str(named), hint="name a folder")
    if os.path.ismount(folder):
        raise UserError("is a mount point", where=str(named), hint="name a folder in it")
    if not os.access(folder, os.W_OK, effective_ids=True):
        raise UserError("is write-protected", where=str(named), hint="chmod u+w or another path")
    _own_files(folder, named)
    return status


def _own_files(folder: Path, named: Path) -> list[Path]:
    """Return the files in folder; anything that this tool did not write is a UserError."""
    files = sorted(folder.iterdir())
    listed = _listed(folder / MARKER)
    for file in files:
        if file.name != MARKER and not _is_as_written(file, listed.get(file.name)):
            raise UserError(
                f"holds {file.name}, which this tool did not write or which was changed since",
                where=str(named),
                hint="name a new folder or move that file away",
            )
    if files and not listed:
        raise UserError(f"has no readable {MARKER}", where=str(named), hint="name a new folder")
    return files


def _listed(marker: Path) -> dict[str, str]:
    if marker.is_symlink() or not marker.is_file():
        return {}
    try:
        found = json.loads(marker.read_bytes())
    except ValueError:
        return {}
    if not isinstance(found, dict) or found.get("schema") != MARKER_SCHEMA:
        return {}
    files = found.get("files")
    return files if isinstance(files, dict) else {}


def _is_as_written(file: Path, sha256: str | None) -> bool:
    return (
        sha256 is not None
        and not file.is_symlink()
        and file.is_file()
        and hashlib.sha256(file.read_bytes()).hexdigest() == sha256
    )


def _build(built: Path, contents: Mapping[str, bytes], earlier: os.stat_result | None) -> None:
    built.mkdir(0o700)
    for name, data in contents.items():
        _create(built / name, data)
    built.chmod(earlier.st_mode & 0o777 if earlier else 0o777 & ~_umask())
    _flush(built)


def _remove(aside: Path, files: Sequence[Path], named: Path) -> None:
    try:
        for file in files:
            file.unlink()
        aside.rmdir()
    except OSError as error:
        raise UserError(
            f"is complete, but the earlier folder could not be removed: {error.strerror}",
            where=str(named),
            hint=f"remove {aside}",
        ) from error

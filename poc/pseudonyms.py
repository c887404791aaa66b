"""Stable stand-ins for user names.

A name becomes `user-3fa9c1`: the first hex digits of HMAC-SHA256 of the name under a key that stays
with the site. With the key the same name always gives the same pseudonym, so two reports can be
compared; without it a list of likely names cannot be tried against a report.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import shlex
import stat
from collections.abc import Iterable
from pathlib import Path

from cedana_poc.errors import UserError
from cedana_poc.output import create_private

_SHORTEST = 6
_KEY_BYTES = 32
_LONGEST_KEY = 4096
_OTHERWISE = "name another with --pseudonym-key FILE, or show names with --names"


def pseudonyms(names: Iterable[str], key: bytes) -> dict[str, str]:
    """Return a pseudonym for each name, distinct within the whole set.

    All have the same length: six digits, or as many as it takes to tell the names apart.
    """
    digests = {name: _digest(name, key) for name in names}
    digits = _SHORTEST
    while len({digest[:digits] for digest in digests.values()}) < len(digests):
        digits += 1
    return {name: f"user-{digest[:digits]}" for name, digest in digests.items()}


def _digest(name: str, key: bytes) -> str:
    return hmac.new(key, name.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()


def load_key(path: Path | None) -> bytes:
    """Return the key in path, which is created with a new random key if it does not exist.

    Without a path it is `cedana-poc/pseudonym.key` in `$XDG_CONFIG_HOME` or `~/.config`, and its
    folder is created too. Two processes that create it at once get the same key.

    Raises:
        UserError: the file cannot be created or read, others can read it, it is a symbolic link,
            it is another user's, or it is too short.
    """
    file = path or _default_path()
    try:
        if path is None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.path.lexists(file):
            with contextlib.suppress(FileExistsError):
                create_private(file, secrets.token_bytes(_KEY_BYTES))
        return _read(file)
    except OSError as error:
        raise UserError(
            f"cannot hold the key for pseudonyms: {error.strerror}",
            where=str(file),
            hint=_OTHERWISE,
        ) from error


def _default_path() -> Path:
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG specification has relative paths ignored.
    try:
        base = Path(configured) if configured.startswith("/") else Path.home() / ".config"
    except RuntimeError as error:
        raise UserError(
            "the key for pseudonyms has no place: no home directory", hint=_OTHERWISE
        ) from error
    return base / "cedana-poc" / "pseudonym.key"


def _read(file: Path) -> bytes:
    # O_NONBLOCK: a pipe in this place is refused below, not waited for.
    opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        _require_private(os.fstat(opened), file)
        key = os.read(opened, _LONGEST_KEY + 1)
    finally:
        os.close(opened)
    if not _KEY_BYTES <= len(key) <= _LONGEST_KEY:
        raise UserError(
            f"is no key for pseudonyms: {_KEY_BYTES} to {_LONGEST_KEY} bytes are needed",
            where=str(file),
            hint="move it away to get a new key, and with it new pseudonyms",
        )
    return key


def _require_private(status: os.stat_result, file: Path) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise UserError("is not a regular file", where=str(file), hint=_OTHERWISE)
    if status.st_uid != os.geteuid():
        raise UserError("is another user's file", where=str(file), hint=_OTHERWISE)
    if status.st_mode & 0o077:
        raise UserError(
            "holds the key for pseudonyms and others may use it",
            where=str(file),
            hint=f"chmod 600 {shlex.quote(str(file))}",
        )

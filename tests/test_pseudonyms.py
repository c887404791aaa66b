"""User names stay inside the site, and the key that hides them stays with its owner."""

from __future__ import annotations

import errno
import hashlib
import hmac
import multiprocessing
import os
import re
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import NOBODY, make_read_only, ordinary_user, small_file_system

from cedana_poc.errors import UserError
from cedana_poc.pseudonyms import load_key, pseudonyms

KEY = bytes(range(32))
NAMES = st.sets(st.text(st.characters(exclude_categories=()), max_size=12), max_size=40)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    return tmp_path


# --- names ---


def test_pseudonym_is_the_start_of_the_keyed_hash_of_the_name() -> None:
    expected = hmac.new(KEY, b"alice", hashlib.sha256).hexdigest()[:6]

    assert pseudonyms(["alice"], KEY) == {"alice": f"user-{expected}"}


def test_another_key_gives_another_pseudonym() -> None:
    assert pseudonyms(["alice"], KEY) != pseudonyms(["alice"], KEY[::-1])


@given(NAMES)
def test_names_get_distinct_pseudonyms_that_do_not_depend_on_order(names: set[str]) -> None:
    given_order = pseudonyms(sorted(names), KEY)

    assert set(given_order) == names
    assert len(set(given_order.values())) == len(names)
    assert all(re.fullmatch("user-[0-9a-f]{6,64}", each) for each in given_order.values())
    assert pseudonyms(sorted(names, reverse=True), KEY) == given_order


def test_name_given_twice_has_one_pseudonym() -> None:
    assert len(pseudonyms(["alice", "bob", "alice"], KEY)) == 2


def test_names_whose_short_hashes_collide_are_lengthened() -> None:
    """With 20,000 names two share six digits almost surely; the short form stays a prefix."""
    names = [f"u{number}" for number in range(20_000)]
    made = pseudonyms(names, KEY)

    assert len(set(made.values())) == len(names)
    (length,) = {len(each) for each in made.values()}
    assert length > len("user-123456")
    assert made["u7"].startswith(pseudonyms(["u7"], KEY)["u7"])


# --- the key ---


def test_key_is_made_once_in_a_private_place(home: Path) -> None:
    before = os.umask(0)
    try:
        key = load_key(None)
    finally:
        os.umask(before)

    file = home / ".config" / "cedana-poc" / "pseudonym.key"
    assert file.read_bytes() == key == load_key(None)
    assert len(key) == 32
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert [path.name for path in file.parent.iterdir()] == ["pseudonym.key"]


def test_key_of_another_home_is_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    for name in ("one", "two"):
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / name))
        keys.add(load_key(None))

    assert len(keys) == 2
    assert (tmp_path / "two" / "cedana-poc" / "pseudonym.key").exists()


def test_relative_config_home_is_ignored(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    monkeypatch.chdir(home)
    load_key(None)

    assert (home / ".config" / "cedana-poc" / "pseudonym.key").exists()


def test_named_key_file_is_used_and_created_but_not_its_folder(tmp_path: Path) -> None:
    assert load_key(tmp_path / "key") == load_key(tmp_path / "key")

    with pytest.raises(UserError, match="No such file or directory"):
        load_key(tmp_path / "missing" / "key")


def test_key_made_by_hand_may_be_text(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("0123456789abcdef" * 4 + "\n")
    (tmp_path / "key").chmod(0o600)

    assert load_key(tmp_path / "key") == b"0123456789abcdef" * 4 + b"\n"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o660])
def test_key_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    load_key(tmp_path / "key")
    (tmp_path / "key").chmod(mode)

    with pytest.raises(UserError, match=re.escape(f"chmod 600 {tmp_path}/key")):
        load_key(tmp_path / "key")


@pytest.mark.parametrize("target", ["key", "missing"])
def test_key_behind_a_symbolic_link_is_refused(tmp_path: Path, target: str) -> None:
    load_key(tmp_path / "key")
    (tmp_path / "link").symlink_to(target)

    with pytest.raises(UserError, match=r"link: cannot hold .*symbolic link"):
        load_key(tmp_path / "link")
    assert not (tmp_path / "missing").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to make a file of another user")
def test_key_of_another_user_is_refused(tmp_path: Path) -> None:
    load_key(tmp_path / "key")
    os.chown(tmp_path / "key", NOBODY, NOBODY)

    with pytest.raises(UserError, match=r"is another user.s file; .*--pseudonym-key"):
        load_key(tmp_path / "key")


@pytest.mark.parametrize("length", [0, 31, 4097])
def test_key_of_the_wrong_length_is_refused(tmp_path: Path, length: int) -> None:
    (tmp_path / "key").write_bytes(b"k" * length)
    (tmp_path / "key").chmod(0o600)

    with pytest.raises(UserError, match="is no key for pseudonyms"):
        load_key(tmp_path / "key")


def test_directory_and_pipe_are_no_key(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)

    for path in (tmp_path, tmp_path / "pipe"):
        with pytest.raises(UserError, match="is not a regular file"):
            load_key(path)


def test_home_without_permission_names_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o555)
        monkeypatch.setenv("XDG_CONFIG_HOME", home)

        with ordinary_user(), pytest.raises(UserError) as error:
            load_key(None)

    assert "Permission denied" in str(error.value)
    assert "--pseudonym-key FILE" in str(error.value)
    assert "--names" in str(error.value)


def test_read_only_home_names_both_ways_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with small_file_system(tmp_path / "home") as home:
        make_read_only(home)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(home))

        with pytest.raises(UserError, match=r"Read-only.*--pseudonym-key FILE.*--names"):
            load_key(None)


def test_no_home_at_all_names_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError

    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr(Path, "home", no_home)

    with pytest.raises(UserError, match=r"no home directory; .*--pseudonym-key FILE.*--names"):
        load_key(None)


def test_full_disk_leaves_no_half_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(UserError, match="No space left on device"):
            load_key(tmp_path / "key")

    assert list(tmp_path.iterdir()) == []
    assert len(load_key(tmp_path / "key")) == 32


def test_key_that_another_process_makes_meanwhile_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between looking for the file and creating it the other process was faster."""
    other = load_key(tmp_path / "key")
    monkeypatch.setattr(os.path, "lexists", lambda _: False)

    assert load_key(tmp_path / "key") == other
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_processes_that_start_at_once_get_one_key(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        keys = pool.map(load_key, [tmp_path / "key"] * 16, chunksize=1)

    assert len(set(keys)) == 1

"""Files are replaced whole or not at all, are private, and are never read through a link."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from pathlib import Path

import pytest
from faults import Fault, faults
from hypothesis import given
from hypothesis import strategies as some
from machine import NOBODY

from snakemake_executor_plugin_cedana.runner import durable
from snakemake_executor_plugin_cedana.runner.durable import Damaged, Unsafe

OLD, NEW = {"old": "x" * 3000}, {"new": "y" * 3000}
MOST = 10_000

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("write", errno.ENOSPC),
        ("write", errno.EDQUOT),
        ("fsync", errno.EIO),
        ("open", errno.EMFILE),
        ("close", errno.EDQUOT),
        ("fchmod", errno.EPERM),
        ("replace", errno.EIO),
    ],
)
def test_fault_at_any_call_leaves_one_whole_file(tmp_path: Path, name: str, code: int) -> None:
    path = tmp_path / "a.json"
    for fault in faults(name, code):
        durable.write_json(path, OLD)

        failed = fault.fails(lambda: durable.write_json(path, NEW))

        assert fault.hit == failed
        there = durable.read_json(path, MOST)
        assert there == NEW if not failed else there in (OLD, NEW)
        assert ["a.json"] == [each.name for each in tmp_path.iterdir()]


def test_failed_flush_is_not_repeated(tmp_path: Path) -> None:
    fault = Fault("fsync", 1, errno.EIO)

    assert fault.fails(lambda: durable.write_json(tmp_path / "a.json", NEW))

    assert 1 == fault.calls
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("mask", [0o000, 0o077, 0o777])
def test_what_is_written_is_private_whatever_the_umask(tmp_path: Path, mask: int) -> None:
    tmp_path.chmod(0o2777)
    earlier = os.umask(mask)
    try:
        durable.private_folder(tmp_path / "folder")
        durable.write_json(tmp_path / "folder" / "a.json", NEW)
    finally:
        os.umask(earlier)

    assert 0o700 == mode(tmp_path / "folder")
    assert 0o600 == mode(tmp_path / "folder" / "a.json")


def test_folder_that_others_can_enter_is_refused(tmp_path: Path) -> None:
    for bits in (0o750, 0o701, 0o2770):
        tmp_path.chmod(bits)
        with pytest.raises(Unsafe, match="open to others"):
            durable.private_folder(tmp_path)


def test_link_and_file_in_place_of_a_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "file").touch(mode=0o600)

    with pytest.raises(Unsafe, match="symbolic link"):
        durable.private_folder(tmp_path / "link")
    with pytest.raises(Unsafe, match="no folder"):
        durable.private_folder(tmp_path / "file")


@needs_root
def test_what_belongs_to_others_is_refused(tmp_path: Path) -> None:
    folder, path = tmp_path / "folder", tmp_path / "a.json"
    folder.mkdir(mode=0o700)
    durable.write_json(path, NEW)
    os.chown(folder, NOBODY, NOBODY)
    os.chown(path, NOBODY, NOBODY)

    with pytest.raises(Unsafe, match=f"belongs to user {NOBODY}"):
        durable.private_folder(folder)
    with pytest.raises(Unsafe, match=f"belongs to user {NOBODY}"):
        durable.read_json(path, MOST)
    with pytest.raises(Unsafe, match=f"belongs to user {NOBODY}"):
        durable.sha256_of(path)


def test_planted_link_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    victim, link = tmp_path / "victim", tmp_path / "link"
    victim.write_text('"secret"')
    link.symlink_to(victim)

    with pytest.raises(Unsafe, match="symbolic link"):
        durable.read_json(link, MOST)
    with pytest.raises(FileExistsError):
        durable.write_new(link, b"overwritten")
    durable.write_json(link, NEW)

    assert '"secret"' == victim.read_text()
    assert NEW == durable.read_json(link, MOST)
    assert not link.is_symlink()


def test_fifo_is_refused_and_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")

    with pytest.raises(Unsafe, match="no regular file"):
        durable.read_json(tmp_path / "fifo", MOST)


@pytest.mark.parametrize("text", ["", "{", "nul", "\x00", "[" * 100_000, '{"a": "\xff"'])
def test_what_is_no_json_is_told_with_the_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_bytes(text.encode("latin-1"))

    with pytest.raises(Damaged, match=r"a\.json is not JSON"):
        durable.read_json(tmp_path / "a.json", 1 << 20)


def test_file_larger_than_the_bound_is_refused(tmp_path: Path) -> None:
    durable.write_new(tmp_path / "a.json", b"1" * 11)

    assert 11111111111 == durable.read_json(tmp_path / "a.json", 11)
    with pytest.raises(Damaged, match="larger than 10 bytes"):
        durable.read_json(tmp_path / "a.json", 10)


def test_file_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        durable.read_json(tmp_path / "a.json", MOST)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_folder_that_cannot_be_flushed_is_tolerated(tmp_path: Path, code: int) -> None:
    assert not Fault("fsync", 1, code).fails(lambda: durable.fsync_folder(tmp_path))


@pytest.mark.parametrize("code", [errno.EIO, errno.EROFS, errno.EDQUOT])
def test_folder_whose_flush_fails_is_an_error(tmp_path: Path, code: int) -> None:
    assert Fault("fsync", 1, code).fails(lambda: durable.fsync_folder(tmp_path))


@given(data=some.binary(max_size=3000), start=some.integers(0, 3000), length=some.integers(0, 3000))
def test_hash_is_of_the_range(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, start: int, length: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "hashed"
    path.write_bytes(data)
    file = os.open(path, os.O_RDONLY)
    try:
        found = durable.sha256_of_range(file, start, length)
    finally:
        os.close(file)

    assert hashlib.sha256(data[start : start + length]).hexdigest() == found
    assert hashlib.sha256(data).hexdigest() == durable.sha256_of(path)


LEAVES = some.none() | some.booleans() | some.integers() | some.text()


@given(
    value=some.recursive(
        LEAVES, lambda inner: some.lists(inner) | some.dictionaries(some.text(), inner)
    )
)
def test_json_is_read_as_it_was_written(
    tmp_path_factory: pytest.TempPathFactory, value: object
) -> None:
    path = tmp_path_factory.getbasetemp() / "value.json"

    durable.write_json(path, value)

    assert value == durable.read_json(path, 1 << 20)


def test_results_come_in_order_and_the_first_error_is_raised() -> None:
    def work(item: int) -> int:
        if item in (7, 9):
            raise ValueError(item)
        return 2 * item

    assert [0, 2, 4, 6] == durable.parallel(work, range(4))
    assert [] == durable.parallel(work, [])
    with pytest.raises(ValueError, match="7"):
        durable.parallel(work, range(20))


def test_path_is_shown_as_one_line_of_valid_text() -> None:
    name = os.fsdecode(b"a\n\xff<b>")

    assert "\n" not in durable.shown(name)
    durable.shown(name).encode()
    assert "/plain/path é" == durable.shown("/plain/path é")

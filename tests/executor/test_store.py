"""Parts hold exactly the bytes they were given, or are told to be damaged by name."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults import faults
from hypothesis import given
from hypothesis import strategies as some
from machine import small_file_system

from snakemake_executor_plugin_cedana.runner.durable import Damaged
from snakemake_executor_plugin_cedana.runner.store import Part, Store

MIB = 1 << 20


@contextmanager
def opened(path: Path, flags: int = os.O_RDONLY) -> Iterator[int]:
    file = os.open(path, flags)
    try:
        yield file
    finally:
        os.close(file)


def stored(store: Store, path: Path, offset: int = 0, length: int | None = None) -> Part:
    size = path.stat().st_size if length is None else length
    with opened(path) as file:
        return store.finish(store.add_copy(file, offset, size))


def copied_out(store: Store, *parts: Part, to: Path) -> bytes:
    with opened(to, os.O_RDWR | os.O_CREAT | os.O_TRUNC) as file:
        offset = 0
        for part in parts:
            store.copy_out(part, file, offset)
            offset += part.size
    return to.read_bytes()


def make_holey(path: Path, size: int, data: list[tuple[int, bytes]]) -> None:
    with path.open("wb") as file:
        file.truncate(size)
        for offset, each in data:
            file.seek(offset)
            file.write(each)


@given(
    size=some.integers(1, 300_000),
    data=some.lists(some.tuples(some.integers(0, 300_000), some.binary(min_size=1, max_size=9000))),
    cut=some.floats(0, 1),
)
def test_parts_of_a_file_with_holes_give_its_bytes_again(
    tmp_path_factory: pytest.TempPathFactory,
    size: int,
    data: list[tuple[int, bytes]],
    cut: float,
) -> None:
    """Also where a file was stored in two parts that meet anywhere, in a hole or not."""
    folder = tmp_path_factory.mktemp("store")
    folder.chmod(0o700)
    store, path = Store(folder / "store"), folder / "file"
    make_holey(path, size, data)
    whole = path.read_bytes()
    middle = int(cut * len(whole))

    parts = [stored(store, path, 0, middle)] if middle else []
    if middle < len(whole):
        parts.append(stored(store, path, middle, len(whole) - middle))

    assert whole == copied_out(store, *parts, to=folder / "again")
    for part in parts:
        store.verify(part)


def test_holes_are_kept_on_the_way_in_and_out(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "file"
    make_holey(path, 64 * MIB, [(0, b"a" * 5000), (32 * MIB + 77, b"b" * 5000)])

    part = stored(store, path)

    assert path.read_bytes() == copied_out(store, part, to=tmp_path / "again")
    for each in (store.folder / part.name, tmp_path / "again"):
        assert each.stat().st_blocks * 512 < 100_000


@pytest.mark.parametrize("kind", ["xfs", "btrfs"])
def test_blocks_are_shared_where_the_file_system_can(tmp_path: Path, kind: str) -> None:
    """A file, its part and its copy fit a file system that can hold it twice only."""
    with made_file_system(tmp_path, kind, 350 * MIB) as place:
        store, path = Store(place / "store"), place / "file"
        path.write_bytes(os.urandom(120 * MIB))

        part = stored(store, path)

        with opened(path) as file:
            assert store.clones(file)
        assert path.read_bytes() == copied_out(store, part, to=place / "again")
        path.write_bytes(b"changed")
        store.verify(part)


@contextmanager
def made_file_system(folder: Path, kind: str, size: int) -> Iterator[Path]:
    make = shutil.which(f"mkfs.{kind}")
    if make is None:
        pytest.skip(f"needs mkfs.{kind}")
    image, place = folder / "disk", folder / "mounted"
    make_holey(image, size, [])
    place.mkdir()
    subprocess.run([make, "-q", str(image)], check=True)
    mount = subprocess.run(["mount", "-o", "loop", image, place], capture_output=True)  # noqa: S607
    if mount.returncode:
        pytest.skip(f"needs the right to mount: {mount.stderr!r}")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)  # noqa: S607


def test_file_that_became_shorter_is_not_stored(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "file"
    path.write_bytes(b"short")

    with opened(path) as file, pytest.raises(EOFError):
        store.add_copy(file, 0, 6)

    assert set() == store.names()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("copy_file_range", errno.ENOSPC),
        ("copy_file_range", errno.EIO),
        ("ftruncate", errno.EDQUOT),
        ("open", errno.ENOSPC),
        ("close", errno.EDQUOT),
        ("fchmod", errno.EIO),
    ],
)
def test_fault_at_any_call_leaves_no_part(tmp_path: Path, name: str, code: int) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    with opened(path) as file:
        for fault in faults(name, code):
            failed = fault.fails(lambda: store.add_copy(file, 0, 10_000))

            assert fault.hit == failed
            assert (0 if failed else 1) == len(store.names())
            store.sweep(set())


def test_copy_goes_on_where_the_kernel_cannot_copy(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "file"
    path.write_bytes(os.urandom(3 * MIB))
    for code in (errno.EXDEV, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL):
        for fault in faults("copy_file_range", code):
            parts: list[Part] = []
            assert not fault.fails(lambda found=parts: found.append(stored(store, path)))  # type: ignore[misc]

            assert path.read_bytes() == copied_out(store, *parts, to=tmp_path / "again")


def test_full_disk_leaves_no_part(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 200_000)
    with small_file_system(tmp_path / "disk") as place:
        place.chmod(0o700)
        store = Store(place / "store")

        with opened(path) as file, pytest.raises(OSError, match="No space left"):
            store.add_copy(file, 0, 200_000)

        assert set() == store.names()


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


@pytest.mark.parametrize("damage", [flip, cut, Path.unlink, link])
def test_damaged_part_is_named_and_not_copied_out(
    tmp_path: Path, damage: Callable[[Path], object]
) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "file"
    path.write_bytes(b"x" * 10_000)
    part = stored(store, path)
    damage(store.folder / part.name)

    with pytest.raises(Damaged, match=part.name):
        store.verify(part)
    with pytest.raises(Damaged, match=part.name):
        copied_out(store, part, to=tmp_path / "again")


def test_name_of_a_part_cannot_lead_out_of_the_store(tmp_path: Path) -> None:
    (tmp_path / "victim").write_bytes(b"x")

    with pytest.raises(Damaged, match="no name of a part"):
        Store(tmp_path / "store").open(Part("../victim", 1))


def test_sweep_keeps_what_is_referenced_and_what_is_no_part(tmp_path: Path) -> None:
    store, path = Store(tmp_path / "store"), tmp_path / "file"
    path.write_bytes(b"x")
    kept, lost = stored(store, path), stored(store, path)
    (store.folder / "notes").touch()

    store.sweep({kept.name})

    assert {kept.name, "notes"} == {each.name for each in store.folder.iterdir()}
    assert store.has(kept)
    assert not store.has(lost)

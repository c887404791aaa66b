"""A full disk or an I/O error at any call leaves the earlier output whole and nothing beside it."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import Fault, faults
from machine import make_read_only, small_file_system
from writing import write_tables, write_text

from cedana_poc import output
from cedana_poc.errors import UserError

OLD, NEW = "old " * 1000, "new " * 1000
OLD_TABLES: dict[str, output.Table] = {"a": (("x",), [(1,)]), "old": (("x",), [("y" * 2000,)])}
NEW_TABLES: dict[str, output.Table] = {"a": (("x",), [(2,)]), "b": (("x",), [("z" * 2000,)])}


def error_of(fault: Fault, action: Callable[[], object]) -> str:
    """Run action under a fault and return the text of its UserError, or nothing."""
    with fault.active():
        try:
            action()
        except UserError as error:
            return str(error)
    return ""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def snapshot(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"folder"
        for path in sorted(folder.rglob("*"))
    }


CALLS = [
    ("write", errno.ENOSPC),
    ("write", errno.EIO),
    ("fsync", errno.EIO),
    ("open", errno.EMFILE),
    ("replace", errno.EROFS),
    ("fchmod", errno.EPERM),
]


@pytest.mark.parametrize(("name", "code"), CALLS)
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "lasting"])
def test_fault_at_any_call_leaves_one_whole_file(
    tmp_path: Path, name: str, code: int, lasting: bool
) -> None:
    """Only a fault after the rename, when the folder is flushed, may leave the new file."""
    path = tmp_path / "report.html"
    replaced = []
    for fault in faults(name, code, lasting=lasting):
        path.write_text(OLD)

        told = error_of(fault, lambda: write_text(path, NEW))

        assert names(tmp_path) == ["report.html"]
        assert path.read_text() in (OLD, NEW)
        assert fault.hit == bool(told)
        replaced.append(path.read_text() == NEW)
        if fault.hit:
            assert told.startswith(f"{path}: ")
            assert os.strerror(code) in told
            assert replaced[-1] == ("is complete" in told)
    after_rename = [True] if name in ("fsync", "open") else []
    assert [*after_rename, True] == [each for each in replaced if each]
    assert len(replaced) > len(after_rename) + 1


@pytest.mark.parametrize(("name", "code"), CALLS)
def test_fault_at_any_call_leaves_no_part_of_a_new_file(
    tmp_path: Path, name: str, code: int
) -> None:
    path = tmp_path / "report.html"
    for fault in faults(name, code):
        told = error_of(fault, lambda: write_text(path, NEW))

        complete = not told or "is complete" in told
        assert snapshot(tmp_path) == ({"report.html": NEW.encode()} if complete else {})
        path.unlink(missing_ok=True)


def test_interruption_by_the_user_leaves_the_earlier_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    (tmp_path / "a.txt").write_text(OLD)
    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_text(tmp_path / "a.txt", NEW)

    assert {"a.txt": OLD.encode()} == snapshot(tmp_path)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
def test_file_system_that_cannot_flush_folders_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "fsync", Fault("fsync", 2, code))

    write_text(tmp_path / "a.txt", NEW)

    assert (tmp_path / "a.txt").read_text() == NEW


def test_next_write_after_a_fault_succeeds(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for fault in faults("write", errno.ENOSPC):
        error_of(fault, lambda: write_text(path, OLD))
        write_text(path, NEW)

        assert {"a.txt": NEW.encode()} == snapshot(tmp_path)


# --- the folder of tables ---

FOLDER_CALLS = [
    ("write", errno.ENOSPC),
    ("fsync", errno.EIO),
    ("open", errno.EMFILE),
    ("mkdir", errno.ENOSPC),
    ("chmod", errno.EPERM),
    ("rename", errno.EIO),
    ("listdir", errno.EIO),
]


@pytest.mark.parametrize(("name", "code"), FOLDER_CALLS)
def test_fault_at_any_call_leaves_one_whole_folder(tmp_path: Path, name: str, code: int) -> None:
    work, folder = tmp_path / "work", tmp_path / "work" / "data"
    work.mkdir()
    write_tables(folder, NEW_TABLES)
    new = snapshot(folder)
    replaced = []
    for fault in faults(name, code):
        write_tables(folder, OLD_TABLES)
        old = snapshot(folder)

        told = error_of(fault, lambda: write_tables(folder, NEW_TABLES))

        assert names(work) == ["data"]
        assert snapshot(folder) in (old, new)
        assert fault.hit == bool(told)
        replaced.append(snapshot(folder) == new)
        if fault.hit:
            assert replaced[-1] == ("is complete" in told)
    assert not replaced[0]
    assert replaced[-1]


@pytest.mark.parametrize("name", ["unlink", "rmdir"])
def test_earlier_folder_that_cannot_be_removed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    write_tables(tmp_path / "data", OLD_TABLES)
    monkeypatch.setattr(os, name, Fault(name, 1, errno.EBUSY))

    with pytest.raises(UserError) as error:
        write_tables(tmp_path / "data", NEW_TABLES)

    (aside,) = [path for path in tmp_path.iterdir() if path.name != "data"]
    assert str(error.value).endswith(f"; remove {aside}")
    assert (tmp_path / "data" / "b.csv").exists()


def test_earlier_folder_that_cannot_be_put_back_is_named_and_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path / "data", OLD_TABLES)
    old = snapshot(tmp_path / "data")
    monkeypatch.setattr(os, "rename", Fault("rename", 2, errno.EIO, lasting=True))

    with pytest.raises(UserError) as error:
        write_tables(tmp_path / "data", NEW_TABLES)

    (aside,) = tmp_path.iterdir()
    assert str(error.value).endswith(f"; the earlier folder is kept as {aside}")
    assert old == snapshot(aside)


# --- several outputs at once ---

SEVERAL_CALLS = sorted({*CALLS, *FOLDER_CALLS})


def write_three(folder: Path, text: str, tables: dict[str, output.Table]) -> None:
    texts = {folder / "a.html": text, folder / "elsewhere" / "b.json": text}
    output.write(texts, {folder / "data": tables})


@pytest.mark.parametrize(("name", "code"), [c for c in SEVERAL_CALLS if c[0] != "listdir"])
def test_fault_at_any_call_leaves_all_new_outputs_or_none(
    tmp_path: Path, name: str, code: int
) -> None:
    left = []
    for place, fault in enumerate(faults(name, code)):
        folder = tmp_path / str(place)
        (folder / "elsewhere").mkdir(parents=True)

        told = error_of(fault, lambda: write_three(folder, NEW, NEW_TABLES))  # noqa: B023

        complete = not told or "is complete" in told
        assert fault.hit == bool(told)
        assert {True: 7, False: 1}[complete] == len(snapshot(folder))
        left.append(complete)
    assert not left[0]
    assert left == sorted(left)


@pytest.mark.parametrize(("name", "code"), SEVERAL_CALLS)
def test_fault_before_a_file_is_replaced_leaves_all_earlier_outputs(
    tmp_path: Path, name: str, code: int
) -> None:
    """Of two files that both replace an earlier one, the first cannot be taken back."""
    for place, fault in enumerate(faults(name, code)):
        folder = tmp_path / str(place)
        (folder / "elsewhere").mkdir(parents=True)
        write_three(folder, OLD, OLD_TABLES)
        old = snapshot(folder)

        told = error_of(fault, lambda: write_three(folder, NEW, NEW_TABLES))  # noqa: B023

        found = snapshot(folder)
        assert [] == [path for path in found if ".cedana-poc" in path]
        assert found["elsewhere/b.json"] in (OLD.encode(), NEW.encode())
        if not told or "is complete" in told:
            assert {found["a.html"], found["elsewhere/b.json"]} == {NEW.encode()}
            assert "data/b.csv" in found
        elif (name, fault.nth) == ("replace", 2):
            assert {**old, "a.html": NEW.encode()} == found
        else:
            assert old == found


def test_new_outputs_are_taken_back_and_earlier_files_are_never_removed(tmp_path: Path) -> None:
    """The file that replaces an earlier one comes last, wherever it is named."""
    write_text(tmp_path / "old.html", OLD)
    texts = {tmp_path / "old.html": NEW, tmp_path / "new.json": NEW}

    fault = Fault("replace", 2, errno.EIO)
    told = error_of(fault, lambda: output.write(texts, {tmp_path / "data": NEW_TABLES}))

    assert told.startswith(f"{tmp_path / 'old.html'}: ")
    assert {"old.html": OLD.encode()} == snapshot(tmp_path)


def test_interruption_between_two_outputs_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path / "data", OLD_TABLES)
    before = snapshot(tmp_path)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        output.write({tmp_path / "a.html": NEW}, {tmp_path / "data": NEW_TABLES})

    assert before == snapshot(tmp_path)


def test_folder_that_can_neither_be_taken_back_is_told_and_the_earlier_one_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path / "data", OLD_TABLES)
    old = snapshot(tmp_path / "data")
    monkeypatch.setattr(os, "replace", Fault("replace", 1, errno.EIO))
    monkeypatch.setattr(os, "rename", Fault("rename", 3, errno.EIO, lasting=True))

    with pytest.raises(UserError) as error:
        output.write({tmp_path / "a.html": NEW}, {tmp_path / "data": NEW_TABLES})

    (aside,) = [path for path in tmp_path.iterdir() if path.name != "data"]
    assert str(error.value).endswith(f"; the earlier folder is kept as {aside}")
    assert old == snapshot(aside)


# --- the order of things ---


def steps(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> list[str]:
    """Run action and return what it flushed and renamed, by last name, in order."""
    seen: list[str] = []
    real = {name: getattr(os, name) for name in ("fsync", "replace", "rename")}

    def fsync(file: int) -> None:
        seen.append(f"flush {Path(f'/proc/self/fd/{file}').readlink().name}")
        real["fsync"](file)

    def renaming(name: str) -> Callable[..., None]:
        def rename(old: Path, new: Path) -> None:
            seen.append(f"rename {Path(old).name} {Path(new).name}")
            real[name](old, new)

        return rename

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fsync)
        for name in ("replace", "rename"):
            patch.setattr(os, name, renaming(name))
        patch.setattr(secrets, "token_hex", lambda _: "temp")
        action()
    return seen


def test_file_is_on_the_device_before_it_is_renamed_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = steps(monkeypatch, lambda: write_text(tmp_path / "a.txt", NEW))

    temp = ".cedana-poc-temp.tmp"
    assert made == [f"flush {temp}", f"rename {temp} a.txt", f"flush {tmp_path.name}"]


def test_folder_is_on_the_device_before_it_is_renamed_and_its_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = steps(monkeypatch, lambda: write_tables(tmp_path / "data", NEW_TABLES))

    temp = ".cedana-poc-temp.tmp"
    files = ["flush a.csv", "flush b.csv", "flush cedana-poc-data.json"]
    assert made == [*files, f"flush {temp}", f"rename {temp} data", f"flush {tmp_path.name}"]


def test_link_in_the_place_of_the_private_file_is_not_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "precious").write_text("kept")
    (tmp_path / ".cedana-poc-temp.tmp").symlink_to("precious")
    monkeypatch.setattr(secrets, "token_hex", lambda _: "temp")

    with pytest.raises(UserError, match="File exists"):
        write_text(tmp_path / "a.txt", NEW)

    assert (tmp_path / "precious").read_text() == "kept"


# --- real file systems ---


def test_full_disk_keeps_the_earlier_file_and_folder(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small") as small:
        write_text(small / "a.txt", "x" * 20_000)
        write_tables(small / "data", OLD_TABLES)
        before = snapshot(small)

        with pytest.raises(UserError, match="No space left on device"):
            write_text(small / "a.txt", "y" * 100_000)
        with pytest.raises(UserError, match="No space left on device"):
            write_tables(small / "data", {"a": (("x",), [("y" * 100_000,)])})

        assert before == snapshot(small)
        write_text(small / "a.txt", "z" * 20_000)


def test_disk_without_a_free_inode_is_found_before_the_work(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small", "size=64k,nr_inodes=2") as small:
        (small / "only").write_text("x")

        with pytest.raises(UserError, match="No space left on device"):
            output.check_writable(small / "a.txt")


def test_read_only_file_system_is_found_before_the_work(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small") as small:
        (small / "a.txt").write_text("old")
        make_read_only(small)

        for path, reason in (("a.txt", "is write-protected"), ("b.txt", "Read-only file system")):
            with pytest.raises(UserError, match=reason):
                output.check_writable(small / path)
        with pytest.raises(UserError, match="Read-only file system"):
            output.check_tables_folder(small / "data")

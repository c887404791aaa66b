"""Files are written whole, where the user said, and harmless to open."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from machine import NOBODY, ordinary_user
from writing import write_tables, write_text

from cedana_poc import output
from cedana_poc.errors import UserError

TABLES: dict[str, output.Table] = {
    "rows": (("reason", "rows"), [("steps", 3), ("pending", 1)]),
    "users": (("user", "node_hours"), [("user-3fa9c1", -1.5), ("unknown", "unknown")]),
}

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to act as another user")


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that another user may write to, as tmp_path never is."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def message(error: pytest.ExceptionInfo[UserError]) -> str:
    return str(error.value)


# --- files ---


def test_text_arrives_as_utf8_with_its_line_ends(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "größe\r\n☃\n")

    assert "größe\r\n☃\n".encode() == (tmp_path / "a.txt").read_bytes()
    assert names(tmp_path) == ["a.txt"]


def test_byte_that_was_not_utf8_is_written_as_an_escape(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "name \udcff")

    assert (tmp_path / "a.txt").read_bytes() == b"name \\udcff"


@pytest.mark.parametrize(("umask", "expected"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_new_file_gets_the_mode_the_umask_asks_for(
    tmp_path: Path, umask: int, expected: int
) -> None:
    before = os.umask(umask)
    try:
        write_text(tmp_path / "a.txt", "x")
        assert umask == os.umask(umask)
    finally:
        os.umask(before)

    assert expected == mode(tmp_path / "a.txt")


def test_replaced_file_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    path.chmod(0o640)

    write_text(path, "new")

    assert path.read_text() == "new"
    assert mode(path) == 0o640


@needs_root
def test_file_replaced_by_root_keeps_its_owner_and_group(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    os.chown(path, NOBODY, NOBODY)

    write_text(path, "new")

    assert (path.stat().st_uid, path.stat().st_gid) == (NOBODY, NOBODY)


@needs_root
def test_group_bits_are_not_handed_to_another_group(open_folder: Path) -> None:
    path = open_folder / "a.txt"
    path.write_text("old")
    path.chmod(0o666)

    with ordinary_user():
        write_text(path, "new")

    assert path.read_text() == "new"
    assert mode(path) == 0o606


def test_symbolic_link_stays_and_the_file_it_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    link = tmp_path / "latest.html"
    link.symlink_to("data/report.html")

    write_text(link, "first")
    write_text(link, "second")

    assert link.is_symlink()
    assert (tmp_path / "data" / "report.html").read_text() == "second"
    assert names(tmp_path / "data") == ["report.html"]


@needs_root
def test_symbolic_link_of_another_user_is_not_followed(open_folder: Path) -> None:
    link = open_folder / "report.html"
    link.symlink_to("precious")
    (open_folder / "precious").write_text("kept")
    os.lchown(link, NOBODY, NOBODY)

    for refused in (output.check_writable, lambda path: write_text(path, "x")):
        with pytest.raises(UserError) as error:
            refused(link)
        assert "symbolic link of another user; name the file itself" in message(error)

    assert (open_folder / "precious").read_text() == "kept"


def a_directory(folder: Path) -> Path:
    (folder / "out").mkdir()
    return folder / "out"


def a_link_to_itself(folder: Path) -> Path:
    (folder / "loop").symlink_to("loop")
    return folder / "loop"


def a_path_through_a_file(folder: Path) -> Path:
    (folder / "file").write_text("x")
    return folder / "file" / "out.html"


def a_pipe(folder: Path) -> Path:
    os.mkfifo(folder / "pipe")
    return folder / "pipe"


BAD_PATHS = {
    a_directory: "is a directory",
    a_link_to_itself: "Too many levels of symbolic links",
    a_path_through_a_file: "there is no folder",
    a_pipe: "is not a regular file",
    lambda folder: folder / "missing" / "out.html": "there is no folder",
    lambda folder: folder / ("n" * 300): "File name too long",
    lambda folder: Path("/dev/null"): "is not a regular file",
    lambda folder: Path(): "is a directory",
}


@pytest.mark.parametrize(("bad_path", "reason"), BAD_PATHS.items())
def test_path_that_cannot_be_written_fails_before_the_work_and_at_the_work(
    tmp_path: Path, bad_path: Path, reason: str
) -> None:
    path = bad_path(tmp_path)  # type: ignore[operator]
    before = sorted(tmp_path.iterdir())

    for refused in (output.check_writable, lambda each: write_text(each, "x")):
        with pytest.raises(UserError) as error:
            refused(path)
        assert reason in message(error)
        assert message(error).startswith(f"{path}: ")

    assert before == sorted(tmp_path.iterdir())
    assert not Path("/dev/null").is_file()


def test_check_leaves_no_file_and_keeps_the_earlier_one(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")

    output.check_writable(tmp_path / "a.txt")
    output.check_writable(tmp_path / "b.txt")

    assert names(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_folder_without_permission_is_refused_before_the_work(open_folder: Path) -> None:
    open_folder.chmod(0o555)

    with ordinary_user(), pytest.raises(UserError) as error:
        output.check_writable(open_folder / "out.html")

    assert f"{open_folder}/out.html: cannot be written: Permission denied; " in message(error)


def test_write_protected_file_is_refused(open_folder: Path) -> None:
    path = open_folder / "out.html"
    path.write_text("keep")
    path.chmod(0o444)

    for refused in (output.check_writable, lambda path: write_text(path, "x")):
        with ordinary_user(), pytest.raises(UserError, match="is write-protected"):
            refused(path)

    assert path.read_text() == "keep"


def test_folder_that_may_not_be_listed_still_takes_the_file(open_folder: Path) -> None:
    open_folder.chmod(0o333)

    with ordinary_user():
        write_text(open_folder / "a.txt", "x")

    open_folder.chmod(0o777)
    assert names(open_folder) == ["a.txt"]


def test_private_file_is_never_created_twice(tmp_path: Path) -> None:
    output.create_private(tmp_path / "key", b"first")

    with pytest.raises(FileExistsError):
        output.create_private(tmp_path / "key", b"second")

    assert (tmp_path / "key").read_bytes() == b"first"
    assert mode(tmp_path / "key") == 0o600
    assert names(tmp_path) == ["key"]


# --- JSON ---


def test_json_is_readable_text_and_keeps_order(tmp_path: Path) -> None:
    text = output.to_json({"b": "größe", "a": [1, 2.5, "unknown"]})

    assert text.startswith('{\n  "b": "größe",\n  "a": [')
    assert text.endswith("}\n")


def test_json_refuses_a_figure_that_json_does_not_have() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        output.to_json({"node_hours": float("nan")})


@given(st.dictionaries(st.text(), st.text(st.characters(exclude_categories=()))))
def test_any_text_survives_the_way_through_json(document: dict[str, str]) -> None:
    text = output.to_json(document)

    # A pair of lone surrogates is one character once it was written: compared as UTF-16.
    read = json.loads(text.encode("utf-8"))
    assert utf16(document) == utf16(read)


def utf16(document: dict[str, str]) -> list[bytes]:
    return [value.encode("utf-16", "surrogatepass") for value in document.values()]


# --- CSV ---

CELLS = st.one_of(
    st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text(), st.just("unknown")
)
FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", "=cmd|' /C calc'!A0"]


def read_back(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline=""), strict=True))


def as_shown(cell: output.Cell) -> str:
    """What a cell should read as, said without the module under test."""
    if not isinstance(cell, str):
        return repr(cell)
    return "'" + cell if cell[:1] and cell[:1] in "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20" else cell


@given(st.lists(st.tuples(CELLS, CELLS, CELLS)))
def test_any_table_reads_back_from_csv(rows: list[tuple[output.Cell, ...]]) -> None:
    text = output.to_csv((("a", "b", "c"), rows))

    assert [["a", "b", "c"], *([as_shown(cell) for cell in row] for row in rows)] == read_back(text)


@given(st.text(), st.sampled_from(FORMULAS))
def test_no_text_cell_starts_a_formula(tail: str, formula: str) -> None:
    header, row = read_back(output.to_csv((("=a",), [(formula + tail,)])))

    assert header == ["'=a"]
    assert [f"'{formula}{tail}"] == row


def test_negative_numbers_stay_numbers() -> None:
    assert output.to_csv((("a",), [(-1,), (-2.5,), (1e-7,)])) == '"a"\n-1\n-2.5\n1e-07\n'


def test_quote_comma_and_line_ends_are_kept_inside_quotes() -> None:
    text = output.to_csv((("a", "b"), [('5" wafer, x', "one\ntwo\r\nthree")]))

    assert text == '"a","b"\n"5"" wafer, x","one\ntwo\r\nthree"\n'


@pytest.mark.parametrize("figure", [float("nan"), float("inf"), float("-inf")])
def test_csv_refuses_a_figure_that_is_none(figure: float) -> None:
    with pytest.raises(ValueError, match="'unknown'"):
        output.to_csv((("a",), [(figure,)]))


# --- a folder of tables ---


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_tables_become_a_folder_with_a_list_of_its_files(tmp_path: Path) -> None:
    write_tables(tmp_path / "data", TABLES)

    assert names(tmp_path) == ["data"]
    assert contents(tmp_path / "data")["rows.csv"] == b'"reason","rows"\n"steps",3\n"pending",1\n'
    marker = json.loads((tmp_path / "data" / "cedana-poc-data.json").read_text())
    assert marker["schema"] == "cedana-poc/data/1"
    assert {"rows.csv", "users.csv"} == set(marker["files"])


def test_new_folder_gets_the_mode_the_umask_asks_for(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        write_tables(tmp_path / "data", TABLES)
    finally:
        os.umask(before)

    assert mode(tmp_path / "data") == 0o750
    assert mode(tmp_path / "data" / "rows.csv") == 0o640


def test_earlier_folder_of_this_tool_is_replaced_as_a_whole(tmp_path: Path) -> None:
    write_tables(tmp_path / "data", TABLES | {"old": (("a",), [])})
    (tmp_path / "data").chmod(0o750)

    output.check_tables_folder(tmp_path / "data")
    write_tables(tmp_path / "data", TABLES)

    assert names(tmp_path) == ["data"]
    assert {"cedana-poc-data.json", "rows.csv", "users.csv"} == set(contents(tmp_path / "data"))
    assert mode(tmp_path / "data") == 0o750


def test_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    write_tables(tmp_path / "data", TABLES)

    assert len(contents(tmp_path / "data")) == 3


def test_link_to_a_folder_stays_and_its_folder_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("data")

    write_tables(tmp_path / "latest", TABLES)
    write_tables(tmp_path / "latest", TABLES)

    assert (tmp_path / "latest").is_symlink()
    assert names(tmp_path) == ["data", "latest"]


def add_a_file(folder: Path) -> None:
    (folder / "notes.txt").write_text("mine")


def edit_a_table(folder: Path) -> None:
    (folder / "rows.csv").write_text("mine")


def put_a_link(folder: Path) -> None:
    (folder / "copy").write_bytes((folder / "rows.csv").read_bytes())
    (folder / "copy").rename(folder.parent / "elsewhere")
    (folder / "rows.csv").unlink()
    (folder / "rows.csv").symlink_to(folder.parent / "elsewhere")


def add_a_folder(folder: Path) -> None:
    (folder / "sub").mkdir()


def remove_the_marker(folder: Path) -> None:
    (folder / "cedana-poc-data.json").unlink()


def only_a_broken_marker(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()
    (folder / "cedana-poc-data.json").write_text("{}")


def cut_the_marker(folder: Path) -> None:
    (folder / "cedana-poc-data.json").write_text('{"schema": "cedana-poc/data/1", "fi')


def marker_of_another_schema(folder: Path) -> None:
    path = folder / "cedana-poc-data.json"
    path.write_text(path.read_text().replace("data/1", "data/2"))


FOREIGN = [
    add_a_file,
    edit_a_table,
    put_a_link,
    add_a_folder,
    remove_the_marker,
    only_a_broken_marker,
    cut_the_marker,
    marker_of_another_schema,
]


@pytest.mark.parametrize("change", FOREIGN)
def test_folder_with_anything_of_the_user_is_never_replaced(tmp_path: Path, change: object) -> None:
    write_tables(tmp_path / "data", TABLES)
    change(tmp_path / "data")  # type: ignore[operator]
    before = sorted((tmp_path / "data").iterdir())

    for refused in (output.check_tables_folder, lambda path: write_tables(path, TABLES)):
        with pytest.raises(UserError) as error:
            refused(tmp_path / "data")
        assert message(error).startswith(f"{tmp_path}/data: h")

    assert before == sorted((tmp_path / "data").iterdir())
    assert {"data", "elsewhere"} >= set(names(tmp_path))


def test_file_that_comes_while_the_tables_are_built_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path / "data", TABLES)
    real_build = output._build

    def build_while_the_user_works(*arguments: object) -> None:
        real_build(*arguments)  # type: ignore[arg-type]
        add_a_file(tmp_path / "data")

    monkeypatch.setattr(output, "_build", build_while_the_user_works)
    with pytest.raises(UserError) as error:
        write_tables(tmp_path / "data", TABLES)

    assert "holds notes.txt" in message(error)
    assert contents(tmp_path / "data")["notes.txt"] == b"mine"
    assert names(tmp_path) == ["data"]


@pytest.mark.parametrize(
    ("bad_path", "reason"),
    [
        (a_path_through_a_file, "there is no folder"),
        (a_pipe, "is not a directory"),
        (lambda folder: folder / "missing" / "data", "there is no folder"),
        (lambda folder: Path("/proc"), "is a mount point"),
    ],
)
def test_place_that_cannot_hold_the_folder_fails_before_the_work(
    tmp_path: Path, bad_path: object, reason: str
) -> None:
    path = bad_path(tmp_path)  # type: ignore[operator]

    for refused in (output.check_tables_folder, lambda each: write_tables(each, TABLES)):
        with pytest.raises(UserError, match=reason):
            refused(path)


def test_write_protected_folder_is_refused(open_folder: Path) -> None:
    (open_folder / "data").mkdir(mode=0o555)

    with ordinary_user(), pytest.raises(UserError, match="data: is write-protected; "):
        output.check_tables_folder(open_folder / "data")

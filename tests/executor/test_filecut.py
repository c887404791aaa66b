"""Whatever happened to the step's files since, putting back gives exactly what was cut."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as some
from machine import NOBODY, ordinary_user, small_file_system
from proving import examples
from storage import cut_of, folder_of_everyone, inodes, make_stepdir, regular, sealed, seen

from snakemake_executor_plugin_cedana.runner import durable, filecut, store
from snakemake_executor_plugin_cedana.runner.filecut import (
    Cut,
    Damaged,
    Foreign,
    Own,
    finish,
    put_back,
    take,
)
from snakemake_executor_plugin_cedana.runner.generations import Catalog

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")


IN_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None  # noqa: S108 - flushing costs nothing


class Step:
    """A step with two own files, one of them in a folder, and an own folder."""

    def __init__(self, folder: Path) -> None:
        self.work = folder / "work"
        self.work.mkdir()
        self.stepdir = make_stepdir(folder)
        self.catalog = Catalog(self.stepdir, "k")
        self.catalog.probe()
        self.out, self.log = self.work / "results" / "out.txt", self.work / "step.log"
        self.folder = self.work / "tree"
        self.own = Own((self.out, self.log), (self.folder,))
        self.asides = 0

    def cut(self, previous: Cut | None = None) -> Cut:
        cut = cut_of(self.own, self.catalog, previous)
        return Cut.from_json(json.loads(json.dumps(cut.to_json())))

    def put_back(self, cut: Cut) -> Path:
        self.asides += 1
        aside = self.stepdir / "aside" / str(self.asides)
        put_back(cut, self.catalog.store, self.own, aside)
        return aside

    def seen(self) -> dict[str, tuple[object, ...]]:
        return seen(self.out, self.log, self.folder)


@pytest.fixture
def step(tmp_path: Path) -> Step:
    made = Step(tmp_path)
    made.out.parent.mkdir()
    made.out.write_text("first line\n")
    made.log.write_text("log\n")
    (made.folder / "inner" / "empty").mkdir(parents=True)
    (made.folder / "inner" / "a").write_bytes(b"a" * 5000)
    return made


# --- any files, any changes -----------------------------------------------------------------------

NAMES = some.sampled_from(
    ["a", "b", "c", os.fsdecode(b"\xff\xfe"), "new\nline", "-rf", "é" * 127, "link_remap.7", "$(x)"]
)
BELOW = some.lists(NAMES, min_size=1, max_size=3).map("/".join)
PLACES = some.sampled_from(["results/out.txt", "step.log"]) | BELOW.map("tree/{}".format)
BYTES = some.binary(max_size=60) | some.integers(0, 20_000).map(lambda size: b"\0" * size + b"end")
MODES = some.sampled_from([0o644, 0o600, 0o755, 0o444, 0o4755, *([0] if os.geteuid() == 0 else [])])
TIMES = some.integers(0, 2**33 * 10**9)

Action = Callable[[Path], None]


def make_room(path: Path) -> None:
    remove(path)
    for parent in path.parents:
        if os.path.lexists(parent) and (parent.is_symlink() or not parent.is_dir()):
            parent.unlink()
    path.parent.mkdir(parents=True, exist_ok=True)


def remove(path: Path) -> None:
    if any(above.is_symlink() for above in path.parents):
        return
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    elif os.path.lexists(path):
        path.unlink()


def write(data: bytes, mode: int, when: int) -> Action:
    def action(path: Path) -> None:
        make_room(path)
        path.write_bytes(data)
        path.chmod(mode)
        os.utime(path, ns=(when, when))

    return action


def link(target: str) -> Action:
    def action(path: Path) -> None:
        make_room(path)
        path.symlink_to(target)

    return action


def make_folder(mode: int) -> Action:
    def action(path: Path) -> None:
        make_room(path)
        path.mkdir()
        path.chmod(mode)

    return action


def make_fifo(path: Path) -> None:
    make_room(path)
    os.mkfifo(path)


def join(other: str) -> Action:
    """Give a path a second name."""

    def action(path: Path) -> None:
        if path.is_file() and not path.is_symlink():
            second = next(each for each in path.parents if each.name == "work") / other
            if second != path and path not in second.parents:
                make_room(second)
                if path.exists():
                    os.link(path, second)

    return action


def on_file(change: Callable[[Path], None]) -> Action:
    def action(path: Path) -> None:
        if path.is_file() and not path.is_symlink():
            change(path)

    return action


def append(data: bytes) -> Action:
    def change(path: Path) -> None:
        with path.open("ab") as file:
            file.write(data)

    return on_file(change)


def overwrite(path: Path) -> None:
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"#" * min(size, 3))


def replace_by_rename(data: bytes) -> Action:
    def change(path: Path) -> None:
        temp = path.with_name("t")
        if not temp.is_dir():
            temp.write_bytes(data)
            temp.rename(path)

    return on_file(change)


def move(other: str) -> Action:
    def action(path: Path) -> None:
        if os.path.lexists(path):
            to = next(each for each in path.parents if each.name == "work") / other
            if path != to and path not in to.parents and to not in path.parents:
                make_room(to)
                if os.path.lexists(path):
                    path.rename(to)

    return action


MAKE = (
    some.builds(write, BYTES, MODES, TIMES)
    | some.builds(link, some.sampled_from(["nowhere", "..", "/nowhere", "a", "../step.log"]))
    | some.builds(make_folder, some.sampled_from([0o755, 0o700, 0o555, 0o2770]))
    | some.just(make_fifo)
    | some.builds(join, PLACES)
)
CHANGE = (
    MAKE
    | some.just(remove)
    | some.builds(append, BYTES)
    | some.just(on_file(lambda path: os.truncate(path, path.stat().st_size // 2)))
    | some.just(on_file(overwrite))
    | some.builds(replace_by_rename, BYTES)
    | some.builds(move, PLACES)
    | some.builds(lambda mode: on_file(lambda path: path.chmod(mode)), MODES)
)


def steps_of(
    actions: some.SearchStrategy[Action], most: int
) -> some.SearchStrategy[list[tuple[str, Action]]]:
    return some.lists(some.tuples(PLACES, actions), max_size=most)


def apply(step: Step, todo: list[tuple[str, Action]]) -> None:
    for place, action in todo:
        action(step.work / place)


def opened(folder: Path) -> list[int]:
    return [os.open(path, os.O_RDONLY) for path in regular(folder)]


@settings(max_examples=examples(40))
@given(made=steps_of(MAKE, 12), changed=steps_of(CHANGE, 12))
def test_put_back_gives_exactly_what_was_cut(
    made: list[tuple[str, Action]], changed: list[tuple[str, Action]]
) -> None:
    """Bytes, modes, times, links, hard links, empty folders; every file has a new inode.

    Nothing that was made since is lost: it lies aside, unless a file of the cut has its name.
    """
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        step = Step(Path(folder))
        apply(step, made)
        before = step.seen()
        cut = step.cut()
        assert before == step.seen()
        old = inodes(step.work)
        handles = opened(step.work)  # so that no inode is free to be used again
        apply(step, changed)
        changed_to = step.seen()
        old |= inodes(step.work)
        handles += opened(step.work)
        note(f"{sorted(before)} then {sorted(changed_to)}")

        aside = step.put_back(cut)

        assert before == step.seen()
        assert not old & inodes(step.work)
        lost = {str(path.relative_to(aside)): path for path in aside.rglob("*") if path.is_file()}
        for path, (mode, _, content) in changed_to.items():
            if isinstance(content, tuple) and path not in before:
                assert content[0] == lost[path.lstrip("/")].read_bytes(), (path, mode)
        for handle in handles:
            os.close(handle)


@settings(max_examples=examples(40))
@given(made=steps_of(MAKE, 8), first=steps_of(CHANGE, 8), second=steps_of(CHANGE, 8))
def test_each_of_two_cuts_that_share_bytes_is_put_back(
    made: list[tuple[str, Action]],
    first: list[tuple[str, Action]],
    second: list[tuple[str, Action]],
) -> None:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        step = Step(Path(folder))
        apply(step, made)
        seen_at, cuts = [step.seen()], [step.cut()]
        apply(step, first)
        seen_at.append(step.seen())
        cuts.append(step.cut(cuts[0]))
        apply(step, second)

        for each in (1, 0, 1):
            step.put_back(cuts[each])

            assert seen_at[each] == step.seen()


# --- append ---------------------------------------------------------------------------------------


def test_file_that_grew_adds_only_its_new_bytes(step: Step) -> None:
    cut = step.cut()
    for count in range(1, 4):
        with step.out.open("a") as file:
            file.write("next line\n")

        cut = step.cut(cut)

        assert 10 == cut.new_bytes
        assert count + 1 == len(next(e for e in cut.entries if e.path == str(step.out)).parts)
    expected = step.seen()
    step.out.write_text("overwritten")
    step.put_back(cut)
    assert expected == step.seen()


def test_unchanged_files_add_nothing(step: Step) -> None:
    assert 0 == step.cut(step.cut()).new_bytes


def test_file_that_grew_but_was_changed_before_is_copied_whole(step: Step) -> None:
    cut = step.cut()
    step.log.write_text("LOG\nmore\n")  # in place: the same inode

    assert 9 == step.cut(cut).new_bytes


def test_file_of_another_inode_is_copied_whole(step: Step) -> None:
    cut = step.cut()
    new = step.log.with_name("new")
    new.write_text("log\nmore\n")
    new.rename(step.log)

    assert 9 == step.cut(cut).new_bytes


def test_part_that_was_swept_is_not_relied_on(step: Step) -> None:
    """The earlier cut may be of a generation that was abandoned."""
    cut = step.cut()
    step.catalog.store.sweep(set())

    again = step.cut(cut)

    assert again.bytes == again.new_bytes
    step.put_back(again)


def test_file_appended_to_for_long_is_copied_whole_once(
    step: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filecut, "MOST_PARTS", 3)
    cut, added = None, []
    for _ in range(5):
        with step.log.open("a") as file:
            file.write("x")
        cut = cut_of(Own((step.log,), ()), step.catalog, cut)
        added.append(cut.new_bytes)

    assert [5, 1, 1, 8, 1] == added


def test_frozen_time_has_no_flush_and_no_hash_but_of_earlier_bytes(step: Step) -> None:
    hashed: list[int] = []
    real = durable.sha256_of_range

    def counted(file: int, start: int, length: int) -> str:
        hashed.append(length)
        return real(file, start, length)

    def frozen_take(previous: Cut | None) -> Cut:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, "fsync", lambda _: pytest.fail("flushed while frozen"))
            patch.setattr(store, "sha256_of_range", lambda *_: pytest.fail("hashed while frozen"))
            patch.setattr(filecut, "sha256_of_range", counted)
            return take(step.own, step.catalog.store, previous)

    cut = finish(frozen_take(None), step.catalog.store)
    assert [] == hashed

    with step.out.open("a") as file:
        file.write("more")
    assert 4 == frozen_take(cut).new_bytes
    assert cut.bytes == sum(hashed)


# --- links and strangers --------------------------------------------------------------------------


def victim_of(step: Step) -> Path:
    victim = step.work.parent / "victim"
    victim.mkdir()
    (victim / "out.txt").write_text("not to be touched")
    (victim / "inner").mkdir()
    return victim


def test_link_in_place_of_a_file_is_replaced_and_not_followed(step: Step) -> None:
    expected, cut, victim = step.seen(), step.cut(), victim_of(step)
    step.out.unlink()
    step.out.symlink_to(victim / "out.txt")

    step.put_back(cut)

    assert expected == step.seen()
    assert "not to be touched" == (victim / "out.txt").read_text()


def test_link_in_place_of_an_own_folder_is_moved_aside_and_not_followed(step: Step) -> None:
    expected, cut, victim = step.seen(), step.cut(), victim_of(step)
    before = seen(victim)
    for place in (step.folder, step.folder / "inner"):
        shutil.rmtree(place)
        place.symlink_to(victim)

        aside = step.put_back(cut)

        assert expected == step.seen()
        assert before == seen(victim)
        assert victim == (aside / str(place).lstrip("/")).readlink()


def test_link_of_ours_on_the_way_is_followed_only_where_it_was_at_the_cut(step: Step) -> None:
    moved = step.work.parent / "big"
    step.out.parent.rename(moved)
    step.out.parent.symlink_to(moved)
    cut = step.cut()
    step.out.unlink()
    step.put_back(cut)
    assert "first line\n" == (moved / "out.txt").read_text()

    victim = victim_of(step)
    step.log.unlink()
    step.work.rename(step.work.with_name("true"))
    step.work.symlink_to(step.work.with_name("true"))
    with pytest.raises(Foreign, match="symbolic link") as told:
        step.put_back(cut)

    assert str(step.work) == told.value.file
    assert not (victim / "step.log").exists()


@needs_root
def test_link_of_another_user_on_the_way_is_never_followed(step: Step) -> None:
    cut, victim = step.cut(), victim_of(step)
    shutil.rmtree(step.out.parent)
    step.out.parent.symlink_to(victim)
    os.lchown(step.out.parent, NOBODY, NOBODY)

    for action in (lambda: step.put_back(cut), step.cut):
        with pytest.raises(Foreign, match=f"of user {NOBODY}") as told:
            action()
        assert str(step.out.parent) == told.value.file
    assert "not to be touched" == (victim / "out.txt").read_text()


@needs_root
def test_folder_of_another_user_in_place_of_an_own_one_is_moved_aside(step: Step) -> None:
    expected, cut = step.seen(), step.cut()
    os.chown(step.folder / "inner", NOBODY, NOBODY)

    aside = step.put_back(cut)

    assert expected == step.seen()
    assert (aside / str(step.folder).lstrip("/") / "inner" / "a").exists()


@pytest.mark.parametrize("place", ["/etc/passwd", "{work}/other", "{work}/link_remap.x"])
def test_cut_that_names_another_file_is_refused_before_anything_changes(
    step: Step, place: str
) -> None:
    cut = step.cut()
    step.log.unlink()
    path = place.format(work=step.work, out=step.out)
    crafted = replace(cut, entries=(*cut.entries, replace(cut.entries[0], path=path)))

    with pytest.raises(Foreign, match="none of the step's own files"):
        step.put_back(crafted)

    assert not step.log.exists()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("path", "/data/../etc/passwd"),
        ("path", "relative"),
        ("path", "//double"),
        ("path", "/a\0b"),
        ("path", 7),
        ("kind", "device"),
        ("mode", 0o10644),
        ("mode", -1),
        ("size", 3),
        ("parts", [["../../etc/passwd", 11, "0" * 64]]),
        ("parts", [["0" * 32, -11, "0" * 64]]),
        ("parts", [["0" * 32, 11, ""]]),
        ("mtime_ns", 1.5),
    ],
)
def test_crafted_cut_is_refused(step: Step, key: str, value: object) -> None:
    text = step.cut().to_json()
    entry = next(each for each in text["entries"] if each["path"] == str(step.out))
    assert 11 == entry["size"]
    entry[key] = value

    with pytest.raises(Damaged, match="cannot be read"):
        Cut.from_json(text)


LEAVES = some.none() | some.integers() | some.text(max_size=3)
KEYS = some.sampled_from(["schema", "entries", "links", "new_bytes", "path"])


@given(
    value=some.recursive(
        LEAVES, lambda inner: some.lists(inner, max_size=3) | some.dictionaries(KEYS, inner)
    )
)
def test_no_json_whatever_makes_the_reader_fall_over(value: object) -> None:
    try:
        Cut.from_json(value)
    except Damaged:
        return
    assert isinstance(value, dict)


@pytest.mark.parametrize("path", ["relative", "/a/../b", "/"])
def test_own_path_that_is_not_plain_is_refused(step: Step, path: str) -> None:
    with pytest.raises(Foreign, match="no file of a step"):
        take(Own((Path(path),), ()), step.catalog.store, None)


def test_own_folder_that_holds_the_store_is_refused(step: Step) -> None:
    for folder in (step.stepdir, step.stepdir.parent, step.catalog.store.folder):
        with pytest.raises(Foreign, match="its own copy"):
            take(Own((), (folder,)), step.catalog.store, None)


# --- what CRIU leaves, pipes, sockets, hard links, holes ------------------------------------------


def test_remapped_link_beside_an_own_file_is_put_back_and_others_are_left(step: Step) -> None:
    remapped = step.out.with_name("link_remap.12")
    remapped.write_text("unlinked, but open")
    cut = step.cut()
    remapped.unlink()
    others = step.out.with_name("link_remap.13"), step.out.with_name("other.txt")
    for other in others:
        other.write_text("another step's")

    step.put_back(cut)

    assert "unlinked, but open" == remapped.read_text()
    assert ["another step's"] * 2 == [other.read_text() for other in others]


def test_socket_is_left_as_it_is(step: Step, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(step.folder)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s")
        cut, before = step.cut(), (step.folder / "s").lstat()

        step.put_back(cut)

        assert before.st_ino == (step.folder / "s").lstat().st_ino


def test_hard_links_are_one_file_again(step: Step) -> None:
    os.link(step.out, step.folder / "b")
    os.link(step.out, step.log.with_name("outside"))
    cut = step.cut()
    step.out.unlink()
    (step.folder / "b").write_text("changed")

    step.put_back(cut)

    assert step.out.samefile(step.folder / "b")
    assert "first line\n" == step.out.read_text()
    assert "changed" == step.log.with_name("outside").read_text()


def test_holes_are_put_back(step: Step) -> None:
    with step.out.open("wb") as file:
        file.truncate(1 << 36)
        file.seek(1 << 26)
        file.write(b"data")
    os.truncate(step.out, 1 << 28)
    cut = step.cut()
    step.out.unlink()

    step.put_back(cut)

    assert 1 << 28 == step.out.stat().st_size
    assert step.out.stat().st_blocks * 512 < 100_000


def test_memory_mapped_writes_that_were_not_flushed_are_in_the_cut(step: Step) -> None:
    import mmap

    with step.out.open("r+b") as file, mmap.mmap(file.fileno(), 11) as mapped:
        cut = step.cut()
        mapped[0:5] = b"FIRST"
        cut = step.cut(cut)
        mapped[0:5] = b"later"
    step.put_back(cut)

    assert "FIRST line\n" == step.out.read_text()


def test_missing_parents_are_made_and_nothing_is_made_for_what_was_not_there(step: Step) -> None:
    step.log.unlink()
    cut = step.cut()
    shutil.rmtree(step.work)

    step.put_back(cut)

    assert "first line\n" == step.out.read_text()
    assert not step.log.exists()


def test_own_set_that_was_all_empty_puts_everything_aside(tmp_path: Path) -> None:
    step = Step(tmp_path)
    cut = step.cut()
    step.folder.mkdir()
    (step.folder / "new").write_text("new")
    step.log.write_text("new log")

    aside = step.put_back(cut)

    assert {} == step.seen()
    assert "new log" == (aside / str(step.log).lstrip("/")).read_text()


# --- damage, and calling again --------------------------------------------------------------------


def test_damaged_part_is_named_and_the_file_keeps_what_it_has(step: Step) -> None:
    cut = step.cut()
    part = next(e for e in cut.entries if e.path == str(step.out)).parts[0]
    stored = step.catalog.store.folder / part.name
    stored.write_bytes(b"F" + stored.read_bytes()[1:])
    step.out.write_text("now")

    with pytest.raises(Damaged, match=part.name):
        step.put_back(cut)

    assert "now" == step.out.read_text()
    assert ["out.txt"] == [path.name for path in step.out.parent.iterdir()]


def test_temps_of_a_killed_putting_back_are_removed_and_those_of_others_left(step: Step) -> None:
    """Also where the cut put back now has no such file, as after falling back a generation."""
    expected, cut = step.seen(), step.cut()
    name = f".cedana.{step.own.tag()}.{'0' * 16}"
    left = [folder / name for folder in (step.out.parent, step.folder, step.folder / "inner")]
    others = step.out.with_name(f".cedana.{'f' * 8}.{'0' * 16}")
    for path in (*left, others):
        path.write_text("half")

    aside = step.put_back(cut)

    assert expected == step.seen()
    assert not any(path.exists() for path in left)
    assert others.exists()
    assert not aside.exists()


def test_files_moved_aside_twice_are_both_kept(step: Step) -> None:
    cut = step.cut()
    aside = step.stepdir / "aside" / "same"
    for text in ("one", "two"):
        (step.folder / "new").write_text(text)
        put_back(cut, step.catalog.store, step.own, aside)

    mirrored = aside / str(step.folder).lstrip("/")
    assert {"one", "two"} == {path.read_text() for path in mirrored.iterdir()}


def test_files_are_moved_aside_to_another_file_system(step: Step) -> None:
    new = step.folder / "new"
    cut = step.cut()
    (new / "inner").mkdir(parents=True)
    (new / "inner" / "file").write_bytes(b"x" * 3000)
    os.utime(new / "inner" / "file", ns=(5, 5))
    (new / "link").symlink_to("inner")
    os.mkfifo(new / "fifo")
    expected = {path.name for path in new.rglob("*")}
    with small_file_system(step.work.parent / "disk", "size=1m") as place:
        place.chmod(0o700)
        aside = place / "aside" / "1"

        put_back(cut, step.catalog.store, step.own, aside)

        mirrored = aside / str(new).lstrip("/")
        assert not new.exists()
        assert expected == {path.name for path in mirrored.rglob("*")}
        assert 5 == (mirrored / "inner" / "file").stat().st_mtime_ns
        assert b"x" * 3000 == (mirrored / "inner" / "file").read_bytes()


def test_file_that_does_not_fit_aside_stays_where_it_is(step: Step) -> None:
    cut = step.cut()
    (step.folder / "new").write_bytes(b"x" * 500_000)
    with small_file_system(step.work.parent / "disk") as place:
        place.chmod(0o700)
        with pytest.raises(OSError, match="No space left"):
            put_back(cut, step.catalog.store, step.own, place / "aside" / "1")

    assert 500_000 == (step.folder / "new").stat().st_size
    step.put_back(cut)
    assert not (step.folder / "new").exists()


def test_ordinary_user_gets_folders_back_that_nobody_may_write() -> None:
    with folder_of_everyone() as folder, ordinary_user():
        step = Step(folder)
        inner = step.folder / "closed"
        inner.mkdir(parents=True)
        (inner / "a").write_text("a")
        inner.chmod(0o555)
        cut, expected = step.cut(), step.seen()
        for _ in range(2):
            inner.chmod(0o755)
            (inner / "new").mkdir()
            (inner / "new").chmod(0o555)
            inner.chmod(0o000)

            step.put_back(cut)

            assert expected == step.seen()
        inner.chmod(0o755)


def test_thousands_of_small_files_take_few_descriptors_and_seconds(step: Step) -> None:
    for number in range(1000):
        path = step.folder / f"{number % 50}" / f"{number}"
        path.parent.mkdir(exist_ok=True)
        path.write_text(str(number))
    expected = step.seen()
    began = time.monotonic()
    cut = take(step.own, step.catalog.store, None)
    assert 5 > time.monotonic() - began
    cut = finish(cut, step.catalog.store)
    shutil.rmtree(step.folder)

    step.put_back(cut)

    assert expected == step.seen()
    assert 20 > len(list(Path("/proc/self/fd").iterdir()))


def test_generation_brings_the_cut_with_it(step: Step) -> None:
    expected = step.seen()
    sealed(step.catalog, step.own)
    shutil.rmtree(step.work)
    catalog = Catalog(step.stepdir, "k")
    [generation] = catalog.candidates()
    catalog.verify(generation)

    step.put_back(generation.cut)

    assert expected == step.seen()

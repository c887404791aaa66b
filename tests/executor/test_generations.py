"""A generation is published whole, once, and verified to the last byte; or it does not exist."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import Fault, faults
from machine import NOBODY
from storage import KEY, cut_of, make_stepdir, sealed

from snakemake_executor_plugin_cedana.runner import generations, sweep
from snakemake_executor_plugin_cedana.runner.cut import Cut, Own
from snakemake_executor_plugin_cedana.runner.durable import Damaged, Unsafe
from snakemake_executor_plugin_cedana.runner.filecut import take
from snakemake_executor_plugin_cedana.runner.generations import Catalog, Fenced, NoHardLinks

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
IMAGE = {"core-2.img": b"c" * 100, "pages-1.img": bytes(range(256)) * 64, "sub/fdinfo-2.img": b"f"}


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    return Catalog(make_stepdir(tmp_path), KEY)


@pytest.fixture
def own(tmp_path: Path) -> Own:
    (tmp_path / "out.txt").write_bytes(b"o" * 6000)
    return Own((tmp_path / "out.txt",), ())


def full(catalog: Catalog, own: Own) -> generations.Generation:
    """Seal a generation of an image with a folder in it and a file cut."""
    draft = catalog.begin(catalog.newest_number() + 1)
    for name, data in IMAGE.items():
        (draft.image / name).parent.mkdir(exist_ok=True)
        (draft.image / name).write_bytes(data)
    return catalog.seal(draft, cut_of(own, catalog), {"kernel": "6.1", "cpu": [1, 2.5]})


def everything(catalog: Catalog) -> list[str]:
    step = catalog.folder.parent
    return sorted(str(path.relative_to(step)) for path in step.rglob("*"))


def test_sealed_generation_is_found_and_verifies(catalog: Catalog, own: Own) -> None:
    made = full(catalog, own)

    [found] = Catalog(catalog.folder.parent, KEY).candidates()

    assert made == found
    assert 1 == catalog.newest_number() == found.number
    assert {"kernel": "6.1", "cpu": [1, 2.5]} == found.facts
    catalog.verify(found)


def test_candidates_come_newest_first(catalog: Catalog) -> None:
    for _ in range(12):
        sealed(catalog)

    assert list(range(12, 0, -1)) == [each.number for each in catalog.candidates()]


def test_catalog_that_was_never_begun_is_empty(catalog: Catalog) -> None:
    assert 0 == catalog.newest_number()
    assert [] == list(catalog.candidates())
    assert [] == catalog.prune(1)
    assert 0 == catalog.bytes_used()
    assert not catalog.folder.exists()


def test_everything_is_private_whatever_the_engine_and_the_umask_made_of_it(
    catalog: Catalog, own: Own
) -> None:
    earlier = os.umask(0)
    try:
        draft = catalog.begin(1)
        (draft.image / "pages-1.img").write_bytes(b"secret")
        (draft.image / "pages-1.img").chmod(0o666)
        (draft.image / "inner").mkdir(mode=0o777)
        catalog.seal(draft, cut_of(own, catalog), {})
    finally:
        os.umask(earlier)

    for path in catalog.folder.parent.rglob("*"):
        assert (0o700 if path.is_dir() else 0o600) == path.stat().st_mode & 0o7777, path


def test_unfinished_cut_is_not_sealed(catalog: Catalog, own: Own) -> None:
    draft = catalog.begin(1)

    with pytest.raises(ValueError, match="finished"):
        catalog.seal(draft, take(own, catalog.store, None), {})

    catalog.abandon(draft)
    assert ["generations", "store"] == everything(catalog)


@pytest.mark.parametrize("facts", [{"a": float("nan")}, {"a": Path("/")}])
def test_facts_that_are_no_json_are_not_sealed(catalog: Catalog, facts: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError)):
        catalog.seal(catalog.begin(1), Cut(), facts)

    assert 0 == catalog.newest_number()


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("x"), os.mkfifo])
def test_image_with_anything_but_files_is_not_sealed(
    catalog: Catalog, make: Callable[[Path], object]
) -> None:
    draft = catalog.begin(1)
    make(draft.image / "odd")

    with pytest.raises(Unsafe, match="odd is neither a file nor a folder"):
        catalog.seal(draft, Cut(), {})

    assert 0 == catalog.newest_number()


# --- damage ---------------------------------------------------------------------------------------


def stored_files(generation: generations.Generation) -> list[Path]:
    """Return every file a generation consists of: public manifest, manifest, image, parts."""
    catalog = generation.folder.parent
    return [
        catalog / f"{generation.number:06d}.json",
        generation.folder / "manifest.json",
        *(path for path in sorted(generation.image.rglob("*")) if path.is_file()),
        *(catalog.parent / "store" / part.name for part in generation.cut.parts()),
    ]


def rejected(catalog: Catalog) -> Damaged:
    """Verify the only candidate as a new runner would, and return why it is damaged."""
    fresh = Catalog(catalog.folder.parent, catalog.key)
    [found] = fresh.candidates()
    with pytest.raises(Damaged) as told:
        fresh.verify(found)
    return told.value


def own_copy(path: Path) -> None:
    """Make a file an inode of its own, as damage on a disk does not go through a name."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(data)


@pytest.mark.parametrize("at", [0, 0.5, 1])
def test_flipped_bit_anywhere_in_any_file_is_found_and_the_file_named(
    catalog: Catalog, own: Own, at: float
) -> None:
    files = stored_files(full(catalog, own))
    assert 6 == len(files)
    for path in files:
        data = path.read_bytes()
        for bit in range(8):
            damaged = bytearray(data)
            damaged[int(at * (len(data) - 1))] ^= 1 << bit
            own_copy(path)
            path.write_bytes(damaged)

            assert str(path) == rejected(catalog).file

        path.write_bytes(data)
    [found] = catalog.candidates()
    catalog.verify(found)


def test_flipped_bit_at_any_byte_of_a_manifest_is_found(catalog: Catalog) -> None:
    draft = catalog.begin(1)
    (draft.image / os.fsdecode(b"\xff\xe9")).write_bytes(b"")
    generation = catalog.seal(draft, Cut(), {"host": "é\n", "seconds": 1.5e-7})
    public = stored_files(generation)[0]
    data = public.read_bytes()
    for place in range(len(data)):
        for bit in (0, 5, 7):
            damaged = bytearray(data)
            damaged[place] ^= 1 << bit
            public.write_bytes(damaged)

            assert public.name == Path(rejected(catalog).file).name, damaged


@pytest.mark.parametrize("less", [1, 4096, None])
def test_file_cut_short_is_found_and_named(catalog: Catalog, own: Own, less: int | None) -> None:
    for path in stored_files(full(catalog, own)):
        data = path.read_bytes()
        own_copy(path)
        os.truncate(path, max(0, len(data) - less) if less else 0)

        assert str(path) == rejected(catalog).file
        path.write_bytes(data)


def test_missing_file_is_found_and_named(catalog: Catalog, own: Own) -> None:
    for path in stored_files(full(catalog, own))[1:]:
        moved = catalog.folder.parent / "moved"
        path.rename(moved)

        found = rejected(catalog)

        assert (str(path), "is missing") == (found.file, found.why)
        moved.rename(path)


def test_file_too_many_is_found_and_named(catalog: Catalog, own: Own) -> None:
    generation = full(catalog, own)
    for path in (generation.image / "x.img", generation.image / "sub/x", generation.folder / "x"):
        path.touch()

        assert str(path) == rejected(catalog).file
        path.unlink()


def test_swapped_files_are_found(catalog: Catalog, own: Own) -> None:
    (own.files[0]).write_bytes(b"q" * 100)
    files = stored_files(full(catalog, own))
    one, other = files[2], files[-1]
    assert one.stat().st_size == other.stat().st_size
    one.rename(one.with_name("t"))
    other.rename(one)
    (one.with_name("t")).rename(other)

    assert rejected(catalog).file in (str(one), str(other))


def test_link_in_place_of_any_file_or_folder_is_found(catalog: Catalog, own: Own) -> None:
    generation = full(catalog, own)
    folders = [generation.folder, generation.image, generation.image / "sub", catalog.store.folder]
    for path in [*stored_files(generation), *folders]:
        moved = catalog.folder.parent / "moved"
        path.rename(moved)
        path.symlink_to(moved)

        assert str(path) == rejected(catalog).file
        path.unlink()
        moved.rename(path)


@needs_root
def test_file_of_another_user_is_found(catalog: Catalog, own: Own) -> None:
    generation = full(catalog, own)
    for path in [*stored_files(generation), generation.folder, generation.image]:
        os.chown(path, NOBODY, NOBODY)

        assert rejected(catalog).why.startswith("belongs to")
        os.chown(path, 0, 0)


@pytest.mark.parametrize("open_to", ["folder", "image"])
def test_folder_that_was_opened_to_others_is_found(catalog: Catalog, open_to: str) -> None:
    getattr(sealed(catalog), open_to).chmod(0o770)

    assert "open to others" in rejected(catalog).why


def test_generation_of_another_key_is_rejected(catalog: Catalog, tmp_path: Path) -> None:
    sealed(catalog)
    other = Catalog(catalog.folder.parent, "6" * 40)
    [found] = other.candidates()

    with pytest.raises(Damaged, match=f"key {KEY}"):
        other.verify(found)


def test_generation_under_another_number_is_rejected(catalog: Catalog) -> None:
    sealed(catalog)
    os.rename(catalog.folder / "000001.json", catalog.folder / "000002.json")  # noqa: PTH104
    [found] = catalog.candidates()

    with pytest.raises(Damaged, match="number 1, not 2"):
        catalog.verify(found)


def test_generation_of_another_uid_is_rejected(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: 0)
        generation = sealed(catalog)
    text = json.loads((catalog.folder / "000001.json").read_text())
    text["manifest"]["uid"] = 4711
    from snakemake_executor_plugin_cedana.runner.manifest import _fixed_form

    (catalog.folder / "000001.json").write_bytes(_fixed_form(text["manifest"]))
    assert 1 == generation.number
    assert "is of user 4711" in rejected(catalog).why


def test_generation_of_a_newer_version_is_refused_by_name(catalog: Catalog) -> None:
    sealed(catalog)
    public = catalog.folder / "000001.json"
    public.write_text(public.read_text().replace('"schema":1,"uid"', '"schema":2,"uid"'))

    assert "schema 2, which this version cannot read" in rejected(catalog).why


def test_generation_copied_to_another_place_still_verifies(catalog: Catalog, own: Own) -> None:
    """A copy has no hard links; sealing goes on there and pruning takes nothing needed."""
    full(catalog, own)
    shutil.copytree(catalog.folder.parent, catalog.folder.parent.with_name("copy"))
    copy = Catalog(catalog.folder.parent.with_name("copy"), KEY)

    assert [] == copy.prune(1)
    sealed(copy)

    for found in copy.candidates():
        copy.verify(found)


# --- one owner ------------------------------------------------------------------------------------


def test_number_is_published_once(catalog: Catalog) -> None:
    other = Catalog(catalog.folder.parent, KEY)
    ours, theirs = catalog.begin(1), other.begin(1)
    other.seal(theirs, Cut(), {"by": "them"})

    with pytest.raises(Fenced):
        catalog.seal(ours, Cut(), {"by": "us"})
    with pytest.raises(Fenced):
        catalog.begin(1)

    catalog.abandon(ours)
    assert [{"by": "them"}] == [each.facts for each in catalog.candidates()]
    assert 4 == len(everything(catalog)) - 2


def published_meanwhile(catalog: Catalog, numbers: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have another runner publish these numbers, and prune, just before our link."""
    real = os.link

    def late(*args: object, **options: object) -> None:
        monkeypatch.setattr(os, "link", real)
        other = Catalog(catalog.folder.parent, KEY)
        for number in numbers:
            other.seal(other.begin(number), Cut(), {"by": "them"})
        for number in numbers[:-2]:
            (catalog.folder / f"{number:06d}.json").unlink()
        real(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "link", late)


@pytest.mark.parametrize("last", [1, 5])
def test_runner_that_is_late_by_a_moment_is_fenced(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """Also where the others have gone on, and pruned the number it wants."""
    draft = catalog.begin(1)
    published_meanwhile(catalog, range(1, last + 1), monkeypatch)

    with pytest.raises(Fenced):
        catalog.seal(draft, Cut(), {"by": "us"})

    assert {"them"} == {each.facts["by"] for each in catalog.candidates()}
    assert last == catalog.newest_number()


@pytest.mark.parametrize("code", [errno.EEXIST, errno.EIO, errno.ESTALE])
def test_link_whose_reply_was_lost_is_ours(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    real, draft = os.link, catalog.begin(1)

    def lost(*args: object, **options: object) -> None:
        real(*args, **options)  # type: ignore[arg-type]
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "link", lost)

    catalog.verify(catalog.seal(draft, Cut(), {}))


def test_link_that_fails_publishes_nothing(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = catalog.begin(1)
    assert Fault("link", 1, errno.EIO).fails(lambda: catalog.seal(draft, Cut(), {}))

    catalog.abandon(draft)
    assert ["generations", "store"] == everything(catalog)


def test_draft_of_a_runner_that_lost_its_lease_is_swept_and_cannot_be_sealed(
    catalog: Catalog, own: Own
) -> None:
    draft = catalog.begin(1)
    cut = cut_of(own, catalog)

    Catalog(catalog.folder.parent, KEY).prune(2)

    with pytest.raises((OSError, Damaged, Unsafe)):
        catalog.seal(draft, cut, {})
    assert 0 == catalog.newest_number()


@pytest.mark.parametrize("during", ["names", "rename", "unlink"])
def test_sweeping_while_another_seals_loses_nothing_published(
    catalog: Catalog, own: Own, monkeypatch: pytest.MonkeyPatch, during: str
) -> None:
    """Whenever it seals, what it has published verifies; or it could not publish."""
    other = Catalog(catalog.folder.parent, KEY)
    draft, cut = other.begin(1), cut_of(own, other)
    done: list[object] = []

    def seal_now(result: object = None) -> object:
        if not done:
            done.append(None)
            try:
                other.seal(draft, cut, {})
            except (OSError, Damaged, Unsafe) as error:
                done.append(error)
        return result

    if during == "names":
        real_names = catalog.store.names
        monkeypatch.setattr(catalog.store, "names", lambda: seal_now(real_names()))
    else:
        owner = os if during == "unlink" else Path
        real = getattr(owner, during)
        monkeypatch.setattr(owner, during, lambda *a, **o: [seal_now(), real(*a, **o)][1])

    catalog.prune(2)

    assert done
    for found in catalog.candidates():
        catalog.verify(found)
    assert [1] * (len(done) == 1) == [found.number for found in catalog.candidates()]


def test_draft_begun_while_another_sweeps_keeps_its_parts(
    catalog: Catalog, own: Own, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins after the drafts were given up and is published after the manifests were read."""
    other = Catalog(catalog.folder.parent, KEY)
    begun: list[tuple[generations.Draft, Cut]] = []
    give_up, remove = sweep._give_up_drafts, catalog.store.remove

    def give_up_then_begin(folder: Path) -> None:
        give_up(folder)
        begun.append((other.begin(1), cut_of(own, other)))

    def seal_then_remove(names: set[str]) -> None:
        other.seal(*begun[0], {})
        remove(names)

    catalog.probe()
    monkeypatch.setattr(sweep, "_give_up_drafts", give_up_then_begin)
    monkeypatch.setattr(catalog.store, "remove", seal_then_remove)

    catalog.prune(2)

    [found] = catalog.candidates()
    catalog.verify(found)


def seal_many(stepdir: Path, own: Own, count: int, start: object, results: object) -> None:
    start.wait()  # type: ignore[attr-defined]
    catalog, fenced = Catalog(stepdir, KEY), 0
    won: list[int] = []
    while len(won) + fenced < count:
        number = catalog.newest_number() + 1
        try:
            draft = catalog.begin(number)
        except Fenced:
            fenced += 1
            continue
        (draft.image / "core.img").write_text(f"{os.getpid()} {number}")
        try:
            catalog.seal(draft, Cut(), {"pid": os.getpid()})
            won.append(number)
        except Fenced:
            fenced += 1
    results.put((os.getpid(), won))  # type: ignore[attr-defined]


@pytest.mark.parametrize("writers", [2, 8])
def test_no_number_is_sealed_twice(catalog: Catalog, own: Own, writers: int) -> None:
    catalog.probe()
    context = multiprocessing.get_context("fork")
    start, results = context.Barrier(writers), context.Queue()
    arguments = (catalog.folder.parent, own, 40, start, results)
    running = [context.Process(target=seal_many, args=arguments) for _ in range(writers)]
    for each in running:
        each.start()
    won = dict(results.get(timeout=120) for _ in running)
    for each in running:
        each.join()

    numbers = sorted(number for each in won.values() for number in each)
    assert list(range(1, len(numbers) + 1)) == numbers
    assert numbers[-1] == catalog.newest_number()
    for found in catalog.candidates():
        catalog.verify(found)
        assert found.number in won[found.facts["pid"]]
        expected = f"{found.facts['pid']} {found.number}"
        assert expected == (found.image / "core.img").read_text()


# --- faults ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("write", errno.ENOSPC),
        ("fsync", errno.EIO),
        ("open", errno.EDQUOT),
        ("close", errno.EDQUOT),
        ("fchmod", errno.EIO),
        ("mkdir", errno.ENOSPC),
        ("chmod", errno.EIO),
        ("link", errno.EROFS),
        ("copy_file_range", errno.ENOSPC),
        ("ftruncate", errno.EDQUOT),
    ],
)
def test_fault_at_any_call_leaves_nothing_and_the_next_attempt_succeeds(
    catalog: Catalog, own: Own, name: str, code: int
) -> None:
    """Only a fault after the link, when the folder is flushed, leaves the new generation."""
    full(catalog, own)
    for fault in faults(name, code):
        newest, before = catalog.newest_number(), everything(catalog)
        draft = None

        def attempt() -> None:
            nonlocal draft
            draft = catalog.begin(newest + 1)  # noqa: B023
            (draft.image / "core.img").write_bytes(b"core")
            catalog.seal(draft, cut_of(own, catalog), {})

        failed = fault.fails(attempt)
        if draft:
            catalog.abandon(draft)

        assert fault.hit == failed
        if failed and catalog.newest_number() == newest:
            assert before == everything(catalog)
        for found in catalog.candidates():
            catalog.verify(found)
        full(catalog, own)
        catalog.prune(2)


# --- pruning --------------------------------------------------------------------------------------


def numbers(catalog: Catalog) -> list[int]:
    return [each.number for each in catalog.candidates()]


def test_prune_keeps_the_newest_and_what_they_share(catalog: Catalog, own: Own) -> None:
    cut = None
    for _ in range(5):
        draft = catalog.begin(catalog.newest_number() + 1)
        with own.files[0].open("a") as file:
            file.write("more")
        cut = cut_of(own, catalog, cut)
        catalog.seal(draft, cut, {})

    assert [2, 1] == catalog.prune(3)

    assert [5, 4, 3] == numbers(catalog)
    for found in catalog.candidates():
        catalog.verify(found)
    assert 3 == sum(path.is_dir() for path in catalog.folder.iterdir())
    assert 5 == len(catalog.store.names())  # the newest file consists of all five


@pytest.mark.parametrize("damaged", [{5}, {4}, {5, 4}, {5, 3}, {4, 3, 2}])
def test_prune_keeps_the_last_two_that_verify(catalog: Catalog, damaged: set[int]) -> None:
    for _ in range(5):
        sealed(catalog)
    for number in damaged:
        [found] = (each for each in catalog.candidates() if each.number == number)
        (found.image / "core.img").write_bytes(b"damaged")

    Catalog(catalog.folder.parent, KEY).prune(1)

    good = [number for number in numbers(catalog) if number not in damaged]
    assert [n for n in (5, 4, 3, 2, 1) if n not in damaged][:2] == good
    assert 5 == catalog.newest_number()


def test_prune_leaves_the_parts_of_a_generation_it_cannot_read(catalog: Catalog, own: Own) -> None:
    generation = full(catalog, own)
    public = catalog.folder / "000001.json"
    data = public.read_bytes()
    public.write_bytes(data[:-1])

    Catalog(catalog.folder.parent, KEY).prune(1)

    public.write_bytes(data)
    catalog.verify(generation)


def test_prune_leaves_a_draft_that_is_being_made(catalog: Catalog, own: Own) -> None:
    draft = catalog.begin(1)
    cut = cut_of(own, catalog)

    catalog.prune(2)

    catalog.verify(catalog.seal(draft, cut, {}))


def test_prune_removes_what_killed_runners_left(catalog: Catalog, own: Own) -> None:
    full(catalog, own)
    expected = everything(catalog)
    killed = Catalog(catalog.folder.parent, KEY)
    killed.begin(2)
    cut_of(own, killed)
    (killed.begin(2).folder).rename(killed.folder / f"000002.{'0' * 16}.given-up")
    (killed.folder / f".probe.{'0' * 16}").touch()
    assert expected != everything(catalog)

    assert [] == Catalog(catalog.folder.parent, KEY).prune(2)

    assert expected == everything(catalog)


def test_bytes_used_counts_images_and_parts(catalog: Catalog, own: Own) -> None:
    own.files[0].write_bytes(b"x" * 1_000_000)
    full(catalog, own)

    assert 1_000_000 < catalog.bytes_used() < 1_200_000


# --- the file system ------------------------------------------------------------------------------


def test_probe_leaves_nothing(catalog: Catalog) -> None:
    catalog.probe()

    assert ["generations", "store"] == everything(catalog)


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOTSUP, errno.EMLINK])
def test_file_system_without_hard_links_is_refused(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.setattr(os, "link", Fault("link", 1, code))

    with pytest.raises(NoHardLinks, match="no hard links"):
        catalog.probe()

    assert ["generations", "store"] == everything(catalog)


def test_full_file_system_is_not_said_to_have_no_hard_links(catalog: Catalog) -> None:
    assert Fault("link", 1, errno.ENOSPC).fails(catalog.probe)


@needs_root
def test_folder_where_new_files_are_not_ours_is_refused(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with root squash, where root's files become nobody's."""
    monkeypatch.setattr(os, "fchmod", lambda file, _: os.chown(file, NOBODY, NOBODY))

    with pytest.raises(Unsafe, match=f"belongs to user {NOBODY}"):
        catalog.probe()


def test_store_that_others_can_enter_is_refused(catalog: Catalog) -> None:
    catalog.probe()
    catalog.store.folder.chmod(0o750)

    with pytest.raises(Unsafe, match="open to others"):
        catalog.begin(1)

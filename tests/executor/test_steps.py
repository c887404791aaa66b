"""Which step is it (key), what would it do (fingerprint), what is its own; its directory."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from snakemake_interface_common.exceptions import WorkflowError

from snakemake_executor_plugin_cedana.optin import opted_in, partly
from snakemake_executor_plugin_cedana.runner import spec
from snakemake_executor_plugin_cedana.stepdir import StepDirectory
from snakemake_executor_plugin_cedana.steps import (
    Step,
    changes,
    describe,
    digest,
    key_of,
    name_of,
    printable,
)

HOSTILE = ["a b", "it's", '"', "$(touch HACKED)", "`id`", "x\ny", "\x1b[31m", "ü", "-rf", ";"]
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


class Flagged(str):
    """A path with flags, as Snakemake has them."""

    flags: dict[str, bool]


def flagged(path: str, *flags: str) -> Flagged:
    made = Flagged(path)
    made.flags = dict.fromkeys(flags, True)
    return made


class FakeJob:
    """As much of a job as counts here."""

    def __init__(self, rule: str = "r", **more: Any) -> None:
        self.rule = SimpleNamespace(
            name=rule,
            shellcmd="echo",
            run_func_src=None,
            script=None,
            notebook=None,
            wrapper=None,
            cwl=None,
            conda_env=None,
            container_img=None,
            env_modules=None,
            shadow_depth=None,
        )
        self.wildcards_dict: dict[str, str] = {}
        self.input: list[str] = []
        self.output: list[str] = []
        self.log: list[str] = []
        self.benchmark: str | None = None
        self.resources: dict[str, Any] = {}
        self.non_derived_params: list[Any] = []
        for name, value in more.items():
            setattr(self, name, value)

    def is_group(self) -> bool:
        return False


class FakeGroup:
    def __init__(self, *jobs: FakeJob) -> None:
        self.jobs = jobs
        self.groupid = self.name = "g"
        self.input: list[str] = []

    def is_group(self) -> bool:
        return True


@given(st.dictionaries(TEXT, TEXT, max_size=4), st.lists(TEXT, max_size=4), st.randoms())
def test_key_does_not_depend_on_any_order(
    wildcards: dict[str, str], outputs: list[str], random: Any
) -> None:
    targets = [("a", wildcards), ("b", {})]
    shuffled_wildcards = dict(random.sample(list(wildcards.items()), len(wildcards)))
    shuffled = random.sample(outputs, len(outputs))

    expected = key_of(targets, outputs, "/w")
    assert expected == key_of([("b", {}), ("a", shuffled_wildcards)], shuffled, "/w")
    assert set(expected) <= set("0123456789abcdef")
    assert 40 == len(expected)


def test_rule_wildcards_outputs_and_folder_each_make_another_step() -> None:
    keys = {
        key_of([("a", {"s": "1"})], ["/w/o"], "/w"),
        key_of([("b", {"s": "1"})], ["/w/o"], "/w"),
        key_of([("a", {"s": "2"})], ["/w/o"], "/w"),
        key_of([("a", {"t": "1"})], ["/w/o"], "/w"),
        key_of([("a", {"s": "1"})], ["/w/p"], "/w"),
        key_of([("a", {"s": "1"})], ["/w/o"], "/v"),
        key_of([("a", {"s": "1"}), ("a", {"s": "1"})], ["/w/o"], "/w"),
    }
    assert 7 == len(keys)


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("code", {"shellcmd": "echo 2"}),
        ("code", {"shellcmd": None, "run_func_src": "x = 1"}),
        ("code", {"wrapper": "v1/bio/x"}),
        ("code", {"conda_env": "env.yaml"}),
        ("code", {"container_img": "docker://x"}),
        ("code", {"shadow_depth": "full"}),
    ],
)
def test_changed_rule_is_another_fingerprint_and_says_so(
    what: str, change: dict[str, Any], tmp_path: Path
) -> None:
    before, job = describe(FakeJob(), tmp_path), FakeJob()
    vars(job.rule).update(change)
    now = describe(job, tmp_path)

    assert before.key == now.key
    assert before.fingerprint != now.fingerprint
    assert [f"rule r: {what} changed"] == changes(before.parts, now.parts)


def test_changed_param_is_named(tmp_path: Path) -> None:
    before = describe(FakeJob(non_derived_params=[1, "a"]), tmp_path)
    now = describe(FakeJob(non_derived_params=[2, "a"]), tmp_path)

    assert ["rule r: params changed"] == changes(before.parts, now.parts)


def test_params_without_a_stable_text_do_not_change_by_themselves(tmp_path: Path) -> None:
    class Anything:
        pass

    def fingerprint() -> str:
        params = [Anything(), {"b", "a", "c"}, {"x": Anything()}]
        return describe(FakeJob(non_derived_params=params), tmp_path).fingerprint

    keep_alive = [Anything() for _ in range(10)]  # so that addresses differ
    first = fingerprint()
    keep_alive.append(Anything())
    assert first == fingerprint()


def test_changed_grown_added_and_lost_inputs_are_named(tmp_path: Path) -> None:
    for name in ("same", "touched", "grown"):
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (1, 1))
    before = describe(FakeJob(input=["same", "touched", "grown", "lost"]), tmp_path)
    os.utime(tmp_path / "touched", (2, 2))
    (tmp_path / "grown").write_text("xx")
    os.utime(tmp_path / "grown", (1, 1))
    now = describe(FakeJob(input=["same", "touched", "grown", "new"]), tmp_path)

    expected = [
        "input grown changed",
        "input touched changed",
        "input new was added",
        "input lost is gone",
    ]
    assert expected == changes(before.parts, now.parts)
    assert before.fingerprint != now.fingerprint


def test_own_files_are_outputs_logs_and_benchmark_but_no_pipes_or_services(tmp_path: Path) -> None:
    job = FakeJob(
        output=[
            flagged("out/a"),
            flagged("tmp", "temp"),
            flagged("d", "directory"),
            flagged("p", "pipe"),
            flagged("s", "service"),
            flagged("/abs/x"),
        ],
        log=["a.log"],
        benchmark="b.tsv",
    )
    step = describe(job, tmp_path)

    expected = sorted([*(f"{tmp_path}/{n}" for n in ("out/a", "tmp", "a.log", "b.tsv")), "/abs/x"])
    assert expected == list(step.files)
    assert [f"{tmp_path}/d"] == list(step.directories)


def test_group_owns_what_its_members_own(tmp_path: Path) -> None:
    group = FakeGroup(FakeJob("b", output=["2"]), FakeJob("a", output=["1"], log=["l"]))
    step = describe(group, tmp_path)

    assert [f"{tmp_path}/{name}" for name in ("1", "2", "l")] == list(step.files)
    assert "group g" == step.name
    assert {"rule a: code", "rule a: params", "rule b: code", "rule b: params"} == set(step.parts)


@pytest.mark.parametrize("value", HOSTILE)
def test_name_of_a_step_is_one_line_without_terminal_codes(value: str) -> None:
    name = name_of(FakeJob(wildcards_dict={"s": value}))

    assert name.isprintable()


@given(TEXT)
def test_printable_text_stays_as_it_is(text: str) -> None:
    assert printable(text).isprintable()
    if text.isprintable():
        assert text == printable(text)


@pytest.mark.parametrize("value", [1, "1", True])
def test_step_is_opted_in_by_cedana_1(value: Any) -> None:
    assert opted_in(FakeJob(resources={"cedana": value}))


@pytest.mark.parametrize("resources", [{}, {"cedana": 0}, {"cedana": "0"}, {"cedana": None}])
def test_step_is_not_opted_in_without_it(resources: dict[str, Any]) -> None:
    assert not opted_in(FakeJob(resources=resources))


@pytest.mark.parametrize("value", ["app", 2, "yes", -1])
def test_other_values_are_refused_by_rule_and_value(value: Any) -> None:
    with pytest.raises(WorkflowError, match=rf"^r: resource cedana={value!r} is not supported"):
        opted_in(FakeJob(resources={"cedana": value}))


def test_group_is_opted_in_if_all_members_are_and_names_those_that_are_not() -> None:
    yes, no = FakeJob("yes", resources={"cedana": 1}), FakeJob("no")

    assert opted_in(FakeGroup(yes, yes))
    assert not opted_in(FakeGroup(yes, no))
    assert ["no"] == partly(FakeGroup(yes, no))
    assert [] == partly(FakeGroup(no, no))


def made(root: Path, **parts: str) -> StepDirectory:
    step = Step("ab" * 20, parts, "r(s=x)", "r", {"s": "x"}, str(root), ("/o",), ("/d",), "test")
    return StepDirectory(root, step)


SETTINGS: dict[str, object] = {
    "workflow": "/w/Snakefile",
    "engine": "none",
    "criu": "",
    "interval": "auto",
    "mtbf": 86400,
    "lead_time": "auto",
    "keep_generations": 2,
    "max_bytes": 0,
    "dump_slots": 0,
    "slots_dir": "/s",
    "allow_uncheckpointed": True,
}


def test_runner_reads_the_spec_that_is_written(tmp_path: Path) -> None:
    directory = made(tmp_path, a="1")
    directory.open()
    directory.write_spec(SETTINGS, {"X": "1"})
    read = spec.read(directory.path)

    assert (directory.step.key, "r", {"s": "x"}) == (read.key, read.rule, read.wildcards)
    assert Path("/o") in read.own.files
    own = {Path("/d"), directory.path / "tmp", directory.path / "shadow"}
    assert own == set(read.own.directories)
    assert {"X": "1", "TMPDIR": str(directory.path / "tmp")} == read.environment
    assert "test" == read.check


def test_everything_is_for_its_owner_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        directory = made(tmp_path, a="1")
        directory.open()
        directory.write_spec(SETTINGS, {})
        directory.write_command("true")
    finally:
        os.umask(before)

    for path in [directory.path, *directory.path.rglob("*")]:
        assert not stat.S_IMODE(path.lstat().st_mode) & 0o077, path


def test_same_step_keeps_its_directory(tmp_path: Path) -> None:
    made(tmp_path, a="1").open()
    (made(tmp_path).path / "mine").touch()

    assert [] == made(tmp_path, a="1").open()
    assert (made(tmp_path).path / "mine").exists()


def test_directory_of_a_changed_step_is_moved_aside_with_its_generations(tmp_path: Path) -> None:
    before = made(tmp_path, a="1")
    before.open()
    (before.path / "generations" / "000001.json").touch()
    said = made(tmp_path, a="2").open()
    aside = next((tmp_path / "aside").iterdir())

    assert ["a changed", f"its old checkpoints are in {aside}"] == said
    assert (aside / "generations" / "000001.json").exists()
    assert 0 == made(tmp_path, a="2").newest_generation()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"parts": 3}', "null"])
def test_directory_whose_origin_cannot_be_read_is_moved_aside(tmp_path: Path, text: str) -> None:
    made(tmp_path, a="1").open()
    (made(tmp_path).path / "fingerprint.json").write_text(text)
    said = made(tmp_path, a="1").open()

    assert "cannot be read" in said[0]
    assert 1 == len(list((tmp_path / "aside").iterdir()))


def leave(directory: StepDirectory, **said: object) -> None:
    record = {"schema": 1, "allocation": "x", "rc": 0, "stopping": False, "signal": 0}
    record |= {"generation": 1, "restored": 0, "reason": "ended", "message": ""} | said
    (directory.path / "exit.json").write_text(json.dumps(record))


@pytest.mark.parametrize(("rc", "left"), [(0, 0), (1, 0), ("unknown", 1)])
def test_generations_of_a_step_that_had_its_end_are_dropped(
    tmp_path: Path, rc: int | str, left: int
) -> None:
    """Else a step that is run again on purpose would go on from before its end."""
    directory = made(tmp_path, a="1")
    directory.open()
    (directory.path / "generations" / "000001.json").touch()
    leave(directory, rc=rc)
    directory.forget_ended()

    assert left == directory.newest_generation()


def test_generations_of_an_interrupted_step_stay(tmp_path: Path) -> None:
    directory = made(tmp_path, a="1")
    directory.open()
    (directory.path / "generations" / "000001.json").touch()
    leave(directory, rc="unknown", reason="limit", stopping=True)
    directory.forget_ended()

    assert 1 == directory.newest_generation()


def test_exit_record_of_another_allocation_is_not_ours(tmp_path: Path) -> None:
    directory = made(tmp_path, a="1")
    directory.open()
    leave(directory)

    assert directory.exit_record("x") is not None
    assert directory.exit_record(None) is not None
    assert directory.exit_record("y") is None


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": 1}', '{"schema": 9}'])
def test_exit_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    directory = made(tmp_path, a="1")
    directory.open()
    (directory.path / "exit.json").write_text(text)

    assert directory.exit_record(None) is None


def test_nothing_is_removed_through_a_link(tmp_path: Path) -> None:
    directory = made(tmp_path / "root", a="1")
    (tmp_path / "root").mkdir(mode=0o700)
    directory.open()
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").touch()
    (directory.path / "tmp").rmdir()
    (directory.path / "tmp").symlink_to(victim)
    directory.drop_generations()

    assert (victim / "file").exists()


@given(st.dictionaries(TEXT, TEXT), st.dictionaries(TEXT, TEXT))
def test_fingerprints_are_equal_exactly_if_there_is_no_change_to_name(
    before: dict[str, str], now: dict[str, str]
) -> None:
    assert (digest(before) == digest(now)) == (not changes(before, now))

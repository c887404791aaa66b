"""What a runner is told and what it leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from processes import make_step

from snakemake_executor_plugin_cedana.runner import spec
from snakemake_executor_plugin_cedana.runner.spec import BadSpec, Exit

ENDED = Exit("7", 0, False, 0, 3, 2, "ended", "")


@pytest.fixture
def said(tmp_path: Path) -> dict[str, Any]:
    return make_step(tmp_path, "").said


def test_a_spec_is_read_as_it_was_written(tmp_path: Path) -> None:
    step = make_step(tmp_path, "", interval="auto", lead_time=90, shared_append=["/a/b"])
    found = spec.read(step.stepdir)

    assert ("auto", 90, (Path("/a/b"),)) == (found.interval, found.lead_time, found.shared_append)
    assert (step.workdir / "out.txt",) == found.own.files
    assert {"sample": "a"} == found.wildcards


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("schema", 2),
        ("key", ""),
        ("workdir", "relative"),
        ("engine", "magic"),
        ("interval", "often"),
        ("interval", -1),
        ("interval", True),
        ("interval", float("inf")),
        ("mtbf", 0),
        ("mtbf", "86400"),
        ("keep_generations", 0),
        ("keep_generations", 1.5),
        ("max_bytes", -1),
        ("own", []),
        ("own", {"files": ["x"], "directories": []}),
        ("own", {"files": ["/x"]}),
        ("shared_append", "/x"),
        ("shared_append", ["/x\0"]),
        ("allow_uncheckpointed", 1),
        ("environment", {"A": 1}),
        ("wildcards", None),
    ],
)
def test_a_field_that_cannot_be_meant_is_named(
    said: dict[str, Any], name: str, value: object
) -> None:
    with pytest.raises(BadSpec, match=name):
        spec.parse({**said, name: value})


def test_every_field_is_needed(said: dict[str, Any]) -> None:
    for name in said:
        with pytest.raises(BadSpec, match=name):
            spec.parse({key: value for key, value in said.items() if key != name})


def test_fields_of_newer_versions_are_left_alone(said: dict[str, Any]) -> None:
    assert spec.parse(said) == spec.parse({**said, "colour": "blue"})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_whatever_is_said_is_refused_in_words(said: object) -> None:
    with pytest.raises(BadSpec):
        spec.parse(said)


def test_a_runner_leaves_its_end_and_it_is_read_back(tmp_path: Path) -> None:
    spec.write_exit(tmp_path, ENDED)

    assert ENDED == spec.read_exit(tmp_path)
    assert 0o600 == (tmp_path / "exit.json").stat().st_mode & 0o777


def test_no_end_is_left_where_none_was_written(tmp_path: Path) -> None:
    assert spec.read_exit(tmp_path) is None


@pytest.mark.parametrize(
    "change", [{"schema": 9}, {"reason": "tired"}, {"rc": "many"}, {"rc": None}]
)
def test_an_end_that_no_runner_writes_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    spec.write_exit(tmp_path, ENDED)
    path = tmp_path / "exit.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(ValueError, match=r"exit\.json"):
        spec.read_exit(tmp_path)


def test_an_end_that_is_cut_is_refused(tmp_path: Path) -> None:
    spec.write_exit(tmp_path, ENDED)
    path = tmp_path / "exit.json"
    said = json.loads(path.read_text())
    del said["rc"]
    path.write_text(json.dumps(said))

    with pytest.raises(ValueError, match="does not say 'rc'"):
        spec.read_exit(tmp_path)

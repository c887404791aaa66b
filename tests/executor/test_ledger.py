"""The ledger: written by several, read by everybody, whole lines only."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from snakemake_executor_plugin_cedana.runner import ledger
from snakemake_executor_plugin_cedana.runner.ledger import Ledger

DOCS = Path(__file__).resolve().parents[2] / "docs"
SCHEMA = json.loads((DOCS / "ledger.schema.json").read_text())
TOLD: dict[str, dict[str, Any]] = {
    "submitted": {"partition": "gpu"},
    "assigned": {"arm": "on"},
    "started": {"after_failed_restores": 0},
    "restored": {"seconds": 0.5},
    "restore_failed": {"tried": 3, "reason": "damaged", "excerpt": "pages-1.img is short"},
    "wrong_node": {"reason": "kernel older"},
    "checkpoint": {
        "reason": "heartbeat",
        "frozen_seconds": 0.8,
        "hashing_seconds": 0.2,
        "total_seconds": 1.5,
        "image_bytes": 12,
        "cut_bytes": 3,
        "files": 2,
        "storage": "ext4",
    },
    "checkpoint_failed": {"reason": "no_space", "excerpt": "disk full"},
    "pruned": {"pruned": [1, 2]},
    "stopped": {"reason": "limit", "signal": 0},
    "exited": {"rc": 0},
    "output_verified": {"rc": "not asked for"},
}


def make(folder: Path, writer: str = "runner-7") -> Ledger:
    common = {"workflow": "w", "rule": "r", "wildcards": {"a": "b"}, "step": "k", "allocation": "7"}
    return Ledger(folder, writer, common)


def test_every_event_is_described_and_follows_the_schema(tmp_path: Path) -> None:
    for name, fields in TOLD.items():
        make(tmp_path / "ledger").write(name, **fields)
    text = (DOCS / "ledger.md").read_text()

    assert ledger.EVENTS == tuple(TOLD)
    for event in ledger.read(tmp_path / "ledger").events:
        jsonschema.validate(event, SCHEMA, cls=jsonschema.Draft202012Validator)
        assert f"`{event['event']}`" in text


@pytest.mark.parametrize("name", [*ledger.COMMON, "schema", "event", "time", "monotonic"])
def test_every_event_carries_what_all_events_carry(tmp_path: Path, name: str) -> None:
    make(tmp_path / "ledger").write("exited", rc=1)
    event = ledger.read(tmp_path / "ledger").events[0]

    assert event[name] not in (None, "")
    broken = {key: value for key, value in event.items() if key != name}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(broken, SCHEMA, cls=jsonschema.Draft202012Validator)


def test_what_is_not_known_is_the_word_unknown_and_never_null(tmp_path: Path) -> None:
    make(tmp_path / "ledger").write("restored", seconds=None, deep={"x": [None, float("nan")]})
    event = ledger.read(tmp_path / "ledger").events[0]

    assert ("unknown", {"x": ["unknown", "unknown"]}) == (event["seconds"], event["deep"])
    assert "null" not in (tmp_path / "ledger/runner-7.jsonl").read_text()


def test_a_line_that_broke_off_is_counted_and_swallows_no_event(tmp_path: Path) -> None:
    make(tmp_path / "ledger").write("exited", rc=1)
    path = tmp_path / "ledger/runner-7.jsonl"
    with path.open("ab") as file:
        file.write(path.read_bytes()[:40])
    make(tmp_path / "ledger").write("exited", rc=2)
    reading = ledger.read(tmp_path / "ledger")

    assert [1, 2] == [event["rc"] for event in reading.events]
    assert 1 == reading.unreadable


def test_events_of_several_writers_are_merged_by_time(tmp_path: Path) -> None:
    one, two = make(tmp_path / "ledger", "one"), make(tmp_path / "ledger", "two")
    for rc, writer in enumerate([one, two, two, one]):
        writer.write("exited", rc=rc)

    assert [0, 1, 2, 3] == [event["rc"] for event in ledger.read(tmp_path / "ledger").events]


def _write_many(folder: Path) -> None:
    for rc in range(100):
        make(folder, "same").write("exited", rc=rc, text="x" * 5000)


def test_processes_that_share_a_file_do_not_mix_their_lines(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    (tmp_path / "ledger").mkdir(mode=0o700)
    writers = [context.Process(target=_write_many, args=(tmp_path / "ledger",)) for _ in range(4)]
    for each in writers:
        each.start()
    for each in writers:
        each.join()
    reading = ledger.read(tmp_path / "ledger")

    assert (400, 0) == (len(reading.events), reading.unreadable)


def test_nobody_else_reads_the_ledger_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        make(tmp_path / "ledger").write("exited", rc=0)
    finally:
        os.umask(before)

    assert 0o700 == stat.S_IMODE((tmp_path / "ledger").stat().st_mode)
    assert 0o600 == stat.S_IMODE((tmp_path / "ledger/runner-7.jsonl").stat().st_mode)


def test_a_link_in_place_of_the_file_is_not_followed(tmp_path: Path) -> None:
    writer = make(tmp_path / "ledger")
    (tmp_path / "ledger/runner-7.jsonl").symlink_to(tmp_path / "victim")

    with pytest.raises(OSError, match="symbolic"):
        writer.write("exited", rc=0)
    assert not (tmp_path / "victim").exists()


def test_a_writer_cannot_name_a_file_elsewhere(tmp_path: Path) -> None:
    make(tmp_path / "ledger", "../../etc/x\n").write("exited", rc=0)

    assert [".._.._etc_x_.jsonl"] == [path.name for path in (tmp_path / "ledger").iterdir()]


def test_an_event_without_a_name_in_the_list_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no event 'finished'"):
        make(tmp_path / "ledger").write("finished")


def test_a_folder_that_is_not_there_holds_no_events(tmp_path: Path) -> None:
    assert ([], 0) == (ledger.read(tmp_path / "x").events, ledger.read(tmp_path / "x").unreadable)


@given(st.binary(max_size=200))
def test_any_line_is_an_event_or_unreadable(line: bytes) -> None:
    event = ledger.parse(line)

    assert event is None or event["schema"] == ledger.SCHEMA


@given(st.text(), st.dictionaries(st.text(), st.text(), max_size=3))
def test_any_names_are_read_as_they_were_written(rule: str, wildcards: dict[str, str]) -> None:
    line = json.dumps(ledger._plain({"rule": rule, "w": wildcards}), ensure_ascii=False)

    assert {"rule": rule, "w": wildcards} == json.loads(line)
    assert "\n" not in line

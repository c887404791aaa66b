"""The tables carry every figure of the document, and nothing that is not in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sample_analysis import hostile, no_runs, sample, unknown
from writing import write_tables

from cedana_poc.data_tables import USAGE, tables
from cedana_poc.output import Table, to_csv

NAMES = (
    *("by_kind", "by_state", "addressable", "rows", "partitions", "limit_bands", "sizes"),
    *("gpu_models", "users", "weeks", "elapsed_over_limit", "concentration", "repeats", "chains"),
    *("applications", "largest_runs", "quality", "inputs"),
)
DOCUMENTS = [sample, hostile, unknown, no_runs]


def dicts(table: Table) -> list[dict[str, Any]]:
    header, rows = table
    return [dict(zip(header, row, strict=True)) for row in rows]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_document_gives_every_table_with_whole_rows(
    document: Callable[[], dict[str, Any]], tmp_path: Path
) -> None:
    made = tables(document())

    assert tuple(made) == NAMES
    for header, rows in made.values():
        assert len(set(header)) == len(header)
        assert all(len(row) == len(header) for row in rows)
        assert all(isinstance(cell, (str, int, float)) for row in rows for cell in row)
        assert not any(isinstance(cell, bool) for row in rows for cell in row)
    write_tables(tmp_path / "data", made)
    assert len(list((tmp_path / "data").iterdir())) == len(NAMES) + 1


def numbers(value: Any) -> Iterator[float | int]:
    if isinstance(value, dict):
        for inner in value.values():
            yield from numbers(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from numbers(inner)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield value


def test_every_figure_of_the_lists_is_in_a_table() -> None:
    document = sample()
    shown = {cell for _, rows in tables(document).values() for row in rows for cell in row}
    wall = document["wall_ended"]
    parts = [
        *(document[key] for key in ("input", "rows", "by_state", "breakdowns", "concentration")),
        *(document[key] for key in ("repeats", "applications", "quality")),
        *(wall[key] for key in ("by_state", "addressable", "not_addressable", "largest_runs")),
        *(wall["by_kind"][key] for key in ("limit", "session", "limit_unknown")),
        wall["by_kind"]["not_the_limit"]["by_cause"],
        wall["by_kind"]["near_limit_other_state"]["reached_limit"],
        wall["by_kind"]["near_limit_other_state"]["by_state"]["CANCELLED"],
        document["elapsed_over_limit"]["runs"],
    ]

    assert set(numbers(parts)) <= shown


@pytest.mark.parametrize("usage", USAGE)
def test_rows_marked_wall_ended_add_up_to_what_is_exposed(usage: str) -> None:
    document = sample()
    made = tables(document)
    exposed = pytest.approx(document["wall_ended"][usage])

    assert exposed == sum(
        row[usage] for row in dicts(made["by_kind"]) if row["wall_ended"] == "yes"
    )
    assert exposed == sum(row[usage] for row in dicts(made["addressable"]))


def test_all_kinds_add_up_without_overlap() -> None:
    document = sample()
    kinds = document["wall_ended"]["by_kind"]
    keys = ("limit", "session", "limit_unknown", "near_limit_other_state", "not_the_limit")

    assert sum(row["runs"] for row in dicts(tables(document)["by_kind"])) == sum(
        kinds[key]["runs"] for key in keys
    )


def test_states_show_what_ended_at_or_near_the_limit() -> None:
    rows = {row["state"]: row for row in dicts(tables(sample())["by_state"])}

    assert rows["CANCELLED"]["wall_ended_runs"] == 188
    assert rows["CANCELLED"]["near_limit_runs"] == 188
    assert rows["NODE_FAIL"]["wall_ended_runs"] == 0


def test_rows_read_are_the_rows_in_runs_and_left_out() -> None:
    rows = dicts(tables(sample())["rows"])
    read = [row["rows"] for row in rows if row["fate"] == "read"]
    account = [row["rows"] for row in rows if row["fate"] in ("in runs", "left out")]

    assert read == [sum(account)]


def test_open_end_of_the_histogram_is_named() -> None:
    rows = dicts(tables(sample())["elapsed_over_limit"])

    assert (rows[0]["over_limit_from"], rows[0]["over_limit_to"]) == (0.0, 0.05)
    assert (rows[-1]["over_limit_from"], rows[-1]["over_limit_to"]) == (1.0, "open")
    assert {row["kill_band_from"] for row in rows} == {0.98}


def test_chain_is_one_row_an_attempt() -> None:
    rows = dicts(tables(sample())["chains"])
    third = [row for row in rows if row["chain"] == 3]

    assert [row["attempt"] for row in third] == [1, 2, 3]
    assert [row["limit_hours"] for row in third] == [8.0, 24.0, 72.0]
    assert {(row["escalating"], row["application"]) for row in third} == {("yes", "GROMACS")}


def test_table_without_its_columns_is_one_row_of_unknown() -> None:
    made = tables(unknown())

    for name in ("partitions", "weeks", "elapsed_over_limit", "concentration", "applications"):
        ((*cells,),) = made[name][1]
        assert set(cells) == {"unknown"}


def test_figure_that_is_unknown_stays_unknown_in_a_difference() -> None:
    rows = dicts(tables(unknown())["by_kind"])
    (before,) = [row for row in rows if row["part"] == "before_limit"]

    assert before["runs"] == 514
    assert before["node_hours"] == "unknown"


def test_no_run_gives_tables_without_rows() -> None:
    made = tables(no_runs())

    assert [] == made["partitions"][1] == made["chains"][1] == made["largest_runs"][1]
    assert to_csv(made["users"]).count("\n") == 1

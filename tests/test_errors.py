"""The sentence a user reads when something is wrong."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cedana_poc.errors import UserError, visible


def test_error_says_where_what_and_what_to_do() -> None:
    error = UserError("no State column", where="jobs.csv", hint="ask sacct for State")

    assert str(error) == "jobs.csv: no State column; ask sacct for State"


@pytest.mark.parametrize(
    ("where", "hint", "text"),
    [
        ("", "", "is empty"),
        ("a.csv", "", "a.csv: is empty"),
        ("", "export it again", "is empty; export it again"),
    ],
)
def test_parts_that_are_not_given_leave_no_punctuation(where: str, hint: str, text: str) -> None:
    assert str(UserError("is empty", where=where, hint=hint)) == text


def test_user_error_exits_with_two() -> None:
    assert UserError("x").exit_code == 2


def test_newline_and_escape_sequence_of_a_file_name_are_made_visible() -> None:
    error = UserError("not found", where="a\nb\x1b[31m.csv\x00\u202e\udcff")

    assert str(error) == r"a\nb\x1b[31m.csv\x00\u202e\udcff: not found"


def test_printable_text_of_any_script_is_left_alone() -> None:
    assert visible("größe ジョブ ☃ a\\b") == "größe ジョブ ☃ a\\b"


@given(st.text(st.characters(exclude_categories=())))
def test_visible_text_is_always_printable_and_encodable(text: str) -> None:
    shown = visible(text)

    assert shown.isprintable()
    shown.encode("utf-8")


def test_error_survives_the_way_back_from_a_worker_process() -> None:
    sent = pickle.dumps(UserError("what", where="where", hint="hint"))
    error = pickle.loads(sent)  # noqa: S301 - the bytes are our own

    assert str(error) == "where: what; hint"

"""What an operator reads, and pastes into a mail."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from sample_analysis import hostile, no_runs, sample, unknown

from cedana_poc.terminal import refusal, summary

DOCUMENTS = [sample, hostile, unknown, no_runs]
SHOWN = [(show, document) for show in (summary, refusal) for document in DOCUMENTS]
Document = dict[str, Any]


def line_with(text: str, words: str) -> str:
    (line,) = [line for line in text.splitlines() if words in line]
    return line


@pytest.mark.parametrize(("show", "document"), SHOWN)
def test_text_fits_80_columns_and_ends_with_one_line_break(
    show: Callable[[Document], str], document: Callable[[], Document]
) -> None:
    text = show(document())

    assert max(map(cell_len, text.splitlines())) <= 80
    assert text.endswith("\n")
    assert not text.endswith("\n\n")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_summary_is_not_longer_than_a_mail(document: Callable[[], Document]) -> None:
    """About 60 lines; a name as long as a paragraph may take a few more."""
    assert len(summary(document()).splitlines()) <= (68 if document is hostile else 62)


def test_summary_shows_both_ways_of_counting_first() -> None:
    lines = summary(sample()).splitlines()
    start = lines.index("WALL-ENDED RUNS")

    assert start < 12
    assert lines[start + 1 : start + 7] == [
        "  By number          2.6%   4,720 of 184,211 runs that ended",
        "  By node-hours     25.1%   42,898 of 170,942 node-hours (nodes touched)",
        "  By GPU-hours      31.2%   55,524 of 177,852 GPU-hours",
        "  By CPU-hours      27.1%   1,497,480 of 5,516,097 CPU-hours",
        "  Of capacity       11.4%   of the 262,080 node-hours that 120 nodes had",
        "These hours are exposed: the most that checkpoints could cover, not a loss.",
    ]


def test_summary_accounts_for_every_row() -> None:
    text = summary(sample())

    assert "707,430 read = 184,248 in runs + 523,182 left out; 14 repaired" in text
    assert "512,004 steps, 9,118 never started, 1,204 identical copies" in text
    assert "2026-06-01 00:00 to 2026-08-30 23:58, 91.0 days, Europe/Berlin" in text


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("Wall-ended: exposed", ["4,720", "42,898", "29,857", "55,524"]),
        ("TIMEOUT at the limit", ["3,912", "38,215", "27,904", "52,310"]),
        ("TIMEOUT of an idle session", ["611", "3,020", "812", "1,902"]),
        ("another state at the limit", ["188", "1,622", "1,100", "1,312"]),
        ("TIMEOUT that was not the limit", ["257", "2,710", "2,175", "3,097"]),
        ("All runs that ended", ["184,211", "170,942", "116,117", "177,852"]),
        ("Addressable: 52.0% of exposed", ["2,311", "22,299", "16,209", "29,559"]),
        ("not: checkpoints itself", ["430", "4,204", "3,069", "5,754"]),
        ("gpu-a100  ", ["2,171", "3.6%", "19,733", "35.0%"]),
        ("LAMMPS", ["built in, opt-in", "4,719", "11.0%"]),
    ],
)
def test_row_shows_its_figures(name: str, figures: list[str]) -> None:
    line = line_with(summary(sample()), name)

    assert re.split(" {2,}", line.strip())[-len(figures) :] == figures


def test_wall_ended_kinds_add_up_to_the_row_above_them() -> None:
    text = summary(sample())
    names = ("TIMEOUT at the", "of an idle session", "limit not in file", "another state at")
    runs = [int(line_with(text, name).split()[-4].replace(",", "")) for name in names]

    assert sum(runs) == 4720


def test_top_user_is_named_with_the_result_without_them() -> None:
    text = " ".join(summary(sample()).split())

    assert "user-3fa9c1 has 31.2% of the exposed node-hours" in text
    assert "Without this user 3,248 runs (2.0%), 29,514 node-hours (19.6%)" in text
    assert "38,201 GPU-hours (24.4%)" in text


def test_repeats_are_a_range_with_the_rate_of_false_matches() -> None:
    text = " ".join(summary(sample()).split())

    assert "of 3,544 wall-ended runs followed for 7 days" in text
    assert "certainly after 214 (2,812 node-hours), probably after 1,102 (11,205)" in text
    assert "ambiguously after 388 (3,902)" in text
    assert "False matches after completed runs: 4.3%. Too recent to tell: 368." in text


def test_warnings_come_before_what_could_not_be_checked_and_notes_are_left_out() -> None:
    quality = summary(sample()).partition("QUALITY\n")[2]
    states = re.findall(r"^  (\w+): ", quality, re.MULTILINE)

    assert states == ["warning", "warning", "unknown"]
    assert "the stamps carry no time zone" in quality


def test_long_lists_say_how_much_more_there_is() -> None:
    document = sample()
    document["rows"]["left_out"] |= {f"reason {n}": 1 for n in range(9)}
    document["quality"] *= 3

    text = " ".join(summary(document).split())

    assert ", 6 more reasons" in text
    assert "Snakemake workflow 2,574 6.0% and 4 more" in text
    assert text.endswith("and 5 more")


def test_good_quality_is_said_too() -> None:
    document = sample() | {"quality": [{"check": "days", "state": "ok", "detail": "all"}]}

    assert summary(document).endswith("\nQUALITY: no warning\n")


def test_unknown_is_said_and_never_shown_as_zero() -> None:
    text = summary(unknown())

    assert "By number       unknown   4,720 of 184,211 runs that ended" in text
    assert "By GPU-hours    unknown   GPU-hours: not in the input" in text
    assert "Of capacity     unknown   give the sizes of the nodes with --nodes FILE" in text
    assert line_with(text, "idle session ").split()[-4:] == ["611", *["unknown"] * 3]
    assert "PARTITIONS: unknown" in text
    assert "APPLICATIONS: unknown" in text
    assert re.search("^Repeats +unknown$", text, re.MULTILINE)
    assert re.search("^Top user +unknown", text, re.MULTILINE)
    assert not re.search(r"(?<![\d,.])0(\.0)?%?(?![\d,.])", text.partition("WALL-ENDED")[2])


def test_a_share_of_nothing_is_a_dash_and_not_unknown() -> None:
    """No GPUs, no COMPLETED run to try: nothing is hidden from anybody."""
    document = sample()
    wall = document["wall_ended"]
    for part in (document["totals"], wall, wall["without_top_user"]):
        part["gpu_hours"] = 0.0
    wall["share_of_gpu_hours"] = wall["without_top_user"]["share_of_gpu_hours"] = "unknown"
    document["repeats"].update(false_match_rate="unknown", completed_tested=0)
    document["breakdowns"]["partition"][0].update(share_of_node_hours="unknown", node_hours=0.0)
    text = summary(document)

    assert "  By GPU-hours          -   0.0 of 0.0 GPU-hours" in text
    assert "0.0 GPU-hours (-) are wall-ended" in " ".join(text.split())
    assert "False matches after completed runs: -." in " ".join(text.split())
    assert line_with(text, "gpu-a100  ").endswith("  -")


def test_with_a_node_list_an_unknown_share_of_capacity_points_to_the_checks() -> None:
    document = sample()
    document["wall_ended"]["share_of_capacity"] = "unknown"

    line = line_with(summary(document), "Of capacity")
    assert line == "  Of capacity     unknown   of the 262,080 node-hours of 120 nodes: see QUALITY"
    document["capacity"] = "unknown"
    assert "--nodes" not in summary(document)


def test_no_run_gives_no_figures_but_the_account_of_rows() -> None:
    text = summary(no_runs())

    assert "No run ended in the rows that were read" in text
    assert "523,182 read = 0 in runs + 523,182 left out" in text
    assert "%" not in text


@pytest.mark.parametrize(("show", "document"), SHOWN)
def test_words_for_accounting_evidence_are_kept(
    show: Callable[[Document], str], document: Callable[[], Document]
) -> None:
    assert not re.search(r"\b(lost|losing|fail\w*|wasted?)\b", show(document()), re.IGNORECASE)


def test_own_words_are_ascii() -> None:
    document = sample()
    document["options"]["partitions"] = document["breakdowns"]["partition"] = []

    assert summary(document).isascii()


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=300))
def test_text_of_the_input_never_controls_the_terminal(name: str) -> None:
    document = sample()
    document["breakdowns"]["partition"][0]["value"] = name
    document["applications"][0]["application"] = name
    document["wall_ended"]["top_user"]["user"] = name
    document["options"].update(timezone=name, partitions=[name])
    document["quality"] = [{"check": name, "state": "warning", "detail": name}]
    document["unreadable"] = [{"path": name, "line": 3, "problem": name}]

    for text in (summary(document), refusal(document)):
        assert all(line.isprintable() for line in text.split("\n"))
        assert max(map(cell_len, text.split("\n"))) <= 80
        text.encode("utf-8")


# --- too many unreadable rows ---


def test_refusal_has_no_result_but_says_what_was_read_and_what_to_do() -> None:
    document = sample()
    document["rows"]["left_out"]["unreadable"] = 12_000
    document["unreadable"] *= 20

    text = refusal(document)

    assert text.startswith("cedana-poc 0.1.0: no result, too many rows cannot be read\n")
    assert "12,000 of 707,430 rows (1.7%) cannot be read" in text
    assert text.count("no State: 7 of 29 fields") == 10
    assert "1204118" in text
    assert r"sacct -a -X -D -P --noconvert --delimiter=$'\x1f'" in text
    assert "--columns" in text
    for absent in ("node-hours", "WALL-ENDED", "exposed", "4,720"):
        assert absent not in text


def test_refusal_needs_nothing_but_the_account_of_rows() -> None:
    kept = ("tool", "rows", "unreadable")

    assert refusal({key: sample()[key] for key in kept})

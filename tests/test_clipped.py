"""What `sacct -T` does to a history, and what only looks like it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from command_line import cedana_poc
from traps import Row, analysed, printed, row

DAY = "%Y-%m-%dT%H:%M:%S"


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text)


def lasting(length: timedelta) -> str:
    """A duration as sacct prints it."""
    hours, rest = divmod(length.seconds, 3600)
    return f"{length.days}-{hours:02}:{rest // 60:02}:{rest % 60:02}"


def clipped(one: Row, since: datetime, until: datetime) -> Row | None:
    """The row as `sacct -T -S since -E until` prints it; None if the run is not in the window."""
    start, end = moment(one["Start"]), moment(one["End"])
    if start >= until or end <= since:
        return None
    start, end = max(start, since), min(end, until)
    stamps = {"Start": start.strftime(DAY), "End": end.strftime(DAY)}
    return {**one, **stamps, "Elapsed": lasting(end - start)}


def chunks(rows: Sequence[Row], days: int, *, last_second: bool) -> list[list[Row]]:
    """Exports of single days from 2 March 2026 on, clipped to each day."""
    length = timedelta(days=1, seconds=-1 if last_second else 0)
    firsts = [moment("2026-03-02T00:00:00") + timedelta(days=n) for n in range(days)]
    return [
        [cut for one in rows if (cut := clipped(one, first, first + length))] for first in firsts
    ]


def long_runs() -> list[Row]:
    """Twelve runs of 24 h that end at their limit, begun an hour apart on the afternoon of the 2nd.

    All of them cross midnight between the 2nd and the 3rd.
    """
    return [
        row(str(700 + n), "TIMEOUT", "1-00:00:10", "1-00:00:00",
            start=f"2026-03-02T{10 + n:02}:17:{n:02}", submit=f"2026-03-01T08:{n:02}:00")
        for n in range(12)
    ]  # fmt: skip


def written(folder: Path, rows: Sequence[Row], without: Sequence[str] = ()) -> Path:
    path = folder / f"{len(list(folder.iterdir()))}.psv"
    path.write_text(printed(rows, without=without))
    return path


def warnings(*paths: Path) -> list[str]:
    return [detail for state, detail in analysed(*paths).check("window edges")]


@pytest.mark.parametrize("last_second", [False, True])
@pytest.mark.parametrize("together", [False, True])
def test_runs_cut_in_two_by_day_chunks_are_told_first_and_are_no_requeues(
    tmp_path: Path, together: bool, last_second: bool
) -> None:
    """No half is at its limit: without the warning, a history without walls."""
    days = chunks(long_runs(), 2, last_second=last_second)
    parts = [[one for day in days for one in day]] if together else days
    told = analysed(*(written(tmp_path, part) for part in parts), zone="UTC")
    assert (24, 0) == (len(told.runs), told.document["wall_ended"]["runs"])
    first = told.document["quality"][0]
    assert ("window edges", "warning") == (first["check"], first["state"])
    assert first["detail"].startswith("12 runs were cut by sacct -T")
    assert "export without -T" in first["detail"]
    assert first["detail"].endswith("2026-03-03T00:00:00+00:00")
    assert ["note"] == [state for state, _ in told.check("requeues")]


def test_the_warning_is_in_the_summary_and_on_the_page(tmp_path: Path) -> None:
    days = chunks(long_runs(), 2, last_second=True)
    exports, page = [written(tmp_path, day) for day in days], tmp_path / "page.html"
    ended = cedana_poc("analyze", *exports, "--html", page)
    warning = "12 runs were cut by sacct -T"
    quality = " ".join(ended.out.partition("QUALITY")[2].split())
    assert quality.startswith(f"warning: window edges: {warning}")
    assert "export without -T" in quality
    assert warning in page.read_text()


def test_a_run_of_many_days_is_one_run_cut_and_its_instants_are_named(tmp_path: Path) -> None:
    one = row("70", "TIMEOUT", "5-00:00:00", "5-00:00:00", start="2026-03-02T12:00:00")
    days = chunks([one], 6, last_second=False)
    (detail,) = warnings(written(tmp_path, [row for day in days for row in day]))
    assert detail.startswith("1 runs were cut by sacct -T")
    midnights = ", ".join(f"2026-03-0{day}T00:00:00" for day in (3, 4, 5))
    assert detail.endswith(f"at {midnights} and 2 more")


def test_the_half_of_a_run_that_was_running_at_the_time_counts_as_a_half(tmp_path: Path) -> None:
    """A day is exported when it is over: the first half says RUNNING and is left out."""
    first, second = chunks(long_runs(), 2, last_second=False)
    running = [{**one, "State": "RUNNING"} for one in first]
    (detail,) = warnings(written(tmp_path, running), written(tmp_path, second))
    assert detail.startswith("12 runs were cut by sacct -T")


@pytest.mark.parametrize("without", [("JobID", "JobIDRaw"), ("Submit",)])
def test_halves_are_known_without_ids_or_without_submit(
    tmp_path: Path, without: tuple[str, ...]
) -> None:
    days = chunks(long_runs(), 2, last_second=True)
    path = written(tmp_path, [one for day in days for one in day], without=without)
    (detail,) = warnings(path)
    expected = "24 runs seem cut" if "JobID" in without else "12 runs were cut"
    assert detail.startswith(f"{expected} by sacct -T")


def test_one_window_begins_and_ends_with_many_runs(tmp_path: Path) -> None:
    early = long_runs()
    late = [
        {**one, "JobID": f"8{n}", "JobIDRaw": f"8{n}",
         "Start": one["Start"].replace("03-02", "03-05"),
         "End": one["End"].replace("03-03", "03-06")}
        for n, one in enumerate(early)
    ]  # fmt: skip
    since, until = moment("2026-03-03T00:00:00"), moment("2026-03-06T00:00:00")
    rows = [cut for one in [*early, *late] if (cut := clipped(one, since, until))]
    (detail,) = warnings(written(tmp_path, rows))
    assert detail.startswith("24 runs seem cut by sacct -T")


def test_with_s_only_starts_are_clipped_and_timeouts_fall_short_of_their_limit(
    tmp_path: Path,
) -> None:
    """-s lists a run only in the window it ended in."""
    ended = chunks(long_runs(), 2, last_second=False)[1]
    (detail,) = warnings(written(tmp_path, ended))
    assert detail.startswith("12 runs seem cut by sacct -T")


# --- what is no clipping --------------------------------------------------------------------------


def test_an_array_that_starts_at_one_instant_is_not_clipped(tmp_path: Path) -> None:
    rows = [
        row(f"90_{n}", "COMPLETED", f"0{n % 9}:10:0{n % 9}", "1-00:00:00",
            start="2026-03-02T00:00:00", submit="2026-03-01T15:00:00", jobidraw=f"90{n}")
        for n in range(40)
    ]  # fmt: skip
    assert [] == warnings(written(tmp_path, rows))


def test_jobs_that_waited_for_a_reservation_or_the_end_of_maintenance_are_not_clipped(
    tmp_path: Path,
) -> None:
    """They start together, and those in the reservation end together, below their limits."""
    rows = [
        row(str(100 + n), "TIMEOUT" if n < 20 else "COMPLETED", "04:00:00", "1-00:00:00",
            start="2026-03-02T08:00:00", submit=f"2026-03-01T08:{n:02}:00")
        for n in range(40)
    ]  # fmt: skip
    assert [] == warnings(written(tmp_path, rows))


def test_a_busy_cluster_where_many_end_and_start_every_second_is_not_clipped(
    tmp_path: Path,
) -> None:
    """12 end and 12 start in each of 10 minutes, on the minute, while 480 others run."""
    hour = moment("2026-03-02T08:00:00")
    rows = [
        row(str(1000 + 100 * n + k), "COMPLETED", "00:41:00", "01:00:00",
            start=(hour + timedelta(minutes=n)).strftime(DAY),
            submit=(hour - timedelta(hours=1, seconds=n * 100 + k)).strftime(DAY))
        for n in range(60) for k in range(12)
    ]  # fmt: skip
    assert [] == warnings(written(tmp_path, rows))


def test_waves_of_one_array_are_not_clipped(tmp_path: Path) -> None:
    """12 tasks end at one instant, the next 12 start at it, nothing else runs."""
    rows = [
        row(f"90_{n}", "COMPLETED", "01:00:00", "02:00:00",
            start=f"2026-03-02T{8 + n // 12:02}:00:00", submit="2026-03-02T07:00:00",
            jobidraw=f"90{n}")
        for n in range(48)
    ]  # fmt: skip
    assert [] == warnings(written(tmp_path, rows))


def test_a_resized_job_and_a_requeued_one_are_not_cut(tmp_path: Path) -> None:
    first = row("1", "RESIZING", "01:00:00", "04:00:00", nnodes="4")
    last = row("1", "TIMEOUT", "03:00:00", "04:00:00", start=first["End"], submit=first["Submit"])
    killed = row("2", "REQUEUED", "01:00:00", "04:00:00")
    again = row("2", "COMPLETED", "01:00:00", "04:00:00", start=killed["End"])
    told = analysed(written(tmp_path, [first, last, killed, again]))
    assert [] == told.check("window edges")
    assert ["ok"] == [state for state, _ in told.check("requeues")]


def test_copies_of_overlapping_exports_are_not_cut(tmp_path: Path) -> None:
    rows = long_runs()
    paths = [written(tmp_path, part) for part in (rows, rows[3:])]
    assert [] == warnings(*paths)

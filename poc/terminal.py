"""The analysis as plain text that fits a terminal, and a mail."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len, chop_cells, set_cell_size

from cedana_poc.errors import visible
from cedana_poc.tables import UNKNOWN, count, percent, ratio, rounded

WIDTH = 80
_LABEL = 12
_MOST_REASONS = 10
_MOST_PARTITIONS = 4
_MOST_APPLICATIONS = 5
_MOST_WARNINGS = 4
_MOST_UNREADABLE = 10
_LONGEST_TEXT = 110
_LONGEST_DETAIL = 140

_KINDS = (
    ("TIMEOUT at the limit", "limit"),
    ("TIMEOUT of an idle session", "session"),
    ("TIMEOUT, limit not in file", "limit_unknown"),
)
_REASONS = {
    "several_nodes": "on several nodes",
    "session": "idle sessions",
    "gpu_not_supported": "GPU not supported",
    "checkpoints_itself": "checkpoints itself",
}


def summary(analysis: Mapping[str, Any]) -> str:
    """Return what the analysis found, in at most about 60 lines of 80 columns."""
    sections = [_head(analysis)]
    if analysis["totals"]["runs"]:
        sections += [
            _headline(analysis),
            _kinds(analysis),
            _partitions(analysis["breakdowns"]["partition"]),
            _users_and_repeats(analysis),
            _applications(analysis["applications"]),
        ]
    else:
        sections.append(["No run ended in the rows that were read: there is nothing to count."])
    sections.append(_quality(analysis["quality"]))
    return _joined(sections)


def refusal(analysis: Mapping[str, Any]) -> str:
    """Return the account of rows of an input of which too much could not be read.

    It holds no result: with so many rows missing, any figure could be far off.
    """
    rows = analysis["rows"]
    unreadable = rows["left_out"].get("unreadable", UNKNOWN)
    share = _percent(ratio(unreadable, rows["in"]))
    places = analysis["unreadable"][:_MOST_UNREADABLE]
    sections = [
        _title(analysis, "no result, too many rows cannot be read"),
        _account(analysis),
        _wrapped(
            f"{count(unreadable)} of {count(rows['in'])} rows ({share}) cannot be read; more than "
            "one in a thousand would make every figure doubtful. The first are:"
        ),
        [line for place in places for line in _wrapped(_place(place), "  ", "    ")],
        _wrapped(
            "What to do: export again with a delimiter that no job name holds, and pass the file "
            "on as it is, since spreadsheets change it. Without a header, name the columns with "
            "--columns."
        ),
        [r"  sacct -a -X -D -P --noconvert --delimiter=$'\x1f' -S ... -E ... -o ..."],
    ]
    return _joined(sections)


# --- sections -------------------------------------------------------------------------------------


def _title(analysis: Mapping[str, Any], words: str) -> list[str]:
    tool = analysis["tool"]
    return _wrapped(f"{_cut(tool['name'], 40)} {_cut(tool['version'], 20)}: {words}")


def _head(analysis: Mapping[str, Any]) -> list[str]:
    options = analysis["options"]
    chosen = [f"{word} {options[word]}" for word in ("since", "until") if options[word]]
    if options["partitions"]:
        chosen.append(f"partitions {', '.join(options['partitions'])}")
    return [
        *_title(analysis, "runs that ended at their time limit"),
        "",
        *_field("Window", _window(analysis["window"], options["timezone"])),
        *(_field("Chosen", _cut("; ".join(chosen))) if chosen else []),
        *_account(analysis),
    ]


def _window(window: Mapping[str, Any], timezone: str) -> str:
    zone = "time zone unknown" if timezone == UNKNOWN else _cut(timezone)
    if UNKNOWN in window.values():
        return f"{UNKNOWN}, {zone}"
    first, last = _moment(window["first_end"]), _moment(window["last_end"])
    return f"{first} to {last}, {window['days']:.1f} days, {zone}"


def _account(analysis: Mapping[str, Any]) -> list[str]:
    rows = analysis["rows"]
    left_out = sorted(rows["left_out"].items(), key=lambda item: -item[1])
    named = [f"{count(number)} {_cut(reason)}" for reason, number in left_out[:_MOST_REASONS]]
    if len(left_out) > _MOST_REASONS:
        named.append(f"{len(left_out) - _MOST_REASONS} more reasons")
    total = count(sum(rows["left_out"].values()))
    sums = f"{count(rows['in'])} read = {count(rows['runs'])} in runs + {total} left out"
    return [
        *_field("Rows", f"{sums}; {count(rows['repaired'])} repaired"),
        *_field("Left out", ", ".join(named) or "none"),
    ]


def _headline(analysis: Mapping[str, Any]) -> list[str]:
    wall, whole = analysis["wall_ended"], analysis["totals"]
    runs = f"{count(wall['runs'])} of {count(whole['runs'])} runs that ended"
    return [
        "WALL-ENDED RUNS",
        _share("By number", _percent(wall["share_of_runs"], wall["runs"]), runs),
        *(
            _share(
                f"By {name}",
                _percent(wall[f"share_of_{key}"], wall[key]),
                _part(wall[key], whole[key], unit),
            )
            for name, key, unit in (
                ("node-hours", "node_hours", "node-hours (nodes touched)"),
                ("GPU-hours", "gpu_hours", "GPU-hours"),
                ("CPU-hours", "cpu_hours", "CPU-hours"),
            )
        ),
        _share("Of capacity", _percent(wall["share_of_capacity"]), _capacity(analysis)),
        "These hours are exposed: the most that checkpoints could cover, not a loss.",
    ]


def _share(name: str, share: str, told: str) -> str:
    return f"  {name:<15}{share:>8}   {told}"


def _part(part: Any, whole: Any, unit: str) -> str:
    if UNKNOWN in (part, whole):
        return f"{unit}: not in the input"
    return f"{rounded(part)} of {rounded(whole)} {unit}"


def _capacity(analysis: Mapping[str, Any]) -> str:
    if not analysis["options"]["nodes"]:
        return "give the sizes of the nodes with --nodes FILE"
    capacity = analysis["capacity"]
    if capacity == UNKNOWN:
        return "the runs do not show what period they cover"
    hours, nodes = rounded(capacity["node_hours"]), count(capacity["nodes"])
    if analysis["wall_ended"]["share_of_capacity"] == UNKNOWN:
        return f"of the {hours} node-hours of {nodes} nodes: see QUALITY"
    return f"of the {hours} node-hours that {nodes} nodes had"


def _kinds(analysis: Mapping[str, Any]) -> list[str]:
    wall = analysis["wall_ended"]
    kinds = wall["by_kind"]
    near = kinds["near_limit_other_state"]
    share = ratio(wall["addressable"]["node_hours"], wall["node_hours"])
    needed = "" if analysis["options"]["nodes"] else "; needs --nodes FILE"
    of_exposed = "" if share == UNKNOWN else f": {_percent(share)} of exposed"
    return [
        _row("HOW RUNS ENDED", ("runs", "node-hours", "node-equiv.", "GPU-hours"), 32),
        _used("Wall-ended: exposed", wall),
        *(_used(f"  {words}", kinds[key]) for words, key in _KINDS),
        _used("  another state at the limit", near["reached_limit"]),
        _used("TIMEOUT that was not the limit", kinds["not_the_limit"]),
        _used("All runs that ended", analysis["totals"]),
        _used(f"Addressable{of_exposed}", wall["addressable"]),
        *(
            _used(f"  not: {_REASONS.get(reason, reason)}", used)
            for reason, used in list(wall["not_addressable"].items())[:_MOST_REASONS]
        ),
        "Node-hours: nodes touched, however little of them a run used. Node-equivalent:",
        f"the largest share of a node's CPUs, memory or GPUs{needed}.",
    ]


def _partitions(partitions: Any) -> list[str]:
    if partitions == UNKNOWN:
        return ["PARTITIONS: unknown, the input has no Partition"]
    return [
        _row("WALL-ENDED OF EACH PARTITION", ("runs", "share", "node-hours", "share"), 32),
        *(
            _row(
                partition["value"],
                (
                    count(partition["wall_ended"]["runs"]),
                    _percent(partition["share_of_runs"], partition["runs"]),
                    rounded(partition["wall_ended"]["node_hours"]),
                    _percent(partition["share_of_node_hours"], partition["node_hours"]),
                ),
                32,
            )
            for partition in partitions[:_MOST_PARTITIONS]
        ),
        *_more(partitions, _MOST_PARTITIONS),
    ]


def _users_and_repeats(analysis: Mapping[str, Any]) -> list[str]:
    return [
        *_field("Top user", _top_user(analysis["wall_ended"])),
        *_field("Repeats", _repeats(analysis["repeats"])),
    ]


def _top_user(wall: Mapping[str, Any]) -> str:
    top, rest = wall["top_user"], wall["without_top_user"]
    if UNKNOWN in (top, rest):
        return "unknown; neither is the result without the top user known"
    share = _percent(top["share_of_node_hours"], wall["node_hours"])
    runs, hours, gpu_hours = (
        _percent(rest[f"share_of_{unit}"], rest[unit])
        for unit in ("runs", "node_hours", "gpu_hours")
    )
    return (
        f"{_cut(top['user'], 40)} has {share} of the exposed node-hours. Without this user "
        f"{count(rest['runs'])} runs ({runs}), {rounded(rest['node_hours'])} node-hours ({hours}) "
        f"and {rounded(rest['gpu_hours'])} GPU-hours ({gpu_hours}) are wall-ended."
    )


def _repeats(repeats: Mapping[str, Any]) -> str:
    if repeats["considered"] == UNKNOWN:
        return "unknown"
    hours = repeats["node_hours"]
    return (
        f"of {count(repeats['considered'])} wall-ended runs followed for "
        f"{repeats['horizon_days']} days, work was submitted again certainly after "
        f"{count(repeats['certain'])} ({rounded(hours['certain'])} node-hours), probably after "
        f"{count(repeats['probable'])} ({rounded(hours['probable'])}), ambiguously after "
        f"{count(repeats['ambiguous'])} ({rounded(hours['ambiguous'])}). False matches after "
        f"completed runs: {_percent(repeats['false_match_rate'], repeats['completed_tested'])}. "
        f"Too recent to tell: {count(repeats['too_recent'])}."
    )


def _applications(applications: Any) -> list[str]:
    if applications == UNKNOWN:
        return ["APPLICATIONS: unknown, the input has nothing to recognise them by"]
    return [
        _row(
            "WALL-ENDED BY APPLICATION", ("own checkpointing", "node-hours", "of exposed"), 28, 26
        ),
        *(
            _row(
                each["application"],
                (
                    each["checkpointing"],
                    rounded(each["node_hours"]),
                    _percent(each["share_of_node_hours"], each["node_hours"]),
                ),
                28,
                26,
            )
            for each in applications[:_MOST_APPLICATIONS]
        ),
        *_more(applications, _MOST_APPLICATIONS),
    ]


def _quality(quality: Sequence[Mapping[str, str]]) -> list[str]:
    doubts = [each for each in quality if each["state"] in ("warning", "unknown")]
    doubts.sort(key=lambda each: each["state"] != "warning")
    if not doubts:
        return ["QUALITY: no warning"]
    lines = ["QUALITY"]
    for each in doubts[:_MOST_WARNINGS]:
        told = _cut(f"{each['check']}: {each['detail']}", _LONGEST_DETAIL)
        lines += _wrapped(f"{each['state']}: {told}", "  ", "    ")
    return lines + _more(doubts, _MOST_WARNINGS)


# --- words and lines ------------------------------------------------------------------------------


def _joined(sections: Iterable[Iterable[str]]) -> str:
    return "\n\n".join("\n".join(section) for section in sections) + "\n"


def _percent(share: Any, part: Any = UNKNOWN) -> str:
    """A share; of nothing at all there is none, which is a dash and not unknown."""
    if share == UNKNOWN:
        return "-" if part == 0 else UNKNOWN
    return f"{percent(share)}%"


def _moment(stamp: str) -> str:
    """An ISO time stamp to the minute, in the time zone it was read with."""
    return stamp[:16].replace("T", " ")


def _place(place: Mapping[str, Any]) -> str:
    return f"{_cut(place['path'])}, line {place['line']}: {_cut(place['problem'])}"


def _cut(text: str, longest: int = _LONGEST_TEXT) -> str:
    """A text of the input, at most so many cells of it."""
    shown = visible(text)
    return shown if cell_len(shown) <= longest else set_cell_size(shown, longest - 3) + "..."


def _more(items: Sequence[object], shown: int) -> list[str]:
    return [f"  and {len(items) - shown} more"] if len(items) > shown else []


def _used(name: str, used: Mapping[str, Any]) -> str:
    hours = ("node_hours", "node_equivalent_hours", "gpu_hours")
    return _row(name, (count(used["runs"]), *(rounded(used[key]) for key in hours)), 32)


def _row(name: str, cells: Sequence[str], first: int, second: int = 12) -> str:
    widths = [second, *[12] * (len(cells) - 1)]
    columns = (_fitted(cell, width, right=True) for cell, width in zip(cells, widths, strict=True))
    return _fitted(name, first) + "".join(columns)


def _fitted(text: str, width: int, *, right: bool = False) -> str:
    """Text in exactly width cells of the terminal, at least one of them blank."""
    shown = _cut(text, width - 1)
    filling = " " * (width - cell_len(shown))
    return filling + shown if right else shown + filling


def _field(label: str, text: str) -> list[str]:
    return _wrapped(text, f"{label:<{_LABEL}}", " " * _LABEL)


def _wrapped(text: str, first: str = "", rest: str = "") -> list[str]:
    """Text in lines of at most 80 cells; a word that is longer than a line is broken."""
    width = WIDTH - len(rest)
    lines: list[str] = []
    line = ""
    for word in _words(text, width):
        if line and cell_len(line) + 1 + cell_len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    indents = [first] + [rest] * len(lines)
    return [indent + each for indent, each in zip(indents, [*lines, line], strict=True)]


def _words(text: str, width: int) -> Iterable[str]:
    for word in visible(text).split(" "):
        yield from chop_cells(word, width) or [""]

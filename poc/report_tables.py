"""The tables of the analysis page, from the analysis document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from cedana_poc.figures import limits_of
from cedana_poc.tables import UNKNOWN, Column, Row, Table, count, known, ratio

USAGE = (
    Column("Runs", "count"),
    Column("Node-hours (nodes touched)", "hours"),
    Column("Node-equivalent hours", "hours"),
    Column("CPU-hours", "hours"),
    Column("GPU-hours", "hours"),
    Column("Billing-hours", "hours"),
)
USAGE_AND_SHARES = (
    USAGE[0],
    Column("Share of runs (%)", "share"),
    USAGE[1],
    Column("Share of node-hours (%)", "share"),
    USAGE[2],
    USAGE[3],
    USAGE[4],
    Column("Share of GPU-hours (%)", "share"),
    USAGE[5],
)
MEASURES = (
    "runs",
    "node_hours",
    "node_equivalent_hours",
    "cpu_hours",
    "gpu_hours",
    "billing_hours",
)
KINDS = {
    "limit": "TIMEOUT at the limit",
    "session": "TIMEOUT of an idle session",
    "limit_unknown": "TIMEOUT, limit not in the file",
}
CAUSES = {
    "administrative": "Administrative event",
    "reservation": "End of a reservation",
    "usage_limit_or_inactivity": "Usage limit or inactivity",
}
REASONS = {
    "several_nodes": "Runs on several nodes",
    "nodes_unknown": "Number of nodes not in the file",
    "session": "Idle sessions",
    "gpu_not_supported": "GPU not supported",
    "checkpoints_itself": "Application checkpoints itself by default",
}
BREAKDOWNS = {
    "partition": ("Partition", "Partition"),
    "limit_band": ("Time limit", "Timelimit"),
    "size": ("Size", "NNodes"),
    "gpu_model": ("GPU model", "AllocTRES"),
    "user": ("User", "User"),
    "week": ("Week from", "End"),
}
TIERS = {
    "certain": "Certain: Slurm itself links the two",
    "probable": "Probable: same user, work directory, name and array index",
    "ambiguous": "Ambiguous: siblings that overlap, or a name that says nothing",
    "none": "None found",
    "too_recent": "Too recent: the data end before a follower could be seen",
}


def report_tables(analysis: dict[str, Any]) -> dict[str, Any]:
    """Every table by the name the templates know it by."""
    wall, rows = analysis["wall_ended"], analysis["rows"]
    return {
        "kinds": _kinds(wall, analysis["totals"]),
        "addressable": _addressable(wall),
        "top_user": _top_user(wall),
        "rows": _rows_read(rows),
        "left_out": sum(rows["left_out"].values()),
        "repairs": _places("First rows repaired", analysis["repairs"], "none."),
        "unreadable": _places("Unreadable rows", analysis["unreadable"], "none."),
        "states": _states(analysis),
        "wall_states": _by_state("Wall-ended runs by state", wall["by_state"]),
        "near_states": _by_state(
            "Other states, in the kill band or past the limit",
            wall["by_kind"]["near_limit_other_state"]["by_state"],
        ),
        "breakdowns": [
            _breakdown(name, analysis["breakdowns"][key], column)
            for key, (name, column) in BREAKDOWNS.items()
        ],
        "repeats": _repeats(analysis["repeats"]),
        "chains": _chains(analysis["repeats"]["chains"]),
        "applications": _applications(analysis["applications"]),
        "largest": _largest(wall["largest_runs"]),
        "quality": _quality(analysis["quality"]),
        "inputs": _inputs(analysis["input"]),
        "options": _options(analysis["options"]),
    }


def _usage(used: Mapping[str, Any]) -> tuple[Any, ...]:
    """The cells below `USAGE`."""
    return tuple(used[measure] for measure in MEASURES)


def _shared(name: str, used: Mapping[str, Any], whole: Mapping[str, Any]) -> tuple[Any, ...]:
    """A name, and the cells below `USAGE_AND_SHARES`."""
    runs, nodes, gpus = (
        _share(ratio(used[measure], whole[measure]), used[measure])
        for measure in ("runs", "node_hours", "gpu_hours")
    )
    return (
        name,
        used["runs"],
        runs,
        used["node_hours"],
        nodes,
        used["node_equivalent_hours"],
        used["cpu_hours"],
        used["gpu_hours"],
        gpus,
        used["billing_hours"],
    )


def _share(share: Any, part: Any) -> Any:
    """A share as a cell: one of nothing at all makes no sense, which is not to be unknown."""
    return "" if share == UNKNOWN and part == 0 else share


def _minus(whole: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    keys = [key for key in part if key in whole]
    return {
        key: whole[key] - part[key] if known(whole[key], part[key]) else UNKNOWN for key in keys
    }


def _kinds(wall: Mapping[str, Any], whole: Mapping[str, Any]) -> Table:
    kinds = wall["by_kind"]
    near, other = kinds["near_limit_other_state"], kinds["not_the_limit"]
    reached = near["reached_limit"]
    rows = [
        Row(_shared("Wall-ended: exposed", wall, whole), "sum"),
        *(Row(_shared(words, kinds[key], whole), "part") for key, words in KINDS.items()),
        Row(_shared("Another state at the limit", reached, whole), "part"),
        Row(_shared("TIMEOUT that was not the limit", other, whole), "sum"),
        *(
            Row(_shared(CAUSES.get(cause, cause), used, whole), "part")
            for cause, used in other["by_cause"].items()
        ),
        Row(
            _shared("Another state near the limit, not ended by it", _minus(near, reached), whole),
            "sum",
        ),
        Row(_shared("All runs that ended", whole, whole), "sum"),
    ]
    return Table("Runs by how they ended", (Column("Kind"), *USAGE_AND_SHARES), tuple(rows))


def _addressable(wall: Mapping[str, Any]) -> Table:
    rows = [
        Row(_shared("Addressable", wall["addressable"], wall), "sum"),
        *(
            Row(_shared(f"Not: {REASONS.get(reason, reason)}", used, wall), "part")
            for reason, used in wall["not_addressable"].items()
        ),
        Row(_shared("Wall-ended: exposed", wall, wall), "sum"),
    ]
    columns = (Column("Part of the exposed"), *USAGE_AND_SHARES)
    return Table("Exposed resources, addressable and not", columns, tuple(rows))


def _top_user(wall: Mapping[str, Any]) -> Table:
    columns = (
        Column("Users"),
        Column("Wall-ended runs", "count"),
        Column("Share of runs (%)", "share"),
        Column("Exposed node-hours (nodes touched)", "hours"),
        Column("Share of node-hours (%)", "share"),
        Column("Exposed GPU-hours", "hours"),
        Column("Share of GPU-hours (%)", "share"),
    )
    top, rest = wall["top_user"], wall["without_top_user"]
    rows = []
    if UNKNOWN not in (top, rest):
        for name, used in (("All users", wall), (f"Without {top['user']}", rest)):
            cells = [
                cell
                for measure in ("runs", "node_hours", "gpu_hours")
                for part in (used[measure],)
                for cell in (part, _share(used[f"share_of_{measure}"], part))
            ]
            rows.append(Row((name, *cells)))
    missing = "no run ended at its time limit."
    if wall["runs"]:
        missing = "unknown, needs the columns User, NNodes and Elapsed."
    return Table("Wall-ended runs with and without the top user", columns, tuple(rows), missing)


def _rows_read(rows: Mapping[str, Any]) -> Table:
    read = [
        Row(("Rows read", rows["in"]), "sum"),
        Row(("Became part of runs", rows["runs"]), "part"),
        *(Row((f"Left out: {reason}", n), "part") for reason, n in rows["left_out"].items()),
    ]
    return Table("Account of every row", (Column("Rows"), Column("Number", "count")), tuple(read))


def _places(caption: str, places: Iterable[Mapping[str, Any]], missing: str) -> Table:
    columns = (Column("File"), Column("Line", "count"), Column("Problem"))
    rows = tuple(Row((place["path"], place["line"], place["problem"])) for place in places)
    return Table(caption, columns, rows, missing)


def _states(analysis: Mapping[str, Any]) -> Table:
    by_state = analysis["by_state"].items()
    rows = tuple(Row(_shared(state, used, analysis["totals"])) for state, used in by_state)
    caption = "All runs that ended, by state"
    return Table(caption, (Column("State"), *USAGE_AND_SHARES), rows, "no run ended.")


def _by_state(caption: str, by_state: Any) -> Table:
    columns = (Column("State"), *USAGE)
    if by_state == UNKNOWN:
        return Table(caption, columns, (), "unknown, needs the column Timelimit.")
    rows = tuple(Row((state, *_usage(used))) for state, used in by_state.items())
    return Table(caption, columns, rows, "none.")


def _breakdown(name: str, rows: Any, column: str) -> Table:
    columns = (
        Column(name),
        Column("Runs", "count"),
        Column("Wall-ended runs", "count"),
        Column("Share of runs (%)", "share"),
        Column("Node-hours (nodes touched)", "hours"),
        Column("Exposed node-hours", "hours"),
        Column("Share of node-hours (%)", "share"),
        Column("Exposed CPU-hours", "hours"),
        Column("Exposed GPU-hours", "hours"),
    )
    caption = f"By {name[0].lower()}{name[1:]}" if not name.startswith("GPU") else f"By {name}"
    caption = caption.removesuffix(" from")
    if rows == UNKNOWN:
        return Table(caption, columns, (), f"unknown, needs the column {column}.")
    cells = (
        (
            row["value"],
            row["runs"],
            wall["runs"],
            _share(row["share_of_runs"], row["runs"]),
            row["node_hours"],
            wall["node_hours"],
            _share(row["share_of_node_hours"], row["node_hours"]),
            wall["cpu_hours"],
            wall["gpu_hours"],
        )
        for row in rows
        for wall in (row["wall_ended"],)
    )
    return Table(caption, columns, tuple(map(Row, cells)), "no run ended.")


def _repeats(repeats: Mapping[str, Any]) -> Table:
    columns = (
        Column("Follower"),
        Column("Wall-ended runs", "count"),
        Column("Share of those considered (%)", "share"),
        Column("Exposed node-hours (nodes touched)", "hours"),
    )
    rows = []
    for tier, words in TIERS.items():
        share = _share(ratio(repeats[tier], repeats["considered"]), repeats["considered"])
        share = "" if tier == "too_recent" else share
        rows.append(Row((words, repeats[tier], share, repeats["node_hours"].get(tier, ""))))
    return Table("Wall-ended runs and their followers", columns, tuple(rows))


def _chains(chains: Iterable[Mapping[str, Any]]) -> Table:
    columns = (
        Column("User"),
        Column("Application"),
        Column("Follower"),
        Column("Attempts", "count"),
        Column("Time limits"),
        Column("Each longer"),
        Column("Exposed node-hours (nodes touched)", "hours"),
    )
    rows = tuple(
        Row(
            (
                chain["user"],
                chain["application"],
                chain["tier"],
                len(chain["attempts"]),
                limits_of(chain),
                "yes" if chain["escalating"] else "no",
                chain["exposed_node_hours"],
            )
        )
        for chain in chains
    )
    return Table("Repeat chains with most exposed node-hours", columns, rows, "none was found.")


def _applications(applications: Any) -> Table:
    columns = (
        Column("Application"),
        Column("Own checkpointing"),
        Column("Recognised by"),
        Column("Share of exposed node-hours (%)", "share"),
        *USAGE,
    )
    listed = () if applications == UNKNOWN else applications
    keys = ("application", "checkpointing", "evidence", "share_of_node_hours")
    rows = tuple(Row((*(each[key] for key in keys), *_usage(each))) for each in listed)
    return Table("Wall-ended runs by application", columns, rows, "no run ended at its limit.")


def _largest(runs: Iterable[Mapping[str, Any]]) -> Table:
    columns = {
        "job": Column("Job"),
        "user": Column("User"),
        "partition": Column("Partition"),
        "application": Column("Application"),
        "state": Column("State"),
        "nodes": Column("Nodes", "count"),
        "gpus": Column("GPUs", "count"),
        "limit_hours": Column("Time limit (h)", "hours"),
        "elapsed_hours": Column("Elapsed (h)", "hours"),
        "node_hours": Column("Node-hours (nodes touched)", "hours"),
    }
    rows = tuple(Row(tuple(run[key] for key in columns)) for run in runs)
    caption = "Largest wall-ended runs"
    return Table(caption, tuple(columns.values()), rows, "no run ended at its time limit.")


def _quality(quality: Iterable[Mapping[str, Any]]) -> Table:
    columns = (Column("Check"), Column("Result"), Column("Detail"))
    rows = tuple(Row((entry["check"], entry["state"], entry["detail"])) for entry in quality)
    return Table("Checks of the data", columns, rows, "none was made.")


def _inputs(inputs: Iterable[Mapping[str, Any]]) -> Table:
    columns = (
        Column("File"),
        Column("Form"),
        Column("Rows", "count"),
        Column("Size (bytes)", "count"),
        Column("SHA-256"),
    )
    keys = ("path", "dialect", "rows", "bytes", "sha256")
    rows = tuple(Row(tuple(each[key] for key in keys)) for each in inputs)
    return Table("Input files", columns, rows, "none.")


def _options(options: Mapping[str, Any]) -> Table:
    nodes = options["nodes"]
    given = {
        "Time zone": options["timezone"],
        "Since": options["since"] or "the first row",
        "Until": options["until"] or "the last row",
        "Partitions": ", ".join(options["partitions"]) or "all",
        "Node list": f"{nodes['path']}, SHA-256 {nodes['sha256']}" if nodes else "not given",
        "Users": options["users"],
        "Lines in lists": count(options["top"]),
    }
    rows = tuple(map(Row, given.items()))
    return Table("Options", (Column("Option"), Column("Value")), rows)

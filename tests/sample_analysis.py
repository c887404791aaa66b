"""Analysis documents to show: one realistic, and three that are hard to show well.

`sample` is a mixed CPU and GPU cluster over 90 days whose users chose hostile names. `hostile`
replaces every free text of it, `unknown` every figure that a poor export takes away, and
`no_runs` has rows but nothing that ended.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

SCRIPT = "<script>alert(1)</script>"
QUOTES = "\"double\" 'single' & <b>bold</b> `tick` {{ 7 * 7 }} $x_1$"
FOREIGN = "größe-蛋白質-Ωμέγα-\u202eright-to-left"
LONG = "a_very_long_unbroken_name_" * 8

Usage = dict[str, Any]
MEASURES = ("node_hours", "node_equivalent_hours", "cpu_hours", "gpu_hours", "billing_hours")


def usage(runs: int, node_hours: float, equivalent: float, cpu: float, gpu: float) -> Usage:
    return {
        "runs": runs,
        "node_hours": node_hours,
        "node_equivalent_hours": equivalent,
        "cpu_hours": cpu,
        "gpu_hours": gpu,
        "billing_hours": cpu + 16 * gpu,
    }


def total(*parts: Usage) -> Usage:
    return {key: sum(part[key] for part in parts) for key in ("runs", *MEASURES)}


def scaled(whole: Usage, share: float) -> Usage:
    return {key: type(whole[key])(whole[key] * share) for key in ("runs", *MEASURES)}


def minus(whole: Usage, *parts: Usage) -> Usage:
    taken = total(*parts)
    return {key: whole[key] - taken[key] for key in taken}


def shares(part: Usage, whole: Usage) -> dict[str, float]:
    return {
        f"share_of_{key}": part[key] / whole[key]
        for key in ("runs", "node_hours", "cpu_hours", "gpu_hours")
    }


LIMIT = usage(3912, 38214.71, 27904.4, 1_411_203.5, 52_310.25)
SESSION = usage(611, 3020.4, 811.9, 24_118.2, 1_902.0)
NEAR_REACHED = usage(188, 1622.25, 1100.5, 60_214.0, 1_311.75)
NEAR_BAND = usage(514, 3787.9, 2400.1, 130_441.0, 2_904.5)
LIMIT_UNKNOWN = usage(9, 40.5, 40.5, 1_944.0, 0.0)
ADMINISTRATIVE = usage(214, 2204.0, 1702.2, 81_113.0, 3_001.0)
RESERVATION = usage(31, 410.2, 377.0, 18_204.4, 96.0)
USAGE_LIMIT = usage(12, 96.1, 96.1, 4_611.0, 0.0)
WALL = total(LIMIT, SESSION, NEAR_REACHED, LIMIT_UNKNOWN)
TIMEOUT = total(LIMIT, SESSION, LIMIT_UNKNOWN, ADMINISTRATIVE, RESERVATION, USAGE_LIMIT)
BY_STATE = {
    "COMPLETED": usage(161_004, 92_310.4, 61_118.0, 2_904_118.0, 88_410.5),
    "FAILED": usage(11_940, 14_201.8, 9_910.2, 401_118.9, 12_004.0),
    "TIMEOUT": TIMEOUT,
    "CANCELLED": usage(5_120, 15_220.1, 10_204.4, 488_210.0, 14_900.0),
    "OUT_OF_MEMORY": usage(801, 1_910.0, 1_400.2, 60_118.0, 700.25),
    "NODE_FAIL": usage(44, 902.6, 850.0, 41_118.0, 1_410.0),
    "REQUEUED": usage(512, 2_411.3, 1_702.4, 80_220.0, 3_118.0),
    SCRIPT: usage(1, 0.01, 0.01, 0.02, 0.0),
}
TOTALS = total(*BY_STATE.values())

PARTITIONS = {"gpu-a100": 0.46, "cpu": 0.31, "bigmem": 0.12, "interactive": 0.07, SCRIPT: 0.04}
LIMIT_BANDS = {
    "up to 1 h": 0.02,
    "1 h to 4 h": 0.05,
    "4 h to 12 h": 0.13,
    "12 h to 1 d": 0.34,
    "1 d to 3 d": 0.3,
    "3 d to 7 d": 0.16,
}
SIZES = {"1 node": 0.62, "2 to 4 nodes": 0.2, "5 to 16 nodes": 0.12, "17 or more nodes": 0.06}
GPU_MODELS = {"no GPU": 0.51, "a100": 0.3, "h100": 0.12, "1g.10gb": 0.05, QUOTES: 0.02}
USERS = {
    "user-3fa9c1": 0.312,
    SCRIPT: 0.141,
    "user-b0c2d7": 0.083,
    FOREIGN: 0.071,
    "user-77e01a": 0.052,
    QUOTES: 0.044,
    "user-c90d11": 0.031,
    "user-5a6b7c": 0.025,
    LONG: 0.021,
    "user-e1f2a3": 0.018,
}
WEEKS = [(date(2026, 6, 1) + timedelta(weeks=week)).isoformat() for week in range(13)]
WEEK_WEIGHTS = (6, 8, 7, 9, 11, 4, 8, 12, 9, 7, 6, 8, 5)


def rows_of(weights: dict[str, float], tilt: float = 1.0) -> list[dict[str, Any]]:
    """Breakdown rows: wall-ended usage by weight, all usage by a flatter weight."""
    flat = {value: weight + tilt / len(weights) for value, weight in weights.items()}
    rows = []
    for value, weight in weights.items():
        ended = scaled(TOTALS, flat[value] / sum(flat.values()))
        wall = scaled(WALL, weight)
        both = shares(wall, ended)
        kept = {key: both[key] for key in ("share_of_runs", "share_of_node_hours")}
        rows.append({"value": value, **ended, "wall_ended": wall, **kept})
    return rows


def breakdowns() -> dict[str, Any]:
    others = {"other users (214)": 1 - sum(USERS.values())}
    weeks = {
        week: weight / sum(WEEK_WEIGHTS) for week, weight in zip(WEEKS, WEEK_WEIGHTS, strict=True)
    }
    return {
        "partition": rows_of(PARTITIONS),
        "limit_band": rows_of(LIMIT_BANDS),
        "size": rows_of(SIZES),
        "gpu_model": rows_of(GPU_MODELS),
        "user": rows_of(USERS | others),
        "week": rows_of(weeks),
    }


def concentration() -> list[dict[str, Any]]:
    rows, cumulative = [], 0.0
    for rank, (user, share) in enumerate(USERS.items(), start=1):
        cumulative += share
        hours = WALL["node_hours"] * share
        rows.append(
            {
                "rank": rank,
                "user": user,
                "node_hours": hours,
                "share": share,
                "cumulative_share": cumulative,
            }
        )
    return rows


def histogram() -> dict[str, Any]:
    edges = [round(0.05 * step, 2) for step in range(22)]
    runs = [66_918, 24_110, 14_020, 9_911, 8_012, 7_011, 6_240, 5_110, 4_802, 4_410, 4_100]
    runs += [3_902, 3_610, 3_300, 3_011, 2_811, 2_610, 2_502, 2_401, 1_102, WALL["runs"] - 402]
    wall = [0] * 19 + [402, WALL["runs"] - 402]
    hours = [310.5, 900.2, 1402.7, 1910.4, 2402.0, 2811.5, 3010.2, 3309.9, 3502.4, 3710.3, 4011.8]
    hours += [4210.1, 4402.5, 4610.9, 4811.0, 5010.6, 5202.2, 5410.4, 6802.8, 9711.2, 38902.3]
    return {
        "edges": edges,
        "last_is_open": True,
        "runs": runs,
        "node_hours": hours,
        "wall_ended_runs": wall,
        "band_from": 0.98,
    }


def attempt(job: str, state: str, end: str, limit: float, elapsed: float, nodes: int = 1) -> Usage:
    return {
        "job": job,
        "state": state,
        "end": end,
        "limit_hours": limit,
        "elapsed_hours": elapsed,
        "nodes": nodes,
        "node_hours": elapsed * nodes,
    }


def chain(tier: str, user: str, application: str, *attempts: Usage) -> dict[str, Any]:
    limits = [each["limit_hours"] for each in attempts]
    walls = [each["node_hours"] for each in attempts if each["state"] == "TIMEOUT"]
    return {
        "tier": tier,
        "escalating": len(limits) > 1 and limits == sorted(set(limits)),
        "user": user,
        "application": application,
        "exposed_node_hours": sum(walls),
        "attempts": list(attempts),
    }


def chains() -> list[dict[str, Any]]:
    escalation = [
        attempt("1007588", "TIMEOUT", "2026-06-12T08:00:21+00:00", 8.0, 8.006, 8),
        attempt("1012029", "TIMEOUT", "2026-06-14T10:12:40+00:00", 24.0, 24.005, 8),
        attempt("1019945", "COMPLETED", "2026-06-17T21:18:02+00:00", 72.0, 51.1, 8),
    ]
    again = [
        attempt(f"10220{n}", "TIMEOUT", f"2026-07-{9 + 2 * n:02}T06:00:11+00:00", 48.0, 48.004, 2)
        for n in range(5)
    ]
    short = [
        attempt("1031177_4", "TIMEOUT", "2026-07-02T04:00:10+00:00", 4.0, 4.003),
        attempt("1031392_4", "TIMEOUT", "2026-07-03T12:00:10+00:00", 12.0, 12.004),
        attempt("1032010_4", SCRIPT, "unknown", 24.0, 3.2),
    ]
    hostile_job = [
        attempt(SCRIPT, "TIMEOUT", "2026-08-01T00:00:00+00:00", 24.0, 24.01, 4),
        attempt(QUOTES, "FAILED", "2026-08-02T11:00:00+00:00", 24.0, 1.4, 4),
    ]
    long_last = [
        attempt("1055001", "TIMEOUT", "2026-08-04T00:00:00+00:00", 24.0, 24.01, 2),
        attempt("1056119", "TIMEOUT", "2026-08-11T00:00:00+00:00", 168.0, 168.003, 2),
    ]
    found = [
        chain("certain", "user-77e01a", "LAMMPS", *again),
        chain("probable", "user-3fa9c1", "user's own Python", *long_last),
        chain("probable", "user-3fa9c1", "GROMACS", *escalation),
        chain("ambiguous", FOREIGN, QUOTES, *hostile_job),
        chain("probable", SCRIPT, SCRIPT, *short),
    ]
    for n in range(9):
        first = attempt(f"11{n}0042", "TIMEOUT", "2026-08-05T01:00:00+00:00", 24.0, 24.002)
        second = attempt(f"11{n}0077", "COMPLETED", "2026-08-07T01:00:00+00:00", 48.0, 20.0 + n)
        found.append(chain("probable", f"user-5a6b7{n}", "Snakemake", first, second))
    return found


def applications() -> list[dict[str, Any]]:
    listed = [
        ("GROMACS", "built in, on by default", "step name gmx_mpi", 0.14),
        ("LAMMPS", "built in, opt-in", "submit line: lmp -in", 0.11),
        ("VASP", "partial", "job name vasp", 0.08),
        ("R", "none", "submit line: Rscript", 0.19),
        ("Snakemake", "workflow", "comment rule_", 0.06),
        ("JupyterLab", "session", "job name spawner-jupyterhub", 0.07),
        (SCRIPT, "none", QUOTES, 0.02),
        (FOREIGN, "unknown", SCRIPT, 0.01),
        ("not recognised", "unknown", "", 0.32),
    ]
    return [
        {
            "application": name,
            "checkpointing": kind,
            "evidence": evidence,
            **scaled(WALL, share),
            "share_of_node_hours": share,
        }
        for name, kind, evidence, share in listed
    ]


def largest_runs() -> list[dict[str, Any]]:
    def run(job: str, user: str, partition: str, application: str, nodes: int, limit: float) -> Any:
        return {
            "job": job,
            "user": user,
            "partition": partition,
            "application": application,
            "state": "TIMEOUT",
            "nodes": nodes,
            "gpus": 4 * nodes if partition == "gpu-a100" else 0,
            "limit_hours": limit,
            "elapsed_hours": limit + 0.005,
            "node_hours": nodes * (limit + 0.005),
        }

    return [
        run("1040021", "user-3fa9c1", "gpu-a100", "R", 8, 120.0),
        run("1041877+0", SCRIPT, SCRIPT, QUOTES, 16, 48.0),
        run("1033310_12", FOREIGN, "cpu", "not recognised", 4, 168.0),
        run(SCRIPT, QUOTES, "bigmem", SCRIPT, 1, 168.0),
        run("1019001", LONG, "gpu-a100", "LAMMPS", 2, 72.0),
    ]


def quality() -> list[dict[str, Any]]:
    listed = [
        ("days covered", "ok", "91 of 91 days have ended runs"),
        ("requeues", "note", "no job id has a second record and Restarts is not in the file"),
        ("time zone", "warning", "the stamps carry no time zone; daily figures may be off"),
        ("submit line", "unknown", "column SubmitLine is missing: applications by job name only"),
        (SCRIPT, "warning", QUOTES),
        ("one user only", "ok", FOREIGN),
    ]
    return [{"check": check, "state": state, "detail": detail} for check, state, detail in listed]


def wall_ended() -> dict[str, Any]:
    several, sessions = scaled(LIMIT, 0.29), SESSION
    unsupported, itself = scaled(LIMIT, 0.06), scaled(LIMIT, 0.11)
    top = scaled(WALL, USERS["user-3fa9c1"])
    rest, ended = minus(WALL, top), minus(TOTALS, scaled(TOTALS, 0.12))
    kept = ("share_of_runs", "share_of_node_hours", "share_of_gpu_hours")
    return {
        **WALL,
        **shares(WALL, TOTALS),
        "share_of_capacity": WALL["node_equivalent_hours"] / 262_080.0,
        "by_state": {"TIMEOUT": total(LIMIT, SESSION, LIMIT_UNKNOWN), "CANCELLED": NEAR_REACHED},
        "by_kind": {
            "limit": LIMIT,
            "session": SESSION,
            "near_limit_other_state": {
                **total(NEAR_REACHED, NEAR_BAND),
                "by_state": {
                    "COMPLETED": scaled(NEAR_BAND, 0.7),
                    "FAILED": scaled(NEAR_BAND, 0.3),
                    "CANCELLED": NEAR_REACHED,
                },
                "reached_limit": NEAR_REACHED,
            },
            "not_the_limit": {
                **total(ADMINISTRATIVE, RESERVATION, USAGE_LIMIT),
                "by_cause": {
                    "administrative": ADMINISTRATIVE,
                    "reservation": RESERVATION,
                    "usage_limit_or_inactivity": USAGE_LIMIT,
                },
            },
            "limit_unknown": LIMIT_UNKNOWN,
        },
        "addressable": minus(WALL, several, sessions, unsupported, itself),
        "not_addressable": {
            "several_nodes": several,
            "session": sessions,
            "gpu_not_supported": unsupported,
            "checkpoints_itself": itself,
        },
        "top_user": {"user": "user-3fa9c1", "share_of_node_hours": USERS["user-3fa9c1"]},
        "without_top_user": {**rest, **{key: shares(rest, ended)[key] for key in kept}},
        "largest_runs": largest_runs(),
    }


def rows() -> dict[str, Any]:
    left_out = {
        "steps": 512_004,
        "pending": 211,
        "running": 640,
        "never started": 9_118,
        "identical copies": 1_204,
        "unreadable": 3,
        SCRIPT: 2,
    }
    runs = TOTALS["runs"] + 37
    return {
        "in": runs + sum(left_out.values()),
        "runs": runs,
        "repaired": 14,
        "left_out": left_out,
    }


def sample() -> dict[str, Any]:
    """One complete document: 90 days of a mixed cluster, hostile texts among the names."""
    document = {
        "schema": "cedana-poc/analysis/1",
        "tool": {"name": "cedana-poc", "version": "0.1.0"},
        "input": [
            {
                "path": f"exports/{name}.txt",
                "sha256": digit * 64,
                "bytes": size,
                "dialect": dialect,
                "rows": count,
            }
            for name, digit, size, dialect, count in (
                ("sacct-2026-q2", "3", 181_204_118, "parsable2, delimiter '|', header", 301_118),
                (SCRIPT, "a", 240_118_002, QUOTES, rows()["in"] - 301_118),
            )
        ],
        "options": {
            "timezone": "Europe/Berlin",
            "since": "2026-06-01",
            "until": "",
            "partitions": ["gpu-a100", "cpu", SCRIPT],
            "nodes": {"path": f"site/{QUOTES}.txt", "sha256": "c" * 64},
            "users": "pseudonyms",
            "top": 10,
        },
        "window": {
            "first_end": "2026-06-01T00:00:12+02:00",
            "last_end": "2026-08-30T23:58:40+02:00",
            "days": 91.0,
        },
        "rows": rows(),
        "repairs": [
            {"path": f"exports/{SCRIPT}.txt", "line": 4411, "problem": "2 delimiters too many"},
            {
                "path": "exports/sacct-2026-q2.txt",
                "line": 90_218,
                "problem": "line break in JobName",
            },
        ],
        "unreadable": [
            {
                "path": f"exports/{QUOTES}.txt",
                "line": 1_204_118,
                "problem": "no State: 7 of 29 fields",
            },
        ],
        "totals": {**TOTALS, "users": 224},
        "capacity": {
            "nodes": 120,
            "cpus": 7_680,
            "gpus": 160,
            "node_hours": 262_080.0,
            "cpu_hours": 16_773_120.0,
            "gpu_hours": 349_440.0,
        },
        "by_state": BY_STATE,
        "wall_ended": wall_ended(),
        "breakdowns": breakdowns(),
        "elapsed_over_limit": histogram(),
        "concentration": concentration(),
        "repeats": {
            "certain": 214,
            "probable": 1_102,
            "ambiguous": 388,
            "none": 1_840,
            "too_recent": 368,
            "considered": 3_544,
            "false_match_rate": 0.043,
            "completed_tested": 20_000,
            "horizon_days": 7,
            "node_hours": {"certain": 2_811.5, "probable": 11_204.9, "ambiguous": 3_902.2},
            "chains": chains(),
        },
        "applications": applications(),
        "quality": quality(),
    }
    return copy.deepcopy(document)


# Texts that the program itself chooses from a fixed list; a reader may rely on them.
FIXED = {"schema", "users", "tier", "checkpointing", "first_end", "last_end", "end", "sha256"}


def mapped(value: Any, change: Callable[[str, Any], Any], key: str = "") -> Any:
    """The value with every leaf of it replaced by `change(key, leaf)`."""
    if isinstance(value, dict):
        return {name: mapped(inner, change, name) for name, inner in value.items()}
    if isinstance(value, list):
        return [mapped(inner, change, key) for inner in value]
    return change(key, value)


def hostile() -> dict[str, Any]:
    """The sample with every free text replaced by markup, quotes, foreign script and length."""
    texts = SCRIPT + QUOTES + FOREIGN + LONG

    def change(key: str, leaf: Any) -> Any:
        free = isinstance(leaf, str) and key not in FIXED and leaf not in ("unknown", "")
        return texts if free else leaf

    document: dict[str, Any] = mapped(sample(), change)
    for entry, original in zip(document["quality"], quality(), strict=True):
        entry["state"] = original["state"]
    for row, week in zip(document["breakdowns"]["week"], WEEKS, strict=True):
        row["value"] = week
    return document


def unknown() -> dict[str, Any]:
    """A poor export: counts by state and nothing else; every optional part is "unknown"."""
    counted = {"in", "rows", "bytes", "repaired", "runs", "line", "top", "horizon_days"}
    document: dict[str, Any] = sample()
    left_out = document["rows"]["left_out"]

    def change(key: str, leaf: Any) -> Any:
        return leaf if isinstance(leaf, str) or key in counted else "unknown"

    document = mapped(document, change)
    document["rows"]["left_out"] = left_out
    for run in document["wall_ended"]["largest_runs"]:
        run.update(user="unknown", partition="unknown", application="unknown")
    document["window"] = {"first_end": "unknown", "last_end": "unknown", "days": "unknown"}
    document["options"].update(timezone="unknown", since="", partitions=[], nodes="")
    document["wall_ended"].update(top_user="unknown", without_top_user="unknown")
    for part in ("capacity", "elapsed_over_limit", "concentration", "applications"):
        document[part] = "unknown"
    document["breakdowns"] = dict.fromkeys(document["breakdowns"], "unknown")
    document["repeats"]["chains"] = []
    for entry in document["quality"]:
        entry["state"] = "unknown"
    return document


def no_runs() -> dict[str, Any]:
    """Rows were read, none of them is a run that ended."""

    def change(key: str, leaf: Any) -> Any:
        if isinstance(leaf, (int, float)) and not isinstance(leaf, bool):
            return "unknown" if key.startswith(("share", "false")) else type(leaf)(0)
        return leaf

    document = sample()
    for part in ("totals", "wall_ended"):
        document[part] = mapped(document[part], change)
    document["repeats"] = mapped(document["repeats"], change) | {"chains": [], "horizon_days": 7}
    document["rows"]["in"] = sum(document["rows"]["left_out"].values())
    document["rows"].update(runs=0, repaired=0)
    document.update(repairs=[], by_state={}, concentration=[], applications=[])
    document["wall_ended"].update(by_state={}, largest_runs=[], not_addressable={})
    document["wall_ended"].update(top_user="unknown", without_top_user="unknown")
    document["wall_ended"]["by_kind"]["near_limit_other_state"]["by_state"] = {}
    document["wall_ended"]["by_kind"]["not_the_limit"]["by_cause"] = {}
    document["window"] = {"first_end": "unknown", "last_end": "unknown", "days": "unknown"}
    document["breakdowns"] = {key: [] for key in document["breakdowns"]}
    document["elapsed_over_limit"] = "unknown"
    return document

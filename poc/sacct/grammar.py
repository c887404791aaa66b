"""The fields sacct prints: their names across versions, and what a well-formed value looks like.

Sources: the field table of sacct (Slurm 17.11 to 26.05) and its print routines.
"""

from __future__ import annotations

import re
from enum import Enum


class Kind(Enum):
    """What may stand in a column; decides how an ill-formed row is put right."""

    ID = "job id"
    STATE = "state"
    TIME = "time stamp"
    DURATION = "duration"
    INTEGER = "integer"
    EXIT = "exit code"
    TRES = "TRES list"
    NODES = "node list"
    LIST = "list of words"
    WORD = "word"
    FREE = "free text"

    __hash__ = object.__hash__  # kinds are looked up for every field of every row under repair


ENDED = frozenset(
    "BOOT_FAIL CANCELLED COMPLETED DEADLINE FAILED LAUNCH_FAILED NODE_FAIL OUT_OF_MEMORY PREEMPTED "
    "RECONFIG_FAIL REQUEUED RESIZING TIMEOUT".split()
)
"""States of a record whose allocation is over."""

NOT_ENDED = {
    "PENDING": "pending",
    "CONFIGURING": "pending",
    "REQUEUE_FED": "pending",
    "REQUEUE_HOLD": "pending",
    "RESV_DEL_HOLD": "pending",
    "SPECIAL_EXIT": "pending",
    "RUNNING": "running",
    "COMPLETING": "running",
    "POWER_UP_NODE": "running",
    "SIGNALING": "running",
    "STAGE_OUT": "running",
    "STOPPED": "suspended",
    "SUSPENDED": "suspended",
    "REVOKED": "revoked",
}
"""States of a record that is no ended run, and the reason it is left out under."""

CODES = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RQ": "REQUEUED",
    "RS": "RESIZING",
    "RV": "REVOKED",
    "S": "SUSPENDED",
    "TO": "TIMEOUT",
}
"""The compact state codes of squeue and `sacct -s`."""

STATES = sorted(ENDED | NOT_ENDED.keys())

_ITEM = r"[A-Za-z][^\s=,]*=[^,\s]*+"
CALENDAR = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"
_BRACKETS = r"(\[[\d,\-]*+\]?[\w.\-]*+)*+"

PATTERNS: dict[Kind, re.Pattern[str]] = {
    kind: re.compile(pattern, re.ASCII)
    for kind, pattern in {
        Kind.ID: r"\d+(_(\d+|\[[^\]\s]*\]?))?(\+\d+)?"
        r"(\.(batch|extern|interactive|TBD|TDB|\d+)(\+\d+)?|\.[a-z]*\+)?\+?",
        Kind.STATE: rf"({'|'.join(STATES)}|[A-Z][A-Z_]*\+)( by \S+)?",
        Kind.TIME: rf"Unknown|None|N/A|INVALID|{CALENDAR}|\d{{1,11}}",
        Kind.DURATION: r"(\d+-)?\d+:\d\d(:\d\d)?(\.\d+)?|\d+|INVALID|UNLIMITED|Partition_Limit",
        Kind.INTEGER: r"\d+|\d+(\.\d+)?[KMGTP]",
        Kind.EXIT: r"\d+:\d+",
        Kind.TRES: rf"{_ITEM}(,{_ITEM})*+",
        Kind.NODES: rf"None assigned|\((null|unknown)\)|[\w.\-]*+{_BRACKETS}"
        rf"(,[\w.\-]++{_BRACKETS})*+",
        Kind.LIST: r"[\w.:;()+@#%* \-]+(,[\w.:;()+@#%* \-]+)*+",
        Kind.WORD: r"[^\x00-\x1f]+",
        Kind.FREE: r"(?s:.+)",
    }.items()
}
"""A full match is a well-formed value. Quantifiers are possessive where two could share a text: no
value takes more than linear time."""

_NEVER_EMPTY = frozenset({Kind.ID, Kind.STATE})

_NAMES: dict[Kind, str] = {
    Kind.ID: "jobid jobidraw",
    Kind.STATE: "state",
    Kind.TIME: "submit eligible start end",
    Kind.DURATION: "elapsed elapsedraw timelimit timelimitraw suspended cputime cputimeraw "
    "totalcpu usercpu systemcpu planned reserved plannedcpu plannedcpuraw resvcpu resvcpuraw "
    "avecpu mincpu",
    Kind.INTEGER: "nnodes allocnodes reqnodes ncpus alloccpus reqcpus ntasks uid gid priority "
    "restarts dbindex mincputask maxrsstask maxvmsizetask maxpagestask maxdiskreadtask "
    "maxdiskwritetask",
    Kind.EXIT: "exitcode derivedexitcode",
    Kind.TRES: "alloctres reqtres tresusageinave tresusageinmax tresusageinmin tresusageintot "
    "tresusageoutave tresusageoutmax tresusageoutmin tresusageouttot tresusageinmaxnode "
    "tresusageinmaxtask tresusageinminnode tresusageinmintask tresusageoutmaxnode "
    "tresusageoutmaxtask tresusageoutminnode tresusageoutmintask",
    Kind.NODES: "nodelist",
    Kind.LIST: "partition flags allocgres reqgres reservation reqreservation",
    Kind.WORD: "cluster user account qos qosraw qosreq group reqmem associd blockid layout "
    "mcslabel wckey wckeyid timelimitmin averss maxrss maxrssnode avevmsize maxvmsize "
    "maxvmsizenode avepages maxpages maxpagesnode avediskread maxdiskread "
    "maxdiskreadnode avediskwrite maxdiskwrite maxdiskwritenode mincpunode avecpufreq "
    "consumedenergy consumedenergyraw reqcpufreq reqcpufreqmin reqcpufreqmax reqcpufreqgov "
    "sluid originalsluid exclusive oversubscribe segmentsize reservationid failednode",
    Kind.FREE: "jobname comment admincomment systemcomment workdir submitline extra container "
    "constraints licenses reason stdin stdout stderr",
}

KINDS: dict[str, Kind] = {name: kind for kind, names in _NAMES.items() for name in names.split()}
"""Every field of sacct, by its lower-case name."""

_ALIASES = {
    "jobname": ("name",),
    "user": ("username",),
    "exitcode": ("exit",),
}
_CANONICAL = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}


def canonical(printed: str) -> str:
    """The lower-case field name for a column name as printed or typed: `Job Name` -> `jobname`.

    A width, as given to `sacct -o`, is no part of the name: `JobName%-30` -> `jobname`.
    """
    name = re.sub(r"%-?\d*$|[^a-z0-9]", "", printed.strip().lower())
    return _CANONICAL.get(name, name)


def kind_of(name: str) -> Kind:
    """The kind of a canonical field name; a column sacct does not know is a word."""
    return KINDS.get(name, Kind.WORD)


def well_formed(kind: Kind, value: str) -> bool:
    """Whether sacct could have printed `value` in a column of this kind."""
    if not value:
        return kind not in _NEVER_EMPTY
    return PATTERNS[kind].fullmatch(value) is not None


def base_state(printed: str) -> str | None:
    """`CANCELLED by 0` -> `CANCELLED`, `OUT_OF_ME+` -> `OUT_OF_MEMORY`, `TO` -> `TIMEOUT`.

    None where no state of Slurm fits, or more than one does.
    """
    word = printed.split(" ", 1)[0].upper()
    if word in ENDED or word in NOT_ENDED:
        return word
    if word in CODES:
        return CODES[word]
    if word.endswith("+"):
        fitting = [state for state in STATES if state.startswith(word[:-1])]
        return fitting[0] if len(fitting) == 1 else None
    return None

"""Settings of the plugin: `--cedana-…` on the command line, the same names in a profile."""

# Without `from __future__ import annotations`: Snakemake reads the types of the fields as objects.

import shutil
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_executor_plugins.settings import ExecutorSettingsBase  # type: ignore[import-untyped]

SCHEDULERS = ("auto", "local")
ENGINES = ("auto", "criu", "none")


def _setting(default: Any, help: str, **metadata: Any) -> Any:
    return field(default=default, metadata={"help": help, **metadata})


@dataclass
class ExecutorSettings(ExecutorSettingsBase):  # type: ignore[misc]
    """What the user asks for. Checked when set: a wrong value raises WorkflowError."""

    scheduler: str = _setting(
        "auto",
        "Where allocations come from: 'local' starts them on this machine, within --cores and "
        "the resource mem_mb; 'auto' takes the best that is there, today always 'local'.",
        choices=list(SCHEDULERS),
    )
    engine: str = _setting(
        "auto",
        "What takes and restores checkpoints: 'criu', 'none' (no checkpoints), or 'auto': criu "
        "if its check passes, else none, with a warning.",
        choices=list(ENGINES),
    )
    dir: str = _setting(
        "",
        "Folder for the checkpoints and logs of steps (default: auxiliary/cedana in Snakemake's "
        "own folder). It holds the memory of steps, so nobody else may read it; it needs hard "
        "links, and room for keep-generations checkpoints of every running step.",
        metavar="DIR",
    )
    interval: str = _setting(
        "auto",
        "Seconds between two checkpoints of a step; 0 takes none but the one before an "
        "allocation ends; 'auto' weighs the measured cost of a checkpoint against "
        "--cedana-mtbf.",
        metavar="SECONDS",
    )
    mtbf: int = _setting(
        86400,
        "Mean time between failures of a node, in seconds: what interval 'auto' reckons with.",
        metavar="SECONDS",
    )
    lead_time: str = _setting(
        "auto",
        "Seconds before the end of an allocation at which the last checkpoint begins; 'auto' "
        "takes what checkpoints of the step have taken so far and a reserve.",
        metavar="SECONDS",
    )
    max_restores: int = _setting(
        100,
        "How many times a step may go on in a new allocation before that is an error; 0: never.",
        metavar="N",
    )
    keep_generations: int = _setting(
        2,
        "How many checkpoints of a step are kept while it runs, at least 1. Two, so that a "
        "damaged one does not lose the work.",
        metavar="N",
    )
    criu: str = _setting(
        "criu",
        "The criu program: a path, or a name that is looked up in PATH.",
        metavar="PROGRAM",
    )
    allow_uncheckpointed: bool = _setting(
        False,
        "Run steps with the resource cedana=1 also where they cannot be checkpointed, instead "
        "of stopping with an error. They then start anew after an interruption.",
    )
    dump_slots: int = _setting(
        0,
        "At most this many checkpoints at the same time in --cedana-dir; 0: no bound.",
        metavar="N",
    )
    max_bytes: int = _setting(
        0,
        "At most this many bytes of checkpoints for each step; 0: no bound.",
        metavar="BYTES",
    )
    local_allocation: int = _setting(
        0,
        "Seconds that an allocation of the scheduler 'local' lasts at most, for steps with "
        "cedana=1; 0: no bound but the step's resource runtime (minutes). Of two bounds the "
        "shorter one counts.",
        metavar="SECONDS",
    )

    def __post_init__(self) -> None:
        """Raise WorkflowError for the first value that is not allowed."""
        self.scheduler = _one_of("scheduler", self.scheduler, SCHEDULERS)
        self.engine = _one_of("engine", self.engine, ENGINES)
        self.interval = _seconds_or_auto("interval", self.interval, least=0)
        self.lead_time = _seconds_or_auto("lead_time", self.lead_time, least=1)
        for name, least in _LEAST.items():
            _require_whole(name, getattr(self, name), least)
        if not isinstance(self.allow_uncheckpointed, bool):
            raise _refusal("allow_uncheckpointed", self.allow_uncheckpointed, "true or false")
        if not self.criu or "\0" in self.criu:
            raise _refusal("criu", self.criu, "the path or the name of a program")
        if self.dir != "":
            _require_folder(self.dir)

    def seconds(self, name: str) -> float | str:
        """`interval` or `lead_time` as a number of seconds, or 'auto'."""
        value = getattr(self, name)
        return "auto" if value == "auto" else float(value)

    def criu_path(self) -> str:
        """Absolute path of criu, "" where there is none."""
        found = shutil.which(self.criu)
        return str(Path(found).absolute()) if found else ""


_LEAST = {
    "mtbf": 1,
    "max_restores": 0,
    "keep_generations": 1,
    "dump_slots": 0,
    "max_bytes": 0,
    "local_allocation": 0,
}


def option(name: str) -> str:
    """The command line option of a field."""
    return "--cedana-" + name.replace("_", "-")


def _refusal(name: str, value: object, allowed: str) -> WorkflowError:
    assert name in {known.name for known in fields(ExecutorSettings)}
    return WorkflowError(f"{option(name)} {value!r} is not allowed: give {allowed}.")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> str:
    for choice in allowed:
        if value == choice:
            return choice
    raise _refusal(name, value, "one of " + ", ".join(allowed))


def _require_whole(name: str, value: object, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise _refusal(name, value, f"a whole number, at least {least}")


def _seconds_or_auto(name: str, value: object, least: float) -> str:
    """Profiles hand over numbers, the command line text: both come out as text."""
    text = str(value)
    try:
        number = least if text == "auto" else float(text)
    except ValueError:
        number = float("nan")
    if not least <= number < float("inf") or isinstance(value, bool):
        raise _refusal(name, value, f"a number of seconds, at least {least:g}, or 'auto'")
    return text


def _require_folder(value: object) -> None:
    """The nearest existing ancestor must be a folder: found out before anything starts."""
    if not isinstance(value, str) or not value.strip() or "\0" in value:
        raise _refusal("dir", value, "the path of a folder")
    path = Path(value).expanduser().absolute()
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir():
        raise _refusal("dir", value, f"the path of a folder ({nearest} is not one)")

"""What a runner is told, spec.json, and what it leaves behind, exit.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from .durable import read_json, write_json
from .filecut import Own

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import cast
else:

    def cast(_: object, value: object) -> object:
        """As in typing, which would take a tenth of the runner's start."""
        return value


SCHEMA = 1
ENGINES = ("criu", "none")
REASONS = ("ended", "limit", "terminated", "wrong_node", "held", "uncheckpointable", "failed")
UNKNOWN = "unknown"
_MOST_BYTES = 16 << 20


class BadSpec(Exception):
    """spec.json says something that cannot be meant: the text names the field."""


@dataclass(frozen=True, slots=True)
class Spec:
    """One step, as the executor describes it. Times are seconds, sizes bytes, paths absolute."""

    key: str
    fingerprint: str
    workflow: str
    rule: str
    wildcards: dict[str, str]
    workdir: Path
    engine: str
    criu: str
    interval: float | str  # 0 = no heartbeat; "auto"
    mtbf: float
    lead_time: float | str  # or "auto"
    keep_generations: int
    max_bytes: int  # 0 = no bound
    dump_slots: int  # 0 = no bound
    slots_dir: Path
    own: Own
    shared_append: tuple[Path, ...]
    check: str
    allow_uncheckpointed: bool
    environment: dict[str, str]


@dataclass(frozen=True, slots=True)
class Exit:
    """How an allocation ended. `rc` is the step's own exit status, or "unknown" while it has
    not ended; `stopping` says that the runner ended it, or saw it ended from outside."""

    allocation: str
    rc: int | str
    stopping: bool
    signal: int
    generation: int
    restored: int
    reason: str
    message: str


def read(stepdir: Path) -> Spec:
    """Read and check spec.json. Raises BadSpec, or OSError where it cannot be read."""
    try:
        said = read_json(stepdir / "spec.json", _MOST_BYTES)
    except ValueError as error:
        raise BadSpec(f"spec.json: {error}") from error
    return parse(said)


def parse(said: object) -> Spec:
    """Check what spec.json says. Fields that are not known are left to newer versions."""
    if not isinstance(said, dict) or said.get("schema") != SCHEMA:
        raise BadSpec(f"spec.json is not of schema {SCHEMA}")
    take = _Fields(said)
    own = _Fields(take.mapping("own"), "own.")
    return Spec(
        key=take.text("key", least=1),
        fingerprint=take.text("fingerprint"),
        workflow=take.text("workflow"),
        rule=take.text("rule"),
        wildcards=take.texts("wildcards"),
        workdir=take.path("workdir"),
        engine=take.one_of("engine", ENGINES),
        criu=take.text("criu"),
        interval=take.seconds_or_auto("interval"),
        mtbf=take.number("mtbf", least=1),
        lead_time=take.seconds_or_auto("lead_time"),
        keep_generations=take.whole("keep_generations", least=1),
        max_bytes=take.whole("max_bytes"),
        dump_slots=take.whole("dump_slots"),
        slots_dir=take.path("slots_dir"),
        own=Own(own.paths("files"), own.paths("directories")),
        shared_append=take.paths("shared_append"),
        check=take.text("check"),
        allow_uncheckpointed=take.flag("allow_uncheckpointed"),
        environment=take.texts("environment"),
    )


class _Fields:
    """Takes fields out of a JSON object, each as what it must be."""

    def __init__(self, said: Mapping[str, object], prefix: str = "") -> None:
        self._said = said
        self._prefix = prefix

    def _is(self, name: str, what: str, test: Callable[[object], bool]) -> object:
        value = self._said.get(name)
        if not test(value):
            raise BadSpec(f"spec.json: {self._prefix}{name} must be {what}, got {value!r:.100}")
        return value

    def text(self, name: str, least: int = 0) -> str:
        value = self._is(name, "text", lambda it: isinstance(it, str) and len(it) >= least)
        return cast(str, value)

    def one_of(self, name: str, names: tuple[str, ...]) -> str:
        return cast(str, self._is(name, f"one of {', '.join(names)}", lambda it: it in names))

    def flag(self, name: str) -> bool:
        return bool(self._is(name, "true or false", lambda it: isinstance(it, bool)))

    def number(self, name: str, least: float = 0) -> float:
        value = self._is(name, f"a number, at least {least}", lambda it: _number(it, least))
        return cast(float, value)

    def whole(self, name: str, least: int = 0) -> int:
        what = f"a whole number, at least {least}"
        value = self._is(name, what, lambda it: isinstance(it, int) and _number(it, least))
        return cast(int, value)

    def seconds_or_auto(self, name: str) -> float | str:
        what = "seconds or auto"
        return cast(float, self._is(name, what, lambda it: it == "auto" or _number(it, 0)))

    def path(self, name: str) -> Path:
        return Path(cast(str, self._is(name, "an absolute path", _absolute)))

    def paths(self, name: str) -> tuple[Path, ...]:
        value = self._is(
            name, "absolute paths", lambda it: isinstance(it, list) and all(map(_absolute, it))
        )
        return tuple(map(Path, cast(list[str], value)))

    def mapping(self, name: str) -> dict[str, object]:
        value = self._is(name, "an object", lambda it: isinstance(it, dict))
        return cast(dict[str, object], value)

    def texts(self, name: str) -> dict[str, str]:
        return cast(dict[str, str], self._is(name, "an object of texts", _texts))


def _number(value: object, least: float) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and least <= cast(float, value) < float("inf")


def _absolute(value: object) -> bool:
    return isinstance(value, str) and value.startswith("/") and "\0" not in value


def _texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())


def write_exit(stepdir: Path, ended: Exit) -> None:
    """Replace exit.json. Raises OSError."""
    write_json(stepdir / "exit.json", {"schema": SCHEMA, **asdict(ended)})


def read_exit(stepdir: Path) -> Exit | None:
    """What the last runner left, or None where it left nothing. Raises OSError, ValueError."""
    try:
        said = read_json(stepdir / "exit.json", _MOST_BYTES)
    except FileNotFoundError:
        return None
    if not isinstance(said, dict) or said.get("schema") != SCHEMA:
        raise ValueError(f"exit.json is not of schema {SCHEMA}")
    try:
        ended = Exit(**{name: said[name] for name in Exit.__slots__})
    except KeyError as error:
        raise ValueError(f"exit.json does not say {error}") from error
    if ended.reason not in REASONS or not (ended.rc == UNKNOWN or isinstance(ended.rc, int)):
        raise ValueError("exit.json says what no runner writes")
    return ended

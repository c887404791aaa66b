"""Which application a run was, and whether that application saves its own state.

Slurm has no field for it, so it is read from what the accounting keeps. Strongest first:

1. an interactive step, or a name that only a web portal gives: a session;
2. the submit line: the program given to ``srun`` or ``salloc``, the text of ``--wrap``, the file
   name of a batch script;
3. step names, which are the names of executables; the last one is what the limit cut off;
4. the job name;
5. the work directory, which only suggests a name: its class is ``unknown``.

Names are compared as whole words, never as parts of words. Two classes take hours out of the
addressable figure, ``built in, on by default`` and ``session``, so whatever is in doubt gets
neither. The patterns are data, in ``applications.toml``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import translate
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any


class Checkpointing(StrEnum):
    """What of a stopped run an application can go on from by itself."""

    DEFAULT = "built in, on by default"
    OPT_IN = "built in, opt-in"
    PARTIAL = "partial"
    NONE = "none"
    WORKFLOW = "workflow"
    SESSION = "session"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Application:
    """A program, or a kind of session, as reports name it."""

    name: str
    checkpointing: Checkpointing


@dataclass(frozen=True, slots=True)
class Recognition:
    """An application, and the kind of evidence that named it ("" when nothing did)."""

    application: Application
    evidence: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the table: an application, how it goes on, and what gives it away."""

    application: Application
    field: str
    restart: str
    executables: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    suffixes: tuple[str, ...] = ()

    @property
    def is_named(self) -> bool:
        """Whether this is an application, rather than a language anything can be written in."""
        return self.field != "languages"

    @property
    def takes_hours_out(self) -> bool:
        """Whether hours of this class are no longer counted as addressable."""
        return self.application.checkpointing in (Checkpointing.DEFAULT, Checkpointing.SESSION)


UNRECOGNISED = Application("not recognised", Checkpointing.UNKNOWN)

_DATA: dict[str, Any] = tomllib.loads(
    files(__package__).joinpath("applications.toml").read_text(encoding="utf-8")
)
_LISTS = ("executables", "names", "words", "suffixes")


def _entry(row: dict[str, Any]) -> Entry:
    lists = {key: tuple(row.get(key, ())) for key in _LISTS}
    application = Application(row["name"], Checkpointing(row["checkpointing"]))
    return Entry(application, row["field"], row["restart"], **lists)


CATALOGUE: tuple[Entry, ...] = tuple(_entry(row) for row in _DATA["application"])
_ABOUT = frozenset(_DATA["about"])
_PORTAL_PARTITIONS = frozenset(_DATA["portal_partitions"])
_PORTAL_FOLDER = "/sys/dashboard/batch_connect/"
_STILL_THERE_WHEN_ABOUT = (Checkpointing.NONE, Checkpointing.WORKFLOW)

# A submit line may hold a whole script; what was started stands at its beginning.
_LONGEST_LINE = 4096
_LONGEST_NAME = 256
_DEEPEST_FOLDER = 12

_WORD = re.compile(r"[^\W_]+")
_WRAP = re.compile(r"(?:^|\s)--wrap(?:=|\s+)")
_NEXT_COMMAND = re.compile(r"&&|\|\||[;|\n]|(?<![>&])&(?!>)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


# ------------------------------------------------------------------------------- the table, indexed


class _Patterns:
    """Whole names, or shell patterns, to entries."""

    def __init__(self, pairs: Iterable[tuple[str, Entry]]) -> None:
        self._exact: dict[str, Entry] = {}
        self._globs: list[tuple[re.Pattern[str], Entry]] = []
        for pattern, entry in pairs:
            if any(sign in pattern for sign in "*?["):
                self._globs.append((re.compile(translate(pattern)), entry))
            else:
                self._exact[pattern] = entry
        every = (f"(?:{pattern.pattern})" for pattern, _ in self._globs)
        self._any = re.compile("|".join(every))

    def exactly(self, name: str) -> Entry | None:
        return self._exact.get(name)

    def find(self, name: str) -> Entry | None:
        if (entry := self._exact.get(name)) or not self._any.match(name):
            return entry
        return next(entry for pattern, entry in self._globs if pattern.match(name))


@dataclass(frozen=True, slots=True)
class _Launcher:
    """Something written before the program, and how to step over it."""

    values: frozenset[str]
    pairs: frozenset[str]
    flags: frozenset[str]
    before: frozenset[str]
    after: int

    def step_over(self, words: Sequence[str], at: int) -> int | None:
        """Where the program stands, or None when this use of the launcher starts no program."""
        at = self._past_options(words, at)
        if self.before:
            if at >= len(words) or words[at] not in self.before:
                return None
            at = self._past_options(words, at + 1)
        return at + self.after

    def _past_options(self, words: Sequence[str], at: int) -> int:
        while at < len(words):
            word = words[at]
            if word == "--":
                return at + 1
            if word[0] in "-+":
                at += 1 if "=" in word else 1 + self._values_of(word)
            # A number here is the value of an option that is not in the table.
            elif word.isdigit() and not self.after:
                at += 1
            else:
                break
        return at

    def _values_of(self, option: str) -> int:
        if option in self.pairs:
            return 2
        if option in self.values:
            return 1
        return int(bool(self.flags) and option.startswith("--") and option not in self.flags)


@dataclass(frozen=True, slots=True)
class _Tables:
    executables: _Patterns
    with_first_argument: _Patterns
    names: _Patterns
    words: dict[str, Entry]
    first_words: frozenset[str]
    suffixes: dict[str, Entry]
    launchers: dict[str, _Launcher]
    shell: Entry
    portal: Entry
    desktop: Entry


def _pairs(attribute: str) -> Iterator[tuple[str, Entry]]:
    for entry in CATALOGUE:
        for pattern in getattr(entry, attribute):
            yield pattern, entry


def _launcher(row: dict[str, Any]) -> _Launcher:
    values, pairs, flags, before = (
        frozenset(row.get(key, ())) for key in ("values", "pairs", "flags", "before")
    )
    return _Launcher(values, pairs, flags, before, row.get("after", 0))


@cache
def _tables() -> _Tables:
    by_name = {entry.application.name: entry for entry in CATALOGUE}
    return _Tables(
        executables=_Patterns(pair for pair in _pairs("executables") if " " not in pair[0]),
        with_first_argument=_Patterns(pair for pair in _pairs("executables") if " " in pair[0]),
        names=_Patterns(_pairs("names")),
        words=dict(_pairs("words")),
        first_words=frozenset(words.partition(" ")[0] for words, _ in _pairs("words")),
        suffixes=dict(_pairs("suffixes")),
        launchers={name: _launcher(row) for row in _DATA["launcher"] for name in row["names"]},
        shell=by_name["Interactive shell"],
        portal=by_name["Open OnDemand session"],
        desktop=by_name["Remote desktop or editor"],
    )


# ------------------------------------------------------------------------------------ single names


@lru_cache(maxsize=65536)
def _executable(name: str) -> Entry | None:
    tables = _tables()
    is_script = name.rpartition(".")[2] in ("sh", *tables.suffixes)
    # A script is not the program its name begins with (lmp_to_xyz.py).
    return tables.executables.exactly(name) if is_script else tables.executables.find(name)


@lru_cache(maxsize=65536)
def _label(name: str) -> Entry | None:
    """What the name of a script or job says."""
    name = name[:_LONGEST_NAME]
    tables = _tables()
    if entry := tables.names.find(name):
        return entry
    stem, dot, suffix = name.rpartition(".")
    language = tables.suffixes.get(suffix) if dot else None
    entry = _by_words(stem if language else name)
    if language is None:
        return entry
    # A script about an application is not a run of it; a framework is what the script runs in.
    return entry if entry and entry.field == "machine learning" else language


def _by_words(text: str) -> Entry | None:
    words = _WORD.findall(text.lower())
    hits = list(_named_in(words))
    if not hits:
        return None
    # Where several are named ("gromacs_vs_lammps"), the one that leaves the hours in counts.
    hits.sort(key=lambda entry: entry.takes_hours_out)
    if not _ABOUT.isdisjoint(words):
        hits = [hit for hit in hits if hit.application.checkpointing in _STILL_THERE_WHEN_ABOUT]
    return hits[0] if hits else None


def _named_in(words: Sequence[str]) -> Iterator[Entry]:
    known, first_words = _tables().words, _tables().first_words
    stems = [word.rstrip("0123456789") for word in words]
    if first_words.isdisjoint(words) and first_words.isdisjoint(stems):
        return
    at = 0
    while at < len(words):
        for many, spelling in ((2, words), (2, stems), (1, words), (1, stems)):
            if entry := known.get(" ".join(spelling[at : at + many])):
                yield entry
                break
        at += many if entry else 1


def _basename(path: str) -> str:
    return path.rpartition("/")[2]


# ---------------------------------------------------------------------------------- the submit line


@dataclass(frozen=True, slots=True)
class _Found:
    """What a submit line started.

    ``by_label`` tells that only the name of a script speaks, ``scripted`` that something other
    than a person at a prompt was to do the work.
    """

    entry: Entry | None = None
    by_label: bool = False
    scripted: bool = False


@dataclass(frozen=True, slots=True)
class _Attended:
    """Whether a shell, or an interpreter, that is given nothing to do has a person at it."""

    at_shell: bool = False
    at_interpreter: bool = False


@lru_cache(maxsize=16384)
def _submitted(line: str) -> _Found:
    line = line[:_LONGEST_LINE]
    words = line.split()
    tool = _basename(words[0]) if words else ""
    if tool not in ("sbatch", "srun", "salloc"):
        return _Found()
    if tool == "sbatch" and "--wrap" in line and (wrap := _WRAP.search(line)):
        return _text(line[wrap.end() :], _Attended())
    program_at = _tables().launchers[tool].step_over(words, 1) or len(words)
    options, command = words[1:program_at], words[program_at:]
    if tool == "sbatch":
        return _script(command[0]) if command else _Found()
    if not command:
        opened = tool == "salloc" and "--no-shell" not in options
        return _Found(_tables().shell if opened else None)
    terminal = tool == "salloc" or any(word.startswith(("--pty", "--x11")) for word in options)
    return _text(" ".join(command), _Attended(True, at_interpreter=terminal))


def _text(text: str, attended: _Attended) -> _Found:
    """One or more shell commands: the one that is most likely to take the time."""
    commands = [words for part in _NEXT_COMMAND.split(text) if (words := _unquoted(part))]
    found = [_command(words, attended) for words in commands]
    # A pause between commands holds no nodes for a person.
    alone = len(commands) == 1
    known = [each for each in found if each.entry and (alone or each.entry.field != "idle")]
    return min(known, key=_order_in_text, default=_Found(scripted=True))


def _order_in_text(found: _Found) -> int:
    """Rather ``gmx mdrun`` than ``gmx grompp``; of two simulations, the one that exposes hours."""
    if found.entry is None or not found.entry.is_named:
        return 3
    if found.entry.application.checkpointing is Checkpointing.NONE:
        return 2
    return int(found.entry.takes_hours_out)


def _unquoted(part: str) -> list[str]:
    return [word for each in part.split() if (word := each.strip("'\"(){}"))]


def _command(words: Sequence[str], attended: _Attended) -> _Found:
    words = words[_program_at(words) :]
    if not words:
        return _Found(scripted=True)
    name, arguments = _basename(words[0]), words[1:]
    plain = [word for word in arguments if not word.startswith("-")]
    entry = _executed(name, plain)
    if entry is None:
        return _script(name)
    if entry.field == "shell":
        if plain and _executable(name):
            return _script(plain[0])
        return _Found(entry if attended.at_shell else None, scripted=not attended.at_shell)
    if entry.is_named:
        return _Found(entry, scripted=True)
    if attended.at_interpreter and not plain and not any("=" in word for word in arguments):
        return _Found(_tables().shell)
    return _Found((name.startswith("python") and _python(arguments)) or entry, scripted=True)


def _executed(name: str, plain: Sequence[str]) -> Entry | None:
    """What a program is, with its first argument if that tells more (``gmx mdrun``)."""
    first = plain and _tables().with_first_argument.find(f"{name} {_basename(plain[0])}")
    return first or _executable(name)


def _program_at(words: Sequence[str]) -> int:
    """Past assignments, launchers and ``sh -c``, to the program itself."""
    at = 0
    while at < len(words):
        launcher = _tables().launchers.get(_basename(words[at]))
        if _ASSIGNMENT.match(words[at]):
            after: int | None = at + 1
        elif launcher:
            after = launcher.step_over(words, at + 1)
        else:
            after = _past_dash_c(words, at)
        if after is None:
            break
        at = after
    return at


def _past_dash_c(words: Sequence[str], at: int) -> int | None:
    entry = _executable(_basename(words[at]))
    if entry is None or entry.field != "shell":
        return None
    for place, option in enumerate(words[at + 1 :], at + 1):
        if option.startswith("-") and not option.startswith("--") and "c" in option:
            return place + 1
        if not option.startswith("-") and option != "pipefail":
            break
    return None


def _python(arguments: Sequence[str]) -> Entry | None:
    """What a Python interpreter was given, if it is more than a script."""
    at = next((at for at, word in enumerate(arguments) if not word.startswith("-")), None)
    if at is None:
        return None
    given = arguments[at]
    if "-m" in arguments[:at]:
        package = given.partition(".")[0]
        return _executed(given, arguments[at + 1 :]) or _executable(package)
    name = _basename(given)
    return _executable(name) or _label(name if name.endswith(".py") else f"{name}.py")


def _script(path: str) -> _Found:
    entry = _label(_basename(path))
    shell_name = entry is not None and entry.field == "shell"
    return _Found(None if shell_name else entry, by_label=True, scripted=True)


# ---------------------------------------------------------------------------------- other evidence


@lru_cache(maxsize=65536)
def _step(name: str) -> Entry | None:
    name = _basename(name)
    entry = _executable(name)
    if entry is None:
        entry = _label(name)
        # A session is believed of a step only if its executable is one.
        return None if entry and entry.field in ("shell", "session", "portal") else entry
    return None if entry.field in ("shell", "idle") else entry


@lru_cache(maxsize=65536)
def _folder(name: str) -> tuple[Entry | None, bool]:
    name = name[:_LONGEST_NAME]
    entry = _by_words(name)
    if entry and (entry.application.checkpointing is Checkpointing.SESSION or not entry.is_named):
        entry = None
    return entry, not _ABOUT.isdisjoint(_WORD.findall(name.lower()))


def _suggested(work_dir: str) -> Application | None:
    """The application a directory is named after; many programs run in one directory."""
    for name in reversed(work_dir.split("/")[-_DEEPEST_FOLDER:]):
        entry, about = _folder(name)
        if entry:
            return Application(entry.application.name, Checkpointing.UNKNOWN)
        if about:
            return None
    return None


# -------------------------------------------------------------------------------------- all of it


def _is_for_portals(partition: str) -> bool:
    return not _PORTAL_PARTITIONS.isdisjoint(_WORD.findall(partition.lower()))


def _candidates(
    line: _Found, step_names: Sequence[str], job_name: str, partition: str
) -> Iterator[tuple[Entry | None, str]]:
    """What may be answered, the most trustworthy first."""
    ran = [step for name in reversed(step_names) if (step := _step(name))]
    named = [step for step in ran if step.is_named]
    label = _label(job_name)
    # A job called bash is not a session if a script does the work, and a batch step tells of one.
    if label and label.field == "shell":
        submitted = line.scripted or ("batch" in step_names and _executable(job_name) is not None)
        label = None if submitted else label

    by_line = line.entry if line.entry and line.entry.is_named else None
    # What ran is surer than what the script is called.
    contradicted = line.by_label and named and by_line not in named
    yield None if contradicted else by_line, "submit line"
    yield next(iter(named), None), "step name"
    if label and label.field in ("shell", "session") and not line.entry:
        yield label, "job name"
    yield line.entry, "submit line"
    yield next(iter(ran), None), "step name"
    if label and not label.is_named and not line.scripted and _is_for_portals(partition):
        label = _tables().desktop
    yield label, "job name"


def recognise(
    submit_line: str,
    step_names: Sequence[str],
    job_name: str,
    work_dir: str,
    partition: str = "",
    has_interactive_step: bool = False,
) -> Recognition:
    """Name the application of one run.

    Args:
        submit_line: SubmitLine of the job, "" before Slurm 21.08.
        step_names: JobName of its steps, in the order they started.
        job_name: JobName of the job.
        work_dir: WorkDir of the job.
        partition: Partition; one kept for portal sessions turns a bare ``matlab`` into a session.
        has_interactive_step: Whether there is an ``.interactive`` step.

    Returns:
        The application with the evidence for it, ``UNRECOGNISED`` and "" if nothing speaks.
    """
    if has_interactive_step:
        return Recognition(_tables().shell.application, "step name")
    label = _label(job_name)
    if label and label.field == "portal":
        return Recognition(label.application, "job name")
    if _PORTAL_FOLDER in work_dir:
        return Recognition(_tables().portal.application, "work directory")
    line = _submitted(submit_line)
    for entry, evidence in _candidates(line, step_names, job_name, partition):
        if entry:
            return Recognition(entry.application, evidence)
    if suggested := _suggested(work_dir):
        return Recognition(suggested, "work directory")
    return Recognition(UNRECOGNISED, "")


def markdown_table() -> str:
    """The catalogue as the table of ``docs/applications.md``."""
    rows = [
        f"| {entry.application.name} | {entry.field} | {entry.application.checkpointing} "
        f"| {entry.restart} |"
        for entry in CATALOGUE
    ]
    head = "| Application | Field | Own checkpoint | How it goes on |\n| --- | --- | --- | --- |"
    return "\n".join([head, *rows])

"""Checkpoint engines: what dumps a tree of processes and brings it back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ..tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol
else:
    Protocol = object  # importing typing would take a tenth of the runner's start

# Why a dump failed. `abandoned`: it was no longer wanted; `refused`: by the caller, while frozen.
DUMP_REASONS = (
    "abandoned", "refused", "timeout", "step_ended", "no_space", "io_error", "connection",
    "terminal", "device", "deleted_file", "mount", "namespace", "locked_file", "permission",
    "engine",
)  # fmt: skip
# Why a restore failed.
RESTORE_REASONS = (
    "timeout", "pid_in_use", "file_missing", "file_changed", "mount", "permission", "ended",
    "engine",
)  # fmt: skip


class EngineError(Exception):
    """The engine could not do it: a reason from a list, and the telling lines of its log."""

    def __init__(self, reason: str, excerpt: str) -> None:
        super().__init__(reason, excerpt)
        self.reason = reason
        self.excerpt = excerpt

    def __str__(self) -> str:
        return f"{self.reason}: {self.excerpt}" if self.excerpt else self.reason


class DumpFailed(EngineError):
    """The step runs on as if nothing had been tried."""


class RestoreFailed(EngineError):
    """Nothing of the tree is left."""


@dataclass(frozen=True, slots=True)
class Frozen:
    """Seconds that the step stood still for a dump."""

    seconds: float


class Engine(Protocol):
    """One way to dump and restore. All calls return; none waits longer than its deadline."""

    name: str

    def version(self) -> str:
        """The engine's version, or "unknown"."""

    def check(self) -> str:
        """Why it cannot work on this machine; "" where it can."""

    def dump(
        self,
        tree: Tree,
        image: Path,
        *,
        leave_running: bool,
        frozen: Callable[[], None],
        deadline: float,
        wanted: Callable[[], bool],
    ) -> Frozen:
        """Write the tree's image into the empty folder within `deadline` seconds.

        `frozen` is called while every task stands still: what it raises aborts the dump, lets the
        step go on, and is raised again. Afterwards the step runs, or with leave_running=False
        stands still until tree.thaw or tree.kill. `wanted` is asked now and then: False ends a
        dump that has not frozen anything for `frozen` yet. Raises DumpFailed.
        """

    def restore(self, image: Path, *, namespaced: bool, deadline: float) -> Tree:
        """Bring the tree back within `deadline` seconds as a child of this process.

        Raises RestoreFailed, and then has killed what there was of it.
        """

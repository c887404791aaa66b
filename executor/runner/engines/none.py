"""The engine that does nothing: a step runs, and what is lost is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..tree import Tree
from . import DumpFailed, Frozen, RestoreFailed


class NoEngine:
    """Never dumps, never restores."""

    name = "none"

    def version(self) -> str:
        return "none"

    def check(self) -> str:
        return ""

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
        raise DumpFailed("engine", "the step runs without a checkpoint engine")

    def restore(self, image: Path, *, namespaced: bool, deadline: float) -> Tree:
        raise RestoreFailed("engine", "the step runs without a checkpoint engine")

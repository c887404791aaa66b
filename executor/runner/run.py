"""What the parts of a runner share about the one step they run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path

from . import machine
from .engines import Engine
from .estimate import Cost
from .generations import Catalog
from .lease import Lease
from .ledger import Ledger
from .signals import Signals
from .spec import Spec
from .tree import Tree


class Ending(Exception):
    """The allocation ends here: with this reason (see spec.REASONS) and exit status."""

    def __init__(self, reason: str, status: int, message: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.message = message


@dataclass(slots=True)
class Run:
    """One allocation of one step."""

    stepdir: Path
    spec: Spec
    allocation: str
    seconds: float  # that the allocation lasts; inf where it does not end
    umask: int
    signals: Signals
    lease: Lease
    ledger: Ledger
    catalog: Catalog
    engine: Engine
    begun: float = field(default_factory=time.monotonic)
    engine_version: str = machine.UNKNOWN
    tree: Tree | None = None
    checkpoints: bool = True
    generation: int = 0  # the newest sealed one
    restored: int = 0  # the one this allocation began from
    costs: list[Cost] = field(default_factory=list)
    trouble: str = ""  # why the latest checkpoint was not made
    lasting: bool = False  # and it will not be made at another time either
    broken_off: bool = False  # the engine was killed in the middle of a dump of this tree
    survivors: list[int] = field(default_factory=list)  # processes that could not be killed
    _mute: bool = False

    @property
    def end(self) -> float:
        """The monotonic time at which the allocation ends."""
        return self.begun + self.seconds

    def event(self, name: str, **fields: object) -> None:
        """Write to the ledger. A ledger that cannot be written does not end the step."""
        self.ledger.now(generation=self.generation, engine_version=self.engine_version)
        try:
            self.ledger.write(name, **fields)
        except OSError as error:
            if not self._mute:
                say(f"the ledger cannot be written: {error}")
            self._mute = True


def say(message: str) -> None:
    """One line of progress. A log that cannot be written is no reason to stop."""
    try:
        print(message, flush=True)
    except OSError:
        return

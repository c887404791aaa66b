"""Functions of os that fail at their n-th call."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


class Fault:
    """Replaces one function of os; its n-th call (or that one and all later) fails.

    Writes are cut to 999 bytes, as a file system may do, so that a write has several calls.
    """

    def __init__(self, name: str, nth: int, code: int, *, lasting: bool = False) -> None:
        self.name, self.nth, self.code, self.lasting = name, nth, code, lasting
        self.calls = 0
        self.real: Callable[..., Any] = getattr(os, name)

    def __call__(self, *args: Any, **options: Any) -> Any:
        self.calls += 1
        if self.calls == self.nth or (self.lasting and self.calls > self.nth):
            if self.name == "close":
                self.real(*args)  # the descriptor is gone although an error is told
            raise OSError(self.code, os.strerror(self.code))
        if self.name == "write":
            return self.real(args[0], args[1][:999])
        return self.real(*args, **options)

    @property
    def hit(self) -> bool:
        return self.calls >= self.nth

    @contextmanager
    def active(self) -> Iterator[None]:
        """Be in the function's place."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, self.name, self)
            yield

    def fails(self, action: Callable[[], object]) -> bool:
        """Run action under this fault and tell whether it raised the fault's error."""
        with self.active():
            try:
                action()
            except OSError as error:
                assert error.errno == self.code
                return True
        return False


def faults(name: str, code: int, *, lasting: bool = False) -> Iterator[Fault]:
    """Yield a fault at the first call, the second, … until one is no longer reached."""
    for nth in itertools.count(1):
        fault = Fault(name, nth, code, lasting=lasting)
        yield fault
        if not fault.hit:
            assert nth > 1, f"os.{name} was never called"
            return

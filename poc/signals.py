"""Signals that ask the process to end: it tidies up first."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from types import FrameType

_ASK_TO_END = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_DEFAULTS = (signal.SIG_DFL, signal.default_int_handler)


@contextlib.contextmanager
def tidy_end() -> Iterator[None]:
    """End the block by an exception when a signal asks to, and the process with 128 and its number.

    The first such signal counts; later ones do not disturb the tidying up. A signal that is
    ignored, as under nohup, stays ignored. While DuckDB works it may wait for the query to end.
    """
    received: list[int] = []
    handlers = {number: signal.getsignal(number) for number in _ASK_TO_END}
    earlier = {number: handler for number, handler in handlers.items() if handler in _DEFAULTS}

    def end(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for each in earlier:
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in earlier:
        signal.signal(number, end)
    try:
        yield
    except BaseException as error:
        # DuckDB, for one, makes an error of its own of what the signal raised.
        if not received:
            raise
        with contextlib.suppress(OSError):
            print("cedana-poc: interrupted", file=sys.stderr, flush=True)
        raise SystemExit(128 + received[0]) from error
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)

"""The signals a runner lives by, as facts that its loop looks at; handlers only note them."""

from __future__ import annotations

import os
import select
import signal

_STOP = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Signals:
    """`lead`: the allocation ends soon (SIGUSR1). `stop`: the signal that asks to stop, or 0."""

    def __init__(self) -> None:
        self.lead = False
        self.stop = 0
        self._heard = self._said = -1

    def listen(self) -> None:
        self._heard, self._said = os.pipe()
        for end in (self._heard, self._said):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(self._said, warn_on_full_buffer=False)
        for number in (*_STOP, signal.SIGUSR1, signal.SIGCHLD):
            signal.signal(number, self._note)

    def ignore(self) -> None:
        for number in (*_STOP, signal.SIGUSR1):
            signal.signal(number, signal.SIG_IGN)

    def _note(self, number: int, _: object) -> None:
        if number == signal.SIGUSR1:
            self.lead = True
        elif number in _STOP and not self.stop:
            self.stop = number

    def wait(self, seconds: float) -> None:
        """Return after that time, or at once when a signal or the end of a child is known."""
        select.select([self._heard], [], [], max(0.0, min(seconds, 3600.0)))
        try:
            os.read(self._heard, 4096)
        except BlockingIOError:
            return

"""The one error that a user can act on."""

from __future__ import annotations


def visible(text: str) -> str:
    """Return text as one line in which every character that does not print is shown as an escape.

    Job names, paths and host lists come from outside: a newline in one must not break a message
    in two, and an escape sequence must not reach the terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


class UserError(Exception):
    """A mistake or condition that the user can act on, told in one line.

    Args:
        what: What was wrong.
        where: The file, line or option it was found in.
        hint: What to do about it.
    """

    exit_code = 2

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.hint = hint

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        hint = f"; {self.hint}" if self.hint else ""
        return visible(f"{where}{self.what}{hint}")

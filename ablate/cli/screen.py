"""Lines at the bottom of a terminal, of which only those that have changed are written again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_HIDE_CURSOR, _SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
_ERASE_RIGHT, _ERASE_BELOW = "\x1b[K", "\x1b[J"


def can_repaint(console: Console) -> bool:
    """Whether a person looks at this through a terminal that can go back: no pipe, no file, no CI."""
    return console.file.isatty() and not console.is_dumb_terminal and not os.environ.get("CI")


class Screen:
    """A few lines that stay below whatever else is printed.

    The cursor rests at the beginning of the line below them. A line is written again only if it has
    changed, so that nothing flickers, also over a slow connection.
    """

    def __init__(self, console: Console) -> None:
        self.console = console
        self.shown: list[str] = []
        self.lengths: list[int] = []  # of what is shown, in columns
        self.size = console.size
        self._write(_HIDE_CURSOR)

    def show(self, lines: Sequence[Text]) -> None:
        """Replace what is shown by these lines, which are narrower than the terminal."""
        new = [self._styled(line) for line in lines]
        self._write(self._gone() + self._fresh(new) if self._resized() else self._changes(new))
        self._remember(new, lines)

    def say(self, line: str) -> None:
        """Print a line above what is shown."""
        self._write(self._gone() + line + "\n" + self._fresh(self.shown))

    def close(self) -> None:
        """Take away what is shown."""
        self._write(self._gone() + _SHOW_CURSOR)
        self.shown, self.lengths = [], []

    def leave(self) -> None:
        """Let what is shown stand."""
        self._write(_SHOW_CURSOR)
        self.shown, self.lengths = [], []

    def _changes(self, new: list[str]) -> str:
        """What turns the lines that are shown into the new ones."""
        height, parts = len(self.shown), []
        for place, (old, line) in enumerate(zip(self.shown, new, strict=False)):
            if old != line:
                up = height - place
                parts.append(f"\x1b[{up}A\r{line}{_ERASE_RIGHT}\x1b[{up}B\r")
        if len(new) < height:
            parts.append(f"\x1b[{height - len(new)}A{_ERASE_BELOW}")
        return "".join(parts) + self._fresh(new[height:])

    def _fresh(self, lines: Sequence[str]) -> str:
        return "".join(f"{line}{_ERASE_RIGHT}\n" for line in lines)

    def _gone(self) -> str:
        """What takes the shown lines away; where the terminal has become narrower, they take more rows now."""
        width = max(1, self.console.width)
        rows = sum(max(1, -(-length // width)) for length in self.lengths)
        return f"\x1b[{rows}A\r{_ERASE_BELOW}" if rows else ""

    def _resized(self) -> bool:
        before, self.size = self.size, self.console.size
        return before != self.size

    def _remember(self, new: list[str], lines: Sequence[Text]) -> None:
        self.shown, self.lengths = new, [line.cell_len for line in lines]

    def _styled(self, line: Text) -> str:
        """The line with the terminal's codes for its styles."""
        with self.console.capture() as captured:
            self.console.print(line, end="", soft_wrap=True, highlight=False)
        return captured.get()

    def _write(self, text: str) -> None:
        if text:
            self.console.file.write(text)
            self.console.file.flush()

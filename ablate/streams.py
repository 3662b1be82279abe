"""Standard streams: messages and tables for people, data for programs. Everything that is printed
goes through here.

Text may be untrusted: sentences of a corpus, file names, messages in results. No control character
and no bidirectional mark in it reaches a terminal, and rich takes nothing in it for markup or an
emoji.

- `echo` and `new_console` print for people, in the encoding of the stream; what it cannot represent
  is escaped.
- `print_data` and `print_json` print for programs: into a pipe or file exactly, in UTF-8 whatever
  the locale.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TextIO

from ablate.formatting import json_text, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table


def prepare() -> None:
    """Make the standard streams safe to use, at the start of a process.

    A closed stream is replaced by the null device, so that no file which is opened later takes its
    number and receives what this process or its children print. `sys.stdin` stays None then.
    Characters that a stream cannot encode are escaped. An error of writing names the stream.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(
                os.open(os.devnull, mode), True
            )  # open takes the lowest free number, which is this one
    sys.stdout = _prepared(sys.stdout, 1, "standard output")
    sys.stderr = _prepared(sys.stderr, 2, "standard error")


def _prepared(stream: TextIO | None, number: int, name: str) -> TextIO:
    """Return a stream to this descriptor; a stream to anything else, such as a test's, as it is."""
    try:
        if stream is not None and stream.fileno() != number:
            return stream
    except OSError:  # no file
        assert stream is not None
        return stream
    if stream is not None:
        stream.flush()
    buffer = io.BufferedWriter(_Descriptor(number, name))
    encoding = stream.encoding if stream else "utf-8"
    return io.TextIOWrapper(
        buffer, encoding, "backslashreplace", line_buffering=number == 2 or buffer.isatty()
    )


class _Descriptor(io.FileIO):
    """A file descriptor whose errors name it, as the errors of files do."""

    def __init__(self, number: int, title: str) -> None:
        super().__init__(number, "w", closefd=False)
        self.title = title

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = self.title
            raise


def finish() -> None:
    """Flush the streams; discard text that cannot be written, which Python would report once more
    at exit.
    """
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)


def echo(text: object = "", *, err: bool = False) -> None:
    """Print text with a line break at once, with harmful characters escaped.

    Args:
        text: of one or several lines.
        err: print on standard error.
    """
    print(visible(str(text)), file=sys.stderr if err else sys.stdout, flush=True)


def print_data(text: str) -> None:
    """Print text without a line break: into a pipe or file as it is, in UTF-8; on a terminal with
    escapes.
    """
    stream = sys.stdout
    if stream.isatty() or not hasattr(stream, "buffer"):
        stream.write(visible(text))
    else:
        stream.flush()  # what was printed before comes first
        stream.buffer.write(
            text.encode(errors="backslashreplace")
        )  # a lone surrogate has no bytes in UTF-8
    stream.flush()


def print_json(value: object) -> None:
    """Print JSON; harmful characters have its escapes, on a terminal without Unicode all beyond
    ASCII.
    """
    stream = sys.stdout
    is_unicode = (stream.encoding or "utf-8").lower().startswith("utf")
    print_data(json_text(value, ascii_only=stream.isatty() and not is_unicode) + "\n")


def new_console(*, err: bool = False, **settings: Any) -> Console:
    """Return a console of rich that prints text as it is: no markup, no emoji, no highlighting, no
    control characters.

    Args:
        err: print on standard error.
        settings: of rich's `Console`, such as `soft_wrap`, which leaves long lines to the terminal.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class SafeConsole(Console):
        def render_str(self, text: str, **settings: Any) -> Text:
            """Escape text before its width is measured; rich would drop some control characters
            without a trace.
            """
            return super().render_str(visible(text), **settings)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            """Escape what comes from a `Text`, before rich adds the codes of its styles."""
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            """Pass the error on to `main`; rich would exit with 1."""
            raise

    return SafeConsole(stderr=err, markup=False, emoji=False, highlight=False, **settings)


def print_line(console: Console, line: str) -> None:
    """Print a line: broken between words in a terminal, whole in a pipe."""
    console.print(line, soft_wrap=not console.is_terminal)


def widen(console: Console, table: Table) -> None:
    """Make a console as wide as a table needs."""
    options = console.options.update(max_width=10_000)
    console.width = max(console.width, console.measure(table, options=options).maximum)

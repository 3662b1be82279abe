"""Standard streams: all output of the commands passes through this module.

Text may be untrusted: sentences of a corpus, file names, messages in results. So control characters
and bidirectional marks do not reach a terminal, and rich does not interpret markup or emoji codes.

- `echo` and `new_console` print for people, in the encoding of the stream. Characters that the
  encoding lacks are escaped.
- `print_data` and `print_json` print for programs: into a pipe or a file, in UTF-8 and without
  changes, independent of the locale.
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

    A closed stream is replaced by the null device: otherwise a file that is opened later could get
    the number of the stream, and receive the output of this process or of its children. `sys.stdin`
    stays None. Characters that a stream cannot encode are escaped, and a write error names the
    stream.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            # os.open() returns the lowest free number, which is `number`.
            os.set_inheritable(os.open(os.devnull, mode), True)
    sys.stdout = _prepared(sys.stdout, 1, "standard output")
    sys.stderr = _prepared(sys.stderr, 2, "standard error")


def _prepared(stream: TextIO | None, number: int, name: str) -> TextIO:
    """A text stream that writes to a descriptor. A stream that writes to something else, as in a
    test, is returned unchanged.
    """
    try:
        if stream is not None and stream.fileno() != number:
            return stream
    except OSError:  # the stream is no file
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
    """A file descriptor whose write errors contain a name, as the errors of files do."""

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
    """Flush the streams. Text that cannot be written is discarded: otherwise Python would report
    the error once more at exit.
    """
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, number)
            os.close(null)


def echo(text: object = "", *, err: bool = False) -> None:
    """Print text and a line break, with harmful characters escaped, and flush."""
    print(visible(str(text)), file=sys.stderr if err else sys.stdout, flush=True)


def print_data(text: str) -> None:
    """Print text without a line break at its end: unchanged and in UTF-8 into a pipe or a file,
    with escapes on a terminal.
    """
    stream = sys.stdout
    if stream.isatty() or not hasattr(stream, "buffer"):
        stream.write(visible(text))
    else:
        stream.flush()  # so that text printed before comes first
        # Escapes lone surrogates, which have no bytes in UTF-8.
        stream.buffer.write(text.encode(errors="backslashreplace"))
    stream.flush()


def print_json(value: object, *, in_one_line: bool = False) -> None:
    """Print a value as JSON, indented or in one line. Harmful characters are escaped, and on a
    terminal without Unicode also all characters beyond ASCII.
    """
    stream = sys.stdout
    is_unicode = (stream.encoding or "utf-8").lower().startswith("utf")
    is_ascii = stream.isatty() and not is_unicode
    print_data(json_text(value, ascii_only=is_ascii, in_one_line=in_one_line) + "\n")


def new_console(*, err: bool = False, **settings: Any) -> Console:
    """A console of rich that prints text literally: it interprets neither markup nor emoji codes,
    highlights nothing, and escapes control characters.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment
    from rich.text import Text

    class SafeConsole(Console):
        def render_str(self, text: str, **settings: Any) -> Text:
            """Escape text before its width is measured, because rich drops some control
            characters.
            """
            return super().render_str(visible(text), **settings)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            """Escape the text of segments, before rich adds the control codes of its styles."""
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(visible(segment.text), segment.style)

        def on_broken_pipe(self) -> None:
            """Pass the error to `main`, because rich would exit with 1."""
            raise

    return SafeConsole(stderr=err, markup=False, emoji=False, highlight=False, **settings)


def print_line(console: Console, line: str) -> None:
    """Print a line. It is broken between words on a terminal, and not in a pipe."""
    console.print(line, soft_wrap=not console.is_terminal)


def widen(console: Console, table: Table) -> None:
    """Make a console as wide as a table needs."""
    options = console.options.update(max_width=10_000)
    console.width = max(console.width, console.measure(table, options=options).maximum)


def whole_lines(console: Console, table: Table) -> str:
    """The lines of a table in full width for a pipe, without spaces at their ends."""
    widen(console, table)
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())

"""Lines of text, checked: UTF-8, a sentence a line, ended by LF or CR LF alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ablate.data.io import BLOCK, open_bytes, readable
from ablate.errors import DataError

MAX_LINE_BYTES = 1 << 20
_NUL = b"\0"


def read_lines(path: str, repaired: Counter[str]) -> Iterator[str]:
    """The lines of a file, without their ends; U+2028 and its like are part of a sentence.

    Args:
        path: the file.
        repaired: counts what was mended on the way: a byte-order mark, line ends of CR LF.

    Raises:
        DataError: a line that is not UTF-8, holds a NUL byte or is far too long, each with file and line.
    """
    for number, block in _blocks(path):
        if _NUL in block:
            line = number + block.count(b"\n", 0, block.index(_NUL))
            raise DataError(f"{path}:{line}: contains a NUL byte: not text")
        try:
            text = block.decode()
        except UnicodeDecodeError as error:
            line = number + block.count(b"\n", 0, error.start)
            byte = error.start - (block.rfind(b"\n", 0, error.start) + 1)
            raise DataError(f"{path}:{line}: is not valid UTF-8 (byte {byte + 1} of the line)") from None
        if number == 1 and text.startswith("\ufeff"):
            repaired["byte-order mark"] += 1
            text = text[1:]
        lines = text.split("\n")
        if not lines[-1]:
            lines.pop()
        ends = text.count("\r\n") + text.endswith("\r")
        if ends:
            repaired["CR LF line ends"] += ends
            lines = [line.removesuffix("\r") for line in lines]
        yield from lines


def _blocks(path: str) -> Iterator[tuple[int, bytes]]:
    """(number of its first line, whole lines) of a file, about a megabyte at once."""
    number, rest = 1, b""
    with readable(path), open_bytes(path) as stream:
        while block := stream.read(BLOCK):
            end = block.rfind(b"\n") + 1
            whole, ahead = (rest + block[:end], block[end:]) if end else (b"", rest + block)
            if whole:
                _refuse_long(path, whole, number)
                yield number, whole
                number += whole.count(b"\n")
            rest = ahead
            if len(rest) > MAX_LINE_BYTES:
                raise DataError(_too_long(path, number))
    if rest:
        yield number, rest


def _refuse_long(path: str, block: bytes, number: int) -> None:
    if len(block) > MAX_LINE_BYTES:
        for place, line in enumerate(block.split(b"\n"), number):
            if len(line) >= MAX_LINE_BYTES:
                raise DataError(_too_long(path, place))


def _too_long(path: str, number: int) -> str:
    return f"{path}:{number}: is longer than {MAX_LINE_BYTES} bytes: not a sentence"

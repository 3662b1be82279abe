"""Format numbers, values and text for people: units, escapes, ellipses."""

from __future__ import annotations

import json
import math
import re
from bisect import bisect
from collections.abc import Iterable, Mapping, Sequence

_PINNED = re.compile(r"(\b\w[\w.]*:\w+)@[0-9a-f]{12}\b")  # a class with the hash of its source


def duration(seconds: float | None) -> str:
    """`48 s`, `3 min`, `2 h 05 min`, `3 d 4 h`; `?` if it is unknown."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def estimated(seconds: float) -> str:
    """An estimate of the time of a launch: `about 3 min`, `under a minute`, or `0 s` if nothing is
    left to do. No shorter time is named: workers take seconds to start, which no estimate counts.
    """
    if not seconds:
        return "0 s"
    return "under a minute" if seconds < 60 else f"about {duration(seconds)}"


_UNITS = {"d": 86_400.0, "h": 3600.0, "min": 60.0, "m": 60.0, "s": 1.0}
_AMOUNT = r"(\d+(?:\.\d+)?)\s*(d|h|min|m|s)"


def seconds_of(text: str) -> float | None:
    """Seconds of `2h`, `90min` or `1d 12h`; None for other text."""
    words = text.strip().lower()
    if not re.fullmatch(rf"(?:{_AMOUNT}\s*)+", words):
        return None
    return sum(float(amount) * _UNITS[unit] for amount, unit in re.findall(_AMOUNT, words))


def size(n: float) -> str:
    """Bytes: `850 KB`, `1.2 GB`."""
    return scaled(n, "B")


def scaled(n: float | None, unit: str) -> str:
    """A number with a decimal prefix and three digits: `9.53 GB`; `?` if it is unknown."""
    if n is None:
        return f"? {unit}"
    if n < 999.5:  # larger numbers round to 1000
        return f"{n:.0f} {unit}"
    n /= 1000
    prefixes = "KMGTPE"
    while n >= 999.5 and len(prefixes) > 1:
        n /= 1000
        prefixes = prefixes[1:]
    digits = (2, 1, 0)[bisect((9.995, 99.95), n)]
    return f"{n:.{digits}f} {prefixes[0]}{unit}"


def flops_text(flops: float) -> str:
    """A number of floating-point operations: `9.53 TFLOP`. The unit has no plural, because TFLOPS
    are a rate. Columns of FLOPs have only the prefix: `9.53 T`.
    """
    return scaled(flops, "FLOP")


def percent(share: float, decimals: int | None = None) -> str:
    """A share as percentage with three digits, such as `1.88 %` and `5 %`, or with `decimals`."""
    return f"{100 * share:.3g} %" if decimals is None else f"{100 * share:.{decimals}f} %"


def signed_percent(share: float) -> str:
    """A share as percentage with its sign: `+0.1 %`; `0.0 %` if it rounds to zero."""
    return f"{signed(100 * share, 1)} %"


def plural(count: int, noun: str) -> str:
    """`1 thread`, `2 threads`, `1,200 runs`."""
    if count != 1:
        noun += "s"
    return f"{count:,} {noun}"


def number(value: float | None, digits: int) -> str:
    """A number with fixed decimals; empty for None."""
    return "" if value is None else f"{value:.{digits}f}"


def millions(params: int) -> str:
    """Parameters in millions, with at least three significant digits: `0.230`, `65.3`, `213`."""
    value = params / 1e6
    return format(value, ("#.3g", ".1f", ".0f")[bisect((10, 100), value)])


def thousands(steps: int | None) -> str:
    """Steps as in the paper, `100K`; all digits if they are no whole thousands."""
    if steps is None:
        return "?"
    if steps >= 10_000 and steps % 1000 == 0:
        return f"{steps // 1000}K"
    return str(steps)


def shares_text(shares: Mapping[str, float]) -> str:
    """Shares by name, with one digit: `source 1.2 %, target <0.1 %`."""
    texts = []
    for name, share in shares.items():
        text = "<0.1 %" if 0 < share < 0.0005 else percent(share, 1)
        texts.append(f"{name} {text}")
    return ", ".join(texts)


def signed(value: float | None, digits: int) -> str:
    """A difference: `+0.3`, `-1.2`, `0.0` without a sign; empty for None."""
    if value is None:
        return ""
    text = f"{value:+.{digits}f}"
    return text if round(value, digits) else text[1:]


def ratio(logarithm: float) -> str:
    """A ratio from its logarithm: `0.950`, `1.083`, `41.0`, `3970`."""
    if not math.log(0.0005) < logarithm < math.log(1e6):
        return f"1e{logarithm / math.log(10):+.0f}"
    value = math.exp(logarithm)
    digits = (3, 1, 0)[bisect((9.9995, 99.95), value)]
    return f"{value:.{digits}f}"


def spread_text(std: float | None, digits: int, is_log: bool = False) -> str:
    """A standard deviation after a mean: ` ±0.2`, ` ×÷1.024` for logarithms; empty for None."""
    if std is None:
        return ""
    if is_log:
        return f" ×÷{ratio(std)}"
    return f" ±{std:.{digits}f}"


def p_text(p: float | None, level: float = 0.05) -> str:
    """A p value: `0.034`, `<0.001`; empty for None. It has more digits if rounding would give the
    level itself: `0.0496`.
    """
    if p is None:
        return ""
    if p < 0.001:
        return "<0.001"
    for digits in range(3, 17):
        if p == level or round(p, digits) != level:
            break
    return f"{p:.{digits}f}"


def interval_text(low: float, high: float, digits: int) -> str:
    """An interval: `[-0.3, +0.2]`; with up to four more digits if an end would round to 0."""
    ends = [end for end in (low, high) if end]
    for shown_digits in range(digits, digits + 5):
        if all(round(end, shown_digits) for end in ends):
            break
    return f"[{signed(low, shown_digits)}, {signed(high, shown_digits)}]"


# Control characters except tab and line feed (C0, C1 and DEL), line separators, bidirectional
# marks, lone surrogates.
_HARMFUL = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f\ud800-\udfff]|\r(?!\n)"
)


def visible(text: str) -> str:
    r"""Escape the characters of a text that could affect a terminal or a page, such as `\x1b` and
    `\u202e`.

    These are control characters except tabs and line breaks, bidirectional marks, which reorder
    the text around them, and surrogates. Letters of all scripts stay.
    """
    return _HARMFUL.sub(lambda match: _escape(match[0]), text)


def printable(text: str) -> str:
    r"""Escape all characters that are not printable, such as `\n`, in the text of a single line."""
    return "".join(c if c.isprintable() else _escape(c) for c in text)


def first_line(error: BaseException) -> str:
    """The first line of the text of an exception, or the name of its class if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def type_and_line(error: BaseException) -> str:
    """The type of an exception and the first line of its text: `OSError: no route to host`."""
    name, line = type(error).__name__, first_line(error)
    return name if line == name else f"{name}: {line}"


def single_line(error: BaseException) -> str:
    """The text of an exception, joined to a single line."""
    return " ".join(str(error).split())


def token_text(piece: str) -> str:
    """A token as printable text. It is in quotes if it is empty, or if it begins or ends with a
    space, which would be invisible.
    """
    text = printable(piece)
    if not text or text != text.strip():
        return f'"{text}"'
    return text


def json_text(value: object, *, ascii_only: bool = False, in_one_line: bool = False) -> str:
    r"""JSON, indented unless it is for one line. Harmful characters (see `visible`) have the
    escapes of JSON, which keep the value.
    """
    text = json.dumps(value, indent=None if in_one_line else 1, ensure_ascii=ascii_only)
    return _HARMFUL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _escape(character: str) -> str:
    return repr(character)[1:-1]


def ellipsis(text: str, width: int) -> str:
    """Cut text to `width` characters; text that is cut ends with `…`."""
    return f"{text[: width - 1]}…" if len(text) > width else text


def middle_ellipsis(text: str, width: int) -> str:
    """Cut text to `width` characters; text that is cut has `…` in the middle."""
    if len(text) <= width:
        return text
    end = (width - 1) // 2
    return f"{text[: width - 1 - end]}…{text[len(text) - end :]}"


def fold(text: str, width: int) -> list[str]:
    """Break text into lines of at most `width` characters: after spaces, = and commas; pieces that
    are too long, after _; pieces that are still too long, anywhere.
    """
    pieces: list[str] = []
    for word in re.findall(r"\S+ ?", text):
        pieces += _pieces(word, width)
    lines = [""]
    for piece in pieces:
        if lines[-1] and len((lines[-1] + piece).rstrip()) > width:
            lines.append("")
        lines[-1] += piece
        while len(lines[-1].rstrip()) > width:
            lines[-1:] = [lines[-1][:width], lines[-1][width:]]
    return [line.rstrip() for line in lines]


def _pieces(word: str, width: int) -> list[str]:
    """Cut a word into the largest pieces that fit."""
    for pattern in (r".+", r"[^=,]*[=,]+|[^=,]+", r"[^=,_]*[=,_]+|[^=,_]+"):
        pieces = re.findall(pattern, word)
        if max(map(len, map(str.rstrip, pieces))) <= width:
            break
    return pieces


def first_few(names: Sequence[str], limit: int = 4) -> str:
    """`base, A h=1 and 3 more`: at most `limit` names."""
    if len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"


def concerned_rows(labels: Sequence[str], n_rows: int) -> str:
    """The rows that a note concerns: `base, A h=1 and 3 more`, or `every row` of several."""
    return "every row" if 1 < n_rows == len(labels) else first_few(labels)


def enumeration(texts: Iterable[str]) -> str:
    """`3, 4 and 6`, or `3 and 6`."""
    *others, last = list(texts) or [""]
    return f"{', '.join(others)} and {last}" if others else last


def setting_text(value: object, unset: str = "unset") -> str:
    """The value of a configuration field in the syntax of studies: `0.1`, `true`, `sinusoidal`;
    `local/local/full` for a pattern over the layers.

    Args:
        value: the value of the field.
        unset: the text for None.
    """
    if value is None:
        return unset
    if isinstance(value, (list, tuple)):  # a pattern over the layers
        return "/".join(setting_text(entry, unset) for entry in value)
    if isinstance(value, bool):
        return str(value).lower()
    return without_hashes(str(value))


def settings_text(settings: Mapping[str, object], separator: str = ", ") -> str:
    """Settings as a study writes them: `dropout=0.3, activation=mine:Square`."""
    return separator.join(f"{name}={setting_text(value)}" for name, value in settings.items())


# Name and password in an address, and values of secret parameters in its query.
_LOGIN = re.compile(r"(?<=://)[^/\s'\"<>]*@")
_SECRET = re.compile(
    r"([?&;][\w.-]*(?:token|key|secret|passw(?:or)?d|pwd|sig|signature|credential)[\w.-]*=)"
    r"[^&;#\s'\"<>]+",
    re.I,
)


def without_secrets(text: str) -> str:
    """Text in which addresses have no name, password or key: `https://…@host/?token=…`."""
    return _SECRET.sub(r"\1…", _LOGIN.sub("…@", text))


def without_hashes(text: str) -> str:
    """Text in which `mine:Square@3f2a91c0d7e4` is `mine:Square`, as a study writes it."""
    return _PINNED.sub(r"\1", text)

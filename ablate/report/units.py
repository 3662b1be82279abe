"""Numbers with units, for people."""

from __future__ import annotations


def duration(seconds: float | None) -> str:
    """`48 s`, `3 min`, `2 h 05 min`, `3 d 4 h`; `?` where it is not known."""
    if seconds is None:
        return "?"
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def size(n: float) -> str:
    """Bytes: `850 KB`, `1.2 GB`."""
    return scaled(n, "B")


def scaled(n: float | None, unit: str) -> str:
    """With a decimal prefix and three digits: `9.53 TFLOP`; `?` where it is not known."""
    if n is None:
        return f"? {unit}"
    for prefix in ("", "K", "M", "G", "T", "P", "E"):
        if n < 999.5 or prefix == "E":  # from there on it would round to 1000
            digits = 0 if n >= 99.95 or prefix == "" else 1 if n >= 9.995 else 2
            return f"{n:.{digits}f} {prefix}{unit}"
        n /= 1000
    raise AssertionError


def plural(count: int, noun: str) -> str:
    """`1 thread`, `2 threads`, `1,200 runs`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"

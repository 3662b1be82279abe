"""Where names stand beside their spots so that none covers another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

_AWAY = 8.0  # from a spot to its name
_SPOT = 10.0  # a spot's width


@dataclass(frozen=True)
class Name:
    """A name's place: x of its beginning or its end, y of its middle, and which of both x is."""

    x: float
    y: float
    side: Literal["start", "end"]


def place(
    spots: Sequence[tuple[float, float]],
    widths: Sequence[float],
    height: float,
    across: tuple[float, float],
    upright: tuple[float, float],
) -> list[Name | None]:
    """A place for each name beside its spot, to the right, else to the left; None where there is no room.

    Args:
        spots: the middle of each spot.
        widths: of each name, in the same units.
        height: of every name.
        across: the least and the largest x that a name may cover.
        upright: the least and the largest y.
    """
    taken = [(x - _SPOT / 2, y, _SPOT) for x, y in spots]
    found: list[Name | None] = []
    for (x, y), width in zip(spots, widths, strict=True):
        free = (name for name in _places(x, y, width, height) if _is_free(name, width, height, taken, across, upright))
        name = next(free, None)
        if name is not None:
            taken.append((_left(name, width), name.y, width))
        found.append(name)
    return found


def _places(x: float, y: float, width: float, height: float) -> list[Name]:
    return [
        name
        for away in (0.0, -height, height)
        for name in (Name(x + _AWAY, y + away, "start"), Name(x - _AWAY, y + away, "end"))
    ]


def _left(name: Name, width: float) -> float:
    return name.x if name.side == "start" else name.x - width


def _is_free(
    name: Name,
    width: float,
    height: float,
    taken: list[tuple[float, float, float]],
    across: tuple[float, float],
    upright: tuple[float, float],
) -> bool:
    left = _left(name, width)
    if left < across[0] or left + width > across[1]:
        return False
    if name.y - height / 2 < upright[0] or name.y + height / 2 > upright[1]:
        return False
    return all(left + width < x or left > x + w or abs(name.y - y) >= height for x, y, w in taken)

"""Placement of names beside the points of a figure so that none covers another, a point or a
line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

AWAY = 5.0  # from a point to its name
RINGS = 6  # further and further places that are tried for a name


class Box(NamedTuple):
    """A rectangle; y grows upwards."""

    left: float
    bottom: float
    right: float
    top: float

    def overlaps(self, other: Box) -> bool:
        """Return whether the two share any area."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.bottom < other.top
            and other.bottom < self.top
        )

    def is_within(self, other: Box) -> bool:
        """Return whether no part is outside of the other."""
        return (
            self.left >= other.left
            and self.right <= other.right
            and self.bottom >= other.bottom
            and self.top <= other.top
        )


def place(
    points: Sequence[tuple[float, float]],
    sizes: Sequence[tuple[float, float]],
    obstacles: Sequence[Box],
    bounds: Box,
    *,
    near: bool = True,
) -> list[Box | None]:
    """Return a free box for the name of each point, None where there is none.

    Args:
        points: positions of the points.
        sizes: width and height of each name, in the same units.
        obstacles: what no name may cover.
        bounds: what no name may leave.
        near: whether only places right beside a point are tried, where it is plain which point a
            name belongs to.
    """
    taken = list(obstacles)
    boxes: list[Box | None] = []
    for (x, y), (width, height) in zip(points, sizes, strict=True):
        candidates = _candidates(x, y, width, height, 1 if near else RINGS)
        free = [
            box for box in candidates if box.is_within(bounds) and not any(map(box.overlaps, taken))
        ]
        names = [name for name in boxes if name is not None]
        clear = (
            box
            for box in free
            if not any(part.overlaps(name) for part in _leader(x, y, box) for name in names)
        )
        box = next(
            clear, free[0] if free else None
        )  # a line over a name is better than a point without one
        if box is not None:
            taken += [box, *_leader(x, y, box)]
        boxes.append(box)
    return boxes


def is_far(x: float, y: float, box: Box) -> bool:
    """Return whether a name is so far from its point that a line must join them."""
    return (
        abs((box.bottom + box.top) / 2 - y) > box.top - box.bottom
        or min(abs(box.left - x), abs(box.right - x)) > 8
    )


def _leader(x: float, y: float, box: Box) -> list[Box]:
    """Return small boxes along the line from a point to its name, if it needs one."""
    if not is_far(x, y, box):
        return []
    end_x, end_y = (box.left if box.left > x else box.right), (box.bottom + box.top) / 2
    steps = [i / 12 for i in range(2, 12)]
    middles = [(x + step * (end_x - x), y + step * (end_y - y)) for step in steps]
    return [Box(a - 0.7, b - 0.7, a + 0.7, b + 0.7) for a, b in middles]


def _candidates(x: float, y: float, width: float, height: float, rings: int) -> Iterator[Box]:
    """Places from near to far: to the right, then to the left, each level with the point first."""
    for ring in range(rings):
        away = AWAY * (1 + 1.5 * ring)
        for up in (0.0, *(sign * height * step for step in range(1, ring + 2) for sign in (1, -1))):
            bottom = y + up - height / 2
            yield Box(x + away, bottom, x + away + width, bottom + height)
            yield Box(x - away - width, bottom, x - away, bottom + height)

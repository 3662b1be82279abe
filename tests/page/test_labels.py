"""Labels overlap neither each other nor points, lines or the figure's edge."""

import itertools

from ablate.page.labels import Box, is_far, place

BOUNDS = Box(0, 0, 100, 100)


def around(x, y):
    return Box(x - 3, y - 3, x + 3, y + 3)


def test_names_cover_neither_one_another_nor_points_nor_the_edge():
    points = [(50.0, 50.0), (54.0, 56.0), (95.0, 50.0), (50.0, 90.0)]
    sizes = [(30.0, 8.0), (30.0, 8.0), (30.0, 8.0), (200.0, 8.0)]
    obstacles = [around(*point) for point in points]
    boxes = place(points, sizes, obstacles, BOUNDS)
    assert boxes[3] is None  # wider than the figure
    placed = boxes[:3]
    assert all(box.is_within(BOUNDS) for box in placed)
    assert not any(box.overlaps(other) for box, other in itertools.combinations(placed, 2))
    assert not any(box.overlaps(obstacle) for box in placed for obstacle in obstacles)


def test_a_name_that_would_cover_a_line_goes_to_another_side():
    (free,) = place([(50.0, 50.0)], [(20.0, 8.0)], [around(50, 50)], BOUNDS)
    (moved,) = place([(50.0, 50.0)], [(20.0, 8.0)], [around(50, 50), Box(60, 0, 61, 100)], BOUNDS)
    assert free.left > 50
    assert moved.right < 50


def test_crowded_labels_are_moved_away_and_connected_by_lines():
    points = [(50.0, 48.0 + i) for i in range(6)]
    obstacles = [around(*point) for point in points]
    assert None in place(points, [(8.0, 8.0)] * 6, obstacles, BOUNDS)
    boxes = place(points, [(8.0, 8.0)] * 6, obstacles, BOUNDS, near=False)
    assert None not in boxes
    assert not any(box.overlaps(other) for box, other in itertools.combinations(boxes, 2))
    far = [is_far(x, y, box) for (x, y), box in zip(points, boxes, strict=True)]
    assert not far[0]
    assert any(far)

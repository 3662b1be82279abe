"""The figures as files for a paper."""

import re

import pytest

from ablate.page.labels import place
from ablate.report.curves import curves_of

NAMES = ["against-base-bleu", "against-base-ppl", "learning-curves", "cost-flops", "cost-seconds", "cost-params"]


@pytest.fixture(scope="module")
def written(whole, tmp_path_factory):
    from ablate.page.plots import write_figures

    folder = tmp_path_factory.mktemp("figures")
    table = whole.table()
    return folder, write_figures(table, curves_of(table, whole.results), folder)


def test_every_figure_is_there_as_pdf_and_as_svg(written):
    folder, names = written
    assert names == [f"{name}.{kind}" for name in NAMES for kind in ("pdf", "svg")]
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    for name in names:
        start = (folder / name).read_bytes()[:100]
        assert start.startswith(b"%PDF-" if name.endswith("pdf") else b"<?xml")


def test_the_same_results_give_the_same_bytes(whole, written, tmp_path):
    from ablate.page.plots import write_figures

    folder, names = written
    table = whole.table()
    write_figures(table, curves_of(table, whole.results), tmp_path)
    assert all((folder / name).read_bytes() == (tmp_path / name).read_bytes() for name in names)
    assert not re.search(rb"<dc:date>|/CreationDate", b"".join((folder / name).read_bytes() for name in names))


def test_without_results_there_is_nothing_to_draw(fake, tmp_path):
    from ablate.page.plots import write_figures

    assert write_figures(fake().table(), [], tmp_path) == []


def test_names_cover_neither_one_another_nor_spots_nor_the_edge():
    spots = [(50.0, 50.0), (54.0, 52.0), (95.0, 50.0), (50.0, 90.0)]
    widths = [30.0, 30.0, 30.0, 200.0]
    names = place(spots, widths, 10, (0, 100), (35, 100))
    assert names[3] is None  # too wide for any side
    boxes = []
    for name, width in zip(names[:3], widths, strict=False):
        left = name.x if name.side == "start" else name.x - width
        assert left >= 0
        assert left + width <= 100
        boxes.append((left, left + width, name.y))
    for i, (a, b, y) in enumerate(boxes):
        assert all(b < c or a > d or abs(y - z) >= 10 for c, d, z in boxes[:i])
        assert all(b < x - 5 or a > x + 5 or abs(y - z) >= 10 for x, z in spots)


def test_a_name_that_would_stand_on_the_axis_stands_above_or_below_its_spot():
    (level,) = place([(20.0, 36.0)], [30.0], 10, (0, 100), (30, 100))
    (raised,) = place([(20.0, 36.0)], [30.0], 10, (0, 100), (35, 100))
    assert level is not None
    assert raised is not None
    assert (level.y, raised.y) == (36, 46)

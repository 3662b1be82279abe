"""Figures have a mark and a whole name for every row, and are written as files for a paper."""

import re
from xml.etree import ElementTree

import pytest

from ablate.page.figures import draw_curves, draw_intervals, draw_points, write_figures
from ablate.page.inline_svg import inline_svg
from ablate.page.points import COSTS, Interval, Point, intervals, names, panels, points
from ablate.plotting import FORMATS, PALETTE, SERIES
from ablate.report.curves import Curve, curves_of
from ablate.tasks import TASKS

# All rows of the study have the same FLOPs and parameters, so that figures of these would show nothing.
NAMES = ["against-base-bleu", "against-base-ppl", "learning-curves", "cost-seconds"]

BLEU = TASKS["translation"].metrics["bleu"]


@pytest.fixture(scope="module")
def written(whole, tmp_path_factory):
    folder = tmp_path_factory.mktemp("figures")
    table = whole.table()
    return folder, write_figures(table, curves_of(table, whole.results), folder)


def test_every_figure_is_written_as_pdf_png_and_svg(written):
    folder, files = written
    assert files == [f"{name}.{kind}" for name in NAMES for kind in FORMATS]
    assert sorted(path.name for path in folder.iterdir()) == sorted(files)


def test_the_same_results_give_the_same_bytes(whole, written, tmp_path):
    folder, files = written
    table = whole.table()
    write_figures(table, curves_of(table, whole.results), tmp_path)
    assert all((folder / name).read_bytes() == (tmp_path / name).read_bytes() for name in files)


def test_without_results_no_figure_is_written(fake, tmp_path):
    assert write_figures(fake().table(), [], tmp_path) == []
    assert list(tmp_path.glob("*.pdf")) == []


def curve(row, group, scale=1.0):
    return Curve(row, group, {1: ((10, 90.0 * scale), (20, 5.0 * scale)), 2: ((10, 80.0 * scale), (20, 4.0 * scale))})


BASE = curve("base", "base")


def test_a_panel_has_base_and_the_rows_of_its_group_in_different_colours(whole):
    found = panels(curves_of(whole.table(), whole.results))
    assert [(panel.title, [curve.row for curve in panel.curves]) for panel in found] == [
        ("A", ["base", "A h=1", "A h=2"]),
        ("D", ["base", "D dropout=0.3"]),
    ]
    assert [found[0].colour(curve.row) for curve in found[0].curves] == ["base", "c0", "c1"]


@pytest.mark.parametrize(("count", "sizes"), [(8, [8]), (9, [4, 5]), (40, [8] * 5)])
def test_a_group_with_more_rows_than_colours_has_several_panels(count, sizes):
    rows = [curve(f"G x={i}", "G") for i in range(count)]
    found = panels([BASE, *rows])
    assert [len(panel.curves) - 1 for panel in found] == sizes
    assert [one for panel in found for one in panel.curves[1:]] == rows
    for panel in found:
        colours = [panel.colour(one.row) for one in panel.curves]
        assert colours[0] == "base"
        assert len(set(colours)) == len(colours)
    assert len({panel.title for panel in found}) == len(found)


def test_panels_have_the_same_axes():
    found = panels([BASE, curve("A x=1", "A"), curve("B x=1", "B", scale=3.0)])
    alone = [draw_curves([panel], of=found).axes[0] for panel in found]
    together = draw_curves(found).axes
    assert len({axes.get_xlim() for axes in (*alone, *together)}) == 1
    assert len({axes.get_ylim() for axes in (*alone, *together)}) == 1
    assert alone[0].get_yscale() == "log"


def test_a_name_includes_its_group_only_if_it_would_be_ambiguous():
    assert names([("base", "base"), ("A h=1", "A"), ("B h=1", "B"), ("A h=2", "A")]) == [
        "base",
        "A h=1",
        "B h=1",
        "h=2",
    ]


def whole_texts(figure):
    """Every text of a figure with its lines joined."""
    texts = [text for axes in figure.axes for text in axes.texts] + figure.texts
    return [text.get_text().replace("\n", "") for text in texts]


LONG = [f"positional_encoding=sinusoidal relative_clip=16 warmup_steps={1000 + i} dropout=0.{i}" for i in range(40)]


def joined(names):
    return [name.replace(" ", "") for name in names]


@pytest.mark.parametrize("count", [2, 10, 40])
def test_long_names_are_broken_into_lines_and_never_cut(count):
    rows = [Interval(f"G {name}", "G", name, "worse", -1.0, -2.0, 0.0) for name in LONG[:count]]
    assert set(joined(LONG[:count])) <= set(joined(whole_texts(draw_intervals(rows, BLEU))))
    found = panels([BASE, *(curve(f"G {name}", "G") for name in LONG[:count])])
    assert set(joined(LONG[:count])) <= set(joined(whole_texts(draw_curves(found))))
    spots = [Point(f"G {name}", name, False, 10.0 + i, 20.0 + i % 7, 0.5) for i, name in enumerate(LONG[:count])]
    numbered = [re.sub(r"^\d+ *", "", text) for text in whole_texts(draw_points(spots, BLEU, "parameters"))]
    assert set(joined(LONG[:count])) <= set(joined(numbered))


def boxes(figure):
    """The extents of everything drawn, as shares of the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    drawn = [text.get_window_extent() for text in figure.texts] + [axes.get_tightbbox() for axes in figure.axes]
    return [box.transformed(figure.transFigure.inverted()) for box in drawn]


@pytest.mark.parametrize("count", [2, 10, 40])
@pytest.mark.parametrize("all_names", [LONG, [f"h={i}" for i in range(40)]])
def test_all_elements_are_inside_the_figure(count, all_names):
    rows = [Interval(name, "G", name, "", None if i % 3 else i, -2.0, 4.0) for i, name in enumerate(all_names[:count])]
    spots = [Point(name, name, i == 0, 10.0 ** (i % 5), 20.0, i / 9) for i, name in enumerate(all_names[:count])]
    groups = panels([BASE, *(curve(name, f"G{i % 4}") for i, name in enumerate(all_names[:count]))])
    for figure in (draw_intervals(rows, BLEU), draw_curves(groups), draw_points(spots, BLEU, "parameters")):
        for box in boxes(figure):
            assert -0.001 <= box.x0 <= box.x1 <= 1.001
            assert -0.001 <= box.y0 <= box.y1 <= 1.001


def test_few_points_are_named_and_many_are_numbered_with_a_list_of_names():
    def texts(count):
        spots = [Point(f"h={i}", f"h={i}", False, 10.0, 20.0 + i, 0.0) for i in range(count)]
        return whole_texts(draw_points(spots, BLEU, "parameters"))

    assert texts(3) == ["h=0", "h=1", "h=2"]
    assert texts(40) == [*map(str, range(1, 41)), *(f"{i + 1}  h={i}" for i in range(40))]


def test_rows_that_all_cost_the_same_have_no_figure(whole):
    table = whole.table()
    assert [len(points(table, cost)) for cost in COSTS] == [0, 5, 0]


def test_a_verdict_has_its_own_marker_and_a_row_without_score_a_word():
    words = {"worse": "v", "better": "^", "within noise": "o"}
    rows = [Interval(word, "G", word, word, 1.0, 0.5, 1.5) for word in words]
    (axes,) = draw_intervals([*rows, Interval("x", "G", "x", "diverged", None, None, None)], BLEU).axes
    dots = {
        line.get_gid().removeprefix("row:"): line.get_marker() for line in axes.lines if line.get_marker() != "None"
    }
    assert dots == words
    assert "diverged" in [text.get_text() for text in axes.texts]


@pytest.fixture(scope="module")
def svg():
    rows = [Interval('A <b>&"', "A", "one", "worse", -1.0, -2.0, 0.0), Interval("B", "B", "two", "", None, None, None)]
    text = inline_svg(draw_intervals(rows, BLEU), "fig", 'Rows <b>&"', {'A <b>&"': "told <b>", "C": "unused"})
    return text, ElementTree.fromstring(text)


def test_an_inline_figure_has_a_description_and_marks_its_rows(svg):
    _, root = svg
    assert (root.get("role"), root.get("aria-label")) == ("img", 'Rows <b>&"')
    marked = [element for element in root.iter() if element.get("data-row") == 'A <b>&"']
    assert len(marked) == 3  # the interval, its mean, its name
    titles = [[child.text for child in element if child.tag.endswith("}title")] for element in marked]
    assert titles == [["told <b>"]] * 3
    assert {element.get("data-row") for element in root.iter()} == {None, 'A <b>&"', "B"}


def test_an_inline_figure_keeps_only_ids_that_it_refers_to_and_takes_colours_from_the_style_sheet(svg):
    text, root = svg
    ids = {element.get("id") for element in root.iter()} - {None}
    assert ids
    assert all(f"#{id}" in text for id in ids)
    used = set(re.findall(r"var\(--(\w+)\)", text))
    assert {"ink", "soft", "worse"} <= used <= set(PALETTE)
    assert not re.search(r"#[0-9a-f]{6}\b[^0-9a-f]", re.sub(r"url\(#\w+\)|href=\"#\w+\"", "", text))
    assert set(SERIES) <= set(PALETTE)


def test_figures_of_one_page_share_no_id():
    rows = [Interval("A", "A", "one", "worse", -1.0, -2.0, 0.0)]
    ids = [set(re.findall(r'\bid="([^"]*)"', inline_svg(draw_intervals(rows, BLEU), name, "", {}))) for name in "ab"]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_intervals_are_those_of_the_verdicts(whole):
    table = whole.table()
    found = {row.row: row for row in intervals(table, table.main)}
    assert set(found) == {row.row.label for row in table.rows[1:]}
    verdict = table.rows[1].verdicts["bleu"]
    assert (found["A h=1"].mean, found["A h=1"].low) == (verdict.mean, verdict.seed_test.low)

"""Figures have a mark and a whole name for every row, and are written as files for a paper."""

import math
import re
from dataclasses import replace
from html import unescape
from itertools import combinations
from xml.etree import ElementTree

import pytest
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from scipy import stats

from ablate.analysis.curves import curves_of
from ablate.formatting import plural
from ablate.page.drawings import _count_off_axis
from ablate.page.figures import (
    draw_curves,
    draw_half_normal,
    draw_intervals,
    draw_points,
    draw_sizes,
    draw_speed_ups,
)
from ablate.page.points import (
    COSTS,
    ForestRow,
    Point,
    axis_range,
    cost_points,
    curves_in_figures,
    difference_rows,
    equal_costs,
    panels,
    short_names,
    speed_up_rows,
)
from ablate.page.sections import figure_files, unique_slugs
from ablate.plotting import FORMATS, PALETTE, SERIES, inline_svg
from ablate.stats.metrics import PPL
from ablate.table.curves import Curve
from ablate.table.ladder import Ladder, RowOverSizes, Rung
from ablate.table.scores import Scores
from ablate.tasks import TASKS

# All rows of the study have the same FLOPs and parameters, so that figures of these would show
# nothing.
COST_AXES = ("tokens", "flops")
NAMES = ["against-base-bleu", "against-base-ppl", "learning-curves", *(f"learning-curves-{axis}" for axis in COST_AXES),
         *(f"speed-up-{axis}" for axis in ("step", *COST_AXES))]  # fmt: skip

BLEU = TASKS["translation"].metrics["bleu"]


@pytest.fixture(scope="module")
def files(whole):
    outcome = whole.outcome()
    return figure_files(outcome.table, curves_of(outcome, whole.results))


def test_every_figure_is_made_as_pdf_png_and_svg(files):
    assert list(files) == [f"{name}.{kind}" for name in NAMES for kind in FORMATS]


def test_the_same_results_give_the_same_bytes(whole, files):
    outcome = whole.outcome()
    assert figure_files(outcome.table, curves_of(outcome, whole.results)) == files


def test_without_results_there_is_no_figure(fake):
    assert figure_files(fake().table(), []) == {}


def curve(row, group, scale=1.0):
    return Curve(
        row,
        group,
        {1: ((10, 90.0 * scale), (20, 5.0 * scale)), 2: ((10, 80.0 * scale), (20, 4.0 * scale))},
    )


def test_figures_of_many_rows_show_base_and_the_largest_differences(whole, monkeypatch):
    table = whole.table()
    curves = curves_of(whole.outcome(), whole.results)
    everything = difference_rows(table, table.main_metric)
    distances = {row.label: abs(row.mean or 0.0) for row in everything}
    largest = sorted(distances, key=distances.__getitem__)[-2:]
    monkeypatch.setattr("ablate.page.points.MAX_ROWS", 2)
    assert len(everything) > 2
    shown = [row for row in everything if row.label in largest]
    assert difference_rows(table, table.main_metric) == shown
    assert {one.label for one in curves_in_figures(table, curves)} <= {"base", *largest}
    assert {point.label for point in cost_points(with_params(table), "params")} == {
        "base",
        *largest,
    }
    page = unescape(whole.page())
    told = f"leave out {plural(len(everything) - 2, 'row')}, which the table has"
    assert told in page
    drawn = set(
        re.findall(r'data-row="([^"]*)"', "".join(re.findall(r"<svg.*?</svg>", page, re.S)))
    )
    assert drawn == {"base", *largest}


def with_params(table):
    """The table with another number of parameters in each row."""
    rows = []
    for params, row in enumerate(table.rows, 50):
        rows.append(replace(row, recipe=replace(row.recipe, params=10 * params)))
    return replace(table, rows=tuple(rows))


def test_no_figure_draws_measured_times(whole):
    """Other work on the machine changes them: a figure of them would look like a result."""
    outcome = whole.outcome()
    assert any(row.recipe.cost.seconds.mean for row in outcome.table.rows)
    axes = {axis for found in curves_of(outcome, whole.results) for axis, _ in found.costs}
    assert axes == {"tokens", "flops"}
    assert "time" not in " ".join(re.findall(r"<h3>(.*?)</h3>", whole.page()))


def test_a_speed_up_has_no_mark_of_significance():
    """Its interval is not corrected for the number of rows, unlike the interval of a verdict."""
    rows = speed_up_rows([BASE, curve("A fast", "A", 0.5)])["step"]
    assert rows[0].interval[0] > 1
    assert rows[0].word == ""


def marks(figure, row):
    """(x, y) of the lines of a row."""
    (axes,) = figure.axes[:1]
    return [
        tuple(map(list, line.get_data())) for line in axes.lines if line.get_gid() == f"row:{row}"
    ]


FACTORIAL = """\
study: small
data: {corpus: toy, vocab_size: 200}
base: {N: 2, d_model: 64, d_ff: 128, h: 4, train_steps: 100}
seeds: [1, 2]
rows:
  my parts: {factorial: {dropout: [0.1, 0.3], label_smoothing: [0.1, 0.2], h: [4, 2]}}
"""


def test_effects_of_a_factorial_are_written_with_a_half_normal_plot(fake):
    results = fake(FACTORIAL).all_done()
    table = results.table()
    names = {name.partition(".")[0] for name in figure_files(table, [])}
    assert {
        f"{kind}-my-parts-{metric}"
        for kind in ("effects", "half-normal")
        for metric in ("bleu", "ppl")
    } <= names


def test_half_normal_plots_have_the_quantiles_of_scipy_and_the_sizes_in_order():
    known = (("A", "worse", -3.0), ("B", "", 0.2), ("C", "", -0.1), ("A × B", "", 0.3))
    effects = [ForestRow(name, "", name, word, value, None) for name, word, value in known]
    figure = draw_half_normal(effects, BLEU)
    quantiles = stats.halfnorm.ppf([(place + 0.5) / 4 for place in range(4)])
    found = {name: marks(figure, name)[0] for name in ("C", "B", "A × B", "A")}
    assert [x for (x,), _ in found.values()] == pytest.approx(quantiles)
    assert [y for _, (y,) in found.values()] == [0.1, 0.2, 0.3, 3.0]


def test_a_figure_of_sizes_has_each_seed_and_the_mean_over_the_parameters():
    rungs = [Rung(params, Scores({1: slope * params, 2: slope * params + 2}), None)
             for slope, params in ((1e-5, 10**5), (2e-6, 10**6))]  # fmt: skip
    figure = draw_sizes(
        Ladder(BLEU, {"small": 10**5, "large": 10**6}, (RowOverSizes("A h=1", tuple(rungs)),))
    )
    x = [10**5, 10**6]
    assert marks(figure, "A h=1") == [(x, [1.0, 2.0]), (x, [3.0, 4.0]), (x, [2.0, 3.0])]
    assert figure.axes[0].get_xscale() == "log"


def test_a_figure_of_sizes_names_every_row_of_a_large_study():
    rungs = tuple(Rung(n, Scores({1: 1.0}), None) for n in (10, 100))
    rows = tuple(RowOverSizes(f"A h={n}", rungs) for n in range(19))
    figure = draw_sizes(Ladder(BLEU, {"small": 10, "large": 100}, rows))
    assert len(figure.axes) == 3
    assert set(whole_texts(figure)) == {row.name for row in rows}


def test_a_figure_of_sizes_has_the_whole_name_of_a_row_without_overlap():
    rungs = tuple(Rung(n, Scores({1: 1.0}), None) for n in (10, 100))
    long = (
        "norm_position=pre norm=rmsnorm activation=swiglu positional_encoding=rope n_kv_heads=1 "
        "attention_window=16"
    )
    figure = draw_sizes(Ladder(BLEU, {"small": 10, "large": 100}, tuple(
        RowOverSizes(name, rungs) for name in (long, "A h=1")
    )))  # fmt: skip
    first, second = names_in(figure)
    assert "".join(first.get_text().split()) == "".join(long.split())
    assert first.get_text().count("\n") >= 1
    figure.draw_without_rendering()
    above, below = (text.get_window_extent() for text in (first, second))
    assert above.y0 >= below.y1 - 1
    assert below.y0 >= 0


def test_speed_ups_are_drawn_about_1_and_a_row_that_misses_base_says_so():
    slow, fast = curve("A slow", "A", 1.5), curve("A fast", "A", 0.5)
    rows = speed_up_rows([BASE, slow, fast])["step"]
    assert [(row.label, row.mean is None) for row in rows] == [("A slow", True), ("A fast", False)]
    assert rows[0].word == "not reached with 2 of 2 seeds"
    figure = draw_speed_ups(rows, "step")
    assert (
        next(line.get_xdata()[0] for line in figure.axes[0].lines if line.get_gid() is None) == 1.0
    )
    assert rows[0].word in whole_texts(figure)


@pytest.mark.parametrize("others", [2.0, 0.5])
@pytest.mark.parametrize("name", ["A h=1", "A positional_encoding=rotary, activation=swiglu"])
def test_the_word_of_a_row_without_a_mean_is_inside_of_the_axes(others, name):
    rows = [
        ForestRow("B", "", "B", "", others, (others, others + 0.1)),
        ForestRow(name, "", name, "not reached with 12 of 13 seeds", None, None),
    ]
    figure = draw_speed_ups(rows, "FLOPs")
    figure.draw_without_rendering()
    (axes,) = figure.axes
    (note,) = axes.texts
    inside, text = axes.get_window_extent(), note.get_window_extent()
    assert inside.x0 <= text.x0 <= text.x1 <= inside.x1


BASE = curve("base", "base")


def test_a_panel_has_base_and_the_rows_of_its_group_in_different_colors(whole):
    found = panels(curves_of(whole.outcome(), whole.results))
    assert [(panel.title, [curve.label for curve in panel.curves]) for panel in found] == [
        ("A", ["base", "A h=1", "A h=2"]),
        ("D", ["base", "D dropout=0.3"]),
    ]
    assert [found[0].color(curve.label) for curve in found[0].curves] == ["base", "c0", "c1"]


@pytest.mark.parametrize(("count", "sizes"), [(8, [8]), (9, [4, 5]), (40, [8] * 5)])
def test_a_group_with_more_rows_than_colors_has_several_panels(count, sizes):
    rows = [curve(f"G x={i}", "G") for i in range(count)]
    found = panels([BASE, *rows])
    assert [len(panel.curves) - 1 for panel in found] == sizes
    assert [one for panel in found for one in panel.curves[1:]] == rows
    for panel in found:
        colors = [panel.color(one.label) for one in panel.curves]
        assert colors[0] == "base"
        assert len(set(colors)) == len(colors)
    assert len({panel.title for panel in found}) == len(found)


def test_panels_have_the_same_axes():
    found = panels([BASE, curve("A x=1", "A"), curve("B x=1", "B", scale=3.0)])
    alone = [draw_curves([panel], compared=found).axes[0] for panel in found]
    together = draw_curves(found).axes
    assert len({axes.get_xlim() for axes in (*alone, *together)}) == 1
    assert len({axes.get_ylim() for axes in (*alone, *together)}) == 1
    assert alone[0].get_yscale() == "log"


def test_a_panel_with_a_row_far_above_the_others_has_a_scale_of_its_own():
    rows = [
        curve(f"{group} x=1", group, scale)
        for group, scale in (("A", 1.0), ("B", 1.1), ("C", 1.2), ("D", 500.0))
    ]
    found = panels([BASE, *rows])
    together = draw_curves(found)
    limits = [axes.get_ylim() for axes in together.axes]
    assert limits[0] == limits[1] == limits[2] != limits[3]
    assert limits[0] == draw_curves(found[:3]).axes[0].get_ylim()
    assert [draw_curves([panel], compared=found).axes[0].get_ylim() for panel in found] == limits
    assert len({axes.get_xlim() for axes in together.axes}) == 1
    for panel, axes in zip(found, together.axes, strict=True):
        low, high = axes.get_ylim()
        assert all(
            low < value < high
            for one in panel.curves
            for run in one.points.values()
            for _, value in run
        )
    titles = [axes.get_title("left") for axes in together.axes]
    assert titles == ["A", "B", "C", "D (own scale)"]


def test_fewer_than_four_rows_share_their_axes_however_far_apart():
    rows = [
        curve(f"{group} x=1", group, scale)
        for group, scale in (("A", 1.0), ("B", 1.1), ("D", 500.0))
    ]
    assert len({axes.get_ylim() for axes in draw_curves(panels([BASE, *rows])).axes}) == 1


def test_a_base_far_above_all_rows_is_in_panels_with_the_same_axes():
    rows = [curve(f"{group} x=1", group) for group in "ABCD"]
    assert (
        len(
            {
                axes.get_ylim()
                for axes in draw_curves(panels([curve("base", "base", 500.0), *rows])).axes
            }
        )
        == 1
    )


def test_a_name_includes_its_group_only_if_it_would_be_ambiguous():
    groups = {"base": "base", "A h=1": "A", "B h=1": "B", "A h=2": "A"}
    assert list(short_names(groups).values()) == [
        "base", "A h=1", "B h=1", "h=2",
    ]  # fmt: skip


def whole_texts(figure):
    """Every text of a figure with its lines joined."""
    return [text.get_text().replace("\n", "") for text in names_in(figure)]


def names_in(figure):
    """The texts of a figure that name rows: beside the axes, within them, in legends."""
    legends = [*figure.legends, *(axes.get_legend() for axes in figure.axes)]
    texts = [text for axes in figure.axes for text in axes.texts]
    for axes in figure.axes:
        if not axes.get_ylabel():
            texts += axes.get_yticklabels()
    return texts + [text for legend in legends if legend for text in legend.get_texts()]


LONG = [
    f"positional_encoding=sinusoidal relative_clip=16 warmup_steps={1000 + i} dropout=0.{i}"
    for i in range(40)
]


def joined(names):
    return [name.replace(" ", "") for name in names]


@pytest.mark.parametrize("count", [2, 10, 40])
def test_long_names_are_broken_into_lines_and_never_cut(count):
    rows = [ForestRow(f"G {name}", "G", name, "worse", -1.0, (-2.0, 0.0)) for name in LONG[:count]]
    assert set(joined(LONG[:count])) <= set(joined(whole_texts(draw_intervals(rows, BLEU))))
    found = panels([BASE, *(curve(f"G {name}", "G") for name in LONG[:count])])
    assert set(joined(LONG[:count])) <= set(joined(whole_texts(draw_curves(found))))
    spots = [
        Point(f"G {name}", name, 10.0 + i, 20.0 + i % 7, 0.5) for i, name in enumerate(LONG[:count])
    ]
    numbered = [
        re.sub(r"^\d+ *", "", text) for text in whole_texts(draw_points(spots, BLEU, "parameters"))
    ]
    assert set(joined(LONG[:count])) <= set(joined(numbered))


def test_a_legend_has_space_for_the_escapes_of_its_names():
    names = ["\u202e" * 12, "x" * 72]  # an escape has six characters: both need two lines
    heights = []
    for name in names:
        figure = draw_curves(panels([BASE, curve(name, "G")]))
        heights.append(figure.get_size_inches()[1])
    assert heights[0] == heights[1]


def test_points_are_numbered_with_a_list_of_names():
    def texts(count):
        spots = [Point(f"h={i}", f"h={i}", 10.0, 20.0 + i) for i in range(count)]
        return whole_texts(draw_points(spots, BLEU, "parameters"))

    assert texts(40) == [*map(str, range(1, 41)), *(f"{i + 1} h={i}" for i in range(40))]


def test_rows_that_all_cost_the_same_have_no_figure(whole):
    table = whole.table()
    assert [len(cost_points(table, cost)) for cost in COSTS] == [0, 0]
    assert len(cost_points(with_params(table), "params")) == 5
    assert equal_costs(table) == ["training FLOPs", "parameters"]
    assert (
        "No figure where the costs of all rows differ by at most 1 %: training FLOPs, parameters."
        in whole.page()
    )


def test_a_study_with_one_scored_row_has_no_equal_costs(fake):
    results = fake(seeds="1")
    results.done("base", 1, 5.0, 25.0)
    assert equal_costs(results.table()) == []


def test_a_verdict_has_its_own_marker_and_a_row_without_score_a_word():
    words = {"worse": "v", "better": "^", "cannot tell": "o"}
    rows = [ForestRow(word, "G", word, word, 1.0, (0.5, 1.5)) for word in words]
    (axes,) = draw_intervals([*rows, ForestRow("x", "G", "x", "diverged", None, None)], BLEU).axes
    dots = {
        line.get_gid().removeprefix("row:"): line.get_marker()
        for line in axes.lines
        if line.get_marker() != "None"
    }
    assert dots == words
    assert "diverged" in [text.get_text() for text in axes.texts]


def forest_of(*means):
    rows = [
        ForestRow(f"r{i}", "G", f"r{i}", "worse", mean, (mean - 0.5, mean + 0.5))
        for i, mean in enumerate(means)
    ]
    (axes,) = draw_intervals(rows, BLEU).axes
    return axes, [text.get_text() for text in axes.texts if not text.get_text().startswith("r")]


@pytest.mark.parametrize(
    ("means", "told"),
    [
        ((-1, -2, -3, 1, -38), ["\N{LEFTWARDS ARROW} -38.0"]),
        ((-1, -2, -3, 1, 38), ["+38.0 \N{RIGHTWARDS ARROW}"]),
        ((-1, -2, -3, 1, -10), []),  # within five times the median reach, which is 2.5
        ((-1, -2, -38), []),  # too few rows to call one far
        ((0, -10, -20, -40), []),
    ],
)
def test_a_row_far_off_leaves_the_axis_to_the_others_and_is_written_at_its_end(means, told):
    axes, texts = forest_of(*means)
    assert texts == told
    low, high = axes.get_xlim()
    inside = means[:-1] if told else means
    assert all(low < mean < high for mean in inside)
    assert (max(high, -low) < 10) == bool(told)
    drawn = [line for line in axes.lines if line.get_gid() == f"row:r{len(means) - 1}"]
    assert all(low <= x <= high for line in drawn for x in line.get_xdata())
    assert [line.get_marker() for line in drawn if line.get_marker() != "None"] == ["v"]


def test_an_interval_that_leaves_the_axis_is_cut_at_it_while_its_mean_is_drawn_in_place():
    rows = [ForestRow(f"r{i}", "G", f"r{i}", "", -1.0, (-2.0, 0.0)) for i in range(4)]
    (axes,) = draw_intervals([*rows, ForestRow("x", "G", "x", "", -1.5, (-90.0, 87.0))], BLEU).axes
    line, *arrowheads, mark = (line for line in axes.lines if line.get_gid() == "row:x")
    assert tuple(line.get_xdata()) == axes.get_xlim()
    assert tuple(mark.get_xdata()) == (-1.5,)
    assert [tuple(head.get_xdata()) for head in arrowheads] == [(x,) for x in axes.get_xlim()]
    assert [
        text.get_text() for text in axes.texts if "\N{RIGHTWARDS ARROW}" in text.get_text()
    ] == []


def test_a_row_beyond_the_others_is_on_the_axis_up_to_twice_their_reach():
    rows = [ForestRow(f"r{i}", "G", f"r{i}", "", -0.1, None) for i in range(6)]
    wide, far = (ForestRow(f"{x}", "G", f"{x}", "", x, None) for x in (-0.4, -0.7))
    assert axis_range([*rows, wide, far]) == (-0.7, 0.0)  # within twice 0.4
    assert axis_range([*rows, far]) == (-0.1, 0.0)  # more than twice 0.1
    assert axis_range([*rows, wide, far], reference=1.0)[1] == 1.0


def test_a_wide_interval_around_a_mean_near_the_other_rows_is_on_the_axis():
    rows = [ForestRow(f"r{i}", "G", f"r{i}", "", 0.0, (-0.007, 0.007)) for i in range(5)]
    noisy = ForestRow("h=1", "G", "h=1", "", 0.008, (-0.02, 0.037))
    assert axis_range([*rows, noisy]) == (-0.02, 0.037)
    noisier = replace(noisy, interval=(-0.2, 0.2))
    assert axis_range([*rows, noisier]) == (-0.007, 0.007)


def test_the_caption_counts_the_rows_whose_difference_is_a_number():
    """A row is not counted for an interval that leaves the axis: its mean is in place."""
    rows = [ForestRow(f"r{i}", "G", f"r{i}", "", -0.1, None) for i in range(6)]
    far = ForestRow("far", "G", "far", "", -5.0, None)
    vague = ForestRow("vague", "G", "vague", "", -0.1, (-7.0, 7.0))
    for others, expected in (([], 0), ([vague], 0), ([far, vague], 1)):
        drawn = [*rows, *others]
        (axes,) = draw_intervals(drawn, BLEU).axes
        assert _count_off_axis(drawn) == len(axes.texts) == expected


def test_differences_of_logarithms_have_an_axis_of_ratios():
    rows = [ForestRow(f"r{x}", "G", f"r{x}", "", math.log(x), None) for x in (0.5, 2.0)]
    (axes,) = draw_intervals(rows, PPL).axes
    assert axes.get_xlabel() == "ratio to base in PPL (dev)"
    for tick, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True):
        assert float(label.get_text().removeprefix("×")) == pytest.approx(math.exp(tick))
    assert "×1" in [label.get_text() for label in axes.get_xticklabels()]
    assert draw_intervals(rows, BLEU).axes[0].get_xlabel() == "difference from base in BLEU (test)"


def test_axes_of_perplexity_are_logarithmic():
    spots = [Point(f"h={i}", f"h={i}", 10.0 + i, 5.0 + i, 0.1, is_log=True) for i in range(3)]
    assert draw_points(spots, PPL, "parameters").axes[0].get_yscale() == "log"
    assert draw_points(spots, BLEU, "parameters").axes[0].get_yscale() == "linear"
    assert draw_curves(panels([BASE])).axes[0].get_yscale() == "log"


def test_quantiles_are_plain_numbers():
    effects = [ForestRow(name, "", name, "", i, None) for i, name in enumerate("ABCD", 1)]
    (axes,) = draw_half_normal(effects, BLEU).axes
    labels = axes.xaxis.get_major_formatter().format_ticks([0.0, 0.5, 1.0])
    assert [float(label) for label in labels] == [0.0, 0.5, 1.0]


def test_rows_without_any_difference_are_all_on_the_axis():
    rows = [ForestRow(f"r{i}", "G", "", "no difference", 0.0, None) for i in range(5)]
    (axes,) = draw_intervals(rows, BLEU).axes
    assert not axes.texts


@pytest.fixture(scope="module")
def svg():
    rows = [
        ForestRow('A <b>&"', "A", "one", "worse", -1.0, (-2.0, 0.0)),
        ForestRow("B", "B", "two", "", None, None),
    ]
    text = inline_svg(
        draw_intervals(rows, BLEU), "fig", 'Rows <b>&"', {'A <b>&"': "told <b>", "C": "unused"}
    )
    return text, ElementTree.fromstring(text)


def test_an_inline_figure_has_a_description_and_marks_its_rows(svg):
    _, root = svg
    assert (root.get("role"), root.get("aria-label")) == ("img", 'Rows <b>&"')
    marked = [element for element in root.iter() if element.get("data-row") == 'A <b>&"']
    assert len(marked) == 3  # the interval, its mean, its name
    titles = [
        [child.text for child in element if child.tag.endswith("}title")] for element in marked
    ]
    assert titles == [["told <b>"]] * 3
    assert {element.get("data-row") for element in root.iter()} == {None, 'A <b>&"', "B"}


def test_an_inline_figure_keeps_only_ids_that_it_refers_to_and_takes_colors_from_the_style_sheet(
    svg,
):
    text, root = svg
    ids = {element.get("id") for element in root.iter()} - {None}
    assert ids
    assert all(f"#{id}" in text for id in ids)
    used = set(re.findall(r"var\(--(\w+)\)", text))
    assert {"ink", "soft", "worse"} <= used <= set(PALETTE)
    assert not re.search(r"#[0-9a-f]{6}\b[^0-9a-f]", re.sub(r"url\(#\w+\)|href=\"#\w+\"", "", text))
    assert set(SERIES) <= set(PALETTE)


def test_figures_of_one_page_share_no_id():
    rows = [ForestRow("A", "A", "one", "worse", -1.0, (-2.0, 0.0))]
    ids = [
        set(re.findall(r'\bid="([^"]*)"', inline_svg(draw_intervals(rows, BLEU), name, "", {})))
        for name in "ab"
    ]
    assert ids[0]
    assert not ids[0] & ids[1]


def test_intervals_are_those_of_the_verdicts(whole):
    table = whole.table()
    found = {row.label: row for row in difference_rows(table, table.main_metric)}
    assert set(found) == {row.label for row in table.rows[1:]}
    verdict = table.rows[1].verdicts["bleu"]
    assert (found["A h=1"].mean, found["A h=1"].interval) == (verdict.mean, verdict.interval)


# Properties of every figure, for as many rows as studies have, and labels of two factors


def two_factors(count):
    """Labels of a grid of two factors, as long as those of a real study."""
    schedules, encodings = (
        (500, 1000, 2000, 4000, 8000, 16000, 32000, 64000),
        ("rope", "alibi", "learned", "none", "t5"),
    )
    return [f"G warmup_steps={w} positional_encoding={e}" for w in schedules for e in encodings][
        :count
    ]


def curve_figures(labels):
    groups = panels([BASE, *(curve(name, "G", 1 + i / 9) for i, name in enumerate(labels))])
    return [draw_curves(groups), draw_curves(groups[:1], compared=groups)]


def forests(labels):
    words = ("worse", "better", "cannot tell", "")
    rows = [
        ForestRow(
            name, f"G{i % 3}", name.removeprefix("G "), words[i % 4], i - 5.0, (i - 9.0, i - 2.0)
        )
        for i, name in enumerate(labels)
    ]
    undone = [
        ForestRow("x", "H", "x", "diverged", None, None),
        ForestRow("y", "H", "y", "", None, None),
    ]
    return [draw_intervals([*rows, *undone], BLEU)]


def point_figures(labels, costs):
    spots = [
        Point(
            name,
            name.removeprefix("G "),
            cost,
            25.0 + (7 * i) % 5 + i / 50,
            std=0.3,
            is_emphasized=i == 0,
        )
        for i, (name, cost) in enumerate(zip(labels, costs, strict=True))
    ]
    return [draw_points(spots, BLEU, "training FLOPs")]


def cost_scales(count):
    """Costs that are spread evenly, over magnitudes, almost all equal, and almost equal."""
    return {
        "even": [1e15 * (1 + i / 10) for i in range(count)],
        "magnitudes": [3.1e14 * 1.3**i for i in range(count)],
        "all but one": [2.5e18] * (count - 1) + [9e19],
        "almost equal": [1e9 * (1 + i * 2e-4) for i in range(count)],
    }


def every_figure(labels):
    return [
        *curve_figures(labels),
        *forests(labels),
        *(
            figure
            for costs in cost_scales(len(labels)).values()
            for figure in point_figures(labels, costs)
        ),
    ]


def drawn_texts(figure):
    """(text, extent in pixels) of everything that can be read in a figure: names, ticks and titles
    of axes.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    texts = names_in(figure)
    for axes in figure.axes:
        texts += [axes.xaxis.label, axes.yaxis.label, axes._left_title]
        for axis in (axes.xaxis, axes.yaxis) if axes.get_ylabel() else (axes.xaxis,):
            low, high = sorted(axis.get_view_interval())
            texts += [
                tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high
            ]
    # Text.get_window_extent of an annotation would include its leader.
    return [
        (one.get_text(), Text.get_window_extent(one))
        for one in texts
        if one.get_text() and one.get_visible()
    ]


def shared_area(one, other):
    width = min(one.x1, other.x1) - max(one.x0, other.x0)
    height = min(one.y1, other.y1) - max(one.y0, other.y0)
    return max(0.0, width) * max(0.0, height)


@pytest.fixture(scope="module", params=[2, 10, 40])
def count(request):
    return request.param


@pytest.fixture(
    scope="module", params=[two_factors, lambda count: [f"G h={i}" for i in range(count)]]
)
def all_figures(request, count):
    """(figure, its texts with their extents) of every figure; drawn once for all tests."""
    return [(figure, drawn_texts(figure)) for figure in every_figure(request.param(count))]


def area(box):
    return box.width * box.height


def test_no_text_of_a_figure_covers_another(all_figures):
    for _, texts in all_figures:
        assert len(texts) > 5
        found = [
            (a, b)
            for (a, x), (b, y) in combinations(texts, 2)
            if shared_area(x, y) > 0.02 * min(area(x), area(y))
        ]
        assert found == []


def test_all_elements_are_inside_the_figure(all_figures):
    for figure, _ in all_figures:
        legends = [legend.get_window_extent() for legend in figure.legends]
        for box in [*legends, *(axes.get_tightbbox() for axes in figure.axes)]:
            share = box.transformed(figure.transFigure.inverted())
            assert -0.001 <= share.x0 <= share.x1 <= 1.001
            assert -0.001 <= share.y0 <= share.y1 <= 1.001


def test_every_axis_has_at_least_three_labeled_ticks_with_different_labels(all_figures):
    for figure, _ in all_figures:
        for axes in figure.axes:
            scales = [
                axes.xaxis,
                *([axes.yaxis] if axes.get_ylabel() else []),
            ]  # or names of rows in its place
            for axis in scales:
                low, high = sorted(axis.get_view_interval())
                shown = [
                    t.label1.get_text()
                    for t in axis.get_major_ticks()
                    if low <= t.get_loc() <= high
                ]
                assert len(shown) >= 3
                assert len(set(shown)) == len(shown)
                assert not any("e" in text for text in shown)


def test_all_names_of_rows_differ_within_a_figure(all_figures):
    for figure, _ in all_figures:
        names = [text.get_text() for text in names_in(figure)]
        names = [name for name in names if name != "base"]  # in the legend of every panel
        assert len(set(names)) == len(names)


def test_no_name_is_under_a_mark(all_figures):
    """Points and error bars of the figures of costs, as boxes in pixels."""
    seen = 0
    for figure, _ in all_figures:
        (axes, *more) = figure.axes
        if more or axes.get_xlabel() != "training FLOPs":
            continue
        names = [(one.get_text(), Text.get_window_extent(one)) for one in axes.texts]
        for line in axes.lines:
            ends = axes.transData.transform(line.get_xydata())
            (left, bottom), (right, top) = ends.min(axis=0) - 2.0, ends.max(axis=0) + 2.0
            box = Bbox([[left, bottom], [right, top]])
            assert [
                name for name, extent in names if shared_area(box, extent) > 0.05 * area(extent)
            ] == []
            seen += 1
    assert seen >= 8


def test_long_titles_of_panels_stay_different():
    title = "a group with a name of forty characters."
    rows = [curve(f"{title} h={i}", title) for i in range(20)]
    figure = draw_curves(panels([BASE, *rows]))
    titles = [axes.get_title("left") for axes in figure.axes]
    assert len(titles) == len(set(titles)) == 3
    assert [text.replace("\n", " ").split("(")[0].strip() for text in titles] == [title] * 3


def test_groups_whose_names_differ_in_marks_alone_have_figures_of_their_own():
    assert unique_slugs(("opt.a", "opt a", "other", "Opt-A")) == [
        "opt-a",
        "opt-a-2",
        "other",
        "opt-a-3",
    ]

"""Figures show the given weights under the right labels, cut no label, and leave matplotlib as it
was.
"""

import struct
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pytest
from matplotlib import font_manager

from ablate.attention.figures import check_paths, draw_weights, write_figure
from ablate.errors import UsageError
from ablate.plotting import DPI
from tests.attention.by_hand import all_weights, random_weights

RUN = "0123456789ab"
WORDS = ("▁a", "$\\frac", "$_{x", "</s>")
WEIGHTS = all_weights(
    random_weights(3, 4, 4, "decoder", 1, queries=WORDS, keys=WORDS),
    random_weights(10, 4, 3, "cross", 2, queries=WORDS, keys=("▁b", "東", "</s>")),
)


def panels(figure):
    """The axes that show a map."""
    return [axes for axes in figure.axes if axes.images]


def labels(axis):
    return [tick.get_text() for tick in axis.get_ticklabels()]


def test_every_head_has_a_map_of_its_weights_in_which_masked_keys_are_white():
    shown = [axes.images[0] for axes in panels(draw_weights(WEIGHTS, RUN))]
    heads = [head.numpy() for weights in WEIGHTS.layers for head in weights.heads]
    assert len(shown) == len(heads) == 13
    for image, head in zip(shown, heads, strict=True):
        found = image.get_array()
        assert np.array_equal(found.filled(0.0), head)
        assert np.array_equal(np.ma.getmaskarray(found), head == 0)
        assert (image.norm.vmin, image.norm.vmax) == (0, 1)


def test_every_map_names_its_head_its_queries_and_its_keys():
    maps = panels(draw_weights(WEIGHTS, RUN))
    assert [axes.get_title() for axes in maps] == [
        *(f"decoder 1.{head}" for head in range(1, 4)),
        *(f"cross 2.{head}" for head in range(1, 11)),
    ]
    assert labels(maps[0].yaxis) == labels(maps[0].xaxis) == ["_a", "$\\frac", "$_{x", "</s>"]
    # Between them, what the installed fonts allow.
    assert [labels(maps[4].xaxis)[index] for index in (0, 2)] == ["_b", "</s>"]
    assert maps[0].get_ylim() == (3.5, -0.5)  # the first row is at the top


def test_the_title_names_the_run_and_both_sentences():
    run, source, target = draw_weights(WEIGHTS, RUN).get_suptitle().splitlines()
    assert run == f"Attention weights of run {RUN}"
    assert source.startswith("source: b")
    assert target.startswith("target: a$\\frac")


def boxes(figure):
    """The extents of everything drawn, as shares of the figure."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure).draw()
    drawn = [text.get_window_extent() for text in figure.texts] + [
        axes.get_tightbbox() for axes in figure.axes
    ]
    return [box.transformed(figure.transFigure.inverted()) for box in drawn]


LONG = tuple(f"▁word{i}" for i in range(60))


@pytest.mark.parametrize(
    "figure",
    [
        lambda: draw_weights(WEIGHTS, RUN),
        lambda: draw_weights(all_weights(random_weights(1, 1, 1)), RUN),
        lambda: draw_weights(all_weights(random_weights(2, 60, 60, "cross", queries=LONG, keys=LONG)), RUN),
    ],
)  # fmt: skip
def test_no_text_is_cut_off(figure):
    for box in boxes(figure()):
        assert 0 <= box.x0 <= box.x1 <= 1
        assert 0 <= box.y0 <= box.y1 <= 1


def test_a_character_that_no_font_has_is_a_replacement_character(monkeypatch):
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [])
    axes = panels(draw_weights(WEIGHTS, RUN))[4]
    assert labels(axes.xaxis) == ["_b", "\N{REPLACEMENT CHARACTER}", "</s>"]


def test_files_are_a_png_and_an_svg_of_the_figures_size_and_the_same_each_time(tmp_path):
    before = dict(matplotlib.rcParams)
    png, svg = tmp_path / "new" / "a.png", tmp_path / "a.SVG"
    written = []
    for _ in range(2):
        figure = draw_weights(WEIGHTS, RUN)
        write_figure(figure, [png, svg])
        written.append((png.read_bytes(), svg.read_bytes()))
    assert written[0] == written[1]
    width, height = figure.get_size_inches()
    assert written[0][0].startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", written[0][0][16:24]) == (
        int(width * DPI["png"]),
        int(height * DPI["png"]),
    )
    root = ElementTree.fromstring(written[0][1])
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert float(root.get("width").removesuffix("pt")) == pytest.approx(72 * width)
    assert (
        len(list(root.iter("{http://www.w3.org/2000/svg}image"))) == len(panels(figure)) + 1
    )  # the color bar
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a.gif", "must end in .pdf, .png or .svg"),
        ("a", "must end in .pdf, .png or .svg"),
        ("folder.png", "is a folder; give a file"),
    ],
)
def test_invalid_paths_for_figures_are_errors(tmp_path, name, reason):
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(UsageError) as refused:
        check_paths([tmp_path / "b.png", tmp_path / name])
    assert refused.value.lines == (f"--out {tmp_path / name}: {reason}",)

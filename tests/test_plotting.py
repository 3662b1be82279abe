"""Axes, ticks and fonts of figures; files do not depend on the user or the time."""

import struct

import matplotlib
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from matplotlib import font_manager
from matplotlib.figure import Figure

from ablate.plotting import (
    DPI,
    FORMATS,
    MAX_PIXELS,
    PALETTE,
    families_for,
    is_spread,
    new_figure,
    render,
    set_range,
    style,
)


def axis_of(values, **options):
    axes = Figure().add_subplot()
    set_range(axes.xaxis, values, **options)
    return axes.xaxis


def visible_ticks(axis):
    low, high = axis.get_view_interval()
    return [tick for tick in axis.get_major_locator()() if low <= tick <= high]


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=9))
def test_a_linear_axis_holds_every_value(values):
    low, high = axis_of(values, log=False).get_view_interval()
    assert low < min(values) <= max(values) < high
    assert len(visible_ticks(axis_of(values, log=False))) >= 3


@given(st.lists(st.floats(1e-6, 1e15), min_size=1, max_size=9))
@example([5.0])
@example([2.1, 2.2])
@example([9.0, 11.0])
def test_a_logarithmic_axis_holds_every_value_and_has_at_least_three_ticks_with_different_labels(
    values,
):
    axis = axis_of(values, log=True)
    low, high = axis.get_view_interval()
    assert low < min(values) <= max(values) < high
    ticks = visible_ticks(axis)
    assert 3 <= len(ticks) <= 9
    assert ticks == sorted(set(ticks))
    labels = axis.get_major_formatter().format_ticks(ticks)
    assert len(set(labels)) == len(labels)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 1e6], [1, 100, 1e4, 1e6]),
        ([1, 90], [1, 2, 5, 10, 20, 50, 100]),
        ([6, 60], [10, 20, 50]),
        ([6.8, 41], [7, 10, 15, 20, 30]),
        ([4.6, 12.2], [5, 6, 8, 10, 12.5]),
    ],
)
def test_ticks_of_a_logarithmic_axis_are_round(values, expected):
    assert visible_ticks(axis_of(values, log=True)) == pytest.approx(expected)


def test_a_logarithmic_axis_is_used_for_positive_values_of_different_magnitude():
    assert is_spread([1, 100])
    assert not is_spread([1, 2])
    assert not is_spread([0, 100])
    assert not is_spread([-1, 100])


def drawn():
    with style():
        figure, (axes,) = new_figure(3.0, 2.0)
        axes.plot((1, 2), (3, 4), color=PALETTE["c0"])
        axes.set_title("$x_1 < 2 & \\frac")  # no mathematics
        return figure


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_figure_gives_the_same_bytes_without_a_date(kind):
    content = render(drawn(), kind)
    assert content == render(drawn(), kind)
    assert not any(word in content for word in (b"<dc:date>", b"/CreationDate", b"tIME"))
    assert content.startswith({"pdf": b"%PDF-", "png": b"\x89PNG", "svg": b"<?xml"}[kind])


def test_a_users_matplotlib_settings_are_ignored_and_unchanged():
    user = {
        "font.family": ["DejaVu Serif"],
        "axes.linewidth": 9,
        "savefig.facecolor": "red",
        "xtick.color": "red",
    }
    plain = render(drawn(), "png")
    with matplotlib.rc_context(user):
        before = dict(matplotlib.rcParams)
        assert render(drawn(), "png") == plain
        assert dict(matplotlib.rcParams) == before


def test_text_in_svg_is_stored_as_text():
    assert "$x_1 &lt; 2 &amp; \\frac</text>" in render(drawn(), "svg").decode()


def test_a_very_large_figure_has_fewer_dots_per_inch():
    png = render(Figure((100.0, 200.0)), "png")
    width, height = struct.unpack(">II", png[16:24])
    assert width * height <= MAX_PIXELS < 100 * 200 * DPI["png"] ** 2
    assert height == pytest.approx(2 * width, abs=2)


def test_an_installed_font_is_used_for_characters_that_the_default_lacks(monkeypatch):
    entries = [
        entry
        for entry in font_manager.fontManager.ttflist
        if entry.name in ("DejaVu Sans", "STIXNonUnicode", "cmr10")
    ]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", entries)
    private = "\ue000"  # of a private use area, where STIXNonUnicode has glyphs
    assert families_for({"a", private, "東"}) == (["DejaVu Sans", "STIXNonUnicode"], {"東"})
    assert families_for({"a", "é"}) == (["DejaVu Sans"], set())

"""The layout of a table, without results."""

from ablate.table.layout import Essential, Layout, Warned


def test_a_short_legend_has_four_lines_with_every_warning_in_the_order_of_the_whole():
    lines = ("a", "b", Warned("c"), "d", "e", Warned("f"), "g")
    assert Layout((), lines).short_legend == ["a", "b", "c", "f"]
    assert Layout((), lines[:5]).short_legend == list(lines[:5])  # a hint would be as long
    warnings = tuple(map(Warned, "abcdef"))
    ordinary = ("a", "b", "c", "d", "e", Essential("v"), "g")
    assert Layout((), ordinary).short_legend == ["a", "b", "c", "v"]
    assert Layout((), (*warnings, "g")).short_legend == list(warnings)
    # A verdict is explained however many warnings there are.
    assert Layout((), (*warnings, "g", Essential("v"))).short_legend == [*warnings, "v"]

"""Heat maps and tables in a terminal: positions of weights, and line widths."""

import io
import re

import pytest
from rich.cells import cell_len
from rich.text import Text

from ablate.attention.formats import heat_maps, print_importances, print_weights
from ablate.attention.importance import HeadImportance, Importances
from ablate.streams import new_console
from tests.attention.by_hand import all_weights, random_weights, weights

LONG = tuple(f"▁piece{i}" for i in range(70))


def printed(view, width=80, **options):
    out = io.StringIO()
    print_weights(view, new_console(file=out, width=width, **options))
    return out.getvalue()


def test_a_weight_is_a_shade_in_the_row_of_its_query_and_the_column_of_its_key():
    rows = [[1, 0, 0], [0.75, 0.2, 0.05], [0.449, 0.502, 0.049]]
    attention = weights(
        [rows, rows[::-1]], queries=("▁a", "▁bc", "</s>"), keys=("▁a", "▁bc", "</s>")
    )
    lines = [line.plain for line in heat_maps(attention, 30, colors=False)]
    assert lines == [
        "       head 1   head 2",
        "        1 2 3    1 2 3",
        "1 ▁a   ██       ▓▓▓▓··",
        "2 ▁bc  ██▒▒░░   ██▒▒░░",
        "3 </s> ▓▓▓▓··   ██",
        "",
    ]


def test_heads_wrap_to_the_next_line():
    attention = random_weights(7, 11, 11, queries=tuple("abcdefghijk"))
    lines = [line.plain for line in heat_maps(attention, 60, colors=False)]
    titles = [line.split() for line in lines if "head" in line]
    assert [len(title) // 2 for title in titles] == [4, 3]
    assert max(map(cell_len, lines)) <= 60
    assert len(lines) == 2 * (2 + 11 + 1)


def test_weights_are_two_columns_wide_if_all_heads_fit():
    def rows(width):
        attention = weights([[[1.0] * 4] * 2] * 3)
        return [line.plain for line in heat_maps(attention, width, colors=False)][2:4]

    assert rows(33) == [f"{n} q{n - 1} " + "  ".join(["█" * 8] * 3) for n in (1, 2)]
    assert rows(32) == [
        f"{n} q{n - 1} " + "     ".join(["█" * 4] * 3) for n in (1, 2)
    ]  # a title is 7 columns wide


def test_a_long_label_has_an_ellipsis_and_a_narrow_map_only_numbers():
    attention = random_weights(1, 9, 9, queries=("a" * 30,) * 9)
    assert all(
        line.plain.startswith(f"{n} aaaaaaaaaaa… ")
        for n, line in enumerate(rows_of(attention, 80), 1)
    )
    assert all(
        line.plain.startswith(f"{n} ") and "a" not in line.plain
        for n, line in enumerate(rows_of(attention, 15), 1)
    )


def rows_of(attention, width):
    return list(heat_maps(attention, width, colors=False))[2:-1]


@pytest.mark.parametrize("colors", [False, True])
def test_too_many_tokens_for_the_width_are_a_message(colors):
    attention = random_weights(2, 70, 70, queries=LONG)
    (line,) = heat_maps(attention, 72, colors)
    assert (
        line.plain.strip()
        == "70 tokens do not fit in 72 columns: see the table below, or --out FILE.png"
    )
    assert len(list(heat_maps(attention, 73, colors))) == 2 * (2 + 70 + 1)


def view_of_a_word(word, count=9):
    return all_weights(
        random_weights(2, count, count, "cross", queries=(word,) * count, keys=(word,) * count)
    )


EXAMPLES = {
    "a base model": all_weights(
        *(
            random_weights(8, 14, 14, kind, layer)
            for layer in (1, 2)
            for kind in ("encoder", "decoder")
        ),
        random_weights(8, 14, 12, "cross", queries=tuple(f"▁word{i}" for i in range(14))),
    ),
    "a short sentence": all_weights(random_weights(16, 2, 2)),
    "a long sentence": all_weights(random_weights(2, 70, 70, "cross", queries=LONG, keys=LONG)),
    "a sentence for a map": all_weights(
        random_weights(3, 60, 60, "decoder", queries=LONG[:60], keys=LONG[:60])
    ),
    "wide characters": all_weights(
        random_weights(2, 9, 9, queries=("▁東京都庁舎前駅",) * 9, keys=("▁東京都庁舎前駅",) * 9)
    ),
    "a word as long as a line": view_of_a_word("x" * 66, 3),
    "layers and heads of two digits": all_weights(random_weights(12, 5, 5, "decoder", 12)),
}


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("colors", [None, "256", "truecolor"])
def test_no_line_is_wider_than_the_terminal(name, colors):
    text = printed(EXAMPLES[name], force_terminal=colors is not None, color_system=colors)
    assert max(cell_len(Text.from_ansi(line).plain) for line in text.splitlines()) <= 80
    attentions = EXAMPLES[name].layers
    heads = re.findall(r"^(?:encoder|decoder|cross) \d+\.\d+ ", text, re.MULTILINE)
    assert len(heads) == len(set(heads)) == sum(len(attention.heads) for attention in attentions)


def test_a_pipe_gets_no_escape_codes():
    text = printed(EXAMPLES["a base model"])
    assert "\x1b" not in text
    assert all(shade in text for shade in "█▓▒░·")


def test_a_terminal_gets_a_background_for_every_visible_weight():
    attention = weights([[[1, 0], [0.5, 0.5]]], kind="decoder")
    asked = list(heat_maps(attention, 80, colors=True))[2:4]
    yellow, green = (253, 231, 37), (33, 145, 140)
    assert [painted(line) for line in asked] == [
        [None] * 5 + [yellow] * 2 + [None] * 2,
        [None] * 5 + [green] * 4,
    ]
    assert [line.plain for line in asked] == ["1 q0     ", "2 q1     "]
    text = printed(all_weights(attention), force_terminal=True, color_system="truecolor")
    assert "\x1b[48;" in text
    assert not any(shade in text for shade in "█▓▒░")


def painted(line):
    """The background of each column."""
    colors = [None] * len(line)
    for span in line.spans:
        if span.style:
            colors[span.start : span.end] = [tuple(span.style.bgcolor.triplet)] * (
                span.end - span.start
            )
    return colors


def test_a_terminal_of_sixteen_colors_gets_shades():
    text = printed(EXAMPLES["a base model"], force_terminal=True, color_system="standard")
    assert "█" in text
    assert "\x1b[4" not in text  # no background


def test_statistics_that_no_head_has_are_omitted():
    text = printed(all_weights(random_weights(2, 3, 4, "cross")))
    assert "distance  " not in text
    assert "entropy  marks  strongest" in text


def test_both_sides_are_numbered_as_the_columns_are():
    def heads_of(kind, is_one_sequence=False):
        text = printed(all_weights(random_weights(1, 2, 2, kind), is_one_sequence=is_one_sequence))
        return [line for line in text.splitlines() if line.startswith(("source", "target"))]

    assert heads_of("decoder") == ["source  1 s  2 </s>", "target  1 <s>  2 t"]
    assert heads_of("decoder", is_one_sequence=True) == [
        "source  1 s  2 </s>",
        "target  3 <s>  4 t",
    ]


def test_layers_without_weights_are_reported():
    view = all_weights(
        random_weights(1, 2, 2), hidden=["decoder layer 1: attention=[m]:X reports no weights"]
    )
    assert "\ndecoder layer 1: attention=[m]:X reports no weights\n" in printed(view)


def test_control_characters_in_a_token_are_escaped():
    view = all_weights(
        random_weights(1, 2, 2, queries=("\x1b[2J", "[red]b"), keys=("\x1b[2J", "[red]b"))
    )
    assert "\x1b" not in printed(view)
    assert "[red]b" in printed(view)


FOUND = Importances(
    2.0, 7, (HeadImportance("encoder", 1, 1, 2.5, 0.5), HeadImportance("cross", 1, 12, 1.75, -0.25),
             HeadImportance("cross", 2, 1, 2.0, 0.0)),
)  # fmt: skip


def importances_printed(found, **options):
    out = io.StringIO()
    print_importances(found, new_console(file=out, width=80, **options))
    return out.getvalue()


def test_each_head_has_a_line_with_a_bar_proportional_to_its_importance():
    lines = [line.split() for line in importances_printed(FOUND).splitlines()]
    assert ["encoder", "1.1", "+0.5000", "█" * 24, "2.5000", "12.182"] in lines
    assert ["cross", "1.12", "-0.2500", "░" * 12, "1.7500", "5.755"] in lines
    assert ["cross", "2.1", "+0.0000", "2.0000", "7.389"] in lines
    assert ["whole", "model", "2.0000", "7.389"] in lines
    assert "(light bars): 2 of 3." in importances_printed(FOUND)


@pytest.mark.parametrize("terminal", [False, True])
def test_importance_fits_a_terminal(terminal):
    many = Importances(
        9.0, 10**6, tuple(HeadImportance("encoder", 12, n, 900.0, 891.0) for n in range(1, 17))
    )
    text = importances_printed(many, force_terminal=terminal)
    assert max(cell_len(Text.from_ansi(line).plain) for line in text.splitlines()) <= 80
    assert ("\x1b" in text) == terminal
    assert " inf" in text


def test_heads_without_any_importance_have_no_bars():
    text = importances_printed(Importances(1.0, 1, (HeadImportance("cross", 1, 1, 1.0, 0.0),)))
    assert "█" not in text
    assert "+0.0000" in text

"""Formatting of numbers with units, and of text for a terminal."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.formatting import (
    duration,
    ellipsis,
    estimated,
    flops_text,
    fold,
    interval_text,
    middle_ellipsis,
    p_text,
    printable,
    scaled,
    setting_text,
    size,
    token_text,
)

SECOND, MINUTE, HOUR, DAY = 1, 60, 3600, 86_400


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (0, "0 s"),
        (0.4, "0 s"),
        (47.6, "48 s"),
        (89.4, "89 s"),
        (90, "2 min"),
        (3 * MINUTE, "3 min"),
        (999.6, "17 min"),
        (89 * MINUTE + 29, "89 min"),
        (89 * MINUTE + 31, "1 h 30 min"),
        (2 * HOUR + 5 * MINUTE, "2 h 05 min"),
        (2 * HOUR - 1, "2 h 00 min"),
        (48 * HOUR - 31, "47 h 59 min"),
        (48 * HOUR - 1, "2 d 0 h"),
        (48 * HOUR + 40 * MINUTE, "2 d 1 h"),
        (3 * DAY - 1, "3 d 0 h"),
        (3 * DAY + 4 * HOUR, "3 d 4 h"),
        (1000 * DAY, "1000 d 0 h"),
    ],
)
def test_a_duration_is_written_in_units_of_its_size(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("n", "text"),
    [
        (None, "? B"), (0, "0 B"), (850, "850 B"), (999.4, "999 B"), (999.6, "1.00 KB"),
        (1000, "1.00 KB"), (9_994, "9.99 KB"), (9_996, "10.0 KB"), (99_940, "99.9 KB"),
        (99_960, "100 KB"), (850_000, "850 KB"), (999_600, "1.00 MB"), (1.2e9, "1.20 GB"),
        (9.53e12, "9.53 TB"), (28.3e18, "28.3 EB"), (5e21, "5000 EB"),
    ],
)  # fmt: skip
def test_a_number_is_scaled_to_three_digits(n, text):
    assert scaled(n, "B") == text
    assert n is None or size(n) == text


def test_operations_are_counted_in_a_unit_without_plural():
    assert [flops_text(n) for n in (1.0, 9.53e12, 3.316e15)] == [
        "1 FLOP",
        "9.53 TFLOP",
        "3.32 PFLOP",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0 s"), (0.1, "under a minute"), (59.9, "under a minute"), (60, "about 60 s"),
        (5 * MINUTE, "about 5 min"),
    ],
)  # fmt: skip
def test_an_estimate_names_no_time_that_workers_need_to_start(seconds, text):
    assert estimated(seconds) == text


def test_longer_durations_are_never_written_as_shorter_ones():
    def seconds(text):
        words = text.split()
        units = {"s": SECOND, "min": MINUTE, "h": HOUR, "d": DAY}
        return sum(int(n) * units[unit] for n, unit in zip(words[::2], words[1::2], strict=True))

    told = [seconds(duration(s / 2)) for s in range(2 * 3 * DAY // 10)]
    assert told == sorted(told)


def test_scaling_rounds_by_less_than_half_a_percent():
    factors = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9}
    for exponent in range(300, 1150):
        n = 10 ** (exponent / 100)
        number, unit = scaled(n, "B").split()
        assert float(number) * factors[unit] == pytest.approx(n, rel=0.005)


@pytest.mark.parametrize(
    ("text", "escaped"),
    [
        ("ein Hündchen, 犬", "ein Hündchen, 犬"),
        ("\x1b[31mred\x07", r"\x1b[31mred\x07"),
        ("two\nlines\tand a tab", r"two\nlines\tand a tab"),
        ("a\u2028b\ud800", r"a\u2028b\ud800"),
        (r"a\b'c\"", r"a\b'c\""),
    ],
)
def test_printable_escapes_only_control_characters(text, escaped):
    assert printable(text) == escaped


@pytest.mark.parametrize(
    ("piece", "text"),
    [
        ("a", "a"), (" ", '" "'), (" dog", '" dog"'), ("", '""'), ("\n", r"\n"),
        ("new york", "new york"), ('"', '"'),
    ],
)  # fmt: skip
def test_a_token_of_spaces_is_in_quotes(piece, text):
    assert token_text(piece) == text


@pytest.mark.parametrize(("width", "text"), [(5, "seven"), (6, "seven"), (4, "sev…"), (1, "…")])
def test_ellipsis_keeps_the_width(width, text):
    assert ellipsis("seven", width) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1, "0.1"), (4, "4"), (True, "true"), (False, "false"), ("none", "none"), (None, "unset")],
)
def test_a_setting_is_written_as_in_a_study(value, text):
    assert setting_text(value) == text
    assert setting_text(None, unset="null") == "null"


@pytest.mark.parametrize(
    ("width", "text"), [(9, "D 0.3 abc"), (8, "D 0.…abc"), (7, "D 0…abc"), (4, "D …c"), (1, "…")]
)
def test_middle_ellipsis_keeps_both_ends(width, text):
    assert middle_ellipsis("D 0.3 abc", width) == text


@pytest.mark.parametrize(
    ("low", "high", "digits", "text"),
    [
        (-4.25, 3.0, 1, "[-4.2, +3.0]"),
        (0.0123, 0.0456, 1, "[+0.01, +0.05]"),
        (-0.2, 0.0004, 1, "[-0.2000, +0.0004]"),
        (0.0, 0.5, 1, "[0.0, +0.5]"),
        (0.0, 0.0, 2, "[0.00, 0.00]"),
        (1e-9, 1.0, 1, "[0.00000, +1.00000]"),
    ],
)
def test_the_ends_of_an_interval_are_not_rounded_to_zero(low, high, digits, text):
    assert interval_text(low, high, digits) == text


@pytest.mark.parametrize(
    ("text", "width", "lines"),
    [
        ("A h=1 d_k=512 d_v=512", 12, ["A h=1", "d_k=512", "d_v=512"]),
        ("big d_ff=512 positional_encoding=learned", 20, ["big d_ff=512", "positional_encoding=", "learned"]),
        ("E positional_encoding=learned", 12, ["E", "positional_", "encoding=", "learned"]),
        ("cannot tell (24.8)", 12, ["cannot tell", "(24.8)"]),
        ("abcdefgh", 3, ["abc", "def", "gh"]),
        ("short", 80, ["short"]),
        ("", 5, [""]),
    ],
)  # fmt: skip
def test_a_text_is_folded_at_spaces_before_signs_and_signs_before_letters(text, width, lines):
    assert fold(text, width) == lines


@given(st.text(st.sampled_from("ab =_,"), max_size=40), st.integers(1, 12))
def test_folding_keeps_every_character_and_the_width(text, width):
    lines = fold(text.strip(), width)
    assert all(len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@pytest.mark.parametrize(
    ("p", "text"),
    [
        (None, ""), (0.0009, "<0.001"), (0.034, "0.034"), (0.0494, "0.049"), (0.0497, "0.0497"),
        (0.049996, "0.049996"), (0.05, "0.050"), (0.05003, "0.05003"), (0.0506, "0.051"),
    ],
)  # fmt: skip
def test_a_p_value_near_the_level_has_the_digits_that_tell_its_side(p, text):
    assert p_text(p) == text

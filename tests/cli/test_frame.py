"""What a terminal shows of the live view, as pyte, a terminal emulator, renders it."""

import io

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console, Group
from rich.text import Text

from ablate.cli.live import Frame, LiveView, is_interactive

WIDTH, HEIGHT = 30, 12


class Tty(io.StringIO):
    """A file that claims to be a terminal and passes everything to the emulator."""

    def __init__(self):
        super().__init__()
        self.terminal = pyte.HistoryScreen(WIDTH, HEIGHT, history=1000, ratio=1)
        self.stream = pyte.Stream(self.terminal)

    def isatty(self):
        return True

    def write(self, text):
        self.stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    @property
    def lines(self):
        """The lines on the screen, below those that have scrolled out of it."""
        above = [
            "".join(row[x].data for x in range(WIDTH)).rstrip() for row in self.terminal.history.top
        ]
        return (
            "\n".join([*above, *(line.rstrip() for line in self.terminal.display)])
            .rstrip("\n")
            .split("\n")
        )


@pytest.fixture
def tty(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    return Tty()


def console_on(tty):
    return Console(
        file=tty,
        force_terminal=True,
        width=WIDTH,
        height=HEIGHT,
        color_system="standard",
        highlight=False,
        emoji=False,
    )


line = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=WIDTH - 1)
logged = st.tuples(st.just("log"), line)
drawn = st.tuples(st.just("draw"), st.lists(line, min_size=1, max_size=HEIGHT - 1))


@settings(max_examples=60)
@given(st.lists(logged | drawn, max_size=8), st.booleans())
def test_log_lines_are_above_and_the_last_frame_below(steps, keep):
    tty = Tty()
    console = console_on(tty)
    frame, above, below = Frame(console), [], []
    for kind, content in steps:
        if kind == "log":
            above.append(content)
            console.print(content, soft_wrap=True, markup=False)
        else:
            below = content
            frame.draw(Group(*(Text(text) for text in content)))
        assert tty.lines == ([*above, *below] or [""])
    frame.stop(keep)
    assert tty.lines == ([*above, *(below if keep else ())] or [""])
    assert not tty.terminal.cursor.hidden


def test_the_cursor_is_hidden_only_while_a_frame_is_shown(tty):
    frame = Frame(console_on(tty))
    frame.draw(Group(Text("a")))
    assert tty.terminal.cursor.hidden
    frame.stop(keep=True)
    assert not tty.terminal.cursor.hidden
    assert tty.lines == ["a"]


def test_the_echo_of_ctrl_c_does_not_move_the_frame(tty):
    frame = Frame(console_on(tty))
    frame.draw(Group(Text("x" * (WIDTH - 1)), Text("y" * (WIDTH - 1))))
    tty.stream.feed("^C")  # as a terminal echoes the key
    frame.draw(Group(Text("z" * (WIDTH - 1)), Text("y" * (WIDTH - 1))))
    assert tty.lines == ["z" * (WIDTH - 1), "y" * (WIDTH - 1)]
    tty.stream.feed("^C")
    frame.stop(keep=True)
    assert tty.lines == ["z" * (WIDTH - 1), "y" * (WIDTH - 1)]


def test_rows_that_a_narrower_terminal_wraps_are_erased(tty):
    console = console_on(tty)
    frame = Frame(console)
    console.print("before")
    frame.draw(Group(Text("x" * 25), Text("y" * 25)))
    narrow = pyte.HistoryScreen(
        10, HEIGHT, history=1000, ratio=1
    )  # as a terminal that wraps its lines anew
    tty.terminal, tty.stream = narrow, pyte.Stream(narrow)
    tty.stream.feed("before\r\n" + ("x" * 25 + "\r\n") + ("y" * 25 + "\r\n"))
    console.size = (10, HEIGHT)
    frame.draw(Group(Text("x" * 9), Text("y" * 9)))
    assert [line.rstrip() for line in narrow.display][:4] == ["before", "x" * 9, "y" * 9, ""]
    frame.stop(keep=False)
    assert [line.rstrip() for line in narrow.display][:2] == ["before", ""]


def test_only_a_person_at_a_terminal_gets_a_frame(tty, monkeypatch):
    assert is_interactive(Console(file=tty))
    assert not is_interactive(Console(file=io.StringIO(), force_terminal=True))
    monkeypatch.setenv("TERM", "dumb")
    assert not is_interactive(Console(file=tty))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("CI", "true")
    assert not is_interactive(Console(file=tty))


def test_lines_above_a_frame_are_broken_between_words(tty, fake):
    live = LiveView(fake.planned, fake.results, console_on(tty))
    live.begin()
    live.log("unknown tokens: source 0.0%, target 0.0%")
    live.frame.stop(keep=False)
    assert tty.lines == ["unknown tokens: source 0.0%,", "target 0.0%"]

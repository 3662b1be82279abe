"""What a terminal shows of the live view; pyte, a terminal that somebody else wrote, says what that is."""

import io

import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from ablate.cli.screen import Screen, can_repaint

WIDTH, HEIGHT = 30, 12


class Tty(io.StringIO):
    """A file that is a terminal, and hands on what is written."""

    def __init__(self):
        super().__init__()
        self.terminal = pyte.HistoryScreen(WIDTH, HEIGHT, history=1000, ratio=1)
        self.stream = pyte.Stream(self.terminal)
        self.written = []

    def isatty(self):
        return True

    def write(self, text):
        if text:
            self.written.append(text)
        self.stream.feed(text.replace("\n", "\r\n"))
        return len(text)

    @property
    def lines(self):
        """All that was ever shown and not taken away, scrolled out or not."""
        above = ["".join(row[x].data for x in range(WIDTH)).rstrip() for row in self.terminal.history.top]
        return "\n".join([*above, *(line.rstrip() for line in self.terminal.display)]).rstrip("\n").split("\n")


@pytest.fixture
def tty(monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    return Tty()


def screen_on(tty):
    return Screen(Console(file=tty, force_terminal=True, width=WIDTH, height=HEIGHT, color_system="standard"))


line = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=WIDTH - 1)
said = st.tuples(st.just("say"), line)
showed = st.tuples(st.just("show"), st.lists(line, max_size=HEIGHT - 1))


@settings(deadline=None, max_examples=60)
@given(st.lists(said | showed, max_size=8))
def test_said_lines_stand_above_and_the_last_picture_below(steps):
    tty = Tty()
    screen, above, below = screen_on(tty), [], []
    for kind, what in steps:
        if kind == "say":
            above.append(what)
            screen.say(what)
        else:
            below = what
            screen.show([Text(text) for text in what])
        assert tty.lines == ([*above, *below] or [""])
    screen.close()
    assert tty.lines == (above or [""])
    assert not tty.terminal.cursor.hidden


def test_what_has_not_changed_is_not_written_again(tty):
    screen = screen_on(tty)
    picture = [Text("a", style="bold"), Text("b 1"), Text("c")]
    screen.show(picture)
    tty.written.clear()
    screen.show(picture)
    assert tty.written == []
    screen.show([picture[0], Text("b 2"), picture[2]])
    (written,) = tty.written
    assert "b 2" in written
    assert "a" not in written
    assert "c" not in written
    assert tty.lines == ["a", "b 2", "c"]


def test_the_cursor_is_away_while_it_shows_and_back_after(tty):
    screen = screen_on(tty)
    assert tty.terminal.cursor.hidden
    screen.show([Text("a")])
    screen.leave()
    assert not tty.terminal.cursor.hidden
    assert tty.lines == ["a"]


def test_a_terminal_that_has_become_narrower_is_cleaned_up(tty):
    screen = screen_on(tty)
    screen.say("before")
    screen.show([Text("x" * 25), Text("y" * 25)])
    narrow = pyte.HistoryScreen(10, HEIGHT, history=1000, ratio=1)  # as one that breaks its lines anew
    tty.terminal, tty.stream = narrow, pyte.Stream(narrow)
    tty.stream.feed("before\r\n" + ("x" * 25 + "\r\n") + ("y" * 25 + "\r\n"))
    screen.console.size = (10, HEIGHT)
    screen.show([Text("x" * 9), Text("y" * 9)])
    assert [line.rstrip() for line in narrow.display][:4] == ["before", "x" * 9, "y" * 9, ""]


def test_only_a_person_at_a_terminal_gets_a_picture(tty, monkeypatch):
    assert can_repaint(Console(file=tty))
    assert not can_repaint(Console(file=io.StringIO(), force_terminal=True))
    monkeypatch.setenv("TERM", "dumb")
    assert not can_repaint(Console(file=tty))
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("CI", "true")
    assert not can_repaint(Console(file=tty))

"""Standard streams: hostile text is escaped, closed, full and narrow streams give no traceback."""

import io
import json
import os
import subprocess
import sys
import unicodedata
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from rich.text import Text

from ablate.formatting import json_text, printable, visible
from ablate.page.html import environment
from ablate.report.compare_text import print_comparison
from ablate.report.terminal import plain_table, print_wide, right
from ablate.stdio import echo, new_console, print_data, print_json
from tests.cli.inside import inside
from tests.data.small import PAIRS, Files
from tests.report.fakes import CORPUS, SMALL, Fake, study_from

ROOT = Path(__file__).parents[1]
# The oracle: Unicode's own classes. Bidirectional controls have classes of their own, or are marks.
_BIDI = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
_MARKS = {
    "LEFT-TO-RIGHT MARK", "RIGHT-TO-LEFT MARK", "ARABIC LETTER MARK", "LINE SEPARATOR",
    "PARAGRAPH SEPARATOR",
}  # fmt: skip
HARMFUL = {
    c for c in map(chr, range(sys.maxunicode + 1))
    if unicodedata.category(c) in ("Cc", "Cs") or unicodedata.bidirectional(c) in _BIDI
    or unicodedata.name(c, "") in _MARKS
} - {"\t", "\n"}  # fmt: skip
HOSTILE = "".join(sorted(HARMFUL - set(map(chr, range(0xD800, 0xE000)))))
GOOD = (  # joiners and wide spaces are text
    "שלום עולם, مرحبا; می\u200cخواهم \u00a0: 👩\u200d👩\u200d👧 ÿ\u3000\ufeff"  # noqa: RUF001
)


def raw(text):
    """The harmful characters of an output."""
    return {c for c in text if c in HARMFUL}


class Terminal(io.StringIO):
    """Standard output that is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _without_styles(monkeypatch):
    """A terminal without styles: any escape that reaches it is a fault."""
    monkeypatch.setenv("TERM", "dumb")


def on_terminal(call, *arguments):
    with redirect_stdout(Terminal()) as out:
        call(*arguments)
    return out.getvalue()


def test_every_character_that_acts_on_a_terminal_is_escaped_and_no_letter_is():
    for character in HARMFUL:
        assert visible(f"a{character}b") == f"a{repr(character)[1:-1]}b"
        assert printable(character) == repr(character)[1:-1]
    assert visible(f"{GOOD}\ta\nb\r\n") == f"{GOOD}\ta\nb\r\n"
    changed = {c for c in map(chr, range(sys.maxunicode + 1)) if visible(c) != c}
    assert changed - HARMFUL == set(
        map(chr, range(0x206A, 0x2070))
    )  # deprecated marks of the same block


def test_json_keeps_its_value_without_a_raw_character():
    value = {f"k{HOSTILE}": [HOSTILE, GOOD, "\udc80"]}
    assert json.loads(json_text(value)) == value
    assert not raw(json_text(value))
    assert GOOD in json_text(value)
    assert json.loads(on_terminal(print_json, value)) == value


@pytest.mark.parametrize("printed", [echo, print_data, lambda text: new_console().print(text),
                                     lambda text: new_console().print(Text(text))])  # fmt: skip
def test_nothing_raw_reaches_a_terminal(printed):
    for character in HOSTILE:  # one at a time, so that none is cut at the terminal's width
        shown = on_terminal(printed, f"<{character}>")
        assert not raw(shown)
        assert shown.startswith("<")
    assert r"<\x1b[2J\u202e>" in on_terminal(printed, "<\x1b[2J\u202e>")


@pytest.mark.parametrize("cell", [lambda text: text, Text])
def test_a_table_escapes_heads_and_cells_before_it_measures_them(cell):
    table = plain_table("\x1b[2J head", "next")
    table.add_row(cell("\u202eabc"), "x")
    shown = on_terminal(print_wide, table)
    assert not raw(shown)
    assert r"\x1b[2J head" in shown
    assert r"\u202eabc" in shown


@pytest.mark.parametrize(
    "label", ["E norm=nope:Zero:", ":fire:", ":smiley:", "A [bold]x[/bold]", "[/]", "[link=x]y"]
)
def test_rich_takes_no_label_for_an_emoji_or_markup(label):
    table = plain_table(label, right(label))
    table.add_row(label, label)
    shown = on_terminal(print_wide, table) + on_terminal(lambda: new_console().print(label))
    assert shown.count(label) == 5


# --- text of a stranger, by every command that shows some
# ----------------------------------------------------------

SENTENCE = f"a dog \x1b]0;taken\x07\x9b2J\x08\x7f \u202egnp.exe\u2066 {GOOD.partition(';')[0]}"


@pytest.fixture
def hostile(tmp_path):
    """Results whose sentences, reasons, logs and folder hold escapes."""
    fake = Fake(tmp_path / "re\u202esults\x1b[31m", study_from(tmp_path, SMALL))
    fake.all_done()
    fake.corpus([SENTENCE, "b"], [SENTENCE, "c d"])
    for label in ("base", "A h=1"):
        fake.translated(label, 1, [f"{SENTENCE} {label}", "c"])
    fake.folder("D dropout=0.3", 2).result.unlink()
    fake.failed("D dropout=0.3", 2, f"cannot read {SENTENCE}")
    fake.folder("D dropout=0.3", 2).log.write_text(f"{SENTENCE}\n")
    fake.folder("A h=2", 1).result.write_text("{}")
    return fake


@pytest.mark.parametrize(
    "words",
    [
        ["compare", "STUDY", "base", "A h=1", "--sentences", "1"],
        ["compare", "STUDY", "base", "A h=1", "--sentences", "1", "--format", "json"],
        ["status", "STUDY"],
        ["status", "STUDY", "D", "--seed", "2"],
        ["status", "STUDY", "D dropout=0.3", "--logs"],
        ["plan", "STUDY"],
        ["table", "STUDY"],
        *(["table", "STUDY", "--format", name] for name in ("markdown", "csv", "json", "html", "latex")),
        ["verify", "STUDY", "--stored"],
        ["clean", "STUDY"],
        ["predict", "\x1b[31m"],
        ["table", "\x1b\u202e.yaml"],
        ["table", "STUDY", "--set", "\x1b\u202e=1"],
        ["table", "STUDY", "--rows", "\x1b\u202e"],
        ["plan", "STUDY", "--\x1b\u202e"],
    ],
)  # fmt: skip
def test_no_command_shows_text_of_a_stranger_raw(hostile, words):
    given = [hostile.study.path if word == "STUDY" else word for word in words]
    done = inside(*given, "--results", hostile.results.root)
    assert "Traceback" not in done.err
    assert not raw(done.out + done.err), done
    assert "\\" in done.out + done.err or words[0] in ("plan", "clean") or "csv" in words


def test_the_view_in_a_terminal_escapes_too(hostile):
    found = on_terminal(lambda: _compare(hostile))
    assert r"\x1b]0;taken" in found
    assert not raw(found)


def _compare(fake):
    from dataclasses import replace

    from ablate.analysis.results import predictions_of
    from ablate.report.compare import compare_rows, largest_differences

    outcome, labels = fake.outcome(), ("base", "A h=1")
    found = compare_rows(outcome, *map(fake.row, labels), fake.results)
    texts = [predictions_of(outcome.by_label[label][0], fake.results) for label in labels]
    from ablate.data.corpus import Corpus

    corpus = Corpus(fake.results.corpus(CORPUS))
    scores = ([1.0, 0.0], [0.0, 0.0])
    most = largest_differences(
        texts, scores, 1, True, lambda items: fake.study.task.samples(corpus, items)
    )
    print_comparison(replace(found, seed=1, items=most))


def test_a_corpus_is_shown_with_its_escapes(tmp_path):
    Files(tmp_path / "text", tmp_path / "corpora").write(
        train=[(SENTENCE, SENTENCE), *PAIRS["train"]], test=[(SENTENCE, SENTENCE)] * 3
    )
    (tmp_path / "s.yaml").write_text(
        "study: s\ndata: {corpus: files, direction: en-de, train: train, dev: dev, test: test, "
        "vocab_size: 120, "
        "folder: text}\n"
    )
    for form in ("text", "json"):
        done = inside(
            "data", "show", tmp_path / "s.yaml", "--results", tmp_path / "results", "--format", form
        )
        assert done.code == 0
        assert not raw(done.out + done.err)
        assert "שלום" in done.out
        assert (r"\x1b]0;taken" if form == "text" else r"\u001b]0;taken") in done.out


def test_a_page_shows_escapes_and_letters():
    template = environment().from_string(
        '<p title="{{ text }}">{{ text }}{{ text | upper }}{% set x = text %}{{ x }}</p>'
    )
    shown = template.render(text=f"<{HOSTILE}{GOOD}>")
    assert not raw(shown)
    assert shown.count(GOOD) == 3
    assert r"\u202e" in shown
    assert "&lt;" in shown


def test_the_page_of_a_study_escapes_sentences(hostile):
    from ablate.data.corpus import Corpus
    from ablate.page.study_page import samples, study_page

    outcome = hostile.outcome()
    text = study_page(
        outcome,
        hostile.results,
        [],
        samples(outcome, hostile.results, Corpus(hostile.results.corpus(CORPUS)), 2),
    )
    assert not raw(text)
    assert r"\u202egnp.exe" in text
    assert "שלום" in text


# --- streams that are closed, full, narrow or gone
# ------------------------------------------------------------------


def shell(command, folder, **environment):
    """Run a command line of bash in which `ablate` is this program."""
    script = f'ablate() {{ "{sys.executable}" -m ablate "$@"; }}; {command}'
    variables = {**os.environ, "PYTHONPATH": str(ROOT), **environment}
    return subprocess.run(
        ["bash", "-c", script], cwd=folder, capture_output=True, errors="replace", env=variables
    )


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    Fake(folder / "results", study_from(folder, SMALL)).all_done()
    return folder


@pytest.mark.parametrize(
    ("command", "code", "err"),
    [
        ("ablate table study.yaml | true; exit ${PIPESTATUS[0]}", 141, ""),
        ("ablate table study.yaml --format json | true; exit ${PIPESTATUS[0]}", 141, ""),
        ("ablate --help | true; exit ${PIPESTATUS[0]}", 141, ""),
        ("ablate table study.yaml > /dev/full", 4, "standard output: No space left on device\n"),
        ("ablate table study.yaml --format csv > /dev/full", 4, "standard output: No space left on device\n"),
        ("ablate --help > /dev/full", 4, "standard output: No space left on device\n"),
        ("ablate table no.yaml 2> /dev/full", 2, ""),
        ("ablate plan study.yaml >&-", 0, ""),
        ("ablate status study.yaml >&- 2>&- <&-", 0, ""),
        ("ablate table no.yaml 2>&-", 2, ""),
        ("ablate predict study.yaml <&-", 3, "standard input is closed; text is read from it, as in `... < FILE`\n"),
    ],
)  # fmt: skip
def test_a_stream_that_is_closed_full_or_gone_gives_no_traceback(small, command, code, err):
    done = shell(command, small)
    assert (done.returncode, done.stderr) == (code, err)


@pytest.mark.parametrize(
    "environment",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    ],
)
def test_an_encoding_without_a_character_gets_its_escape_and_data_are_utf_8(small, environment):
    done = shell(
        "ablate table study.yaml; ablate table study.yaml --format markdown > table.md",
        small,
        **environment,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"\u0394BLEU" in done.stdout
    assert "ΔBLEU" in (small / "table.md").read_text("utf-8")


def test_a_name_on_disk_that_is_not_utf_8_is_shown_by_escapes(small):
    done = shell(r"ablate table $'n\xff.yaml'", small)
    assert (done.returncode, done.stderr) == (2, "n\\udcff.yaml: no such file\n")

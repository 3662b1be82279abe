"""`ablate attention`, on runs with random weights."""

import json

import pytest
import torch

from ablate.attention.weights import KINDS
from ablate.cli.attention import Kind
from tests.attention.runs import ID, SENTENCE, SHORT, TRANSLATION, corpus_in, lay_out
from tests.cli.inside import inside
from tests.records import a_result

GIVEN = ("--text", SENTENCE, "--translation", TRANSLATION)
JSON = ("--format", "json")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """An encoder-decoder of 2 layers and 3 heads."""
    results, corpus = corpus_in(tmp_path_factory.mktemp("runs"))
    lay_out(results, corpus)
    return results


@pytest.fixture
def attention(results):
    def ask(*words, run=ID, stdin=b""):
        words = ("--results", results.root, "--device", "cpu", *words)
        return inside("attention", run, *words, stdin=stdin)

    return ask


def test_the_option_kind_accepts_exactly_the_kinds_of_attention():
    assert tuple(kind.value for kind in Kind) == KINDS


def test_the_default_sentence_is_the_first_of_the_test_split(attention):
    words = ("--translation", TRANSLATION, "--format", "json")
    unset = attention(*words)
    assert unset.code == 0
    assert unset.out == attention("--text", SHORT[0][0], *words).out
    assert unset.out != attention(*GIVEN, "--format", "json").out


def test_a_sentence_may_be_piped_and_an_option_goes_first(attention):
    words = ("--translation", TRANSLATION, "--format", "json")
    piped = attention(*words, stdin=f"{SENTENCE}\n".encode())
    assert piped == attention(*words, "--text", SENTENCE)
    assert piped.out != attention(*words).out
    assert attention(*words, "--text", SENTENCE, stdin=b"a dog").out == piped.out
    several = attention(*words, stdin=b"a dog\na cat\n")
    assert "standard input has 2 lines" in several.refusal


@pytest.mark.parametrize("command", ["attention", "predict"])
def test_a_text_in_the_place_of_a_row_is_sent_to_its_option(results, command):
    done = inside(command, ID, "a small dog", "--results", results.root)
    option = {"attention": "--text", "predict": "--text"}
    assert 'if "a small dog" is a text' in done.refusal
    assert option[command] in done.err


@pytest.mark.parametrize(("command", "option"), [("attention", "--text"), ("predict", "--text")])
def test_a_text_of_invalid_bytes_is_refused_by_its_option(results, command, option):
    done = inside(
        command, ID, option, b"\xff".decode(errors="surrogateescape"), "--results", results.root
    )
    assert done.refusal == f"{option}: not valid UTF-8"


def test_the_default_translation_is_that_of_the_model(attention):
    content = json.loads(attention("--text", "a dog", "--format", "json", "--kind", "cross").out)
    assert content["target"][0] == "<s>"
    given = json.loads(attention(*GIVEN, "--format", "json").out)
    assert "".join(given["target"]).replace("▁", " ").split() == ["<s>", *TRANSLATION.split()]


def test_json_has_every_layer_and_head(attention):
    content = json.loads(attention(*GIVEN, "--format", "json").out)
    assert content["run"] == ID
    assert [(a["kind"], a["layer"], len(a["heads"])) for a in content["attentions"]] == [
        (kind, layer, 3) for kind in KINDS for layer in (1, 2)
    ]


def test_kinds_and_layers_are_selected(attention):
    words = ("--kind", "cross", "--kind", "encoder", "--layer", "2", "--format", "json")
    content = json.loads(attention(*GIVEN, *words).out)
    assert [(a["kind"], a["layer"]) for a in content["attentions"]] == [
        ("encoder", 2),
        ("cross", 2),
    ]


def test_the_suffix_of_a_figure_chooses_its_format(attention, tmp_path):
    png, svg = tmp_path / "a.png", tmp_path / "b.svg"
    done = attention(*GIVEN, "--layer", "1", "--out", png, "--out", svg)
    assert (done.code, done.err) == (0, f"Wrote {png}\nWrote {svg}\n")
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "<svg " in svg.read_text()
    assert done.out == f"source: {SENTENCE}\ntarget: {TRANSLATION}\n"


def test_importance_has_one_line_per_head(attention):
    done = attention("--importance")
    assert (done.code, done.err) == (0, "")
    assert sum(line.startswith(KINDS) for line in done.out.splitlines()) == 18
    content = json.loads(attention("--importance", "--format", "json").out)
    assert [(h["kind"], h["layer"], h["head"]) for h in content["heads"]] == [
        (kind, layer, head) for kind in KINDS for layer in (1, 2) for head in (1, 2, 3)
    ]
    assert all(h["importance"] == h["loss"] - content["loss"] for h in content["heads"])


def test_importance_is_measured_on_the_requested_number_of_pairs(attention):
    found = [
        json.loads(attention("--importance", "--format", "json", *words).out)
        for words in ((), ("--records", 1))
    ]
    assert [content["records"] for content in found] == [2, 1]
    assert found[0]["loss"] != found[1]["loss"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((*JSON, "--text", ""), "--text: is empty"),
        ((*JSON, "--text", "a " * 99), "--text: has 99 tokens, too many for max_positions=97 of the run"),
        (("--out", "a.gif"), "--out a.gif: must end in .pdf, .png or .svg"),
        ((*JSON, "--kind", "cross", "--layer", "3"), "--kind cross --layer 3: the run has no such attention; it has encoder "
         "layers 1 to 2, decoder layers 1 to 2 and cross layers 1 to 2"),
        ((), "--out FILE is missing: the weights are drawn into this file; --format json prints them"),
        (("--importance", "--out", "a.png"), "--out has no effect with --importance, which prints a table"),
        (("--records", "5"), "--records has no effect without --importance"),
        (("--importance", "--text", "a"), "--text and --translation have no effect with --importance, "
         "which uses the dev set"),
    ],
)  # fmt: skip
def test_impossible_requests_are_one_error_line(attention, words, expected):
    done = attention(*words)
    code = 3 if "too many" in expected else 2
    assert (done.code, done.printed, done.err) == (code, "", f"{expected}\n")


def test_a_missing_or_unfinished_run_is_an_error(results, attention):
    assert "no run with an id that begins with" in attention(*JSON, run="f").err
    folder = results.run("e" * 12)
    a_result(id=folder.id, outcome="diverged").write(folder.result)
    done = attention(*JSON, run="e")
    said = f"run {folder.id} has diverged, so there is no trained model; choose another run\n"
    assert (done.code, done.err) == (2, said)


def test_a_missing_gpu_is_an_error_and_auto_uses_the_cpu(results, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    words = ("attention", ID, "--results", results.root, *GIVEN, *JSON)
    done = inside(*words, "--device", "cuda")
    assert done.refusal == "--device cuda: torch finds no CUDA device; use --device cpu"
    assert inside(*words).code == 0

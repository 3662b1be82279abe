"""Probes against models set by hand, brute force, and pairs counted by hand."""

import itertools
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ablate.config.language_data import LanguageData
from ablate.config.resolve import resolve_row
from ablate.data.prepare import prepare
from ablate.data.tokenizer import BOS, EOS
from ablate.errors import DataError, StoreError
from ablate.metrics import probes
from ablate.metrics.resampling import measure
from ablate.stats.metrics import LOSS_AFTER, TEXT_PROBES
from ablate.tasks import LanguageModel
from tests.tasks.language import SIZES, small

CPU = torch.device("cpu")
TASK = LanguageModel()
V = 260
PAIRS = (  # good, bad
    ("ab", "bb"),  # right: a is more likely than b
    ("b", "a"),  # wrong
    ("ab", "ba"),  # a tie is wrong
    ("a" * 40, "a" * 39 + "b"),  # right, and longer than a context
    ("a", "aa"),  # right: each character costs
)


def corpus_of(folder, **settings):
    """Two documents, one of which repeats itself, and pairs."""
    rows = ['{"text": "abcabdabcabd, xyz"}', '{"text": "a second document: abcabd"}']
    (folder / "text.jsonl").write_text("\n".join(rows))
    pairs = [f'{{"sentence_good": "{good}", "sentence_bad": "{bad}"}}' for good, bad in PAIRS]
    (folder / "pairs.jsonl").write_text("\n".join(pairs))
    files = {"train": "text.jsonl", "dev": "text.jsonl", "minimal_pairs": "pairs.jsonl"}
    data = LanguageData.resolve({"corpus": "files", **files, **settings})
    return prepare(data, folder, folder / "corpora")


@pytest.fixture(scope="module", params=["joined", "separate"])
def corpus(request, tmp_path_factory):
    return corpus_of(tmp_path_factory.mktemp("text"), documents=request.param)


class ByHand:
    """A model whose log-probabilities are a function of the tokens so far."""

    config = SimpleNamespace(logit_cap=None)
    output_matrix = torch.eye(V)

    def __init__(self, probabilities):
        self.probabilities = probabilities

    def read(self, tokens):
        rows = [
            [self.probabilities(row[: i + 1]) for i in range(len(row))] for row in tokens.tolist()
        ]
        return torch.tensor(rows).log()

    def output_states(self, states):
        return states

    def eval(self):
        return self


def of_bytes(tokens):
    """a has a quarter, b an eighth, all others the rest."""
    shares = [(1 - 3 / 8) / (V - 2)] * V
    shares[ord("a") + 4], shares[ord("b") + 4] = 1 / 4, 1 / 8
    return shares


def copies(tokens, sure=0.75):
    """What followed the last token before has probability `sure`; without one, all are alike."""
    earlier = [tokens[i + 1] for i in range(len(tokens) - 1) if tokens[i] == tokens[-1]]
    if not earlier:
        return [1 / V] * V
    shares = [(1 - sure) / (V - 1)] * V
    shares[earlier[-1]] = sure
    return shares


def scores(model, corpus, **fields):
    """Every probe of a model, and the lines."""
    config = resolve_row({**LanguageModel.defaults, **SIZES, "probes": True, **fields})
    lines = TASK.predict(model, corpus, config, CPU)
    names = [name for name, metric in TASK.metrics.items() if metric.is_probe]
    values = {}
    for name in names:
        if LOSS_AFTER.get(name, 0) <= (config.eval_context or config.context):
            values[name] = TASK.measure(name, lines, corpus).value
    return values, lines


def test_a_uniform_model_loses_ln_v_everywhere_and_prefers_short_sentences(corpus):
    values, _ = scores(ByHand(lambda tokens: [1 / V] * V), corpus)
    assert values.pop("minimal_pairs") == pytest.approx(100 / len(PAIRS))  # the last pair alone
    assert set(values) == {
        "loss_after_1", "loss_after_4", "loss_after_16", "repeated_loss", "new_loss",
        "induction_loss",
    }  # fmt: skip
    assert list(values.values()) == pytest.approx([math.log(V)] * 6, rel=1e-6)


def test_the_induction_loss_of_a_model_that_copies_is_that_of_its_certainty(corpus):
    values, lines = scores(ByHand(copies), corpus)
    assert values["induction_loss"] == pytest.approx(-math.log(0.75), rel=1e-6)
    found = TASK.measure("induction_loss", lines, corpus)
    assert found.signature == "length:8|V:260|tokens:896"  # 128 sequences without the first token
    assert len(TASK.measure_items("induction_loss", lines, corpus)) == probes.SEQUENCES
    bigrams, _ = scores(ByHand(of_bytes), corpus)
    assert bigrams["induction_loss"] > math.log(V)  # it does not read what was before


def test_pairs_are_counted_as_by_hand(corpus):
    values, lines = scores(ByHand(of_bytes), corpus)
    assert values["minimal_pairs"] == 60.0
    assert TASK.measure_items("minimal_pairs", lines, corpus) == [100.0, 0.0, 0.0, 100.0, 100.0]
    good = [float(line.split()[1].partition("=")[2]) for line in lines if line[:5] == "pair "]
    assert good[0] == pytest.approx(math.log(4 * 8), abs=1e-5)  # and nothing for an end mark
    assert good[3] == pytest.approx(40 * math.log(4), abs=1e-4)
    found = TASK.measure("minimal_pairs", lines, corpus)
    assert found.signature == "ctx:16|stride:16|pairs:5|split:pairs.jsonl"
    assert set(found.resamples) <= {0.0, 20.0, 40.0, 60.0, 80.0, 100.0}
    assert len(set(found.resamples)) > 3


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"eval_context": 12, "eval_stride": 5},
        {"document_masks": True, "eval_context": 24, "eval_stride": 10},
    ],
    ids=str,
)
def test_probes_of_the_text_are_those_of_brute_force(corpus, fields):
    config, model = small(**fields)
    values, _ = scores(model, corpus, **fields)
    context, stride = config.eval_context or config.context, config.eval_stride or config.context
    text = corpus.split("test")["text"]
    documents = [text[i].tolist() for i in range(2)]
    if corpus.manifest.data["documents"] == "joined":
        documents = [documents[0] + documents[1]]
    nats = {name: [] for name in values}
    for ids in documents:
        for place, token in enumerate(ids):
            start = stride * max(0, (place - context) // stride + 1)  # the first context with it
            read = [[BOS, *ids][start], *ids[start:place]]
            if config.document_masks and EOS in read:
                read = read[len(read) - 1 - read[::-1].index(EOS) :]
            with torch.no_grad():
                logits = model.logits(model.read(torch.tensor([read])))[0, -1]
            loss = -float(logits.double().log_softmax(-1)[token])
            span = max(n for n in LOSS_AFTER.values() if n <= len(read))
            nats[f"loss_after_{span}"].append(loss)
            is_repeated = (read[-1], token) in list(itertools.pairwise(read))
            nats["repeated_loss" if is_repeated else "new_loss"].append(loss)
    assert min(map(len, (nats["repeated_loss"], nats["new_loss"], nats["loss_after_4"]))) > 5
    for name in ("loss_after_1", "loss_after_4", "repeated_loss", "new_loss"):
        assert values[name] == pytest.approx(np.mean(nats[name]), rel=1e-5), name


def test_the_lines_of_blocks_are_those_without_probes(corpus):
    config, model = small()
    lines = scores(model, corpus)[1]
    plain = TASK.predict(model, corpus, config, CPU)
    assert TASK.item_predictions(lines) == plain == lines[: len(plain)]
    assert TASK.measure("bpb", lines, corpus) == TASK.measure("bpb", plain, corpus)


def line(nats, count):
    sums = " ".join(f"{metric.name}={nats}/{count}" for metric in TEXT_PROBES)
    return f"text {sums} ctx:8|stride:8"


def test_resamples_without_a_token_of_the_probe_have_the_score_of_the_whole():
    lines = [line(6.0, 3), *[line(0.0, 0)] * 9]
    found = measure(*probes.probe_statistics("new_loss", lines, "test"))
    assert (found.value, set(found.resamples)) == (2.0, {2.0})
    assert found.signature == "ctx:8|stride:8|tokens:3|split:test"
    with pytest.raises(StoreError, match="metric new_loss: the evaluation has no token for it"):
        probes.probe_statistics("new_loss", lines[1:], "test")
    with pytest.raises(StoreError, match="no token for it"):
        probes.probe_statistics("induction_loss", lines, "test")


def test_small_vocabularies_have_short_sequences():
    contexts, length = probes.repeated_sequences(10, 64)
    assert length == 6
    first = contexts[0].tolist()
    assert first[:6] == first[6:]
    assert sorted(first[:6]) == list(range(4, 10))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pairs.txt", "a", "pairs.txt: minimal_pairs must end in .* .jsonl"),
        ("none.jsonl", None, "none.jsonl not found"),
        ("p.jsonl", '{"sentence_good": "a", "sentence_bad": " "}', "p.jsonl:1: sentence_bad is em"),
        ("p.jsonl", '{"good": "a"}', "sentence_good"),
    ],
)
def test_pairs_that_cannot_be_read_are_one_line(tmp_path, name, content, message):
    (tmp_path / "text.txt").write_text("abc" * 50)
    if content is not None:
        (tmp_path / name).write_text(content)
    settings = {"corpus": "files", "train": "text.txt", "dev": "50%", "minimal_pairs": name}
    with pytest.raises(DataError, match=message) as error:
        prepare(LanguageData.resolve(settings), tmp_path, tmp_path / "corpora")
    assert len(error.value.lines) == 1


def test_other_pairs_leave_training_as_it_was(tmp_path):
    first = corpus_of(tmp_path)
    (tmp_path / "more.tsv").write_text("sentence_good\tsentence_bad\na\tb\nb\ta\n")
    again = LanguageData(**{**first.manifest.data, "minimal_pairs": "more.tsv"})
    lines = []
    second = prepare(again, tmp_path, tmp_path / "corpora", lines.append)
    assert lines[0] == f"reusing the training split, dev split and vocabulary of {first.id}"
    assert (second.training_hash, second.id == first.id) == (first.training_hash, False)
    assert second.manifest.records == {"train": 2, "dev": 2, "test": 2, "minimal_pairs": 4}
    plain = prepare(
        again.model_copy(update={"minimal_pairs": None}), tmp_path, tmp_path / "corpora"
    )
    assert "minimal_pairs.text.ids" not in plain.manifest.files

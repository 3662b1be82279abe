"""Masked language models from a study to a table: scores, filled masks, attention, and export."""

import json
import math
import os
import re

import numpy as np
import pytest
import torch

from ablate.config import cost
from ablate.config.lengths import Lengths
from ablate.config.resolve import resolve_row
from ablate.data.batches import BatchOrder
from ablate.data.tokenizer import MASK
from ablate.tasks import MaskedLanguageModel
from ablate.training.step_batches import StepBatches
from tests.cli.inside import inside

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def mlm(trained):
    """The trained study."""
    return trained("masked-lm")


def test_the_table_has_loss_and_accuracy_with_a_signature_for_each_evaluation(mlm):
    table = mlm.data("table")
    assert table["metrics"] == ["ppl", "masked_loss", "masked_accuracy"]
    rows = {row["row"]: row for row in table["rows"]}
    starts = [
        signature.rpartition("|masked:")[0] for signature in table["signatures"]["masked_loss"]
    ]
    assert sorted(starts) == sorted(
        f"ctx:{context}|rate:{rate}|of:{of}|seed:{seed}"
        for context, rate, of, seed in (
            (16, 0.15, "tokens", 1), (32, 0.15, "tokens", 1), (16, 0.5, "tokens", 1), (16, 0.15, "tokens", 2),
            (16, 0.15, "words", 1),
        )
    )  # fmt: skip
    base = {name: rows["base"][name]["values"][0] for name in table["metrics"]}
    assert base["masked_loss"] < math.log(6) - 0.1  # of a letter drawn from six
    assert base["masked_accuracy"] > 100 / 6
    assert (
        rows["evaluation eval_mask_rate=0.5"]["masked_loss"]["values"][0] > base["masked_loss"]
    )  # fewer to read
    assert rows["evaluation eval_whole_word=true"]["params"] == rows["base"]["params"]


@pytest.mark.parametrize(
    "label", ["base", "lstm", "evaluation eval_context", "evaluation eval_whole_word"]
)
def test_the_scores_are_those_of_a_plain_loop(mlm, label):
    """One forward pass for each context, with the masks that the batches name and the other tokens
    of the text.
    """
    run, row = mlm.loaded(label)
    context = row.config.eval_context or row.config.context
    stream = run.corpus.split("test")["text"].ids.astype("int64")
    nats = correct = count = 0
    contexts = run.task.evaluation_contexts(run.corpus, "test", row.config)
    for i, start in enumerate(range(0, len(stream), context)):
        places = contexts.collate([i]).indices
        tokens = torch.from_numpy(stream[start : start + context].copy())
        masked = torch.from_numpy(places - start)
        assert len(masked)
        targets = tokens[masked].clone()
        tokens[masked] = MASK
        with torch.no_grad():
            logits = run.model.logits(run.model.read(tokens[None]))[0, masked].double()
        nats -= float(logits.log_softmax(-1).gather(1, targets[:, None]).sum())
        correct += int((logits.argmax(1) == targets).sum())
        count += len(masked)
    scores = run.result.decodings[row.decoding].scores
    assert scores["masked_loss"].value == pytest.approx(nats / count, rel=1e-4)
    assert scores["masked_accuracy"].value == pytest.approx(
        100 * correct / count, abs=100.1 / count
    )
    share = np.bincount(stream).max() / len(stream)
    guess = share + 3 * math.sqrt(share * (1 - share) / count)  # a binomial of the masked tokens
    assert scores["masked_accuracy"].parts["by_chance"] == pytest.approx(100 * guess)
    assert f"|masked:{count}|" in scores["masked_loss"].signature


def test_rows_of_other_contexts_and_masks_of_training_predict_the_same_tokens(mlm):
    lines = {}
    for label in ("base", "masks", "lstm", "evaluation eval_context"):
        run, row = mlm.loaded(label)
        found = run.task.predict(run.model, run.corpus, row.config, CPU)
        lines[label] = [line.split()[2] for line in found]
        assert len(found) == run.task.n_predictions(run.corpus) > 1
    assert lines["base"] == lines["masks"] == lines["lstm"]
    counts = [
        [int(one.removeprefix("masked=")) for one in lines[label]]
        for label in ("base", "evaluation eval_context")
    ]
    assert all(
        abs(a - b) <= 8 for a, b in zip(*counts, strict=True)
    )  # contexts without a mask get one


@pytest.mark.parametrize("label", ["base", "evaluation eval_mask_rate", "masks"])
def test_the_dev_split_is_masked_at_one_rate_whatever_the_row(mlm, label):
    """15 % of the tokens, as in BERT: a binomial number with a standard deviation of 1 %."""
    run, row = mlm.loaded(label)
    contexts = run.task.items(run.corpus, "dev", row.config)["text"]
    places = contexts.collate(range(len(contexts))).indices
    assert len(places) / contexts.lengths.sum() == pytest.approx(0.15, abs=0.04)


def test_masks_are_drawn_by_seed_and_step_in_this_order(mlm):
    """Another order would be as good, but would change the weights of existing runs."""
    run, _ = mlm.loaded("base")
    split = run.task.items(run.corpus, "train", run.config)
    assert run.task.at_step(split, seed=1, step=2)["text"].key == (1, 2)


def test_batches_are_a_function_of_seed_and_step(mlm):
    run, _ = mlm.loaded("base")
    split = run.task.items(run.corpus, "train", run.config)

    def inputs(seed, step, limit=10_000):
        batches = StepBatches(run.task, split, BatchOrder(split, 256, seed))
        batch = batches.at(step, limit)
        found = [micro_batch for part in batch.parts for micro_batch in part.micro_batches]
        assert sum(micro_batch.tokens for micro_batch in found) == batch.n_tokens
        return torch.cat([micro_batch.inputs.flatten() for micro_batch in found]).tolist()

    first = inputs(1, 3)
    assert first == inputs(1, 3) == inputs(1, 3, limit=32)  # in micro-batches
    assert first != inputs(1, 4)
    items = [0, 5]
    masks = [
        run.task.collate(run.task.at_step(split, *at), items).positions.tolist()
        for at in ((1, 3), (1, 4), (2, 3))
    ]
    assert masks[0] != masks[1] != masks[2] != masks[0]  # of the same contexts


def test_fill_names_candidates_by_run_and_by_row(mlm):
    run, _ = mlm.loaded("base")
    id, text = run.record.id, "aabb<mask>cdd\n<mask>"
    words = ("--top", "3")
    shown = mlm.data("predict", "--text", text, *words)
    by_run = inside(
        "predict", id[:6], "--text", text, *words, "--results", mlm.root, "--format", "json"
    )
    assert json.loads(by_run.out) == shown
    assert mlm.data("predict", *words, stdin=text.encode()) == shown
    assert mlm.data("fill", "base", text, *words) == shown
    assert shown["run"] == id
    assert [len(mask) for mask in shown["masks"]] == [3, 3]
    before, after = (run.corpus.tokenizer.encode([part])[0] for part in ("aabb", "cdd\n"))
    ids = torch.tensor([[*before, MASK, *after, MASK]])
    logits = run.model.logits(run.model.read(ids))[0, [4, 9]].double()
    logits[:, :3] = -torch.inf
    for mask, expected in zip(shown["masks"], logits.softmax(-1), strict=True):
        values, tokens = expected.topk(3)
        assert [one["id"] for one in mask] == tokens.tolist()
        assert [one["probability"] for one in mask] == pytest.approx(values.tolist(), rel=1e-5)
    best = [mask[0]["piece"].replace("<0x0A>", "") for mask in shown["masks"]]
    assert shown["filled"].replace("\n", "") == "aabb{}cdd{}".format(*best)
    said = mlm.answer("predict", "--text", text, "--top", "300")
    assert re.search(r'mask 2:.*   " " 0\.\d{3}   ', said)  # a space is seen


def test_fill_refuses_what_it_cannot_use(mlm):
    for words, code, part in (
        (("--text", "no masks"), 2, "the text has no <mask>"),
        (("--text", "<mask>" * 65), 3, "has 65 tokens, too many for max_positions=64"),
        (("bas", "--text", "<mask>"), 2, "bas"),
        ((), 2, "--text is missing"),
    ):
        done = mlm.ask("predict", *words)
        assert (done.code, done.err.count("\n"), part in done.err) == (code, 1, True), done.err
    done = inside("predict", mlm.folder("base").id, "a <mask>", "--results", mlm.root)
    assert (done.code, "--text takes it" in done.err) == (2, True)
    for words in (("bas", "--text", "<mask>"), ("base", "--seed", "9")):
        assert "--text takes it" not in mlm.ask("predict", *words).err


def test_attention_and_importance(mlm, tmp_path):
    figure = tmp_path / "a.svg"
    shown = mlm.data("attention", "base", "--text", "aa<mask>b", "--out", figure)
    assert (shown["source"], shown["target"]) == ([], ["a", "a", "<mask>", "b"])
    assert [(one["kind"], len(one["keys"])) for one in shown["attentions"]] == [("encoder", 4)]
    assert "aa&lt;mask&gt;b" in figure.read_text() or "aa<mask>b" in figure.read_text()
    assert len(mlm.data("attention", "base", "--importance", "--records", 4)["heads"]) == 2
    done = mlm.ask("attention", "lstm*", "--importance")
    assert done.err == "the run has no attention: architecture=encoder-only with mixer=lstm\n"


def test_export_fills_the_same_tokens(mlm, tmp_path):
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = pytest.importorskip("transformers")
    said = mlm.answer("export", "base", "--out", tmp_path / "model", "--to", "huggingface")
    assert "BertForMaskedLM" in said
    there = transformers.BertForMaskedLM.from_pretrained(tmp_path / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    text = "aab<mask>ccd<mask>\n<mask>b"
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    best = there(ids).logits[ids == tokenizer.mask_token_id].argmax(-1).tolist()
    assert [mask[0]["id"] for mask in mlm.data("predict", "--text", text)["masks"]] == best


def test_report_and_compare_show_the_blocks(mlm, tmp_path):
    mlm.answer("report", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "accuracy" in page
    without_effect = ("beam", "temperature", "eval_stride", "decoder_layers", "attention_window")
    assert not [name for name in without_effect if f">{name}<" in page]
    assert ">mask_rate<" in page
    shown = mlm.answer("compare", "base", "lstm*")
    for part in ("mixer", "95 % over test blocks", "Blocks that differ most in loss"):
        assert part in shown


def test_the_same_text_is_prepared_once_for_both_kinds_of_language_models(mlm):
    data = "{corpus: files, train: text.txt, dev: 5%, test: 10%}"
    study = mlm.beside("lm.yaml", f"study: lm\ntask: language-model\ndata: {data}\n").study
    corpora = mlm.root / "corpora"
    prepared = {path.name for path in corpora.iterdir()}
    study.task.prepare(study.data, mlm.file.parent, corpora)
    assert {path.name for path in corpora.iterdir()} == prepared


def test_flops_are_those_of_contexts_and_of_the_predicted_tokens():
    fields = {"context": 64, "batch_tokens": 640, "mask_rate": 0.25, "output_transform": True}
    config = resolve_row({**MaskedLanguageModel.defaults, **fields})
    flops = cost.flops_per_step(config, 260, Lengths.assumed())
    d, ff, N, V = 512, 2048, 6, 260
    per_token = N * (4 * d * d + 2 * d * ff + 2 * d * 64) + 0.25 * (V + d) * d
    assert flops == pytest.approx(3 * 2 * per_token * 640)

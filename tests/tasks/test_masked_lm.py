"""Masked language models from a study to a table: scores, filled masks, attention, export, resume,
what is refused.
"""

import json
import math
import os
import random
import re

import pytest
import torch

from ablate.config import cost, resolve_row
from ablate.config.cost import Lengths
from ablate.data.batches import BatchOrder
from ablate.data.tokenizer import MASK
from ablate.errors import StudyError
from ablate.run.inference import load_run
from ablate.store import Results
from ablate.study import read_study
from ablate.tasks import MaskedLanguageModel
from ablate.training.step_batches import StepBatches
from tests.cli.inside import inside
from tests.tasks.language import scarce

STUDY = """\
study: mlm
task: masked-lm
data: {corpus: files, train: text.txt, dev: 5%, test: 10%}
base:
  N: 1
  d_model: 32
  d_ff: 64
  h: 2
  dropout: 0.0
  positional_encoding: learned
  activation: gelu
  embedding_scale: 1
  embedding_norm: true
  output_transform: true
  output_bias: true
  max_positions: 64
  context: 16
  batch_tokens: 256
  train_steps: 60
  warmup_steps: 10
  learning_rate: 0.01
  eval_every: 30
  checkpoint_every: 30
rows:
  masks: {set: {mask_rate: 0.4, mask_split: 100/0/0, whole_word: true}}
  lstm: {set: {mixer: lstm, positional_encoding: none}}
  evaluation: {each: {eval_context: [32], eval_mask_rate: [0.5], eval_mask_seed: [2], eval_whole_word: [true]}}
"""
HEAD = "study: s\ntask: masked-lm\ndata: {corpus: toy}\n"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The study and its text: lines of one letter each, so that a masked letter can be known."""
    path, draw = tmp_path_factory.mktemp("mlm"), random.Random(1)
    lines = (8 * draw.choice("abcdef") for _ in range(1500))
    (path / "text.txt").write_text("".join(f"{line}\n" for line in lines))
    (path / "mlm.yaml").write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def trained(folder):
    """The results root after `ablate run`."""
    done = inside("run", folder / "mlm.yaml", "--results", folder / "results", "--device", "cpu")
    assert done.code == 0, done.err
    return folder / "results"


def of_row(folder, label):
    study = read_study(folder / "mlm.yaml")
    row = next(row for row in study.rows if row.label.startswith(label))
    return study.runs_of(row)[0].id, row


def loaded(folder, trained, label="base"):
    id, row = of_row(folder, label)
    return load_run(Results(trained).run(id), Results(trained)), row


def test_the_table_has_loss_and_accuracy_with_a_signature_for_each_evaluation(folder, trained):
    done = inside("table", folder / "mlm.yaml", "--results", trained, "--format", "json")
    table = json.loads(done.out)
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
    assert len({run.id for run in read_study(folder / "mlm.yaml").runs()}) == 3


@pytest.mark.parametrize(
    "label", ["base", "lstm", "evaluation eval_context", "evaluation eval_whole_word"]
)
def test_the_scores_are_those_of_a_plain_loop(folder, trained, label):
    """One forward pass for each context, with the masks that the batches name and the other tokens
    of the text.
    """
    run, row = loaded(folder, trained, label)
    context = row.config.eval_context or row.config.context
    stream = run.corpus.split("test")["text"].ids.astype("int64")
    nats = correct = count = 0
    contexts = run.task.evaluation_contexts(run.corpus, "test", row.config)
    for i, start in enumerate(range(0, len(stream), context)):
        places = contexts.collate([i]).places
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
    assert f"|masked:{count}|" in scores["masked_loss"].signature


def test_rows_of_other_contexts_and_masks_of_training_predict_the_same_tokens(folder, trained):
    lines = {}
    for label in ("base", "masks", "lstm", "evaluation eval_context"):
        run, row = loaded(folder, trained, label)
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
def test_the_dev_split_is_masked_at_one_rate_whatever_the_row(folder, trained, label):
    """15 % of the tokens, as in BERT: a binomial number with a standard deviation of 1 %."""
    run, row = loaded(folder, trained, label)
    contexts = run.task.items(run.corpus, "dev", row.config)["text"]
    places = contexts.collate(range(len(contexts))).places
    assert len(places) / contexts.lengths.sum() == pytest.approx(0.15, abs=0.04)


def test_a_test_text_that_needs_too_much_memory_is_scored_in_smaller_batches(
    folder, trained, monkeypatch
):
    run, row = loaded(folder, trained)
    arguments = run.model, run.corpus, row.config, CPU
    expected = run.task.measure("masked_loss", run.task.predict(*arguments), run.corpus).value
    output_terms, sizes = scarce(run.task, 300)
    monkeypatch.setattr(run.task, "output_terms", output_terms)
    assert run.task.measure(
        "masked_loss", run.task.predict(*arguments), run.corpus
    ).value == pytest.approx(expected)
    assert sizes[0] > 300 >= sizes[-1]


def test_the_test_text_is_scored_without_dropout(folder, trained):
    run, row = loaded(folder, trained)
    run.model.train()
    run.task.predict(run.model, run.corpus, row.config, CPU)
    assert not run.model.training


def test_masks_are_drawn_by_seed_and_step_in_this_order(folder, trained):
    """Another order would be as good, but would change the weights of existing runs."""
    run, _ = loaded(folder, trained)
    split = run.task.items(run.corpus, "train", run.config)
    assert run.task.at_step(split, seed=1, step=2)["text"].key == (1, 2)


def test_blocks_add_up_to_the_score_and_resampled_scores_spread_around_it(folder, trained):
    run, row = loaded(folder, trained)
    lines = run.task.predict(run.model, run.corpus, row.config, CPU)
    for name in ("masked_loss", "masked_accuracy"):
        measured = run.task.measure(name, lines, run.corpus)
        weights = [int(line.split()[2].removeprefix("masked=")) for line in lines]
        items = run.task.measure_items(name, lines, run.corpus)
        mean = sum(w * item for w, item in zip(weights, items, strict=True)) / sum(weights)
        assert measured.value == pytest.approx(mean)
        assert min(measured.resamples) <= measured.value <= max(measured.resamples)


def test_batches_are_a_function_of_seed_and_step(folder, trained):
    run, _ = loaded(folder, trained)
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


def test_fill_names_candidates_by_run_and_by_row(folder, trained):
    id, _ = of_row(folder, "base")
    words = ("--results", trained, "--top", "3", "--format", "json")
    text = "aabb<mask>cdd\n<mask>"
    by_run = json.loads(inside("predict", id[:6], "--text", text, *words).out)
    assert by_run == json.loads(inside("predict", folder / "mlm.yaml", "--text", text, *words).out)
    assert by_run == json.loads(
        inside("predict", folder / "mlm.yaml", *words, stdin=text.encode()).out
    )
    assert by_run == json.loads(inside("fill", folder / "mlm.yaml", "base", text, *words).out)
    assert by_run["run"] == id
    assert [len(mask) for mask in by_run["masks"]] == [3, 3]
    run, _ = loaded(folder, trained)
    ids = [
        *run.corpus.tokenizer.encode(["aabb"])[0],
        MASK,
        *run.corpus.tokenizer.encode(["cdd\n"])[0],
        MASK,
    ]
    logits = run.model.logits(run.model.read(torch.tensor([ids])))[0, [4, 9]].double()
    logits[:, :3] = -torch.inf
    for mask, expected in zip(by_run["masks"], logits.softmax(-1), strict=True):
        values, tokens = expected.topk(3)
        assert [one["id"] for one in mask] == tokens.tolist()
        assert [one["probability"] for one in mask] == pytest.approx(values.tolist(), rel=1e-5)
    best = [mask[0]["piece"] for mask in by_run["masks"]]
    assert by_run["filled"].replace("\n", "") == "aabb{}cdd{}".format(
        *(piece.replace("<0x0A>", "") for piece in best)
    )
    said = inside("predict", id, "--text", text, "--results", trained, "--top", "300").out
    assert re.search(r'mask 2:.*   " " 0\.\d{3}   ', said)  # a space is seen


def test_fill_averages_as_the_row_does_or_says_that_it_cannot(folder, trained):
    (folder / "mean.yaml").write_text(STUDY + "  mean: {set: {average_checkpoints: 2}}\n")
    done = inside(
        "predict", folder / "mean.yaml", "mean*", "--text", "aa<mask>", "--results", trained
    )
    assert (done.code, done.out) == (2, "")
    assert "has 1 checkpoint, and average_checkpoints=2 needs more" in done.err


def test_fill_refuses_what_it_cannot_use(folder, trained):
    id, _ = of_row(folder, "base")
    for words, part in (
        ((id, "--text", "no masks"), "the text has no <mask>"),
        ((id, "--text", "<mask>" * 65), "has 65 tokens, too many for max_positions=64"),
        ((folder / "mlm.yaml", "bas", "--text", "<mask>"), "bas"),
        ((id, "a <mask>"), "--text takes it"),
        ((id,), "--text is missing"),
    ):
        done = inside("predict", *words, "--results", trained)
        assert (done.code, done.err.count("\n"), part in done.err) == (2, 1, True), done.err


def test_attention_and_importance(folder, trained, tmp_path):
    id, _ = of_row(folder, "base")
    figure = tmp_path / "a.svg"
    words = ("--sentence", "aa<mask>b", "--format", "json", "--out", figure)
    done = inside("attention", id, "--results", trained, *words)
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert (shown["source"], shown["target"]) == ([], ["a", "a", "<mask>", "b"])
    assert [(one["kind"], len(one["keys"])) for one in shown["attentions"]] == [("encoder", 4)]
    assert "aa&lt;mask&gt;b" in figure.read_text() or "aa<mask>b" in figure.read_text()
    done = inside(
        "attention", id, "--results", trained, "--importance", "--pairs", "4", "--format", "json"
    )
    assert len(json.loads(done.out)["heads"]) == 2
    done = inside("attention", of_row(folder, "lstm")[0], "--results", trained, "--importance")
    assert done.err == "the run has no attention: architecture=encoder-only with mixer=lstm\n"


def test_export_fills_the_same_tokens(folder, trained, tmp_path):
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = pytest.importorskip("transformers")
    id, _ = of_row(folder, "base")
    done = inside("export", id, tmp_path / "model", "--to", "huggingface", "--results", trained)
    assert (done.code, "BertForMaskedLM" in done.out) == (0, True), done.err
    there = transformers.BertForMaskedLM.from_pretrained(tmp_path / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    text = "aab<mask>ccd<mask>\n<mask>b"
    ids = tokenizer(text, return_tensors="pt", add_special_tokens=False).input_ids
    best = there(ids).logits[ids == tokenizer.mask_token_id].argmax(-1).tolist()
    words = (id, "--text", text, "--results", trained, "--format", "json")
    assert [mask[0]["id"] for mask in json.loads(inside("predict", *words).out)["masks"]] == best
    done = inside(
        "export",
        of_row(folder, "lstm")[0],
        tmp_path / "other",
        "--to",
        "huggingface",
        "--results",
        trained,
    )
    assert (done.code, "it has mixer=lstm, but" in done.err) == (2, True)
    done = inside("export", id, tmp_path / "other", "--to", "ctranslate2", "--results", trained)
    assert "has the task masked-lm; only translation is supported by --to ctranslate2" in done.err


def test_report_and_compare_show_the_blocks(folder, trained, tmp_path):
    done = inside(
        "report", folder / "mlm.yaml", "--results", trained, "--out", tmp_path / "page.html"
    )
    assert done.code == 0, done.err
    page = (tmp_path / "page.html").read_text()
    assert "accuracy" in page
    names = (
        "beam",
        "temperature",
        "eval_stride",
        "decoder_layers",
        "attention_window",
    )  # without effect
    assert not [name for name in names if f">{name}<" in page]
    assert ">mask_rate<" in page
    done = inside("compare", folder / "mlm.yaml", "base", "lstm*", "--results", trained)
    assert done.code == 0, done.err
    assert "mixer" in done.out
    assert "95 % over test blocks" in done.out
    assert "Blocks that differ most in loss" in done.out


def test_resuming_gives_the_same_bytes(folder, trained):
    done = inside(
        "verify", folder / "mlm.yaml", "--results", trained, "--device", "cpu", "--rows", "masks"
    )
    assert done.code == 0, done.out + done.err
    assert "identical" in done.out


@pytest.mark.parametrize(
    ("base", "line"),
    [
        ("{beam: 4}", "s:4:14: beam: 4 has no effect with task masked-lm; remove it"),
        ("{temperature: 2.0}", "temperature: 2.0 has no effect with task masked-lm; remove it"),
        ("{eval_stride: 4}", "eval_stride: 4 has no effect with task masked-lm; remove it"),
        (
            "{decoder_layers: 2}",
            "s:4:24: decoder_layers: 2 has no effect: it belongs to the decoder .architecture., "
            "which is not chosen; remove it",
        ),
        (
            "{n_cross_heads: 2}",
            "n_cross_heads: 2 has no effect: it belongs to attention over the source",
        ),
        ("{tied_embeddings: decoder}", "tied_embeddings=decoder does not work without a decoder"),
        (
            "{architecture: decoder-only}",
            "architecture=decoder-only does not work with task masked-lm; use encoder-only",
        ),
        ("{mask_split: 80/10/11}", "must be three percentages that add up to 100"),
        ("{mask_rate: 1.5}", "mask_rate: 1.5 is not allowed"),
        ("{context: 2048}", "context=2048 is longer than max_positions=1024"),
    ],
)
def test_fields_that_do_not_go_together_are_found_when_the_study_is_read(tmp_path, base, line):
    path = tmp_path / "s"
    path.write_text(f"{HEAD}base: {base}\n")
    with pytest.raises(StudyError, match=line):
        read_study(path)


@pytest.mark.parametrize("task", ["translation", "language-model"])
def test_other_tasks_refuse_the_fields_of_masks(tmp_path, task):
    path = tmp_path / "s"
    path.write_text(
        f"study: s\ntask: {task}\ndata: {{corpus: toy}}\nrows: "
        f"{{A: {{each: {{mask_rate: [0.4]}}}}}}\n"
    )
    with pytest.raises(
        StudyError, match=rf":4:.*: mask_rate: 0.4.* has no effect with task {task}; remove it"
    ):
        read_study(path)


def test_the_task_s_defaults_are_those_of_an_encoder(tmp_path):
    (tmp_path / "s.yaml").write_text(HEAD + "rows: {}\n")
    config = read_study(tmp_path / "s.yaml").base.config
    assert (config.architecture, config.label_smoothing, config.context) == (
        "encoder-only",
        0.0,
        256,
    )


def test_the_same_text_is_prepared_once_for_both_kinds_of_language_models(folder, trained):
    other = folder / "lm.yaml"
    other.write_text(
        "study: lm\ntask: language-model\ndata: {corpus: files, train: text.txt, dev: 5%, test: "
        "10%}\n"
    )
    prepared = {path.name for path in (trained / "corpora").iterdir()}
    study = read_study(other)
    study.task.prepare(study.data, folder, trained / "corpora")
    assert {path.name for path in (trained / "corpora").iterdir()} == prepared


def test_flops_are_those_of_contexts_and_of_the_predicted_tokens():
    fields = {"context": 64, "batch_tokens": 640, "mask_rate": 0.25, "output_transform": True}
    config = resolve_row({**MaskedLanguageModel.defaults, **fields})
    flops = cost.flops_per_step(config, 260, Lengths.assumed())
    d, ff, N, V = 512, 2048, 6, 260
    per_token = N * (4 * d * d + 2 * d * ff + 2 * d * 64) + 0.25 * (V + d) * d
    assert flops == pytest.approx(3 * 2 * per_token * 640)

"""Language models from a study to a table: scores, generated text, attention, and export."""

import json
import math
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from ablate.attention.weights import attention_layers, attention_weights
from ablate.config import cost
from ablate.config.lengths import Lengths
from ablate.config.resolve import resolve_row
from ablate.errors import DataError
from ablate.study import Selection, read_study, runs_of
from ablate.tasks import LanguageModel, Sample
from tests.cli.inside import inside
from tests.tasks.studies import LANGUAGE

GPT = "gpt positional_encoding=learned norm=layernorm activation=gelu embedding_scale=1"


@pytest.fixture(scope="module")
def lm(trained):
    """The trained study."""
    return trained("language-model")


def test_the_table_has_bits_per_byte_with_a_signature_for_each_evaluation(lm):
    table = lm.data("table")
    assert table["metrics"] == ["ppl", "bpb"]
    assert table["signatures"]["bpb"] == [
        f"ctx:{context}|stride:{stride}|bytes:675|split:5%"
        for context, stride in ((16, 16), (16, 4), (64, 64), (8, 8))
    ]
    rows = {row["row"]: row for row in table["rows"]}
    bits = {label: row["bpb"]["values"][0] for label, row in rows.items()}
    assert bits["base"] < math.log2(7)  # of six letters and line ends; half of them can be known
    assert bits["context eval_stride=4"] < bits["base"]  # more tokens before most tokens
    assert rows["eval_context=64"]["params"] == rows["base"]["params"]
    assert rows[GPT]["against_base"]["bpb"]
    assert all(row["bpb"]["n"] == 1 for row in rows.values())


PROBES = "[bpb, loss_after_4, induction_loss, minimal_pairs]"


def test_stored_models_are_probed_without_training(lm, tmp_path):
    shutil.copytree(lm.root, tmp_path / "results")
    lm = replace(lm, root=tmp_path / "results")
    pairs = lm.file.with_name("pairs.tsv")
    pairs.write_text("sentence_good\tsentence_bad\nabcdabcd\tabcdabce\nffffffff\tfff\n")
    text = LANGUAGE.replace("study: lm", f"study: probed\nmetrics: {PROBES}")
    probed = lm.beside(
        "probed.yaml", text.replace("test: 5%", "test: 5%, minimal_pairs: pairs.tsv")
    )
    runs = [run.id for run in runs_of(probed.study)]
    assert runs == [run.id for run in runs_of(lm.study)]

    def weights():
        files = [path for id in runs for path in (lm.root / "runs" / id / "checkpoints").iterdir()]
        return {path: path.stat().st_mtime_ns for path in files}

    before, bits = weights(), lm.table()["base"]["bpb"]
    assert "probes=" not in probed.answer("run", "--device", "cpu")  # no setting of a study
    assert weights() == before
    rows = probed.table()
    assert rows["base"]["bpb"] == bits
    assert 0 < rows["base"]["loss_after_4"]["mean"] < math.log(260)
    assert rows["base"]["minimal_pairs"]["mean"] in (0.0, 50.0, 100.0)
    assert rows[GPT]["against_base"]["induction_loss"]["test_set"]["p"] <= 1
    # A further probe is scored from the lines that are stored.
    further = probed.file.read_text().replace(PROBES, "[repeated_loss, minimal_pairs]")
    more = lm.beside("probed.yaml", further).table()
    assert 0 < more["base"]["repeated_loss"]["mean"] < math.log(260)
    pairs.write_text("sentence_good\tsentence_bad\nabcdabcd\tabcdabce\n")
    refused = probed.run("--device", "cpu")
    assert (refused.code, "has changed since" in refused.err) == (4, True)


@pytest.mark.parametrize("stride", [None, 4])
def test_training_contexts_overlap_by_the_stride_and_those_of_dev_score_each_token_once(lm, stride):
    run, _ = lm.loaded("base")
    config = run.config.model_copy(update={"stride": stride})
    train, dev = (run.task.items(run.corpus, split, config)["text"] for split in ("train", "dev"))
    assert set(np.diff(train.starts)) == {stride or 16}
    assert (train.scored == train.starts).all()  # training counts every token of a context
    assert set(np.diff(dev.starts)) == {16}
    assert (dev.ends - dev.scored).sum() == len(dev.ids)


def test_samples_are_the_beginnings_of_the_blocks(lm):
    run, _ = lm.loaded("base")
    text = run.corpus.tokenizer.decode([run.corpus.split("test")["text"].ids.tolist()])[0]
    (sample,) = run.task.samples(run.corpus, [0])  # the test text of 675 bytes is one block
    assert sample == Sample(1, (("text", text[:300]),))


def test_generated_texts_are_stored_and_shown_in_the_report(lm, tmp_path):
    run, row = lm.loaded("base")
    texts = run.result.decodings[row.decoding].generated
    assert len(texts) == 3
    assert run.task.generate(run.model, run.corpus, row.config, torch.device("cpu")) == texts
    lm.answer("report", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Texts that each row" in page
    names = ("beam", "alpha", "mask_rate", "eval_stride", "context")
    assert [name for name in names if f">{name}<" in page] == ["eval_stride", "context"]
    assert texts[0].split("\n")[0] in page


def test_a_comparison_counts_blocks_of_the_text_and_not_sentences(lm):
    shown = lm.answer("compare", "base", "lstm*")
    assert "95 % over test blocks" in shown
    assert "Blocks that differ most in bits/byte" in shown
    assert "sentence" not in shown


def test_generate_continues_a_prompt_by_run_and_by_row(lm):
    id = lm.folder("base").id
    words = ("--text", "abc", "--tokens", 9, "--count", 2)
    shown = lm.data("predict", *words)
    by_run = inside("predict", id[:6], *words, "--results", lm.root, "--format", "json")
    assert json.loads(by_run.out) == shown
    assert shown["run"] == id
    assert [text["draw"] for text in shown["texts"]] == [1, 2]
    assert all(text["text"].startswith("abc") for text in shown["texts"])
    greedy = [
        lm.answer("predict", "base", "--temperature", 0, *words[:4], "--draw", draw)
        for draw in (1, 2)
    ]
    assert greedy[0] == greedy[1]


def test_generate_uses_the_settings_of_the_row_that_is_named(lm):
    """Rows that differ in decoding share the run, whose id stands for the one that began it."""
    text = LANGUAGE + "  cold: {set: {temperature: 0.0, generated_tokens: 7}}\n"
    words = ("--text", "abc")
    cold = lm.beside("cold.yaml", text).answer("predict", "cold*", *words)
    given = ("--temperature", "0", "--tokens", "7")
    assert cold == lm.answer("predict", "base", *words, *given)
    assert cold != lm.answer("predict", "base", *words)


def test_generate_refuses_rows_and_runs_that_it_cannot_use(lm, tmp_path):
    done = lm.ask("predict", "bas")
    assert (done.code, "bas" in done.err) == (2, True)
    done = replace(lm, root=tmp_path / "nothing").ask("predict", "base")
    assert (done.code, done.err.count("\n")) == (2, 1)


def test_options_of_other_tasks_are_refused(lm):
    done = lm.ask("predict", "--beam", "2", "--top", "3")
    assert (done.code, done.err) == (
        2,
        "--beam, --top have no effect with the task language-model, which takes --tokens, "
        "--count, --temperature, --top-k or --draw\n",
    )


def test_attention_and_importance(lm):
    shown = lm.data("attention", "base", "--text", "abab")
    assert (shown["source"], shown["target"]) == ([], ["<s>", "a", "b", "a", "b"])
    assert lm.data("attention", "base")["attentions"]
    assert len(lm.data("attention", "base", "--importance", "--records", 4)["heads"]) == 2
    done = lm.ask("attention", "base", "--translation", "x", "--format", "json")
    said = "--translation: a language model reads one text; give it as --text\n"
    assert (done.code, done.err) == (2, said)


def test_attention_shows_as_many_tokens_as_the_model_has_positions(lm):
    """The default is the beginning of the test split, which may be longer; the first position is
    that of the mark.
    """
    run, row = lm.loaded("base")
    config = run.config.model_copy(update={"max_positions": 10})
    run, layers = replace(run, row=replace(row, config=config)), attention_layers(run.model)
    assert len(attention_weights(run, None, None, layers).target) == 10
    assert len(attention_weights(run, "abcdefabc", None, layers).target) == 10
    with pytest.raises(
        DataError, match="--text: has 10 tokens, too many for max_positions=10 of the run"
    ):
        attention_weights(run, "abcdefabcd", None, layers)


@pytest.mark.parametrize(
    ("label", "cls"),
    [
        ("base", "LlamaForCausalLM"),
        (GPT, "GPT2LMHeadModel"),
    ],
)
def test_export_gives_the_same_greedy_text(lm, tmp_path, label, cls):
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = pytest.importorskip("transformers")
    done = lm.answer("export", label, "--out", tmp_path / "model", "--to", "huggingface")
    assert cls in done
    there, tokenizer = (
        getattr(transformers, name).from_pretrained(tmp_path / "model")
        for name in (cls, "PreTrainedTokenizerFast")
    )
    prompt = tokenizer("abcd", return_tensors="pt", add_special_tokens=False).input_ids
    prompt = torch.cat([torch.tensor([[tokenizer.bos_token_id]]), prompt], dim=1)
    text = tokenizer.decode(there.generate(prompt, max_new_tokens=11, do_sample=False)[0, 1:])
    words = ("--text", "abcd", "--tokens", "11", "--temperature", "0")
    assert lm.answer("predict", label, *words) == f"{text}\n"


def test_a_share_for_testing_is_part_of_a_run_s_id_and_a_file_is_not(lm):
    def ids(*overrides):
        return {run.id for run in runs_of(read_study(lm.file, Selection(overrides)))}

    assert ids().isdisjoint(ids("data.test=6%"))
    assert ids("data.test=other.txt") == ids("data.test=dev")


@pytest.mark.parametrize("context", [16, 64])
def test_flops_are_those_of_contexts(context):
    config = resolve_row({**LanguageModel.defaults, "context": context, "batch_tokens": 640})
    flops = cost.flops_per_step(config, 260, Lengths.assumed())
    d, ff, N, V = 512, 2048, 6, 260
    per_token = N * (4 * d * d + 2 * d * ff + 2 * d * context) + V * d
    assert flops == pytest.approx(3 * 2 * per_token * 640)


def test_steps_of_an_epoch_follow_from_the_text():
    settings = {**LanguageModel.defaults, "context": 64, "batch_tokens": 640, "epochs": 3}
    lengths = Lengths(1, 0, 6400, 6400, 0, 0, 6400**2)
    assert cost.steps(resolve_row(settings), lengths) == 30
    assert cost.steps(resolve_row({**settings, "stride": 16}), lengths) == 120

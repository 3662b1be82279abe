"""Language models from a study to a table: scores, generated text, attention, export, resume, and
what is refused.
"""

import json
import math
import os
import random
from dataclasses import replace

import numpy as np
import pytest
import torch

from ablate.attention.weights import attention_layers, attention_weights
from ablate.config import cost, resolve_row
from ablate.config.cost import Lengths
from ablate.errors import DataError, StudyError
from ablate.run.inference import load_run
from ablate.store import Results
from ablate.study import Selection, read_study
from ablate.tasks import LanguageModel, Sample
from tests.cli.inside import inside
from tests.tasks.language import plain_nats, scarce

STUDY = """\
study: lm
task: language-model
data: {corpus: files, train: text.txt, dev: 5%, test: 5%}
base:
  N: 1
  d_model: 32
  d_ff: 64
  h: 2
  dropout: 0.0
  positional_encoding: rope
  norm: rmsnorm
  activation: swiglu
  norm_position: pre
  max_positions: 128
  context: 16
  batch_tokens: 256
  train_steps: 60
  warmup_steps: 10
  learning_rate: 0.01
  eval_every: 30
  checkpoint_every: 30
  generated_tokens: 20
rows:
  gpt: {set: {positional_encoding: learned, norm: layernorm, activation: gelu, embedding_scale: 1}}
  lstm: {set: {mixer: lstm, positional_encoding: none}}
  context: {each: {context: [8], eval_context: [64], eval_stride: [4]}}
"""
GPT = "gpt positional_encoding=learned norm=layernorm activation=gelu embedding_scale=1"
HEAD = "study: s\ntask: language-model\ndata: {corpus: toy}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The study and its text: lines whose second half repeats the first."""
    path, draw = tmp_path_factory.mktemp("lm"), random.Random(1)
    words = ["".join(draw.choice("abcdef") for _ in range(4)) for _ in range(1500)]
    (path / "text.txt").write_text("".join(f"{word}{word}\n" for word in words))
    (path / "lm.yaml").write_text(STUDY)
    return path


@pytest.fixture(scope="module")
def trained(folder):
    """The results root after `ablate run`."""
    done = inside("run", folder / "lm.yaml", "--results", folder / "results", "--device", "cpu")
    assert done.code == 0, done.err
    return folder / "results"


def of_row(folder, label):
    study = read_study(folder / "lm.yaml")
    row = next(row for row in study.rows if row.label == label)
    return study.runs_of(row)[0].id, row


def test_the_table_has_bits_per_byte_with_a_signature_for_each_evaluation(folder, trained):
    done = inside("table", folder / "lm.yaml", "--results", trained, "--format", "json")
    table = json.loads(done.out)
    assert table["metrics"] == ["ppl", "bpb"]
    assert table["signatures"]["bpb"] == [
        f"ctx:{context}|stride:{stride}|bytes:675|split:5%"
        for context, stride in ((16, 16), (16, 4), (64, 64), (8, 8))
    ]
    rows = {row["row"]: row for row in table["rows"]}
    bits = {label: row["bpb"]["values"][0] for label, row in rows.items()}
    assert bits["base"] < math.log2(7)  # of six letters and line ends; half of them can be known
    assert bits["context eval_stride=4"] < bits["base"]  # more tokens before most tokens
    assert rows["context eval_context=64"]["params"] == rows["base"]["params"]
    assert rows[GPT]["against_base"]["bpb"]
    assert all(row["bpb"]["n"] == 1 for row in rows.values())


def test_rows_of_the_evaluation_train_nothing(folder):
    study = read_study(folder / "lm.yaml")
    assert len(study.rows) == 6
    assert len({run.id for run in study.runs()}) == 4


PROBES = "[bpb, loss_after_4, induction_loss, minimal_pairs]"


def test_stored_models_are_probed_without_training(folder, trained, tmp_path):
    study = STUDY.replace("study: lm", f"study: probed\nmetrics: {PROBES}")
    study = study.replace("test: 5%", "test: 5%, minimal_pairs: pairs.tsv")
    path, pairs = folder / "probed.yaml", folder / "pairs.tsv"
    path.write_text(study)
    pairs.write_text("sentence_good\tsentence_bad\nabcdabcd\tabcdabce\nffffffff\tfff\n")
    runs = [run.id for run in read_study(path).runs()]
    assert runs == [run.id for run in read_study(folder / "lm.yaml").runs()]
    weights = [Results(trained).run(id).path / "checkpoints" for id in runs]
    before = [sorted((file, file.stat().st_mtime_ns) for file in at.iterdir()) for at in weights]
    bits = table_of_study(folder / "lm.yaml", trained)["base"]["bpb"]
    done = inside("run", path, "--results", trained, "--device", "cpu")
    assert done.code == 0, done.err
    after = [sorted((file, file.stat().st_mtime_ns) for file in at.iterdir()) for at in weights]
    assert before == after
    assert "probes=" not in done.out  # no setting of a study
    rows = table_of_study(path, trained)
    assert rows["base"]["bpb"] == bits
    assert 0 < rows["base"]["loss_after_4"]["mean"] < math.log(260)
    assert rows["base"]["minimal_pairs"]["mean"] in (0.0, 50.0, 100.0)
    assert rows[GPT]["against_base"]["induction_loss"]["test_set"]["p"] <= 1
    # A further probe is scored from the lines that are stored.
    more = table_of_study(path, trained, PROBES, "[repeated_loss, minimal_pairs]")
    assert 0 < more["base"]["repeated_loss"]["mean"] < math.log(260)
    pairs.write_text("sentence_good\tsentence_bad\nabcdabcd\tabcdabce\n")
    refused = inside("run", path, "--results", trained, "--device", "cpu")
    assert (refused.code, "has changed since" in refused.err) == (2, True)


def table_of_study(path, results, *renamed):
    """The rows of a study's table, by label; `renamed`: a text in the study, and its replacement."""
    if renamed:
        path.write_text(path.read_text().replace(*renamed))
    done = inside("table", path, "--results", results, "--format", "json")
    assert done.code == 0, done.err
    return {row["row"]: row for row in json.loads(done.out)["rows"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("metrics: [loss_after_64]\nbase: {context: 32}", '5:17: row "base": context=32 is too'),
        ("metrics: [induction_loss]\nbase: {eval_context: 3}", "eval_context=3 is too short for"),
        ("metrics: [minimal_pairs]", '4:10: row "base": metric minimal_pairs needs data.minimal'),
        ("base: {probes: true}", "probes: true has no effect with metrics, which name what is"),
        ("metrics: [loss_after_2]", 'unknown metric "loss_after_2"'),
    ],
)
def test_probes_that_measure_nothing_are_refused(tmp_path, text, message):
    path = tmp_path / "s.yaml"
    path.write_text(f"{HEAD}{text}")
    with pytest.raises(StudyError) as error:
        read_study(path)
    assert len(error.value.lines) == 1
    assert message in error.value.lines[0]


@pytest.mark.parametrize("task", ["language-model", "masked-lm"])
def test_pairs_that_no_metric_reads_are_refused(tmp_path, task):
    path = tmp_path / "s.yaml"
    path.write_text(f"study: s\ntask: {task}\ndata: {{corpus: toy, minimal_pairs: p.tsv}}")
    with pytest.raises(StudyError, match="minimal_pairs has no effect: metrics do not name"):
        read_study(path)


def test_the_trained_model_s_score_is_that_of_a_plain_loop(folder, trained):
    id, row = of_row(folder, "context eval_context=64")
    run = load_run(Results(trained).run(id), Results(trained))
    score = run.result.decodings[row.decoding].scores["bpb"]
    tokens = run.corpus.split("test")["text"].ids.tolist()
    each = row.config.model_copy(update={"eval_stride": 1})
    found = run.task.predict(run.model, run.corpus, each, torch.device("cpu"))
    nats = sum(plain_nats(run.model, tokens, 64))
    assert run.task.measure("bpb", found, run.corpus).value == pytest.approx(
        nats / math.log(2) / 675, rel=1e-4
    )
    assert score.signature == "ctx:64|stride:64|bytes:675|split:5%"


def test_perplexity_of_the_dev_split_counts_each_token_once_with_its_whole_context(folder, trained):
    id, row = of_row(folder, "context eval_context=64")
    run = load_run(Results(trained).run(id), Results(trained))
    tokens = run.corpus.split("dev")["text"].ids.tolist()
    each = row.config.model_copy(update={"eval_stride": 1})
    score = run.task.evaluate(run.model, run.corpus, each, torch.device("cpu"))["ppl"]
    nats = sum(plain_nats(run.model, tokens, 64))
    assert score.value == pytest.approx(math.exp(nats / len(tokens)), rel=1e-4)
    assert score.signature.startswith(f"ctx:64|stride:1|tokens:{len(tokens)}|split:5%")


def test_the_test_text_is_scored_without_dropout(folder, trained):
    id, row = of_row(folder, "base")
    run = load_run(Results(trained).run(id), Results(trained))
    run.model.train()
    run.task.predict(run.model, run.corpus, row.config, torch.device("cpu"))
    assert not run.model.training


def test_a_test_text_that_needs_too_much_memory_is_scored_in_smaller_batches(
    folder, trained, monkeypatch
):
    id, row = of_row(folder, "base")
    run = load_run(Results(trained).run(id), Results(trained))
    arguments = run.model, run.corpus, row.config, torch.device("cpu")
    expected = run.task.measure("bpb", run.task.predict(*arguments), run.corpus).value
    output_terms, sizes = scarce(run.task, 300)
    monkeypatch.setattr(run.task, "output_terms", output_terms)
    assert run.task.measure("bpb", run.task.predict(*arguments), run.corpus).value == pytest.approx(
        expected
    )
    assert sizes[0] > 300 >= sizes[-1]


@pytest.mark.parametrize("stride", [None, 4])
def test_training_contexts_overlap_by_the_stride_and_those_of_dev_score_each_token_once(
    folder, trained, stride
):
    run = load_run(Results(trained).run(of_row(folder, "base")[0]), Results(trained))
    config = run.config.model_copy(update={"stride": stride})
    train, dev = (run.task.items(run.corpus, split, config)["text"] for split in ("train", "dev"))
    assert set(np.diff(train.starts)) == {stride or 16}
    assert (train.scored == train.starts).all()  # training counts every token of a context
    assert set(np.diff(dev.starts)) == {16}
    assert (dev.ends - dev.scored).sum() == len(dev.ids)


def test_samples_are_the_beginnings_of_the_blocks(folder, trained):
    run = load_run(Results(trained).run(of_row(folder, "base")[0]), Results(trained))
    text = run.corpus.tokenizer.decode([run.corpus.split("test")["text"].ids.tolist()])[0]
    (sample,) = run.task.samples(run.corpus, [0])  # the test text of 675 bytes is one block
    assert sample == Sample(1, (("text", text[:300]),))


def test_generated_texts_are_stored_and_shown_in_the_report(folder, trained, tmp_path):
    id, row = of_row(folder, "base")
    run = load_run(Results(trained).run(id), Results(trained))
    texts = run.result.decodings[row.decoding].generated
    assert len(texts) == 3
    assert run.task.generate(run.model, run.corpus, row.config, torch.device("cpu")) == texts
    done = inside(
        "report", folder / "lm.yaml", "--results", trained, "--out", tmp_path / "page.html"
    )
    assert done.code == 0, done.err
    page = (tmp_path / "page.html").read_text()
    assert "Texts that each row" in page
    assert [name for name in ("beam", "alpha", "mask_rate", "eval_stride", "context") if f">{name}<" in page] == [
        "eval_stride", "context",
    ]  # fmt: skip
    assert texts[0].split("\n")[0] in page


def test_a_comparison_counts_blocks_of_the_text_and_not_sentences(folder, trained):
    done = inside("compare", folder / "lm.yaml", "base", "lstm*", "--results", trained)
    assert done.code == 0, done.err
    assert "95 % over test blocks" in done.out
    assert "Blocks that differ most in bits/byte" in done.out
    assert "sentence" not in done.out


def test_generate_continues_a_prompt_by_run_and_by_row(folder, trained):
    id, _ = of_row(folder, "base")
    words = (
        "--results",
        trained,
        "--text",
        "abc",
        "--tokens",
        "9",
        "--count",
        "2",
        "--format",
        "json",
    )
    by_run, by_row = (
        json.loads(inside("predict", *which, *words).out)
        for which in ((id[:6],), (folder / "lm.yaml",))
    )
    assert by_run == by_row
    assert by_run["run"] == id
    assert [text["draw"] for text in by_run["texts"]] == [1, 2]
    assert all(text["text"].startswith("abc") for text in by_run["texts"])
    greedy = (folder / "lm.yaml", "base", "--temperature", "0", *words[:6])
    assert (
        inside("predict", *greedy, "--draw", 1).out == inside("predict", *greedy, "--draw", 2).out
    )


def test_generate_uses_the_settings_of_the_row_that_is_named(folder, trained):
    """Rows that differ in decoding share the run, whose id stands for the one that began it."""
    (folder / "cold.yaml").write_text(
        STUDY + "  cold: {set: {temperature: 0.0, generated_tokens: 7}}\n"
    )
    words = ("--results", trained, "--text", "abc")
    cold = inside("predict", folder / "cold.yaml", "cold*", *words)
    assert cold.code == 0
    given = ("--temperature", "0", "--tokens", "7")
    assert cold.out == inside("predict", folder / "lm.yaml", "base", *words, *given).out
    assert cold.out != inside("predict", folder / "lm.yaml", "base", *words).out


def test_generate_averages_as_the_row_does_or_says_that_it_cannot(folder, trained):
    (folder / "mean.yaml").write_text(STUDY + "  mean: {set: {average_checkpoints: 2}}\n")
    done = inside("predict", folder / "mean.yaml", "mean*", "--results", trained)
    assert (done.code, done.out) == (2, "")
    assert "has 1 checkpoint, and average_checkpoints=2 needs more" in done.err


def test_generate_refuses_rows_and_runs_that_it_cannot_use(folder, trained):
    done = inside("predict", folder / "lm.yaml", "bas", "--results", trained)
    assert done.code == 2
    assert "bas" in done.err
    done = inside("predict", folder / "lm.yaml", "base", "--results", folder / "nothing")
    assert done.code == 2
    assert done.err.count("\n") == 1


def test_options_of_other_tasks_are_refused(folder, trained):
    id, _ = of_row(folder, "base")
    done = inside("predict", id, "--beam", "2", "--top", "3", "--results", trained)
    assert (done.code, done.err) == (
        2,
        "--beam, --top have no effect with the task language-model, which takes --tokens, "
        "--count, --temperature, --top-k or --draw\n",
    )


def test_the_former_command_works_and_names_the_new_one(folder, trained):
    words = (folder / "lm.yaml", "base", "--tokens", "9", "--results", trained)
    done = inside("predict", *words, "--text", "abc")
    former = inside("generate", *words, "--prompt=abc")
    assert (former.code, former.out) == (0, done.out)
    assert former.err == f"note: `ablate generate` is now `ablate predict`\n{done.err}"
    assert inside("generate", *words, "--prompt", "abc").out == done.out


def test_attention_and_importance(folder, trained):
    id, _ = of_row(folder, "base")
    done = inside("attention", id, "--results", trained, "--sentence", "abab", "--format", "json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert (shown["source"], shown["target"]) == ([], ["<s>", "a", "b", "a", "b"])
    done = inside("attention", id, "--results", trained, "--format", "json")
    assert done.code == 0, done.err
    done = inside(
        "attention", id, "--results", trained, "--importance", "--pairs", "4", "--format", "json"
    )
    assert done.code == 0, done.err
    assert len(json.loads(done.out)["heads"]) == 2
    done = inside("attention", id, "--results", trained, "--translation", "x", "--format", "json")
    assert (done.code, done.err) == (
        2,
        "--translation: a language model reads one text; give it as --sentence\n",
    )


def test_attention_shows_as_many_tokens_as_the_model_has_positions(folder, trained):
    """The default is the beginning of the test split, which may be longer; the first position is
    that of the mark.
    """
    id, row = of_row(folder, "base")
    run = load_run(Results(trained).run(id), Results(trained), row=row)
    config = run.config.model_copy(update={"max_positions": 10})
    run, layers = replace(run, row=replace(row, config=config)), attention_layers(run.model)
    assert len(attention_weights(run, None, None, layers).target) == 10
    assert len(attention_weights(run, "abcdefabc", None, layers).target) == 10
    with pytest.raises(
        DataError, match="--sentence: has 10 tokens, too many for max_positions=10 of the run"
    ):
        attention_weights(run, "abcdefabcd", None, layers)


@pytest.mark.parametrize(
    ("label", "cls"),
    [
        ("base", "LlamaForCausalLM"),
        (GPT, "GPT2LMHeadModel"),
    ],
)
def test_export_gives_the_same_greedy_text(folder, trained, tmp_path, label, cls):
    os.environ["HF_HUB_OFFLINE"] = "1"
    transformers = pytest.importorskip("transformers")
    id, _ = of_row(folder, label)
    done = inside("export", id, tmp_path / "model", "--to", "huggingface", "--results", trained)
    assert (done.code, cls in done.out) == (0, True), done.err
    there, tokenizer = (
        getattr(transformers, name).from_pretrained(tmp_path / "model")
        for name in (cls, "PreTrainedTokenizerFast")
    )
    prompt = tokenizer("abcd", return_tensors="pt", add_special_tokens=False).input_ids
    prompt = torch.cat([torch.tensor([[tokenizer.bos_token_id]]), prompt], dim=1)
    text = tokenizer.decode(there.generate(prompt, max_new_tokens=11, do_sample=False)[0, 1:])
    words = ("--text", "abcd", "--tokens", "11", "--temperature", "0", "--results", trained)
    assert inside("predict", id, *words).out == f"{text}\n"


def test_what_cannot_be_exported_is_refused(folder, trained, tmp_path):
    id, _ = of_row(folder, "lstm mixer=lstm positional_encoding=none")
    done = inside("export", id, tmp_path / "model", "--to", "huggingface", "--results", trained)
    assert done.code == 2
    assert "it has mixer=lstm, but" in done.err
    done = inside("export", id, tmp_path / "model", "--to", "ctranslate2", "--results", trained)
    assert (
        "has the task language-model; only translation is supported by --to ctranslate2" in done.err
    )


def test_resuming_gives_the_same_bytes(folder, trained):
    done = inside(
        "verify", folder / "lm.yaml", "--results", trained, "--device", "cpu", "--rows", "lstm"
    )
    assert done.code == 0, done.out + done.err
    assert "identical" in done.out


@pytest.mark.parametrize(
    ("base", "line"),
    [
        ("{beam: 4}", "s:4:14: beam: 4 has no effect with task language-model; remove it"),
        (
            "{architecture: encoder-decoder}",
            "architecture=encoder-decoder does not work with task language-model",
        ),
        ("{context: 2048}", "context=2048 is longer than max_positions=1024"),
        ("{eval_context: 2048}", "eval_context=2048 is longer than max_positions=1024"),
        ("{context: 64, stride: 65}", "stride=65 leaves out tokens: it must be at most context=64"),
        (
            "{context: 64, eval_stride: 65}",
            "eval_stride=65 leaves out tokens: it must be at most eval_context=64",
        ),
        ("{context: 64, batch_tokens: 63}", "context=64 does not fit in batch_tokens=63"),
        (
            "{context: 64, batch_tokens: 255, batch_growth: 4}",
            "s:4:54: row .*batch_growth=4 begins with batches of 63 of 255 tokens.*use at most 2",
        ),
        ("{vocab_size: 500}", "vocab_size=500 has no effect with data.tokenizer=bytes"),
    ],
)
def test_fields_that_do_not_go_together_are_found_when_the_study_is_read(tmp_path, base, line):
    path = tmp_path / "s"
    path.write_text(f"{HEAD}base: {base}\n")
    with pytest.raises(StudyError, match=line):
        read_study(path)


def test_contexts_may_be_as_long_as_positions_and_batches_allow(tmp_path):
    base = ", ".join(
        f"{name}: 64"
        for name in ("context", "eval_context", "max_positions", "stride", "eval_stride")
    )
    (tmp_path / "s").write_text(f"{HEAD}base: {{{base}, batch_tokens: 64}}\n")
    assert read_study(tmp_path / "s").base.config.batch_tokens == 64


@pytest.mark.parametrize("field", ["context", "eval_context", "temperature"])
def test_translation_refuses_the_fields_of_language_models(tmp_path, field):
    path = tmp_path / "s"
    path.write_text(f"study: s\ndata: {{corpus: toy}}\nrows: {{A: {{each: {{{field}: [16]}}}}}}\n")
    with pytest.raises(
        StudyError, match=rf":3:.*: {field}: 16.* has no effect with task translation; remove it"
    ):
        read_study(path)


def test_a_share_for_testing_is_part_of_a_run_s_id_and_a_file_is_not(folder):
    def ids(*overrides):
        return {run.id for run in read_study(folder / "lm.yaml", Selection(overrides)).runs()}

    assert ids().isdisjoint(ids("data.test=6%"))
    assert ids("data.test=other.txt") == ids("data.test=dev")


def test_the_task_s_defaults_are_a_language_model_s(tmp_path):
    path = tmp_path / "s"
    path.write_text(HEAD)
    config = read_study(path).base.config
    assert (config.architecture, config.label_smoothing, config.context) == (
        "decoder-only",
        0.0,
        256,
    )


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

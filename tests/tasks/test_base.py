"""What tasks have in common: class attributes, checks of a row, and the parts that a subclass takes
over.
"""

import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from ablate import tasks as module
from ablate.config.language_data import LanguageData
from ablate.config.resolve import resolve_row
from ablate.config.row import TASK_FIELDS
from ablate.config.translation_data import TranslationData
from ablate.custom.source import source_hash
from ablate.errors import StoreError
from ablate.tasks import (
    PPL,
    TASKS,
    CorpusConfig,
    DataConfig,
    LanguageModel,
    Score,
    Task,
    Translation,
    meaning_of,
)
from ablate.tasks.base import Sample
from tests.data.small import split_of_fields
from tests.tasks.classification import Classification, LabeledText

CPU = torch.device("cpu")
SPLIT = split_of_fields(text=[[5, 6], [7] * 9, [8]], label=[[10, 11], [12] * 7, []])
TEXTS = {("test", "text"): ["a", "b", "c"], ("test", "label"): ["x", "y", "z"]}


@pytest.fixture
def corpus():
    """Three items in every split."""
    tokenizer = SimpleNamespace(vocab_size=20)
    return SimpleNamespace(
        split=lambda name: SPLIT,
        text=lambda *names: TEXTS[names],
        tokenizer_of=lambda field: (field, tokenizer),
    )


class Plain(Classification):
    """A task whose perplexity is known, with none of the methods that predict."""

    predict, samples = Task.predict, Task.samples
    measure, measure_items, resolve_data = Task.measure, Task.measure_items, Task.resolve_data

    def nats_per_token(self, model, split, device):
        assert (split, device) == (SPLIT, CPU)
        return 2.0


def test_tasks_are_known_by_their_names_and_their_class_attributes_are_whole(tmp_path):
    assert list(TASKS) == ["translation", "language-model", "masked-lm", "parsing", "synthetic"]
    for name, task in TASKS.items():
        assert (module.task_of(name, tmp_path), task.name) == (task, name)
        assert not task.class_fault()
    with pytest.raises(
        StoreError, match=r'^task "translate" is not known to this version of ablate: .*translation'
    ):
        module.task_of("translate", tmp_path)


def test_a_task_of_a_class_is_read_from_the_sources_of_its_run(tmp_path):
    source = (Path(__file__).parent / "classification.py").read_bytes()
    digest = source_hash(source)
    name = f"classification:Classification@{digest}"
    with pytest.raises(StoreError, match=digest):
        module.task_of(name, tmp_path)
    (tmp_path / f"{digest}.py").write_bytes(source)
    assert module.task_of(name, tmp_path).name == "classification"
    (tmp_path / f"{digest}.py").write_bytes(source + b"\n")
    with pytest.raises(StoreError, match=digest):
        module.task_of(name, tmp_path)


@pytest.mark.parametrize(
    ("attributes", "fault"),
    [
        ({}, ""),
        ({"name": 3}, "name is not a str"),
        ({"name": None, "model_metrics": ()}, "name is not a str"),
        ({"architectures": ["decoder-only"]}, "architectures is not a tuple"),
        ({"model_metrics": [PPL]}, "model_metrics is not a tuple"),
        ({"default_metrics": "accuracy"}, "default_metrics is not a tuple"),
        ({"data_config": None}, "data_config is not a subclass of ablate.tasks.DataConfig"),
        ({"data_config": LabeledText.model_construct()}, "data_config is not a subclass of ablate.tasks.DataConfig"),
        ({"data_config": dict}, "data_config is not a subclass of ablate.tasks.DataConfig"),
        ({"data_config": CorpusConfig}, "data_config is not a subclass of ablate.tasks.DataConfig"),
        ({"data_config": type("One", (DataConfig,), {"fields": ("text",)})},
         "data_config has one text field; a SequenceToSequence task needs two, one to read and one to predict"),
        ({"data_config": type("One", (DataConfig,), {"fields": ("text")})},
         'fields of One is not a tuple; write ("text",)'),
        ({"model_metrics": ()}, "model_metrics does not have PPL, which early stopping and learning curves use"),
        ({"settings": ()}, ""),
        ({"reach": lambda self, data: {}}, "reach has another name in version 0.2; rename it to longest_sequences"),
        ({"settings": ["beam"]}, "settings is not a tuple"),
        ({"settings": ("beam",)}, "settings must contain only classes such as "),
        ({"default_metrics": ()}, "default_metrics is empty; verdicts use its first metric"),
        ({"architectures": ("decoder-only", "encoder_decoder")},
         'architectures has unknown architecture "encoder_decoder"; did you mean "encoder-decoder"?'),
        ({"default_metrics": ("ppl", "bleu", "ter")}, "default_metrics has bleu, which is not a metric of the task: "),
    ],
)  # fmt: skip
def test_class_attributes_of_a_user_s_task_are_checked(attributes, fault):
    found = type("Mine", (Classification,), attributes)().class_fault()
    assert bool(found) == bool(fault)
    assert found.startswith(fault)


def test_fields_of_other_tasks_have_no_effect():
    unused = Classification().unused_fields
    assert set(unused) == set(TASK_FIELDS) - {
        "beam", "alpha", "length_penalty", "max_extra_length", "early_stopping",
    }  # fmt: skip
    assert set(unused.values()) == {"task classification"}
    without_search = type("Mine", (Classification,), {"settings": ()})
    assert set(without_search().unused_fields) == set(TASK_FIELDS)
    assert {"ppl", "accuracy"} == set(Classification().metrics)
    assert Classification().metrics["ppl"] is PPL
    assert Classification().prediction_metric_names == {"accuracy"}


@pytest.mark.parametrize(
    ("settings", "faults"),
    [
        ({}, []),
        ({"batch_tokens": 33}, []),
        ({"batch_tokens": 32}, ["a sequence of data.max_length=32 and its end does not fit in batch_tokens=32; "
          "set data.max_length to 31 or less, or batch_tokens to 33 or more"]),
        ({"batch_tokens": 66, "batch_growth": 2}, []),
        ({"batch_tokens": 65, "batch_growth": 2},
         ["batch_growth=2 begins with batches of 32 of 65 tokens, too few for a sequence of data.max_length=32 "
          "and its end; use at most 1"]),
        ({"architecture": "decoder-only", "max_positions": 66},
         ["architecture=decoder-only does not work with task classification; use encoder-decoder"]),
        ({"max_positions": 33}, []),
        ({"max_positions": 32},
         ["data.max_length=32 needs 33 positions with begin and end tokens, more than max_positions=32"]),
    ],
)  # fmt: skip
def test_a_row_is_checked_against_the_data(settings, faults):
    data = TranslationData.resolve({"corpus": "toy"}).model_copy(update={"max_length": 32})
    found = list(map(str, Classification().check(data, resolve_row(settings))))
    assert found == faults


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"context": 64, "max_positions": 64}, None),
        ({"context": 65, "max_positions": 64}, "context=65 is longer than max_positions=64; increase max_positions"),
        ({"context": 32, "max_positions": 64, "eval_context": 64}, None),
        ({"context": 32, "max_positions": 64, "eval_context": 65}, "eval_context=65 is longer than max_positions=64"),
        ({"context": 64, "batch_tokens": 64}, None),
        ({"context": 65, "batch_tokens": 64}, "context=65 does not fit in batch_tokens=64; set batch_tokens to 65 or more"),
        ({"context": 32, "batch_tokens": 256, "batch_growth": 8}, None),
        (
            {"context": 32, "batch_tokens": 256, "batch_growth": 16},
            "batch_growth=16 begins with batches of 16 of 256 tokens, too few for context=32; use at "
            "most 8",
        ),
        ({"context": 64, "stride": 64}, None),
        ({"context": 64, "stride": 65}, "stride=65 leaves out tokens: it must be at most context=64"),
        ({"context": 64, "eval_stride": 64}, None),
        ({"context": 64, "eval_stride": 65}, "eval_stride=65 leaves out tokens: it must be at most eval_context=64"),
        ({"context": None}, "context must be given: the number of tokens in a training context"),
        ({"context": 64, "vocab_size": 260}, None),
        (
            {"context": 64, "vocab_size": 300},
            "vocab_size=300 has no effect with data.tokenizer=bytes; remove it, or set "
            "data.tokenizer to bpe or unigram",
        ),
    ],
)  # fmt: skip
def test_a_row_of_a_language_model_is_checked_against_its_contexts(settings, fault):
    data = LanguageData.resolve({"corpus": "toy", "tokenizer": "bytes"})
    row = resolve_row({"architecture": "decoder-only"}).model_copy(
        update={"max_positions": 1024, **settings}
    )
    found = list(map(str, LanguageModel().check(data, row)))
    assert len(found) == (fault is not None)
    assert all(line.startswith(fault) for line in found)


def test_perplexities_are_described_with_a_dev_split_of_another_name_and_the_vocabularies():
    data, task = TranslationData.resolve({"corpus": "toy"}), Translation()
    ppl, ppl_char = task.model_metrics
    end = "vocab_size=80, 90, plain negative log-likelihood"
    assert task.describe(ppl, data, [80, 90]) == f"per subword token, {end}"
    renamed = data.model_copy(update={"dev": "val"})
    assert task.describe(ppl, renamed, [80, 90]) == f"per subword token, dev=val, {end}"
    assert task.describe(ppl_char, data, [80, 90]) == f"per character, {end}"
    assert task.describe(task.prediction_metrics[0], data, [80]) is None


def test_a_task_that_predicts_nothing_has_perplexity_alone(corpus):
    task = Plain()
    config = resolve_row({})
    assert task.evaluate(None, corpus, config, CPU) == {"ppl": Score(value=math.exp(2.0))}
    assert (task.predict(None, corpus, config, CPU), task.generate(None, corpus, config, CPU)) == (
        None,
        (),
    )
    assert (task.n_predictions(corpus), list(task.samples(corpus, [0]))) == (3, [])
    assert task.items(corpus, "train", config) is task.at_step(SPLIT, 1, 2) is SPLIT
    for call in (task.measure, task.measure_items):
        with pytest.raises(NotImplementedError, match=r"^Plain has no metric accuracy$"):
            call("accuracy", [], corpus)
    settings = {"corpus": "files", "train": "a", "dev": "b", "test": "c"}
    assert isinstance(task.resolve_data(settings), LabeledText)


def test_a_pair_of_texts_is_read_and_predicted_in_the_order_of_the_data(corpus, monkeypatch):
    task, calls = Classification(), []
    assert (task.source, task.target) == ("text", "label")
    assert [task.n_targets(SPLIT, items) for items in ([0], [1], [2], [0, 2])] == [3, 8, 1, 4]
    batch = task.collate(SPLIT, [0, 2])
    assert (batch.source.shape[0], batch.tokens, 11 in batch.target_out) == (2, 4, True)
    assert list(task.samples(corpus, [2, 0])) == [
        Sample(3, (("text", "c"), ("reference", "z"))),
        Sample(1, (("text", "a"), ("reference", "x"))),
    ]
    assert (task.as_read(" a b\n"), task.readable("p", "t"), task.constrain(corpus, None)) == (
        "a b",
        "p",
        None,
    )

    def noted(*given):
        calls.append(given)
        return ["x"]

    monkeypatch.setattr("ablate.decoding.translate", noted)
    config, after = resolve_row({}), lambda: None
    assert task.predict("model", corpus, config, CPU, after) == ["x"]
    ((model, (field, _), sources, *rest),) = calls
    assert (model, field, rest) == ("model", "label", [config, CPU, after, None])
    assert [list(source) for source in sources] == [SPLIT["text"][i].tolist() for i in range(3)]


def test_the_meaning_of_a_field_names_the_tasks_that_use_it_if_translation_does_not():
    assert meaning_of("beam").startswith("beam size")
    assert meaning_of("context").startswith("language-model, masked-lm: ")
    assert meaning_of("constrained").startswith("parsing: ")

"""Resolving settings: presets, symbols, derived fields, bounds."""

import copy
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from ablate.config import DataConfig
from ablate.config.language_data import LanguageData
from ablate.config.parsing_data import ParsingData
from ablate.config.resolve import field_names, resolve_row, standard_name
from ablate.config.translation_data import TranslationData
from ablate.fields import field_faults

# Table 3 of the paper: the rows "base" and "big", all columns that are settings.
PAPER = {
    "base": {
        "n_layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8, "d_k": 64, "d_v": 64,
        "dropout": 0.1, "label_smoothing": 0.1, "positional_encoding": "sinusoidal",
    },
    "big": {
        "n_layers": 6, "d_model": 1024, "d_ff": 4096, "n_heads": 16, "d_k": 64, "d_v": 64,
        "dropout": 0.3, "label_smoothing": 0.1, "positional_encoding": "sinusoidal",
    },
}  # fmt: skip


def faults(settings):
    with pytest.raises(ValidationError) as caught:
        resolve_row(settings)
    found = field_faults(caught.value)
    return [(fault.subject, replace(fault, subject="").sentence) for fault in found]


def size(config):
    return {name: getattr(config, name) for name in PAPER["base"]}


# --- presets -------------------------------------------------------------------------------------


@pytest.mark.parametrize("preset", PAPER)
def test_a_preset_equals_the_papers_row(preset):
    assert size(resolve_row({"preset": preset})) == PAPER[preset]


def test_empty_settings_are_the_papers_base_with_the_training_of_section_5():
    config = resolve_row({})
    assert config == resolve_row({"preset": "base"})
    assert (config.train_steps, config.warmup_steps, config.batch_tokens) == (100_000, 4000, 25_000)
    assert (config.beam, config.alpha, config.max_extra_length) == (4, 0.6, 50)


def test_settings_after_a_preset_override_it():
    assert resolve_row({"preset": "big", "dropout": 0.2}).dropout == 0.2


def test_a_preset_overrides_settings_before_it_and_derives_d_k_again():
    before = {"n_layers": 2, "d_k": 16, "d_v": 7, "dropout": 0.5, "train_steps": 300}
    config = resolve_row({**before, "preset": "big"})
    assert size(config) == PAPER["big"]
    assert config.train_steps == 300  # no preset sets it


# --- symbols -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("N", "n_layers"), ("h", "n_heads"), ("P_drop", "dropout"), ("eps_ls", "label_smoothing"),
        ("d_k", "d_k"), ("dropout", "dropout"), ("beam", "beam"),
        ("n", None), ("H", None), ("preset", None), ("corpus", None), ("", None),
    ],
)  # fmt: skip
def test_symbols_and_names_set_the_same_field(written, name):
    assert standard_name(written) == name


def test_every_field_is_its_own_canonical_name():
    assert [standard_name(name) for name in field_names()] == list(field_names())


# --- head sizes ----------------------------------------------------------------------------------


@given(h=st.integers(1, 64), head=st.integers(1, 64).map(lambda half: 2 * half))
def test_unset_head_sizes_are_d_model_over_h(h, head):
    config = resolve_row({"n_heads": h, "d_model": h * head})
    assert config.d_k == config.d_v == head


def test_setting_d_k_does_not_change_d_v_and_vice_versa():
    assert size(resolve_row({"d_k": 16})) == {**PAPER["base"], "d_k": 16}  # rows B
    assert size(resolve_row({"d_v": 16})) == {**PAPER["base"], "d_v": 16}


@pytest.mark.parametrize(
    ("given_sizes", "missing"), [({}, "d_k"), ({"d_k": 64}, "d_v"), ({"d_v": 64}, "d_k")]
)
def test_heads_that_do_not_divide_d_model_are_an_error_naming_the_unset_size(given_sizes, missing):
    with pytest.raises(
        ValueError,
        match=f"^h=6 does not divide d_model=512; set {missing}, or change h or d_model$",
    ):
        resolve_row({"n_heads": 6, **given_sizes})


def test_heads_need_not_divide_d_model_if_both_sizes_are_set():
    assert resolve_row({"n_heads": 6, "d_k": 64, "d_v": 64}).n_heads == 6


# --- the end of training -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "steps"),
    [
        ({}, 100_000),
        ({"epochs": 10}, None),
        ({"epochs": None}, 100_000),
        ({"epochs": 10, "train_steps": 300}, 300),
        ({"train_steps": 300, "epochs": 10}, 300),
        ({"patience": 5}, 100_000),
        ({"patience": 5, "train_steps": None}, None),
    ],
)
def test_epochs_replace_only_the_default_number_of_steps(written, steps):
    assert resolve_row(written).train_steps == steps


# --- types and bounds ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_layers", 0), ("n_layers", -1), ("n_layers", 257), ("n_layers", True), ("n_layers", "6"), ("n_layers", 6.0),
        ("n_layers", None), ("n_heads", 0), ("n_heads", "8"), ("d_model", 0), ("d_model", 10**18), ("d_model", "x"),
        ("d_k", 0), ("d_v", -64), ("d_ff", 0.5), ("max_positions", 7), ("dropout", 1), ("dropout", -0.1),
        ("dropout", "0.1"), ("dropout", False), ("dropout", float("nan")), ("label_smoothing", 1.0),
        ("label_smoothing", float("inf")), ("positional_encoding", "rotary"), ("positional_encoding", None),
        ("train_steps", 0), ("epochs", 0), ("patience", 0), ("batch_tokens", 0), ("warmup_steps", 0),
        ("precision", "fp16"), ("beam", 0), ("beam", 1025), ("alpha", -0.1), ("alpha", float("-inf")),
        ("max_extra_length", -1), ("average_checkpoints", 0), ("eval_every", 0), ("checkpoint_every", 0),
        ("checkpoint_minutes", 0), ("micro_batch_tokens", 0), ("train_fraction", 0), ("train_fraction", 1.5),
        ("drop_out", 0.1), ("architecture", "encoder"), ("encoder_layers", 0), ("decoder_layers", 257), ("n_kv_heads", 0),
        ("n_cross_heads", 0), ("attention_dropout", 1.0), ("activation_dropout", -0.1), ("relative_clip", 0),
        ("mixer", "rnn"), ("attention", "flash"), ("attention", "module:"), ("attention", "a b:C"),
        ("attention_window", 0), ("attention_scale", 2), ("attention_scale", "1"), ("attention_scale", True),
        ("attention_bias", 1), ("attention_bias", "false"), ("activation", "ReLU"), ("norm", "batchnorm"),
        ("norm_position", "both"), ("residual", 0), ("tied_embeddings", True), ("schedule", "noam"),
        ("learning_rate", 0.0), ("optimizer", "lyon"), ("adam_beta1", 1.0), ("adam_beta2", -0.1), ("adam_eps", 0.0),
        ("weight_decay", -0.1), ("gradient_clipping", 0.0), ("layer_skips", "module:Class"), ("sublayers", "module:Class"),
    ],
)  # fmt: skip
def test_a_value_of_wrong_type_or_range_is_one_error_of_its_field(name, value):
    assert [field for field, _ in faults({name: value})] == [name]


def test_an_error_has_the_given_and_the_allowed_value():
    assert faults({"dropout": 1.5, "positional_encoding": "rotary"}) == [
        ("dropout", "1.5 is not allowed: must be less than 1"),
        (
            "positional_encoding",
            '"rotary" is not allowed: must be sinusoidal, learned, none, rope, relative, t5 or '
            "alibi, or a class of "
            'your own as module:Class; did you mean "rope"?',
        ),
    ]


def test_an_integer_is_accepted_for_a_float_and_is_the_same_setting():
    assert repr(resolve_row({"dropout": 0})) == repr(resolve_row({"dropout": 0.0}))


def test_a_configuration_cannot_be_changed_afterwards():
    with pytest.raises(ValidationError):
        resolve_row({}).dropout = 0.5


# --- data ----------------------------------------------------------------------------------------

FILES = {"corpus": "files", "direction": "cs-pt_BR", "train": "a", "dev": "b", "test": "c"}


@pytest.mark.parametrize(
    ("corpus", "direction", "splits"),
    [
        ("toy", "en-toy", ("train", "dev", "test")),
        ("multi30k", "en-de", ("train", "val", "test_2016_flickr")),
        ("wmt14", "en-de", ("train", "newstest2013", "newstest2014")),
    ],
)
def test_a_named_corpus_sets_its_splits_and_direction(corpus, direction, splits):
    data = TranslationData.resolve({"corpus": corpus})
    assert (data.direction, (data.train, data.dev, data.test)) == (direction, splits)
    assert data.vocab_size == (350 if corpus == "toy" else 37_000)


def test_written_settings_override_those_of_the_corpus():
    data = TranslationData.resolve({"corpus": "wmt14", "direction": "fr-en", "dev": "newstest2012"})
    assert (data.labels, data.dev, data.test) == (("fr", "en"), "newstest2012", "newstest2014")


def test_corpus_files_requires_splits_and_a_direction():
    assert TranslationData.resolve(FILES).labels == ("cs", "pt_BR")
    with pytest.raises(ValidationError) as caught:
        TranslationData.resolve({"corpus": "files"})
    assert [fault.sentence for fault in field_faults(caught.value)] == [
        f"{name}: must be given" for name in ("train", "dev", "test", "direction")
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "data needs a corpus: toy, multi30k, iwslt2017, wmt14, files or hf:OWNER/NAME"),
        ({"corpus": "mutli30k"}, 'unknown corpus "mutli30k"; did you mean "multi30k"?'),
        (
            {"corpus": "hf:multi30k", "direction": "en-de"},
            'corpus "hf:multi30k" is not of the form hf:OWNER/NAME or hf:OWNER/NAME@REVISION',
        ),
        ({"corpus": "hf:a/b", "direction": "en-de", "folder": "x"}, '"folder" has no effect on hf:a/b'),
        ({"corpus": "multi30k", "source_column": 1}, "source_column and target_column go together"),
        ({"corpus": "multi30k", "source_column": 1, "target_column": "de"}, "both names, or both numbers from 1"),
        ({"corpus": "multi30k", "source_column": 2, "target_column": 2}, "are the same column"),
        ({"corpus": "multi30k", "source_column": 0, "target_column": 1}, "columns are counted from 1"),
        ({"corpus": 14}, 'unknown corpus "14"; allowed: toy, multi30k'),
        ({"corpus": "multi30k", "direction": "en-fr"}, 'corpus "multi30k" has no direction "en-fr": en-de or de-en'),
        ({"corpus": "toy", "folder": "/data"}, '"folder" has no effect on the toy corpus'),
        ({"corpus": "toy", "train": "train"}, '"train" has no effect on the toy corpus'),
    ],
)  # fmt: skip
def test_an_unknown_corpus_is_an_error_with_the_known_ones(settings, message):
    with pytest.raises(ValueError) as caught:
        TranslationData.resolve(settings)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("direction", "labels"),
    [
        ("en-de", ("en", "de")),
        ("en-pt-BR", ("en", "pt-BR")),
        ("pt-BR-en", ("pt-BR", "en")),
        ("pt-BR-pt-PT", ("pt-BR", "pt-PT")),
        ("zh-Hans-CN-sr-Latn", ("zh-Hans-CN", "sr-Latn")),
        ("es-419-en", ("es-419", "en")),
        ("en_US-de_DE", ("en_US", "de_DE")),
        ("EN-DE", ("EN", "DE")),
        ("src-tgt", ("src", "tgt")),
    ],
)
def test_a_language_may_have_a_script_and_a_country(direction, labels):
    assert TranslationData.resolve({**FILES, "direction": direction}).labels == labels


@pytest.mark.parametrize(
    "direction",
    ["en", "en-", "-de", "en-de-fr", "en_de", "../en-de", "en de-fr", "e" * 9 + "-de", "en-pt-br"],
)
def test_a_direction_is_two_languages(direction):
    with pytest.raises(ValueError, match="direction"):
        TranslationData.resolve({**FILES, "direction": direction})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("vocab_size", 7), ("vocab_size", 1_000_001), ("vocab_size", "37000"), ("max_length", 0),
        ("max_length", 60_001), ("train", ""), ("dev", 3), ("test", None), ("folder", 3),
    ],
)  # fmt: skip
def test_a_data_value_out_of_type_or_range_is_one_fault_of_its_field(name, value):
    with pytest.raises(ValidationError) as caught:
        TranslationData.resolve({**FILES, name: value})
    assert [fault.fields for fault in field_faults(caught.value)] == [(name,)]


@pytest.mark.parametrize("config", [TranslationData, LanguageData, ParsingData])
def test_the_name_of_a_corpus_stands_for_its_settings(config):
    for name, named in config.catalogue.items():
        data = config.resolve({"corpus": name})
        assert (data.train, data.dev, data.test) == named.splits
        assert data.generated == (name == "toy")
        assert (data.hub is None) == (named.hub is None)
        if named.hub:
            assert data.hub.repository == named.hub.repository
            assert config.resolve({"corpus": name, "folder": "here"}).hub is None


def test_settings_of_a_class_without_a_catalogue_name_files():
    assert DataConfig.catalogue == {}
    splits = {"train": "a", "dev": "b", "test": "c"}
    assert DataConfig.resolve({"corpus": "anything", **splits}).hub is None
    assert DataConfig.resolve({"corpus": "hf:owner/name@main"}).dev == "validation"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("h", 'the configuration has no "h"; did you mean "n_heads"?'),
        ("N", 'the configuration has no "N"; did you mean "n_layers"?'),
        ("dropuot", 'the configuration has no "dropuot"; did you mean "dropout"?'),
        ("xyzzy", 'the configuration has no "xyzzy"'),
    ],
)
def test_a_class_that_reads_a_letter_of_the_paper_is_told_the_field(name, message):
    config = resolve_row({})
    with pytest.raises(AttributeError) as refused:
        getattr(config, name)
    assert str(refused.value) == message
    assert not hasattr(config, name)
    assert pickle.loads(pickle.dumps(config)) == copy.deepcopy(config) == config

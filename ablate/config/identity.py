"""Ids of runs and decodings: hashes of the settings that they depend on.

A field at its introduced default, the default with which it was added, is left out of the hash. So
neither a field that is added later nor a changed default changes the ids of old runs. A field whose
default has changed declares the introduced one (`Facts.introduced`). A mended fault changes the ids
only of the runs that had the fault (`MENDS`). Never edit an entry of INTRODUCED_DATA or MENDS.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from ablate.config.data import BLEU_TOKENIZER, CorpusConfig
from ablate.config.decoding import DecodingConfig
from ablate.config.language_data import MINIMAL_PAIRS
from ablate.config.optimizers import OPTIMIZERS
from ablate.config.row import RowConfig
from ablate.fields import UNSET, Section, entries_of, facts_of
from ablate.formatting import setting_text
from ablate.parts.mixers import MIXERS

FORMAT = 2
ID_LENGTH = 12

Data = TypeVar("Data", bound=CorpusConfig)


def named_settings(
    values: Mapping[str, Any], introduced: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The settings that an id or a record names: all settings that are not at their introduced
    default.

    Args:
        values: values by setting.
        introduced: introduced defaults; a setting without one is always named. By default, the
            introduced defaults of the data settings.
    """
    if introduced is None:
        introduced = INTRODUCED_DATA
    return {
        name: value for name, value in values.items() if value != introduced.get(name, REQUIRED)
    }


def _introduced(section: type[Section]) -> dict[str, Any]:
    """Introduced defaults of the fields of a section that are part of an id."""
    introduced = {}
    for name, facts in facts_of(section).items():
        field = section.model_fields[name]
        if not facts.in_id:
            continue
        if facts.introduced is not UNSET:
            introduced[name] = facts.introduced
        elif field.is_required():
            introduced[name] = REQUIRED
        else:
            introduced[name] = field.default
    return introduced


REQUIRED: Any = object()  # in the place of the default of a required field: always in the hash
INTRODUCED_DECODING = _introduced(DecodingConfig)
INTRODUCED = {
    name: default
    for name, default in _introduced(RowConfig).items()
    if name not in INTRODUCED_DECODING
}
# Data settings added later: manifests and ids of corpora leave them out at this default.
LATER_DATA: dict[str, Any] = {
    "character_coverage": 1.0,
    "max_train_length": None,
    BLEU_TOKENIZER: None,
}
INTRODUCED_DATA: dict[str, Any] = {
    "corpus": REQUIRED,
    "direction": REQUIRED,
    "vocab_size": 37_000,
    "train": REQUIRED,
    "dev": REQUIRED,
    "test": REQUIRED,
    "max_length": 256,
    "max_ratio": None,
    "drop_identical": False,
    "drop_duplicates": False,
    "tokenizer": "bpe",
    "vocabulary": "joint",
    "byte_fallback": False,
    "tokenizer_pairs": 250_000,
    "source_column": None,
    "target_column": None,
    **LATER_DATA,
}
DEFAULT_TASK = "translation"  # the only one when the first ids were made
# The test split belongs to a decoding, not to the training; and so do minimal pairs, and the
# tokenizer of scores.
DECODED_SPLIT = "test"


def _treats_vectors_apart(c: RowConfig) -> bool:
    """Whether the optimizer treats gains and biases in another way than matrices."""
    has_other_decay = c.weight_decay > 0 and c.vector_decay != 1
    is_built_in = c.optimizer in OPTIMIZERS  # else it may treat matrices in any way
    has_matrices = not is_built_in or OPTIMIZERS[c.optimizer].only_matrices
    return has_other_decay or has_matrices or c.vector_rate != 1 or c.parametrization != "standard"


def _has_convolutions(c: RowConfig) -> bool:
    return any(name != "none" for name in entries_of(c.attention_convolution))


def _has_value_embeddings(c: RowConfig) -> bool:
    return any(name != "none" for name in entries_of(c.value_embeddings))


# Mended fault -> whether a run had it, so that the same run computes something else today.
MENDS: dict[str, Callable[[RowConfig], bool]] = {
    # Only the last pass of a layer was in the loss.
    "balance of experts in each loop": lambda c: c.loops > 1 and c.has_balanced_experts,
    "biases with two axes": lambda c: "rg_lru" in entries_of(c.mixer) and _treats_vectors_apart(c),
    "matrices with one axis": lambda c: c.smear and _treats_vectors_apart(c),
    "own values of differential heads": lambda c: (
        "differential" in entries_of(c.attention)
        and any(
            layer.exclude_own_value and layer.attention == "differential" and layer.n_heads > 2
            for layer in c.all_layers
        )
    ),
    "kernels in muP": lambda c: c.parametrization != "standard" and _has_convolutions(c),
    "tables without a scale in muP": lambda c: (
        c.parametrization != "standard"
        and c.embedding_scale != 1
        and (c.bigram_embeddings is not None or _has_value_embeddings(c))
    ),
    # The whole loss was compared with a bound for cross-entropy; smaller terms did not reach it.
    "divergence by cross-entropy": lambda c: c.z_loss > 0.01 or c.largest_balance > 4,
}

# Fields that change how a run is executed or where its files are, but not its result.
NOT_IDENTITY = frozenset(name for name, facts in facts_of(RowConfig).items() if not facts.in_id)
NOT_IDENTITY_DATA = frozenset({"folder"})
_NOT_TRAINING = {*NOT_IDENTITY_DATA, MINIMAL_PAIRS, BLEU_TOKENIZER}


def run_id(data: CorpusConfig, config: RowConfig, seed: int, task: str = DEFAULT_TASK) -> str:
    """Id of a run, 12 hexadecimal digits. Decoding fields and the test split do not change it."""
    return run_ids(data, config, (seed,), task)[seed]


def run_ids(
    data: CorpusConfig, config: RowConfig, seeds: Iterable[int], task: str = DEFAULT_TASK
) -> dict[int, str]:
    """Ids of the runs of one configuration, by seed."""
    data, config = fold_vocab_size(data, config)
    content = {
        "format": FORMAT,
        "data": _training_data(data),
        "config": _id_fields(_canonical_model(config), INTRODUCED),
    }
    if task != DEFAULT_TASK:  # added after runs of the default task existed
        content["task"] = task
    mends = [fault for fault, had_it in MENDS.items() if had_it(config)]
    if mends:
        content["mends"] = mends
    return {seed: _digest({**content, "seed": seed}) for seed in seeds}


def _training_data(data: CorpusConfig) -> dict[str, Any]:
    """The data settings on which training depends."""
    excluded = set(_NOT_TRAINING)
    if not data.test_changes_training_text:
        excluded.add(DECODED_SPLIT)
    values = data.model_dump(exclude=excluded)
    return named_settings(values, {**INTRODUCED_DATA, **data.introduced})


def fold_vocab_size(data: Data, config: RowConfig) -> tuple[Data, RowConfig]:
    """Move the row's vocabulary size, if it has one, to the data: a row with `vocab_size` has the
    run of a study with that `data.vocab_size`.
    """
    if config.vocab_size is None:
        return data, config
    changed = data.model_copy(update={"vocab_size": config.vocab_size})
    return changed, config.model_copy(update={"vocab_size": None})


def decoding_id(config: RowConfig, test: str) -> str:
    """Id of a decoding of the test split `test` (`data.test`), 12 hexadecimal digits."""
    fields = {name: getattr(config, name) for name in DecodingConfig.model_fields}
    if config.beam == 1:  # greedy search ends with the first finished hypothesis in any case
        fields["early_stopping"] = INTRODUCED_DECODING["early_stopping"]
    named = _id_fields(fields, INTRODUCED_DECODING)
    return _digest({"format": FORMAT, "decoding": named, "test": test})


def former_decodings(config: RowConfig, test: str) -> dict[str, str]:
    """Decodings of the row with an introduced default instead of today's, by `name=value` of that
    default, as `--set` takes it.
    """
    ids = {}
    for name, field in DecodingConfig.model_fields.items():
        former = INTRODUCED_DECODING[name]
        if getattr(config, name) == field.default != former:
            changed = config.model_copy(update={name: former})
            ids[f"{name}={setting_text(former)}"] = decoding_id(changed, test)
    return ids


def _canonical_model(config: RowConfig) -> dict[str, Any]:
    """The values of a configuration, in one form where equal models can be written in several
    forms.
    """
    # `encoder_layers=4, decoder_layers=4` is `n_layers=4`: one model, one id.
    values, (encoder, decoder) = config.model_dump(), config.depths
    # Unset precision is fp32 on every CPU. A GPU may choose bf16: execution.json has the choice,
    # which never changes within a run, and a study with precision=fp32 refuses a run in bf16.
    values["precision"] = values["precision"] or "fp32"
    values["n_layers"], values["encoder_layers"] = encoder or decoder, None
    values["decoder_layers"] = None
    if config.has_both_stacks and decoder != encoder:
        values["decoder_layers"] = decoder
    mixer = config.mixer
    if mixer in MIXERS and mixer != "attention" and config.has_both_stacks:
        # Only attention over the source has heads.
        values["n_heads"], values["n_cross_heads"] = config.cross_heads, None
    return values


def _id_fields(values: Mapping[str, Any], introduced: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of an id among the fields with an introduced default."""
    return named_settings({name: values[name] for name in introduced}, introduced)


def _digest(content: Mapping[str, Any]) -> str:
    # Sorted: the order of fields in the code must have no influence. NaN would equal no default.
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:ID_LENGTH]

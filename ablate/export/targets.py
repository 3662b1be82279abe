"""The models of other libraries that a run can be exported to, and the configurations that each
supports.

A target lists the values that it supports of each field. Rules about sizes, or about two fields at
once, are functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ablate.config import ModelConfig
from ablate.config.fields import facts_of
from ablate.config.plugins import without_digest
from ablate.config.variants import BERT, GENERATOR, GPT2, LLAMA, MARIAN, TRANSLATOR, exportable
from ablate.errors import listed
from ablate.export import ctranslate
from ablate.export.bert import write_bert
from ablate.export.gpt2 import write_gpt2
from ablate.export.llama import write_llama, write_llama_language_model
from ablate.export.marian import write_marian
from ablate.export.trained_model import TrainedModel
from ablate.formatting import setting_text
from ablate.tasks import TASKS

Rules = Iterator[tuple[bool, str]]  # whether the rule is violated, and the violation


@dataclass(frozen=True)
class Target:
    """A model of another library.

    A field of the model that is neither in `supported` nor declared as exported (`Facts`) is
    supported at its default only, so that a new field is refused until a target takes it.

    name: of the model in that library.
    supported: for each restricted field, the supported values.
    rules: the restrictions that concern sizes or several fields.
    write: writes a model into an empty folder.
    package: an optional dependency that `write` imports.
    """

    name: str
    supported: Mapping[str, tuple[Any, ...]]
    rules: Callable[[ModelConfig], Rules]
    write: Callable[[TrainedModel, Path], None]
    package: str | None = None

    def violations(self, config: ModelConfig) -> list[str]:
        """Return every reason why a model of this configuration cannot be exported."""
        reasons = []
        defaults: dict[str, tuple[Any, ...]] = {
            name: (ModelConfig.model_fields[name].default,)
            for name, facts in facts_of(ModelConfig).items()
            if not facts.is_exported
        }
        defaults["attention_bias"] = (False, True)  # of all projections or of none
        for name, values in {**defaults, **self.supported}.items():
            value = getattr(config, name)
            if name in config.patterns:
                continue  # see below
            if value not in values:
                reasons.append(
                    f"{name}={_text(value)}, but {self.name} supports only "
                    f"{listed(map(_text, values))}"
                )
        if config.patterns:
            alternating = (f"{name}={_text(value)}" for name, value in config.patterns.items())
            return [*reasons, f"{', '.join(alternating)}, but all layers of {self.name} are alike"]
        return reasons + [reason for is_violated, reason in self.rules(config) if is_violated]


def _text(value: object) -> str:
    return without_digest(setting_text(value))


def _marian_rules(c: ModelConfig) -> Rules:
    yield _other_head_sizes(c, MARIAN)
    yield _other_cross_heads(c, "MarianMTModel")
    yield (
        # T5's attention bias exists in transformers only in T5 itself, whose feed-forward network
        # is another one.
        c.positional_encoding == "t5",
        "positional_encoding=t5, but the feed-forward network of T5 in Hugging Face has no biases",
    )


def _gpt2_rules(c: ModelConfig) -> Rules:
    yield _other_head_sizes(c, GPT2)


def _bert_rules(c: ModelConfig) -> Rules:
    yield _other_head_sizes(c, BERT)


def _llama_rules(c: ModelConfig) -> Rules:
    yield _two_head_sizes(c, "LlamaForCausalLM")
    yield (
        # LlamaConfig refuses it, although it takes the size of a head as a field of its own.
        c.d_model % c.n_heads != 0,
        f"n_heads={c.n_heads} and d_model={c.d_model}, but LlamaForCausalLM needs n_heads to "
        f"divide d_model",
    )


def _translator_rules(c: ModelConfig) -> Rules:
    yield _two_head_sizes(c, "ctranslate2")
    yield _other_cross_heads(c, "ctranslate2")


def _generator_rules(c: ModelConfig) -> Rules:
    yield _two_head_sizes(c, "ctranslate2")


def _two_head_sizes(c: ModelConfig, name: str) -> tuple[bool, str]:
    return c.d_k != c.d_v, f"d_k={c.d_k} and d_v={c.d_v}, but {name} needs them equal"


def _other_head_sizes(c: ModelConfig, name: str) -> tuple[bool, str]:
    return (
        not c.d_k == c.d_v == c.d_model / c.n_heads,
        f"d_k={c.d_k} and d_v={c.d_v}, but every head of {name} has size d_model / h",
    )


def _other_cross_heads(c: ModelConfig, name: str) -> tuple[bool, str]:
    heads = f"n_cross_heads={c.n_cross_heads}"
    return (
        c.cross_heads != c.n_heads,
        f"{heads}, but {name} has as many heads in cross-attention as in self-attention",
    )


def _variants(export_format: str, *fields: str) -> dict[str, tuple[str, ...]]:
    """Return for each field the variants that the format can represent (config/variants.py)."""
    return {field: exportable(field, export_format) for field in fields}


# By name of the library and by architecture.
TARGETS: dict[str, dict[str, Target]] = {
    "huggingface": {
        "encoder-decoder": Target(
            MARIAN,
            {
                **_variants(MARIAN, "mixer", "attention", "positional_encoding"),
                "attention_scale": ("1/sqrt(d_k)",),
                "embedding_scale": ("sqrt(d_model)",),
                **_variants(MARIAN, "activation", "norm"),
                "norm_position": ("post",),
                "residual": (True,),
            },
            _marian_rules,
            write_marian,
        ),
        "decoder-only": Target(
            LLAMA,
            {
                **_variants(LLAMA, "mixer", "attention", "positional_encoding"),
                "attention_scale": ("1/sqrt(d_k)",),
                **_variants(LLAMA, "activation", "norm"),
                "norm_position": ("pre",),
                "residual": (True,),
            },
            _llama_rules,
            write_llama,
        ),
    },
    "ctranslate2": {
        "encoder-decoder": Target(
            TRANSLATOR,
            {
                "embedding_scale": ("sqrt(d_model)",),
                **_variants(TRANSLATOR, "mixer", "attention", "activation", "norm"),
                "norm_position": ("post", "pre"),
                "residual": (True,),
                **_variants(TRANSLATOR, "positional_encoding"),
            },
            _translator_rules,
            ctranslate.write,
            package="ctranslate2",
        ),
        "decoder-only": Target(
            GENERATOR,
            {
                "embedding_scale": ("sqrt(d_model)",),
                **_variants(GENERATOR, "mixer", "attention", "activation", "norm"),
                "norm_position": ("post", "pre"),
                "residual": (True,),
                **_variants(GENERATOR, "positional_encoding"),
            },
            _generator_rules,
            ctranslate.write,
            package="ctranslate2",
        ),
    },
}

_LLAMA = TARGETS["huggingface"]["decoder-only"]
# Of language models, by name of the library: the first one with the fewest violations is the
# target.
LANGUAGE_MODELS: dict[str, tuple[Target, ...]] = {
    "huggingface": (
        Target(
            GPT2,
            {
                **_variants(GPT2, "mixer", "attention", "positional_encoding"),
                "attention_scale": ("1/sqrt(d_k)",),
                **_variants(GPT2, "activation", "norm"),
                "norm_position": ("pre",),
                "residual": (True,),
            },
            _gpt2_rules,
            write_gpt2,
        ),
        replace(_LLAMA, write=write_llama_language_model),
    )
}
MASKED_LANGUAGE_MODELS: dict[str, tuple[Target, ...]] = {
    "huggingface": (
        Target(
            BERT,
            {
                **_variants(BERT, "mixer", "attention", "positional_encoding"),
                "attention_scale": ("1/sqrt(d_k)",),
                **_variants(BERT, "activation", "norm"),
                "norm_position": ("post",),
                "residual": (True,),
                "embedding_norm": (True,),
                "output_transform": (True,),
                "output_bias": (False, True),
            },
            _bert_rules,
            write_bert,
        ),
    )
}
_ONE_STACK = {"causal": LANGUAGE_MODELS, "masked": MASKED_LANGUAGE_MODELS}


def target_of(task: str, config: ModelConfig, library: str) -> Target | None:
    """The model of a library that a run is exported as; None if the library has none for the
    task.
    """
    kind = TASKS[task].exported_as if task in TASKS else ""
    if kind == "sequence-to-sequence":
        return TARGETS[library][config.architecture]
    targets = _ONE_STACK.get(kind, {}).get(library, ())
    return min(targets, key=lambda target: len(target.violations(config)), default=None)


def exportable_tasks(library: str) -> tuple[str, ...]:
    """Names of the tasks whose runs can be exported to a library."""
    kinds = {"sequence-to-sequence"}
    kinds.update(kind for kind, targets in _ONE_STACK.items() if library in targets)
    return tuple(name for name, task in TASKS.items() if task.exported_as in kinds)

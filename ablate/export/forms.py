"""The forms that a run can be exported in, and what each of them can hold.

A form is a table of the values that it can hold of each field; other values are refused with it. Sizes
that are not free, and what depends on two fields, are rules beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config import ModelConfig
from ablate.config.plugins import without_digest
from ablate.config.variants import GENERATOR, LLAMA, MARIAN, TRANSLATOR, exportable
from ablate.errors import listed
from ablate.export import ctranslate, llama, marian
from ablate.export.source import Source
from ablate.formatting import setting_text

Faults = Iterator[tuple[bool, str]]


@dataclass(frozen=True)
class Form:
    """One way to write a run.

    name: what the other library calls it.
    holds: for each field that is not free, the values that can be written.
    rules: what else cannot be written, and why.
    write: writes it into an empty folder.
    needs: a package that writing takes, and that may not be installed.
    """

    name: str
    holds: Mapping[str, tuple[Any, ...]]
    rules: Callable[[ModelConfig], Faults]
    write: Callable[[Source, Path], None]
    needs: str | None = None

    def refusals(self, config: ModelConfig) -> list[str]:
        """Every reason why a model of this configuration cannot be written so."""
        found = []
        for name, values in self.holds.items():
            value = getattr(config, name)
            if value not in values:
                found.append(f"{name}={_written(value)}, and {self.name} has only {listed(map(_written, values))}")
        return found + [reason for holds, reason in self.rules(config) if holds]


def _written(value: object) -> str:
    return without_digest(setting_text(value))


def _of_marian(c: ModelConfig) -> Faults:
    yield (
        not c.d_k == c.d_v == c.d_model / c.n_heads,
        f"d_k={c.d_k} and d_v={c.d_v}, and every head of MarianMTModel has the size d_model / h",
    )
    yield _other_cross_heads(c, "MarianMTModel")
    yield (
        c.positional_encoding == "t5",
        "positional_encoding=t5, and T5 has no biases in its feed-forward network, which a run always has",
    )


def _of_llama(c: ModelConfig) -> Faults:
    yield _two_head_sizes(c, "LlamaForCausalLM")
    yield (
        c.d_model % c.n_heads != 0,
        f"n_heads={c.n_heads} and d_model={c.d_model}, and in LlamaForCausalLM the one divides the other",
    )


def _of_translator(c: ModelConfig) -> Faults:
    yield _two_head_sizes(c, "ctranslate2")
    yield _other_cross_heads(c, "ctranslate2")


def _of_generator(c: ModelConfig) -> Faults:
    yield _two_head_sizes(c, "ctranslate2")


def _two_head_sizes(c: ModelConfig, name: str) -> tuple[bool, str]:
    return c.d_k != c.d_v, f"d_k={c.d_k} and d_v={c.d_v}, and {name} has one size for both"


def _other_cross_heads(c: ModelConfig, name: str) -> tuple[bool, str]:
    heads = f"n_cross_heads={c.n_cross_heads}"
    return c.cross_heads != c.n_heads, f"{heads}, and {name} has as many over the source as over the target"


def _variants(export_format: str, *fields: str) -> dict[str, tuple[str, ...]]:
    """For each field, the variants that the format can represent (config/variants.py)."""
    return {field: exportable(field, export_format) for field in fields}


# For each target, the form of an encoder-decoder and that of a decoder-only model.
FORMS: dict[str, dict[str, Form]] = {
    "huggingface": {
        "encoder-decoder": Form(
            MARIAN,
            {
                **_variants(MARIAN, "mixer", "attention", "positional_encoding"),
                "attention_scale": ("1/sqrt(d_k)",),
                **_variants(MARIAN, "activation", "norm"),
                "norm_position": ("post",),
                "residual": (True,),
            },
            _of_marian,
            marian.write,
        ),
        "decoder-only": Form(
            LLAMA,
            {
                **_variants(LLAMA, "mixer", "attention", "positional_encoding"),
                "attention_scale": ("1/sqrt(d_k)",),
                **_variants(LLAMA, "activation", "norm"),
                "norm_position": ("pre",),
                "residual": (True,),
            },
            _of_llama,
            llama.write,
        ),
    },
    "ctranslate2": {
        "encoder-decoder": Form(
            TRANSLATOR,
            {
                **_variants(TRANSLATOR, "mixer", "attention", "activation", "norm"),
                "norm_position": ("post", "pre"),
                "residual": (True,),
                **_variants(TRANSLATOR, "positional_encoding"),
            },
            _of_translator,
            ctranslate.write,
            needs="ctranslate2",
        ),
        "decoder-only": Form(
            GENERATOR,
            {
                **_variants(GENERATOR, "mixer", "attention", "activation", "norm"),
                "norm_position": ("post", "pre"),
                "residual": (True,),
                **_variants(GENERATOR, "positional_encoding"),
            },
            _of_generator,
            ctranslate.write,
            needs="ctranslate2",
        ),
    },
}

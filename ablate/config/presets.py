"""Named groups of settings: the paper's models, and the parts of published architectures.

A preset with sizes is a whole model. One without sizes, such as `qwen3`, says the parts of an
architecture, and leaves N, d_model, h and d_ff to the study. The sizes of parts, such as the number
of experts, are those published.
"""

from __future__ import annotations

from typing import Any

from ablate.config.model import ModelConfig
from ablate.fields import facts_of

# d_k and d_v are None, so that a preset in a row derives them again, and keeps none of base.
_BASE: dict[str, Any] = {
    "n_layers": 6, "d_model": 512, "d_ff": 2048, "n_heads": 8, "d_k": None, "d_v": None,
    "dropout": 0.1, "label_smoothing": 0.1, "positional_encoding": "sinusoidal",
}  # fmt: skip
_CAUSAL: dict[str, Any] = {
    "architecture": "decoder-only", "d_k": None, "d_v": None, "label_smoothing": 0.0,
    "norm_position": "pre", "tied_embeddings": "all", "embedding_scale": 1,
}  # fmt: skip
# GPT-2 (Radford et al., 2019), with the exact GELU.
_GPT: dict[str, Any] = {
    **_CAUSAL, "dropout": 0.1, "positional_encoding": "learned", "norm": "layernorm",
    "activation": "gelu", "attention_bias": True,
}  # fmt: skip
# Llama (Touvron et al., 2023): no biases; the inner width of its gated network is 2/3 d_ff.
_LLAMA: dict[str, Any] = {
    **_CAUSAL, "dropout": 0.0, "positional_encoding": "rope", "norm": "rmsnorm",
    "activation": "swiglu", "feed_forward_bias": False,
}  # fmt: skip
# BERT (Devlin et al., 2019), for masked tokens: without its sentence pairs.
_BERT: dict[str, Any] = {
    "architecture": "encoder-only", "d_k": None, "d_v": None, "dropout": 0.1,
    "attention_dropout": 0.1, "label_smoothing": 0.0, "positional_encoding": "learned",
    "max_positions": 512, "norm": "layernorm", "norm_position": "post", "activation": "gelu",
    "attention_bias": True, "tied_embeddings": "all", "embedding_scale": 1, "embedding_norm": True,
    "token_types": 2, "output_transform": True, "output_bias": True,
}  # fmt: skip
# Qwen3 of up to 4B parameters (Yang et al., 2025): larger ones tie no embeddings.
_QWEN3: dict[str, Any] = {**_LLAMA, "qk_norm": "head", "rope_base": 1e6}
# Published architectures without their sizes.
_ARCHITECTURES: dict[str, dict[str, Any]] = {
    "gpt2": {**_GPT, "activation": "gelu_tanh"},
    "gpt-neox": {
        **_GPT, "dropout": 0.0, "positional_encoding": "rope", "rope_fraction": 0.25,
        "sublayers": "parallel", "tied_embeddings": "none",
    },
    "gpt-j": {
        **_GPT, "dropout": 0.0, "positional_encoding": "rope", "rope_fraction": 0.25,
        "sublayers": "parallel_shared_norm", "activation": "gelu_tanh", "attention_bias": False,
        "output_bias": True, "tied_embeddings": "none",
    },
    "phi": {
        **_GPT, "dropout": 0.0, "positional_encoding": "rope", "rope_fraction": 0.5,
        "sublayers": "parallel_shared_norm", "activation": "gelu_tanh", "output_bias": True,
        "tied_embeddings": "none",
    },
    "llama": {**_LLAMA, "tied_embeddings": "none"},
    "diffllama": {**_LLAMA, "tied_embeddings": "none", "attention": "differential"},
    "mixtral": {
        **_LLAMA, "tied_embeddings": "none", "rope_base": 1e6, "n_experts": 8,
        "experts_per_token": 2,
    },
    "qwen3": _QWEN3,
    "qwen3-moe": {**_QWEN3, "tied_embeddings": "none", "n_experts": 128, "experts_per_token": 8},
    # The same heads in both mixers; those published have twice as many for the values of DeltaNet.
    "qwen3-next": {
        **_QWEN3, "tied_embeddings": "none", "mixer": ("gated_deltanet",) * 3 + ("attention",),
        "rope_base": 1e7, "rope_fraction": 0.25, "attention_gate": "element", "n_experts": 512,
        "experts_per_token": 10, "shared_experts": 1, "shared_expert_gate": True,
    },
    # Without its dense first layers, its groups of experts and its second predicted token.
    "deepseek-v3": {
        **_LLAMA, "tied_embeddings": "none", "rope_fraction": 1 / 3, "n_kv_heads": None,
        "kv_rank": 512, "query_rank": 1536, "d_k": 192, "d_v": 128, "n_experts": 256,
        "experts_per_token": 8, "shared_experts": 1, "expert_weights": "sigmoid",
        "expert_scale": 2.5, "expert_balance_by": "bias",
    },
    # Of 20B parameters, for the lengths that it was made for, so without YaRN.
    "gpt-oss": {
        **_LLAMA, "tied_embeddings": "none", "rope_base": 1.5e5, "attention": ("local", "full"),
        "attention_window": 127, "attention_bias": True, "attention_sinks": True,
        "activation": "swiglu_clamped", "feed_forward_bias": True, "n_experts": 32,
        "experts_per_token": 4, "router_bias": True,
    },
    "mamba2": {
        **_CAUSAL, "dropout": 0.0, "positional_encoding": "none", "norm": "rmsnorm",
        "feed_forward": "none", "mixer": "mamba2", "d_k": 128, "d_v": 64,
    },
    # The window of 2,048 tokens counts the token itself.
    "recurrent-gemma": {
        **_LLAMA, "mixer": ("rg_lru", "rg_lru", "attention"),
        "positional_encoding": ("none", "none", "rope"), "rope_fraction": 0.5,
        "attention": "local", "attention_window": 2047, "attention_bias": "output",
        "activation": "geglu_tanh", "feed_forward_bias": True, "logit_cap": 30.0,
        "embedding_scale": "sqrt(d_model)",
    },
    # ModernBERT (Warner et al., 2024), for masked tokens.
    "modernbert": {
        **_LLAMA, "architecture": "encoder-only", "attention": ("full", "local", "local"),
        "attention_window": 64, "rope_base": (1.6e5, 1e4, 1e4), "norm": "layernorm_no_bias",
        "activation": "geglu", "embedding_norm": "first", "output_transform": "without_bias",
        "output_bias": True,
    },
    # RWKV-4, whose sub-layers are layers of their own here: N is twice that published.
    "rwkv": {
        **_CAUSAL, "dropout": 0.0, "positional_encoding": "none", "norm": "layernorm",
        "feed_forward": "none", "mixer": ("rwkv", "rwkv_channels"), "embedding_norm": True,
        "tied_embeddings": "none",
    },
    "lfm2": {**_QWEN3, "mixer": ("short_convolution", "short_convolution", "attention")},
    "olmo2": {
        **_LLAMA, "tied_embeddings": "none", "rope_base": 5e5, "qk_norm": "width",
        "norm_position": "output",
    },
    "smollm3": {
        **_LLAMA, "positional_encoding": ("rope", "rope", "rope", "none"), "rope_base": 2e6,
    },
    "gemma2": {
        **_LLAMA, "norm_position": "sandwich", "activation": "geglu_tanh",
        "attention": ("local", "full"), "score_cap": 50.0, "logit_cap": 30.0,
        "embedding_scale": "sqrt(d_model)",
    },
    "gemma3": {
        **_LLAMA, "norm_position": "sandwich", "activation": "geglu_tanh",
        "attention": ("local",) * 5 + ("full",), "rope_base": (1e4,) * 5 + (1e6,),
        "qk_norm": "head", "embedding_scale": "sqrt(d_model)",
    },
    "nanochat": {
        **_LLAMA, "tied_embeddings": "none", "norm": "unit", "qk_norm": "unit",
        "activation": "relu2", "embedding_norm": True, "logit_cap": 15.0,
    },
}  # fmt: skip
# Fields that say how large a model is; a preset without sizes leaves them to the study.
SIZES = (
    "n_layers", "encoder_layers", "decoder_layers", "d_model", "d_ff", "n_heads", "n_kv_heads",
    "n_cross_heads", "d_k", "d_v",
)  # fmt: skip
# Sizes of parts for a start on a CPU, where a preset has them.
_SMALL_SIZES = {
    "kv_rank": 16, "query_rank": 32, "d_k": 24, "d_v": 16, "n_experts": 4, "experts_per_token": 2,
    "attention_window": 16,
}  # fmt: skip
# Parts of an architecture, in the order of a model, and the fields that choose each.
_CHOICES: dict[str, tuple[str, ...]] = {
    "embeddings": (
        "embedding_scale", "embedding_norm", "embedding_skip", "token_types", "smear",
        "bigram_embeddings",
    ),
    "tying": ("tied_embeddings",),
    "positions": ("positional_encoding",),
    "mixer": ("mixer",),
    "windows": ("attention",),
    "qk-norm": ("qk_norm",),
    "scores": ("score_cap", "attention_scale"),
    "sinks": ("attention_sinks",),
    "gate": ("attention_gate",),
    "latent": ("kv_rank",),
    "values": ("value_embeddings", "value_residual", "exclude_own_value"),
    "convolution": ("attention_convolution",),
    "biases": ("attention_bias", "feed_forward_bias", "output_bias"),
    "norm-type": ("norm",),
    "norm-place": ("norm_position",),
    "parallel": ("sublayers",),
    "residual-sum": ("residual",),
    "layers": ("loops", "layer_skips", "stream_scale", "hyper_connections"),
    "feed-forward": ("feed_forward", "activation"),
    "experts": ("n_experts",),
    "logit-cap": ("logit_cap", "output_transform"),
    "regularization": ("dropout", "attention_dropout", "activation_dropout"),
}  # fmt: skip


def _all_choices() -> dict[str, tuple[str, ...]]:
    """The same with the fields that belong to what these choose, such as `rope_base`."""
    parts = dict(_CHOICES)
    part_of = {name: part for part, names in _CHOICES.items() for name in names}
    for name, facts in facts_of(ModelConfig).items():
        if name in part_of or name in SIZES or facts.part is None:
            continue
        for choice in facts.part.needs:
            if choice in part_of:
                part_of[name] = part_of[choice]  # which may choose further ones
                parts[part_of[name]] += (name,)
                break
    return parts


PARTS = _all_choices()


def _all_parts(fields: dict[str, Any]) -> dict[str, Any]:
    """Every part of an architecture, so that a preset in a row keeps no part of base's."""
    parts = {}
    for names in PARTS.values():
        for name in names:
            parts[name] = ModelConfig.model_fields[name].default
    return {**parts, **fields}


def small_sizes(preset: dict[str, Any]) -> dict[str, int]:
    """The sizes of the parts of a preset for a start on a CPU."""
    small = {}
    for name, value in _SMALL_SIZES.items():
        if preset.get(name) not in (None, ModelConfig.model_fields[name].default):
            small[name] = value
    return small


PRESETS: dict[str, dict[str, Any]] = {
    "base": _BASE,
    "big": {**_BASE, "d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3},
    "gpt-nano": {**_GPT, "n_layers": 3, "d_model": 48, "d_ff": 192, "n_heads": 3},
    "gpt2-small": {**_GPT, "n_layers": 12, "d_model": 768, "d_ff": 3072, "n_heads": 12},
    "llama-tiny": {**_LLAMA, "n_layers": 6, "d_model": 288, "d_ff": 1152, "n_heads": 6},
    "bert-tiny": {**_BERT, "n_layers": 2, "d_model": 128, "d_ff": 512, "n_heads": 2},
    "bert-base": {**_BERT, "n_layers": 12, "d_model": 768, "d_ff": 3072, "n_heads": 12},
    **{name: _all_parts(fields) for name, fields in _ARCHITECTURES.items()},
}

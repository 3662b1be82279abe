"""Llama and Mistral in transformers: rope, RMSNorm, SwiGLU, shared keys and values (Touvron et al.,
2023).
"""

from collections.abc import Callable
from random import Random

from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
)

from ablate.data.tokenizer import PAD
from ablate.model.norms import EPS
from tests.parity.cases import PRIMES, Case, Settings, compared, depths
from tests.parity.copying import Weights, load, renamed, unscaled, weights_of, without_biases
from tests.parity.row import Row

Model = Callable[[Case], PreTrainedModel]

NAMES = {
    "embedding": "model.embed_tokens",
    "output": "lm_head",
    "decoder": "model.layers",
    "decoder_norm": "model.norm",
    "mixer": "self_attn",
    "W_Q": "q_proj",
    "W_K": "k_proj",
    "W_V": "v_proj",
    "W_O": "o_proj",
    "feed_forward.W_1": "mlp.gate_proj",
    "feed_forward.W_2": "mlp.down_proj",
    "feed_forward.W_3": "mlp.up_proj",
    "around_mixer.norm": "input_layernorm",
    "around_feed_forward.norm": "post_attention_layernorm",
}


def _common(case: Case) -> dict[str, object]:
    c = case.config
    return {
        "vocab_size": case.V, "hidden_size": c.d_model, "intermediate_size": c.inner_width(gated=True),
        "num_hidden_layers": c.depths[1], "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.n_kv_heads or c.n_heads, "head_dim": c.d_k,
        "rms_norm_eps": EPS, "max_position_embeddings": c.max_positions,
        "tie_word_embeddings": c.tied_embeddings == "all", "attn_implementation": "eager",
    }  # fmt: skip


def llama(case: Case) -> PreTrainedModel:
    """Llama with the case's weights, with biases in the feed-forward network and, if configured, in
    attention.
    """
    config = LlamaConfig(**_common(case), mlp_bias=True, attention_bias=case.config.attention_bias)
    return _loaded(LlamaForCausalLM(config), weights_of(case.model), case)


def mistral(case: Case) -> PreTrainedModel:
    """Mistral with the case's weights: Llama with a window, which includes the token itself, and no
    biases.
    """
    config = MistralConfig(**_common(case), sliding_window=case.config.attention_window + 1)
    return _loaded(MistralForCausalLM(config), without_biases(case.model), case)


def _loaded(theirs: PreTrainedModel, weights: Weights, case: Case) -> PreTrainedModel:
    weights = unscaled(halves_turned(weights, case.config.d_k), case.config.d_model)
    return load(theirs, renamed(weights, NAMES))


def halves_turned(weights: Weights, d_k: int) -> Weights:
    """Reorder queries and keys of each head: Llama rotates entry i with i + d_k / 2, we rotate 2i
    with 2i + 1.
    """

    def ordered(weight: Tensor) -> Tensor:
        return weight.unflatten(0, (-1, d_k // 2, 2)).transpose(1, 2).flatten(0, 2)

    return {
        name: ordered(weight) if "W_Q." in name or "W_K." in name else weight
        for name, weight in weights.items()
    }


def of(model: Model) -> Callable[[Case], Tensor]:
    """Function that gives the logits of a model at the target tokens."""

    def logits(case: Case) -> Tensor:
        sequence = case.in_a_row()
        return case.of_targets(
            model(case)(input_ids=sequence, attention_mask=(sequence != PAD).long()).logits
        )

    return logits


def settings(draw: Random, kv_heads: int | None = None, **fields: object) -> Settings:
    """Llama's configuration with `kv_heads` key and value heads for two or three query heads each;
    None: one each.
    """
    half, half_head, d_ff = draw.sample(PRIMES, 3)
    heads = (kv_heads or 1) * draw.choice((2, 3))
    return {
        "architecture": "decoder-only", "positional_encoding": "rope", "norm": "rmsnorm", "norm_position": "pre",
        "activation": "swiglu", "decoder_layers": depths(draw)["decoder_layers"], "n_heads": heads,
        "n_kv_heads": kv_heads, "d_k": 2 * half_head, "d_v": 2 * half_head, "d_model": 2 * heads * half, "d_ff": d_ff,
        **fields,
    }  # fmt: skip


def _row(what: str, model: Model, kv_heads: int | None = None, **fields: object) -> Row:
    name = {llama: "LlamaForCausalLM", mistral: "MistralForCausalLM"}[model]
    pairs = compared(lambda draw: settings(draw, kv_heads, **fields), of(model))
    return Row(f"transformers {name}", f"rope, rmsnorm, pre-norm, swiglu, {what}", pairs)


ROWS = (
    _row("multi-head, tied", llama),
    _row("grouped-query, untied", llama, kv_heads=3, tied_embeddings="none"),
    _row("multi-query, attention biases", llama, kv_heads=1, attention_bias=True),
    _row("local, grouped-query", mistral, kv_heads=2, attention="local", attention_window=3),
)

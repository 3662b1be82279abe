"""Causal language models of Hugging Face's transformers.

Most of them are Llama with other settings. Llama rotates entry i of a head together with entry
i + d/2, and the RoPE paper rotates neighbors. So the rows of W^Q and W^K are reordered, which
leaves the attention scores as they are. Only Gemma scales its embeddings. For all other models, a
scale of sqrt(d_model) is multiplied into the embeddings, which are then stored apart from the
output matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ablate.config import ModelConfig
from ablate.export.changes import (
    QUERIES_KEYS_VALUES,
    has_output_matrix,
    interleave_heads,
    is_tied,
    is_untied,
    repeat_heads,
    scale_embeddings,
    split_pairs,
    split_pairs_reversed,
    subtract_one,
    transpose,
)
from ablate.export.huggingface import (
    ACTIVATION_NAMES,
    GATED,
    UNGATED,
    rope_bases,
    single_rope_bases,
    sizes,
    transformers_model,
    windows,
)
from ablate.export.target import (
    ANY,
    Parts,
    Rule,
    Target,
    convert,
    derived_head_sizes,
    equal_head_sizes,
)
from ablate.model.norms import EPS
from ablate.parts.positions import rotated_entries

ROPE = {"positional_encoding": ("rope",), "rope_base": ANY}
STRETCHED = {"rope_scaling": ANY, "rope_factor": ANY}
NO_BIASES = {"attention_bias": (False,), "feed_forward_bias": (False,)}

Settings = Callable[[ModelConfig], dict[str, Any]]
LLAMA_ATTENTION: Parts = {
    "self_attn.q_proj.*": convert("mixer.W_Q.*", split_pairs),
    "self_attn.k_proj.*": convert("mixer.W_K.*", split_pairs),
    "self_attn.v_proj.*": convert("mixer.W_V.*"),
    "self_attn.o_proj.*": convert("mixer.W_O.*"),
    "self_attn.q_norm.*": convert("mixer.norm_Q.*", split_pairs),
    "self_attn.k_norm.*": convert("mixer.norm_K.*", split_pairs),
}
LLAMA_LAYER: Parts = {
    **LLAMA_ATTENTION,
    "mlp.gate_proj.*": convert("feed_forward.W_1.*"),
    "mlp.up_proj.*": convert("feed_forward.W_3.*"),
    "mlp.down_proj.*": convert("feed_forward.W_2.*"),
    "input_layernorm.*": convert("around_mixer.norm.*"),
    "post_attention_layernorm.*": convert("around_feed_forward.norm.*"),
}
LLAMA_BODY: Parts = {
    "model.embed_tokens.weight": convert("embedding.weight", scale_embeddings),
    "model.norm.*": convert("decoder_norm.*"),
    "lm_head.weight": convert("output.weight", when=is_untied),
}
OUTPUT_NORMS: Parts = {
    **{name: part for name, part in LLAMA_LAYER.items() if name != "input_layernorm.*"},
    "post_attention_layernorm.*": convert("around_mixer.norm.*"),
    "post_feedforward_layernorm.*": convert("around_feed_forward.norm.*"),
}
GEMMA_LAYER: Parts = {
    **LLAMA_LAYER,
    "self_attn.q_norm.*": convert("mixer.norm_Q.*", split_pairs, subtract_one),
    "self_attn.k_norm.*": convert("mixer.norm_K.*", split_pairs, subtract_one),
    "input_layernorm.*": convert("around_mixer.norm.*", subtract_one),
    "post_attention_layernorm.*": convert("around_mixer.norm_after.*", subtract_one),
    "pre_feedforward_layernorm.*": convert("around_feed_forward.norm.*", subtract_one),
    "post_feedforward_layernorm.*": convert("around_feed_forward.norm_after.*", subtract_one),
}


GEMMA_BODY: Parts = {
    "model.embed_tokens.weight": convert("embedding.weight"),
    "model.norm.*": convert("decoder_norm.*", subtract_one),
    "lm_head.weight": convert("output.weight", when=has_output_matrix),
}


def _sizes(c: ModelConfig) -> dict[str, Any]:
    activation, dropout = ACTIVATION_NAMES[c.activation], c.attention_dropout
    return {**sizes(c), "hidden_act": activation, "attention_dropout": dropout}


def _llama_settings(c: ModelConfig) -> dict[str, Any]:
    return {
        **_sizes(c),
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.d_k,
        "rms_norm_eps": EPS,
        "rope_theta": c.rope_base,
        "rope_scaling": _scaling(c),
        "attention_bias": c.attention_bias is True,
        "mlp_bias": c.feed_forward_bias,
    }


def _scaling(c: ModelConfig) -> dict[str, Any] | None:
    if c.rope_scaling == "none":
        return None
    length = round(c.max_positions / c.rope_factor)
    return {
        "rope_type": c.rope_scaling,
        "factor": c.rope_factor,
        "original_max_position_embeddings": length,
    }


def _llama(
    kind: str,
    name: str,
    supported: Mapping[str, Any],
    further: Settings = lambda c: {},
    layer: Parts = LLAMA_LAYER,
    rules: tuple[Rule, ...] = (),
    **facts: Any,
) -> Target:
    """A descendant of Llama: the settings and tensors in which it differs from Llama."""
    return transformers_model(
        kind,
        name,
        lambda c: {**_llama_settings(c), **further(c)},
        supported={
            **ROPE,
            **STRETCHED,
            "norm": ("rmsnorm",),
            "norm_position": ("pre",),
            "activation": GATED,
            "attention_bias": (False, True),
            "feed_forward_bias": (False,),
            **supported,
        },
        layer=layer,
        rules=(equal_head_sizes, *rules),
        **{"parts": LLAMA_BODY, **facts},
    )


def _divides(c: ModelConfig, name: str) -> str:
    # transformers refuses other numbers, although head_dim is a separate field.
    if c.d_model % c.n_heads == 0:
        return ""
    return (
        f"n_heads={c.n_heads} and d_model={c.d_model}, but {name} needs n_heads to divide d_model"
    )


def _has_experts(c: ModelConfig, name: str) -> str:
    return "" if c.n_experts is not None else f"no n_experts, but {name} is a mixture of experts"


def _mixture(c: ModelConfig) -> dict[str, Any]:
    return {
        "num_local_experts": c.n_experts,
        "num_experts": c.n_experts,
        "num_experts_per_tok": c.experts_per_token,
        "moe_intermediate_size": c.inner_width(gated=True),
        "decoder_sparse_step": 1,
        "norm_topk_prob": c.expert_weights == "softmax_of_chosen",
        "router_aux_loss_coef": c.expert_balance,
    }


def _gemma(c: ModelConfig) -> dict[str, Any]:
    return {
        "hidden_activation": ACTIVATION_NAMES[c.activation],
        "query_pre_attn_scalar": c.d_k,
        "attn_logit_softcapping": c.score_cap,
        "final_logit_softcapping": c.logit_cap,
        "tie_word_embeddings": c.tied_embeddings == "all",
        **windows(c),
    }


def _gemma3(c: ModelConfig) -> dict[str, Any]:
    bases = rope_bases(c)
    return {
        **_gemma(c),
        "rope_theta": max(bases["full"], default=1e6),
        "rope_local_base_freq": max(bases["local"], default=1e4),
    }


def _olmo3(c: ModelConfig) -> dict[str, Any]:
    rotation = {"rope_type": "default", "rope_theta": c.rope_base}
    kinds = {"sliding_attention": rotation, "full_attention": rotation}
    return {**windows(c), "rope_parameters": kinds}


def _smollm3(c: ModelConfig) -> dict[str, Any]:
    rotates = [int(layer.positional_encoding == "rope") for layer in c.layers(c.depths[1])]
    return {"no_rope_layers": rotates}


def _mixture_layer(name: str, *parts: str) -> Parts:
    """The tensors of a Llama layer with a mixture of experts. `name` is the name of the mixture,
    and `parts` are the names of the gate, up and down projections of an expert.
    """
    experts: dict[str, Any] = {f"{name}.gate.weight": convert("feed_forward.router.weight")}
    for theirs, ours in zip(parts, ("W_1", "W_3", "W_2"), strict=True):
        experts[f"{name}.experts.{{e}}.{theirs}.weight"] = convert(
            f"feed_forward.experts.{{e}}.{ours}.weight"
        )
    return {**LLAMA_LAYER, **experts}


MIXTURE = {"n_experts": ANY, "experts_per_token": ANY, "expert_balance": ANY}
GEMMA = {
    "attention": ("local", "full"),
    "attention_window": ANY,
    "norm_position": ("sandwich",),
    "embedding_scale": ("sqrt(d_model)",),
    "score_cap": ANY,
    "logit_cap": ANY,
    "rope_scaling": ("none",),
}
QWEN3 = {"qk_norm": ("head",)}
LLAMA = _llama("llama", "LlamaForCausalLM", {"feed_forward_bias": ANY}, rules=(_divides,))
LLAMAS = (
    LLAMA,
    _llama("qwen2", "Qwen2ForCausalLM", {"attention_bias": ("inputs",)}),
    _llama("qwen3", "Qwen3ForCausalLM", QWEN3),
    _llama(
        "olmo2",
        "Olmo2ForCausalLM",
        {"qk_norm": ("width",), "norm_position": ("output",)},
        layer=OUTPUT_NORMS,
    ),
    _llama(
        "olmo3",
        "Olmo3ForCausalLM",
        {
            "qk_norm": ("width",),
            "norm_position": ("output",),
            "attention": ("local", "full"),
            "attention_window": ANY,
            "rope_scaling": ("none",),
        },
        _olmo3,
        OUTPUT_NORMS,
        alternating=("attention",),
    ),
    _llama(
        "gemma2",
        "Gemma2ForCausalLM",
        GEMMA,
        _gemma,
        GEMMA_LAYER,
        (_divides,),
        parts=GEMMA_BODY,
        alternating=("attention",),
    ),
    _llama(
        "gemma3_text",
        "Gemma3ForCausalLM",
        {**GEMMA, "score_cap": (None,), "qk_norm": ("head",)},
        _gemma3,
        GEMMA_LAYER,
        (_divides, single_rope_bases),
        parts=GEMMA_BODY,
        alternating=("attention", "rope_base"),
    ),
    _llama(
        "smollm3",
        "SmolLM3ForCausalLM",
        {"positional_encoding": ("rope", "none"), "feed_forward_bias": ANY},
        _smollm3,
        alternating=("positional_encoding",),
    ),
    _llama(
        "cohere",
        "CohereForCausalLM",
        {"norm": ("layernorm_no_bias",), "sublayers": ("parallel_shared_norm",)},
        lambda c: {"layer_norm_eps": EPS, "logit_scale": 1.0},
        {
            **LLAMA_LAYER,
            "self_attn.q_proj.*": convert("mixer.W_Q.*"),
            "self_attn.k_proj.*": convert("mixer.W_K.*"),
        },
    ),
    _llama(
        "mixtral",
        "MixtralForCausalLM",
        {**MIXTURE, "attention_bias": (False,)},
        _mixture,
        _mixture_layer("block_sparse_moe", "w1", "w3", "w2"),
        (_has_experts,),
    ),
    _llama(
        "qwen3_moe",
        "Qwen3MoeForCausalLM",
        {**MIXTURE, **QWEN3, "expert_weights": ("softmax", "softmax_of_chosen")},
        _mixture,
        _mixture_layer("mlp", "gate_proj", "up_proj", "down_proj"),
        (_has_experts,),
    ),
    _llama(
        "nanochat",
        "NanoChatForCausalLM",
        {
            **NO_BIASES,
            "activation": UNGATED,
            "norm": ("unit",),
            "qk_norm": ("unit",),
            "embedding_norm": (True,),
            "logit_cap": ANY,
            # NanoChat normalizes queries and keys after their rotation, which would undo
            # the scale of yarn.
            "rope_scaling": ("none", "linear"),
        },
        lambda c: {"final_logit_softcapping": c.logit_cap},
        {
            "self_attn.q_proj.*": convert("mixer.W_Q.*", split_pairs_reversed),
            "self_attn.k_proj.*": convert("mixer.W_K.*", split_pairs_reversed),
            "self_attn.v_proj.*": convert("mixer.W_V.*"),
            "self_attn.o_proj.*": convert("mixer.W_O.*"),
            "mlp.fc1.*": convert("feed_forward.W_1.*"),
            "mlp.fc2.*": convert("feed_forward.W_2.*"),
        },
    ),
)


# Models before Llama. They have biases everywhere, which are zeros if ablate's model has none. In
# all
# of them but Phi, each head of queries has its own keys and values.
CLASSIC = {
    "norm": ("layernorm",),
    "norm_position": ("pre",),
    "activation": UNGATED,
    "attention_bias": ANY,
    "feed_forward_bias": ANY,
}


def _gpt_settings(c: ModelConfig) -> dict[str, Any]:
    return {
        "n_positions": c.max_positions,
        "n_embd": c.d_model,
        "n_layer": c.depths[1],
        "n_head": c.n_heads,
        "n_inner": c.d_ff,
        "activation_function": ACTIVATION_NAMES[c.activation],
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "attn_pdrop": c.attention_dropout,
        "layer_norm_epsilon": EPS,
        "tie_word_embeddings": is_tied(c),
    }


GPT2 = transformers_model(
    "gpt2",
    "GPT2LMHeadModel",
    _gpt_settings,
    supported={**CLASSIC, "positional_encoding": ("learned", "sinusoidal", "none")},
    parts={
        "transformer.wte.weight": convert("embedding.weight", scale_embeddings),
        "transformer.wpe.weight": convert("positions.weight"),
        "transformer.ln_f.*": convert("decoder_norm.*"),
        "lm_head.weight": convert("output.weight", when=is_untied),
    },
    layer={
        "attn.c_attn.*": convert(*QUERIES_KEYS_VALUES, join=transpose, biased=True),
        "attn.c_proj.*": convert("mixer.W_O.*", join=transpose, biased=True),
        "mlp.c_fc.*": convert("feed_forward.W_1.*", join=transpose, biased=True),
        "mlp.c_proj.*": convert("feed_forward.W_2.*", join=transpose, biased=True),
        "ln_1.*": convert("around_mixer.norm.*"),
        "ln_2.*": convert("around_feed_forward.norm.*"),
    },
    stacks={"decoder": "transformer.h.{i}."},
)
GPT_J = transformers_model(
    "gptj",
    "GPTJForCausalLM",
    lambda c: {**_gpt_settings(c), "rotary_dim": rotated_entries(c)},
    supported={
        **CLASSIC,
        "attention_bias": (False,),
        "output_bias": ANY,
        "positional_encoding": ("rope",),
        "rope_fraction": ANY,
        "sublayers": ("parallel_shared_norm",),
    },
    parts={
        "transformer.wte.weight": convert("embedding.weight", scale_embeddings),
        "transformer.ln_f.*": convert("decoder_norm.*"),
        "lm_head.weight": convert("output.weight", when=is_untied),
        "lm_head.bias": convert("output_bias"),
    },
    layer={
        "attn.q_proj.weight": convert("mixer.W_Q.weight"),
        "attn.k_proj.weight": convert("mixer.W_K.weight", repeat_heads),
        "attn.v_proj.weight": convert("mixer.W_V.weight", repeat_heads),
        "attn.out_proj.weight": convert("mixer.W_O.weight"),
        "mlp.fc_in.*": convert("feed_forward.W_1.*", biased=True),
        "mlp.fc_out.*": convert("feed_forward.W_2.*", biased=True),
        "ln_1.*": convert("around_mixer.norm.*"),
    },
    stacks={"decoder": "transformer.h.{i}."},
)


GPT_NEOX = transformers_model(
    "gpt_neox",
    "GPTNeoXForCausalLM",
    lambda c: {
        **_sizes(c),
        "layer_norm_eps": EPS,
        "hidden_dropout": c.dropout,
        "attention_bias": True,
        "rotary_pct": c.rope_fraction,
        "rotary_emb_base": c.rope_base,
        "use_parallel_residual": c.sublayers == "parallel",
    },
    supported={**CLASSIC, **ROPE, "rope_fraction": ANY, "sublayers": ("sequential", "parallel")},
    parts={
        "gpt_neox.embed_in.weight": convert("embedding.weight", scale_embeddings),
        "gpt_neox.final_layer_norm.*": convert("decoder_norm.*"),
        "embed_out.weight": convert("output.weight", when=is_untied),
    },
    layer={
        "attention.query_key_value.*": convert(
            *QUERIES_KEYS_VALUES, join=interleave_heads, biased=True
        ),
        "attention.dense.*": convert("mixer.W_O.*", biased=True),
        "mlp.dense_h_to_4h.*": convert("feed_forward.W_1.*", biased=True),
        "mlp.dense_4h_to_h.*": convert("feed_forward.W_2.*", biased=True),
        "input_layernorm.*": convert("around_mixer.norm.*"),
        "post_attention_layernorm.*": convert("around_feed_forward.norm.*"),
    },
    stacks={"decoder": "gpt_neox.layers.{i}."},
)
PHI = transformers_model(
    "phi",
    "PhiForCausalLM",
    lambda c: {
        **_sizes(c),
        "num_key_value_heads": c.kv_heads,
        "rope_theta": c.rope_base,
        "layer_norm_eps": EPS,
        "resid_pdrop": c.dropout,
        "embd_pdrop": c.dropout,
        "partial_rotary_factor": c.rope_fraction,
    },
    supported={
        **CLASSIC,
        **ROPE,
        "output_bias": ANY,
        "rope_fraction": ANY,
        "sublayers": ("parallel_shared_norm",),
    },
    parts={
        "model.embed_tokens.weight": convert("embedding.weight", scale_embeddings),
        "model.final_layernorm.*": convert("decoder_norm.*"),
        "lm_head.weight": convert("output.weight", when=is_untied),
        "lm_head.bias": convert("output_bias"),
    },
    layer={
        "self_attn.q_proj.*": convert("mixer.W_Q.*", split_pairs, biased=True),
        "self_attn.k_proj.*": convert("mixer.W_K.*", split_pairs, biased=True),
        "self_attn.v_proj.*": convert("mixer.W_V.*", biased=True),
        "self_attn.dense.*": convert("mixer.W_O.*", biased=True),
        "mlp.fc1.*": convert("feed_forward.W_1.*", biased=True),
        "mlp.fc2.*": convert("feed_forward.W_2.*", biased=True),
        "input_layernorm.*": convert("around_mixer.norm.*"),
    },
)


def _recurrent_gemma_settings(c: ModelConfig) -> dict[str, Any]:
    return {
        **_sizes(c),
        "num_key_value_heads": c.kv_heads,
        # transformers counts the widths of both projections of the gated network.
        "intermediate_size": 2 * c.inner_width(gated=True),
        "hidden_activation": ACTIVATION_NAMES[c.activation],
        "lru_width": c.n_heads * c.d_v,
        "attention_window_size": c.attention_window + 1,
        "block_types": ["attention" if _attends(layer) else "recurrent" for layer in c.all_layers],
        "logits_soft_cap": c.logit_cap,
        "rms_norm_eps": EPS,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": c.rope_base,
            "partial_rotary_factor": c.rope_fraction,
        },
        "attention_bias": c.attention_bias is True,
        "tie_word_embeddings": c.tied_embeddings == "all",
    }


def _attends(layer: ModelConfig) -> bool:
    return layer.mixer == "attention"


def _has_cap(c: ModelConfig, name: str) -> str:
    return f"no logit_cap, but {name} always has one" if c.logit_cap is None else ""


def _rotates(c: ModelConfig, name: str) -> str:
    plain = any(_attends(layer) and layer.positional_encoding == "none" for layer in c.all_layers)
    if not plain:
        return ""
    return f"positional_encoding=none in layers with attention, which {name} rotates"


RECURRENT_GEMMA = transformers_model(
    "recurrent_gemma",
    "RecurrentGemmaForCausalLM",
    _recurrent_gemma_settings,
    supported={
        "mixer": ("rg_lru", "attention"),
        "attention": ("local",),
        "attention_window": ANY,
        "attention_bias": ("output", True),
        "positional_encoding": ("rope", "none"),
        "rope_base": ANY,
        "rope_fraction": ANY,
        "norm": ("rmsnorm",),
        "norm_position": ("pre",),
        "activation": ("geglu_tanh",),  # the gates of rg_lru have it, too
        "feed_forward_bias": ANY,
        "embedding_scale": ("sqrt(d_model)",),
        "logit_cap": ANY,
    },
    alternating=("mixer", "positional_encoding"),
    rules=(derived_head_sizes, _has_cap, _rotates),
    parts={
        "model.embed_tokens.weight": convert("embedding.weight"),
        "model.final_norm.*": convert("decoder_norm.*", subtract_one),
        "lm_head.weight": convert("output.weight", when=has_output_matrix),
    },
    layer={
        "temporal_pre_norm.*": convert("around_mixer.norm.*", subtract_one),
        "temporal_block.q_proj.*": convert("mixer.W_Q.*", split_pairs),
        "temporal_block.k_proj.*": convert("mixer.W_K.*", split_pairs),
        "temporal_block.v_proj.*": convert("mixer.W_V.*"),
        "temporal_block.o_proj.*": convert("mixer.W_O.*"),
        "temporal_block.linear_y.*": convert("mixer.gate.*"),
        "temporal_block.linear_x.*": convert("mixer.value.*"),
        "temporal_block.linear_out.*": convert("mixer.output.*"),
        "temporal_block.conv_1d.*": convert("mixer.convolution.*"),
        "temporal_block.rg_lru.input_gate_*": convert("mixer.input_gate.*"),
        "temporal_block.rg_lru.recurrent_gate_*": convert("mixer.decay_gate.*"),
        "temporal_block.rg_lru.recurrent_param": convert("mixer.decay"),
        "channel_pre_norm.*": convert("around_feed_forward.norm.*", subtract_one),
        "mlp_block.gate_proj.*": convert("feed_forward.W_1.*", biased=True),
        "mlp_block.up_proj.*": convert("feed_forward.W_3.*", biased=True),
        "mlp_block.down_proj.*": convert("feed_forward.W_2.*", biased=True),
    },
)
CAUSAL = (*LLAMAS, GPT2, GPT_NEOX, GPT_J, PHI, RECURRENT_GEMMA)

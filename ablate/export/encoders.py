"""`MarianMTModel`, `BertForMaskedLM` and `ModernBertForMaskedLM` of Hugging Face's transformers.

Marian's positional encoding has all sines in the first half of a vector and all cosines in the
second, where the paper's formula interleaves them (section 3.5). The entries of every vector of
width d_model are reordered accordingly, in embeddings, norms and projections alike.

Deviation: Marian's layer normalization adds 1e-5 to the variance, this project 1e-6 (norms.EPS),
and Marian's configuration has no field for it. Variances are near 1, so that the states differ by a
few parts in a million.

BERT has a table of positions, which holds sinusoidal ones too. Texts here have neither `[CLS]` nor
`[SEP]`.
"""

from __future__ import annotations

from typing import Any

from ablate.config import ModelConfig
from ablate.data.tokenizer import BOS, EOS
from ablate.export.changes import (
    QUERIES_KEYS_VALUES,
    columns_halved,
    has_output_matrix,
    is_untied,
    repeated_heads,
    rows_halved,
    with_factor,
)
from ablate.export.huggingface import (
    ACTIVATION_NAMES,
    one_base_each,
    rope_bases,
    sizes,
    transformers_model,
    windows,
)
from ablate.export.target import ANY, GATED, UNGATED, derived_head_sizes, equal_cross_heads, of
from ablate.model.norms import EPS


def _marian_settings(c: ModelConfig) -> dict[str, Any]:
    encoder, decoder = c.depths
    return {
        "d_model": c.d_model,
        "encoder_layers": encoder,
        "decoder_layers": decoder,
        "encoder_attention_heads": c.n_heads,
        "decoder_attention_heads": c.n_heads,
        "encoder_ffn_dim": c.d_ff,
        "decoder_ffn_dim": c.d_ff,
        "activation_function": ACTIVATION_NAMES[c.activation],
        "dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "activation_dropout": c.activation_dropout,
        "max_position_embeddings": c.max_positions,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": c.tied_embeddings == "all",
        "tie_word_embeddings": c.tied_embeddings != "none",
        "is_encoder_decoder": True,
        "forced_eos_token_id": EOS,
        "decoder_start_token_id": BOS,
    }


def _marian_attention(theirs: str, ours: str) -> dict[str, Any]:
    return {
        f"{theirs}.q_proj.*": of(f"{ours}.W_Q.*", columns_halved, biased=True),
        f"{theirs}.k_proj.*": of(f"{ours}.W_K.*", columns_halved, repeated_heads, biased=True),
        f"{theirs}.v_proj.*": of(f"{ours}.W_V.*", columns_halved, repeated_heads, biased=True),
        f"{theirs}.out_proj.*": of(f"{ours}.W_O.*", rows_halved, biased=True),
        f"{theirs}_layer_norm.*": of(f"around_{ours}.norm.*", rows_halved),
    }


MARIAN = transformers_model(
    "marian",
    "MarianMTModel",
    _marian_settings,
    supported={
        "attention_bias": ANY,
        "feed_forward_bias": ANY,
        "output_bias": ANY,
        "activation": UNGATED,
        "embedding_scale": ("sqrt(d_model)",),
        "positional_encoding": ("sinusoidal",),
        "norm": ("layernorm",),
        "norm_position": ("post",),
    },
    rules=(derived_head_sizes, equal_cross_heads),
    parts={
        "model.shared.weight": of(
            "embedding.weight", columns_halved, when=lambda c: c.tied_embeddings == "all"
        ),
        "model.decoder.embed_tokens.weight": of(
            "embedding.weight", columns_halved, when=lambda c: c.tied_embeddings != "all"
        ),
        "model.encoder.embed_tokens.weight": of("source_embedding.weight", columns_halved),
        "lm_head.weight": of("output.weight", columns_halved, when=has_output_matrix),
        "final_logits_bias": of("output_bias", join=lambda tensors, c: tensors[0][None]),
    },
    layer={
        **_marian_attention("self_attn", "mixer"),
        **_marian_attention("encoder_attn", "cross_attention"),
        "fc1.*": of("feed_forward.W_1.*", columns_halved, biased=True),
        "fc2.*": of("feed_forward.W_2.*", rows_halved, biased=True),
        "final_layer_norm.*": of("around_feed_forward.norm.*", rows_halved),
    },
    stacks={"encoder": "model.encoder.layers.{i}.", "decoder": "model.decoder.layers.{i}."},
)


def _bert_settings(c: ModelConfig) -> dict[str, Any]:
    return {
        **sizes(c),
        "hidden_act": ACTIVATION_NAMES[c.activation],
        "hidden_dropout_prob": c.dropout,
        "attention_probs_dropout_prob": c.attention_dropout,
        "type_vocab_size": max(1, c.token_types),
        "layer_norm_eps": EPS,
    }


BERT = transformers_model(
    "bert",
    "BertForMaskedLM",
    _bert_settings,
    supported={
        "attention_bias": ANY,
        "feed_forward_bias": ANY,
        "activation": UNGATED,
        "positional_encoding": ("learned", "sinusoidal", "none"),
        "norm": ("layernorm",),
        "norm_position": ("post",),
        "embedding_norm": (True,),
        "output_transform": (True,),
        "output_bias": ANY,
    },
    parts={
        "bert.embeddings.word_embeddings.weight": of("embedding.weight", with_factor),
        "bert.embeddings.position_embeddings.weight": of("positions.weight"),
        "bert.embeddings.token_type_embeddings.weight": of("token_types.weight"),
        "bert.embeddings.LayerNorm.*": of("embedding_norm.*"),
        "cls.predictions.transform.dense.*": of("output_transform.linear.*"),
        "cls.predictions.transform.LayerNorm.*": of("output_transform.norm.*"),
        "cls.predictions.bias": of("output_bias"),
        "cls.predictions.decoder.weight": of("output.weight", when=is_untied),
        "cls.predictions.decoder.bias": of("output_bias", when=is_untied),
    },
    layer={
        "attention.self.query.*": of("mixer.W_Q.*", biased=True),
        "attention.self.key.*": of("mixer.W_K.*", repeated_heads, biased=True),
        "attention.self.value.*": of("mixer.W_V.*", repeated_heads, biased=True),
        "attention.output.dense.*": of("mixer.W_O.*", biased=True),
        "attention.output.LayerNorm.*": of("around_mixer.norm.*"),
        "intermediate.dense.*": of("feed_forward.W_1.*", biased=True),
        "output.dense.*": of("feed_forward.W_2.*", biased=True),
        "output.LayerNorm.*": of("around_feed_forward.norm.*"),
    },
    stacks={"encoder": "bert.encoder.layer.{i}."},
)


def _modern_bert_settings(c: ModelConfig) -> dict[str, Any]:
    bases = rope_bases(c)
    rotations = {}
    for ours, theirs, base in (("full", "full", 160_000.0), ("local", "sliding", 10_000.0)):
        theta = max(bases[ours], default=base)
        rotations[f"{theirs}_attention"] = {"rope_type": "default", "rope_theta": theta}
    return {
        **sizes(c),
        "hidden_activation": ACTIVATION_NAMES[c.activation],
        "classifier_activation": ACTIVATION_NAMES[c.activation],
        "embedding_dropout": c.dropout,
        "attention_dropout": c.attention_dropout,
        "mlp_dropout": c.activation_dropout,
        "layer_types": windows(c)["layer_types"],
        "local_attention": 2 * c.attention_window,
        "rope_parameters": rotations,
        "attention_bias": c.attention_bias,
        "mlp_bias": c.feed_forward_bias,
        "classifier_bias": c.output_transform is True,
        "norm_eps": EPS,
        # Marks of texts, which have none here.
        "cls_token_id": BOS,
        "sep_token_id": EOS,
    }


MODERN_BERT = transformers_model(
    "modernbert",
    "ModernBertForMaskedLM",
    _modern_bert_settings,
    supported={
        "attention": ("full", "local"),
        "attention_window": ANY,
        "attention_bias": (False, True),
        "feed_forward_bias": ANY,
        "activation": GATED,
        "positional_encoding": ("rope",),
        "rope_base": ANY,
        "norm": ("layernorm_no_bias",),
        "norm_position": ("pre",),
        "embedding_norm": ("first",),
        "output_transform": (True, "without_bias"),
        "output_bias": ANY,
    },
    alternating=("attention", "rope_base"),
    rules=(derived_head_sizes, one_base_each),
    parts={
        "model.embeddings.tok_embeddings.weight": of("embedding.weight", with_factor),
        "model.embeddings.norm.*": of("embedding_norm.*"),
        "model.final_norm.*": of("encoder_norm.*"),
        "head.dense.*": of("output_transform.linear.*"),
        "head.norm.*": of("output_transform.norm.*"),
        "decoder.weight": of("output.weight", when=is_untied),
        "decoder.bias": of("output_bias"),
    },
    layer={
        "attn.Wqkv.*": of(*QUERIES_KEYS_VALUES),
        "attn.Wo.*": of("mixer.W_O.*"),
        "attn_norm.*": of("around_mixer.norm.*"),
        "mlp.Wi.*": of("feed_forward.W_1.*", "feed_forward.W_3.*"),
        "mlp.Wo.*": of("feed_forward.W_2.*"),
        "mlp_norm.*": of("around_feed_forward.norm.*"),
    },
    stacks={"encoder": "model.layers.{i}."},
)

"""`MarianMTModel`, `BertForMaskedLM` and `ModernBertForMaskedLM` of Hugging Face's transformers.

Marian's positional encoding has the sines in the first half of a vector and the cosines in the
second half; the paper's formula interleaves them (section 3.5). So the entries of every vector of
width d_model are reordered, in embeddings, norms and projections.

Deviation: Marian's layer normalization adds 1e-5 to the variance, ablate 1e-6 (norms.EPS), and the
configuration of Marian has no field for it. Variances are near 1, so that the states differ by a
few parts in a million.

BERT has a table of positions, into which sinusoidal positions are written, too. Texts of ablate
have neither `[CLS]` nor `[SEP]`.
"""

from __future__ import annotations

from typing import Any

from ablate.config import ModelConfig
from ablate.data.tokenizer import BOS, EOS
from ablate.export.changes import (
    QUERIES_KEYS_VALUES,
    has_output_matrix,
    is_untied,
    repeat_heads,
    scale_embeddings,
    split_even_odd,
    split_even_odd_columns,
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
from ablate.export.target import ANY, convert, derived_head_sizes, equal_cross_heads
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
        f"{theirs}.q_proj.*": convert(f"{ours}.W_Q.*", split_even_odd_columns, biased=True),
        f"{theirs}.k_proj.*": convert(
            f"{ours}.W_K.*", split_even_odd_columns, repeat_heads, biased=True
        ),
        f"{theirs}.v_proj.*": convert(
            f"{ours}.W_V.*", split_even_odd_columns, repeat_heads, biased=True
        ),
        f"{theirs}.out_proj.*": convert(f"{ours}.W_O.*", split_even_odd, biased=True),
        f"{theirs}_layer_norm.*": convert(f"around_{ours}.norm.*", split_even_odd),
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
        "model.shared.weight": convert(
            "embedding.weight", split_even_odd_columns, when=lambda c: c.tied_embeddings == "all"
        ),
        "model.decoder.embed_tokens.weight": convert(
            "embedding.weight", split_even_odd_columns, when=lambda c: c.tied_embeddings != "all"
        ),
        "model.encoder.embed_tokens.weight": convert(
            "source_embedding.weight", split_even_odd_columns
        ),
        "lm_head.weight": convert("output.weight", split_even_odd_columns, when=has_output_matrix),
        "final_logits_bias": convert("output_bias", join=lambda tensors, c: tensors[0][None]),
    },
    layer={
        **_marian_attention("self_attn", "mixer"),
        **_marian_attention("encoder_attn", "cross_attention"),
        "fc1.*": convert("feed_forward.W_1.*", split_even_odd_columns, biased=True),
        "fc2.*": convert("feed_forward.W_2.*", split_even_odd, biased=True),
        "final_layer_norm.*": convert("around_feed_forward.norm.*", split_even_odd),
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
        "bert.embeddings.word_embeddings.weight": convert("embedding.weight", scale_embeddings),
        "bert.embeddings.position_embeddings.weight": convert("positions.weight"),
        "bert.embeddings.token_type_embeddings.weight": convert("token_types.weight"),
        "bert.embeddings.LayerNorm.*": convert("embedding_norm.*"),
        "cls.predictions.transform.dense.*": convert("output_transform.linear.*"),
        "cls.predictions.transform.LayerNorm.*": convert("output_transform.norm.*"),
        "cls.predictions.bias": convert("output_bias"),
        "cls.predictions.decoder.weight": convert("output.weight", when=is_untied),
        "cls.predictions.decoder.bias": convert("output_bias", when=is_untied),
    },
    layer={
        "attention.self.query.*": convert("mixer.W_Q.*", biased=True),
        "attention.self.key.*": convert("mixer.W_K.*", repeat_heads, biased=True),
        "attention.self.value.*": convert("mixer.W_V.*", repeat_heads, biased=True),
        "attention.output.dense.*": convert("mixer.W_O.*", biased=True),
        "attention.output.LayerNorm.*": convert("around_mixer.norm.*"),
        "intermediate.dense.*": convert("feed_forward.W_1.*", biased=True),
        "output.dense.*": convert("feed_forward.W_2.*", biased=True),
        "output.LayerNorm.*": convert("around_feed_forward.norm.*"),
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
        # Texts of ablate have neither token; transformers needs an id for both.
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
    rules=(derived_head_sizes, single_rope_bases),
    parts={
        "model.embeddings.tok_embeddings.weight": convert("embedding.weight", scale_embeddings),
        "model.embeddings.norm.*": convert("embedding_norm.*"),
        "model.final_norm.*": convert("encoder_norm.*"),
        "head.dense.*": convert("output_transform.linear.*"),
        "head.norm.*": convert("output_transform.norm.*"),
        "decoder.weight": convert("output.weight", when=is_untied),
        "decoder.bias": convert("output_bias"),
    },
    layer={
        "attn.Wqkv.*": convert(*QUERIES_KEYS_VALUES),
        "attn.Wo.*": convert("mixer.W_O.*"),
        "attn_norm.*": convert("around_mixer.norm.*"),
        "mlp.Wi.*": convert("feed_forward.W_1.*", "feed_forward.W_3.*"),
        "mlp.Wo.*": convert("feed_forward.W_2.*"),
        "mlp_norm.*": convert("around_feed_forward.norm.*"),
    },
    stacks={"encoder": "model.layers.{i}."},
)

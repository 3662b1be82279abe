"""torch.nn.Transformer, between our embeddings with positions and our output matrix."""

import math
from random import Random

import torch
from torch import Tensor, nn

from ablate.model.norms import EPS
from tests.parity.cases import Case, Settings, compared, usual_sizes
from tests.parity.copying import Weights, fused, load, renamed, weights_of, with_attention_biases
from tests.parity.row import Row

NAMES = {
    "encoder": "encoder.layers",
    "decoder": "decoder.layers",
    "mixer": "self_attn",
    "cross_attention": "multihead_attn",
    "W_QKV.weight": "in_proj_weight",
    "W_QKV.bias": "in_proj_bias",
    "W_O": "out_proj",
    "feed_forward.W_1": "linear1",
    "feed_forward.W_2": "linear2",
    "around_mixer.norm": "norm1",
    "encoder.#.around_feed_forward.norm": "encoder.layers.#.norm2",
    "around_cross_attention.norm": "norm2",
    "decoder.#.around_feed_forward.norm": "decoder.layers.#.norm3",
    "encoder_norm": "encoder.norm",
    "decoder_norm": "decoder.norm",
}


def transformer(case: Case, weights: Weights) -> nn.Module:
    """torch.nn.Transformer with these weights; a stack ends with a norm only for pre-norm, as ours
    does.
    """
    c = case.config
    first = c.norm_position == "pre"
    shape = {
        "d_model": c.d_model, "nhead": c.n_heads, "dim_feedforward": c.d_ff, "dropout": 0.0, "norm_first": first,
        "activation": c.activation, "layer_norm_eps": EPS, "batch_first": True,
    }  # fmt: skip
    last = [nn.LayerNorm(c.d_model, EPS) if first else None for _ in range(2)]
    encoder, decoder = nn.TransformerEncoderLayer(**shape), nn.TransformerDecoderLayer(**shape)
    stacks = {
        "custom_encoder": nn.TransformerEncoder(
            encoder, c.depths[0], last[0], enable_nested_tensor=False
        ),
        "custom_decoder": nn.TransformerDecoder(decoder, c.depths[1], last[1]),
    }
    stack_weights = {name: weight for name, weight in weights.items() if "embedding" not in name}
    named = renamed(fused(with_attention_biases(stack_weights)), NAMES)
    return load(nn.Transformer(c.d_model, c.n_heads, batch_first=True, **stacks), named)


def logits(case: Case) -> Tensor:
    """Logits at the target tokens: E times the states of torch.nn.Transformer on sqrt(d_model)
    E[token] + position.
    """
    weights = weights_of(case.model)
    ours = [
        weights[name] for name in ("source_embedding.weight", "embedding.weight") if name in weights
    ]
    source, target = (
        matrix[tokens] * math.sqrt(case.config.d_model)
        + positions(*tokens.shape[1:], case.config.d_model)
        for matrix, tokens in ((ours[0], case.source), (ours[-1], case.target))
    )
    padding = case.source == 0
    ahead = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
    states = transformer(case, weights)(
        source,
        target,
        tgt_mask=ahead,
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    return case.of_tokens(states @ weights["embedding.weight"].T)


def positions(count: int, d_model: int) -> Tensor:
    """The sinusoids of section 3.5, one entry at a time."""
    table = torch.empty(count, d_model)
    for pos in range(count):
        for i in range(d_model // 2):
            angle = pos / 10000 ** (2 * i / d_model)
            table[pos, 2 * i], table[pos, 2 * i + 1] = math.sin(angle), math.cos(angle)
    return table


def _row(what: str, **fields: object) -> Row:
    def settings(draw: Random) -> Settings:
        return {**usual_sizes(draw), **fields}

    return Row("torch.nn.Transformer", what, compared(settings, logits))


ROWS = (
    _row("post-norm, sinusoidal, relu: the paper's"),
    _row(
        "pre-norm, sinusoidal, gelu, attention biases",
        norm_position="pre",
        activation="gelu",
        attention_bias=True,
    ),
    _row("post-norm, sinusoidal, relu, source embeddings apart", tied_embeddings="decoder"),
)

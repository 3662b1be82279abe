"""Marian in transformers: the paper's model, with biases in attention (Junczys-Dowmunt et al.,
2018). Its logits are compared in tests/export/test_marian.py.
"""

import torch
from torch import Tensor, nn
from transformers import MarianConfig, MarianMTModel

from ablate.data.tokenizer import BOS, EOS, PAD
from ablate.model.norms import EPS
from tests.parity.cases import Case
from tests.parity.copying import Weights, load, renamed, weights_of, with_attention_biases

NAMES = {
    "embedding": "model.shared",
    "encoder": "model.encoder.layers",
    "decoder": "model.decoder.layers",
    "mixer": "self_attn",
    "cross_attention": "encoder_attn",
    "W_Q": "q_proj",
    "W_K": "k_proj",
    "W_V": "v_proj",
    "W_O": "out_proj",
    "feed_forward.W_1": "fc1",
    "feed_forward.W_2": "fc2",
    "around_mixer.norm": "self_attn_layer_norm",
    "around_cross_attention.norm": "encoder_attn_layer_norm",
    "around_feed_forward.norm": "final_layer_norm",
}
# Weights with d_model as last axis, and weights without d_model; all others have it as first axis.
READS_D_MODEL = (
    "embedding.weight", "output.weight", "W_Q.weight", "W_K.weight", "W_V.weight", "W_1.weight",
)  # fmt: skip
APART_FROM_D_MODEL = ("W_Q.bias", "W_K.bias", "W_V.bias", "W_1.bias")


def marian(case: Case) -> MarianMTModel:
    """Marian with the case's weights."""
    c = case.config
    encoder, decoder = c.depths
    config = MarianConfig(
        vocab_size=case.V, d_model=c.d_model, encoder_layers=encoder, decoder_layers=decoder,
        encoder_attention_heads=c.n_heads, decoder_attention_heads=c.n_heads,
        encoder_ffn_dim=c.d_ff, decoder_ffn_dim=c.d_ff, activation_function=c.activation,
        max_position_embeddings=c.max_positions, scale_embedding=True, attn_implementation="eager",
        share_encoder_decoder_embeddings=True, tie_word_embeddings=True,
        pad_token_id=PAD, eos_token_id=EOS, decoder_start_token_id=BOS, forced_eos_token_id=None,
    )  # fmt: skip
    theirs = MarianMTModel(config)
    for module in theirs.modules():
        if isinstance(module, nn.LayerNorm):
            module.eps = EPS
    weights = sines_first(with_attention_biases(weights_of(case.model)), c.d_model)
    return load(theirs, renamed(weights, NAMES))


def sines_first(weights: Weights, d_model: int) -> Weights:
    """Reorder the entries of d_model as in Marian, whose positions have all sines before all
    cosines.
    """
    order = torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])

    def ordered(name: str, weight: Tensor) -> Tensor:
        if name.endswith(READS_D_MODEL):
            return weight[:, order]
        return weight if name.endswith(APART_FROM_D_MODEL) else weight[order]

    return {name: ordered(name, weight) for name, weight in weights.items()}

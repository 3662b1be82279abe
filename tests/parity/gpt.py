"""GPT-2 and MPT in transformers: a causal stack with learned positions, or with ALiBi (Radford et
al., 2019).
"""

from random import Random

from torch import Tensor, nn
from transformers import GPT2Config, GPT2LMHeadModel, MptConfig, MptForCausalLM

from ablate.data.tokenizer import PAD
from ablate.model.norms import EPS
from tests.parity.cases import Case, Settings, compared, usual_sizes
from tests.parity.copying import fused, load, renamed, unscaled, weights_of, without_biases
from tests.parity.row import Row

GPT2 = {
    "embedding": "transformer.wte",
    "positions": "transformer.wpe",
    "decoder": "transformer.h",
    "decoder_norm": "transformer.ln_f",
    "mixer.W_QKV": "attn.c_attn",
    "mixer.W_O": "attn.c_proj",
    "feed_forward.W_1": "mlp.c_fc",
    "feed_forward.W_2": "mlp.c_proj",
    "around_mixer.norm": "ln_1",
    "around_feed_forward.norm": "ln_2",
}
MPT = {
    "embedding": "transformer.wte",
    "decoder": "transformer.blocks",
    "decoder_norm": "transformer.norm_f",
    "mixer.W_QKV": "attn.Wqkv",
    "mixer.W_O": "attn.out_proj",
    "feed_forward.W_1": "ffn.up_proj",
    "feed_forward.W_2": "ffn.down_proj",
    "around_mixer.norm": "norm_1",
    "around_feed_forward.norm": "norm_2",
}
FIELDS = {"architecture": "decoder-only", "norm_position": "pre", "activation": "gelu"}


def gpt2(case: Case) -> Tensor:
    """Logits of GPT-2 at the target tokens."""
    c = case.config
    config = GPT2Config(
        vocab_size=case.V, n_embd=c.d_model, n_layer=c.depths[1], n_head=c.n_heads, n_inner=c.d_ff,
        n_positions=c.max_positions, activation_function="gelu", layer_norm_epsilon=EPS, attn_implementation="eager",
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    weights = unscaled(fused(weights_of(case.model)), c.d_model)
    # The matrices of its linear layers are the transposes of ours.
    weights = {
        name: weight.T if ".W_" in name and weight.dim() == 2 else weight
        for name, weight in weights.items()
    }
    return _logits(load(GPT2LMHeadModel(config), renamed(weights, GPT2)), case)


def mpt(case: Case) -> Tensor:
    """Logits of MPT at the target tokens."""
    c = case.config
    config = MptConfig(
        vocab_size=case.V, d_model=c.d_model, n_layers=c.depths[1], n_heads=c.n_heads, max_seq_len=c.max_positions,
        expansion_ratio=4, layer_norm_epsilon=EPS, attn_implementation="eager",
    )  # fmt: skip
    weights = unscaled(fused(without_biases(case.model)), c.d_model)
    return _logits(load(MptForCausalLM(config), renamed(weights, MPT)), case)


def _logits(theirs: nn.Module, case: Case) -> Tensor:
    sequence = case.in_a_row()
    return case.of_targets(
        theirs(input_ids=sequence, attention_mask=(sequence != PAD).long()).logits
    )


def _for_gpt2(draw: Random) -> Settings:
    return {**usual_sizes(draw), **FIELDS, "positional_encoding": "learned", "attention_bias": True}


def _for_mpt(draw: Random) -> Settings:
    sizes = usual_sizes(draw)
    return {
        **sizes,
        **FIELDS,
        "positional_encoding": "alibi",
        "d_ff": 4 * sizes["d_model"],
    }  # MPT supports no other ratio


ROWS = (
    Row(
        "transformers GPT2LMHeadModel",
        "learned, pre-norm, gelu, attention biases",
        compared(_for_gpt2, gpt2),
    ),
    Row("transformers MptForCausalLM", "alibi, pre-norm, gelu", compared(_for_mpt, mpt)),
)

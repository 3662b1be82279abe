"""T5 in transformers: bucketed distances, RMSNorm, unscaled scores (Raffel et al., 2020)."""

from collections.abc import Sequence
from random import Random

from torch import Tensor
from transformers import T5Config, T5ForConditionalGeneration

from ablate.data.tokenizer import PAD
from ablate.model.norms import EPS
from tests.parity.cases import SEEDS, Case, Settings, compared, free_sizes
from tests.parity.copying import load, renamed, without_biases
from tests.parity.row import Row

BUCKETS = "block.0.layer.0.SelfAttention.relative_attention_bias"
NAMES = {
    "embedding": "shared",
    "source_positions": f"encoder.{BUCKETS}",
    "target_positions": f"decoder.{BUCKETS}",
    "encoder": "encoder.block",
    "decoder": "decoder.block",
    "mixer": "layer.0.SelfAttention",
    "around_mixer.norm": "layer.0.layer_norm",
    "cross_attention": "layer.1.EncDecAttention",
    "around_cross_attention.norm": "layer.1.layer_norm",
    "encoder.#.feed_forward": "encoder.block.#.layer.1.DenseReluDense",
    "encoder.#.around_feed_forward.norm": "encoder.block.#.layer.1.layer_norm",
    "decoder.#.feed_forward": "decoder.block.#.layer.2.DenseReluDense",
    "decoder.#.around_feed_forward.norm": "decoder.block.#.layer.2.layer_norm",
    "encoder_norm": "encoder.final_layer_norm",
    "decoder_norm": "decoder.final_layer_norm",
    "W_Q": "q",
    "W_K": "k",
    "W_V": "v",
    "W_O": "o",
    "W_2": "wo",
}
PLAIN = {"W_1": "wi"}
GATED = {"W_1": "wi_0", "W_3": "wi_1"}


def logits(case: Case) -> Tensor:
    """Logits of T5 at the target tokens."""
    c = case.config
    encoder, decoder = c.depths
    gated = c.activation == "swiglu"
    config = T5Config(
        vocab_size=case.V, d_model=c.d_model, d_kv=c.d_k, d_ff=c.inner_width(gated), num_heads=c.n_heads,
        num_layers=encoder, num_decoder_layers=decoder, feed_forward_proj="gated-silu" if gated else "relu",
        layer_norm_epsilon=EPS, attn_implementation="eager",
    )  # fmt: skip
    weights = without_biases(case.model)
    # T5 scales the states before the logits and not the embeddings, so that its matrix is
    # sqrt(d_model) times ours.
    weights["embedding.weight"] = weights["embedding.weight"] * c.d_model**0.5
    theirs = load(
        T5ForConditionalGeneration(config), renamed(weights, NAMES | (GATED if gated else PLAIN))
    )
    source = {"input_ids": case.source, "attention_mask": case.source != PAD}
    return case.of_tokens(theirs(**source, decoder_input_ids=case.target).logits)


def _row(activation: str, longest: int = 13, seeds: Sequence[int] = SEEDS) -> Row:
    def settings(draw: Random) -> Settings:
        sizes = free_sizes(draw)
        fields = {
            "positional_encoding": "t5",
            "norm": "rmsnorm",
            "norm_position": "pre",
            "attention_scale": 1,
        }
        return {**sizes, "d_v": sizes["d_k"], "activation": activation, **fields}

    what = f"t5, rmsnorm, pre-norm, scale 1, {activation}, up to {longest} tokens"
    return Row(
        "transformers T5ForConditionalGeneration", what, compared(settings, logits, seeds, longest)
    )


# Past 128 tokens all distances share a bucket.
ROWS = (_row("relu"), _row("relu", longest=150, seeds=(1,)), _row("swiglu"))

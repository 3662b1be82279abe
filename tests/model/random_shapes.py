"""Random valid configurations over every field of the model."""

from hypothesis import strategies as st

from ablate.config import ModelConfig, resolve_row
from ablate.config.model import LAYER_FIELDS
from ablate.config.variants import (
    ACTIVATIONS,
    LAYER_SKIPS,
    NORM_POSITIONS,
    NORMS,
    POSITIONAL_ENCODINGS,
)
from ablate.model.recurrent_mixers import RECURRENT_MIXERS

LONGEST = 11  # tokens of a side, its mark counted
_layers = st.integers(1, 3)
_size = st.integers(1, 8)
_rate = st.sampled_from([0.0, 0.1, 0.6])
_kv_heads = st.sampled_from([None, 1, 2])
# Values of each field: small, so that windows and clips matter, and chosen so that many
# combinations are valid.
FIELDS = {
    "architecture": st.sampled_from(["encoder-decoder", "decoder-only"]),
    "n_layers": _layers,
    "loops": st.sampled_from([1, 1, 1, 2]),
    "encoder_layers": st.none() | _layers,
    "decoder_layers": st.none() | _layers,
    "d_model": st.integers(2, 17),
    "d_ff": st.integers(1, 23),
    "n_heads": st.integers(1, 4),
    "n_kv_heads": _kv_heads,
    "kv_rank": st.sampled_from([None] * 6 + [1, 4]),
    "query_rank": st.none() | st.integers(1, 5),
    "n_cross_heads": st.none() | st.integers(1, 4),
    "d_k": _size,
    "d_v": _size,
    "dropout": _rate,
    "attention_dropout": _rate,
    "activation_dropout": _rate,
    "positional_encoding": st.sampled_from(list(POSITIONAL_ENCODINGS)),
    "relative_clip": st.integers(1, 5),
    "rope_base": st.sampled_from([100.0, 10_000.0, 1e6]),
    "rope_fraction": st.sampled_from([0.25, 0.5, 1.0]),
    "rope_scaling": st.sampled_from(["none", "none", "linear", "yarn"]),
    "rope_factor": st.sampled_from([2.0, 3.5]),
    "max_positions": st.integers(2 * LONGEST, 40),
    "mixer": st.sampled_from([*["attention"] * 8, "lstm", *RECURRENT_MIXERS]),
    "attention": st.sampled_from(["full", "full", "local", "linear", "differential"]),
    "attention_window": st.integers(1, 5),
    "attention_scale": st.sampled_from(["1/sqrt(d_k)", 1]),
    "attention_bias": st.sampled_from([False, True, "inputs"]),
    "attention_gate": st.sampled_from(["none", "head", "element"]),
    "attention_sinks": st.booleans(),
    "attention_convolution": st.sampled_from(["none", "none", "input", "qkv"]),
    "value_embeddings": st.sampled_from(["none", "none", "added", "gated"]),
    "value_embedding_rank": st.none() | st.integers(1, 5),
    "value_residual": st.booleans(),
    "exclude_own_value": st.booleans(),
    "score_cap": st.none() | st.sampled_from([0.5, 30.0]),
    "qk_norm": st.sampled_from(["none", "none", "head", "width", "unit"]),
    "feed_forward": st.sampled_from(["network", "network", "network", "none"]),
    "activation": st.sampled_from(list(ACTIVATIONS)),
    "n_experts": st.none() | st.none() | st.integers(2, 4),
    "experts_per_token": st.integers(1, 2),
    "shared_experts": st.integers(0, 1),
    "expert_weights": st.sampled_from(["softmax", "softmax_of_chosen", "sigmoid"]),
    "shared_expert_gate": st.booleans(),
    "expert_scale": st.sampled_from([1.0, 2.5]),
    "router_bias": st.booleans(),
    "expert_balance_by": st.sampled_from(["loss", "bias"]),
    "expert_balance": st.sampled_from([0.0, 0.01]),
    "feed_forward_bias": st.booleans(),
    "norm": st.sampled_from(list(NORMS)),
    "norm_position": st.sampled_from(list(NORM_POSITIONS)),
    "norm_scale": st.sampled_from(["none", "depth"]),
    "sublayers": st.sampled_from(["sequential", "sequential", "parallel", "parallel_shared_norm"]),
    "residual": st.booleans(),
    "residual_scale": st.sampled_from(["none", "none", "depth", "scalar", "rezero", "layerscale"]),
    "embedding_scale": st.sampled_from(["sqrt(d_model)", 1]),
    "initialization": st.sampled_from(["xavier", "normal", "orthogonal"]),
    "initialization_std": st.sampled_from([0.02, 0.5]),
    # Others need a learning rate; tests/training/test_parametrization.py has them.
    "parametrization": st.just("standard"),
    "base_width": st.integers(2, 17),
    "base_depth": st.integers(1, 3),
    "output_initialization": st.sampled_from(["same", "depth", "zero"]),
    "embedding_skip": st.sampled_from([False, False, False, False, True]),
    "stream_scale": st.sampled_from([False, False, False, False, True]),
    "layer_skips": st.sampled_from(["none", *LAYER_SKIPS]),
    "smear": st.booleans(),
    "bigram_embeddings": st.none() | st.integers(2, 40),
    "output_bias": st.booleans(),
    "logit_cap": st.none() | st.just(3.0),
    "z_loss": st.sampled_from([0.0, 1e-3]),
    "tied_embeddings": st.sampled_from(["all", "decoder", "none"]),
}
# Drawn in tests/model/test_encoder_only.py: the properties here are those of models with a decoder.
OF_ENCODER_ONLY = {"embedding_norm", "token_types", "output_transform"}


def resolved(settings):
    """The configuration, or None if the settings cannot be combined."""
    try:
        return resolve_row(settings)
    except ValueError:
        return None


def shapes(**fixed):
    """Strategy for the configurations of a study; all fields but these are random."""
    given = {name: st.just(value) for name, value in fixed.items()}
    return (
        _settings({**FIELDS, **given}, sorted(set(LAYER_FIELDS) - fixed.keys()))
        .map(resolved)
        .filter(lambda config: config is not None)
    )


@st.composite
def _settings(draw, fields, of_layers):
    """Values of all fields, of which up to three alternate over the layers."""
    values = draw(st.fixed_dictionaries(fields))
    least = draw(st.sampled_from([0, 1, 1, 2]))
    for name in draw(st.sets(st.sampled_from(of_layers), min_size=least, max_size=3)):
        values[name] = draw(st.lists(fields[name], min_size=2, max_size=3))
    if values["kv_rank"] is not None:
        values["n_kv_heads"] = None
    if values["residual"] is not True:
        # A token that attends to itself alone would leave nothing but rounding errors.
        values["exclude_own_value"] = False
    return values


def names():
    """Names of all fields of the model."""
    return set(ModelConfig.model_fields)

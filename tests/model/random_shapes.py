"""Random valid configurations over every field of the model."""

from hypothesis import strategies as st

from ablate.config import ModelConfig, resolve_row
from ablate.config.variants import POSITIONAL_ENCODINGS

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
    "encoder_layers": st.none() | _layers,
    "decoder_layers": st.none() | _layers,
    "d_model": st.integers(2, 17),
    "d_ff": st.integers(1, 23),
    "n_heads": st.integers(1, 4),
    "n_kv_heads": _kv_heads,
    "n_cross_heads": st.none() | st.integers(1, 4),
    "d_k": _size,
    "d_v": _size,
    "dropout": _rate,
    "attention_dropout": _rate,
    "activation_dropout": _rate,
    "positional_encoding": st.sampled_from(list(POSITIONAL_ENCODINGS)),
    "relative_clip": st.integers(1, 5),
    "max_positions": st.integers(2 * LONGEST, 40),
    "mixer": st.sampled_from(["attention", "attention", "lstm"]),
    "attention": st.sampled_from(["full", "local", "linear"]),
    "attention_window": st.integers(1, 5),
    "attention_scale": st.sampled_from(["1/sqrt(d_k)", 1]),
    "attention_bias": st.booleans(),
    "activation": st.sampled_from(["relu", "gelu", "swiglu"]),
    "feed_forward_bias": st.booleans(),
    "norm": st.sampled_from(["layernorm", "rmsnorm"]),
    "norm_position": st.sampled_from(["post", "pre", "none"]),
    "residual": st.booleans(),
    "embedding_scale": st.sampled_from(["sqrt(d_model)", 1]),
    "tied_embeddings": st.sampled_from(["all", "decoder", "none"]),
}
# Drawn in tests/model/test_encoder_only.py: the properties here are those of models with a decoder.
OF_ENCODER_ONLY = {"embedding_norm", "token_types", "output_transform", "output_bias"}


def resolved(settings):
    """The configuration, or None if the settings cannot be combined."""
    try:
        return resolve_row(settings)
    except ValueError:
        return None


def shapes(**fixed):
    """Strategy for the configurations of a study; all fields but these are random."""
    drawn = {name: values for name, values in FIELDS.items() if name not in fixed}
    given = {name: st.just(value) for name, value in fixed.items()}
    return (
        st.fixed_dictionaries({**drawn, **given})
        .map(resolved)
        .filter(lambda config: config is not None)
    )


def names():
    """Names of all fields of the model."""
    return set(ModelConfig.model_fields)

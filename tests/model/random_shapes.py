"""Random valid configurations over every field of the model."""

from hypothesis import strategies as st

from ablate.config import ModelConfig
from ablate.config.model import LAYER_FIELDS
from ablate.config.resolve import resolve_row
from ablate.parts.feed_forward import ACTIVATIONS
from ablate.parts.mixers import MIXERS
from ablate.parts.norms import NORM_POSITIONS, NORMS
from ablate.parts.positions import POSITIONAL_ENCODINGS
from ablate.parts.residual import LAYER_SKIPS

RECURRENT_NETWORKS = ("lstm", "gru")
RECURRENT_MIXERS = tuple(name for name, mixer in MIXERS.items() if not mixer.reads_both_ways)

LONGEST = 11  # tokens of a side, its mark counted
_layers, _size, _rate = [1, 2, 3], list(range(1, 9)), [0.0, 0.1, 0.6]
_boolean = [False, True]
# Values of each field: small, so that windows and clips matter, and chosen so that many
# combinations are valid. What is written several times is drawn more often.
VALUES = {
    "architecture": ["encoder-decoder", "decoder-only"],
    "n_layers": _layers,
    "loops": [1, 1, 1, 2],
    "encoder_layers": [None, None, *_layers],
    "decoder_layers": [None, None, *_layers],
    "d_model": list(range(2, 18)),
    "d_ff": list(range(1, 24)),
    "n_heads": list(range(1, 5)),
    "n_kv_heads": [None, 1, 2],
    "kv_rank": [None] * 6 + [1, 4],
    "query_rank": [None, 1, 5],
    "n_cross_heads": [None, None, 1, 2, 4],
    "d_k": _size,
    "d_v": _size,
    "dropout": _rate,
    "attention_dropout": _rate,
    "activation_dropout": _rate,
    "positional_encoding": list(POSITIONAL_ENCODINGS),
    "relative_clip": list(range(1, 6)),
    "rope_base": [100.0, 10_000.0, 1e6],
    "rope_fraction": [0.25, 0.5, 1.0],
    "rope_scaling": ["none", "none", "linear", "yarn"],
    "rope_factor": [2.0, 3.5],
    "max_positions": list(range(2 * LONGEST, 41)),
    "mixer": [*["attention"] * 8, *RECURRENT_NETWORKS, *RECURRENT_MIXERS],
    "attention": ["full", "full", "local", "linear", "differential"],
    "attention_window": list(range(1, 6)),
    "attention_scale": ["1/sqrt(d_k)", 1],
    "attention_bias": [False, True, "inputs"],
    "attention_gate": ["none", "head", "element"],
    "attention_sinks": _boolean,
    "attention_convolution": ["none", "none", "input", "qkv"],
    "value_embeddings": ["none", "none", "added", "gated"],
    "value_embedding_rank": [None, 1, 5],
    "value_residual": _boolean,
    "exclude_own_value": _boolean,
    "score_cap": [None, 0.5, 30.0],
    "qk_norm": ["none", "none", "head", "width", "unit"],
    "feed_forward": ["network", "network", "network", "none"],
    "activation": list(ACTIVATIONS),
    "n_experts": [None, None, *range(2, 5)],
    "experts_per_token": list(range(1, 3)),
    "shared_experts": list(range(0, 2)),
    "expert_weights": ["softmax", "softmax_of_chosen", "sigmoid"],
    "shared_expert_gate": _boolean,
    "expert_scale": [1.0, 2.5],
    "router_bias": _boolean,
    "expert_balance_by": ["loss", "bias"],
    "expert_balance": [0.0, 0.01],
    "feed_forward_bias": _boolean,
    "norm": list(NORMS),
    "norm_position": list(NORM_POSITIONS),
    "norm_scale": ["none", "depth"],
    "sublayers": ["sequential", "sequential", "parallel", "parallel_shared_norm"],
    "residual": _boolean,
    "residual_scale": ["none", "none", "depth", "scalar", "rezero", "layerscale"],
    "embedding_scale": ["sqrt(d_model)", 1],
    "initialization": ["xavier", "normal", "orthogonal"],
    "initialization_std": [0.02, 0.5],
    # Others need a learning rate; tests/training/test_parametrization.py has them.
    "parametrization": ["standard"],
    "base_width": list(range(2, 18)),
    "base_depth": list(range(1, 4)),
    "output_initialization": ["same", "depth", "zero"],
    "hyper_connections": ["none", "none", "none", "static", "dynamic"],
    "expansion_rate": [1, 2, 3],
    "embedding_skip": [False, False, False, False, True],
    "stream_scale": [False, False, False, False, True],
    "layer_skips": ["none", *LAYER_SKIPS],
    "smear": _boolean,
    "bigram_embeddings": [None, None, 2, 40],
    "output_bias": _boolean,
    "logit_cap": [None, 3.0],
    "z_loss": [0.0, 1e-3],
    "tied_embeddings": ["all", "decoder", "none"],
}
FIELDS = {name: st.sampled_from(values) for name, values in VALUES.items()}
# Drawn in tests/model/test_encoder_only.py: the properties here are those of models with a decoder.
OF_ENCODER_ONLY = {"embedding_norm", "token_types", "output_transform"}
# tests/model/test_documents.py and test_future_tokens.py
OF_LANGUAGE_MODELS = {"document_masks", "future_tokens", "future_loss"}


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


def is_bounded(config):
    """Whether no state can leave the range of floats: without norms, a gated layer about squares
    its states, and a short convolution multiplies three.
    """
    layers = config.all_layers
    return (
        "none" not in {layer.norm_position for layer in layers}
        or config.passes == 1
        or (
            {layer.activation for layer in layers} <= {"relu", "gelu", "silu"}
            and {layer.mixer for layer in layers} <= {"attention", "lstm", "gru"}
        )
    )


def names():
    """Names of all fields of the model."""
    return set(ModelConfig.model_fields)

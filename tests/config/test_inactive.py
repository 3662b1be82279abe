"""Inactive settings are errors where they are written, and do not change run ids where they are
inherited.
"""

import pytest

from ablate.config import TranslationData, resolve_row, run_id
from ablate.config.inactive import InactiveSettings, inactive_fields

DATA = TranslationData.resolve({"corpus": "toy"})
NO_ATTENTION = "mixer=lstm with architecture=decoder-only, which leaves no attention"
OTHER = {"architecture": "decoder-only", "mixer": "lstm"}

# (field, value, other settings, the reason why it has no effect)
INACTIVE = [
    ("attention_window", 4, {}, "attention other than local"),
    ("attention_window", 4, {"attention": "linear"}, "attention other than local"),
    ("relative_clip", 4, {}, "positional_encoding other than relative"),
    ("relative_clip", 4, {"positional_encoding": "t5"}, "positional_encoding other than relative"),
    ("norm", "rmsnorm", {"norm_position": "none"}, "norm_position=none"),
    ("norm", "module:Class", {"norm_position": "none"}, "norm_position=none"),
    ("attention", "local", {"mixer": "lstm"}, "mixer other than attention"),
    ("attention_window", 4, {"mixer": "lstm", "attention": "local"}, "mixer other than attention"),
    ("encoder_layers", 2, {"architecture": "decoder-only"}, "architecture=decoder-only"),
    ("n_cross_heads", 2, {"architecture": "decoder-only"}, "architecture other than encoder-decoder"),
    ("n_layers", 3, {"architecture": "decoder-only", "decoder_layers": 2},
     "architecture=decoder-only and decoder_layers set"),
    ("n_layers", 3, {"encoder_layers": 2, "decoder_layers": 4}, "encoder_layers and decoder_layers both set"),
    ("decoder_layers", 2, {"architecture": "encoder-only"}, "architecture=encoder-only"),
    ("n_cross_heads", 2, {"architecture": "encoder-only"}, "architecture other than encoder-decoder"),
    ("n_layers", 3, {"architecture": "encoder-only", "encoder_layers": 2},
     "architecture=encoder-only and encoder_layers set"),
    ("attention_bias", True, {"architecture": "encoder-only", "mixer": "lstm"},
     "mixer=lstm with architecture=encoder-only, which leaves no attention"),
    ("embedding_norm", True, {}, "architecture=encoder-decoder"),
    ("token_types", 2, {"architecture": "decoder-only"}, "architecture other than encoder-only"),
    ("output_transform", True, {"architecture": "decoder-only"}, "architecture other than encoder-only"),
    ("sublayers", "parallel", {}, "architecture=encoder-decoder"),
    ("rope_base", 1e6, {}, "positional_encoding other than rope"),
    ("rope_fraction", 0.5, {"positional_encoding": "none"}, "positional_encoding other than rope"),
    ("rope_scaling", "yarn", {"positional_encoding": "t5"}, "positional_encoding other than rope"),
    ("rope_factor", 4.0, {"positional_encoding": "rope"}, "rope_scaling=none"),
    ("experts_per_token", 1, {}, "n_experts unset"),
    ("shared_experts", 1, {}, "n_experts unset"),
    ("expert_weights", "sigmoid", {}, "n_experts unset"),
    ("expert_balance", 0.5, {}, "n_experts unset"),
    ("initialization_std", 0.1, {}, "initialization other than normal"),
    ("decay_fraction", 0.5, {"schedule": "cosine"}, "schedule other than wsd"),
    ("final_rate", 0.5, {}, "schedule=inverse_sqrt"),
    ("embedding_skip", True, {}, "architecture=encoder-decoder"),
    ("query_rank", 16, {}, "kv_rank unset"),
    *((name, value, {"feed_forward": "none"}, "feed_forward other than network") for name, value in (
        ("d_ff", 64), ("activation", "gelu"), ("n_experts", 4), ("feed_forward_bias", False),
        ("activation_dropout", 0.1),
    )),
    ("value_embedding_rank", 8, {"architecture": "decoder-only"}, "value_embeddings=none"),
    ("norm_scale", "depth", {}, "norm_position=post"),
    ("exclude_own_value", True, {"mixer": "lstm"}, "mixer other than attention"),
    ("kv_rank", 16, {"mixer": "lstm"}, "mixer other than attention"),
    ("shared_expert_gate", True, {}, "n_experts unset"),
    ("router_bias", True, {}, "n_experts unset"),
    ("expert_scale", 2.5, {}, "n_experts unset"),
    ("expert_balance_by", "bias", {}, "n_experts unset"),
    ("stream_scale", True, {}, "architecture=encoder-decoder"),
    ("layer_skips", "dense", {}, "architecture=encoder-decoder"),
    ("hyper_connections", "static", {}, "architecture=encoder-decoder"),
    ("expansion_rate", 2, {"architecture": "decoder-only"}, "hyper_connections=none"),
    ("smear", True, {}, "architecture=encoder-decoder"),
    ("bigram_embeddings", 100, {}, "architecture=encoder-decoder"),
    ("value_residual", True, {}, "architecture=encoder-decoder"),
    ("value_embeddings", "added", OTHER, NO_ATTENTION),
    ("attention_convolution", "qkv", {"architecture": "encoder-only"}, "architecture other than decoder-only"),
    ("residual_scale", "depth", {"residual": False}, "residual other than true"),
    ("attention_gate", "head", OTHER, NO_ATTENTION),
    ("qk_norm", "head", OTHER, NO_ATTENTION),
    ("score_cap", 50.0, OTHER, NO_ATTENTION),
    ("attention_sinks", True, {"architecture": "decoder-only", "attention": "linear"},
     "attention=linear with architecture=decoder-only"),
    ("attention_scale", 1, {"architecture": "decoder-only", "attention": "linear"},
     "attention=linear with architecture=decoder-only"),
    ("attention_dropout", 0.1, {"architecture": "decoder-only", "attention": "linear"},
     "attention=linear with architecture=decoder-only"),
    ("momentum", 0.5, {}, "optimizer=adam"),
    ("preconditioning_frequency", 1, {"optimizer": "muon"}, "optimizer other than soap"),
    ("momentum", 0.5, {"optimizer": "adamw", "weight_decay": 0.1}, "optimizer=adamw"),
    ("adam_eps", 0.5, {"optimizer": "lion"}, "optimizer=lion"),
    ("batch_growth_fraction", 0.2, {}, "batch_growth=1"),
    ("base_width", 64, {}, "parametrization=standard"),
    ("base_depth", 4, {"parametrization": "mup", "learning_rate": 0.1}, "parametrization other than completep"),
    ("embedding_decay", 0.5, {}, "weight_decay=0"),
    ("vector_decay", 0.5, {}, "weight_decay=0"),
    ("decay_schedule", "linear", {}, "weight_decay=0"),
    ("output_rate", 0.5, {}, "tied_embeddings other than none"),
    ("output_decay", 0.5, {"weight_decay": 0.1}, "tied_embeddings other than none"),
    ("cautious_decay", True, {"weight_decay": 0.1}, "optimizer=adam"),
    ("adam_beta1", 0.5, {"optimizer": "sgd"}, "optimizer=sgd"),
    ("adam_beta2", 0.5, {"optimizer": "sgd"}, "optimizer=sgd"),
    ("adam_eps", 0.5, {"optimizer": "sgd"}, "optimizer=sgd"),
    ("schedule", "cosine", {"train_steps": 4000},
     "warmup_steps=4000, which is not below train_steps=4000"),
    ("schedule", "constant", {"train_steps": 10, "epochs": 3, "warmup_steps": 10},
     "warmup_steps=10, which is not below train_steps=10"),
    ("n_heads", 4, OTHER, NO_ATTENTION),
    ("n_kv_heads", 4, OTHER, NO_ATTENTION),
    ("d_k", 16, OTHER, NO_ATTENTION),
    ("d_v", 16, OTHER, NO_ATTENTION),
    ("attention_scale", 1, OTHER, NO_ATTENTION),
    ("attention_bias", True, OTHER, NO_ATTENTION),
    ("attention_dropout", 0.1, OTHER, NO_ATTENTION),
]  # fmt: skip
# Fields without a default keep their value.
RESET = [item for item in INACTIVE if item[0] not in ("n_heads", "d_k", "d_v")]


def identity(settings):
    return run_id(DATA, resolve_row(settings), 1)


@pytest.mark.parametrize(("name", "value", "beside", "why"), INACTIVE)
def test_a_written_inactive_setting_is_an_error_with_the_reason(name, value, beside, why):
    with pytest.raises(InactiveSettings) as caught:
        resolve_row({**beside, name: value}, written=[name])
    shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else value
    remedy = "lower warmup_steps, or remove it" if name == "schedule" else "remove it"
    [fault] = caught.value.faults
    assert fault.sentence == f"{name}: {shown} has no effect with {why}; {remedy}"
    assert fault.fields[0] == name
    # The others are those that the reason names.
    assert all(field in why or why == "a single layer" for field in fault.fields[1:])


@pytest.mark.parametrize("name", ["n_kv_heads", "n_cross_heads", "encoder_layers"])
def test_an_inactive_field_may_be_written_as_unset(name):
    assert getattr(resolve_row({**OTHER, name: None}, written=[name]), name) is None


@pytest.mark.parametrize(("name", "value", "beside", "why"), RESET)
def test_an_inherited_inactive_setting_does_not_change_the_run_id(name, value, beside, why):
    assert identity({**beside, name: value}) == identity(beside)


@pytest.mark.parametrize(
    ("name", "value", "beside"),
    [
        ("attention_window", 4, {"attention": "local"}),
        ("relative_clip", 4, {"positional_encoding": "relative"}),
        ("norm", "rmsnorm", {"norm_position": "pre"}),
        ("encoder_layers", 2, {}),
        ("decoder_layers", 2, {}),
        ("n_layers", 3, {"encoder_layers": 2}),
        ("n_layers", 3, {"architecture": "decoder-only"}),
        ("attention_scale", 1, {"attention": "linear"}),  # of cross-attention
        ("attention_scale", 1, {"architecture": "decoder-only"}),
        ("attention_dropout", 0.1, {"mixer": "lstm"}),  # the same
        ("n_heads", 4, {"mixer": "lstm"}),
        ("n_kv_heads", 4, {"mixer": "lstm"}),
        ("n_cross_heads", 4, {"mixer": "lstm"}),
        ("attention_bias", True, {"mixer": "lstm"}),
    ],
)
def test_an_active_setting_changes_the_run_id(name, value, beside):
    assert getattr(resolve_row({**beside, name: value}, written=[name]), name) == value
    assert identity({**beside, name: value}) != identity(beside)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n_kv_heads": 8}, {}),
        ({"n_cross_heads": 8}, {}),
        ({"n_kv_heads": 8, "n_cross_heads": 8}, {}),
        ({"encoder_layers": 6, "decoder_layers": 6}, {}),
        ({"encoder_layers": 6}, {}),
        ({"n_layers": 2, "encoder_layers": 6, "decoder_layers": 6}, {}),
        ({"encoder_layers": 2, "decoder_layers": 2}, {"n_layers": 2}),
        ({"encoder_layers": 2, "decoder_layers": 4}, {"n_layers": 2, "decoder_layers": 4}),
        ({"n_layers": 5, "encoder_layers": 2, "decoder_layers": 4}, {"n_layers": 2, "decoder_layers": 4}),
        ({"architecture": "decoder-only", "decoder_layers": 3}, {"architecture": "decoder-only", "n_layers": 3}),
        ({"architecture": "decoder-only", "decoder_layers": 3, "n_layers": 9, "encoder_layers": 2},
         {"architecture": "decoder-only", "n_layers": 3}),
    ],
)  # fmt: skip
def test_equivalent_settings_have_one_run_id(one, other):
    assert resolve_row(one) == resolve_row(other)
    assert identity(one) == identity(other)


LSTM = {"mixer": "lstm", "d_k": 16, "d_v": 16}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"n_layers": 6, "decoder_layers": 2}, {"n_layers": 2, "encoder_layers": 6}),
        ({**LSTM, "n_heads": 4, "n_cross_heads": 2}, {**LSTM, "n_heads": 8, "n_cross_heads": 2}),
        ({**LSTM, "n_heads": 4, "n_cross_heads": 2}, {**LSTM, "n_heads": 2}),
    ],
)
def test_spellings_that_labels_tell_apart_are_one_run(one, other):
    assert resolve_row(one) != resolve_row(other)
    assert identity(one) == identity(other)


@pytest.mark.parametrize(
    "beside",
    [
        {"train_steps": 4001},
        {"train_steps": None, "epochs": 1},
        {"train_steps": 100, "warmup_steps": 99},
    ],
)
def test_a_schedule_that_can_have_an_effect_is_another_run(beside):
    assert identity({**beside, "schedule": "cosine"}) != identity(beside)


@pytest.mark.parametrize(
    ("field", "own"), [("attention_window", "attention"), ("relative_clip", "positional_encoding")]
)
def test_no_field_is_inactive_because_of_a_custom_class(field, own):
    assert getattr(resolve_row({own: "module:Class", field: 4}, written=[field]), field) == 4


def test_attention_dropout_is_active_in_cross_attention_whatever_the_self_attention():
    for beside in ({"attention": "linear"}, {"attention": "linear", "mixer": "lstm"}):
        assert (
            resolve_row(
                {**beside, "attention_dropout": 0.1}, written=["attention_dropout"]
            ).attention_dropout
            == 0.1
        )


def test_sharing_keys_in_cross_attention_alone_changes_the_run_id():
    """With 8 key heads, self-attention of 8 heads shares none; cross-attention of 16 heads shares
    each among two.
    """
    grouped, all_apart = {"n_cross_heads": 16, "n_kv_heads": 8}, {"n_cross_heads": 16}
    assert identity(grouped) != identity(all_apart)


def test_resetting_inactive_fields_is_idempotent():
    for name, value, beside, _ in INACTIVE:
        settled = resolve_row({**beside, name: value})
        again = type(settled)(**settled.model_dump())
        assert again == settled
        assert resolve_row(settled.model_dump()) == settled
    assert inactive_fields(resolve_row({})).keys() == {
        "attention_window", "relative_clip", "momentum", "preconditioning_frequency",
        "embedding_norm", "token_types", "output_transform", "rope_base", "rope_fraction", "rope_scaling",
        "batch_growth_fraction", "base_width", "base_depth", "embedding_decay", "output_decay", "vector_decay", "output_rate", "decay_schedule", "cautious_decay",
        "value_embedding_rank", "norm_scale", "query_rank", "expert_scale", "router_bias", "shared_expert_gate", "expert_balance_by",
        "attention_convolution", "value_embeddings", "value_residual", "stream_scale", "layer_skips",
        "document_masks", "future_tokens", "future_loss", "smear", "bigram_embeddings", "hyper_connections", "expansion_rate",
        "embedding_skip", "initialization_std", "decay_fraction", "final_rate", "rope_factor", "experts_per_token", "shared_experts", "expert_weights", "expert_balance", "sublayers",
    }  # fmt: skip


@pytest.mark.parametrize(("optimizer", "default"), [("sgd", 0.9), ("muon", 0.95)])
def test_the_default_momentum_that_is_written_out_is_the_run_that_leaves_it_unset(
    optimizer, default
):
    assert identity({"optimizer": optimizer, "momentum": default}) == identity(
        {"optimizer": optimizer}
    )
    assert identity({"optimizer": optimizer, "momentum": 0.5}) != identity({"optimizer": optimizer})

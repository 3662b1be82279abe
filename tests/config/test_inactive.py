"""Inactive settings are errors where they are written, and do not change run ids where they are
inherited.
"""

import pytest

from ablate.config.identity import run_id
from ablate.config.inactive import InactiveSettings, inactive_fields
from ablate.config.resolve import resolve_row
from ablate.config.translation_data import TranslationData

DATA = TranslationData.resolve({"corpus": "toy"})
OTHER = {"architecture": "decoder-only", "mixer": "lstm"}

# (field, value, other settings, the part that the field belongs to, which these do not choose)
INACTIVE = [
    ("attention_window", 4, {}, "attention=local"),
    ("attention_window", 4, {"attention": "linear"}, "attention=local"),
    ("relative_clip", 4, {}, "positional_encoding=relative"),
    ("relative_clip", 4, {"positional_encoding": "t5"}, "positional_encoding=relative"),
    ("norm", "rmsnorm", {"norm_position": "none"}, "a norm"),
    ("norm", "module:Class", {"norm_position": "none"}, "a norm"),
    ("attention", "local", {"mixer": "lstm"}, "mixer=attention"),
    ("attention_window", 4, {"mixer": "lstm", "attention": "local"}, "mixer=attention"),
    ("encoder_layers", 2, {"architecture": "decoder-only"}, "the encoder"),
    ("n_cross_heads", 2, {"architecture": "decoder-only"}, "attention over the source"),
    ("n_layers", 3, {"architecture": "decoder-only", "decoder_layers": 2}, "stacks of N layers"),
    ("n_layers", 3, {"encoder_layers": 2, "decoder_layers": 4}, "stacks of N layers"),
    ("decoder_layers", 2, {"architecture": "encoder-only"}, "the decoder"),
    ("n_cross_heads", 2, {"architecture": "encoder-only"}, "attention over the source"),
    ("n_layers", 3, {"architecture": "encoder-only", "encoder_layers": 2}, "stacks of N layers"),
    ("attention_bias", True, {"architecture": "encoder-only", "mixer": "lstm"}, "attention"),
    ("embedding_norm", True, {}, "a model of one stack"),
    ("token_types", 2, {"architecture": "decoder-only"}, "an encoder-only model"),
    ("output_transform", True, {"architecture": "decoder-only"}, "an encoder-only model"),
    ("sublayers", "parallel", {}, "a model of one stack"),
    ("rope_base", 1e6, {}, "positional_encoding=rope"),
    ("rope_fraction", 0.5, {"positional_encoding": "none"}, "positional_encoding=rope"),
    ("rope_scaling", "yarn", {"positional_encoding": "t5"}, "positional_encoding=rope"),
    ("rope_factor", 4.0, {"positional_encoding": "rope"}, "scaled rope"),
    ("experts_per_token", 1, {}, "a mixture of experts"),
    ("shared_experts", 1, {}, "a mixture of experts"),
    ("expert_weights", "sigmoid", {}, "a mixture of experts"),
    ("expert_balance", 0.5, {}, "a mixture of experts"),
    ("initialization_std", 0.1, {}, "initialization=normal"),
    ("decay_fraction", 0.5, {"schedule": "cosine"}, "schedule=wsd"),
    ("final_rate", 0.5, {}, "schedule=linear, cosine or wsd"),
    ("embedding_skip", True, {}, "a model of one stack"),
    ("query_rank", 16, {}, "latent attention"),
    ("d_ff", 64, {"feed_forward": "none"}, "the feed-forward network"),
    ("activation", "gelu", {"feed_forward": "none"}, "the feed-forward network"),
    ("n_experts", 4, {"feed_forward": "none"}, "the feed-forward network"),
    ("feed_forward_bias", False, {"feed_forward": "none"}, "the feed-forward network"),
    ("activation_dropout", 0.1, {"feed_forward": "none"}, "the feed-forward network"),
    ("value_embedding_rank", 8, {"architecture": "decoder-only"}, "a value embedding"),
    ("norm_scale", "depth", {}, "the norm before a sub-layer"),
    ("exclude_own_value", True, {"mixer": "lstm"}, "mixer=attention"),
    ("kv_rank", 16, {"mixer": "lstm"}, "mixer=attention"),
    ("shared_expert_gate", True, {}, "a mixture of experts"),
    ("shared_expert_gate", True, {"n_experts": 4}, "a shared expert"),
    ("expert_balance", 1.0, {"n_experts": 4, "experts_per_token": 4}, "a choice among experts"),
    ("expert_balance_by", "bias", {"n_experts": 4, "experts_per_token": 4}, "a choice among experts"),
    ("expert_balance_by", "bias", {"n_experts": 4, "expert_balance": 0.0}, "a balance of experts"),
    ("feed_forward_rate", 0.5, {"feed_forward": "none"}, "the feed-forward network"),
    ("router_bias", True, {}, "a mixture of experts"),
    ("expert_scale", 2.5, {}, "a mixture of experts"),
    ("expert_balance_by", "bias", {}, "a mixture of experts"),
    ("stream_scale", True, {}, "a model of one stack"),
    ("layer_skips", "dense", {}, "a model of one stack"),
    ("hyper_connections", "static", {}, "a model of one stack"),
    ("expansion_rate", 2, {"architecture": "decoder-only"}, "a model of several streams"),
    ("smear", True, {}, "a model of one stack"),
    ("bigram_embeddings", 100, {}, "a model of one stack"),
    ("value_residual", True, {}, "attention of one stack"),
    ("value_embeddings", "added", OTHER, "attention"),
    ("attention_convolution", "qkv", {"architecture": "encoder-only"}, "causal attention"),
    ("residual_scale", "depth", {"residual": False}, "the residual connection"),
    ("attention_gate", "head", OTHER, "attention"),
    ("qk_norm", "head", OTHER, "attention"),
    ("score_cap", 50.0, OTHER, "attention"),
    ("attention_sinks", True, {"architecture": "decoder-only", "attention": "linear"}, "the softmax of scores"),
    ("attention_scale", 1, {"architecture": "decoder-only", "attention": "linear"}, "the softmax of scores"),
    ("attention_dropout", 0.1, {"architecture": "decoder-only", "attention": "linear"}, "the softmax of scores"),
    ("momentum", 0.5, {}, "optimizer=sgd, muon or normuon"),
    ("preconditioning_frequency", 1, {"optimizer": "muon"}, "optimizer=soap"),
    ("momentum", 0.5, {"optimizer": "adamw", "weight_decay": 0.1}, "optimizer=sgd, muon or normuon"),
    ("adam_eps", 0.5, {"optimizer": "lion"}, "optimizer=adam, adamw, muon, normuon, soap or schedule_free"),
    ("batch_growth_fraction", 0.2, {}, "a growing batch"),
    ("base_width", 64, {}, "parametrization=mup or completep"),
    ("base_depth", 4, {"parametrization": "mup", "learning_rate": 0.1}, "parametrization=completep"),
    ("embedding_decay", 0.5, {}, "weight decay"),
    ("vector_decay", 0.5, {}, "weight decay"),
    ("decay_schedule", "linear", {}, "weight decay"),
    ("output_rate", 0.5, {}, "tied_embeddings=none"),
    ("output_decay", 0.5, {"weight_decay": 0.1}, "tied_embeddings=none"),
    ("cautious_decay", True, {"weight_decay": 0.1}, "optimizer=adamw, muon, normuon, soap or lion"),
    ("cautious_decay", True, {"optimizer": "schedule_free", "schedule": "constant", "weight_decay": 0.1}, "optimizer=adamw, muon, normuon, soap or lion"),
    ("adam_beta1", 0.5, {"optimizer": "sgd"}, "optimizer=adam, adamw, muon, normuon, soap, lion or schedule_free"),
    ("adam_beta2", 0.5, {"optimizer": "sgd"}, "optimizer=adam, adamw, muon, normuon, soap, lion or schedule_free"),
    ("adam_eps", 0.5, {"optimizer": "sgd"}, "optimizer=adam, adamw, muon, normuon, soap or schedule_free"),
    ("schedule", "cosine", {"train_steps": 4000}, "the steps after the warm-up"),
    ("schedule", "constant", {"train_steps": 10, "epochs": 3, "warmup_steps": 10}, "the steps after the warm-up"),
    ("n_heads", 4, OTHER, "a mixer with heads"),
    ("n_kv_heads", 4, OTHER, "attention"),
    ("d_k", 16, OTHER, "a mixer with heads"),
    ("d_v", 16, OTHER, "a mixer with heads"),
    ("attention_scale", 1, OTHER, "attention"),
    ("attention_bias", True, OTHER, "attention"),
    ("attention_dropout", 0.1, OTHER, "attention"),
]  # fmt: skip
# Fields without a default keep their value.
RESET = [item for item in INACTIVE if item[0] not in ("n_heads", "d_k", "d_v")]


def identity(settings):
    return run_id(DATA, resolve_row(settings), 1)


@pytest.mark.parametrize(("name", "value", "beside", "part"), INACTIVE)
def test_a_written_inactive_setting_is_an_error_with_the_part_that_is_missing(
    name, value, beside, part
):
    with pytest.raises(InactiveSettings) as caught:
        resolve_row({**beside, name: value}, written=[name])
    [fault] = caught.value.faults
    first, *choosing = fault.fields
    assert first == fault.subject == name
    # What is lacking can be chosen by other fields, which the sentence names.
    assert choosing
    named = part if "=" in part else f"{part} ({', '.join(choosing)})"
    assert f"has no effect: it belongs to {named}, " in fault.sentence
    assert fault.remedy.endswith("remove it")


@pytest.mark.parametrize("name", ["n_kv_heads", "n_cross_heads", "encoder_layers"])
def test_an_inactive_field_may_be_written_as_unset(name):
    assert getattr(resolve_row({**OTHER, name: None}, written=[name]), name) is None


@pytest.mark.parametrize(("name", "value", "beside", "part"), RESET)
def test_an_inherited_inactive_setting_does_not_change_the_run_id(name, value, beside, part):
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
        ("attention_dropout", 0.1, {"attention": "linear"}),
        ("attention_dropout", 0.1, {"attention": "linear", "mixer": "lstm"}),
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

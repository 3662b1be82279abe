"""Incompatible and inactive settings are reported when the study is read, with their position."""

import json

import pytest

from ablate.config import ModelConfig, RowConfig, TrainingConfig
from ablate.fields import SET, facts_of
from ablate.study import runs_of
from tests.config.test_identity import TRAINING
from tests.config.test_inactive import INACTIVE
from tests.config.test_model import INCOMPATIBLE
from tests.model.pairs import needs_of

HEAD = "study: table3\ndata: {corpus: toy, max_length: 100}\n"
FOUND = [
    item for item in INACTIVE if "module:Class" not in (item[1], *item[2].values())
]  # there is no such module


def flow(settings):
    """Settings as YAML (of which JSON is a subset)."""
    return json.dumps(settings)


def first_named(settings, reason):
    """The setting that a reason names first as FIELD=VALUE; the first setting if it names none."""
    return min(
        settings, key=lambda name: reason.find(f"{name}=") % 10**6
    )  # -1, not found, comes last


# --- incompatible settings ---


@pytest.mark.parametrize(("settings", "reason"), INCOMPATIBLE)
def test_incompatible_settings_of_a_row_are_reported_at_the_first_that_the_reason_names(
    faults, settings, reason
):
    first = first_named(settings, reason)
    line = f"rows: {{A: {{set: {flow(settings)}}}}}"
    column = line.index(f'"{first}": ') + len(f'"{first}": ') + 1
    assert faults(f"{HEAD}{line}") == [f"table3.yaml:3:{column}: {reason}"]


@pytest.mark.parametrize(("settings", "reason"), INCOMPATIBLE)
def test_incompatible_settings_of_base_are_reported_at_the_first_that_the_reason_names(
    faults, settings, reason
):
    line, first = f"base: {flow(settings)}", first_named(settings, reason)
    column = line.index(f'"{first}": ') + len(f'"{first}": ') + 1 if f"{first}=" in reason else 7
    assert faults(f"{HEAD}{line}") == [f"table3.yaml:3:{column}: {reason}"]


def test_a_row_may_override_an_incompatible_setting_of_base(read):
    study = read(
        HEAD
        + "base: {attention: linear}\nrows: {A: {set: {positional_encoding: t5, attention: full}}}"
    )
    assert study.rows[1].config.positional_encoding == "t5"


def test_where_can_drop_incompatible_combinations(read):
    text = HEAD + (
        "rows:\n  A: {grid: {positional_encoding: [none, rope], attention: [full, linear]},"
        " where: positional_encoding != 'rope' or attention != 'linear'}\n"
    )
    study = read(text)
    assert (len(study.rows), study.whole.dropped) == (4, 1)


# --- inactive settings ---


@pytest.mark.parametrize(("name", "value", "beside", "part"), FOUND)
def test_an_inactive_setting_of_a_row_is_reported_at_its_value(faults, name, value, beside, part):
    line = f"rows: {{A: {{set: {flow({**beside, name: value})}}}}}"
    column = line.index(f'"{name}": ') + len(f'"{name}": ') + 1
    shown = {True: "true", False: "false"}[value] if isinstance(value, bool) else value
    found = faults(f"{HEAD}{line}")
    start = f"table3.yaml:3:{column}: {name}: {shown} has no effect: it belongs to {part}"
    assert sum(fault.startswith(start) for fault in found) == 1
    others = {other for other in beside if f": {other}: " in " ".join(found)}
    of_task = [each for each in found if ': row "' in each]  # which lacks the architecture
    assert len(found) == 1 + len(others) + len(of_task)


def test_inherited_inactive_settings_are_reset_without_an_error(read):
    text = HEAD + (
        "base: {attention: local, attention_window: 3, norm: rmsnorm, encoder_layers: 2}\nrows:\n"
        "  A: {each: {attention: [full], norm_position: [none], architecture: [decoder-only], "
        "mixer: [lstm]}}\n"
    )
    base, full, none, only, lstm = (row.config for row in read(text).rows)
    assert (base.attention_window, base.norm, base.encoder_layers) == (3, "rmsnorm", 2)
    assert (full.attention_window, full.norm) == (16, "rmsnorm")
    assert (none.attention_window, none.norm) == (3, "layernorm")
    assert (only.encoder_layers, only.depths) == (None, (0, 6))
    assert (lstm.attention, lstm.attention_window, lstm.encoder_layers) == ("full", 16, 2)


def test_a_row_that_resets_a_setting_of_base_shares_the_run_of_a_plain_base(read):
    plain = read(HEAD + "base: {N: 2}")
    undone = read(
        HEAD
        + "base: {N: 2, attention: local, attention_window: 3}\nrows: {A: {set: {attention: full}}}"
    )
    assert [run.id for run in runs_of(undone).of(undone.rows[1])] == [
        run.id for run in runs_of(plain).of(plain.base)
    ]


# --- settings of a study ---

# Another value of each field. A new field is added to TRAINING, in tests/config/test_identity.py.
VALUES = {
    **TRAINING, "checkpoint_minutes": 1.0, "micro_batch_tokens": 1000, "deterministic": True,
}  # fmt: skip
# Further settings that another value needs, beside those that choose the part of its field.
BESIDE = {
    "optimizer": {"weight_decay": 0.1},
    "batch_growth_fraction": {"batch_growth": 2},
    "hyper_connections": {"norm_position": "pre"},
    "expansion_rate": {"norm_position": "pre"},
    "sublayers": {"norm_position": "pre"},
}


def settings_of(name):
    """Another value of a field, and settings with which it has an effect."""
    settings = dict(BESIDE.get(name, {}))
    for selector, allowed in needs_of(facts_of(RowConfig)[name].part).items():
        if allowed == (SET,):
            settings[selector] = VALUES[selector]
        elif RowConfig.model_fields[selector].default not in allowed:
            settings[selector] = allowed[0]
    settings[name] = VALUES[name]
    if head_for(name) != HEAD:
        settings.pop("architecture", None)  # which follows from the task
    if settings.get("architecture") == "decoder-only":
        settings.setdefault("max_positions", 1024)
    if "parametrization" in settings:
        settings["learning_rate"] = 0.1
    return settings


# All but those that name a file beside the study (tests/training/test_loss_term.py).
FIELDS = sorted({*ModelConfig.model_fields, *TrainingConfig.model_fields} - {"loss_term"})
OF_ENCODER_ONLY = ("embedding_norm", "token_types", "output_transform")


def head_for(name):
    if name in ("document_masks", "future_tokens", "future_loss"):
        return "study: table3\ntask: language-model\ndata: {corpus: toy}\n"
    return (
        "study: table3\ntask: masked-lm\ndata: {corpus: toy}\n" if name in OF_ENCODER_ONLY else HEAD
    )


@pytest.mark.parametrize("name", FIELDS)
def test_every_model_and_training_field_can_be_set_by_a_row_in_base_and_by_set(read, name):
    settings = settings_of(name)
    overrides = [f"{key}={flow(value)}" for key, value in settings.items()]
    row = read(f"{head_for(name)}rows: {{A: {{set: {flow(settings)}}}}}").rows[1]
    base = read(f"{head_for(name)}base: {flow(settings)}").base
    assert {getattr(each.config, name) for each in (row, base)} == {VALUES[name]}
    assert row.changed.keys() >= settings.keys() - {"max_positions"}
    assert read(head_for(name), overrides=overrides).base.config == base.config

"""Windows, distances and learned positions that reach further than the texts of a study."""

import pytest
import torch

from ablate.config.cost import parameters
from ablate.config.resolve import resolve_row
from ablate.model import build
from ablate.study import runs_of

SIZES = "N: 2, d_model: 64, d_ff: 256, h: 4, batch_tokens: 2048, train_steps: 20, warmup_steps: 5"
LANGUAGE = "study: s\ntask: language-model\ndata: {corpus: toy}\n"
TRANSLATION = "study: s\ndata: {corpus: toy, vocab_size: 350, max_length: 20}\n"
RECALL = "study: s\ntask: synthetic\ndata: {corpus: recall, pairs: 4}\n"


def study(base, rows="", head=LANGUAGE):
    """A study with these fields of base beside its sizes, and these rows."""
    rows = f"rows:\n  R: {rows}\n" if rows else ""
    return f"{head}base: {{{SIZES}, {base}}}\n{rows}"


def ids(study):
    """The ids of the runs of each row."""
    return {row.label: [run.id for run in runs_of(study).of(row)] for row in study.rows}


# --- windows ---


def test_a_window_is_full_attention_from_the_length_of_the_text_less_one_on():
    """The rule of the errors below, by the models themselves."""
    fields = {"architecture": "decoder-only", "n_layers": 1, "d_model": 8, "d_ff": 8, "n_heads": 2}
    tokens = torch.arange(1, 13)[None]
    full = build(resolve_row(fields), 20, seed=1).eval().read(tokens)
    for window, is_full in ((10, False), (11, True), (40, True)):
        local = resolve_row({**fields, "attention": "local", "attention_window": window})
        found = build(local, 20, seed=1).eval().read(tokens)
        assert torch.allclose(found, full, atol=1e-5) == is_full


def test_a_window_that_is_written_must_be_shorter_than_the_texts(read, faults):
    base = "context: 32, attention: local, attention_window: 8"
    rows = "{each: {attention_window: [30, 31, 1000]}}"
    all_of = "has no effect: it covers all 32 tokens of the longest text; note that it is full"
    assert faults(study(base, rows)) == [
        f"table3.yaml:6:37: attention_window: 31 {all_of} attention",
        f"table3.yaml:6:41: attention_window: 1,000 {all_of} attention",
    ]
    (fault,) = faults(study("context: 16", "{each: {attention: [local]}}"))
    assert "6:26: attention: local has no effect: attention_window=16 covers all 16" in fault
    for reaching in ("31", "[8, 31]"):
        (fault,) = faults(study(f"context: 32, attention: local, attention_window: {reaching}"))
        assert "attention_window: 31 has no effect" in fault
    assert read(study("context: 32, attention: local, attention_window: 30")).source.notes == ()


@pytest.mark.parametrize(
    ("head", "base", "tokens"),
    [
        (LANGUAGE, "context: 32, eval_context: 48", 48),
        (TRANSLATION, "dropout: 0.0", 20 + 50 + 1),  # longer than its source by 50 tokens, and BOS
        (TRANSLATION, "max_extra_length: 5", 26),
        (TRANSLATION, "architecture: decoder-only", 20 + 70 + 2),
        (RECALL, "eval_pairs: 8", 4 * 8 - 1),
    ],
)
def test_texts_of_evaluation_and_predictions_count(read, faults, head, base, tokens):
    local = "attention: local, attention_window: "
    (fault,) = faults(study(f"{base}, {local}{tokens - 1}", head=head))
    assert f"covers all {tokens} tokens" in fault
    assert read(study(f"{base}, {local}{tokens - 2}", head=head)).base.config.attention == "local"


def test_windows_of_a_preset_that_act_nowhere_are_noted_and_the_model_is_one_run(read):
    base = "preset: llama, context: 64"
    rows = "[{set: {preset: gpt-oss, n_experts: 4}}, {set: {preset: gpt-oss, n_experts: 4, attention: full}}]"
    found = read(study(base, rows))
    _, windows, full = found.rows
    assert windows.config == full.config
    assert windows.config.attention == "full"
    assert ids(found)[windows.label] == ids(found)[full.label]
    (note,) = found.source.notes
    assert "attention_window=127 covers all 64 tokens of the longest text, so it is full" in note
    assert note.endswith(f": {windows.label}")


def test_a_path_to_a_preset_has_no_part_that_acts_nowhere(read):
    (note,) = read(
        study("preset: llama, context: 64", "{add-one-in: {preset: gpt-oss}}")
    ).source.notes
    assert note.endswith("full attention: preset gpt-oss")
    longer = read(study("preset: llama, context: 256", "{add-one-in: {preset: gpt-oss}}"))
    assert "R + windows" in [row.label for row in longer.rows]
    assert longer.source.notes == ()


def test_an_inherited_window_is_full_attention_where_contexts_are_shorter(read):
    base = "context: 64, attention: [local, full], attention_window: 16"
    found = read(study(base, "{each: {context: [16]}}"))
    assert found.base.config.attention == ("local", "full")
    assert found.rows[1].config.attention == "full"
    assert found.rows[1].config.attention_window == 16
    assert "R context=16" in found.source.notes[0]


def test_a_clip_beyond_every_distance_is_refused(read, faults):
    base = "context: 32, positional_encoding: relative, relative_clip: "
    (fault,) = faults(study(f"{base}32"))
    assert "relative_clip: 32 has no effect beyond 31" in fault
    assert read(study(f"{base}31")).base.config.relative_clip == 31


def test_learned_positions_that_no_training_text_reaches_are_noted(read):
    """Dev and test text may be longer than training text, and would read them untrained."""
    shorter = TRANSLATION.replace("max_length: 20", "max_length: 20, max_train_length: 9")
    rows = "{each: {positional_encoding: [learned]}}"
    found = read(study("dropout: 0.0", rows, head=shorter))
    (note,) = found.source.notes
    assert "up to 21 positions and training text up to 10: the vectors of later" in note
    assert note.endswith(f": {found.rows[1].label}")
    assert found.rows[1].config.max_positions == 21
    assert read(study("dropout: 0.0", rows, head=TRANSLATION)).source.notes == ()


# --- parts that need a second layer ---


@pytest.mark.parametrize(
    ("field", "value"), [("layer_skips", "unet"), ("norm_scale", "depth"), ("value_residual", True)]
)
def test_what_needs_a_second_layer_is_refused_in_a_single_one(read, faults, field, value):
    fields = {"architecture": "decoder-only", "d_model": 8, "d_ff": 8, "n_heads": 2}
    fields |= {"n_layers": 1, "norm_position": "pre"}
    tokens, plain = torch.arange(1, 13)[None], build(resolve_row(fields), 20, seed=1).eval()
    # By the model itself, as it was built before the field was reset.
    config = resolve_row(fields).model_copy(update={field: value})
    assert torch.equal(build(config, 20, seed=1).eval().read(tokens), plain.read(tokens))
    rows = f"{{each: {{{field}: [{str(value).lower()}]}}}}"
    base = "context: 32, norm_position: pre"
    (fault,) = faults(study(base, rows).replace("N: 2", "N: 1"))
    assert "has no effect: it belongs to a second layer" in fault
    assert read(study(base, rows)).rows[1].changed == {field: value}
    read(study(base, rows).replace("N: 2", "N: 1, loops: 2"))


# --- written defaults ---


def test_defaults_that_are_written_are_one_run(read):
    rows = "{each: {stride: [32], eval_context: [32], eval_stride: [32]}}"
    found = read(study("context: 32", rows))
    assert len({tuple(of_row) for of_row in ids(found).values()}) == 1
    assert len({row.decoding for row in found.rows}) == 1


# --- learned positions ---


@pytest.mark.parametrize(
    ("head", "base", "positions"),
    [
        (LANGUAGE, "context: 48", 48),
        (LANGUAGE, "context: 4", 8),  # the least that max_positions takes
        (TRANSLATION, "dropout: 0.0", 21),
        (TRANSLATION, "architecture: decoder-only", 42),
        (RECALL, "dropout: 0.0", 4 * 4 - 1),
        (LANGUAGE, "context: 48, max_positions: 64", 64),
    ],
)
def test_learned_positions_are_as_many_as_the_texts_have(read, head, base, positions):
    rows = "{each: {positional_encoding: [sinusoidal]}}"
    learned, sinusoidal = read(study(f"{base}, positional_encoding: learned", rows, head)).rows
    assert learned.config.max_positions == positions
    if "max_positions" not in base:  # the ids of runs without a table stay
        assert sinusoidal.config.max_positions == 1024
    assert "max_positions" not in sinusoidal.changed


def test_rows_are_matched_to_the_positions_that_are_read(read):
    """Base has 64 x 64 parameters more than RoPE: 15.9 times the 2 x (2 x 64 + 1) of a unit of d_ff."""
    base = "context: 64, positional_encoding: learned"
    rows = "{set: {positional_encoding: rope}, match: {params: d_ff}}"
    found = read(study(base, rows))
    assert found.source.notes == ()
    assert found.rows[1].config.d_ff == 256 + 16
    counts = [parameters(row.config, 260) for row in found.rows]
    assert counts[1] - counts[0] == 16 * 258 - 64 * 64
    (note,) = read(study(f"{base}, max_positions: 1024", rows)).source.notes
    assert "match counts 1,024 learned positions, but the longest text has 64" in note


def test_a_longer_evaluation_needs_positions_that_are_written(read, faults):
    base = "context: 32, eval_context: 64, positional_encoding: learned"
    (fault,) = faults(study(base))
    assert "eval_context=64 is longer than max_positions=32" in fault
    assert read(study(f"{base}, max_positions: 64")).base.config.max_positions == 64


@pytest.mark.parametrize(
    ("base", "rows", "departures"),
    [
        ("preset: qwen3, norm: layernorm", "[]", "norm=layernorm"),
        ("preset: qwen3, norm: layernorm, activation: gelu", "[{set: {norm: rmsnorm}}]", "activation=gelu"),
        ("preset: qwen3, norm: layernorm", "[{set: {norm: dyt}}]", ""),
        ("preset: qwen3, norm: rmsnorm", "[]", ""),  # the preset's own
        ("preset: qwen3, n_kv_heads: 2", "[]", ""),  # a size, which a preset of parts leaves to the study
        ("preset: qwen3", "[{set: {norm: layernorm}}]", ""),
    ],
)  # fmt: skip
def test_a_departure_of_base_from_its_preset_that_no_row_tests_is_noted(
    read, base, rows, departures
):
    notes = [note for note in read(study(base, rows)).source.notes if "differs from preset" in note]
    if not departures:
        assert notes == []
        return
    (note,) = notes
    assert f"differs from preset qwen3 in {departures}, which no row tests: base" in note

"""Rows of factorials and of paths, and the faults of their groups."""

import itertools

from ablate.stats.designs import FactorialDesign, PathDesign
from ablate.study import runs_of

HEAD = """\
study: table3
data: {corpus: toy, vocab_size: 350}
base: {N: 2, d_model: 64, d_ff: 256, h: 4, train_steps: 300, batch_tokens: 1024}
"""
FULL = "F: {factorial: {norm_position: [post, pre], activation: [relu, gelu], P_drop: [0.1, 0.3]}}"
PARTS = "{norm_position: pre, modern: {activation: swiglu, norm: rmsnorm}, P_drop: 0.3}"


def rows_of(study):
    return {row.label: row for row in study.rows}


def test_a_full_factorial_has_the_rows_of_the_grid(read):
    study = read(f"{HEAD}rows:\n  {FULL}\n")
    grid = read(f"{HEAD}rows:\n  {FULL.replace('factorial', 'grid')}\n")
    assert [row.label for row in study.rows] == [row.label for row in grid.rows]
    assert [run.id for run in runs_of(study)] == [run.id for run in runs_of(grid)]
    (design,) = study.designs
    assert isinstance(design, FactorialDesign)
    assert design.title == "2^3 full factorial"
    assert design.alias_lines() == []
    assert grid.designs == ()
    for label, cell in zip(design.rows, design.fraction.cells(), strict=True):
        config = rows_of(study)[label].config
        assert config.norm_position == {-1: "post", 1: "pre"}[cell["norm_position"]]
        assert config.activation == {-1: "relu", 1: "gelu"}[cell["activation"]]
        assert config.dropout == {-1: 0.1, 1: 0.3}[cell["P_drop"]]


def test_a_fraction_has_a_part_of_the_rows(read):
    full = read(f"{HEAD}rows:\n  {FULL}\n")
    half = read(f"{HEAD}rows:\n  {FULL[:-1]}, resolution: 3}}\n")
    ids = {row.label: [run.id for run in runs_of(full).of(row)] for row in full.rows}
    assert len(half.rows) == 1 + 4
    assert all(ids[row.label] == [run.id for run in runs_of(half).of(row)] for row in half.rows)
    for row in half.rows[1:]:
        signs = [
            row.config.norm_position == "pre",
            row.config.activation == "gelu",
            row.config.dropout == 0.3,
        ]
        assert sum(signs) % 2 == 1  # the product of the levels is +1
    (design,) = half.designs
    assert design.title == "2^(3-1) fractional factorial of resolution 3"
    assert design.alias_lines() == [
        "I = norm_position × activation × P_drop",
        "norm_position = activation × P_drop",
        "activation = norm_position × P_drop",
        "P_drop = norm_position × activation",
    ]


def test_a_named_group_of_fields_is_one_factor_with_base_as_its_low_level(read):
    text = "F: {factorial: {N: [1, 2], modern: {activation: swiglu, norm: rmsnorm}}}"
    rows = rows_of(read(f"{HEAD}rows:\n  {text}\n"))
    assert [label for label in rows if label != "base"] == [
        f"F N={n} modern={level}" for n, level in itertools.product((1, 2), ("off", "on"))
    ]
    assert rows["F N=2 modern=off"].changed == {}
    assert rows["F N=2 modern=on"].changed == {"activation": "swiglu", "norm": "rmsnorm"}


def test_paths_lead_from_base_to_the_whole_by_one_part_at_a_time(read):
    text = f"path: [{{add-one-in: {PARTS}}}, {{leave-one-out: {PARTS}}}]"
    study = read(f"{HEAD}rows:\n  {text}\n")
    whole = {"norm_position": "pre", "activation": "swiglu", "norm": "rmsnorm", "dropout": 0.3}
    parts = {
        "norm_position": ["norm_position"],
        "modern": ["activation", "norm"],
        "P_drop": ["dropout"],
    }
    expected = {"base": {}, "path all": whole}
    for part, fields in parts.items():
        expected[f"path + {part}"] = {name: whole[name] for name in fields}
        expected[f"path all - {part}"] = {
            name: value for name, value in whole.items() if name not in fields
        }
    assert {row.label: row.changed for row in study.rows} == expected
    added, left_out = study.designs
    assert isinstance(added, PathDesign)
    assert (added.way, left_out.way) == ("add-one-in", "leave-one-out")
    assert added.target == left_out.target == "path all"
    assert added.rows == ("path + norm_position", "path + modern", "path + P_drop")


def test_a_cumulative_path_has_one_part_more_in_each_row(read):
    text = f"path: [{{cumulative: {PARTS}}}, {{add-one-in: {PARTS}}}]"
    study = read(f"{HEAD}rows:\n  {text}\n")
    rows = rows_of(study)
    steps = ["path up to norm_position", "path up to modern", "path all"]
    assert list(rows)[1:4] == steps
    found = [set(rows[label].changed) for label in steps]
    first = {"norm_position"}
    second = first | {"activation", "norm"}
    assert found == [first, second, second | {"dropout"}]
    design, added = study.designs
    assert (design.way, design.rows, design.target) == ("cumulative", tuple(steps), added.target)
    assert design.parts == added.parts == ("norm_position", "modern", "P_drop")


LM = """\
study: table3
task: language-model
data: {corpus: toy}
base: {preset: gpt2, N: 6, d_model: 64, d_ff: 256, h: 4, train_steps: 300, context: 32}
"""


def test_fields_without_effect_in_a_row_are_no_changes_of_it(read):
    """Mamba 2 has no feed-forward network, so the table shows no inner width of it."""
    changed = read(f"{LM}rows:\n  A: {{set: {{preset: mamba2}}}}\n").rows[1].changed
    assert changed["feed_forward"] == "none"
    assert not {"d_ff", "activation", "attention_bias"} & changed.keys()


def test_a_preset_is_the_end_of_a_path(read):
    """With a step for each part in which it differs from base, whatever base's own settings."""
    end = "{preset: qwen3, n_kv_heads: 2}"
    text = f"path: [{{add-one-in: {end}}}, {{leave-one-out: {end}}}]\n  row: {{set: {end}}}"
    study = read(f"{LM.replace('h: 4', 'h: 4, qk_norm: head')}rows:\n  {text}\n")
    rows = rows_of(study)
    parts = ("positions", "biases", "norm-type", "feed-forward", "regularization", "sizes")
    assert [design.parts for design in study.designs] == [parts, parts]
    assert rows["path + positions"].changed == {"positional_encoding": "rope", "rope_base": 1e6}
    assert rows["path + sizes"].changed == {"n_kv_heads": 2}
    whole = rows["path all"].changed
    assert whole == {
        name: value for part in parts for name, value in rows[f"path + {part}"].changed.items()
    }
    for part in parts:
        left = whole.keys() - rows[f"path + {part}"].changed.keys()
        assert rows[f"path all - {part}"].changed == {name: whole[name] for name in left}


def test_sizes_have_the_steps_to_a_preset_each(read):
    sizes = "sizes: {small: {}, large: {d_model: 128}}\n"
    study = read(f"{LM}{sizes}rows: {{path: {{add-one-in: {{preset: qwen3}}}}}}\n")
    small, large = (design.parts for design in study.designs)
    assert small == large
    assert rows_of(study)["large path + qk-norm"].config.d_model == 128


def test_rows_of_a_design_can_be_matched_and_tuned(read):
    tune = "tune: {grid: {learning_rate: [0.001, 0.01]}, seeds: [9]}\n"
    study = read(
        f"{HEAD}{tune}rows:\n  path: "
        f"{{add-one-in: {PARTS}, match: {{params: d_ff, within: 0.02}}}}\n"
    )
    row = rows_of(study)["path + modern"]
    assert (row.matched.field, len(row.choice.candidates)) == ("d_ff", 2)

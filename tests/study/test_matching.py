"""`match`: the free field takes the value whose cost is nearest to base's; every fault has its
line.
"""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ablate.config import cost
from ablate.config.identity import run_id
from ablate.config.lengths import Lengths
from ablate.config.resolve import resolve_row
from ablate.errors import StudyError
from ablate.study import runs_of
from ablate.study.matching import Match, match_row

V = 350
BASE = {
    "n_layers": 2, "d_model": 64, "d_ff": 256, "n_heads": 4, "train_steps": 300,
    "batch_tokens": 1024,
}  # fmt: skip
HEAD = """\
study: table3
data: {corpus: toy, vocab_size: 350}
base: {N: 2, d_model: 64, d_ff: 256, h: 4, train_steps: 300, batch_tokens: 1024}
"""
CHANGES = st.sampled_from(
    [
        {"activation": "swiglu"},
        {"n_kv_heads": 1},
        {"architecture": "decoder-only"},
        {"n_layers": 1},
        {"n_layers": 3},
        {"norm": "rmsnorm", "tied_embeddings": "none"},
        {"d_model": 32},
    ]
)


def by_brute_force(kind, field, changes, values):
    """The smallest relative difference over these values of the field."""
    base = resolve_row(BASE)

    def of(config):
        if kind == "params":
            return cost.parameters(config, V)
        return config.train_steps * cost.flops_per_step(config, V, Lengths.of_length(30))

    differences = []
    for value in values:
        try:
            config = resolve_row({**BASE, **changes, field: value})
        except ValueError:
            continue
        differences.append(abs(of(config) / of(base) - 1))
    return min(differences)


@settings(max_examples=25)
@example({"n_heads": [2, 8]}, ("params", "d_model", 160))
@given(
    changes=CHANGES,
    kind_and_field=st.sampled_from(
        [("params", "d_ff", 1200), ("params", "n_layers", 30), ("params", "d_model", 160), ("flops", "d_ff", 1200),
         ("flops", "train_steps", 1200), ("flops", "d_model", 160)]
    ),
)  # fmt: skip
def test_no_other_value_comes_nearer_to_the_cost_of_base(changes, kind_and_field):
    kind, field, highest = kind_and_field
    if field in changes:
        return
    values = {**BASE, **changes}
    matched = match_row(
        Match.model_construct(**{kind: field}, within=1e9),
        values,
        resolve_row(BASE),
        lambda config: V,
    )
    assert matched.value <= highest
    config = resolve_row({**values, field: matched.value})
    assert Match(**{kind: field}).cost_of(config, V) == matched.reached
    # Its neighbors and every seventh other value: each one takes a millisecond.
    near = range(max(1, matched.value - 40), min(highest, matched.value + 40))
    nearest = by_brute_force(kind, field, changes, {*near, *range(1, highest, 7)})
    assert abs(matched.difference) == pytest.approx(nearest, abs=1e-12)


def test_a_row_that_costs_what_base_costs_keeps_its_settings(read):
    study = read(
        f"{HEAD}match: {{params: d_ff}}\nrows:\n  D: "
        f"{{each: {{dropout: [0.3], activation: [gelu]}}}}\n"
    )
    assert [row.changed for row in study.rows[1:]] == [{"dropout": 0.3}, {"activation": "gelu"}]
    assert [row.matched.difference for row in study.rows[1:]] == [0.0, 0.0]


def test_a_matched_row_is_the_row_that_one_would_write_by_hand(read):
    matched = read(
        f"{HEAD}rows:\n  A: {{set: {{activation: swiglu}}, match: {{params: d_ff}}}}\n"
    ).rows[1]
    by_hand = read(
        f"{HEAD}rows:\n  A: {{set: {{activation: swiglu, d_ff: {matched.config.d_ff}}}}}\n"
    ).rows[1]
    assert matched.config == by_hand.config
    assert matched.changed == by_hand.changed
    assert by_hand.matched is None


def test_the_key_of_a_group_replaces_that_of_the_study(read):
    text = f"""{HEAD}match: {{params: d_ff}}
rows:
  study: {{set: {{n_kv_heads: 1}}}}
  group: {{set: {{n_kv_heads: 1}}, match: {{flops: train_steps}}}}
  free: {{set: {{n_kv_heads: 1}}, match: false}}
"""
    _, of_study, of_group, free = read(text).rows
    assert (of_study.matched.field, of_group.matched.field, free.matched) == (
        "d_ff",
        "train_steps",
        None,
    )
    assert free.changed == {"n_kv_heads": 1}


def test_ids_do_not_change_for_rows_without_the_key(read):
    rows = "rows:\n  A: {each: {h: [1, 2]}, match: false}\n"
    with_key, without = (
        read(f"{HEAD}match: {{params: d_ff}}\n{rows}"),
        read(HEAD + rows.replace(", match: false", "")),
    )
    assert [run.id for run in runs_of(with_key)] == [run.id for run in runs_of(without)]
    assert runs_of(with_key).of(with_key.base)[0].id == run_id(
        with_key.data, with_key.base.config, 1
    )


def test_every_row_with_a_vocabulary_of_its_own_is_matched_with_it(read):
    row = read(f"{HEAD}rows:\n  V: {{set: {{vocab_size: 700}}, match: {{params: d_ff}}}}\n").rows[1]
    base = cost.parameters(resolve_row(BASE), 350)
    assert cost.parameters(row.config, 700) == pytest.approx(base, rel=0.01)
    assert row.matched.reached == cost.parameters(row.config, 700)


def test_a_mixture_of_experts_gets_the_parameters_that_a_token_meets(read):
    experts = "{n_experts: 8, experts_per_token: 2, shared_experts: 1}"
    row = read(f"{HEAD}rows: {{E: {{set: {experts}, match: {{active_params: d_ff}}}}}}\n").rows[1]
    # Per layer: 2 d_model d_ff weights and d_ff + d_model biases in each of 2 + 1 experts in the
    # place of one network, and 8 d_model weights of the router; two stacks of two layers.
    inner = {d_ff: 3 * (129 * d_ff + 64) + 8 * 64 for d_ff in range(60, 90)}
    nearest = min(inner, key=lambda d_ff: abs(inner[d_ff] - (129 * 256 + 64)))
    assert row.config.d_ff == nearest
    active = cost.parameters(row.config, V) - cost.idle_parameters(row.config)
    assert row.matched.reached == active
    assert row.matched.target == cost.parameters(resolve_row(BASE), V)
    assert row.matched.text == f"d_ff={nearest}: active_params {100 * (active / 254336 - 1):+.1f} %"


def test_the_value_that_a_condition_requires_is_the_resolved_one(read, faults):
    group = "A: {{set: {{activation: swiglu}}, match: {{params: d_ff}}, require: d_ff {} 255}}"
    assert read(f"{HEAD}rows:\n  {group.format('==')}\n").rows[1].config.d_ff == 255
    (line,) = faults(f"{HEAD}rows:\n  {group.format('!=')}\n")
    assert "violates require" in line


def test_a_custom_class_is_refused_because_its_cost_is_not_known(tmp_path):
    from ablate.study import read_study

    (tmp_path / "mine.py").write_text("class Wide: ...\n")
    path = tmp_path / "study.yaml"
    path.write_text(
        f"{HEAD}rows:\n  A: {{set: {{activation: 'mine:Wide'}}, match: {{params: d_ff}}}}\n"
    )
    with pytest.raises(StudyError) as caught:
        read_study(path)
    assert "the cost of mine:Wide is not known" in caught.value.lines[0]


@pytest.mark.parametrize("field", ["schedule", "optimizer", "loss_term"])
def test_a_custom_class_of_training_is_matched_as_it_does_not_change_the_model(tmp_path, field):
    from ablate.study import read_study

    (tmp_path / "mine.py").write_text("class Own: ...\n")
    path = tmp_path / "study.yaml"
    head = HEAD.replace("base: {", "base: {warmup_steps: 50, ")
    path.write_text(
        f"{head}rows:\n"
        f"  A: {{set: {{{field}: 'mine:Own', n_kv_heads: 1}}, match: {{params: d_ff}}}}\n"
        "  B: {set: {n_kv_heads: 1}, match: {params: d_ff}}\n"
    )
    own, built_in = read_study(path).rows[1:]
    assert own.config.d_ff == built_in.config.d_ff == 327

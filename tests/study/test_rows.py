"""The rows of a group: each, zip, grid and set."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablate.errors import Mark, as_fault
from ablate.study import runs_of
from ablate.study.rows import MAX_ROWS, expand_group
from ablate.study.study_file import StudyFile
from ablate.study.typed import read_model
from ablate.study.yaml_nodes import Node, parse_yaml

HEAD = "study: table3\ndata: {corpus: toy}\n"
FIELDS = ["N", "h", "d_k", "d_v", "dropout", "beam"]


def written(text, group="A", budget=MAX_ROWS):
    """The settings of each row of the group, and the errors by line and column."""
    errors, rows = [], []

    def report(mark, fault):
        errors.append(str(as_fault(fault).located(mark)))

    node = parse_yaml(text, "s")
    for name in (group, "rows"):
        node = Node({name: (Mark("s"), node)}, Mark("s"))
    groups = read_model(StudyFile, node, "s", report)[0].rows.get(group, [])
    for options in groups if isinstance(groups, list) else [groups]:
        rows += expand_group(group, options, report, budget - len(rows), None)
    assert all(row.group == group for row in rows)
    return [{name: node.value for name, node in row.settings.items()} for row in rows], errors


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("each: {h: [1, 4], dropout: [0.2]}", [{"h": 1}, {"h": 4}, {"dropout": 0.2}]),
        ("zip: {h: [1, 4], d_k: [512, 128]}", [{"h": 1, "d_k": 512}, {"h": 4, "d_k": 128}]),
        ("grid: {h: [1, 4], N: [2, 3]}", [{"h": 1, "N": 2}, {"h": 1, "N": 3}, {"h": 4, "N": 2}, {"h": 4, "N": 3}]),
        ("set: {preset: big, train_steps: 300000}", [{"preset": "big", "train_steps": 300_000}]),
        ("set: {epochs: null}", [{"epochs": None}]),
        ("[{set: {h: 1}}, {each: {N: [2, 3]}}, {set: {h: 4}}]", [{"h": 1}, {"N": 2}, {"N": 3}, {"h": 4}]),
        ("[]", []),
    ],
)  # fmt: skip
def test_each_zip_grid_and_set_make_rows_in_the_order_of_writing(text, expected):
    assert written(text if text.startswith("[") else f"{{{text}}}") == (expected, [])


LISTS = st.dictionaries(st.sampled_from(FIELDS), st.integers(1, 4), min_size=1, max_size=5)


def lists(sizes):
    return (
        "{" + ", ".join(f"{name}: {list(range(1, size + 1))}" for name, size in sizes.items()) + "}"
    )


@given(LISTS)
def test_a_grid_has_the_product_of_its_lists_and_each_combination_once(sizes):
    rows, found = written(f"{{grid: {lists(sizes)}}}")
    assert len({tuple(row.items()) for row in rows}) == len(rows) == math.prod(sizes.values())
    assert not found


def test_an_error_in_one_field_does_not_hide_the_next():
    rows, found = written("{each: {x: [1], N: [4, [1]], h: 3, d_k: [2]}}")
    assert rows == [{"d_k": 2}]
    assert [line.split(":")[2] for line in found] == ["9", "24", "33"]


@pytest.mark.parametrize(("size", "budget", "rows"), [(3, 9, 9), (3, 8, 0), (1000, 10_000, 0)])
def test_too_many_rows_are_counted_and_not_created(size, budget, rows):
    values = list(range(size))
    made, found = written(f"{{grid: {{h: {values}, N: {values}}}}}", budget=budget)
    assert len(made) == rows
    assert found == (
        [] if rows else [f"s:1:8: makes {size * size:,} rows; a study can have at most 10,000"]
    )


@pytest.mark.parametrize("way", ["add-one-in", "leave-one-out"])
@pytest.mark.parametrize(("budget", "rows"), [(4, 4), (3, 0)])
def test_rows_of_a_path_are_one_more_than_its_parts(way, budget, rows):
    made, found = written(f"{{{way}: {{h: 4, N: 2, dropout: 0.2}}}}", budget=budget)
    assert len(made) == rows
    fault = f"s:1:{len(way) + 4}: makes 4 rows; a study can have at most 10,000"
    assert found == ([] if rows else [fault])


@pytest.mark.parametrize(("budget", "rows"), [(3, 3), (2, 0)])
def test_rows_of_a_cumulative_path_are_as_many_as_its_parts(budget, rows):
    made, found = written("{cumulative: {h: 4, N: 2, dropout: 0.2}}", budget=budget)
    assert (len(made), len(found)) == (rows, rows == 0)


# --- labels --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ("A: {zip: {h: [1], d_k: [512], d_v: [512]}}", ["A h=1 d_k=512 d_v=512"]),
        ("D: {each: {dropout: [0.0, 0.20], eps_ls: [0]}}", ["D dropout=0.0", "D dropout=0.2", "D eps_ls=0"]),
        ("E: {each: {positional_encoding: [learned]}}", ["E positional_encoding=learned"]),
        ("big: {set: {train_steps: 300000, preset: big}}", ["big train_steps=300000 preset=big"]),
        ("F: {set: {epochs: 3, train_steps: null}}", ["F epochs=3 train_steps=null"]),
        ("two words: {set: {h: 4}}", ["two words h=4"]),
    ],
)  # fmt: skip
def test_a_label_is_the_group_and_what_the_row_sets_as_written(read, rows, labels):

    assert [row.label for row in read(f"{HEAD}rows:\n  {rows}\n").rows[1:]] == labels


def test_a_written_label_names_the_row_and_does_not_change_its_runs(read):
    unnamed, named = (
        read(
            f"{HEAD}rows: "
            f"{{E: [{{set: {{h: 4, N: 2}}{label}}}, {{each: {{N: [3]}}}}], F: {{set: {{N: 4}}}}}}\n"
        )
        for label in ("", ", label: half of it (small)")
    )
    assert [row.label for row in named.rows] == ["base", "half of it (small)", "E N=3", "F N=4"]
    assert [run.id for run in runs_of(named)] == [run.id for run in runs_of(unnamed)]
    assert [row.is_labeled for row in named.rows] == [False, True, False, False]
    assert named.rows[1].group == "E"
    assert [
        row.label
        for row in read(f"{HEAD}rows: {{lstm: {{set: {{mixer: lstm}}, label: LSTM}}}}").rows[1:]
    ] == ["LSTM"]


# --- require and where ---------------------------------------------------------------------------


def test_require_sees_resolved_fields_and_not_only_written_ones(read):
    rows = (
        "rows: {A: {each: {h: [1, 4, 16]}, require: h * d_k == d_model and n_heads * d_v == "
        "d_model}}"
    )
    assert len(read(HEAD + rows).rows) == 4


def test_where_drops_rows_and_counts_them(read):
    grid = (
        "grid: {warmup_steps: [2000, 8000], dropout: [0.1, 0.3]}, where: warmup_steps > 2000 or "
        "dropout < 0.3"
    )
    study = read(
        f"{HEAD}rows: "
        f"{{warm: {{{grid}}}, D: {{each: {{dropout: [0.2, 0.4]}}, where: P_drop < 0.3}}}}"
    )
    assert [row.label for row in study.rows] == [
        "base",
        "warm warmup_steps=2000 dropout=0.1",
        "warm warmup_steps=8000 dropout=0.1",
        "warm warmup_steps=8000 dropout=0.3",
        "D dropout=0.2",
    ]
    assert study.whole.dropped == 2


def test_a_group_that_where_empties_is_noted(read):
    kept = "B: {each: {h: [2, 4]}, where: h > 2}"
    study = read(HEAD + f"rows: {{A: {{each: {{h: [2, 4]}}, where: h > 20}}, {kept}}}\n")
    (note,) = study.source.notes
    assert note.endswith(": groups without rows, because where drops every combination: A")


@pytest.mark.parametrize(("rows", "count"), [("", 1), ("{}", 0)])
def test_a_section_rows_without_a_group_is_noted(read, rows, count):
    notes = read(f"{HEAD}rows: {rows}\n").source.notes
    assert [note.partition(": ")[2] for note in notes] == count * [
        "rows has no group: only base is trained"
    ]


def test_require_does_not_apply_to_rows_that_where_drops(read):
    study = read(HEAD + "rows: {A: {each: {h: [4, 8]}, where: h > 4, require: h == 8}}")
    assert ([row.label for row in study.rows], study.whole.dropped) == (["base", "A h=8"], 1)

"""Reading a study: rows, runs, `--set`, and errors with their positions."""

import pytest

from ablate.analysis.experiment import experiment_of
from ablate.analysis.results import runs_by_row
from ablate.config.identity import run_id
from ablate.errors import StudyError
from ablate.study import read_study, runs_of

HEAD = "study: table3\ndata: {corpus: toy}\n"

# The study of the design page: rows A to E of the paper's Table 3, a grid, and the big model.
TABLE_3 = """\
study: table3
data: {corpus: multi30k, direction: en-de, vocab_size: 8000}
base:
  preset: base
  train_steps: 100000
  batch_tokens: 25000
  warmup_steps: 4000
  beam: 4
  alpha: 0.6
seeds: [1, 2, 3]
rows:
  A: {zip: {h: [1, 4, 16, 32], d_k: [512, 128, 32, 16], d_v: [512, 128, 32, 16]}, require: h * d_k == d_model}
  B: {each: {d_k: [16, 32]}}
  D: {each: {dropout: [0.0, 0.2], label_smoothing: [0.0, 0.2]}}
  E: {each: {positional_encoding: [learned]}}
  warm: {grid: {warmup_steps: [2000, 8000], dropout: [0.1, 0.3]}, where: warmup_steps > 2000 or dropout < 0.3}
  big: {set: {preset: big, train_steps: 300000}}
"""


def labels(study):
    return [row.label for row in study.rows]


def row(study, label):
    return study.rows[labels(study).index(label)]


# --- rows ----------------------------------------------------------------------------------------


def test_the_study_of_table_3_has_the_rows_of_the_paper(read):
    study = read(TABLE_3)
    assert labels(study) == [
        "base",
        "A h=1 d_k=512 d_v=512", "A h=4 d_k=128 d_v=128", "A h=16 d_k=32 d_v=32", "A h=32 d_k=16 d_v=16",
        "B d_k=16", "B d_k=32",
        "D dropout=0.0", "D dropout=0.2", "D label_smoothing=0.0", "D label_smoothing=0.2",
        "E positional_encoding=learned",
        "warm warmup_steps=2000 dropout=0.1", "warm warmup_steps=8000 dropout=0.1",
        "warm warmup_steps=8000 dropout=0.3",
        "big preset=big train_steps=300000",
    ]  # fmt: skip
    assert (study.name, study.seeds.rows, study.whole.dropped) == ("table3", (1, 2, 3), 1)
    assert [row.group for row in study.rows] == [
        "base", *"AAAABBDDDDE", "warm", "warm", "warm", "big",
    ]  # fmt: skip
    assert study.data.vocab_size == 8000


@pytest.mark.parametrize(
    ("label", "changed"),
    [
        ("base", {}),
        ("A h=1 d_k=512 d_v=512", {"n_heads": 1, "d_k": 512, "d_v": 512}),
        ("B d_k=16", {"d_k": 16}),  # d_v stays at 64
        ("warm warmup_steps=2000 dropout=0.1", {"warmup_steps": 2000}),
        (
            "big preset=big train_steps=300000",
            {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3, "train_steps": 300_000},
        ),
    ],
)
def test_changed_holds_the_differences_from_base_by_standard_name(read, label, changed):
    assert row(read(TABLE_3), label).changed == changed


def test_a_study_without_rows_is_base_alone_with_seed_1(read):
    study = read(HEAD)
    assert (labels(study), study.seeds.rows, len(list(runs_of(study)))) == (["base"], (1,), 1)


@pytest.mark.parametrize(
    "base", ["{d_model: 64}", "{preset: base, d_model: 64}", "{d_model: 64, preset: base}"]
)
def test_a_preset_in_a_row_overrides_the_settings_of_base(read, base):
    study = read(f"{HEAD}base: {base}\nrows: {{A: {{each: {{preset: [big]}}}}}}")
    assert (study.base.config.d_model, study.rows[1].config.d_model) == (64, 1024)


def test_a_row_may_set_its_preset_after_its_fields(read):
    study = read(HEAD + "rows: {A: {set: {dropout: 0.2, preset: big}}}")
    assert (study.rows[1].config.dropout, study.rows[1].config.d_model) == (0.2, 1024)


def test_a_row_overrides_a_field_that_base_writes_by_its_symbol(read):
    study = read(
        HEAD + "base: {h: 4, P_drop: 0.3}\nrows: {A: {each: {n_heads: [2], dropout: [0.0]}}}"
    )
    assert [(row.config.n_heads, row.config.dropout) for row in study.rows] == [
        (4, 0.3),
        (2, 0.3),
        (4, 0.0),
    ]


def test_rows_written_twice_in_a_group_appear_once(read):
    assert labels(read(HEAD + "rows: {A: [{each: {h: [4, 4]}}, {set: {h: 4}}]}")) == [
        "base",
        "A h=4",
    ]


# --- runs ----------------------------------------------------------------------------------------


def test_a_row_equal_to_base_shares_its_run(read):
    study = read(HEAD + "rows: {A: {each: {h: [8, 4]}}, B: {each: {d_k: [64]}}}")
    base = [run.id for run in runs_of(study).of(study.base)]
    assert [run.id for run in runs_of(study).of(row(study, "A h=8"))] == base
    assert [run.id for run in runs_of(study).of(row(study, "B d_k=64"))] == base
    assert len(list(runs_of(study))) == 2


def test_rows_that_differ_in_decoding_share_a_run_with_several_decodings(read):
    study = read(
        HEAD + "rows: {beam: {each: {beam: [1, 10], alpha: [1.0], average_checkpoints: [5]}}}"
    )
    [run] = runs_of(study)
    assert len(study.rows) == 5
    assert {one.id for row in study.rows for one in runs_of(study).of(row)} == {run.id}
    assert [config.beam for config in run.decodings.values()] == [4, 1, 10, 4, 4]
    assert set(run.decodings) == {row.decoding for row in study.rows}


def test_runs_are_ordered_by_seed_then_row(read):
    study = read(HEAD + "seeds: [3, 1]\nrows: {A: {each: {h: [4, 8, 2]}}}")
    assert [(run.seed, run.config.n_heads) for run in runs_of(study)] == [
        (3, 8), (3, 4), (3, 2), (1, 8), (1, 4), (1, 2),
    ]  # fmt: skip


def test_the_runs_of_a_row_are_its_seeds_with_its_identity(read):
    study = read(HEAD + "seeds: [3, 1]\nrows: {A: {each: {h: [4]}}}")
    runs = runs_of(study).of(study.rows[1])
    assert [(run.seed, run.id) for run in runs] == [
        (seed, run_id(study.data, study.rows[1].config, seed)) for seed in (3, 1)
    ]


def test_data_folder_defaults_to_the_folder_of_the_study(read, study_file):
    files = "study: t\ndata: {corpus: files, direction: en-de, train: a, dev: b, test: c%s}"
    assert read(files % "").data_folder == study_file.parent
    assert str(read(files % ", folder: /corpora/mine").data_folder) == "/corpora/mine"


# --- --set ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "remedy"),
    [
        ("drop_out", 'did you mean "dropout"?'),
        ("steps", 'did you mean "train_steps"?'),
        ("num_layers", 'did you mean "n_layers"?'),
        ("lr", 'did you mean "learning_rate"?'),
        ("batch_size", 'did you mean "batch_tokens"?'),
        ("grad_accum_steps", 'did you mean "micro_batch_tokens"?'),
        ("max_steps", 'did you mean "train_steps"?'),
        ("num_hidden_layers", 'did you mean "n_layers"?'),
        ("num_attention_heads", 'did you mean "n_heads"?'),
        ("num_key_value_heads", 'did you mean "n_kv_heads"?'),
        ("grad_clip", 'did you mean "gradient_clipping"?'),
        ("tie_weights", 'did you mean "tied_embeddings"?'),
        ("gqa", 'did you mean "n_kv_heads"?'),
        ("mla", 'did you mean "kv_rank"?'),
        ("d_state", 'did you mean "d_k"?'),
        ("depth", 'did you mean "n_layers"?'),
        ("bias", 'did you mean "attention_bias" or "feed_forward_bias"?'),
        ("layer_types", 'did you mean "mixer" or "attention" with a list of values, such as "mixer: [lstm, attention]"?'),
        ("kv_latent", "a class of your own could have it: attention: module:Class"),
        ("rope_style", "a class of your own could have it: positional_encoding: module:Class"),
        ("xyzzy", "`ablate init --schema` lists the fields"),
    ],
)  # fmt: skip
def test_a_guess_is_near_in_spelling_or_meaning(faults, field, remedy):
    (line,) = faults(f"{HEAD}base: {{{field}: 3}}")
    assert line.startswith(f'table3.yaml:3:8: unknown field "{field}"')
    assert line.endswith(remedy)
    assert ("did you mean" in line) == ("did you mean" in remedy)


@pytest.mark.parametrize("misspelt", ["warm_up: 20", "warmup_steps: many"])
def test_no_fault_follows_from_the_default_of_a_field_that_is_misspelt(faults, misspelt):
    """With 4,000 steps of warm-up, the default, the schedule would have no effect."""
    (line,) = faults(f"{HEAD}base: {{{misspelt}, schedule: linear, train_steps: 200}}")
    assert misspelt.split(":")[0] in line
    two = faults(f"{HEAD}base: {{schedule: linear, train_steps: 200}}")
    assert "schedule: linear has no effect" in two[0]


@pytest.mark.parametrize(("name", "guess"), [("quickstrat", "quickstart"), ("mine", None)])
def test_a_missing_study_suggests_no_unrelated_file(tmp_path, name, guess):
    for stem in ("quickstart", "mini-lm", "m30k"):
        (tmp_path / f"{stem}.yaml").touch()
    with pytest.raises(StudyError) as caught:
        read_study(tmp_path / f"{name}.yaml")
    expected = f'; did you mean "{tmp_path / guess}.yaml"?' if guess else ""
    assert str(caught.value) == f"{tmp_path / name}.yaml: no such file{expected}"


@pytest.mark.parametrize("value", ["/x/my #1 data", "/x/a: b", "/x/- a", "/x/*b"])
def test_the_value_of_set_is_all_of_its_text(read, value):
    study = read(
        "study: t\ndata: {corpus: files, direction: en-de, train: a, dev: b, test: c}",
        overrides=[f"data.folder={value}"],
    )
    assert study.data.folder == value


WITH_BASE = (
    "study: table3\ndata: {corpus: multi30k}\nbase: {h: 4, train_steps: 300}\nrows: {A: {each: "
    "{h: [2]}}}"
)


@pytest.mark.parametrize(
    ("override", "name", "expected"),
    [
        ("train_steps=200", "train_steps", 200),
        ("n_heads=16", "n_heads", 16),  # replaces the base's h
        ("h=16", "n_heads", 16),
        ("base.h=16", "n_heads", 16),
        ("P_drop = 0.25", "dropout", 0.25),
        ("preset=big", "d_model", 1024),
        ("preset=big", "n_heads", 4),  # what base writes after its preset stays
        ("positional_encoding=learned", "positional_encoding", "learned"),
        ("patience=null", "patience", None),
    ],
)
def test_set_replaces_a_field_of_base(read, override, name, expected):
    assert getattr(read(WITH_BASE, overrides=[override]).base.config, name) == expected


def test_set_does_not_replace_what_a_row_writes(read):
    study = read(WITH_BASE, overrides=["h=16", "train_steps=200"])
    assert [(row.config.n_heads, row.config.train_steps) for row in study.rows] == [
        (16, 200),
        (2, 200),
    ]


def test_set_reaches_the_data_and_base(read):
    overrides = ["data.vocab_size=500", "data.direction=de-en", "vocab_size=300", "h=4"]
    study = read(WITH_BASE, overrides=overrides)
    base = study.base.config
    assert (study.data.vocab_size, study.data.direction) == (500, "de-en")
    assert (base.vocab_size, base.n_heads) == (300, 4)


def test_set_makes_the_sections_that_are_missing(read):
    study = read("study: t", overrides=["data.corpus=toy", "train_steps=200"])
    assert (study.data.corpus, study.base.config.train_steps) == ("toy", 200)


def test_set_can_replace_an_invalid_value(read):
    assert (
        read(
            HEAD + "base: {train_steps: many}", overrides=["train_steps=200"]
        ).base.config.train_steps
        == 200
    )


@pytest.mark.parametrize(
    "override", ["h=1\n2", "h\x1b[2J=3", "h=\udcff", "x" * 10**5 + "=3", "h=" + "[" * 10**5]
)
def test_an_error_of_set_is_one_short_printable_line(faults, override):
    [line] = faults(WITH_BASE, overrides=[override])
    assert line.startswith("--set ")
    assert line.isprintable()
    assert len(line) < 1200


# --- --rows and --seeds --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("patterns", "picked"),
    [
        (["A h=4 d_k=128 d_v=128"], ["A h=4 d_k=128 d_v=128"]),
        (["B"], ["B d_k=16", "B d_k=32"]),
        (["B,E"], ["B d_k=16", "B d_k=32", "E positional_encoding=learned"]),
        (
            ["E", "B"],
            ["B d_k=16", "B d_k=32", "E positional_encoding=learned"],
        ),  # the study's order
        (["D dropout=0.?"], ["D dropout=0.0", "D dropout=0.2"]),
        (["*d_k=16*"], ["A h=32 d_k=16 d_v=16", "B d_k=16"]),
        (["base"], []),
    ],
)
def test_rows_are_selected_by_label_group_or_pattern_and_base_always_stays(read, patterns, picked):
    assert labels(read(TABLE_3, rows=patterns)) == ["base", *picked]


def test_selecting_every_row_changes_nothing(read):
    assert read(TABLE_3, rows=["*"]) == read(TABLE_3)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("7", (7,)), ("1,2", (1, 2)), ("1-3,2,9", (1, 2, 3, 9)), (" 5 , 4", (5, 4)), ("0,4294967295", (0, 2**32 - 1))],
)  # fmt: skip
def test_seeds_are_numbers_and_ranges_without_duplicates(read, text, seeds):
    study = read(TABLE_3, seeds=text)
    assert study.seeds.rows == seeds
    assert {run.seed for run in runs_of(study)} == set(seeds)


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("3", ("--seeds 3 is one seed, number 3; --seeds 1-3 is 3 seeds",)),
        *((text, ()) for text in ("1", "0", "1-3", "3,4", "2000000")),
    ],
)
def test_a_number_of_seeds_is_said_to_be_one_seed(read, text, notes):
    assert read(TABLE_3, seeds=text).source.notes == notes


# --- lists in base -------------------------------------------------------------------------------


def alternating(fields):
    return (
        f"{HEAD}base: {{N: 4, d_model: 64, {fields}}}\nrows:\n  D: {{each: {{dropout: [0.0]}}}}\n"
    )


@pytest.mark.parametrize(
    ("fields", "note"),
    [
        (
            "h: [1, 2, 4]",
            "h: [1, 2, 4] is a pattern, which gives its values to the layers in turn; to compare values, write rows: "
            "{h: {each: {h: [1, 2, 4]}}}",
        ),
        (
            "norm: [layernorm, rmsnorm]",
            "norm: [layernorm, rmsnorm] is a pattern, which gives its values to the layers in turn; to compare values, "
            "write rows: {norm: {each: {norm: [layernorm, rmsnorm]}}}",
        ),
        ("attention: [full, local], attention_window: 8", None),
        ("h: [2, 4], d_ff: [64, 128]", None),  # layers of two kinds
        ("h: 2", None),
    ],
)
def test_a_list_in_base_is_said_to_be_a_pattern(read, fields, note):
    notes = read(alternating(fields)).source.notes
    assert notes == (() if note is None else (f"{notes[0].partition(': ')[0]}: {note}",))


# --- evaluations ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "row", "named"),
    [
        ("train_steps: 30, eval_every: 50", "dropout: [0.0]", "base"),
        ("train_steps: 50, eval_every: 50", "train_steps: [40, 60]", "A train_steps=40"),
        ("train_steps: 30, eval_every: 10", "eval_every: [30, 31]", "A eval_every=31"),
        ("train_steps: 30", "dropout: [0.0]", None),  # the default is nobody's mistake
        ("train_steps: 50, eval_every: 50", "dropout: [0.0]", None),
    ],
)
def test_an_evaluation_that_no_training_reaches_is_said(read, base, row, named):
    study = read(f"{HEAD}base: {{{base}}}\nrows:\n  A: {{each: {{{row}}}}}\n")
    if named is None:
        assert study.source.notes == ()
        return
    said = "eval_every is above train_steps, so that only the end of training is evaluated"
    (note,) = [note for note in study.source.notes if said in note]
    assert note.endswith(f": {said}: {named}")


def test_a_selection_of_the_whole_is_no_modification(read):
    whole = read(TABLE_3)
    seeds = ",".join(map(str, whole.seeds.rows))
    assert not read(TABLE_3, seeds=seeds, rows=["*"]).source.is_modified
    assert read(TABLE_3, seeds=f"{seeds},77").source.is_modified
    assert read(TABLE_3, rows=["A"]).source.is_modified


@pytest.mark.parametrize(
    "text",
    ["", "x", "1,,2", "-1", "1-", "3-1", "1.5", str(2**32), "9" * 50, "0-1000", "1-99999999999"],
)
def test_invalid_seeds_are_errors(faults, text):
    [line] = faults(TABLE_3, seeds=text)
    assert line.startswith("--seeds: ")


# --- errors --------------------------------------------------------------------------------------


def test_a_group_may_have_the_name_of_a_key(read):
    assert [row.label for row in read(HEAD + "rows: {set: {each: {h: [1]}}}").rows] == [
        "base",
        "set h=1",
    ]


@pytest.mark.parametrize("name", ["table3", "a.b-c_d", "3", "2017", "A" * 64])
def test_valid_study_names(read, name):
    assert read(f"study: {name}\ndata: {{corpus: toy}}").name == name


@pytest.mark.parametrize(
    "name",
    [
        "..", ".hidden", "a..b", "a/b", "/etc", "../up", r"a\b", "a b", "-a", "A" * 65, "é",
        "runs", "corpora", "[a]",
    ],
)  # fmt: skip
def test_names_unsafe_as_folders_are_errors(faults, name):
    [line] = faults(f"study: {name}\ndata: {{corpus: toy}}")
    assert line.startswith("table3.yaml:1:8: ")


@pytest.mark.parametrize(
    "group",
    ["A/B", "../A", "A..B", "base", "Base", "BASE", "base ", "", "A=1", "A,B", "A*", " A", "é", "A" * 41],
)  # fmt: skip
def test_invalid_group_names_are_errors(faults, group):
    [line] = faults(f'{HEAD}rows: {{"{group}": {{each: {{h: [4]}}}}}}')
    assert line.startswith(f'table3.yaml:3:8: "{group}" is not a valid group name')


@pytest.mark.parametrize("name", ["Runs", "RUNS", "runs.", "Corpora", "corpora."])
def test_a_name_that_some_file_systems_take_for_a_folder_of_the_results_is_reserved(faults, name):
    message = f'"{name}" is reserved for a folder of the results root; choose another name'
    assert faults(f"study: {name}\ndata: {{corpus: toy}}\n") == [f"table3.yaml:1:8: {message}"]


def test_groups_with_different_names_are_read(read):
    study = read(
        HEAD + "rows: {A: {each: {h: [4]}}, Aa: {each: {h: [2]}}, A-a: {each: {h: [1]}}}\n"
    )
    assert [row.group for row in study.rows] == ["base", "A", "Aa", "A-a"]


# --- rows that add nothing -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("base", "row", "noted"),
    [
        ("{}", "eval_every: 10", True),
        ("{}", "checkpoint_every: 10", True),
        ("{}", "deterministic: true, micro_batch_tokens: 3000", True),
        ("{patience: 3}", "eval_every: 10", False),
        ("{average_checkpoints: 2}", "checkpoint_every: 10", False),
        ("{}", "checkpoint_every: 10, beam: 1", False),
    ],
)
def test_rows_that_change_nothing_of_training_are_noted(read, study_file, base, row, noted):
    notes = read(f"{HEAD}base: {base}\nrows:\n  A: {{set: {{{row}}}}}\n").source.notes
    text = (
        "rows with the weights of base, because they change only when a run is evaluated or saved"
    )
    assert any(text in note for note in notes) == noted


def test_a_router_that_is_not_trained_is_noted_where_it_is_written(read, study_file):
    base = "base: {n_experts: 4, dropout: 0.2}\n"
    (note,) = read(
        f"{HEAD}{base}rows:\n  A: {{each: {{experts_per_token: [1, 3]}}}}\n"
    ).source.notes
    assert note.startswith(f"{study_file}:5:34: experts_per_token=1 with expert_weights=")
    assert note.endswith("trains it: A experts_per_token=1")


def test_rows_equal_to_base_and_repeated_values_are_noted_with_their_positions(read, study_file):
    head = f"{HEAD}base: {{h: 8}}\n"
    study = read(
        f"{head}rows:\n  A: {{each: {{h: [4, 8, 4]}}}}\n  B: "
        f"{{grid: {{h: [8, 4], dropout: [0.1, 0.2]}}}}\n"
        "  F: {factorial: {h: [8, 4], dropout: [0.1, 0.2]}}\n"
    )
    assert study.source.notes == (
        f"{study_file}:5:21: rows with the settings of base, which show no difference: A h=8, B "
        f"h=8 dropout=0.1",
        f"{study_file}:5:24: rows that are written twice, and trained once: A h=4",
    )
    assert (
        read(f"{head}rows:\n  A: {{each: {{h: [4]}}}}\n  B: {{each: {{h: [4]}}}}\n").source.notes
        == ()
    )
    assert (
        read(f"{head}rows:\n  A: {{each: {{h: [4, 8]}}}}\n", overrides=["h=16"]).source.notes == ()
    )
    many = read(
        f"{head}rows:\n  A: {{each: {{dropout: {[0.1, *(n / 100 for n in range(20, 30))] * 2}}}}}\n"
    ).source.notes
    assert many[1].endswith(
        ": " + ", ".join(f"A dropout={n}" for n in (0.1, 0.2, 0.21, 0.22, 0.23, 0.24)) + ", ..."
    )


def test_a_row_that_is_not_tuned_is_not_equal_to_a_tuned_base(read):
    tuned = read(
        f"{HEAD}base: {{train_steps: 10000}}\ntune: "
        f"{{grid: {{learning_rate: [0.001, 0.002]}}, seeds: [9]}}\n"
        "rows:\n  fixed: {set: {learning_rate: 0.003}, tune: false}\n"
    )
    assert tuned.source.notes == ()


def corrected_for(study):
    return experiment_of(runs_of(study), runs_by_row([])).n_tests


def test_a_part_of_a_study_is_corrected_for_all_rows_of_the_file(read):
    text = HEAD + "rows: {A: {each: {h: [1, 2, 4]}}, B: {each: {dropout: [0.2]}}}\n"
    assert corrected_for(read(text)) == 4
    part = read(text, rows=["B"])
    assert len(part.rows) == 2
    assert corrected_for(part) == 4


@pytest.mark.parametrize("selected", [None, ["m A h=2"], ["m"], ["s A"]])
def test_all_sizes_of_the_file_are_corrected_together(read, selected):
    text = "sizes: {s: {N: 1}, m: {N: 2}, l: {N: 3}}\nrows: {A: {each: {h: [4, 2]}}}\n"
    assert corrected_for(read(HEAD + text, rows=selected)) == 6

"""Reading a study: rows, runs, `--set`, and errors with their positions."""

import pytest

from ablate.analysis.experiment import experiment_of
from ablate.analysis.results import runs_by_row
from ablate.config.identity import run_id
from ablate.config.presets import PRESETS
from ablate.errors import StudyError
from ablate.study import read_study, reader, runs_of

GROUP = (
    "each, zip, grid, set, factorial, leave-one-out, add-one-in, cumulative, label, require, where, match, "
    "tune, generators, resolution"
)
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

KNOWN = "toy, multi30k, iwslt2017, wmt14, files or hf:OWNER/NAME"


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


def test_a_preset_in_a_row_derives_head_sizes_again(read):
    study = read(
        HEAD
        + "base: {preset: base, d_k: 16, d_v: 128, d_model: 64}\nrows: {big: {set: {preset: big}}}"
    )
    assert (study.rows[1].config.d_k, study.rows[1].config.d_v) == (64, 64)


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


def test_the_same_configuration_in_two_groups_is_one_run(read):
    study = read(HEAD + "rows: {A: {each: {P_drop: [0.3]}}, D: {grid: {h: [8], dropout: [0.3]}}}")
    assert len(study.rows) == 3
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


@pytest.mark.parametrize(
    ("seeds", "error"),
    [
        ("{rows: 3}", "3:8: seeds needs base"),
        ("{rows: 3, base: 4}", "3:24: base: 4 seeds; at least 5, two more than the rows have"),
        ("{rows: 4, base: 2}", "3:24: base: 2 seeds; at least 6, two more than the rows have"),
        ("{rows: 0, base: 4}", "3:15: rows: "),
        ("{rows: 3, base: 9, looks: [2, 3]}", '3:9: unknown key "rows"'),
        ("{row: 3, base: 9}", '3:9: unknown key "row"; did you mean "rows"?'),
    ],
)
def test_more_seeds_for_base_are_numbers(faults, seeds, error):
    lines = faults(HEAD + f"seeds: {seeds}\nrows: {{A: {{each: {{h: [4]}}}}}}")
    assert lines[0].startswith(f"table3.yaml:{error}")


def test_more_seeds_for_base_need_a_row(faults):
    [line] = faults(HEAD + "seeds: {rows: 3, base: 9}")
    assert "no row to judge" in line


def test_the_runs_of_a_row_are_its_seeds_with_its_identity(read):
    study = read(HEAD + "seeds: [3, 1]\nrows: {A: {each: {h: [4]}}}")
    runs = runs_of(study).of(study.rows[1])
    assert [(run.seed, run.id) for run in runs] == [
        (seed, run_id(study.data, study.rows[1].config, seed)) for seed in (3, 1)
    ]


def test_a_row_keeps_its_run_when_the_study_around_it_changes(read):
    before = read(TABLE_3)
    after = read(
        TABLE_3.replace("study: table3", "study: other").replace(
            "  B:", "  C: {each: {N: [2]}}\n  B2:"
        )
    )
    assert runs_of(before).of(row(before, "B d_k=16")) == runs_of(after).of(row(after, "B2 d_k=16"))


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


def test_set_reaches_the_data_and_the_last_one_wins(read):
    study = read(
        WITH_BASE,
        overrides=["data.vocab_size=37000", "data.direction=de-en", "data.vocab_size=500"],
    )
    assert (study.data.vocab_size, study.data.direction) == (500, "de-en")


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
    ("override", "message"),
    [
        ("d_modle=3", 'unknown field "d_modle"; did you mean "d_model"?'),
        ("h=many", 'h: "many" is not allowed: must be a valid integer'),
        ("N=1e1", "N: 10.0 is not allowed: must be a valid integer; write 10"),
        ("N=1.5", "N: 1.5 is not allowed: must be a valid integer"),
        ("N=1_000", 'N: "1_000" is not allowed: must be a valid integer; write 1000'),
        ("N='1,000'", 'N: "1,000" is not allowed: must be a valid integer; write 1000'),
        ("N='1,5'", 'N: "1,5" is not allowed: must be a valid integer'),
        ("N=1e300", "N: 1e+300 is not allowed: must be a valid integer"),
        ("N=[1, 2]", '"N" takes a single value; got a list; to compare values, write each: {N: [...]} in a group of rows'),
        ("preset=bigg", 'unknown preset "bigg"; did you mean "big"?'),
        ("data.vocab_sise=3", 'unknown data field "vocab_sise"; did you mean "vocab_size"?'),
        ("data.vocab_size=3", "vocab_size: 3 is not allowed: must be greater than or equal to 8"),
        ("data.corpus=tpy", f'corpus "tpy" is not known: {KNOWN}; did you mean "toy"?'),
        ("rows.A=3", '"rows" cannot be set; --set takes FIELD and data.FIELD'),
        ("train_steps", "is not of the form FIELD=VALUE, such as train_steps=200"),
        ("train_steps=", "is not of the form FIELD=VALUE, such as train_steps=200"),
        ("=200", "is not of the form FIELD=VALUE, such as train_steps=200"),
        ("", "is not of the form FIELD=VALUE, such as train_steps=200"),
        ("h=!!python/name:os.system", 'h: "!!python/name:os.system" is not allowed: must be a valid integer'),
        ("h=1e999", '"1e999" is not a finite number'),
        ("h=[&one 8]", 'anchor "&one" is not supported; write the value out: rows have the fields of base, and write '
         "only what they change"),
        ('h={"a: b": 1, "a: b": 2}', 'duplicate key "a: b"; first on line 1'),
    ],
)  # fmt: skip
def test_errors_of_set_are_reported_at_the_option(faults, override, message):
    assert faults(WITH_BASE, overrides=[override]) == [f"--set {override}: {message}"]


def test_the_option_that_causes_many_errors_is_found_in_one_reading(faults, monkeypatch):
    """It was read for each error and option: 90 errors with four options took eight seconds."""
    readings, read = [], reader.read_model
    monkeypatch.setattr(reader, "read_model", lambda *given: readings.append(given) or read(*given))
    rows = "".join(f"  G{number}: {{each: {{h: [16]}}}}\n" for number in range(20))
    lines = faults(f"{HEAD}rows:\n{rows}", overrides=["d_ff=9", "d_model=24"])
    assert len(lines) == 20
    assert all(
        line.startswith("--set d_model=24: h=16 does not divide d_model=24") for line in lines
    )
    assert len(readings) == 1


@pytest.mark.parametrize(
    "override", ["h=1\n2", "h\x1b[2J=3", "h=\udcff", "x" * 10**5 + "=3", "h=" + "[" * 10**5]
)
def test_an_error_of_set_is_one_short_printable_line(faults, override):
    [line] = faults(WITH_BASE, overrides=[override])
    assert line.startswith("--set ")
    assert line.isprintable()
    assert len(line) < 1200


def test_errors_of_set_and_of_the_file_are_reported_together(faults):
    assert faults(HEAD + "base: {drop_out: 0.1}", overrides=["h", "d_modle=3", "beam=0"]) == [
        "--set h: is not of the form FIELD=VALUE, such as train_steps=200",
        '--set d_modle=3: unknown field "d_modle"; did you mean "d_model"?',
        "--set beam=0: beam: 0 is not allowed: must be greater than or equal to 1",
        'table3.yaml:3:8: unknown field "drop_out"; did you mean "dropout"?',
    ]


@pytest.mark.parametrize("section", ["data: 3", "base: 3"])
def test_set_does_not_hide_an_invalid_section(faults, section):
    text = f"study: t\n{section}\n" + ("" if section.startswith("data") else "data: {corpus: toy}")
    [line] = faults(text, overrides=["data.corpus=toy", "h=4"])
    assert line.startswith("table3.yaml:2:7: ")


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
    ("pattern", "line"),
    [
        ("wram", '--rows: study "table3" has no row or group "wram"; did you mean "warm"?'),
        ("B d_k=61", '--rows: study "table3" has no row or group "B d_k=61"; did you mean "B d_k=16"?'),
        ("Z9*", '--rows: study "table3" has no row or group "Z9*"; groups: base, A, B, D, E, warm, big'),
    ],
)  # fmt: skip
def test_an_unknown_row_is_an_error_with_the_nearest_match(faults, pattern, line):
    assert faults(TABLE_3, rows=[pattern]) == [line]


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


def test_a_list_that_is_no_pattern_says_how_values_are_compared(faults):
    (fault,) = faults(alternating("dropout: [0.1, 0.2]"))
    expected = '"dropout" takes a single value; got a list; to compare values, write each: {dropout: [...]} in a group of rows'
    assert fault.endswith(expected)
    (fault,) = faults(alternating("h: [1, 2, 4, 8, 16]"))
    assert "has 5 values for 4 layers; to compare values, write them under `each`" in fault


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


MANY = """\
study: ../table3
data: {corpus: multi30k, vocab_sise: 8000, max_length: 0}
bases: {}
base:
  preset: base
  drop_out: 0.1
  h: eight
  n_heads: 8
  dropout: [0.1, 0.2]
  label_smoothing: 1.0
seeds: [1, -1, x, 1]
rows:
  A/B: {each: {h: [4]}}
  base: {each: {h: [4]}}
  C: {zip: {h: [1, 4], d_k: [512]}}
  D: {each: {dropuot: [0.1], beam: [0, 1], d_k: 16}}
  E: {each: {h: [3]}}
  F: {grid: {h: [4], d_k: [64]}, require: h * d_k == d_model, were: h > 1}
  G: {set: {preset: huge}}
  H: {each: {h: [2]}, where: h.real}
  I: 3
"""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("device: cuda", '3:1: unknown section "device"; it is an option of the command line: ablate run STUDY --device cuda'),
        ("base: {gpu: 1}", '3:8: unknown field "gpu"; it is an option of the command line: ablate run STUDY --device cuda'),
        ("looks: [2, 3]", '3:1: unknown section "looks"; write seeds: {looks: [3, 5, 8]}'),
        ("dropout: 0.1", '3:1: unknown section "dropout"; it is a field of base: base: {dropout: VALUE}'),
        ("each: {h: [1]}", '3:1: unknown section "each"; it is a key of a group of rows: rows: {GROUP: {each: ...}}'),
        ("rows: {each: {h: [1]}}", '3:8: "each" is a key of a group; write rows: {GROUP: {each: ...}}'),
        ("base: {match: {params: d_ff}}", '3:8: unknown field "match"; it is a section of the study or a key of a '
         "group, and not a field"),
        ("base: {seed: 1}", '3:8: unknown field "seed"; it is `seeds: [1, 2, 3]`, a section of the study, and not a field'),
        ("rows: {A: {each: {train: [a.txt]}}}", '3:19: unknown field "train"; it is a key of data, which all rows '
         "share, and not a field"),
        ("rows: {A: {factorial: {N: [1, 2], h: [1, 2], resolution: 3}}}", '3:46: unknown field "resolution"; it is a '
         "key of the group, beside its rows, and not a field"),
    ],
)  # fmt: skip
def test_a_key_in_the_wrong_place_is_sent_to_the_right_one(faults, text, fault):
    assert faults(HEAD + text) == [f"table3.yaml:{fault}"]


def test_a_group_may_have_the_name_of_a_key(read):
    assert [row.label for row in read(HEAD + "rows: {set: {each: {h: [1]}}}").rows] == [
        "base",
        "set h=1",
    ]


def test_all_errors_are_reported_at_once_in_the_files_order(faults):
    assert faults(MANY) == [
        'table3.yaml:1:8: "../table3" is not a valid study name; allowed: letters, digits, "-", '
        '"_" and "." '
        "(at most 64 characters)",
        'table3.yaml:2:26: unknown data field "vocab_sise"; did you mean "vocab_size"?',
        "table3.yaml:2:56: max_length: 0 is not allowed: must be greater than or equal to 1",
        'table3.yaml:3:1: unknown section "bases"; did you mean "base"?',
        'table3.yaml:6:3: unknown field "drop_out"; did you mean "dropout"?',
        'table3.yaml:7:6: h: "eight" is not allowed: must be a valid integer',
        'table3.yaml:8:3: "n_heads" and "h" are the same field',
        'table3.yaml:9:12: "dropout" takes a single value; got a list; to compare values, write each: {dropout: [...]} in a group of rows',
        "table3.yaml:10:20: label_smoothing: 1.0 is not allowed: must be less than 1",
        "table3.yaml:11:12: seeds: -1 is not allowed: must be greater than or equal to 0",
        'table3.yaml:11:16: seeds: "x" is not allowed: must be a valid integer',
        "table3.yaml:11:19: duplicate seed 1",
        'table3.yaml:13:3: "A/B" is not a valid group name; allowed: letters a-z, digits, spaces '
        "and . _ + - "
        '(at most 40 characters), but not "base"',
        'table3.yaml:14:3: "base" is not a valid group name; allowed: letters a-z, digits, spaces '
        "and . _ + - "
        '(at most 40 characters), but not "base"',
        'table3.yaml:15:12: lists under "zip" must have equal lengths: h has 2, d_k has 1',
        'table3.yaml:16:14: unknown field "dropuot"; did you mean "dropout"?',
        "table3.yaml:16:37: beam: 0 is not allowed: must be greater than or equal to 1",
        'table3.yaml:16:49: "d_k" needs a list of values; got "16"; write d_k: [16]',
        "table3.yaml:17:18: h=3 does not divide d_model=512; set d_k, or change h or d_model",
        'table3.yaml:18:18: row "F h=4 d_k=64": violates require: h * d_k == d_model (h=4, d_k=64, '
        "d_model=512)",
        'table3.yaml:18:63: unknown key "were"; did you mean "where"?',
        f'table3.yaml:19:21: unknown preset "huge"; allowed: {", ".join(PRESETS)}',
        'table3.yaml:20:30: where: "h.real" is not allowed in a condition',
        f"table3.yaml:21:6: I: 3 is not allowed: must be a mapping of {GROUP}",
    ]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "{}",
            [
                'table3.yaml:1:1: the study has no name; add "study: NAME"',
                'table3.yaml:1:1: the study needs a "data" section, such as {corpus: toy, '
                'vocab_size: 350}',
            ],
        ),
        ("study:\ndata: {corpus: toy}", ['table3.yaml:1:7: the study has no name; add "study: NAME"']),
        (
            "study: t\ndata: toy",
            ['table3.yaml:2:7: data: "toy" is not allowed: must be a mapping of the corpus and its settings, such as {corpus: toy, vocab_size: 350}'],
        ),
        ("study: t\ndata: {}", [f"table3.yaml:2:7: data needs a corpus: {KNOWN}"]),
        (
            "study: t\ndata: {corpus: files, train: a, dev: b}",
            [
                "table3.yaml:2:7: test: must be given (test split, on which BLEU is measured; also "
                "sacrebleu:NAME)",
                "table3.yaml:2:7: direction: must be given (languages as source-target, for "
                "example en-de or en-pt-BR)",
            ],
        ),
        (HEAD + "base: 3", ['table3.yaml:3:7: base: 3 is not allowed: must be a mapping of fields, such as {d_model: 64}']),
        (HEAD + "base: {h: 3}", ["table3.yaml:3:11: h=3 does not divide d_model=512; set d_k, or change h or d_model"]),
        (HEAD + "base: {d_model: 9999999}", [
            "table3.yaml:3:17: d_model: 9999999 is not allowed: must be less than or equal to 65536"]),
        (HEAD + "base: {train_steps: null}", ["table3.yaml:3:21: training has no end; set train_steps, epochs or patience"]),
        (HEAD + "base: {max_positions: 256}", [
            "table3.yaml:3:23: row \"base\": data.max_length=256 needs 257 positions with begin "
            "and end tokens, "
            "more than max_positions=256"]),
        (HEAD + "rows: {A: {set: {architecture: decoder-only, max_positions: 513}}}", [
            "table3.yaml:3:61: row \"A architecture=decoder-only max_positions=513\": "
            "data.max_length=256 needs "
            "514 positions with begin and end tokens, more than max_positions=513"]),
        (HEAD + "base: {lr: 1, dim_feedforward: 64}", [
            'table3.yaml:3:8: unknown field "lr"; did you mean "learning_rate"?',
            'table3.yaml:3:15: unknown field "dim_feedforward"; did you mean "d_ff"?']),
        (HEAD + "base: {train_steps: 100k, dropout: 10%, residual: no, alpha: '0.6', label_smoothing: '0,1'}", [
            'table3.yaml:3:21: train_steps: "100k" is not allowed: must be a valid integer; write '
            '100000',
            'table3.yaml:3:36: dropout: "10%" is not allowed: must be a valid number; write 0.1',
            'table3.yaml:3:51: residual: "no" is not allowed: must be true or false; write false',
            'table3.yaml:3:62: alpha: "0.6" is not allowed: must be a valid number; write 0.6',
            'table3.yaml:3:86: label_smoothing: "0,1" is not allowed: must be a valid number; write 0.1']),
        ("study: t\ntask: language-model\ndata: {corpus: toy, vocab_size: 350}", [
            "table3.yaml:3:33: vocab_size=350 has no effect with tokenizer=bytes, whose vocabulary "
            "has 260 entries; "
            "remove it, or set tokenizer to bpe or unigram"]),
        (HEAD + "rows: [1]", ["table3.yaml:3:7: rows: [1] is not allowed: must be a mapping of groups by name, such as size: {each: {N: [1, 2]}}"]),
        ("study: t\ndata: {corpus: toy, vocab_size: 350, d_model: 64}", [
            'table3.yaml:2:38: unknown data field "d_model"; it is a field of base: base: {d_model: VALUE}']),
        (HEAD + "seeds: []", ["table3.yaml:3:8: seeds: [] is not allowed: needs 1 or more entries"]),
        (HEAD + "seeds: [true]", ["table3.yaml:3:9: seeds: true is not allowed: must be a valid integer"]),
        (HEAD + "seeds: 3", ['table3.yaml:3:8: seeds: 3 is not allowed: must be a list; write [1, 2, 3]']),
        (HEAD + "seeds: 2-4", ['table3.yaml:3:8: seeds: "2-4" is not allowed: must be a list; write [2, 3, 4]']),
        (HEAD + "seeds: many", ['table3.yaml:3:8: seeds: "many" is not allowed: must be a list']),
        (HEAD + f"seeds: {list(range(1001))}", ["table3.yaml:3:8: seeds: at most 1000 entries are allowed"]),
    ],
)  # fmt: skip
def test_invalid_sections_are_reported_at_their_position(faults, text, lines):
    assert faults(text) == lines


def test_errors_of_base_are_not_repeated_for_its_rows(faults):
    assert faults(HEAD + "base: {beam: 0, d_model: wide}\nrows: {A: {each: {h: [2, 4, 16]}}}") == [
        "table3.yaml:3:14: beam: 0 is not allowed: must be greater than or equal to 1",
        'table3.yaml:3:26: d_model: "wide" is not allowed: must be a valid integer',
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


@pytest.mark.parametrize(
    ("first", "second"), [("A", "a"), ("A", '"A "'), ("a.", "A"), ("Ab c", '"aB C. "')]
)
def test_groups_that_differ_only_in_case_or_at_the_end_are_refused_with_both_lines(
    faults, first, second
):
    names = [name.strip('"') for name in (second, first)]
    rows = (
        f"rows:\n  {first}: {{each: {{h: [4]}}}}\n  B: {{each: {{h: [2]}}}}\n  {second}: "
        f"{{each: {{h: [1]}}}}\n"
    )
    where = f'"{names[1]}" on line 4'
    message = f'group "{names[0]}" differs from {where} only in upper case, or in spaces and dots at the end; rename one of them'
    assert faults(HEAD + rows) == [f"table3.yaml:6:3: {message}"]


def test_sizes_that_differ_only_in_case_are_refused(faults):
    [line] = faults(HEAD + "sizes: {s: {N: 1}, S: {N: 2}}\nrows: {A: {each: {h: [4]}}}\n")
    assert line.startswith(
        'table3.yaml:3:20: size "S" differs from "s" on line 3 only in upper case'
    )


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


def test_errors_that_hide_others_are_reported_together_with_them(faults):
    found = faults("""\
study: p
task: parsin
data: {corpus: toy, vocab_sise: 100}
base: {h: 2, d_model: 15, mask_rate: 0.3, drop_out: 0.1}
metrics: [bleu]
margin: -1
rows:
  A: {each: {mask_rate: [0.2]}}
  E: {set: {d_model: 33, beam: 0, temperature: 3, dropout: 2}}
""")
    assert [line.removeprefix("table3.yaml:") for line in found] == [
        '2:7: unknown task "parsin"; did you mean "parsing"?',
        '3:21: unknown data field "vocab_sise"; did you mean "vocab_size"?',
        "4:11: h=2 does not divide d_model=15; set d_k, or change h or d_model",
        "4:38: mask_rate: 0.3 has no effect with task parsing; remove it",
        '4:43: unknown field "drop_out"; did you mean "dropout"?',
        '5:11: unknown metric "bleu"; allowed: f1, exact_match, well_formed',
        "6:9: margin: -1 is not allowed: must be greater than 0",
        "8:26: mask_rate: 0.2 has no effect with task parsing; remove it",
        "9:22: h=8 does not divide d_model=33; set d_k, or change h or d_model",
        "9:32: beam: 0 is not allowed: must be greater than or equal to 1",
        "9:48: temperature: 3 has no effect with task parsing; remove it",
        "9:60: dropout: 2 is not allowed: must be less than 1",
    ]


def test_an_invalid_row_does_not_hide_that_another_one_does_not_fit_the_data(faults):
    found = faults(
        f"{HEAD}base: {{attention_window: 3}}\nrows: "
        f"{{A: {{each: {{batch_tokens: [100], h: [x]}}}}}}\n"
    )
    assert [line.partition(": ")[0] for line in found] == ["table3.yaml:3:26", "table3.yaml:4:44"]
    found = faults(f"{HEAD}rows: {{A: {{each: {{batch_tokens: [100], h: [x]}}}}}}\n")
    assert found == [
        'table3.yaml:3:34: row "A batch_tokens=100": a sequence of data.max_length=256 and its '
        "end does not fit in batch_tokens=100",
        'table3.yaml:3:44: h: "x" is not allowed: must be a valid integer',
    ]


@pytest.mark.parametrize(
    ("group", "remedy"),
    [
        ("{grid: {parametrization: [standard, mup], base_width: [32]}}", "write the rows in which it has an effect as another group"),
        ("{grid: {d_model: [32, 64], base_width: [32]}}", "remove it"),
        ("{set: {parametrization: standard, base_width: 32}}", "remove it"),
    ],
)  # fmt: skip
def test_a_value_that_acts_in_other_rows_of_a_grid_is_not_to_be_removed(faults, group, remedy):
    (line,) = faults(f"{HEAD}base: {{learning_rate: 0.01}}\nrows: {{A: {group}}}\n")
    why = "base_width: 32 has no effect: it belongs to parametrization=mup or completep, which is"
    assert line.endswith(f": {why} not chosen; {remedy}")


def test_a_tab_as_indentation_is_named(faults):
    assert faults(f"{HEAD}base:\n\tN: 2\n") == [
        "table3.yaml:4:1: not valid YAML: a tab; indent with spaces"
    ]


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

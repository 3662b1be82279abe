"""Whatever a file holds: a study or a few clear lines, never a traceback, in bounded memory.

Also the alarm for what no table of cases thinks of: text, structures and mutations at random.
"""

import random
import tracemalloc
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ablate.config.resolve import field_names
from ablate.errors import AblateError, StudyError
from ablate.study import Selection, read_study, yaml_nodes
from ablate.study.yaml_nodes import MAX_BYTES

MAPPING = (
    "a study must be a mapping of study, task, data, base, seeds, metrics, judge, margin, sizes, match, "
    "tune or rows"
)
HEAD = "study: t\ndata: {corpus: toy}\n"


def bomb(levels=9, width=9):
    """A billion laughs: each level is the level below, nine times."""
    lines = ["a0: &a0 [lol, lol, lol]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * width)}]" for i in range(1, levels)]
    return "\n".join(lines)


def group(text):
    return f"{HEAD}rows: {{A: {{{text}}}}}"


def grid_of(lists, length):
    fields = ", ".join(f"{name}: {list(range(length))}" for name in field_names()[:lists])
    return group(f"grid: {{{fields}}}")


# --- one line for each; faults of plain text are in tests/golden/expected/faults-study.txt
# -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"", "1:1: is empty; `ablate init` writes a study to start from"),
        (b"\xef\xbb\xbf", "1:1: is empty; `ablate init` writes a study to start from"),
        (b"\n\n---\n", f"4:1: {MAPPING}; got nothing"),
        (bomb(), '1:5: anchor "&a0" is not supported; write the value out: rows have the fields of base, and write '
         "only what they change"),
        (b"\x7fELF\x02\x01\x01\x00\xff\xfe\n\x80", "1:1: is not valid UTF-8"),
        *((HEAD.encode(code), "1:1: is UTF-16, not UTF-8; save the file as UTF-8") for code in
          ("utf-16", "utf-16-le", "utf-16-be")),
        (HEAD + "\x1b: 1", "3:1: not valid YAML: unacceptable character #x001b: control characters are not allowed"),
        (HEAD + f"seeds: {'9' * 10**5}", "3:8: a number with 100000 digits; at most 18 are allowed"),
        (HEAD + f"seeds: {list(range(1001))}", "3:8: seeds: at most 1000 entries are allowed"),
        ("[" * 900 + "]" * 900, "1:14: nested more than 12 levels deep"),
        ("[" * 10**5, "1:1001: not valid YAML: exceeded maximum nesting depth"),  # libyaml's own limit
        ("{a: " * 10**5, "1:50: nested more than 12 levels deep"),
        ("- " * 10**5, "1:27: nested more than 12 levels deep"),
        ("? " * 10**5, "1:27: nested more than 12 levels deep"),
        (grid_of(lists=9, length=10), "3:18: makes 1,000,000,000 rows; a study can have at most 10,000"),
        (group(f"each: {{h: {[1] * 10_001}}}"), "3:18: makes 10,001 rows; a study can have at most 10,000"),
        (group(f"each: {{h: [4]}}, where: '{'(' * 10**5}'"),
         "3:35: where: the condition has 100000 characters; at most 500 are allowed"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) and len(value) < 150 else "",
)  # fmt: skip
def test_a_hostile_file_is_one_error_line(faults, content, line):
    assert faults(content) == [f"table3.yaml:{line}"]


@pytest.mark.parametrize(
    "content",
    [
        "'" + "a" * 10**6,
        HEAD + "x" * 10**6 + ": 1",
        HEAD + f"? {'x' * 10**6}\n: 1",
        HEAD + f"base: {{precision: {'x' * 10**6}}}",
        f"study: {'x' * 10**6}\ndata: {{corpus: toy}}",
        f"study: t\ndata: {{corpus: {'x' * 10**6}}}",
        f"study: t\ndata: {{corpus: wmt14, direction: {'x' * 10**6}}}",
        HEAD + f"base: {{dropout: {'1' * 10**6}.0}}",
        HEAD + f"rows: {{{'x' * 1000}: {{each: {{h: [4]}}}}}}",
    ],
    ids=range(9),
)
def test_long_values_are_shortened_in_messages(faults, content):
    [line] = faults(content)
    assert line.startswith("table3.yaml:")
    assert len(line) < 1200


def test_at_most_100_errors_are_printed_with_a_count_of_the_rest(faults):
    lines = faults(HEAD + "base:\n" + "".join(f"  k{i}: 1\n" for i in range(60_000)))
    assert len(lines) == 101
    assert lines[-1] == "table3.yaml: 900 more errors (reading stopped there)"


# --- files that are not studies
# ---------------------------------------------------------------------


def one_line(path):
    with pytest.raises(StudyError) as caught:
        read_study(path)
    [line] = caught.value.lines
    return line


def test_a_folder_and_a_missing_file_are_errors(tmp_path):
    assert one_line(tmp_path) == f"{tmp_path}: is a folder; expected a YAML file"
    assert one_line(tmp_path / "no.yaml") == f"{tmp_path}/no.yaml: no such file"


def test_a_path_through_a_file_or_of_an_impossible_length_is_one_line(tmp_path):
    (tmp_path / "s.yaml").write_text(HEAD)
    for path in (tmp_path / "s.yaml" / "t.yaml", tmp_path / ("a" * 300)):
        assert one_line(path).startswith(f"{path}: cannot be read: ")


def test_a_file_name_cannot_break_the_line(tmp_path):
    assert one_line(tmp_path / "a\nb\x1b.yaml") == rf"{tmp_path}/a\nb\x1b.yaml: no such file"


# --- memory
# ----------------------------------------------------------------------------------------


@contextmanager
def at_most(megabytes):
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < megabytes * 2**20
    finally:
        tracemalloc.stop()


def test_a_file_of_100_megabytes_is_an_error_before_reading_it(tmp_path):
    path = tmp_path / "big.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)  # sparse: it takes no disk
    with at_most(megabytes=5):
        assert one_line(path) == f"{path}: is too large; at most {MAX_BYTES:,} bytes"


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="no endless file here")
def test_an_endless_file_is_an_error():
    with at_most(megabytes=5):
        assert one_line(Path("/dev/zero")).startswith("/dev/zero: is too large")


def test_the_values_of_a_file_are_counted_and_bounded(faults, monkeypatch):
    monkeypatch.setattr(yaml_nodes, "MAX_NODES", 20_000)  # a tenth, for a faster test
    with at_most(megabytes=10):
        [line] = faults(group(f"each: {{h: [{'1,' * 300_000}]}}"))
    assert line.endswith(": more than 20000 values")


def test_a_refused_grid_or_bomb_takes_no_memory(faults):
    wide = grid_of(lists=9, length=1000)
    with at_most(megabytes=20):
        assert "makes 1,000,000,000,000,000,000,000,000,000 rows" in faults(wide)[0]
        assert len(faults(bomb(levels=1000))) == 1


# --- random input
# ----------------------------------------------------------------------------------

VALID = """\
study: table3
data: {corpus: multi30k, direction: en-de, vocab_size: 8000}
base:
  preset: base
  train_steps: 100000
  beam: 4
seeds: [1, 2, 3]
rows:
  A: {zip: {h: [1, 4], d_k: [512, 128], d_v: [512, 128]}, require: h * d_k == d_model}
  D: {each: {dropout: [0.0, 0.2], label_smoothing: [0.0, 0.2]}}
  warm: {grid: {warmup_steps: [2000, 8000], dropout: [0.1, 0.3]}, where: warmup_steps > 2000 or dropout < 0.3}
  big: [{set: {preset: big, train_steps: 300000}}, {each: {positional_encoding: [learned]}}]
"""

fuzzed = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@pytest.fixture(scope="session")
def survives(study_file):
    """Read the study. Errors must be printable lines with a position; any other exception is
    raised.
    """

    def survives(content, **selection):
        study_file.write_bytes(
            content if isinstance(content, bytes) else content.encode(errors="surrogatepass")
        )
        try:
            study = read_study(study_file, Selection(**selection))
        except AblateError as error:
            lines = error.lines
        else:
            assert study.rows[0].label == "base"
            return
        assert lines
        for line in lines:
            assert line.startswith((f"{study_file}:", "--set ", "--rows: ", "--seeds: "))
            assert line.isprintable()

    return survives


@fuzzed
@given(
    st.text() | st.text("{}[]:,-#&*!|>'\"%@`?~ \n\tabc019.", max_size=80) | st.binary(max_size=80)
)
def test_any_text_is_read_or_refused(survives, content):
    survives(content)


WORDS = st.sampled_from([
    "study", "data", "base", "seeds", "rows", "corpus", "direction", "files", "toy", "wmt14", "train", "dev", "test",
    "folder", "each", "zip", "grid", "set", "require", "where", "preset", "big", "h", "N", "d_k", "A", "B",
    "h * d_k == d_model", "h / (d_k - 1) > 1", "positional_encoding > 1", *field_names(),
])  # fmt: skip
SCALARS = st.one_of(
    WORDS,
    st.none(),
    st.booleans(),
    st.integers(-2, 9),
    st.integers(),
    st.floats(),
    st.sampled_from([0.0, 0.1, 0.5]),
    st.text(max_size=5),
    st.dates(),
)
TREES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS | SCALARS, inner, max_size=4),
    max_leaves=12,
)
FIELDS = st.dictionaries(
    st.sampled_from(["preset", "h", *field_names()]), SCALARS | st.lists(SCALARS, max_size=3)
)
GROUPS = st.dictionaries(
    st.sampled_from(["each", "zip", "grid", "set", "require", "where"]), FIELDS | WORDS | TREES
)
STUDIES = st.fixed_dictionaries(
    {"study": st.just("t") | TREES, "data": st.just({"corpus": "toy"}) | TREES},
    optional={
        "base": FIELDS | TREES,
        "seeds": st.lists(st.integers(-1, 5)) | TREES,
        "rows": st.dictionaries(
            st.sampled_from("ABCD") | SCALARS, GROUPS | st.lists(GROUPS) | TREES, max_size=3
        )
        | TREES,
    },
)


@fuzzed
@given(STUDIES | TREES)
def test_any_structure_is_read_or_refused(survives, tree):
    survives(yaml.safe_dump(tree, allow_unicode=True, sort_keys=False))


@fuzzed
@given(st.randoms(use_true_random=False))
def test_any_mutation_of_a_study_is_read_or_refused(survives, rng):
    survives(mutated(VALID, rng))


def mutated(text: str, rng: random.Random) -> str:
    """The text after a few random edits: parts deleted, doubled, moved or mistyped."""
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(text) + 1)
        end = min(len(text), start + rng.choice([0, 1, 1, 5, 40]))
        other = rng.randrange(len(text) + 1)
        put = rng.choice(
            [
                "",
                "",
                text[start:end] * 2,
                text[other : other + 8],
                rng.choice("{}[]:,-'\"#&*!\n\t 09.e~x\x00é"),
            ]
        )
        text = text[:start] + put + text[end:]
    return text


@fuzzed
@given(
    overrides=st.lists(
        st.text(max_size=20) | st.tuples(WORDS, SCALARS).map(lambda t: f"{t[0]}={t[1]}"), max_size=3
    ),
    rows=st.lists(st.text(max_size=5) | WORDS, max_size=2),
    seeds=st.none() | st.text("0123456789,- x", max_size=8) | st.text(max_size=5),
)
def test_any_option_is_accepted_or_refused(survives, overrides, rows, seeds):
    survives(VALID, overrides=overrides, rows=rows, seeds=seeds)

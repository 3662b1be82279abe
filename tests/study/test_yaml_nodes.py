"""YAML nodes with positions: the core schema of YAML 1.2 and nothing beyond it."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ablate.errors import StudyError
from ablate.study import yaml_nodes as nodes
from ablate.study.yaml_nodes import parse_yaml, read_file


@pytest.fixture(autouse=True, scope="module", params=["CSafeLoader", "SafeLoader"])
def _parser(request):
    """Run with PyYAML's compiled parser, and with its Python parser, for installations without the
    former.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nodes, "_Loader", getattr(yaml, request.param))
        yield


def value(text):
    return parse_yaml(text, "s.yaml").to_python()


def fault(text):
    with pytest.raises(StudyError) as caught:
        parse_yaml(text, "s.yaml")
    [line] = caught.value.lines
    return line


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("6", 6), ("-6", -6), ("+6", 6), ("-0", 0), ("9" * 18, int("9" * 18)),
        ("0.1", 0.1), (".5", 0.5), ("5.", 5.0), ("1e-9", 1e-9), ("1E5", 1e5), ("-2.5e+3", -2500.0), ("1e-999", 0.0),
        ("true", True), ("True", True), ("FALSE", False), ("~", None), ("null", None), ("Null", None),
        # Strings in YAML 1.2, though not in YAML 1.1.
        ("no", "no"), ("yes", "yes"), ("on", "on"), ("off", "off"), ("y", "y"), ("tRue", "tRue"),
        ("1_000", "1_000"), ("12:30", "12:30"), ("0x1F", "0x1F"), ("2017-06-12", "2017-06-12"), ("nan", "nan"),
        ("<<", "<<"), ("=", "="), ("1e", "1e"), (".", "."), ("-", [None]),
        # Quoted scalars are always strings.
        ("'6'", "6"), ('"0.1"', "0.1"), ("'true'", "true"), ("''", ""), ("|\n  6", "6"), (">\n  a\n  b\n", "a b\n"),
    ],
)  # fmt: skip
def test_scalars_have_the_types_of_yaml_1_2(text, expected):
    given_value = value(text)
    assert given_value == expected
    assert type(given_value) is type(expected)


def test_minus_zero_is_zero():
    assert str(value("-0.0")) == "0.0"


WORDS = st.text("abcxyzäß語 ", min_size=1)
NUMBERS = st.integers(-(10**16), 10**16) | st.floats(allow_nan=False, allow_infinity=False)
TREES = st.recursive(
    st.none() | st.booleans() | NUMBERS | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=15,
)


@settings(max_examples=50)
@given(st.dictionaries(WORDS, TREES), st.booleans())
def test_yaml_written_by_pyyaml_is_read_back(tree, flow):
    assert (
        value(yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=True, sort_keys=False))
        == tree
    )


# --- positions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a: 1\nrows:\n  B: [x, {y: 2}]\n",
        "# comment\n\na: 1\n\nrows:\n    - x\n    - y:   2\n",
        "a: 1\r\nrows:\r\n  B: [x, {y: 2}]\r\n",
        '{"a": 1, rows: [x,\n {y:\n 2}]}',
        "é: 语\nrows: [x, é, {y: 2}]",
    ],
)
def test_keys_and_values_have_their_positions(text):
    lines = text.splitlines()

    def visit(node):
        if isinstance(node.value, dict):
            for key, mark, inner in node.items():
                assert lines[mark.line - 1][mark.column - 1 :].lstrip('"').startswith(key)
                visit(inner)
        elif isinstance(node.value, list):
            for inner in node.value:
                visit(inner)
        else:
            assert lines[node.mark.line - 1][node.mark.column - 1 :].startswith(str(node.value))

    visit(parse_yaml(text, "s.yaml"))


def test_keys_keep_the_files_order():
    assert list(value("z: 1\na: 2\nm: 3")) == ["z", "a", "m"]


NO_REUSE = (
    "is not supported; write the value out: rows have the fields of base, and write only what "
    "they change"
)


# --- unsupported YAML ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "s.yaml:1:1: is empty; `ablate init` writes a study to start from"),
        ("# only a comment\n", "s.yaml:1:1: is empty; `ablate init` writes a study to start from"),
        ("a: 1\nb:\n  a: 2\n  c: 3\n  a: 4\n", 's.yaml:5:3: duplicate key "a"; first on line 3'),
        ("{a: 1, 'a': 2}", 's.yaml:1:8: duplicate key "a"; first on line 1'),
        ("a: &x [1]\nb: *x", f's.yaml:1:4: anchor "&x" {NO_REUSE}'),
        ("a: *x", f's.yaml:1:4: alias "*x" {NO_REUSE}'),
        ("a: {<<: {b: 1}}", f's.yaml:1:5: merge key "<<" {NO_REUSE}'),
        ("a: 1\nb\nc: 2", "s.yaml:2:1: not valid YAML: a key without a colon; write KEY: VALUE"),
        ("a:\n   b: 1\n c: 2", "s.yaml:3:2: not valid YAML: wrong indentation; "
         "the mapping begins on line 1, so all its keys must begin in column 1"),
        ("a: !!python/object:os.system x", 's.yaml:1:4: tag "tag:yaml.org,2002:python/object:os.system" is not supported'),
        ("a: !!int '3'", 's.yaml:1:4: tag "tag:yaml.org,2002:int" is not supported'),
        ("--- {a: 1}\n--- {b: 2}\n", "s.yaml:2:1: a second YAML document starts here; one is allowed"),
        ("? [a]\n: 1", "s.yaml:1:3: a key must be a single word, not a list or a mapping"),
        ("a: [1, 2\nb: 3", "s.yaml:2:2: not valid YAML: [ opened at 1:4 is not closed; "
         "close it, and separate entries by commas"),
        ("a: 1\nrows:\n  A: {each: {h: [1, 2}}", "s.yaml:3:22: not valid YAML: [ opened at 3:17 is not closed; "
         "close it, and separate entries by commas"),
        ("a: 'x\nb: 2\n", "s.yaml:3:1: not valid YAML: ' opened at 1:4 is not closed; close it"),
        ("a: [1, 2]]\n", "s.yaml:1:10: not valid YAML: ] closes nothing"),
        ("a: [1, .inf]", 's.yaml:1:8: ".inf" is not a finite number'),
        ("a: -.INF", 's.yaml:1:4: "-.INF" is not a finite number'),
        ("a: .nan", 's.yaml:1:4: ".nan" is not a finite number'),
        ("a: 1e999", 's.yaml:1:4: "1e999" is not a finite number'),
        ("a: " + "9" * 40, "s.yaml:1:4: a number with 40 digits; at most 18 are allowed"),
        ("[" * 14, "s.yaml:1:14: nested more than 12 levels deep"),
        ("a:\n  " + "[" * 900, "s.yaml:2:15: nested more than 12 levels deep"),
    ],
)  # fmt: skip
def test_unsupported_yaml_is_an_error_with_its_position(text, line):
    assert fault(text) == line


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: [1, 2\n", "2:1"), ("a: 'x", "1:6"), ("a: 1\n b: 2", "2:3"), ("a: b: c", "1:5"),
        ("a: @b", "1:4"), ("\ta: 1", "1:1"),
    ],
)  # fmt: skip
def test_invalid_yaml_is_an_error_with_its_position(text, place):
    assert fault(text).startswith(f"s.yaml:{place}: not valid YAML: ")


def test_a_bracket_at_the_end_is_named_as_not_closed():
    assert "not valid YAML: [ opened at 1:4 is not closed" in fault(
        "a: ["
    )  # parsers differ in the line


def test_a_control_character_is_reported_with_its_line():
    assert fault("a: 1\nb: 2\n\nc: \x07").startswith("s.yaml:4:1: not valid YAML: ")


def test_a_byte_order_mark_is_ignored(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1")
    assert read_file(path) == "a: 1"


def test_a_key_in_braces_without_a_value_is_null_and_moves_no_column():
    """As in YAML 1.2; PyYAML needs a space before the comma or the brace."""
    close = parse_yaml("x: {a:, b: 1, c:}\ny: [d:, e]\n", "s")
    assert close.to_python() == {"x": {"a": None, "b": 1, "c": None}, "y": [{"d": None}, "e"]}
    columns = [
        (key, mark.column, node.mark.column) for key, mark, node in close.fields()["x"].items()
    ]
    assert columns == [("a", 5, 7), ("b", 9, 12), ("c", 15, 17)]
    with pytest.raises(
        StudyError, match=r"s:1:14: not valid YAML: \[ opened at 1:12 is not closed"
    ):
        parse_yaml("x: {a:, b: [1}\n", "s")


def test_invalid_utf_8_is_reported_with_its_line(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_bytes("a: 1\nb: é\n".encode("latin-1"))
    with pytest.raises(StudyError, match=r"s\.yaml:2:1: is not valid UTF-8$"):
        read_file(path)

"""The JSON Schema accepts every valid study and rejects invalid values of single fields."""

import json
import re
from pathlib import Path

import jsonschema
import pytest
from pydantic import TypeAdapter, ValidationError

from ablate.cli.init import TEMPLATES
from ablate.config import RowConfig
from ablate.config.resolve import SYMBOLS
from ablate.errors import StudyError
from ablate.fields import meanings_of
from ablate.study import read_study
from ablate.study.schema import schema
from ablate.study.study_file import StudyFile
from ablate.study.yaml_nodes import parse_yaml
from ablate.tasks import TASKS
from docs import hooks

ROOT = Path(__file__).parents[2]
STUDIES = sorted([*hooks.studies(), *TEMPLATES.glob("*.yaml")])
SCHEMA = schema()
CHECK = jsonschema.Draft7Validator(SCHEMA)
DATA = "study: x\ndata: {corpus: toy, vocab_size: 350}\n"


def content(text):
    """Parse the text like the reader: as YAML 1.2, in which 1e-9 is a number and `no` a string."""
    return parse_yaml(text.replace("<name>", "x"), "study.yaml").to_python()


def faults(text):
    return [error.message for error in CHECK.iter_errors(content(text))]


def test_the_schema_is_valid_json_schema():
    jsonschema.Draft7Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA


def keywords(node):
    """Yield the keywords of a schema and of the schemas in it."""
    if isinstance(node, list):
        for entry in node:
            yield from keywords(entry)
    elif isinstance(node, dict):
        yield from node
        for key, value in node.items():
            if key in ("properties", "definitions", "patternProperties"):
                yield from keywords(list(value.values()))
            elif key not in ("default", "enum", "const", "dependencies", "required"):
                yield from keywords(value)


def test_editors_know_every_keyword():
    known = jsonschema.Draft7Validator.META_SCHEMA["properties"]
    assert set(keywords(SCHEMA)) <= set(known)


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_every_study_of_the_repository_is_valid(path):
    assert faults(path.read_text()) == []


def test_every_study_in_the_documentation_is_valid():
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    blocks = [
        block
        for page in pages
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(), re.DOTALL)
    ]
    found = [block for block in blocks if block.startswith("study:")]
    assert len(found) >= 3
    assert [faults(block) for block in found] == [[]] * len(found)


def test_the_schema_has_the_sections_and_fields_of_the_reader():
    assert set(SCHEMA["properties"]) == set(StudyFile.model_fields)
    names = {*RowConfig.model_fields, *SYMBOLS, "preset"}
    assert set(SCHEMA["definitions"]["settings"]["properties"]) == names
    assert set(SCHEMA["definitions"]["lists"]["properties"]) == names
    for rule, task in zip(SCHEMA["allOf"], TASKS.values(), strict=True):
        assert rule["if"]["properties"]["task"]["const"] == task.name
        assert set(rule["then"]["properties"]["data"]["properties"]) == set(
            task.data_config.model_fields
        )


@pytest.mark.parametrize(
    "text",
    [
        "study: x\ntask: translation\ndata: {corpus: toy}",
        "study: x\ntask: language-model\ndata: {corpus: toy}\nmetrics: [bpb]",
        "study: x\ntask: parsing\ndata: {corpus: wsj, folder: wsj, leaves: tags}\nmetrics: [f1]",
        "study: x\ntask: parsing\ndata: {corpus: files, train: a, dev: b, test: c}",
        "study: x\ntask: language-model\ndata: {corpus: files, train: a.txt, dev: 5%, tokenizer: bpe}",
        "study: x\ntask: mine:Task\ndata: {corpus: files}\nmetrics: [accuracy]",
        "study: x\ntask: mine:Task\ndata: {corpus: files, train: a, field_of_mine: 3}",
        "study: x\ndata: {corpus: 'hf:owner/name@main', direction: en-de}",
    ],
)  # fmt: skip
def test_tasks_and_data_sets_of_the_hub_are_valid(text):
    assert CHECK.is_valid(parse_yaml(text, "study.yaml").to_python())


def test_every_field_has_its_meaning_and_default():
    meanings = meanings_of(RowConfig)
    for name, field in RowConfig.model_fields.items():
        shown = SCHEMA["definitions"][name]
        assert shown["description"].endswith(meanings[name])
        assert shown.get("default") == (None if field.is_required() else field.default)


VALUES = [
    None,
    True,
    False,
    -1,
    0,
    1,
    2,
    8,
    10**9,
    -0.5,
    0.0,
    0.1,
    0.5,
    1.5,
    1e9,
    "",
    "x",
    "relu",
    "none",
    "m:C",
    [],
    {},
]


@pytest.mark.parametrize("name", RowConfig.model_fields)
def test_a_field_accepts_the_values_that_its_class_accepts(name):
    field = RowConfig.model_fields[name]
    adapter = TypeAdapter(field.rebuild_annotation(), config={"strict": True})
    taken = jsonschema.Draft7Validator(SCHEMA["definitions"][name])
    for value in VALUES:
        try:
            adapter.validate_python(value)
            allowed = True
        except ValidationError:
            allowed = False
        if (name in ("attention_scale", "embedding_scale", "batch_growth") and value is True) or (
            name in ("attention_bias", "embedding_norm", "output_transform")
            and type(value) in (int, float)
        ):  # refused by a validator of the class itself
            allowed = False
        if field.is_required() and value is None:  # d_k and d_v follow from d_model / h
            allowed = True
        if isinstance(value, float) and value.is_integer() and not allowed:
            continue  # for JSON Schema, 8.0 is an integer
        assert taken.is_valid(value) == allowed, value


WRONG = [
    "data: {corpus: toy}",
    "study: x",
    "study: runs\ndata: {corpus: toy}",
    "study: a/b\ndata: {corpus: toy}",
    "study: x\ndata: {corpus: wmt99}",
    "study: x\ntask: translatoin\ndata: {corpus: toy}",
    "study: x\ntask: translation\ndata: {corpus: toy, vocabsize: 9}",
    "study: x\ndata: {corpus: files, direction: en-de}",
    "study: x\ndata: {corpus: toy, train: mine}",
    "study: x\ndata: {corpus: wmt14, direction: en-jp}",
    "study: x\ndata: {corpus: toy, vocab_size: many}",
    "study: x\ndata: {corpus: toy, vocabsize: 9}",
    "study: x\ndata: {corpus: files, direction: de_en, train: a, dev: b, test: c, vocab_size: 9}",
    DATA + "bases: {}",
    DATA + "margin: 0",
    DATA + "margin: {bleu: -1}",
    DATA + "tune: {grid: {learning_rate: [0.001, 0.002]}}",
    DATA + "tune: {seeds: [101]}",
    DATA + "base: {drop_out: 0.1}",
    DATA + "base: {dropout: 1.0}",
    DATA + "base: {dropout: [0.1]}",
    DATA + "base: {N: 2, n_layers: 2}",
    DATA + "base: {preset: huge}",
    DATA + "base: {norm: batchnorm}",
    DATA + "seeds: 1",
    DATA + "seeds: {rows: 3}",
    DATA + "seeds: {rows: 3, base: 9, looks: [2, 3]}",
    DATA + "seeds: []",
    DATA + "seeds: [1, 1]",
    DATA + "seeds: [-1]",
    DATA + "seeds: one",
    DATA + "rows: [A]",
    DATA + "rows: {base: {each: {h: [1]}}}",
    DATA + "rows: {A/B: {each: {h: [1]}}}",
    DATA + "rows: {A: {h: [1]}}",
    DATA + "rows: {A: {each: {h: 1}}}",
    DATA + "rows: {A: {each: {h: []}}}",
    DATA + "rows: {A: {each: {}}}",
    DATA + "rows: {A: {set: {N: [1]}}}",
    DATA + "rows: {A: {each: {h: [1]}, set: {h: 2}}}",
    DATA + "rows: {A: {where: h > 1}}",
    DATA + "rows: {A: {each: {h: [1]}, where: [h]}}",
    DATA + "rows: {A: {each: {h: [0]}}}",
    DATA + "rows: {A: [{each: {heads: [1]}}]}",
]


@pytest.mark.parametrize("text", WRONG)
def test_invalid_values_are_errors_in_the_reader_and_in_the_schema(text, tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text(text)
    with pytest.raises(StudyError):
        read_study(path)
    assert faults(text)

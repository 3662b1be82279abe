"""Generate the JSON Schema of the study file, for editors, from the pydantic models of the file.

It describes the values of single fields. `ablate plan` checks the rules over several fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from ablate.config import RowConfig
from ablate.config.data import FILES, HUB, CorpusConfig
from ablate.config.identity import DEFAULT_TASK
from ablate.config.model import LAYER_FIELDS
from ablate.config.presets import PRESETS
from ablate.config.resolve import SYMBOLS
from ablate.study.settings import REFERENCE, one_required
from ablate.study.study_file import StudyFile
from ablate.tasks import TASKS, Task, meaning_of

Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"  # the draft that most editors support
REF = "#/definitions/{model}"
TITLE = "A study of ablate"


class _Untitled(GenerateJsonSchema):
    """Generates schemas without titles of fields, which would repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class _Generator(_Untitled):
    """Generates schemas without defaults, because their keys are left out of a study."""

    def default_schema(self, schema: Any) -> Schema:
        return self.generate_inner(schema["schema"])


def schema() -> Schema:
    """Return the JSON Schema (draft 7) of a study file."""
    text = json.dumps(StudyFile.model_json_schema(True, REF, _Generator))
    file = json.loads(text.replace(f'"{REFERENCE}"', '"$ref"'))
    models = file.pop("$defs")
    definitions = {**_fields(), "settings": _settings(_value), "lists": _settings(_list), **models}
    rules = [_task_rule(task) for task in TASKS.values()]
    return {"$schema": DRAFT, **file, "title": TITLE, "allOf": rules, "definitions": definitions}


def schema_text() -> str:
    """The schema as the text of a JSON file."""
    return json.dumps(schema(), indent=1) + "\n"


def _value(name: str) -> Schema:
    return {"$ref": f"#/definitions/{name}"}


def _list(name: str) -> Schema:
    return {"type": "array", "minItems": 1, "items": _value(name)}


def _fields() -> Schema:
    """Schemas of the fields of base and of rows, by name."""
    whole = RowConfig.model_json_schema(schema_generator=_Untitled)
    fields = whole["properties"]
    for name, field in fields.items():
        field["description"] = meaning_of(name)
    # A study may leave out fields without a default, or set them to null: they are derived.
    for name in whole["required"]:
        description = fields[name].pop("description")
        fields[name] = {"description": description, "anyOf": [fields[name], {"type": "null"}]}
    for name in LAYER_FIELDS:
        value = fields[name]
        pattern = {"type": "array", "minItems": 1, "items": value}
        fields[name] = {"description": value.get("description"), "anyOf": [value, pattern]}
        if "default" in value:
            fields[name]["default"] = value["default"]
    presets = {
        "description": "sets several fields at once; fields beside it override it",
        "enum": list(PRESETS),
    }
    return {**fields, "preset": presets}


def _settings(schema_of: Callable[[str], Schema]) -> Schema:
    """Schema of a mapping of fields, each by its name or by the letter of the paper.

    `schema_of` returns the schema of a field's value.
    """
    properties = {letter: schema_of(name) for letter, name in SYMBOLS.items()}
    for name in (*RowConfig.model_fields, "preset"):
        properties[name] = schema_of(name)
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": properties,
        # A field must not be given by both its letter and its name.
        "not": {"anyOf": [{"required": [letter, name]} for letter, name in SYMBOLS.items()]},
    }


def _data(section: type[CorpusConfig]) -> Schema:
    """Schema of the section `data` of a task. The corpus determines which fields are required or
    allowed.
    """
    whole = section.model_json_schema(schema_generator=_Untitled)
    properties = whole["properties"]
    names: list[Schema] = [{"enum": list(section.corpora())}]
    if section.is_on_hub:
        names.append({"type": "string", "pattern": f"^{HUB}"})
    properties["corpus"]["anyOf"] = names
    rules = []
    if FILES in section.corpora():
        rules.append(_if_corpus(FILES, {"required": whole["required"]}))
    for name, named in section.catalogue.items():
        if named.directions:
            directions = {"direction": {"enum": list(named.directions)}}
            rules.append(_if_corpus(name, {"properties": directions}))
        if named.is_generated:
            absent = {"anyOf": one_required(section.located_by)}
            rules.append(_if_corpus(name, {"not": absent}))
    schema: Schema = {
        "additionalProperties": False,
        "required": ["corpus"],
        "properties": properties,
    }
    if rules:
        schema["allOf"] = rules
    return schema


def _task_rule(task: Task) -> Schema:
    """The rule for studies of a built-in task: the fields of `data`, and the metrics."""
    metric = {"enum": [metric.name for metric in task.prediction_metrics]}
    metrics = {"anyOf": [metric, {"type": "array", "items": metric}]}
    condition: Schema = {"properties": {"task": {"const": task.name}}}
    if task.name != DEFAULT_TASK:  # a study may leave it out
        condition["required"] = ["task"]
    return {
        "if": condition,
        "then": {"properties": {"data": _data(task.data_config), "metrics": metrics}},
    }


def _if_corpus(name: str, then: Schema) -> Schema:
    return {"if": {"properties": {"corpus": {"const": name}}, "required": ["corpus"]}, "then": then}

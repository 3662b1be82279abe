"""The study file's shape as JSON Schema, for editors: made from the configuration's classes, so it cannot drift.

It knows what one value may be. What values may not be together, `ablate plan` tells.
"""

from __future__ import annotations

from typing import Any

from ablate.config import PRESETS, DataConfig, RowConfig
from ablate.config.data import CORPORA, LAYOUTS
from ablate.config.metrics import ON_TRANSLATIONS
from ablate.config.resolve import SYMBOLS
from ablate.study.select import MAX_SEEDS

Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"  # the one that editors know best
TITLE = "A study of ablate"
GROUP = "^(?!base$)(?!.*\\.\\.)[A-Za-z0-9][A-Za-z0-9 ._+-]{0,39}$"
NAME = "^(?!.*\\.\\.)(?!(runs|corpora)$)[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

_WAYS = {
    "each": "one factor at a time, each value against base",
    "zip": "paired lists of equal length",
    "grid": "every combination",
    "set": "a single row",
}
_CONDITIONS = {
    "require": "a condition over the row's fields; where it does not hold, the study is refused",
    "where": "a condition over the row's fields; rows where it does not hold are left out",
}


def schema() -> Schema:
    """JSON Schema (draft 7) of a study file."""
    return {
        "$schema": DRAFT,
        "title": TITLE,
        "type": "object",
        "additionalProperties": False,
        "required": ["study", "data"],
        "properties": sections(),
        "definitions": {
            **_fields(),
            "settings": _settings(lambda name: {"$ref": f"#/definitions/{name}"}),
            "lists": _settings(
                lambda name: {"type": "array", "minItems": 1, "items": {"$ref": f"#/definitions/{name}"}}
            ),
            "group": _group(),
        },
    }


def sections() -> Schema:
    """The study's sections."""
    seed = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
    metric = {"enum": list(ON_TRANSLATIONS)}
    groups = {"type": "object", "propertyNames": {"pattern": GROUP}}
    group = {"$ref": "#/definitions/group"}
    return {
        "study": {
            "description": "the study's name, and of its folder in the results root",
            "anyOf": [{"type": "string", "pattern": NAME}, {"type": "integer", "minimum": 0}],
        },
        "data": _data(),
        "base": {
            "description": "the configuration that every row is compared with; what is left out is the paper's",
            "anyOf": [{"$ref": "#/definitions/settings"}, {"type": "null"}],
        },
        "seeds": {
            "description": "every row is trained once for each; unset: [1]",
            "anyOf": [
                seed,
                {"type": "array", "minItems": 1, "maxItems": MAX_SEEDS, "uniqueItems": True, "items": seed},
            ],
        },
        "metrics": {
            "description": "of the translations, by sacreBLEU; verdicts go by the first; unset: [bleu]",
            "anyOf": [metric, {"type": "array", "minItems": 1, "uniqueItems": True, "items": metric}],
        },
        "rows": {
            "description": "groups of rows, each with its way of making them",
            "anyOf": [
                {**groups, "additionalProperties": {"anyOf": [group, {"type": "array", "items": group}]}},
                {"type": "null"},
            ],
        },
    }


def _fields() -> Schema:
    """What each field of base and of rows may be."""
    whole = RowConfig.model_json_schema()
    fields = {name: _untitled(field) for name, field in whole["properties"].items()}
    for name in whole["required"]:  # derived where they are left out, or null
        description = fields[name].pop("description")
        fields[name] = {"description": description, "anyOf": [fields[name], {"type": "null"}]}
    presets = {"description": "several fields at once; those beside it win", "enum": list(PRESETS)}
    return {**fields, "preset": presets}


def _settings(of: Any) -> Schema:
    """A mapping of fields, by their names or the paper's letters, never by both."""
    names = [*RowConfig.model_fields, "preset"]
    letters = {letter: of(name) for letter, name in SYMBOLS.items()}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {**letters, **{name: of(name) for name in names}},
        "not": {"anyOf": [{"required": [letter, name]} for letter, name in SYMBOLS.items()]},
    }


def _group() -> Schema:
    """One way of making rows, and conditions."""
    inside = {way: "settings" if way == "set" else "lists" for way in _WAYS}
    ways = {
        way: {"description": text, "allOf": [{"$ref": f"#/definitions/{inside[way]}"}, {"minProperties": 1}]}
        for way, text in _WAYS.items()
    }
    conditions = {name: {"description": text, "type": "string"} for name, text in _CONDITIONS.items()}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {**ways, **conditions},
        "oneOf": [{"required": [way]} for way in _WAYS],
    }


def _data() -> Schema:
    """The data section: what must be said, and may, follows from the corpus."""
    whole = DataConfig.model_json_schema()
    properties = {name: _untitled(field) for name, field in whole["properties"].items()}
    properties["corpus"]["enum"] = list(CORPORA)
    places = ("folder", "train", "dev", "test")
    rules = [
        _if_corpus(name, {"properties": {"direction": {"enum": list(layout.directions)}}})
        for name, layout in LAYOUTS.items()
    ]
    rules += [
        _if_corpus("files", {"required": whole["required"]}),
        _if_corpus("toy", {"not": {"anyOf": [{"required": [name]} for name in places]}}),
    ]
    return {
        "description": "the corpus, and how it becomes tokens",
        "type": "object",
        "additionalProperties": False,
        "required": ["corpus"],
        "properties": properties,
        "allOf": rules,
    }


def _if_corpus(name: str, then: Schema) -> Schema:
    return {"if": {"properties": {"corpus": {"const": name}}, "required": ["corpus"]}, "then": then}


def _untitled(field: Schema) -> Schema:
    return {key: value for key, value in field.items() if key != "title"}

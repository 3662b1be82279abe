"""JSON Schema of the study file, for editors; generated from the configuration classes.

It describes the values of single fields. Rules over several fields are checked by `ablate plan`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from ablate.config import PRESETS, RowConfig, TranslationData
from ablate.config.language_data import TEXTS, LanguageData
from ablate.config.model import LAYER_FIELDS
from ablate.config.parsing_data import TREEBANKS, ParsingData
from ablate.config.plugins import REFERENCE_PATTERN
from ablate.config.resolve import SYMBOLS
from ablate.config.synthetic_data import GENERATORS, SyntheticData
from ablate.config.training import MAX_SEEDS
from ablate.config.translation_data import CORPORA, NAMED_CORPORA
from ablate.study.designs import RESOLUTIONS
from ablate.study.matching import FREE_FIELDS, MatchRule
from ablate.study.rows import MAX_LABEL
from ablate.study.settings import MAX_SIZES
from ablate.study.tuning import CHOSEN_ON_DEV, TUNED, TuneSection
from ablate.tasks import (
    TASKS,
    LanguageModel,
    MaskedLanguageModel,
    Parsing,
    Synthetic,
    Task,
    Translation,
)

Schema = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"  # the draft that most editors support
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
    "require": "a condition over the row's fields; a row that violates it is an error",
    "where": "a condition over the row's fields; rows that violate it are dropped",
}


_NOT = {"description": "false: not for this group", "const": False}


def _match() -> Schema:
    """Schema of `match`, one rule for each cost."""
    fields = {
        name: _untitled(field)
        for name, field in MatchRule.model_json_schema()["properties"].items()
    }
    rules = []
    for cost in FREE_FIELDS:
        others = FREE_FIELDS.keys() - {cost}
        properties = {name: field for name, field in fields.items() if name not in others}
        rules.append(
            {
                "type": "object",
                "additionalProperties": False,
                "required": [cost],
                "properties": properties,
            }
        )
    return {
        "description": "each row gets the value of a free field that gives it the cost of base",
        "anyOf": [*rules, _NOT],
    }


def _tune() -> Schema:
    """Schema of the section `tune`."""
    letters = [letter for letter, name in SYMBOLS.items() if name in TUNED]
    lists = {
        name: {"$ref": f"#/definitions/lists/properties/{name}"} for name in (*letters, *TUNED)
    }
    fields = {
        name: _untitled(field)
        for name, field in TuneSection.model_json_schema()["properties"].items()
    }
    of_decoding = {
        name: {"$ref": f"#/definitions/lists/properties/{name}"} for name in CHOSEN_ON_DEV
    }
    decoding = {**fields["decoding"], "additionalProperties": False, "properties": of_decoding}
    return {
        "description": "each row gets values of its own for the fields of grid, chosen by dev loss "
        "on other seeds; all rows get the same values for those of decoding",
        "type": "object",
        "additionalProperties": False,
        "anyOf": [{"required": ["grid", "seeds"]}, {"required": ["decoding"]}],
        "dependentRequired": {"grid": ["seeds"], "seeds": ["grid"]},
        "properties": {
            "decoding": decoding,
            "grid": {**fields["grid"], "additionalProperties": False, "properties": lists},
            "seeds": {**fields["seeds"], **_seeds(fields["seeds"]["description"])},
            "steps": fields["steps"],
        },
    }


def _seeds(description: str) -> Schema:
    seed = {"type": "integer", "minimum": 0, "maximum": 2**32 - 1}
    return {
        "description": description,
        "type": "array",
        "minItems": 1,
        "maxItems": MAX_SEEDS,
        "uniqueItems": True,
        "items": seed,
    }


def _looks() -> Schema:
    number = {"type": "integer", "minimum": 2, "maximum": MAX_SEEDS}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": ["looks"],
        "properties": {
            "looks": {
                "description": "numbers of seeds at which the study is judged, increasing; it "
                "ends at the first at which every row is settled",
                "type": "array",
                "minItems": 2,
                "uniqueItems": True,
                "items": number,
            },
        },
    }


def schema() -> Schema:
    """Return the JSON Schema (draft 7) of a study file."""
    return {
        "$schema": DRAFT,
        "title": TITLE,
        "type": "object",
        "additionalProperties": False,
        "required": ["study", "data"],
        "properties": sections(),
        "allOf": [_of_task(task) for task in TASKS.values()],
        "definitions": {
            **_fields(),
            "settings": _settings(lambda name: {"$ref": f"#/definitions/{name}"}),
            "lists": _settings(
                lambda name: {
                    "type": "array",
                    "minItems": 1,
                    "items": {"$ref": f"#/definitions/{name}"},
                }
            ),
            "group": _group(),
            "match": _match(),
        },
    }


def schema_text() -> str:
    """The schema as a JSON file holds it."""
    return json.dumps(schema(), indent=1) + "\n"


def sections() -> Schema:
    """Schemas of the study's sections, by name."""
    metric = {"type": "string"}  # each task has its own
    groups = {"type": "object", "propertyNames": {"pattern": GROUP}}
    group = {"$ref": "#/definitions/group"}
    return {
        "study": {
            "description": "name of the study, and of its folder in the results root",
            "anyOf": [{"type": "string", "pattern": NAME}, {"type": "integer", "minimum": 0}],
        },
        "task": {
            "description": "task of the runs; unset: translation; a task of your own as "
            "module:Class",
            "anyOf": [
                {"enum": list(TASKS)},
                {"type": "string", "pattern": f"^{REFERENCE_PATTERN}$"},
            ],
        },
        "data": {"description": "the corpus, its splits and its tokenizer", "type": "object"},
        "base": {
            "description": "the configuration that every row is compared with; unset fields have "
            "the paper's values",
            "anyOf": [{"$ref": "#/definitions/settings"}, {"type": "null"}],
        },
        "seeds": {
            "description": "every row is trained once with each seed; unset: [1]",
            "anyOf": [_seeds("the seeds"), _looks()],
        },
        "margin": {
            "description": "a row within this difference is as good as base; of the first metric, "
            "or by metric",
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0},
                {
                    "type": "object",
                    "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
                },
            ],
        },
        "metrics": {
            "description": "metrics of the predictions; verdicts use the first; unset: the "
            "task's, such as [bleu]",
            "anyOf": [
                metric,
                {"type": "array", "minItems": 1, "uniqueItems": True, "items": metric},
            ],
        },
        "match": {"$ref": "#/definitions/match"},
        "sizes": {
            "description": "names of sizes, each with the fields of base that it sets; every row "
            "is trained at each",
            "type": "object",
            "minProperties": 2,
            "maxProperties": MAX_SIZES,
            "propertyNames": {"pattern": "^(?!base$)[A-Za-z0-9][A-Za-z0-9._-]{0,19}$"},
            "additionalProperties": {
                "anyOf": [{"$ref": "#/definitions/settings"}, {"type": "null"}]
            },
        },
        "tune": _tune(),
        "rows": {
            "description": "groups of rows, each made with each, zip, grid or set",
            "anyOf": [
                {
                    **groups,
                    "additionalProperties": {"anyOf": [group, {"type": "array", "items": group}]},
                },
                {"type": "null"},
            ],
        },
    }


def _fields() -> Schema:
    """Schemas of the fields of base and of rows, by name."""
    whole = RowConfig.model_json_schema()
    fields = {name: _untitled(field) for name, field in whole["properties"].items()}
    for name in whole[
        "required"
    ]:  # a study may leave them out or set them to null: they are derived
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
    """Schema of a mapping of fields, each by its name or by the paper's letter, but not by both."""
    names = [*RowConfig.model_fields, "preset"]
    letters = {letter: schema_of(name) for letter, name in SYMBOLS.items()}
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {**letters, **{name: schema_of(name) for name in names}},
        # A field must not be given by its letter and by its name.
        "not": {"anyOf": [{"required": [letter, name]} for letter, name in SYMBOLS.items()]},
    }


def _group() -> Schema:
    """Schema of a group: one of each, zip, grid and set, and conditions."""
    inside = {way: "settings" if way == "set" else "lists" for way in _WAYS}
    ways = {
        way: {
            "description": text,
            "allOf": [{"$ref": f"#/definitions/{inside[way]}"}, {"minProperties": 1}],
        }
        for way, text in _WAYS.items()
    }
    ways |= _designs()
    conditions = {
        name: {"description": text, "type": "string"} for name, text in _CONDITIONS.items()
    }
    label = {
        "description": "name of the row in tables and on the command line, in place of its group "
        "and settings",
        "type": "string",
        "maxLength": MAX_LABEL,
        "pattern": r'^[^\s*?\[\],"|<>]([^*?\[\],"|<>]*[^\s*?\[\],"|<>])?$',
    }
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            **ways,
            "label": label,
            **conditions,
            "match": {"$ref": "#/definitions/match"},
            "tune": _NOT,
            **_FRACTIONS,
        },
        "oneOf": [{"required": [way]} for way in ways],
        "dependencies": {"label": ["set"]},
    }


_FRACTIONS: Schema = {
    "generators": {
        "description": "of a fractional factorial: a factor and the product that its level is, as "
        "in D: A * B * C",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {"type": "string"},
    },
    "resolution": {
        "description": "of a fractional factorial: the smallest fraction with at least this "
        "resolution",
        "enum": list(RESOLUTIONS),
    },
}


def _designs() -> Schema:
    """Schemas of the ways that make a design; a part is a field, or a named group of fields."""
    scalar = {"type": ["string", "number", "boolean", "null"]}
    named = {"$ref": "#/definitions/settings"}
    levels = {"type": "array", "minItems": 2, "maxItems": 2, "items": scalar}
    texts = {
        "factorial": (
            "every combination of two levels of each field, analyzed for effects and interactions",
            levels,
        ),
        "add-one-in": ("base with one part changed at a time, and with all of them", scalar),
        "leave-one-out": ("all parts changed, and all but one at a time", scalar),
    }
    return {
        way: {"description": text, "type": "object", "minProperties": 2,
              "additionalProperties": {"anyOf": [field, named]}}
        for way, (text, field) in texts.items()
    }  # fmt: skip


def _translation_data() -> Schema:
    """Schema of the data section of translation; the corpus decides which fields are required or
    allowed.
    """
    whole = TranslationData.model_json_schema()
    properties = {name: _untitled(field) for name, field in whole["properties"].items()}
    properties["corpus"]["anyOf"] = [{"enum": list(CORPORA)}, {"type": "string", "pattern": "^hf:"}]
    locations = ("folder", "train", "dev", "test")
    rules = [
        _if_corpus(name, {"properties": {"direction": {"enum": list(named.directions)}}})
        for name, named in NAMED_CORPORA.items()
    ]
    return _data_section(whole["required"], properties, locations, rules)


def _data_section(
    of_files: list[str], properties: Schema, locations: Sequence[str], rules: Sequence[Schema] = ()
) -> Schema:
    """Schema of a data section.

    Args:
        of_files: fields that `corpus: files` requires.
        properties: by field.
        locations: fields that the toy corpus does not have.
        rules: further ones.
    """
    return {
        "additionalProperties": False,
        "required": ["corpus"],
        "properties": properties,
        "allOf": [
            *rules,
            _if_corpus("files", {"required": of_files}),
            _if_corpus("toy", {"not": {"anyOf": [{"required": [name]} for name in locations]}}),
        ],
    }


def _language_data() -> Schema:
    """Schema of the data section of a language model, masked or not."""
    whole = LanguageData.model_json_schema()
    properties = {name: _untitled(field) for name, field in whole["properties"].items()}
    properties["corpus"]["anyOf"] = [{"enum": list(TEXTS)}, {"type": "string", "pattern": "^hf:"}]
    return _data_section(
        whole["required"], properties, ("folder", "train", "dev", "test", "column", "rows")
    )


def _parsing_data() -> Schema:
    """Schema of the data section of parsing."""
    whole = ParsingData.model_json_schema()
    properties = {name: _untitled(field) for name, field in whole["properties"].items()}
    properties["corpus"]["enum"] = list(TREEBANKS)
    return _data_section(whole["required"], properties, ("folder", "train", "dev", "test"))


def _synthetic_data() -> Schema:
    """Schema of the data section of a synthetic task."""
    whole = SyntheticData.model_json_schema()
    properties = {name: _untitled(field) for name, field in whole["properties"].items()}
    properties["corpus"]["enum"] = list(GENERATORS)
    for split in ("train", "dev", "test"):
        properties[split] = {"anyOf": [{"type": "integer", "minimum": 1}, properties[split]]}
    return {"additionalProperties": False, "required": ["corpus"], "properties": properties}


_DATA = {
    Translation.name: _translation_data,
    LanguageModel.name: _language_data,
    Parsing.name: _parsing_data,
    MaskedLanguageModel.name: _language_data,
    Synthetic.name: _synthetic_data,
}


def _of_task(task: Task) -> Schema:
    """Constrain the data section and the metrics of a task. Only the class of a custom task knows
    its fields.
    """
    metric = {"enum": [metric.name for metric in task.prediction_metrics]}
    metrics = {"anyOf": [metric, {"type": "array", "items": metric}]}
    condition: Schema = {"properties": {"task": {"const": task.name}}}
    if task.name != Translation.name:  # a study without the section is one of translation
        condition["required"] = ["task"]
    return {
        "if": condition,
        "then": {"properties": {"data": _DATA[task.name](), "metrics": metrics}},
    }


def _if_corpus(name: str, then: Schema) -> Schema:
    return {"if": {"properties": {"corpus": {"const": name}}, "required": ["corpus"]}, "then": then}


def _untitled(field: Schema) -> Schema:
    return {key: value for key, value in field.items() if key != "title"}

"""Read a part of a YAML file as a pydantic model: every fault at its line and column, all at
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from ablate.config.fields import error_message
from ablate.errors import unknown_name
from ablate.study.yaml_nodes import Mark, Node, Report

Model = TypeVar("Model", bound=BaseModel)


def read_model(model: type[Model], node: Node, name: str, report: Report) -> Model | None:
    """Read a mapping as a model; None, with every fault reported at its place, if it is not valid.

    Args:
        model: its fields are the keys of the mapping.
        node: of the mapping.
        name: of the mapping, for messages.
        report: receives position and message of each fault.
    """
    if not isinstance(node.value, dict):
        report(
            node.mark, f"{name} must be a mapping of {', '.join(keys_of(model))}; got {node.kind}"
        )
        return None
    try:
        return model.model_validate(node.to_python())
    except ValidationError as error:
        for details in error.errors():
            report(*_fault(model, node, name, details))
    return None


def keys_of(model: type[BaseModel]) -> tuple[str, ...]:
    """The keys that a mapping of a model may have."""
    return tuple(field.alias or name for name, field in model.model_fields.items())


def _fault(
    model: type[BaseModel], node: Node, name: str, details: Mapping[str, Any]
) -> tuple[Mark, str]:
    """Position and message of an error of pydantic."""
    key_mark, owner, key = node.mark, model, ""
    for step in details["loc"]:
        value = node.value
        if isinstance(value, dict) and step in value:
            key_mark, node = value[step]
            if details["type"] != "extra_forbidden" or step != details["loc"][-1]:
                owner = _nested(owner, str(step)) or owner
            key = str(step)
        elif isinstance(value, list) and isinstance(step, int):
            node = value[step]
        elif step == "[key]":
            return key_mark, error_message(details)
        # Other steps are names of the branches of a union.
    if details["type"] == "extra_forbidden":
        return key_mark, unknown_name("key", key, keys_of(owner))
    if details["type"] == "missing":
        return node.mark, f"{key or name} needs {details['loc'][-1]}"
    message = error_message(details)
    return node.mark, f"{key}: {message}" if key else message


def _nested(model: type[BaseModel], key: str) -> type[BaseModel] | None:
    """The model of a key's value, if it has one."""
    field = model.model_fields.get(key)
    kinds = [field.annotation, *get_args(field.annotation)] if field else []
    models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
    return models[0] if models else None

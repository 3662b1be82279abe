"""Write the tables of fields in the documentation from the declarations of the fields:
`python -m tests.fields`.

Generated are the names, the allowed values where they are a list or a range, the meaning, and the
settings without which a field has no effect. Defaults and the order of the rows are written by
hand, and test_docs.py checks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from ablate.config import DecodingConfig, ModelConfig, TrainingConfig
from ablate.config.language_data import LanguageData
from ablate.config.parsing_data import ParsingData
from ablate.config.row import TASK_FIELDS, RowDataConfig
from ablate.config.synthetic_data import SyntheticData
from ablate.config.translation_data import TranslationData
from ablate.errors import listed
from ablate.fields import SET, Facts, Part, facts_of, meanings_of
from ablate.parts.attention import SOFTMAX
from ablate.parts.mixers import MIXERS
from ablate.parts.variant import VariantName
from ablate.tasks import meaning_of

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "fields.md"
SECTIONS = (TranslationData, RowDataConfig, ModelConfig, TrainingConfig, DecodingConfig)
FACTS = {name: facts for section in SECTIONS for name, facts in facts_of(section).items()}
# Pages with a table of fields, and the sections that declare these fields.
TABLES = {
    PAGE: SECTIONS,
    DOCS / "language-models.md": (LanguageData,),
    DOCS / "parsing.md": (ParsingData,),
    DOCS / "synthetic.md": (SyntheticData,),
}
CELL = r"((?:[^|\\]|\\.)*)"
# Name, default, allowed values, meaning.
ROW = re.compile(rf"^\| `(\w+)`[^|]* \| {CELL} \| ?{CELL} \| {CELL} \|$", re.MULTILINE)

# The condition of a part that follows from several fields, by the name of the part.
CONDITIONS = {
    "a choice among experts": "`experts_per_token` below `n_experts`",
    "a balance of experts": "`expert_balance` above 0",
    "stacks of N layers": "a stack whose depth is not set",
    "a second layer": "two or more layers",
    "attention": "`mixer: attention`",
    "the softmax of scores": "`mixer: attention` and another `attention` than `linear`",
    "a mixer with heads": "`mixer: attention`, "
    + listed(f"`{name}`" for name, mixer in MIXERS.items() if mixer.has_heads),
    "the steps after the warm-up": "`train_steps` above `warmup_steps`",
}
# Parts of which cross-attention is one.
IN_CROSS_ATTENTION = {"attention", "the softmax of scores", "a mixer with heads"}


def choices(field: FieldInfo) -> list[Any]:
    """The allowed values of a field with a fixed set of them, else an empty list."""
    if field.annotation is bool:
        return [True, False]
    for kind in (field.annotation, *get_args(field.annotation)):
        if get_origin(kind) is Literal:
            return list(get_args(kind))
    return [name for mark in field.metadata if isinstance(mark, VariantName) for name in mark.names]


def own_part(field: FieldInfo) -> str:
    """What a study may name of its own."""
    marks = [mark for mark in field.metadata if isinstance(mark, VariantName)]
    return "a custom function" if marks[0].is_function else "a custom class"


def takes_own_class(field: FieldInfo) -> bool:
    """Whether a study may name a class of its own."""
    return any(isinstance(mark, VariantName) for mark in field.metadata)


def written(value: object) -> str:
    """A value as a study writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def allowed_values(field: FieldInfo) -> str:
    """The allowed values as a list or a range; empty if the declaration has neither."""
    allowed = ", ".join(f"`{written(choice)}`" for choice in choices(field))
    if takes_own_class(field):
        allowed += f", or [{own_part(field)}](components.md)"
    return allowed or _range(field)


def _range(field: FieldInfo) -> str:
    bounds = {}
    for mark in _marks(field):
        for kind in ("gt", "ge", "lt", "le"):
            if getattr(mark, kind, None) is not None:
                bounds[kind] = _number(getattr(mark, kind))
    low = f"above {bounds['gt']}" if "gt" in bounds else bounds.get("ge", "")
    high = f"below {bounds['lt']}" if "lt" in bounds else bounds.get("le", "")
    if low and not high:
        return f"from {low}"
    return f"{low} to {high}" if low else ""


def _marks(field: FieldInfo) -> Iterator[Any]:
    """The marks of a field, and the marks of the number in an optional one."""
    yield from field.metadata
    for kind in get_args(field.annotation):
        for mark in getattr(kind, "__metadata__", ()):
            yield from mark.metadata if isinstance(mark, FieldInfo) else (mark,)


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) and value < 1e10 else f"{value:g}"


def precondition(name: str, part: Part) -> str:
    """The sentence with the settings without which a field has no effect."""
    parts = [
        each for each in _chain(part) if (name, each.name) != ("layer_skips", "a second layer")
    ]
    text = ", and ".join(dict.fromkeys(filter(None, map(_condition, parts))))
    is_any_stack = not any("architecture" in each.needs for each in parts)
    if is_any_stack and not IN_CROSS_ATTENTION.isdisjoint(each.name for each in parts):
        text += ", or `architecture: encoder-decoder`"
    return f"Only with {text}"


def _chain(part: Part) -> Iterator[Part]:
    """The part and the parts that contain it, except parts that its own condition implies."""
    yield part
    implied = [FACTS[name].part for name in part.needs]
    for parent in part.parents:
        if parent not in implied and part is not SOFTMAX:
            yield from _chain(parent)


def _condition(part: Part) -> str:
    """The settings that choose a part; empty if it has no condition of its own."""
    texts = []
    for name, values in part.needs.items():
        if values == (SET,):
            texts.append(f"`{name}`")
        else:
            first, *others = (f"{written(value)}`" for value in values)
            texts.append(listed([f"`{name}: {first}", *(f"`{value}" for value in others)]))
    if part.condition is not None:
        texts.append(CONDITIONS[part.name])
    return " and ".join(texts)


def _name(name: str, facts: Facts) -> str:
    """The cell with the name, the paper's symbol, and whether the value may differ by layer."""
    names = f"`{name}`, `{facts.symbol}`" if facts.symbol else f"`{name}`"
    return f"{names} (list)" if facts.per_layer else names


def page(text: str, sections: tuple[type[BaseModel], ...] = SECTIONS) -> str:
    """The page with current rows of all fields of the sections."""
    owner = {name: section for section in reversed(sections) for name in section.model_fields}

    def row(match: re.Match[str]) -> str:
        name, default, allowed, _ = match.groups()
        section = owner.get(name)
        if section is None:
            return match.group()
        facts = facts_of(section)[name]
        meaning = meanings_of(section)[name]
        if name in TASK_FIELDS:
            meaning = meaning_of(name)
        if facts.part is not None:
            meaning = f"{meaning.removesuffix('.')}. {precondition(name, facts.part)}"
        allowed = allowed_values(section.model_fields[name]) or allowed
        meaning = meaning.replace("|", "\\|")
        return f"| {_name(name, facts)} | {default} | {allowed} | {meaning} |"

    return ROW.sub(row, text)


if __name__ == "__main__":
    for path, sections in TABLES.items():
        path.write_text(page(path.read_text(), sections))

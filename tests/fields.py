"""Write the meaning of every field into the tables of docs/study.md and docs/tasks.md, and in
study.md the allowed values where they are a list: `python -m tests.fields`.

Both are from the declaration of the field in ablate/config/. All else is written by hand and
checked by test_docs.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from ablate.config import DecodingConfig, ModelConfig, TrainingConfig
from ablate.config.language_data import LanguageData
from ablate.config.parsing_data import ParsingData
from ablate.config.row import TASK_FIELDS, RowDataConfig
from ablate.config.synthetic_data import SyntheticData
from ablate.config.translation_data import TranslationData
from ablate.fields import meanings_of
from ablate.parts.variant import VariantName
from ablate.tasks import meaning_of

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "study.md"
# Data settings by the headings of docs/tasks.md that have a table of them.
TASK_TABLES = {
    "## Language models": LanguageData,
    "### Treebanks": ParsingData,
    "### Items": SyntheticData,
}
SECTIONS = (TranslationData, RowDataConfig, ModelConfig, TrainingConfig, DecodingConfig)
CELL = r"((?:[^|\\]|\\.)*)"
ROW = re.compile(rf"^(\| `(\w+)`[^|]* \|{CELL}\| ){CELL} \| {CELL} \|$", re.MULTILINE)


def choices(field: FieldInfo) -> list[Any]:
    """The allowed values of a field with a fixed set of them, else an empty list."""
    if field.annotation is bool:
        return [True, False]
    if get_origin(field.annotation) is Literal:
        return list(get_args(field.annotation))
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


def page(text: str) -> str:
    """The page with the current choices and description of each field in the last columns."""
    fields = {
        name: field
        for section in reversed(SECTIONS)
        for name, field in section.model_fields.items()
    }

    meanings = {
        name: meaning
        for section in reversed(SECTIONS)
        for name, meaning in meanings_of(section).items()
    }

    def row(match: re.Match[str]) -> str:
        field = fields.get(match.group(2))
        meaning = meanings.get(match.group(2))
        if field is None or meaning is None:
            return match.group()
        if match.group(2) in TASK_FIELDS:
            meaning = meaning_of(match.group(2))
        meaning = meaning.replace("|", "\\|")
        allowed = ", ".join(f"`{written(choice)}`" for choice in choices(field))
        if takes_own_class(field):
            allowed += f", or [{own_part(field)}](components.md)"
        return f"{match.group(1)}{allowed or match.group(4)} | {meaning} |"

    return ROW.sub(row, text)


def tasks_page(text: str) -> str:
    """The page of the tasks with the current description of each data setting."""
    for heading, section in TASK_TABLES.items():
        meanings = meanings_of(section)
        before, after = text.split(f"{heading}\n")
        level = heading.split()[0]
        table, *rest = re.split(rf"(?m)(?=^{level} )", after, maxsplit=1)

        def row(match: re.Match[str], meanings: dict[str, str] = meanings) -> str:
            meaning = meanings.get(match.group(2), match.group(5))
            return f"{match.group(1)}{match.group(4)} | {meaning} |"

        text = "".join([before, f"{heading}\n", ROW.sub(row, table), *rest])
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    TASKS = DOCS / "tasks.md"
    TASKS.write_text(tasks_page(TASKS.read_text()))

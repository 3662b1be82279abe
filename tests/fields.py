"""Write the meaning of every field into the tables of docs/study.md: `python -m tests.fields`.

The meaning is the description of the field in ablate/config/. Other columns are written by hand and
checked by test_docs.py.
"""

from __future__ import annotations

import re
from pathlib import Path

from ablate.config import DecodingConfig, ModelConfig, TrainingConfig, TranslationData
from ablate.config.resolve import TASK_FIELDS, RowDataConfig
from ablate.tasks import meaning_of

PAGE = Path(__file__).parent.parent / "docs" / "study.md"
SECTIONS = (TranslationData, RowDataConfig, ModelConfig, TrainingConfig, DecodingConfig)
ROW = re.compile(
    r"^(\| `(\w+)`[^|]* \|(?:[^|\\]|\\.)*\|(?:[^|\\]|\\.)*\| )((?:[^|\\]|\\.)*) \|$", re.MULTILINE
)


def page(text: str) -> str:
    """The page with the current description of each field in the last column."""
    fields = {
        name: field
        for section in reversed(SECTIONS)
        for name, field in section.model_fields.items()
    }

    def row(match: re.Match[str]) -> str:
        field = fields.get(match.group(2))
        if field is None or field.description is None:
            return match.group()
        meaning = field.description
        if match.group(2) in TASK_FIELDS:
            meaning = meaning_of(match.group(2))
        meaning = meaning.replace("|", "\\|")
        return f"{match.group(1)}{meaning} |"

    return ROW.sub(row, text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))

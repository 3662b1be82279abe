"""Every field of a run is declared once, and every place that has to know it reads the
declaration.
"""

from typing import get_args

import pytest

from ablate.config import DecodingConfig, ModelConfig, RowConfig, TrainingConfig
from ablate.config.identity import INTRODUCED, INTRODUCED_DECODING, NOT_IDENTITY
from ablate.config.inactive import canonical_values
from ablate.config.resolve import SETTING_FIELDS, SYMBOLS
from ablate.config.row import TASK_FIELDS
from ablate.export.target import ANY
from ablate.fields import SET, Aliases, Section, facts_of, fields_by_alias, meanings_of
from ablate.paper import TABLE_3
from ablate.parts.variant import VariantName
from ablate.tasks import TASKS
from tests.export.targets import all_targets
from tests.model.pairs import needs_of

FACTS = facts_of(RowConfig)


def test_every_field_has_bounds_and_a_meaning():
    assert meanings_of(RowConfig).keys() == RowConfig.model_fields.keys()


class Base(Section):
    """A section."""

    kept: int = 1
    """kept, in
    two lines"""
    changed: int = 2
    """of the base"""


class Derived(Base):
    changed: int = 3
    """of the derived section"""
    bare: int = 4


def test_a_meaning_is_the_text_below_a_field_in_the_class_that_declares_it_last():
    meanings = {"kept": "kept, in two lines", "changed": "of the derived section"}
    assert meanings_of(Derived) == meanings
    properties = Derived.model_json_schema()["properties"]
    shown = {name: field.get("description") for name, field in properties.items()}
    assert shown == {**meanings, "bare": None}


def test_a_section_without_a_source_has_no_meanings():
    made = type("Made", (Section,), {"__annotations__": {"size": int}, "__module__": "nowhere"})
    assert meanings_of(made) == {}


@pytest.mark.parametrize("name", FACTS)
def test_the_id_of_a_run_knows_every_field_with_the_default_of_its_introduction(name):
    places = [name in table for table in (INTRODUCED, INTRODUCED_DECODING, NOT_IDENTITY)]
    assert sum(places) == 1
    assert (name in DecodingConfig.model_fields) == (name in INTRODUCED_DECODING)


@pytest.mark.parametrize("name", FACTS)
def test_what_a_field_needs_exists(name):
    for selector, values in needs_of(FACTS[name].part).items():
        field = RowConfig.model_fields[selector]
        if values == (SET,):
            assert not field.default  # unset, or 0
            continue
        if field.annotation is bool:
            assert values in ((True,), (False,))
            continue
        own = [item.names for item in field.metadata if isinstance(item, VariantName)]
        allowed = own[0] if own else get_args(field.annotation)
        assert set(values) < set(allowed), (selector, values)


@pytest.mark.filterwarnings("ignore:Pydantic serializer")
@pytest.mark.parametrize("name", [*ModelConfig.model_fields, *TrainingConfig.model_fields])
def test_a_field_without_effect_gets_its_default_or_is_declared_to_keep_its_value(name):
    field = RowConfig.model_fields[name]
    value = "another value"
    config = RowConfig(d_k=64, d_v=64).model_copy(update={name: value})
    settled = canonical_values(config, [name])[name]
    kept = field.is_required() or name == "n_heads"
    if name != "n_layers":  # which becomes the depth of a stack
        assert settled == (value if kept else field.default)


@pytest.mark.parametrize("target", all_targets(), ids=lambda target: target.name)
def test_an_export_refuses_another_value_of_a_field_that_it_does_not_know(target):
    taken = []
    for name in ModelConfig.model_fields:
        if FACTS[name].is_exported or target.supported.get(name) is ANY:
            continue
        config = RowConfig(d_k=64, d_v=64).model_copy(update={name: "unknown"})
        if not any(text.startswith(f"{name}=unknown") for text in target.violations(config)):
            taken.append(name)
    assert taken == []


def test_the_symbols_are_those_of_the_papers_table():
    assert set(TABLE_3.base) - {"positional_encoding"} | {"train_steps"} == SETTING_FIELDS
    assert SYMBOLS == {
        "N": "n_layers",
        "h": "n_heads",
        "P_drop": "dropout",
        "eps_ls": "label_smoothing",
    }


def test_no_alias_is_a_name_or_an_alias_of_another_field():
    names = [alias for info in RowConfig.model_fields.values() for item in info.metadata
             if isinstance(item, Aliases) for alias in item.names]  # fmt: skip
    assert len(names) == len(set(names)) == len(fields_by_alias(RowConfig))
    assert not set(names) & RowConfig.model_fields.keys()


def test_every_field_of_tasks_is_used_by_a_task():
    assert {"beam", "constrained", "context", "mask_rate", "eval_mask_seed"} < set(TASK_FIELDS)
    assert "average_checkpoints" not in TASK_FIELDS
    assert all(
        any(name not in task.unused_fields for task in TASKS.values()) for name in TASK_FIELDS
    )

"""Reading a mapping as a model: where its faults are, what is left out, and what is read again."""

from typing import Annotated

import pytest
from pydantic import AfterValidator, Field, model_validator

from ablate.errors import Fault
from ablate.study.typed import KEY, Misplaced, Placed, read_model, union_by_kind
from ablate.study.yaml_nodes import parse_yaml


def distinct(numbers):
    for index, number in enumerate(numbers):
        if number in numbers[:index]:
            raise Misplaced(Fault(f"{number} again", path=(index,)))
    return numbers


Numbers = Annotated[
    list[Annotated[int, Field(ge=0)]], Field(min_length=1), AfterValidator(distinct)
]


class Inner(Placed):
    size: int = 0
    steps: int = Field(0, alias="train-steps")


class Outer(Placed):
    numbers: Numbers = Field([0])
    inner: Inner = Field(Inner())
    either: union_by_kind({"a mapping": Inner, "a list": list[Inner]}) = Field([])
    named: dict[str, Inner] = Field({})

    @model_validator(mode="after")
    def _agree(self):
        if self.inner.size > len(self.numbers):
            raise Misplaced(
                Fault("is larger than the list", path=("inner", "size")),
                Fault("short", path=("numbers", KEY)),
            )
        return self


def reading(text):
    """The model, and each fault as `line:column: message`."""
    faults = []
    node = parse_yaml(text, "s")
    model, valid = read_model(
        Outer,
        node,
        "it",
        lambda mark, message: faults.append(f"{mark.line}:{mark.column}: {message}"),
    )
    assert model is None or (valid is node) == (not faults)
    return model, faults


def test_a_valid_mapping_is_the_model_with_the_places_of_its_keys():
    model, faults = reading("numbers: [3, 4]\ninner: {size: 2, train-steps: 5}\n")
    assert faults == []
    assert (model.numbers, model.inner.size, model.inner.steps) == ([3, 4], 2, 5)
    assert (model.inner.mark.line, model.inner.mark.column) == (2, 8)
    assert model.inner.node("train-steps").mark.column == 31


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("nmbers: [1]", ['1:1: unknown key "nmbers"; did you mean "numbers"?']),
        ("inner: {sise: 3}", ['1:9: unknown key "sise"; did you mean "size"?']),
        ("named: {size: {sise: 3}}", ['1:16: unknown key "sise"; did you mean "size"?']),
        ("inner: {size: x}", ['1:15: size: "x" is not allowed: must be a valid integer']),
        ("inner: 3", ["1:8: inner: 3 is not allowed: must be a mapping of size, train-steps"]),
        ("either: [{}, {size: x}]", ['1:21: size: "x" is not allowed: must be a valid integer']),
        ("either: {size: x}", ['1:16: size: "x" is not allowed: must be a valid integer']),
        ("either: 3", ["1:9: either: 3 is not allowed: must be a mapping of size, train-steps"]),
        ("numbers: [1, -2]", ["1:14: numbers: -2 is not allowed: must be greater than or equal to 0"]),
    ],
)  # fmt: skip
def test_a_fault_has_its_place_and_the_nearest_match(text, faults):
    assert reading(text)[1] == faults


def test_a_rule_over_several_parts_reports_each_at_its_value_or_its_key():
    assert reading("inner: {size: 2}\nnumbers: [5]\n")[1] == [
        "1:15: is larger than the list",
        "2:1: short",
    ]


def test_faults_of_parts_do_not_hide_those_of_the_rules_over_them():
    """An unknown key, a wrong entry, a repeated one and a part that is too large for what is left
    are four faults of one reading.
    """
    model, faults = reading("numbers: [7, x, 7]\ninner: {size: 3, seize: 1}\n")
    assert faults == [
        '1:14: numbers: "x" is not allowed: must be a valid integer',
        '2:18: unknown key "seize"; did you mean "size"?',
        "1:17: 7 again",
        "2:15: is larger than the list",
    ]
    # Of the list, the rule leaves nothing, and says so of its other part alone.
    assert (model.numbers, model.inner.size) == ([0], 0)


def test_a_mapping_or_list_is_not_blamed_for_what_was_left_out_of_it():
    model, faults = reading("numbers: [x]\ninner: {size: 1}\n")
    assert faults == ['1:11: numbers: "x" is not allowed: must be a valid integer']
    assert model.numbers == [0]  # the default in the place of the empty list


def test_nothing_is_left_of_a_file_that_is_no_mapping():
    model, faults = reading("[1]")
    assert model is None
    assert faults == [
        "1:1: it: [1] is not allowed: must be a mapping of numbers, inner, either, named"
    ]

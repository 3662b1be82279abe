"""Fields of generated items: generator, size and held-out share."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, field_validator, model_validator

from ablate.config.data import CorpusConfig
from ablate.errors import Fault, Invalid, listed, not_allowed
from ablate.fields import ProperShare, TaskSettings

DRAWN = "drawn"  # the training split whose items are drawn for each step
SETTINGS = ("length", "pairs", "symbols", "gap", "depth")
MARKS = 4  # <pad>, <unk>, <s> and </s>
ItemSize = Annotated[int, Field(ge=1, le=10_000)]
_MOST_ITEMS = 1_000_000
_MOST_PERMUTED = 6  # 720 permutations
_NUMBER: dict[str, Any] = {"type": ["integer", "string"]}  # JSON Schema of a number of items


@dataclass(frozen=True)
class Generator:
    """A generator of items.

    settings: the data settings that it uses, with their defaults; all other settings are refused.
    size: the setting that is the size of an item, `length` or `pairs`; empty if all items have the
        same size.
    tokens: function from the data settings to the names of the tokens, whose ids begin at 4.
    draw: function that draws items; None: the function in `ablate/data/generators.py` with the name
        of the generator.
    """

    settings: Mapping[str, int]
    size: str
    tokens: Callable[[SyntheticData], Sequence[str]]
    draw: Callable[..., Any] | None = None


def numbered(letter: str, count: int | None) -> list[str]:
    """Names of `count` tokens with a letter: k0, k1, k2."""
    return [f"{letter}{number}" for number in range(count or 0)]


def _marked(data: SyntheticData) -> list[str]:
    """Names of tokens: the mark before answers, a token without meaning, and the symbols."""
    return ["=", ".", *numbered("s", data.symbols)]


def _brackets(data: SyntheticData) -> list[str]:
    """Names of tokens: the mark before answers, their end, and numbered kinds of brackets."""
    return ["=", ".", *numbered("(", data.symbols), *numbered(")", data.symbols)]


def _orders(data: SyntheticData) -> list[str]:
    """Names of tokens: the permutations of `symbols` things, such as 01234 for the identity."""
    if (data.symbols or 0) > _MOST_PERMUTED:
        why = f"symbols={data.symbols} has too many orders: at most {_MOST_PERMUTED}"
        raise Invalid(Fault(why, ("symbols",)))
    return ["".join(map(str, order)) for order in permutations(range(data.symbols or 0))]


GENERATORS = {
    "recall": Generator(
        {"pairs": 4, "symbols": 16, "gap": 0},
        "pairs",
        lambda data: [".", *numbered("k", data.symbols), *numbered("v", data.symbols)],
    ),
    "copy": Generator({"length": 10, "symbols": 16}, "length", _marked),
    "reverse": Generator({"length": 10, "symbols": 16}, "length", _marked),
    "selective-copy": Generator({"length": 8, "gap": 16, "symbols": 16}, "length", _marked),
    "induction": Generator({"length": 16, "symbols": 16}, "length", _marked),
    "parity": Generator({"length": 16}, "length", lambda data: ["0", "1"]),
    "permutations": Generator({"length": 8, "symbols": 5}, "length", _orders),
    "dyck": Generator({"length": 16, "symbols": 2, "depth": 4}, "length", _brackets),
    "modular": Generator(
        {"symbols": 31}, "", lambda data: ["+", "=", *map(str, range(data.symbols or 0))]
    ),
}


class SyntheticData(CorpusConfig):
    """Data settings of a synthetic task: generator, size of items, and splits."""

    generators: ClassVar[Mapping[str, Generator]] = GENERATORS
    is_on_hub: ClassVar = False

    corpus: str
    """the generator"""
    vocab_size: int = MARKS
    """size of the vocabulary, which follows from the other settings"""
    train: str = Field(DRAWN, json_schema_extra=_NUMBER)
    """training items: `drawn` for new items in each step, or a number of items, which are the same
    for all runs"""
    dev: str = Field("500", json_schema_extra=_NUMBER)
    """number of items on which perplexity is measured"""
    test: str = Field("1000", json_schema_extra=_NUMBER)
    """number of items on which the final scores are measured"""
    length: ItemSize | None = None
    """size of an item, such as the number of tokens to copy"""
    pairs: ItemSize | None = None
    """number of pairs of a key and a value, in recall"""
    shortest: ItemSize | None = None
    """smallest size of items of training and dev, which then have all sizes from `shortest` to
    `length` or `pairs`; unset: all items have the largest size"""
    symbols: int | None = Field(None, ge=2, le=10_000)
    """number of different symbols"""
    gap: int | None = Field(None, ge=0, le=10_000)
    """number of tokens without meaning"""
    depth: int | None = Field(None, ge=1, le=100)
    """deepest nesting of brackets, in dyck"""
    held_out: ProperShare = 0.1
    """share of all possible items from which only dev and test are drawn, and never training"""

    @field_validator("train", "dev", "test", mode="before")
    @classmethod
    def _items(cls, value: Any) -> Any:
        """Convert a number of items to the text that names the split."""
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        return value

    @model_validator(mode="after")
    def _splits(self) -> SyntheticData:
        for name in ("train", "dev", "test"):
            value = getattr(self, name)
            if name == "train" and value == DRAWN:
                continue
            if not (value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST_ITEMS):
                also = "drawn, or " if name == "train" else ""
                allowed = f"{also}a number of items from 1 to {_MOST_ITEMS:,}"
                fault = not_allowed(f'"{value}"', allowed)
                raise Invalid(replace(fault, subject=name, fields=(name,)))
        if self.folder is not None:
            raise Invalid(Fault('"folder" has no effect: the items are generated', ("folder",)))
        if self.shortest is not None and self.shortest > self.largest:
            size = self.generator.size
            why = f"shortest={self.shortest} is larger than {size}={self.largest}"
            raise Invalid(Fault(why, ("shortest", size)))
        return self

    @classmethod
    def resolve(cls, settings: Mapping[str, Any]) -> Self:
        """The data settings of a synthetic task, with the defaults of the generator.

        Raises:
            pydantic.ValidationError: a value is of the wrong type or out of range.
            Invalid: the generator is unknown, or does not use a setting.
        """
        corpus = settings.get("corpus")
        if corpus is None and len(cls.generators) == 1:
            (corpus,) = cls.generators
        cls.check_corpus(corpus)
        generator = cls.generators[str(corpus)]
        for name in SETTINGS:
            if name in settings and name not in generator.settings:
                used = listed(generator.settings)
                why = f'"{name}" has no effect on corpus {corpus}, which has {used}'
                raise Invalid(Fault(why, (name, "corpus")))
        if "shortest" in settings and not generator.size:
            why = f'"shortest" has no effect on corpus {corpus}: all items are equal'
            raise Invalid(Fault(why, ("shortest", "corpus")))
        if "vocab_size" in settings:
            why = '"vocab_size" has no effect: it follows from the generator'
            raise Invalid(Fault(why, ("vocab_size",)))
        data = cls(**{**generator.settings, **settings, "corpus": corpus})
        return data.model_copy(update={"vocab_size": MARKS + len(generator.tokens(data))})

    @classmethod
    def corpora(cls) -> tuple[str, ...]:
        """The generators."""
        return tuple(cls.generators)

    @property
    def generator(self) -> Generator:
        """The generator that `corpus` names."""
        return self.generators[self.corpus]

    @property
    def largest(self) -> int:
        """Size of the largest item of training; 1 if all items have the same size."""
        return int(getattr(self, self.generator.size)) if self.generator.size else 1

    @property
    def generated(self) -> bool:
        """True: items are generated."""
        return True

    @property
    def draws_items(self) -> bool:
        """Whether items are generated for every step."""
        return self.train == DRAWN

    @property
    def repeats_items(self) -> bool:
        """Whether training has a fixed number of items."""
        return not self.draws_items


class EvaluationSizeSettings(TaskSettings):
    """Size of the items of an evaluation, which is not part of a run's id."""

    eval_length: ItemSize | None = None
    """length of every test item; unset: lengths of training"""
    eval_pairs: ItemSize | None = None
    """number of pairs of every test item of recall; unset: numbers of training"""

"""Built-in parts have the properties that a class of a user's own must have."""

from pathlib import Path

import pytest

from ablate.checks.layers import VOCAB_SIZE, LayerCheck
from ablate.checks.properties import PropertyCheck
from ablate.checks.tasks import TaskCheck
from ablate.checks.training import CHECKS
from ablate.config import ModelConfig, RowConfig
from ablate.config.optimizers import OPTIMIZERS
from ablate.config.resolve import resolve_row
from ablate.config.training import SCHEDULES
from ablate.custom.kinds import KINDS
from ablate.model import build
from ablate.model.feed_forward import FeedForward
from ablate.model.multi_head import MultiHeadAttention
from ablate.parts.variant import Variant, class_fields
from ablate.study import read_study, runs_of
from ablate.tasks import TASKS
from tests.model.random_shapes import RECURRENT_MIXERS
from tests.model.small import shape
from tests.parts.test_variants import EVERY, VARIANTS

ARCHITECTURES = ("encoder-decoder", "decoder-only", "encoder-only")
# Variants that are no class of their own: no norm, no positions, and streams around another part.
NOTHING = {("norm_position", "none"), ("positional_encoding", "none")}
PARTS = [part for part in EVERY if part[0] in KINDS and part not in NOTHING]
PARTS.append(("feed_forward", "network"))
NEEDS = {
    "differential": {"n_heads": 4},
    "rg_lru": {"d_v": 10},
    "adamw": {"weight_decay": 0.1},
    "schedule_free": {"schedule": "constant"},
}
STUDY = """\
study: s
task: {name}
data: {{{data}}}
base: {{N: 1, d_model: 16, d_ff: 16, h: 2, batch_tokens: 600, train_steps: 4, warmup_steps: 2{row}}}
rows: {{}}
"""


@pytest.fixture
def made(monkeypatch):
    """The classes of the built-in parts that models are made of, by what makes them."""
    classes, make = {}, Variant.make

    def remember(self, *args, **keywords):
        part = make(self, *args, **keywords)
        classes[self.build] = type(part)
        return part

    monkeypatch.setattr(Variant, "make", remember)
    return classes


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize(("field", "name"), PARTS)
def test_a_part_of_a_layer_has_all_properties(made, field, name, architecture):
    if name in RECURRENT_MIXERS and architecture != "decoder-only":
        pytest.skip("it reads in one direction")
    fields = {"architecture": architecture, field: name, **NEEDS.get(name, {})}
    config = shape(max_positions=16, n_layers=1, **fields)
    model, twin = (build(config, VOCAB_SIZE, 1) for _ in range(2))
    if field == "feed_forward":
        cls = next(type(part) for part in model.modules() if isinstance(part, FeedForward))
    elif name == "attention":
        cls = MultiHeadAttention
    else:
        cls = made[VARIANTS[field][name].build]
    check = LayerCheck(model, twin, {field: cls})
    assert [part for part, _ in check.modules()]
    check.run()


@pytest.mark.parametrize(
    ("field", "name"),
    [("optimizer", name) for name in OPTIMIZERS] + [("schedule", name) for name in SCHEDULES],
)
def test_an_optimizer_and_a_schedule_have_their_properties(field, name):
    config = resolve_row({field: name, **NEEDS.get(name, {})})
    CHECKS[field](config, Path()).run()


@pytest.mark.parametrize("name", TASKS)
def test_a_task_has_its_properties(tmp_path, name):
    data, row = "corpus: toy", ""
    if name == "synthetic":
        data = "corpus: recall, pairs: 2, symbols: 8, test: 60, dev: 40"
    elif "language-model" in name:
        row = ", context: 16"
    (tmp_path / "s.yaml").write_text(STUDY.format(name=name, data=data, row=row))
    study = read_study(tmp_path / "s.yaml")
    (run,) = runs_of(study)
    corpus = study.prepare(run.data, tmp_path, lambda line: None)
    split = study.task.at_step(study.task.items(corpus, "train", run.config), seed=1, step=1)
    model = build(run.config, corpus.tokenizer.vocab_size, 1).eval()
    TaskCheck(study.task, model, split, 0.1).run()


# The table of kinds

CHECKED = {**dict.fromkeys(KINDS, LayerCheck), **CHECKS, "task": TaskCheck}
# The method of each property, in the order of the table.
METHODS = {
    "shapes": "check_results",
    "the past cannot see the future": "compare_futures",
    "padding changes nothing": "compare_padding",
    "steps equal the whole": "compare_steps",
    "resume is exact": "compare_repetitions",
}


def test_the_kinds_are_the_fields_that_take_a_class_and_the_task():
    assert KINDS.keys() == class_fields(RowConfig) | {"task"}
    layers = {field for field, check in CHECKED.items() if check is LayerCheck}
    assert layers == class_fields(ModelConfig)


def test_the_page_of_custom_components_has_the_properties_of_each_kind():
    page = (Path(__file__).parents[2] / "docs/components.md").read_text()
    lines = [line.strip("| ") for line in page.splitlines()]
    table = lines[lines.index(next(line for line in lines if line.startswith("property |"))) + 2 :]
    columns = ("attention", "optimizer", "schedule", "loss_term", "task")  # the first of seven
    for (property, method), line in zip(METHODS.items(), table, strict=False):
        name, *marks = line.split("|")
        assert property in name
        marked = {field for field, mark in zip(columns, marks, strict=False) if "x" in mark}
        tried = {
            field
            for field in columns
            if getattr(CHECKED[field], method) is not getattr(PropertyCheck, method)
        }
        assert marked == tried

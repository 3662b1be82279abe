"""Notes on rows and on base that are valid and probably not intended."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ablate.config import RowConfig
from ablate.config.identity import NOT_IDENTITY
from ablate.config.presets import PARTS, PRESETS
from ablate.config.resolve import SYMBOL_OF
from ablate.errors import Fault, Mark
from ablate.formatting import enumeration, setting_text
from ablate.parts import feed_forward
from ablate.study.row import Row
from ablate.study.tuning import Tune
from ablate.study.yaml_nodes import Node

MAX_NAMED = 6  # largest number of rows that a note names
EQUAL_TO_BASE = "rows with the settings of base, which show no difference"
TRAINED_ALIKE = (
    "rows with the weights of base, because they change only when a run is evaluated or saved, or "
    "how it is executed"
)
SELECTED_ON_TEST = (
    "data.test is the dev split, by which {} chooses, so scores are better than on new text"
)
REPEATED = "rows that are written twice, and trained once"
WITHOUT_ROWS = "groups without rows, because where drops every combination"
EVALUATED_ONCE = "eval_every is above train_steps, so that only the end of training is evaluated"
_LAYER_KINDS = {"mixer", "attention", "positional_encoding"}


def is_trained_alike(row: RowConfig, changed: Collection[str]) -> bool:
    """Whether a row that differs from base in the fields `changed` has base's weights, because none
    of them changes training.
    """
    unchanging = {*NOT_IDENTITY}
    if row.patience is None:
        unchanging.add("eval_every")
        if row.average_checkpoints == 1:
            unchanging.add("checkpoint_every")
    return bool(changed) and unchanging.issuperset(changed)


class RowNotes:
    """Collects remarks on the rows of a study, and makes a note of each remark."""

    def __init__(self, base: Mapping[str, Node]) -> None:
        """Start without remarks; `base` has the settings of base, by standard name."""
        self.base = base
        # Remark -> label of a row -> position. These remarks come first in the notes.
        self._rows: dict[str, dict[str, Mark]] = {
            EQUAL_TO_BASE: {},
            TRAINED_ALIKE: {},
            REPEATED: {},
        }

    def add(self, label: str, remarks: Iterable[str], mark: Mark) -> None:
        """Add remarks on the row at a position; an empty remark is left out."""
        for remark in filter(None, remarks):
            self._rows.setdefault(remark, {})[label] = mark

    def add_single_evaluation(self, row: Row, written: Mapping[str, Node]) -> None:
        """Add a row that sets `eval_every` or `train_steps` so that `eval_every` is larger."""
        every = written.get("eval_every") or self.base.get("eval_every")
        steps = row.config.train_steps
        if every is None or steps is None or row.config.eval_every <= steps:
            return
        if "eval_every" in written or "train_steps" in written:
            self.add(row.label, [EVALUATED_ONCE], every.mark)

    def add_selection_on_test(
        self, rows: Sequence[Row], written: Mapping[str, Mapping[str, Node]], tune: Tune | None
    ) -> None:
        """Add what is chosen by the dev split, which is the test split, too.

        Args:
            rows: all rows.
            written: fields that each row writes, by label.
            tune: section `tune` of the study; None without it.
        """
        if tune is not None:
            self.add("base", [SELECTED_ON_TEST.format("tune")], tune.mark)
        for row in rows:
            patience = written[row.label].get("patience") or self.base.get("patience")
            if row.config.patience is not None and patience is not None:
                self.add(row.label, [SELECTED_ON_TEST.format("patience")], patience.mark)

    def add_layers(self, row: Row, written: Mapping[str, Node]) -> None:
        """Add remarks on the experts of a row."""
        remarks = [text for layer in row.config.all_layers for text in feed_forward.remarks(layer)]
        for settings in (written, self.base):
            for name in ("experts_per_token", "expert_weights", "n_experts", "preset"):
                if name in settings:
                    self.add(row.label, remarks, settings[name].mark)
                    return

    def add_untested_departures(self, rows: Sequence[Row]) -> None:
        """Add the fields of the model in which base differs from its preset and which no row
        changes: the table does not show what such a change does.
        """
        preset = self.base.get("preset")
        if preset is None or preset.value not in PRESETS or not rows:
            return
        tested = {name for row in rows for name in row.changed}
        values = PRESETS[preset.value]
        departures = []
        for name in itertools.chain(*PARTS.values()):
            if name in values and name in self.base and name not in tested:
                value = getattr(rows[0].config, name)
                if value != values[name]:
                    departures.append(f"{name}={setting_text(value)}")
        if departures:
            remark = f"differs from preset {preset.value} in {enumeration(departures)}"
            self.add("base", [f"{remark}, which no row tests"], preset.mark)

    def lines(self) -> Iterator[str]:
        """Yield a line for each remark, with its rows and the position of the first one, and a line
        for a list in base that may be meant as values to compare.
        """
        for remark, rows in self._rows.items():
            if rows:
                named = list(rows)[:MAX_NAMED]
                if len(rows) > MAX_NAMED:
                    named.append("...")
                first = next(iter(rows.values()))
                yield str(Fault(f"{remark}: {', '.join(named)}", place=first))

        yield from self._list_in_base()

    def _list_in_base(self) -> Iterator[str]:
        """Yield a line if base has a single list. It is a pattern, which gives the layers different
        values in turn, but users of tools for sweeps may mean values to compare.
        """
        lists = {}
        for name, node in self.base.items():
            if isinstance(node.value, list):
                lists[name] = node
        # Several lists, or a list of kinds of layers, are surely meant as patterns.
        if len(lists) != 1 or lists.keys() & _LAYER_KINDS:
            return
        ((name, node),) = lists.items()
        key = SYMBOL_OF.get(name, name)
        values = f"[{', '.join(map(setting_text, node.to_python()))}]"
        remedy = f"to compare values, write rows: {{{key}: {{each: {{{key}: {values}}}}}}}"
        problem = "is a pattern, which gives its values to the layers in turn"
        yield str(Fault(problem, (name,), key, values, remedy=remedy, place=node.mark))

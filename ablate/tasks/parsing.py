"""Constituency parsing: sentences and linearized trees (section 6.3; Vinyals et al., 2015)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from ablate.config import DecodingConfig
from ablate.config.decoding import SearchSettings
from ablate.config.parsing_data import SENTENCE, TREE, ParsingData, TreeSearchSettings
from ablate.paper import TABLE_4
from ablate.stats.metrics import PPL, TREE_METRICS
from ablate.tasks.sequence_to_sequence import SequenceToSequence

if TYPE_CHECKING:
    from ablate.data.corpus import Corpus
    from ablate.decoding.constraint import Constrain
    from ablate.metrics.resampling import Statistics


class Parsing(SequenceToSequence):
    """Predict the linearized tree of a sentence; scored as by EVALB."""

    name = "parsing"
    data_config = ParsingData
    units: ClassVar[Mapping[str, str]] = {PPL.name: "symbol of the linearized trees"}
    prediction_metrics = TREE_METRICS
    default_metrics = tuple(metric.name for metric in TREE_METRICS)
    # The values of section 6.3
    defaults: ClassVar[Mapping[str, Any]] = {"beam": 21, "alpha": 0.3, "max_extra_length": 300}
    settings = (SearchSettings, TreeSearchSettings)
    shown_fields = ("batch_tokens", "warmup_steps", "beam", "alpha", "max_extra_length")
    paper = TABLE_4

    def constrain(self, corpus: Corpus, decoding: DecodingConfig) -> Constrain | None:
        """Restrict beam search to well-formed trees if `constrained` is set."""
        if not decoding.constrained:
            return None
        from ablate.decoding.tree_constraint import TreeVocabulary

        copies_words = corpus.manifest.data["leaves"] == "words"
        return TreeVocabulary(corpus.tokenizer, copies_words).constraint

    def as_read(self, text: str) -> str:
        """Escape brackets among the words of a new sentence, as treebanks do."""
        from ablate.data.trees import escape_brackets

        return " ".join(map(escape_brackets, text.split()))

    def readable(self, prediction: str, text: str) -> str | None:
        """Convert a prediction to a tree with brackets and the words of the sentence; None if the
        tree is not well-formed.
        """
        from ablate.data.trees import predicted_leaves, restored

        leaves = predicted_leaves(prediction, text)
        tree = restored(prediction, leaves) if leaves is not None else None
        return None if tree is None else str(tree)

    def statistics(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Statistics:
        """EVALB's counts of brackets for each predicted tree; see `Task.statistics`."""
        from ablate.metrics.bracketing import tree_statistics

        references = (corpus.text("test", SENTENCE), corpus.text("test", TREE))
        return tree_statistics(metric, predictions, *references, str(corpus.manifest.data["test"]))

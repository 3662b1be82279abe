"""Translation: sentence pairs, beam search, BLEU (sections 5 and 6.1)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

from ablate.config import RowConfig
from ablate.config.data import BLEU_TOKENIZER, CorpusConfig
from ablate.config.languages import extra_of, has_no_words, is_installed, usable_tokenizer
from ablate.config.translation_data import TranslationData, languages_of
from ablate.errors import Fault
from ablate.paper import TABLE_3
from ablate.stats.metrics import PPL, PPL_CHAR, TRANSLATION_METRICS
from ablate.store.records import Measurement, Score
from ablate.tasks.sequence_to_sequence import SequenceToSequence

if TYPE_CHECKING:
    import torch

    from ablate.data.corpus import Corpus
    from ablate.metrics.sacrebleu import Target
    from ablate.model import Transformer

TER = "ter"


class Translation(SequenceToSequence):
    """Translate sentences; score them with sacreBLEU on detokenized text."""

    name = "translation"
    data_config = TranslationData
    model_metrics = (PPL, PPL_CHAR)
    units: ClassVar[Mapping[str, str]] = {PPL.name: "subword token", PPL_CHAR.name: "character"}
    prediction_metrics = TRANSLATION_METRICS
    default_metrics = ("bleu",)
    paper = TABLE_3
    exported_as = "sequence-to-sequence"

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[Fault | str]:
        """Yield a fault for each reason why a row cannot be trained on this data."""
        assert isinstance(data, TranslationData)
        yield from super().check(data, config)
        if data.separate_vocabularies and not config.has_encoder:
            yield Fault(
                "data.vocabulary=separate does not work with architecture=decoder-only, which "
                "reads source and target as one sequence",
                ("data.vocabulary", "architecture"),
            )
        elif data.separate_vocabularies and config.tied_embeddings == "all":
            yield Fault(
                "data.vocabulary=separate does not work with tied_embeddings=all, which shares "
                "one matrix between source and target",
                ("data.vocabulary", "tied_embeddings"),
                remedy="set tied_embeddings to decoder or none",
            )

    def evaluate(
        self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device
    ) -> dict[str, Score]:
        """Measure the perplexity per subword token, and per character. Only the latter compares
        models with different vocabularies.
        """
        from ablate.metrics.perplexity import per_character

        scores = super().evaluate(model, corpus, config, device)
        tokens = int(corpus.split("dev")["target"].lengths.sum())
        texts = corpus.text("dev", "target")
        characters = sum(map(len, texts)) + len(texts)  # the end mark counts as a character
        value = per_character(scores[PPL.name].value, tokens, characters)
        return {**scores, PPL_CHAR.name: Score(value=value)}

    def check_metrics(
        self, metrics: Sequence[str], data: CorpusConfig, config: RowConfig
    ) -> Iterator[Fault | str]:
        """Yield a fault for each metric that cannot divide the target language into words."""
        assert isinstance(data, TranslationData)
        language = data.target_language
        tokenizer = data.bleu_tokenizer
        if TER in metrics and has_no_words(language):
            problem = f"metric {TER} counts words between spaces, which {language} does not write"
            yield Fault(problem, remedy="use chrf")
        if tokenizer and not is_installed(tokenizer):
            problem = f"data.bleu_tokenizer={tokenizer} is not installed"
            remedy = f"pip install '{extra_of(tokenizer)}'"
            yield Fault(problem, ("data.bleu_tokenizer",), remedy=remedy)

    def notes_on_scores(self, corpus: Corpus, metrics: Sequence[str]) -> Iterator[str]:
        """Yield a warning for each reason why a metric does not suit the references."""
        from ablate.metrics.references import notes

        return notes(corpus.text("test", self.target), _target(corpus), metrics)

    def measure(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Measurement:
        """Score translations with sacreBLEU, also on resampled test sets."""
        from ablate.metrics.sacrebleu import measure_translations

        references = corpus.text("test", self.target)
        return measure_translations(metric, predictions, references, _target(corpus))

    def measure_items(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> list[float]:
        """Score each translation separately with sacreBLEU."""
        from ablate.metrics.sacrebleu import sentence_scores

        references = corpus.text("test", self.target)
        return sentence_scores(metric, predictions, references, _target(corpus))


def _target(corpus: Corpus) -> Target:
    """The target language of a corpus, with the tokenizer that BLEU uses for it."""
    from ablate.metrics.sacrebleu import Target

    data = corpus.manifest.data
    _, language = languages_of(str(data.get("direction"))) or ("", "")
    return Target(language, str(data.get(BLEU_TOKENIZER) or usable_tokenizer(language)))

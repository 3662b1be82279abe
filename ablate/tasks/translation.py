"""Translation: sentence pairs, beam search, BLEU (sections 5 and 6.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ablate.config import RowConfig, TranslationData, resolve_data
from ablate.config.data import CorpusConfig
from ablate.config.metrics import PPL, PPL_CHAR, TRANSLATION_METRICS, Metric
from ablate.paper import TABLE_3
from ablate.store.records import Measurement, Score
from ablate.tasks.base import OutputTerms, Sample, Task

if TYPE_CHECKING:
    import torch

    from ablate.data.corpus import Corpus, Split
    from ablate.data.seq2seq import Batch
    from ablate.model import Transformer
    from ablate.tasks.base import Indices


class Translation(Task):
    """Translate sentences; score them with sacreBLEU on detokenized text."""

    name = "translation"
    data_config = TranslationData
    architectures = ("encoder-decoder", "decoder-only")
    model_metrics = (PPL, PPL_CHAR)
    prediction_metrics = TRANSLATION_METRICS
    default_metrics = ("bleu",)
    paper = TABLE_3

    def resolve_data(self, settings: Mapping[str, Any]) -> TranslationData:
        """Resolve the study's `data` section; a named corpus brings its splits and direction."""
        return resolve_data(settings)

    def check(self, data: CorpusConfig, config: RowConfig) -> Iterator[str]:
        """Yield a message for each reason why a row cannot be trained on this data."""
        assert isinstance(data, TranslationData)
        positions = config.places(data.max_length, data.max_length)
        if positions > config.max_positions:
            yield (
                f"data.max_length={data.max_length} needs {positions} positions with begin and end tokens, more than "
                f"max_positions={config.max_positions}"
            )
        yield from super().check(data, config)
        if data.separate_vocabularies and not config.has_encoder:
            yield (
                "data.vocabulary=separate does not work with architecture=decoder-only, which reads source and target "
                "as one sequence"
            )
        elif data.separate_vocabularies and config.tied_embeddings == "all":
            yield (
                "data.vocabulary=separate does not work with tied_embeddings=all, which shares one matrix between "
                "source and target; set tied_embeddings to decoder or none"
            )

    def describe(self, metric: Metric, data: CorpusConfig, vocab_sizes: Sequence[int]) -> str | None:
        """Perplexity follows from the study; sacreBLEU's metrics have signatures."""
        if metric.name == PPL_CHAR.name:
            sizes = ", ".join(str(V) for V in vocab_sizes)
            return f"per character, dev={data.dev}, V={sizes}, plain negative log-likelihood"
        return super().describe(metric, data, vocab_sizes)

    def n_targets(self, split: Split, items: Indices) -> int:
        """Target tokens, end marks included."""
        return int(split["target"].lengths[items].sum())

    def collate(self, split: Split, items: Indices) -> Batch:
        """Pad source and target."""
        from ablate.data.seq2seq import collate

        return collate(split, items, "source", "target")

    def output_terms(self, model: Transformer, batch: Batch) -> OutputTerms:
        """Run encoder and decoder; keep the states of target tokens."""
        states = batch.at_targets(model(batch.source, batch.target_in))
        return OutputTerms(states, model.output_matrix, batch.targets)

    def evaluate(self, model: Transformer, corpus: Corpus, config: RowConfig, device: torch.device) -> dict[str, Score]:
        """Perplexity per subword token, and per character for comparing vocabularies."""
        from ablate.metrics.perplexity import per_character

        scores = super().evaluate(model, corpus, config, device)
        tokens = int(corpus.split("dev")["target"].lengths.sum())
        characters = sum(len(text) + 1 for text in corpus.text("dev", "target"))  # the end of a sentence counts as one
        return {**scores, PPL_CHAR.name: Score(value=per_character(scores[PPL.name].value, tokens, characters))}

    def predict(
        self,
        model: Transformer,
        corpus: Corpus,
        config: RowConfig,
        device: torch.device,
        after_batch: Callable[[], None] = lambda: None,
    ) -> list[str]:
        """Translate the source side of the test split."""
        from ablate.decoding import translate

        test = corpus.split("test")["source"]
        sources = [test[i].tolist() for i in range(len(test))]
        return translate(model, corpus.tokenizer, sources, config, device, after_batch)

    def measure(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> Measurement:
        """Score translations with sacreBLEU, also on resampled test sets."""
        from ablate.metrics.sacrebleu import measure

        return measure(metric, predictions, corpus.text("test", "target"))

    def measure_items(self, metric: str, predictions: Sequence[str], corpus: Corpus) -> list[float]:
        """Score each translation alone with sacreBLEU."""
        from ablate.metrics.sacrebleu import sentence_scores

        return sentence_scores(metric, predictions, corpus.text("test", "target"))

    def samples(self, corpus: Corpus, items: Sequence[int]) -> Iterator[Sample]:
        """Source sentences and their references."""
        sources, references = corpus.text("test", "source"), corpus.text("test", "target")
        for i in items:
            yield Sample(i + 1, (("source", sources[i]), ("reference", references[i])))

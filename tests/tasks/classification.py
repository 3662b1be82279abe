"""Classify sentences, scored by accuracy: a task in one file."""

import numpy as np

from ablate.tasks import PPL, DataConfig, Metric, OutputTerms, Sample, Task


class LabelledText(DataConfig):
    """Sentences with a label: two columns of a table."""

    fields = ("text", "label")


class Classification(Task):
    """Read a sentence with the encoder, write its label with the decoder."""

    name = "classification"
    data_config = LabelledText
    architectures = ("encoder-decoder",)
    model_metrics = (PPL,)
    prediction_metrics = (Metric("accuracy", "accuracy", more_is_better=True, digits=1, side="test"),)
    default_metrics = ("accuracy",)

    def n_targets(self, split, items):
        return int(split["label"].lengths[items].sum())

    def collate(self, split, items):
        from ablate.tasks.helpers import collate

        return collate(split, items, source="text", target="label")

    def output_terms(self, model, batch):
        states = batch.at_targets(model(batch.source, batch.target_in))
        return OutputTerms(states, model.output_matrix, batch.targets)

    def predict(self, model, corpus, config, device, after_batch=lambda: None):
        from ablate.tasks.helpers import translate

        texts = corpus.split("test")["text"]
        sentences = [texts[i].tolist() for i in range(len(texts))]
        return translate(model, corpus.tokenizer, sentences, config, device, after_batch)

    def measure(self, metric, predictions, corpus):
        from ablate.tasks.helpers import measure

        statistics = np.array([(score, 1.0) for score in self.measure_items(metric, predictions, corpus)])
        return measure(statistics, lambda sums: 100 * sums[0] / sums[1], "exact match")

    def measure_items(self, metric, predictions, corpus):
        labels = corpus.text("test", "label")
        return [float(a == b) for a, b in zip(predictions, labels, strict=True)]

    def samples(self, corpus, items):
        texts, labels = corpus.text("test", "text"), corpus.text("test", "label")
        yield from (Sample(i + 1, (("text", texts[i]), ("label", labels[i]))) for i in items)

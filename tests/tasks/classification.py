"""Classify sentences, scored by accuracy: a task in one file."""

import numpy as np

from ablate.tasks import PPL, DataConfig, Metric, SequenceToSequence


class LabeledText(DataConfig):
    """Sentences with a label: two columns of a table."""

    fields = ("text", "label")


class Classification(SequenceToSequence):
    """Read a sentence with the encoder, write its label with the decoder."""

    name = "classification"
    data_config = LabeledText
    architectures = ("encoder-decoder",)
    model_metrics = (PPL,)
    prediction_metrics = (
        Metric("accuracy", "accuracy", more_is_better=True, digits=1, side="test", chance=50.0),
    )
    default_metrics = ("accuracy",)

    def measure(self, metric, predictions, corpus):
        from ablate.tasks.helpers import measure

        statistics = np.array(
            [(score, 1.0) for score in self.measure_items(metric, predictions, corpus)]
        )
        return measure(statistics, lambda sums: 100 * sums[0] / sums[1], "exact match")

    def measure_items(self, metric, predictions, corpus):
        labels = corpus.text("test", "label")
        return [float(a == b) for a, b in zip(predictions, labels, strict=True)]

"""MLflow: the server in MLFLOW_TRACKING_URI; without it, files in results/<study>/mlflow.

The server is asked for the points that it already has, and only the others are sent.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from ablate.loggers.base import LoggedRun, Point

_BATCH = 500  # values per request; a server accepts no more than 1000
_TAG, _DECODINGS = "ablate.run", "ablate.decodings"


class MLflow:
    """Logs runs to an experiment with the study's name."""

    def __init__(self, folder: Path) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            uri = (folder / "mlflow").absolute().as_uri()
        self.client = MlflowClient(tracking_uri=uri)

    def open(self, run: LoggedRun) -> _TrackedRun | None:
        """Find the run on the server, or create it."""
        experiment = self.client.get_experiment_by_name(run.study)
        id = experiment.experiment_id if experiment else self.client.create_experiment(run.study)
        matches = self.client.search_runs([id], f"tags.`{_TAG}` = '{run.id}'")
        decodings = ",".join(run.decodings)
        if matches:
            tracked = matches[0]
            if tracked.info.status == "FINISHED" and tracked.data.tags.get(_DECODINGS) == decodings:
                return None
            self.client.set_tag(tracked.info.run_id, _DECODINGS, decodings)
            return _TrackedRun(self.client, tracked.info.run_id)
        tags = {
            _TAG: run.id,
            _DECODINGS: decodings,
            "ablate.row": run.row,
            "ablate.seed": str(run.seed),
        }
        new = self.client.create_run(id, run_name=run.name, tags=tags).info.run_id
        self.client.log_batch(
            new, params=[Param(name, str(value)) for name, value in run.settings.items()]
        )
        return _TrackedRun(self.client, new)


class _TrackedRun:
    def __init__(self, client: MlflowClient, id: str) -> None:
        self.client, self.id = client, id
        # A launch that was killed may have sent points that this process knows nothing of.
        self.on_server = {
            (name, metric.step)
            for name in client.get_run(id).data.metrics
            for metric in client.get_metric_history(id, name)
        }
        self.known = 0  # `add` receives every point and skips those on the server
        self.last = 0

    def add(self, points: Sequence[Point]) -> None:
        now = int(1000 * time.time())
        values = [
            Metric(key, value, now, point.step)
            for point in points
            for name, value in point.values.items()
            if ((key := _metric_key(name)), point.step) not in self.on_server
        ]
        self.last = points[-1].step if points else self.last
        for start in range(0, len(values), _BATCH):
            self.client.log_batch(self.id, metrics=values[start : start + _BATCH])
        self.on_server |= {(value.key, value.step) for value in values}

    def close(self, scores: Mapping[str, float] | None) -> None:
        if scores is not None:
            # The study may have another decoding now.
            self.on_server -= {(_metric_key(name), self.last) for name in scores}
            self.add([Point(self.last, scores)])
            self.client.set_terminated(self.id, "FINISHED")


def _metric_key(name: str) -> str:
    """The name of a metric in characters that MLflow allows: `final_chrf__` for chrF++, `beam_1`
    for `beam=1`.
    """
    return re.sub(r"[^A-Za-z0-9_. -]", "_", name)

"""MLflow: the server of MLFLOW_TRACKING_URI, or files in results/<study>/mlflow where that is not set.

A server keeps what it has, so it is asked for the points that it knows, and only others are sent.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from ablate.loggers.interface import LoggedRun, Point

_BATCH = 500  # values that a server takes at once
_TAG, _DECODINGS = "ablate.run", "ablate.decodings"


class MLflow:
    """Writes runs of an experiment that has the study's name."""

    def __init__(self, folder: Path) -> None:
        uri = os.environ.get("MLFLOW_TRACKING_URI")
        if not uri:
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
            uri = (folder / "mlflow").absolute().as_uri()
        self.client = MlflowClient(tracking_uri=uri)

    def open(self, run: LoggedRun) -> _Tracked | None:
        """The run on the server, made where it is not there yet."""
        experiment = self.client.get_experiment_by_name(run.study)
        id = experiment.experiment_id if experiment else self.client.create_experiment(run.study)
        found = self.client.search_runs([id], f"tags.`{_TAG}` = '{run.id}'")
        decodings = ",".join(run.decodings)
        if found:
            there = found[0]
            if there.info.status == "FINISHED" and there.data.tags.get(_DECODINGS) == decodings:
                return None
            self.client.set_tag(there.info.run_id, _DECODINGS, decodings)
            return _Tracked(self.client, there.info.run_id)
        tags = {_TAG: run.id, _DECODINGS: decodings, "ablate.row": run.row, "ablate.seed": str(run.seed)}
        made = self.client.create_run(id, run_name=run.name, tags=tags).info.run_id
        self.client.log_batch(made, params=[Param(name, str(value)) for name, value in run.settings.items()])
        return _Tracked(self.client, made)


class _Tracked:
    def __init__(self, client: MlflowClient, id: str) -> None:
        self.client, self.id = client, id
        self.there = {
            (name, metric.step)
            for name in client.get_run(id).data.metrics
            for metric in client.get_metric_history(id, name)
        }
        self.known = 0  # points are sent again from the beginning, and those that are there are left out
        self.last = 0

    def add(self, points: Sequence[Point]) -> None:
        now = int(1000 * time.time())
        values = [
            Metric(name, value, now, point.step)
            for point in points
            for name, value in point.values.items()
            if (name, point.step) not in self.there
        ]
        self.last = points[-1].step if points else self.last
        for start in range(0, len(values), _BATCH):
            self.client.log_batch(self.id, metrics=values[start : start + _BATCH])
        self.there |= {(value.key, value.step) for value in values}

    def close(self, scores: Mapping[str, float] | None) -> None:
        if scores is not None:
            self.there -= {(name, self.last) for name in scores}  # they may be of another decoding
            self.add([Point(self.last, scores)])
            self.client.set_terminated(self.id, "FINISHED")

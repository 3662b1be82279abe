"""MLflow: the server of MLFLOW_TRACKING_URI, or files in results/<study>/mlflow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from mlflow.entities import Metric, Param
from mlflow.tracking import MlflowClient

from ablate.loggers.dashboards import OUTCOME, LoggedRun, Outcome, Point

_BATCH = 500  # values per request; servers accept up to 1000
_TAG = "ablate.run"
_DECODINGS = "ablate.decodings"

_client = cache(MlflowClient)


def start(folder: Path, run: LoggedRun) -> _TrackedRun | None:
    """Find the run on the server, in the experiment with the study's name, or create it."""
    uri = os.environ.get("MLFLOW_TRACKING_URI")
    if not uri:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        uri = (folder / "mlflow").absolute().as_uri()
    client = _client(uri)
    experiment = client.get_experiment_by_name(run.study)
    id = experiment.experiment_id if experiment else client.create_experiment(run.study)
    decodings = ",".join(run.decodings)
    tags = {_TAG: run.id, "ablate.row": run.row, "ablate.seed": str(run.seed)}
    for tracked in client.search_runs([id], f"tags.`{_TAG}` = '{run.id}'"):
        if OUTCOME in tracked.data.tags and tracked.data.tags.get(_DECODINGS) == decodings:
            return None
        break
    else:
        tracked = client.create_run(id, run_name=run.name, tags=tags)
        settings = [Param(name, str(value)) for name, value in run.settings.items()]
        client.log_batch(tracked.info.run_id, params=settings)
    client.set_tag(tracked.info.run_id, _DECODINGS, decodings)
    return _TrackedRun(client, tracked.info.run_id)


class _TrackedRun:
    """A run on the server. Points that the server has already are not sent."""

    def __init__(self, client: MlflowClient, id: str) -> None:
        self.client = client
        self.id = id
        self.last_step = 0
        self.on_server: set[tuple[str, int]] = set()
        for name in client.get_run(id).data.metrics:
            for metric in client.get_metric_history(id, name):
                self.on_server.add((name, metric.step))

    def log(self, points: Sequence[Point]) -> None:
        now = int(1000 * time.time())
        metrics: list[Metric] = []
        for step, values in points:
            for name, value in values.items():
                # Only characters that MLflow allows: chrF++ becomes `final_chrf__`.
                key = re.sub(r"[^A-Za-z0-9_. -]", "_", name)
                # Final scores are always sent, because the study may ask for another decoding now.
                if (key, step) not in self.on_server or name.startswith("final_"):
                    metrics.append(Metric(key, value, now, step))
            self.last_step = step
        for start in range(0, len(metrics), _BATCH):
            self.client.log_batch(self.id, metrics=metrics[start : start + _BATCH])

    def finish(self, scores: Mapping[str, float] | None, outcome: Outcome) -> None:
        if scores is not None:
            self.log([(self.last_step, scores)])
            # As FINISHED, a diverged run would be left out of means unseen: its scores are NaN.
            self.client.set_terminated(self.id, "FAILED" if outcome == "diverged" else "FINISHED")
            self.client.set_tag(self.id, OUTCOME, outcome)  # the last step: the record is complete

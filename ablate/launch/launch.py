"""Launch a study: prepare its corpus, lay out its runs, carry out what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ablate.config import DataConfig, DecodingConfig
from ablate.config.identity import NOT_IDENTITY
from ablate.config.plugins import references
from ablate.data.corpus import Corpus
from ablate.data.prepare import prepare
from ablate.errors import Damaged, StoreError
from ablate.launch.devices import Device, Place, micro_batch, places
from ablate.launch.local import Pool, Watcher
from ablate.launch.space import check_space
from ablate.run.job import Unit
from ablate.store import Results, RunFolder, State, state_of
from ablate.store.cleaning import size_of
from ablate.store.files import read_json, write_bytes, write_json
from ablate.store.status import damage_of, was_killed
from ablate.study import Run, Study


@dataclass(frozen=True)
class Launch:
    """What a launch came to: how many runs the study has, and how many of them are in each state."""

    runs: int
    states: Counter[State]

    @property
    def complete(self) -> bool:
        """All that was asked for is done."""
        return self.states["done"] == self.runs


def launch(
    study: Study,
    results: Results,
    watcher: Watcher,
    *,
    device: Device = "auto",
    jobs: int | None = None,
    retry_failed: bool = False,
    announce: Callable[[Corpus, list[Place], int], None] = lambda corpus, places, missing: None,
    say: Callable[[str], None] = lambda line: None,
) -> Launch:
    """Carry out a study's missing runs, base and the first seed first.

    Runs that failed by themselves are left alone unless `retry_failed`; those that diverged are results. `tell` takes
    a line for each thing that is done to a corpus that is not prepared yet.

    Raises:
        DataError: the corpus is missing or malformed.
        StudyError: a variant of the user's own does not fit.
        StoreError: results on disk belong to other data or another version, or the disk has too little room.
        Interrupted: a signal came; everything is saved.
    """
    runs = {run.id: run for run in study.runs()}
    if device == "cuda":  # where there is none that is told before a corpus is prepared
        places(device, jobs, [study.base.config], study.data.vocab_size, study.total_runs)
    corpora = {  # one for each size of vocabulary
        data: prepare(data, study.data_folder, results.corpora, lambda line: say(f"corpus: {line}"))
        for data in dict.fromkeys(run.data for run in runs.values())
    }
    for run in runs.values():
        _lay_out(run, results, corpora[run.data], study)
    _try_out(study, runs.values(), results)
    missing = [id for id in runs if _is_missing(study, results, id, retry_failed)]
    for id in missing:
        damage = damage_of(results.run(id))
        if damage is not None:
            say(damage.replace("; `ablate run` makes it again", "; it is made again"))
        results.run(id).failure.unlink(missing_ok=True)  # what is tried again has not failed yet
    if missing:
        largest = max(data.vocab_size for data in corpora)
        workplaces = places(device, jobs, [run.config for run in runs.values()], largest, study.total_runs)
        there = sum(size_of(results.run(id).checkpoints.glob("*.safetensors")) for id in missing)
        to_train = [runs[id].config for id in missing if not results.run(id).result.exists()]
        check_space(results.root, to_train, largest, len(workplaces), there)
        announce(corpora[study.data_of(study.base)], workplaces, len(missing))
        make = partial(_unit, study, results, corpora, runs)
        Pool(workplaces, make, results.run, partial(_outcome, study, results), watcher).carry_out(missing)
    return Launch(len(runs), Counter(run_state(study, results, id) for id in runs))


def run_state(study: Study, results: Results, id: str) -> State:
    """The state of a run over all the ways in which this study decodes it: done only if all are."""
    states = {state_of(results.run(id), decoding) for decoding in study.decodings[id]}
    return next(iter(states - {"done"}), "done")


def _is_missing(study: Study, results: Results, id: str, retry_failed: bool) -> bool:
    state = run_state(study, results, id)
    if state == "failed":
        return retry_failed or was_killed(results.run(id))
    return state not in ("done", "diverged")


def _outcome(study: Study, results: Results, id: str) -> str | None:
    return None if _is_missing(study, results, id, retry_failed=False) else run_state(study, results, id)


def _try_out(study: Study, runs: Iterable[Run], results: Results) -> None:
    """Try the user's own variants before anything is trained; torch is loaded only where there are some.

    Raises:
        StudyError: one does not fit.
    """
    tried: set[tuple[object, ...]] = set()
    for run in runs if study.plugin_sources else ():
        c, own = run.config, references(run.config)
        together = (own, c.architecture, c.attention, c.positional_encoding)  # some do not go with one's own
        if own and together not in tried:
            from ablate.model.plugin_check import try_out

            try_out(run.config, results.run(run.id).sources)
            tried.add(together)


def _lay_out(run: Run, results: Results, corpus: Corpus, study: Study) -> None:
    """Write what the run is, and refuse to go on with results of other data.

    Raises:
        StoreError: the run was begun on other text, or has translated other text under the same name.
    """
    folder = results.run(run.id)
    for own in references(run.config):
        file = folder.sources / own.file
        if not file.exists():
            write_bytes(file, study.plugin_sources[str(own.digest)])
    if not _is_whole(folder.run):
        content = {
            "id": run.id,
            "seed": run.seed,
            "config": run.config.model_dump(exclude=set(NOT_IDENTITY)),
            "data": run.data.model_dump(exclude={"folder"}),
        }
        write_json(folder.run, content)
    execution = read_json(folder.execution) if _is_whole(folder.execution) else None
    if execution is not None and execution["training"] != corpus.training:
        raise StoreError(
            f"{folder.path}: was trained on text {execution['training']}, but the study's files now make text "
            f"{corpus.training}: restore the files, or use another --results"
        )
    translated = _decodings(folder)
    for decoding in study.decodings[run.id]:
        found = translated.get(decoding, {}).get("corpus", corpus.id)
        if found != corpus.id:
            raise StoreError(
                f"{folder.path}: has translated {run.data.test} of corpus {found}, but the study's files now make "
                f"corpus {corpus.id}: restore the files, give the test side another name, or use another --results"
            )


def _decodings(folder: RunFolder) -> dict[str, Any]:
    """What a run has translated so far; of a damaged result nothing counts."""
    try:
        found: dict[str, Any] = (folder.read_result() or {}).get("decodings", {})
    except Damaged:
        return {}
    return found


def _is_whole(path: Path) -> bool:
    """Whether a JSON file is there and is what was written."""
    try:
        return read_json(path) is not None
    except Damaged:
        return False


def _unit(
    study: Study, results: Results, corpora: dict[DataConfig, Corpus], runs: dict[str, Run], id: str, place: Place
) -> Unit:
    run = runs[id]
    fields = set(DecodingConfig.model_fields)
    return Unit(
        folder=str(results.run(id).path),
        corpus=str(corpora[run.data].folder),
        test=run.data.test,
        decodings={name: config.model_dump(include=fields) for name, config in study.decodings[id].items()},
        device=place.device,
        threads=place.threads,
        settings=run.config.model_dump(include=set(NOT_IDENTITY)),
        fitting_tokens=micro_batch(run.config, run.data.vocab_size, place),
    )

"""Compare the text of a study with the text of its results.

`data.folder` is not part of the id of a run, and a file may change under its name. The runs of a
study may therefore have results of other text, which must not be shown as results of this study.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from ablate.config.language_data import MINIMAL_PAIRS
from ablate.errors import NO_SUCH_FILE, DataError, Fault, StoreError
from ablate.formatting import first_few
from ablate.store import Results, none_if_unreadable
from ablate.store.layout import RESTORE_TEXT, shared_runs
from ablate.study import Runs

TRAINED_ON = ("train", "dev")
ALL_SPLITS = (*TRAINED_ON, "test", MINIMAL_PAIRS)


def refuse_other_text(planned: Runs, results: Results) -> list[str]:
    """Refuse results that were made with other text than the text of the study.

    Returns:
        A remark if there are results whose text cannot be compared with the text of the study, for
        example because the latter is not on this machine; otherwise empty.

    Raises:
        StoreError: the text differs.
    """
    study = planned.study
    if study.task.makes_text:
        return []
    used: dict[Path, Collection[str]] = {}  # as for `changed_files`
    for run in planned:
        if run.awaits_choice:
            continue
        # The command itself reports a damaged result.
        result = none_if_unreadable(results.run(run.id).read_result)
        if result is None:
            continue
        used.setdefault(results.corpus(result.corpus), TRAINED_ON)
        for id in run.decodings:
            if id in result.decodings:
                used[results.corpus(result.decodings[id].corpus)] = ALL_SPLITS
    if not used:
        return []
    from ablate.data.text_preview import changed_files  # loads readers of every format

    data = planned.data_of(planned.base)
    try:
        changed = changed_files(data, study.data_folder, results.corpora, used)
    except DataError as error:
        reason = error.faults[0].problem
        if all(fault.code == NO_SUCH_FILE for fault in error.faults):
            reason = "it is not on this machine"
        return [f"The text of the study was not compared with the text of its results: {reason}."]
    if not changed:
        return []
    verb = "differs" if len(changed) == 1 else "differ"
    fault = Fault(
        f"{first_few(changed)} {verb} from the text on which these runs were trained or scored; "
        f"{shared_runs(results.root)}",
        fields=("data.folder",),
        remedy=RESTORE_TEXT,
    )
    raise StoreError(study.data_fault(fault))

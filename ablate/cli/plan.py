"""`ablate plan`: show the changes and the cost of each row, without training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from ablate.analysis.stages import Stage, next_stage
from ablate.analysis.tuned_on_dev import tuned_on_dev_remarks
from ablate.cli.arguments import option
from ablate.cli.cluster_options import ClusterOptions, PerRun, describe_per_run, submission_text
from ablate.cli.options import (
    DEFAULT_STUDY,
    BudgetText,
    Device,
    StudyFile,
    StudyOptions,
    print_changes,
    print_notes,
)
from ablate.cli.output import Format
from ablate.cli.scoring import check_changes
from ablate.data.resolve_sources import source_faults
from ablate.data.text_preview import first_record, is_prepared_quickly, prepared_corpus
from ablate.errors import (
    AblateError,
    DataError,
    Fault,
    MachineError,
    UsageError,
    not_allowed,
    wrong_option,
)
from ablate.launch.devices import gpus_for_run
from ablate.plan.budget import Budget, Fit, fit
from ablate.plan.plan import Plan, plan_of
from ablate.plan.power import power_json, power_of, power_warning
from ablate.plan.resources import shortages
from ablate.report.plan_text import print_plan
from ablate.report.terminal import text_console
from ablate.stdio import echo, print_json
from ablate.store import Results
from ablate.store.corpora import warnings_in
from ablate.store.machine import Resources, visible_gpus
from ablate.study import Study, runs_of
from ablate.table.power import Power

EXAMPLE = "ablate plan study.yaml --budget 8h"


def command(
    study: StudyFile = DEFAULT_STUDY,
    *,
    options: StudyOptions,
    budget: BudgetText = None,
    device: Device = "auto",
    difference: Annotated[
        float | None, option("Number of seeds that find a difference of this size.", "SIZE")
    ] = None,
    spread: Annotated[
        float | None,
        option("Standard deviation over seeds, if no runs exist to estimate it from.", "SD"),
    ] = None,
    format: Format = "text",
    per_run: PerRun,
    cluster: ClusterOptions,
) -> None:
    """Show every row with its parameters, FLOPs, memory, disk and time, and the differences that
    the study can find.
    """
    if device != "auto" and cluster.on is not None:
        raise UsageError(
            "--device estimates the time on one device, and --on on a cluster; give one of them"
        )
    for name, value in (("--difference", difference), ("--spread", spread)):
        if value is not None and not 0 < value < math.inf:
            raise wrong_option(name, not_allowed(f"{value:g}", "a positive number, such as 0.5"))
    limit = None if budget is None else Budget.parse(budget)
    profile = cluster.profile()
    on_cpu = device == "cpu"
    gpus = 0 if on_cpu else visible_gpus()
    wanted: Literal["cpu", "auto"] = "cpu" if on_cpu or per_run.processes_per_run else "auto"
    requested = per_run.resources(wanted, gpus if profile is None else None)
    content, root = options.read(study, may_be_new=True)
    together, per_run_processes = None, requested.processes or 1
    if profile is None and per_run != PerRun():
        together = describe_per_run(requested, gpus, content.whole.runs)
        per_run_processes = gpus_for_run(requested.processes, gpus, content.whole.runs)
    print_notes(content)
    missing = source_faults(content.data, content.data_folder, root.corpora)
    if not missing:
        _check_text(content, root)
    for line in tuned_on_dev_remarks(runs_of(content)):
        echo(f"note: {line}", err=True)
    stage = next_stage(content, root)
    print_changes(stage.planned, root)
    check_changes(stage.planned, root)
    plan = plan_of(stage.possible, root, device, per_run_processes)
    power = power_of(stage.planned, root, spread)
    if difference is not None and not power:
        raise wrong_option("--difference", "the study has no row beside base")
    if difference is not None and power[0].source == "unknown":
        problem = (
            "no row has finished with two seeds, and no published study of a similar size has this "
            "metric, so the spread is unknown"
        )
        raise wrong_option("--difference", Fault(problem, remedy="give --spread SD"))
    if difference is not None and power[0].unlearned:
        raise wrong_option("--difference", Fault(power[0].unlearned, remedy="give --spread SD"))
    if difference is not None and not power[0].sd:
        problem = f"the runs show no spread of {power[0].metric.title} over seeds"
        raise wrong_option("--difference", Fault(problem, remedy="give --spread SD"))
    submission = None
    if profile is not None and cluster.on is not None:
        if plan.missing:
            profile.check(stage.all_runs, requested)
        submission = submission_text(cluster.on, profile, plan, stage, root, requested)
    fitting = None if limit is None else fit(plan, limit.available(gpus))
    # Missing text or memory does not prevent a plan; the exit code is that of `ablate run`.
    errors: list[AblateError] = []
    if missing:
        errors.append(DataError(*map(content.data_fault, missing)))
    pilots = None if profile is None else profile.workers
    resources = Resources(device=device, processes=per_run_processes)
    if of_machine := shortages(stage, root, resources, pilots):
        errors.append(MachineError(*of_machine))
    shown = _Output(plan, stage, power, difference, limit, fitting, together, submission)
    if format == "json":
        document = shown.as_json()
        if errors:
            faults = [fault.as_json(error.code) for error in errors for fault in error.faults]
            document |= errors[0].as_json() | {"faults": faults}
        print_json(document)
    else:
        shown.print()
        for line in first_record(content.data, content.data_folder, root.corpora):
            echo(line)
    for error in errors:
        echo(error, err=True)
    if errors:
        raise typer.Exit(errors[0].exit_code)


def _check_text(study: Study, root: Results) -> None:
    """Print the warnings about the text, and refuse a text that is read quickly, and has faults or
    too few pieces for its vocabularies: the costs of the rows would be of models that cannot be
    trained.
    """
    if study.task.makes_text:
        return
    faults: list[Fault] = []
    warnings: list[str] = []
    for data in dict.fromkeys(map(runs_of(study).data_of, study.rows)):
        where = study.data_folder, root.corpora
        corpus = prepared_corpus(data, *where)
        if corpus is not None:
            warnings += warnings_in(corpus, data.labels)
        elif is_prepared_quickly(data, *where):
            from ablate.data.prepare import text_faults  # slow to import

            faults += text_faults(data, *where, warnings.append)
    # Vocabularies of one text share the faults and the warnings of the text.
    for line in dict.fromkeys(warnings):
        echo(f"note: {line}", err=True)
    if faults:
        raise DataError(*map(study.data_fault, dict.fromkeys(faults)))


@dataclass(frozen=True)
class _Output:
    """Everything that the command shows; None for parts that were not asked for.

    stage: where the study is.
    difference: that of `--difference`.
    limit, fitting: the budget, and the part of the study that fits; None also if the time is not
        known.
    devices: a line on the devices of each run.
    submission: a line on the submission to a cluster.
    """

    plan: Plan
    stage: Stage
    power: list[Power]
    difference: float | None
    limit: Budget | None
    fitting: Fit | None
    devices: str | None
    submission: str | None

    def as_json(self) -> dict[str, Any]:
        """The output for scripts."""
        output = self.plan.as_json()
        output |= self.stage.details
        output["power"] = {power.metric.name: power_json(power) for power in self.power}
        if self.difference is not None:
            seeds = self.power[0].seeds_needed(self.difference)
            output["seeds_needed"] = {"difference": self.difference, "seeds": seeds}
        if self.limit is not None:
            fits = self.fitting and self.fitting.as_json()
            output["budget"] = {"seconds": self.limit.seconds, "fits": fits}
        if self.devices is not None:
            output["devices"] = self.devices
        if self.submission is not None:
            output["submission"] = self.submission
        return output

    def print(self) -> None:
        """Print the output for people."""
        print_plan(self.plan)
        console = text_console()
        if self.fitting is not None and self.limit is not None:
            console.print(self.fitting.summary(self.limit))
        elif self.limit is not None:
            console.print(
                f"--budget {self.limit.text}: the runs that fit are unknown until one has "
                "finished on this machine; `ablate run` trains base first and measures its time."
            )
        if self.stage.sentence:
            sentence = self.stage.sentence
            if len(self.stage.possible.seeds.rows) > len(self.stage.selected.seeds.rows):
                sentence = f"The plan includes every seed that may follow. {sentence}"
            console.print(sentence)
        for power in self.power:
            console.print(power.text)
        line = power_warning(self.power[0]) if self.power else None
        if line is not None:
            console.print(line, style="bold yellow")
        if self.difference is not None:
            console.print(self.power[0].seeds_text(self.difference))
        for line in (self.devices, self.submission):
            if line is not None:
                console.print(line)

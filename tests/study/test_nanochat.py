"""The ideas of nanochat's log, said in one study file: 33 of 39, each a row that differs from base in
what it names, and whose model has the parameters that the plan counts.
"""

from pathlib import Path

import pytest
import torch

from ablate.config.cost import parameters
from ablate.model import ARCHITECTURES
from ablate.model.builder import ModelBuilder
from ablate.study import read_study, runs_of

STUDY = Path(__file__).parent / "nanochat/nanochat.yaml"


@pytest.fixture(scope="module")
def study():
    return read_study(STUDY)


def test_33_ideas_are_rows_and_no_two_rows_are_one_run(study):
    ideas = {row.label.split()[0] for row in study.rows if row.label[0].isdigit()}
    assert len(ideas) == 33
    words = (Path(__file__).parents[2] / "docs/parts.md").read_text().split()
    assert "33 of the 39 training ideas of nanochat's log are rows" in " ".join(words)
    ids = [run.id for row in study.rows for run in runs_of(study).of(row)]
    assert len(set(ids)) == len(ids)


def test_every_row_can_be_built_and_has_the_parameters_of_the_plan(study):
    for row in study.rows:
        config = row.config
        with torch.device("meta"):
            generator = torch.Generator("cpu")
            builder = ModelBuilder(config, 4096, generator, generator)
            model = ARCHITECTURES[config.architecture](builder)
        assert sum(p.numel() for p in model.parameters()) == parameters(config, 4096), row.label

"""The study of `ablate init --between`."""

import pytest

from ablate.cli.between import study_between
from ablate.config.presets import PRESETS
from ablate.study import read_study

WITHOUT_SIZES = [
    name
    for name, fields in PRESETS.items()
    if "n_layers" not in fields and fields["architecture"] == "decoder-only"
]


def read(start, end, folder):
    path = folder / "study.yaml"
    path.write_text(study_between(start, end).replace("<name>", "path"))
    return read_study(path)


@pytest.mark.parametrize("name", [name for name in WITHOUT_SIZES if name != "gpt2"])
def test_it_leads_from_one_preset_to_the_other_in_all_ways(tmp_path, name):
    for start, end in (("gpt2", name), (name, "gpt2")):
        study = read(start, end, tmp_path)
        ways = [design.way for design in study.designs]
        assert ways == ["cumulative", "add-one-in", "leave-one-out"]
        added = study.designs[1]
        assert ", ".join(added.parts) in " ".join(
            study_between(start, end).replace("# ", "").split()
        )
        rows = {row.label: row.config for row in study.rows}
        assert (rows["base"].n_layers, rows["base"].d_model) == (6, 64)
        widths = {row.d_ff for row in rows.values() if row.feed_forward != "none"}
        assert max(widths) <= 256
        for field in ("mixer", "norm", "qk_norm", "n_experts", "positional_encoding"):
            given = PRESETS[end].get(field)
            assert getattr(rows["path all"], field) in (given, 4 if field == "n_experts" else given)


def test_the_sizes_of_presets_are_no_part(tmp_path):
    study = read("gpt2-small", "llama-tiny", tmp_path)
    assert "sizes" not in study.designs[0].parts
    assert {row.config.n_layers for row in study.rows} == {6}
    assert {row.config.d_model for row in study.rows} == {64}
    assert {row.config.n_heads for row in study.rows} == {4}

"""Classes and functions are imported when they are first asked for."""

import sys

import pytest

import ablate
from ablate import tasks
from ablate.cluster.engine import Engine
from ablate.cluster.profiles import ENGINES
from ablate.lazy import Imports


def test_names_are_known_without_an_import(monkeypatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    imports = Imports({"zen": "this:s", "path": "os:path"})
    assert (list(imports), len(imports), "zen" in imports, "os" in imports) == (
        ["zen", "path"],
        2,
        True,
        False,
    )
    assert "this" not in sys.modules
    assert imports["path"] is sys.modules["os"].path
    with pytest.raises(KeyError):
        imports["os"]


def test_every_engine_can_be_imported():
    assert all(issubclass(engine, Engine) for engine in ENGINES.values())


@pytest.mark.parametrize("package", [ablate, tasks])
def test_public_names_are_attributes_and_unknown_ones_are_not(package):
    assert all(getattr(package, name) is not None for name in package.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = package.nothing


def test_completion_offers_the_public_functions_alone():
    assert [name for name in dir(ablate) if not name.startswith("_")] == ["judge", "load", "run"]

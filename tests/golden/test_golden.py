"""A change of the structure leaves ids, schema and tables as they are; see `tests.golden`."""

import pytest

from tests.golden import EXPECTED, net


@pytest.mark.parametrize("name", net())
def test_nothing_in_the_net_has_moved(name):
    assert net()[name]() == (EXPECTED / name).read_text(encoding="utf-8")


def test_the_net_has_no_file_that_is_not_compared():
    assert {path.name for path in EXPECTED.iterdir()} == net().keys()

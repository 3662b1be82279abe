"""The watcher of the tests of launch."""

from tests.launch.conftest import recorder

__all__ = ["recorder"]

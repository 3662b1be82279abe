"""Fake results of a small study."""

from tests.report.conftest import fake

__all__ = ["fake"]

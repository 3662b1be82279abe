"""Settings of all tests."""

from hypothesis import settings

# No time limit for a single example: machines differ, and other work runs beside the tests.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

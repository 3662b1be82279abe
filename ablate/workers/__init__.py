"""Execution of one run: from the settings in its folder to its result."""

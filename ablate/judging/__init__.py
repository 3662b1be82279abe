"""Scores of other code: files of scores become an experiment, or a stream of proposals."""

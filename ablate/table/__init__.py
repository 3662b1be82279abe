"""A table of an experiment: rows with scores over seeds, verdicts, and a conclusion in words."""

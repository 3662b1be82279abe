"""Plans, progress, tables and comparisons of a study, read from its results. Nothing here imports torch."""

"""Kernels: functions that compute the values of a plain torch expression in less time.

The plain expression is a function `reference` in the same module. Tests compare the two, and the
program calls the reference on devices where the kernel gains nothing. A kernel must gain 3 % of a
training step or of decoding: its docstring has the figure, and benchmarks/LOG.md the measurement.
Nothing here knows of modules or models.
"""

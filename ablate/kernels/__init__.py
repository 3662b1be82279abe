"""Kernels: functions that are faster than the plain torch expression for the same values.

A module has one kernel, and beside it `reference`, the plain expression: tests compare the two, and
the product uses the reference on devices where the kernel gains nothing. A kernel stays while it
gains 3 % of a training step or of decoding; its docstring has the figure and benchmarks/LOG.md the
measurement. Nothing here knows of modules or models.
"""

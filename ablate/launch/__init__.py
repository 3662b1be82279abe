"""Launching: the executor interface, the scheduler, and workers on this machine."""

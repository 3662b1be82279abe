"""Classes and functions of a user's own: how a study names them, their source, and their faults."""

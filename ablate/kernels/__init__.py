"""Functions that compute faster on a CPU than the plain torch expressions beside them."""

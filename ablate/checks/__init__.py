"""Checks of the properties of a user's classes, before a run is trained with them."""

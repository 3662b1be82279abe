"""The five properties of a part, tried on classes of a user's own before a run is trained."""

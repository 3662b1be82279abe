"""One unit: directory in, directory out."""

"""A study's results as a folder that others read, check and cite; without torch."""

"""`python -m ablate.cli`: the command line without its script."""

from ablate.cli import main

main()

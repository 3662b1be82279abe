"""`python -m ablate`: the same command line."""

from ablate.cli import main

if __name__ == "__main__":
    main()

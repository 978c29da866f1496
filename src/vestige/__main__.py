"""`python -m vestige`: the command line, where its script is not on the path."""

from vestige.cli.app import main

if __name__ == "__main__":
    main()

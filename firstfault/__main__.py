"""`python -m firstfault` is the command `firstfault`, where its script is not on the path."""

from service.cli import main

if __name__ == "__main__":
    main()

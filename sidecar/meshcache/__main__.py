"""`python -m meshcache`: the command line."""

from meshcache.cli import main

if __name__ == "__main__":
    main()

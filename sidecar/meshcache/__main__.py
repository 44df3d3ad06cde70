"""`python -m meshcache`: the command `meshcache`."""

from meshcache.cli import main

if __name__ == "__main__":
    main()

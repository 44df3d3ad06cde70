"""The command `meshcache`, one module for each subcommand."""

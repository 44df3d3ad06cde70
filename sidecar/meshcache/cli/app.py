"""The command line: which subcommands there are, and how their errors are shown.

Only the module of the subcommand that is asked for is imported, so that `meshcache validate --help` does not wait for
gRPC and Envoy's configuration to load.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final

import typer

from meshcache import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

COMMANDS: Final[dict[str, str]] = {
    "up": "meshcache.cli.up:up",
    "serve": "meshcache.cli.serve:serve",
    "status": "meshcache.cli.status:status",
    "purge": "meshcache.cli.purge:purge",
    "validate": "meshcache.cli.validate:validate",
    "explain": "meshcache.cli.explain:explain",
    "envoy-config": "meshcache.cli.envoy_config:envoy_config",
}
"""Name of each subcommand and the function behind it, in the order in which `meshcache --help` lists them."""


class CommandError(Exception):
    """A failure that is shown as one line, `meshcache: <message>`, and ends the command with `exit_code`."""

    def __init__(self, message: str, exit_code: int = 1) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"meshcache {__version__}")
        raise typer.Exit


def build(names: Iterable[str]) -> typer.Typer:
    """The application with the subcommands `names`."""
    app = typer.Typer(
        name="meshcache",
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    @app.callback()
    def _root(
        version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ) -> None:
        """A cache policy engine for Envoy: answers from cache by policies in YAML that can be edited while it runs."""

    for name in names:
        module, _, function = COMMANDS[name].partition(":")
        app.command(name)(getattr(import_module(module), function))
    return app


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: status 0 when all is well, 1 for a failure, 2 for wrong usage."""
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    asked = arguments[0]
    command = typer.main.get_command(build([asked] if asked in COMMANDS else COMMANDS))
    try:
        status = command.main(args=arguments, prog_name="meshcache", standalone_mode=False)
    except CommandError as error:
        typer.echo(f"meshcache: {error}", err=True)
        sys.exit(error.exit_code)
    except typer.BadParameter as error:
        typer.echo(f"meshcache: {error.format_message()}", err=True)
        sys.exit(2)
    except typer.TyperException as error:
        # Wrong usage otherwise, such as an option that does not exist: typer shows it in three lines by itself.
        typer.echo(f"meshcache: {error} (see `meshcache --help`)", err=True)
        sys.exit(2)
    except typer.Abort:
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)

"""The command line: which subcommands there are, and how their errors are shown.

Only the module of the subcommand that is asked for is imported, so that `meshcache validate --help` does not wait for
gRPC and Envoy's configuration to load.
"""

from __future__ import annotations

import errno
import re
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple

import typer
from typer.core import TyperArgument, TyperGroup

from meshcache import __version__
from meshcache.cli.loading import loading
from meshcache.observe.stderr import open_standard_streams

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class Command(NamedTuple):
    """A subcommand."""

    function: str
    """The name of its function, or of the application of its subcommands, and of its module in `meshcache.cli`."""
    summary: str
    """What it does, short enough for a line of `meshcache --help` on 80 columns."""


COMMANDS: Final[dict[str, Command]] = {
    "up": Command("up", "Run Envoy with the cache in front of an origin."),
    "serve": Command("serve", "Run the sidecar alone, for an Envoy of your own."),
    "status": Command("status", "Show policies, workers and tiers."),
    "purge": Command("purge", "Declare stored answers dead or stale, everywhere."),
    "experiment": Command("experiment", "Show experiments, and decide about them."),
    "validate": Command("validate", "Check policy files without running anything."),
    "diff": Command("diff", "Say what an edit of policy files changes, for which traffic."),
    "schema": Command("schema", "Print the JSON Schema of policy files, for editors."),
    "explain": Command("explain", "Say what the policies make of a request, and why."),
    "simulate": Command("simulate", "Replay recorded requests against policies."),
    "demo": Command("demo", "Show two policies against each other, on this machine."),
    "wasm": Command("wasm", "Build the filter for Envoy, or say where it is."),
    "envoy-config": Command("envoy_config", "Print the configuration that Envoy needs."),
}
"""By name, in the order in which `meshcache --help` lists them."""

EXAMPLES: Final = """\b
Examples:
  meshcache up                                        with a demo origin
  meshcache up --origin http://127.0.0.1:9000         in front of yours
  meshcache explain --url http://localhost/v1/images/7
  meshcache purge --url http://127.0.0.1:8080/v1/images/7

`meshcache COMMAND --help` tells more of each."""


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
        epilog=EXAMPLES,
    )

    @app.callback()
    def _root(
        version: bool = typer.Option(
            False, "--version", help="Print the version and exit.", is_eager=True, callback=_print_version
        ),
    ) -> None:
        """A cache policy engine for Envoy: answers from cache by policies in YAML that can be edited while it runs."""

    for name in names:
        function, summary = COMMANDS[name]
        found = getattr(import_module(f"meshcache.cli.{function}"), function)
        if isinstance(found, typer.Typer):
            app.add_typer(found, name=name, short_help=summary)
        else:
            app.command(name, short_help=summary)(found)
    return app


_WORDS: Final = (
    ("Value error, ", ""),
    ("Input should be", "expected"),
    ("greater than or equal to", "at least"),
    ("less than or equal to", "at most"),
    ("a valid integer, unable to parse string as an integer", "a whole number"),
    ("a valid number, unable to parse string as a number", "a number"),
)
"""What the libraries behind wrong usage say, and what is said here."""

_NO_ROOM: Final = (errno.ENOSPC, errno.EDQUOT)


def _without_types(command: object) -> None:
    """Leave types of Python, such as `<list[Path]>`, out of what help says of arguments."""
    for parameter in getattr(command, "params", ()):
        if isinstance(parameter, TyperArgument):
            # There is no setting for it; where the library stops asking for it, nothing is lost.
            vars(parameter)["display_type_rich"] = lambda **_: None
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            _without_types(below)


def _named(command: object, arguments: Sequence[str]) -> tuple[object, str]:
    """The innermost command that `arguments` begin with, and how it is called."""
    path = "meshcache"
    for word in arguments:
        below = command.commands.get(word) if isinstance(command, TyperGroup) else None
        if below is None:
            break
        command, path = below, f"{path} {word}"
    return command, path


def _told(error: typer.TyperException, path: str) -> str:
    """Wrong usage of the command `path` in one line: what is expected, and where more is said."""
    text = error.format_message()
    text = re.sub(r"^Invalid value(?: for '?([^':]+)'?)?: ", lambda found: f"{found[1]}: " if found[1] else "", text)
    for theirs, ours in _WORDS:
        text = text.replace(theirs, ours)
    text = text.rstrip(".")
    context = getattr(error, "ctx", None)
    # An option without its value is told without a context.
    return f"{text} (see `{context.command_path if context is not None else path} --help`)"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit: status 0 when all is well, 1 for a failure, 2 for wrong usage."""
    open_standard_streams()
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    asked = arguments[0]
    with loading():
        command = typer.main.get_command(build([asked] if asked in COMMANDS else COMMANDS))
    _without_types(command)
    innermost, path = _named(command, arguments)
    # A group by itself shows its commands, as `meshcache` by itself does.
    if isinstance(innermost, TyperGroup) and path.split()[1:] == arguments:
        arguments = [*arguments, "--help"]
    try:
        status = command.main(args=arguments, prog_name="meshcache", standalone_mode=False)
    except CommandError as error:
        typer.echo(f"meshcache: {error}", err=True)
        sys.exit(error.exit_code)
    except typer.TyperException as error:
        # Wrong usage; typer would show it in three lines by itself.
        typer.echo(f"meshcache: {_told(error, path)}", err=True)
        sys.exit(2)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        # Of what is printed, most often: into a file, say.
        typer.echo(f"meshcache: {error.strerror}", err=True)
        sys.exit(1)
    except typer.Abort:
        sys.exit(130)
    sys.exit(status if isinstance(status, int) else 0)

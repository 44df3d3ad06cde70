"""`meshcache schema`: JSON Schema of policy documents, for editors."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer


def schema(
    kind: Annotated[
        str, typer.Option("--kind", metavar="KIND", help="Only this kind, such as CachePolicy.", show_default=False)
    ] = "",
    compact: Annotated[bool, typer.Option("--compact", help="On one line.")] = False,
) -> None:
    """Print the JSON Schema (2020-12) of policy documents: fields, what they mean, and how values are written.

    An editor with the YAML language server checks and completes by it, if this stands first in a policy file:

    # yaml-language-server: $schema=./meshcache.schema.json

    What depends on several fields or documents, only `meshcache validate` sees.

    Example: meshcache schema > policies/meshcache.schema.json
    """
    from meshcache.cli.app import CommandError
    from meshcache.policy.check import nearest
    from meshcache.policy.json_schema import document_schema
    from meshcache.policy.models import KINDS

    if kind and kind not in KINDS:
        hint = nearest(kind, KINDS) or f"one of {', '.join(KINDS)}"
        raise CommandError(f"--kind: there is no kind {kind!r} ({hint})", 2)
    found = document_schema(kind or None)
    typer.echo(json_module.dumps(found, indent=None if compact else 2, ensure_ascii=False))

"""Protobuf messages to the JSON that Envoy reads, and messages packed into `Any`."""

from __future__ import annotations

import json
from typing import Any, cast

import betterproto2
import yaml
from envoy_data_plane.google.protobuf import Any as AnyProto

# betterproto2's own casings are not inverse to protobuf's: `consecutive_5xx` would become `consecutive_5_xx`
# or `consecutive5Xx`, both unknown to Envoy. The proto field name as it stands is always accepted.
_VERBATIM = cast("betterproto2.Casing", str)


def pack(message: betterproto2.Message) -> AnyProto:
    """Wrap an extension's configuration for a `typed_config` field."""
    return AnyProto.pack(message)


def to_plain(message: betterproto2.Message) -> dict[str, Any]:
    """The proto3 JSON form of `message`, with proto field names; every `Any` carries its `@type`."""
    return message.to_dict(casing=_VERBATIM)


def to_json(plain: dict[str, Any]) -> str:
    """Indented JSON that ends with a newline."""
    return json.dumps(plain, indent=2) + "\n"


class _Dumper(yaml.SafeDumper):
    """Block style with indented lists, and no anchors: people read and paste the result."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002
        return True


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    # A document in a document is for people, too.
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if value.endswith("\n") else None)


_Dumper.add_representer(str, _text)


def to_yaml(plain: dict[str, Any] | list[Any]) -> str:
    """Block-style YAML in the order of the mapping."""
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, width=120, default_flow_style=False)

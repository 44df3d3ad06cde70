"""Hypothesis strategies for protobuf messages of any kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import FieldDescriptor
from hypothesis import strategies as st

if TYPE_CHECKING:
    from google.protobuf.message import Message

DEEPEST = 6
_NUMBERS = {
    FieldDescriptor.CPPTYPE_INT32: st.integers(-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_UINT32: st.integers(0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_INT64: st.integers(-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT64: st.integers(0, 2**64 - 1),
    FieldDescriptor.CPPTYPE_DOUBLE: st.floats(),
    FieldDescriptor.CPPTYPE_FLOAT: st.floats(width=32),
    FieldDescriptor.CPPTYPE_BOOL: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: st.integers(0, 5),
}
# Names and values that mean something to whoever reads a request.
_NAMES = st.sampled_from(
    [
        *(":path", ":method", ":authority", ":scheme", ":status", "cookie", "range", "vary", "cache-control", "a", ""),
        *("envoy.filters.http.ext_proc", "source.address", "connection.mtls", "response.code_details"),
        *("xds.cluster_name", "envoy.filters.http.jwt_authn", "payload", "iss", "sub", "exp"),
    ]
)


@st.composite
def messages(draw: st.DrawFn, kind: type[Message], texts: st.SearchStrategy[str], depth: int = 0) -> Any:
    """Messages of class `kind` with any of their fields set, to a depth of `DEEPEST`."""
    message = kind()
    for field in message.DESCRIPTOR.fields:
        if depth < DEEPEST and draw(st.booleans()):
            _fill(draw, message, field, texts, depth)
    return message


def _fill(draw: st.DrawFn, message: Message, field: Any, texts: st.SearchStrategy[str], depth: int) -> None:
    slot = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        value_field = field.message_type.fields_by_name["value"]
        for name in draw(st.lists(_NAMES, max_size=2)):
            if value_field.message_type is None:
                slot[name] = draw(_scalars(value_field, texts))
            else:
                slot[name].CopyFrom(draw(messages(type(slot[name]), texts, depth + 1)))
    elif field.message_type is not None:
        repeated = hasattr(slot, "add")
        for _ in range(draw(st.integers(0, 3)) if repeated else 1):
            target = slot.add() if repeated else slot
            target.CopyFrom(draw(messages(type(target), texts, depth + 1)))
    elif hasattr(slot, "append"):
        slot.extend(draw(st.lists(_scalars(field, texts), max_size=3)))
    else:
        setattr(message, field.name, draw(_scalars(field, texts)))


def _scalars(field: Any, texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    if field.cpp_type != FieldDescriptor.CPPTYPE_STRING:
        return _NUMBERS[field.cpp_type]
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=20) | texts.map(lambda text: text.encode("utf-8", "replace"))
    return _NAMES | texts.map(lambda text: text.encode("utf-8", "replace").decode())

"""What Envoy sends on an ext_proc stream, and a stream to send it on."""

from __future__ import annotations

from typing import NoReturn

from envoy.service.ext_proc.v3.external_processor_pb2 import ProcessingRequest, ProcessingResponse


def request(method: str = "GET", path: str = "/a", *, end: bool = True, **headers: str) -> ProcessingRequest:
    message = ProcessingRequest()
    part = message.request_headers
    part.end_of_stream = end
    for name, value in {":method": method, ":path": path, ":authority": "example.com", ":scheme": "http"}.items():
        part.headers.headers.add(key=name, raw_value=value.encode())
    for name, value in headers.items():
        part.headers.headers.add(key=name.replace("_", "-"), raw_value=value.encode())
    return message


def response(
    status: int = 200, *, end: bool = False, details: str = "via_upstream", **headers: str
) -> ProcessingRequest:
    message = ProcessingRequest()
    part = message.response_headers
    part.end_of_stream = end
    part.headers.headers.add(key=":status", raw_value=str(status).encode())
    for name, value in headers.items():
        part.headers.headers.add(key=name.replace("_", "-"), raw_value=value.encode())
    message.attributes["envoy.filters.http.ext_proc"].update({"response.code_details": details})
    return message


def body(chunk: bytes, *, end: bool = False) -> ProcessingRequest:
    message = ProcessingRequest()
    message.response_body.body = chunk
    message.response_body.end_of_stream = end
    return message


def trailers() -> ProcessingRequest:
    message = ProcessingRequest()
    message.response_trailers.SetInParent()
    return message


def of_request(kind: str) -> ProcessingRequest:
    message = ProcessingRequest()
    getattr(message, kind).SetInParent()
    return message


class BrokenOff(Exception):  # noqa: N818 - what a transport raises here is its own
    """A stream was ended with an error."""


class Stream:
    """An `EnvoyStream`: gives out `messages`, then the end of the stream; keeps the replies."""

    def __init__(self, *messages: ProcessingRequest) -> None:
        self._messages = list(messages)
        self.read_so_far: list[ProcessingRequest] = []
        self.replies: list[ProcessingResponse] = []
        self.at_end = False
        """The end of the stream was read: it was not over after the last reply."""
        self.why: str | None = None
        """Why it was ended with an error; None: it was not."""

    async def read(self) -> ProcessingRequest | None:
        assert not self.at_end, "nothing is to be read after the end"
        assert len(self.read_so_far) == len(self.replies), "every message is answered before the next is read"
        if not self._messages:
            self.at_end = True
            return None
        self.read_so_far.append(self._messages.pop(0))
        return self.read_so_far[-1]

    async def write(self, reply: bytes) -> None:
        assert not self.at_end, "nothing is to be written after the end"
        assert self.why is None, "nothing is to be written after an error"
        self.replies.append(ProcessingResponse.FromString(reply))

    async def break_off(self, why: str) -> NoReturn:
        self.why = why
        raise BrokenOff(why)

    @property
    def kinds(self) -> list[str | None]:
        return [reply.WhichOneof("response") for reply in self.replies]

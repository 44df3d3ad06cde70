"""Paths that may mean one thing to the cache and another to the origin.

The key holds a path byte for byte as the origin gets it, so that no two paths ever share an answer. What can still
differ is which resource a path is taken for: by the routes of the policies, which compare it as it stands, and by the
origin, which may decode it first.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

# Every path in which nothing can be hidden: no escapes, no parameters, no segment that begins with a dot.
_PLAIN: Final = re.compile(r"(?:/(?![.])[^/?%;\\\x00-\x20\x7f]*)+(?:\?|\Z)")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
# A dot or a slash in two bytes, which lenient decoders of UTF-8 take for one of one byte.
_OVERLONG: Final = re.compile("\xc0[\xae\xaf]")
_DOTS: Final = frozenset({".", ".."})
# Of letters, digits and `-._~`.
_NEEDLESS: Final = re.compile("%(2[DEde]|3[0-9]|4[1-9A-Fa-f]|5[0-9Aa]|5[Ff]|6[1-9A-Fa-f]|7[0-9Aa]|7[Ee])")

_STATIC: Final = frozenset(
    {
        *("7z", "aac", "apk", "avi", "avif", "bin", "bmp", "br", "bz2", "cjs", "class", "css", "dmg", "eot", "exe"),
        *("flac", "flv", "gif", "gz", "ico", "iso", "jar", "jp2", "jpeg", "jpg", "js", "jxl", "m4a", "m4v", "mid"),
        *("midi", "mjs", "mkv", "mov", "mp3", "mp4", "mpeg", "mpg", "oga", "ogg", "ogv", "otf", "pict", "png", "rar"),
        *("svg", "svgz", "swf", "tar", "tgz", "tif", "tiff", "ttf", "wasm", "wav", "weba", "webm", "webp", "wma"),
        *("wmv", "woff", "woff2", "xz", "zip", "zst"),
    }
)
"""Extensions of files that are neither text to read nor data to process."""
_XML: Final = frozenset({"svg", "svgz"})
"""Extensions of files that are XML."""
_DOCUMENTS: Final = frozenset(
    {
        "application/graphql-response",
        "application/json",
        "application/x-ndjson",
        "application/xhtml",
        "application/xhtml+xml",
        "application/xml",
        "text/csv",
        "text/event-stream",
        "text/html",
        "text/json",
        "text/plain",
        "text/xml",
    }
)


def ambiguous(path: str) -> bool:
    """Whether an origin may take `path` (with its query) for another one than its characters say.

    So it is when a segment becomes `.` or `..` once it is decoded, once or twice, or freed of its parameters
    (`/static/..%2faccount`, `/static/..;/account`), and when it holds a control character, at which some cut it off.
    Other escapes are data: `/packages/group%2Fname` is what it looks like.
    """
    if _PLAIN.match(path):
        return False
    text = path.partition("?")[0]
    for _ in range(3):
        if _CONTROL.search(text) or _OVERLONG.search(text):
            return True
        segments = text.replace("\\", "/").split("/")
        if any(segment.partition(";")[0] in _DOTS for segment in segments):
            return True
        decoded = unquote(text, "latin-1")
        if decoded == text:
            return False
        text = decoded
    return False


def without_needless_escapes(path: str) -> str:
    """`path` (with its query) as Envoy writes its escapes: none of what needs none (RFC 3986 section 6.2.2.2)."""
    target, mark, query = path.partition("?")
    if "%" not in target:
        return path
    return _NEEDLESS.sub(lambda escape: chr(int(escape[1], 16)), target) + mark + query


def as_handed_on(path: str) -> str:
    """`path` (with its query), which somebody has written down, as Envoy hands it on when a client asks for it.

    So it does with `normalize_path`: no needless escapes, no segments of dots, no backslashes (RFC 3986 section 6.2.2).
    """
    target, mark, query = without_needless_escapes(path).partition("?")
    segments: list[str] = []
    _, *named = target.replace("\\", "/").split("/")
    for segment in named:
        if segment == ".." and segments:
            segments.pop()
        elif segment not in _DOTS:
            segments.append(segment)
    if named and named[-1] in _DOTS:
        segments.append("")
    return "/" + "/".join(segments) + mark + query


def type_mismatch(path: str, content_type: str | None) -> bool:
    """Whether `path` ends like the name of a static file and its answer is a document or data: text, HTML, JSON, XML.

    That is how a page is made to look cacheable that is not (web cache deception): `/account/x.css` is `/account` to
    an application that minds only the beginning, and a style sheet to whoever gives lifetimes by extensions.
    An answer that does not name its type is not judged.
    """
    extension = _extension(path)
    if extension not in _STATIC or not content_type:
        return False
    media_type = content_type.partition(";")[0].strip().lower()
    if extension in _XML and media_type in ("text/xml", "application/xml"):
        return False
    return media_type in _DOCUMENTS or media_type.endswith("+json")


def _extension(path: str) -> str:
    """What stands behind the last dot of `path`, as any origin may read it: decoded, without parameters; else empty."""
    text = path.partition("?")[0]
    if "." not in text and "%" not in text:
        return ""
    for _ in range(2):
        text = unquote(text, "latin-1") if "%" in text else text
    # `/account%23.css` and `/account;.css` end in `.css` for some, and so does `/x.css;v=1`.
    for piece in (text, text.partition(";")[0]):
        name = piece.rstrip("/").rpartition("/")[2]
        _, dot, extension = name.rpartition(".")
        if dot and extension.lower() in _STATIC:
            return extension.lower()
    return ""

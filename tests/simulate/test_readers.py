"""Traces in all their forms: recognised, read, and whatever is wrong in them counted."""

from __future__ import annotations

import io
import re
import struct
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshcache.simulate.fields import NAMES, plain_name
from meshcache.simulate.lines import BadLines
from meshcache.simulate.source import Format, Trace, open_trace, recognised
from meshcache.simulate.stamps import common_log_time, unix_seconds
from meshcache.simulate.trace import BEGINNING, TraceError, TraceRequest

if TYPE_CHECKING:
    from collections.abc import Iterable

COMMON = '203.0.113.9 - ann [10/Oct/2000:13:55:36 -0700] "GET /a?b=1 HTTP/1.0" 200 2326'
COMBINED = (
    '203.0.113.9 - - [10/Oct/2000:13:55:37 -0700] "GET http://h.example/x HTTP/1.1" 304 - "http://r/" "say \\"hi\\""'
)
ENVOY = (
    '[2016-04-15T20:17:00.310Z] "POST /api/v1/locations HTTP/2" 204 - 154 0 226 100 "10.0.35.28, 10.0.0.1" '
    '"client" "cc21d9b0-cf5c-432b-8c7e-98aeb7988cd2" "locations" "tcp://10.0.2.1:80"'
)
ISTIO = (
    '[2020-11-25T21:26:18.409Z] "GET /status/418 HTTP/1.1" 418 - via_upstream - "-" 0 135 4 4 "-" "curl/7.73" '
    '"84961386-6d84-929d-98bd-c5aee93b5c88" "httpbin:8000" "127.0.0.1:80" inbound|8000|| 127.0.0.1:41854'
)
JSON = '{"start_time":"2016-04-15T20:17:00.310Z","method":"GET","path":"/a","response_code":200,"bytes_sent":7}'
NGINX = '{"msec":1700000000.5,"request":"GET /b HTTP/1.1","status":"200","body_bytes_sent":"9","remote_user":"-"}'
TSV = "user\ttime\tmethod\turl\tstatus\tbytes\nu1\t807256800\tGET\t/x\t200\t1713\n"
CSV = 'Time,URL,Size,Cache-Control,header:X-User-Score\n1700000000000,"/a,b",5,max-age=3,0.5\n1700000001000,/c,6,,\n'


def read(text: str | bytes, form: Format | None = None, **more: float) -> tuple[list[TraceRequest], BadLines, Format]:
    data = text.encode() if isinstance(text, str) else text
    trace = Trace(form or recognised(data, Path("trace")), io.BytesIO(data))
    return list(trace.requests("fallback", **more)), trace.bad, trace.format


def test_common_and_combined() -> None:
    requests, bad, form = read(f"{COMMON}\n{COMBINED}\nnothing of the kind\n")
    assert form is Format.COMMON
    assert requests == [
        TraceRequest(971211336.0, "/a?b=1", 2326, 200, "GET", "fallback", "ann"),
        TraceRequest(971211337.0, "/x", -1, 304, "GET", "h.example", "203.0.113.9"),
    ]
    assert (bad.count, bad.first) == (1, [(3, "is not in the common or combined log format")])


@pytest.mark.parametrize(
    ("text", "host", "user"),
    [
        (f"shop.example:8080 {COMMON}", "shop.example:8080", "ann"),
        (
            f"shop.example {COMMON.replace('- ann', '- -').replace('203.0.113.9', '2001:db8::9')}",
            "shop.example",
            "2001:db8::9",
        ),
        (COMMON.replace("- ann", "- Ann Bee"), "fallback", "Ann Bee"),
        (COMMON.replace("- ann", "ident ann"), "fallback", "ann"),
        (COMMON.replace("36 -0700", "36.000 -0700") + "\r", "fallback", "ann"),
        (COMMON.replace("10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36Z"), "fallback", "ann"),
    ],
)
def test_what_servers_put_into_a_common_log(text: str, host: str, user: str) -> None:
    requests, bad, form = read(f"{text}\n")
    assert (form, bad.first) == (Format.COMMON, [])
    assert requests == [TraceRequest(971211336.0, "/a?b=1", 2326, 200, "GET", host, user)]


def test_a_line_of_a_log_takes_linear_time() -> None:
    began = time.process_time()
    read("a " * 30_000 + "\n" + "a b c [" * 9000 + "\n" + "a - " + "x [" * 15_000 + "\n", Format.COMMON)
    assert time.process_time() - began < 2


def test_envoy_and_istio() -> None:
    requests, bad, form = read(f"{ENVOY}\n{ISTIO}\n")
    assert (form, bad.count) == (Format.ENVOY, 0)
    assert requests == [
        TraceRequest(1460751420.31, "/api/v1/locations", 0, 204, "POST", "locations", "10.0.35.28"),
        TraceRequest(1606339578.409, "/status/418", 135, 418, "GET", "httpbin:8000", ""),
    ]


def test_json_lines() -> None:
    requests, bad, form = read(f"{JSON}\n{NGINX}\nnot json\n[1]\n")
    assert form is Format.JSON
    assert requests == [
        TraceRequest(1460751420.31, "/a", 7, 200, "GET", "fallback"),
        TraceRequest(1700000000.5, "/b", 9, 200, "GET", "fallback"),
    ]
    assert [number for number, _ in bad.first] == [3, 4]


def test_numbers_in_json_may_have_a_point() -> None:
    (found,), bad, _ = read('{"time":1.7e9,"url":"/a","status":200.0,"bytes":1e3}', Format.JSON)
    assert (found.time, found.status, found.size, bad.count) == (1.7e9, 200, 1000, 0)


@pytest.mark.parametrize("lines", ['{"url":"/a"}\n{"url":"/b"}\n', "url,bytes\n/a,1\n/b,1\n", "time,url\n,/a\n-,/b\n"])
def test_without_times_requests_come_at_a_rate(lines: str) -> None:
    requests, bad, _ = read(lines, rate=4.0)
    assert ([request.time for request in requests], bad.count) == ([BEGINNING, BEGINNING + 0.25], 0)


@pytest.mark.parametrize(
    "lines",
    [
        '{"time":1800000000,"url":"/a"}\n{"url":"/b"}\n{"time":1800000001,"url":"/c"}\n',
        "time,url\n1800000000,/a\n,/b\n1800000001,/c\n",
    ],
)
def test_a_line_without_a_time_among_others_is_a_bad_one(lines: str) -> None:
    requests, bad, _ = read(lines)
    assert [request.path for request in requests] == ["/a", "/c"]
    assert [reason for _, reason in bad.first] == ["no time, as lines before it have"]


def test_a_reason_is_no_longer_than_a_line_can_bear() -> None:
    _, bad, _ = read('{"url":"/a","time":"' + "x" * 50_000 + '"}', Format.JSON)
    assert len(bad.first[0][1]) <= 120


def test_tables() -> None:
    requests, bad, form = read(TSV + "too\tfew\nu1\twhen\tGET\t/x\t200\t1\n")
    assert (form, [number for number, _ in bad.first]) == (Format.TSV, [3, 4])
    assert requests == [TraceRequest(807256800.0, "/x", 1713, 200, "GET", "fallback", "u1")]
    requests, bad, form = read(CSV)
    assert (form, bad.count) == (Format.CSV, 0)
    assert requests == [
        TraceRequest(1.7e9, "/a,b", 5, 200, "GET", "fallback", "", "max-age=3", (("x-user-score", "0.5"),)),
        TraceRequest(1.7e9 + 1, "/c", 6, 200, "GET", "fallback", "", None, ()),
    ]
    requests, _, _ = read("url\n/a\n/b\n", Format.CSV, rate=4.0)
    assert [request.time for request in requests] == [BEGINNING, BEGINNING + 0.25]
    with pytest.raises(TraceError, match="no column for the URL"):
        read("a,b\n1,2\n", Format.CSV)
    with pytest.raises(TraceError, match="no column for the URL"):
        read("ts,endpoint,size\n1700000000,/a,5\n")
    with pytest.raises(TraceError, match="header field that cannot be"):
        read("url,header:a b\n/x,1\n", Format.CSV)


def test_columns_may_be_quoted_and_one_is_enough() -> None:
    requests, bad, form = read('"time","url"\n"1700000000","/a ""b"""\n"1700000001","/c"\n')
    assert (form, bad.count) == (Format.CSV, 0)
    assert [request.path for request in requests] == ['/a "b"', "/c"]
    requests, bad, form = read("url\n/a\n")
    assert (form, [request.path for request in requests]) == (Format.CSV, ["/a"])


@pytest.mark.parametrize(
    "text",
    [
        "time;url;bytes\n1700000000;/a,b;5\n",
        "sep=;\r\ntime;url;bytes\r\n1700000000;/a,b;5\r\n",
        '"time";"url";"bytes"\n"1700000000";"/a,b";"5"\n',
        "time|url|bytes\n1700000000|/a,b|5\n",
        'time, url, bytes\n1700000000, "/a,b", 5\n',
        '"time"\t"url"\t"bytes"\n"1700000000"\t"/a,b"\t"5"\n',
        "time;url;bytes\n1.7e9;/a,b;5.0\n",
        "time;url;bytes;status\n2023-11-14T22:13:20Z;/a,b;5e0;200.0\n",
        "time_local;url;bytes\n[14/Nov/2023:23:13:20 +0100];/a,b;5\n",
    ],
)
def test_what_separates_columns_is_seen_by_their_names(text: str) -> None:
    requests, bad, _ = read(text)
    assert (requests, bad.count) == ([TraceRequest(1.7e9, "/a,b", 5, host="fallback")], 0)
    if "\t" not in text:
        assert read(text, Format.CSV)[0] == requests


def test_keys_may_hold_what_separates_columns_elsewhere() -> None:
    requests, _, form = read("a;b\nc;d\nname,x\n")
    assert (form, [request.path for request in requests]) == (Format.KEYS, ["/a;b", "/c;d", "/name,x"])


def test_bodies_count_and_not_what_goes_with_them() -> None:
    (found,), _, _ = read('{"time_local":"14/Nov/2023:22:13:20 +0000","uri":"/a","bytes_sent":900,"body_bytes_sent":7}')
    assert (found.time, found.size) == (1.7e9, 7)


@pytest.mark.parametrize(
    "line",
    [
        '{"ts":1700000000.5,"request":{"remote_ip":"::1","method":"GET","host":"h","uri":"/a"},"size":7,"status":404}',
        '{"ClientHost":"::1","RequestMethod":"GET","RequestPath":"/a","RequestHost":"h","DownstreamStatus":404,'
        '"DownstreamContentSize":7,"time":"2023-11-14T22:13:20.5Z"}',
        '{"httpRequest":{"requestMethod":"GET","requestUrl":"http://h/a","status":404,"responseSize":"7",'
        '"remoteIp":"::1"},"timestamp":"2023-11-14T22:13:20.5Z"}',
        '{"url":"/a","statusCode":404,"bytes":7,"userId":"::1","host":"h","time":1700000000500,"log":{"url":"/b"}}',
    ],
)
def test_json_of_several_servers(line: str) -> None:
    assert read(line)[0] == [TraceRequest(1.7e9 + 0.5, "/a", 7, 404, "GET", "h", "::1")]


def test_a_time_of_none_among_others_is_a_bad_line() -> None:
    requests, bad, _ = read("time,url\n1700000000,/a\n0,/b\n1700000001,/c\n")
    assert [request.path for request in requests] == ["/a", "/c"]
    assert bad.first == [(3, "'0' is years before the lines before it")]


def test_times_may_count_from_the_beginning() -> None:
    requests, bad, _ = read("time,url\n0,/a\n1.5,/b\n7,/c\n")
    assert ([request.time - BEGINNING for request in requests], bad.count) == ([0.0, 1.5, 7.0], 0)


def test_a_quotation_mark_that_is_not_closed_spoils_its_own_line_only() -> None:
    requests, bad, _ = read('time,url\n1700000000,"/a\n1700000001,/b\n1700000002,"/c"d\n1700000003,/"e"\n')
    assert [request.path for request in requests] == ["/b", '/"e"']
    assert [number for number, _ in bad.first] == [2, 4]


def test_urls_of_other_scripts_stay_apart_whatever_the_form() -> None:
    (json,), _, _ = read('{"path": "/\u00e4\u4e2d"}', Format.JSON)
    table, _, _ = read("url\n/\u00e4\u4e2d\n/\u00e4\u4e8c\n", Format.CSV)
    assert json.path == table[0].path == "/\u00e4\u4e2d".encode().decode("latin-1")
    assert table[0].path != table[1].path


def test_oracle_general() -> None:
    record = struct.Struct("<IQIq")
    data = b"".join(record.pack(second // 2, number, 10, -1) for second, number in enumerate((7, 1 << 40, 7)))
    requests, bad, form = read(data + b"cut off")
    assert form is Format.ORACLE
    assert requests == [
        TraceRequest(BEGINNING, "/7", 10, host="fallback"),
        TraceRequest(BEGINNING + 0.5, f"/{1 << 40}", 10, host="fallback"),
        TraceRequest(BEGINNING + 1, "/7", 10, host="fallback"),
    ]
    assert bad.first == [(4, "the last record is cut off")]


def test_keys() -> None:
    requests, bad, form = read("a\n\nb c\n".replace(" c", ""), rate=10.0)
    assert (form, bad.count) == (Format.KEYS, 0)
    assert requests == [
        TraceRequest(BEGINNING, "/a", host="fallback"),
        TraceRequest(BEGINNING + 0.1, "/b", host="fallback"),
    ]


def test_requests_of_one_second_are_spread_and_late_ones_put_in_their_place() -> None:
    lines = "time,url\n100000000,/a\n100000003,/c\n100000000,/b\n100000500,/d\n"
    requests, _, _ = read(lines)
    assert [(request.time - 1e8, request.path) for request in requests] == [
        (0.0, "/a"),
        (0.5, "/b"),
        (3.0, "/c"),
        (500.0, "/d"),
    ]
    with pytest.raises(TraceError, match=r"request 4 .* 900 seconds older .* sort the trace"):
        read("time,url\n" + "".join(f"{100000000 + second},/x\n" for second in (0, 600, 1000, 100)))


@pytest.mark.parametrize("text", [JSON, CSV, TSV, "k\nl\nk\n", COMMON])
def test_a_byte_order_mark_is_no_part_of_a_trace(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    with open_trace(path) as trace:
        assert list(trace.requests("fallback")) == read(text)[0]


@pytest.mark.parametrize(
    ("start", "message"),
    [
        (b"", "is empty"),
        (b"\0\1garbage" * 9, "is no text"),
        (b"some words here\n", "format is not known"),
        ("time,url\n".encode("utf-16"), "turn it into UTF-8"),
        (b'[{"url": "/a"}]\n', "one object a line"),
        (b'[\n  {\n"url": "/a"}]\n', "one object a line"),
        (b"1700000000,/a,200\n1700000001,/b,200\n", "does not name its columns"),
        (b"1700000000;/a\n1700000001;/b\n", "does not name its columns"),
    ],
)
def test_what_is_no_trace(start: bytes, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        recognised(start, Path("t"))


def test_a_line_without_end_is_not_read_whole() -> None:
    requests, bad, _ = read("a" * 200_000 + "\nb\n", Format.KEYS)
    assert [request.path for request in requests] == ["/b"]
    assert bad.first == [(1, "longer than 65536 bytes")]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1700000000", 1.7e9),
        ("1700000000.25", 1.7e9 + 0.25),
        ("1700000000000", 1.7e9),
        ("1700000000000000", 1.7e9),
        ("1700000000000000000", 1.7e9),
        ("2023-11-14T22:13:20Z", 1.7e9),
        ("2023-11-14 23:13:20+01:00", 1.7e9),
        ("2023-11-14T22:13:20", 1.7e9),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert unix_seconds(text) == seconds


def test_the_time_of_a_log_knows_its_zone() -> None:
    assert common_log_time("14/Nov/2023:23:13:20 +0100") == common_log_time("14/Nov/2023:17:13:20 -0500") == 1.7e9


@pytest.mark.parametrize("text", ["14/Nov/2023", "14/Mai/2023:23:13:20 +0100", "14/Nov/2023:23:13:20 CET"])
def test_what_is_no_time_of_a_log(text: str) -> None:
    with pytest.raises(ValueError, match="is no time"):
        common_log_time(text)


LINES = st.lists(st.sampled_from([COMMON, COMBINED, ENVOY, ISTIO, JSON, NGINX, "k", "a,b", *TSV.splitlines()]))


@given(st.sampled_from(list(Format)), st.one_of(st.binary(max_size=400), LINES.map("\n".join)), st.binary(max_size=20))
def test_no_exception_but_its_own_leaves_a_reader(form: Format, start: bytes | str, end: bytes) -> None:
    data = (start.encode() if isinstance(start, str) else start) + end
    try:
        requests, bad, _ = read(data, form)
    except TraceError:
        return
    assert all(request.path.startswith("/") and request.size >= -1 for request in requests)
    assert bad.count >= len(bad.first)


@given(st.binary(max_size=300))
def test_whatever_it_is_it_is_recognised_or_refused(start: bytes) -> None:
    try:
        form = recognised(start, Path("t"))
    except TraceError:
        return
    assert form in Format


def times(requests: Iterable[TraceRequest]) -> list[float]:
    return [request.time for request in requests]


def test_a_log_of_milliseconds_is_not_spread_beyond_the_next_request() -> None:
    requests, _, _ = read("time,url\n" + "".join(f"{100000000 + part},/x\n" for part in (0.0, 0.0, 0.25, 0.5, 1.0)))
    assert [when - 1e8 for when in times(requests)] == [0.0, 0.125, 0.25, 0.5, 1.0]


@given(st.lists(st.one_of(st.integers(0, 250), st.integers(0, 20).map(lambda tenth: tenth / 10)), max_size=60))
def test_requests_come_out_in_order(seconds: list[float]) -> None:
    table = "time,url\n" + "".join(f"{100000000 + second},/x\n" for second in seconds)
    requests, bad, _ = read(table, Format.CSV)
    assert times(requests) == sorted(times(requests))
    assert (len(requests), bad.count) == (len(seconds), 0)


ROWS = {
    "time": "time",
    "URL": "target",
    "method": "method",
    "host": "host",
    "status": "status",
    "bytes of the body": "size",
    "user": "user",
    "the answer's `cache-control`": "cache_control",
}


@pytest.mark.parametrize("row", ROWS)
def test_the_names_of_columns_are_those_of_the_documentation(row: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "simulate.md").read_text()
    (told,) = re.findall(rf"^\| {re.escape(row)} \| (.*) \|$", text, re.MULTILINE)
    # What is behind names is how values are written, and what counts where there is no such member.
    names = re.findall(r"`([@\w-]+)`", re.split(r"[:;]|, or ", told.removeprefix("of a whole URL; "))[0])
    assert tuple(map(plain_name, names)) == NAMES[ROWS[row]]

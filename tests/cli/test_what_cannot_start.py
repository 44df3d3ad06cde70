"""What `up` and `serve` refuse before they start anything: one line, status 2 for wrong usage, else 1; no process."""

from __future__ import annotations

import asyncio
import logging
import os

import pytest
import structlog
from running import BAD

from meshcache.cli import main

REDIS = """\
---
apiVersion: meshcache.dev/v1alpha1
kind: CacheConfig
metadata: {name: here}
spec: {stores: {warm: {url: "%s"}}}
"""


VIA = """\
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: p}
spec: {refresh: {via: replica}}
"""


@pytest.fixture
def told(place, capsys, monkeypatch):
    """Runs a command in this process; returns the lines on stderr. Starting a process is an error."""
    monkeypatch.chdir(place.folder)
    for name in ("MESHCACHE_WARM", "MESHCACHE_COLD"):
        monkeypatch.delenv(name, raising=False)

    async def nothing_may_start(*arguments, **_options):
        raise AssertionError(f"started {arguments}")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", nothing_may_start)
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level

    def run(command: str, *arguments: str, status: int = 1) -> list[str]:
        capsys.readouterr()
        ports = ("--listen", "127.0.0.1:0") if command == "up" else ()
        with pytest.raises(SystemExit) as ended:
            main([command, "--data", "data", "--metrics-listen", "127.0.0.1:0", *ports, *arguments])
        assert ended.value.code == status
        output = capsys.readouterr()
        assert output.out == ""
        return output.err.splitlines()

    yield run
    root.handlers[:], root.level = handlers, level
    structlog.reset_defaults()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--policies", "nowhere"), "--policies nowhere does not exist"),
        (("--policies", "policies/a.yaml"), "--policies policies/a.yaml is not a folder"),
        (("--warm", "redis://127.0.0.1:1/0"), "--warm redis://127.0.0.1:1 cannot be used"),
        (("--listen", "203.0.113.7:80"), "--listen 203.0.113.7:80 cannot be used"),
        (("--data", "policies/a.yaml/x"), "cannot make the data folder"),
        (("--data", "d" * 120), "too long for a unix socket"),
        (("--data", "d\udcff"), "d\\xff: the name is not UTF-8; choose another"),
    ],
)
def test_up_tells_what_cannot_work(told, arguments, expected):
    (line,) = told("up", *arguments)
    assert line.startswith("meshcache: ")
    assert expected in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--warm", "memcached://x"), "--warm: expected a URL such as redis://"),
        (("--cold", "s3://bucket"), "--cold: s3://: not supported yet"),
        (("--origin", "ftp://x"), "--origin 'ftp://x' is not http://"),
        (("--origin", "http://"), "is not http://HOST:PORT"),
        (("--origin", "http://x:port"), "--origin 'http://x:port' is malformed"),
        (("--origin", "http://[::1"), "is malformed"),
        (("--origin", "http://ann:pass/word@x:80"), "--origin *** is malformed"),
        (("--warm", "redis://ann:pass/word@x:6379"), "(in a password write / as %2F, "),
        (("--origin", "http://a b:80"), "--origin 'http://a b:80' is not http://HOST:PORT"),
        (("--origin", "http://*:80"), "--origin 'http://*:80' is not http://HOST:PORT"),
        (("--origin", "http://x:0"), "--origin 'http://x:0' is not http://HOST:PORT"),
        (("--origin", "http://x:80/path"), "give scheme, host and port only"),
        (("--refresh-cluster", "replica"), "--refresh-cluster 'replica' is not NAME=URL"),
        (("--refresh-cluster", "a b=http://x"), "expected the name of an Envoy cluster, got 'a b'"),
        (("--refresh-cluster", "envoy=http://x"), "envoy is what `refresh.via` has by default"),
        (("--refresh-cluster", "origin=http://x"), "there is a cluster of this name already"),
        (("--refresh-cluster", "a=http://x", "--refresh-cluster", "a=http://y"), "of this name already"),
        (("--refresh-cluster", "a=ftp://x"), "--refresh-cluster a: 'ftp://x' is not http://HOST:PORT"),
        (("--listen", "8080"), "--listen '8080' is not HOST:PORT"),
        (("--metrics-listen", "x"), "--metrics-listen 'x' is not HOST:PORT"),
        (("--workers", "0"), "--workers: expected at least 1 (see `meshcache up --help`)"),
        (("--latency-ms", "x"), "--latency-ms: expected a whole number"),
        (("--log-level", "loud"), "--log-level: 'loud' is not one of 'debug', 'info'"),
        (("--bogus",), "No such option: --bogus (see `meshcache up --help`)"),
    ],
)
def test_up_tells_what_makes_no_sense(told, arguments, expected):
    (line,) = told("up", *arguments, status=2)
    assert line.startswith("meshcache: ")
    assert expected in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--data", "policies/a.yaml/x"), "cannot make the data folder"),
        (("--data", "d" * 120), "too long for a unix socket"),
        (("--data", "d\udcff"), "d\\xff: the name is not UTF-8; choose another"),
        (("--socket-dir", "s\udcff"), "s\\xff: the name is not UTF-8; choose another"),
    ],
)
def test_serve_tells_what_cannot_work(told, arguments, expected):
    *_log, line = told("serve", *arguments)
    assert line.startswith("meshcache: ")
    assert expected in line


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--grpc", "other"), "--grpc: 'other' is not one of 'native', 'grpcio' (see `meshcache serve --help`)"),
        (("--metrics-listen", "nonsense"), "--metrics-listen 'nonsense' is not HOST:PORT"),
        (("--metrics-listen", "127.0.0.1:99999"), "is not HOST:PORT"),
        (("--refresh-cluster", "a"), "--refresh-cluster needs Envoy's refresh listener: --refresh-url unix:<path>"),
        (("--refresh-cluster", "a/", "--refresh-url", "unix:r"), "expected the name of an Envoy cluster, got 'a/'"),
        (("--refresh-url", "replica:80"), "--refresh-url 'replica:80' is not unix:<path> or http://HOST:PORT"),
        (("--refresh-url", "unix:"), "is not unix:<path>"),
        (("--refresh-url", "http://[::1"), "--refresh-url 'http://[::1' is not unix:<path>"),
        (("--refresh-url", "http://x:port"), "is not unix:<path>"),
        (("--show-all-to", "x"), "--show-all-to: expected an address range such as 10.0.0.0/8"),
        (("--warm", "http://cache"), "--warm: expected a URL such as redis://"),
        (("--warm", "redis://"), "--warm: expected a URL such as redis://"),
        (("--cold", "s3://bucket"), "--cold: s3://: not supported yet"),
        (("--workers", "0"), "--workers: expected at least 1"),
        (("--keys", "k\udcff"), "k\\xff: an option has to be UTF-8 text"),
    ],
)
def test_serve_tells_what_makes_no_sense(told, arguments, expected):
    *_log, line = told("serve", *arguments, status=2)
    assert line.startswith("meshcache: ")
    assert expected in line


def test_serve_without_a_folder_of_policies(told):
    first, line = told("serve", "--policies", "nowhere")
    assert first == "meshcache: the policies are refused, and there is no earlier set to serve by:"
    assert line.startswith("nowhere: there is no such folder")


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "redis://u:hunter2@127.0.0.1:1/0"])
def test_a_redis_of_the_policies_that_does_not_answer(place, told, url):
    place.write((place.policies / "a.yaml").read_text() + REDIS % url)
    (line,) = told("up")
    assert line.startswith("meshcache: stores.warm.url redis://127.0.0.1:1 cannot be used: ")
    assert line.count("redis://") == 1, "the address is named once"
    assert "hunter2" not in line


def test_the_command_line_comes_before_the_policies(place, told):
    place.write((place.policies / "a.yaml").read_text() + REDIS % "redis://127.0.0.1:1/0")
    (line,) = told("up", "--warm", "redis://127.0.0.1:2/0")
    assert line.startswith("meshcache: --warm redis://127.0.0.1:2 cannot be used: ")
    assert line.count("redis://") == 1


def test_bad_policies_without_earlier_ones(place, told):
    place.write(BAD)
    first, *lines = told("up")
    assert first == "meshcache: the policies are refused, and there is no earlier set to serve by:"
    assert lines[0].startswith("policies/a.yaml:4:")
    assert "spec.eviction" in lines[0]


@pytest.mark.parametrize("command", ["up", "serve"])
def test_a_policy_whose_refreshes_would_go_to_an_unknown_cluster(place, told, command):
    place.write(VIA)
    lines = told(command)
    assert "refresh.via: replica is none of the clusters that refreshes may go to" in lines[-1]
    assert "start meshcache with --refresh-cluster replica" in lines[-1]


def test_a_folder_that_cannot_be_read_is_refused_as_policies_are(told, monkeypatch, place):
    able = os.access
    monkeypatch.setattr(os, "access", lambda path, *how, **more: str(path) != "policies" and able(path, *how, **more))
    place.write(BAD)
    lines = told("serve", "--policies", "policies")
    assert "meshcache: the policies are refused, and there is no earlier set to serve by:" in lines

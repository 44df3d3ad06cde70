import io
import json
import logging
import time

import pytest
import structlog

from meshcache.observe import logs


@pytest.fixture
def lines():
    stream = io.StringIO()
    handlers = logging.getLogger().handlers[:]
    logs.configure("info", "json", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    structlog.reset_defaults()
    logging.getLogger().handlers[:] = handlers


def test_one_json_line_for_each_event(lines):
    log = logs.get_logger(worker=3)
    log.info("worker ready", socket="/run/a.sock")
    log.debug("not shown")
    (line,) = lines()
    assert line["message"] == "worker ready"
    assert line["worker"] == 3
    assert line["level"] == "info"
    assert line["timestamp"].endswith("Z")


def test_secrets_are_masked_wherever_they_stand(lines):
    log = logs.get_logger()
    try:
        raise ValueError("cannot reach redis://user:hunter2@db:6379/0")
    except ValueError as error:
        log.error(
            "failed for redis://:hunter2@db",
            url="rediss://user:hun/ter2@x".replace("/t", "t"),
            urls=["redis://a:hunter2@b", {"deep": "s3://k:hunter2@bucket?secret_access_key=hunter2&x=1"}],
            password="hunter2",
            headers={"authorization": "hunter2", "Set-Cookie": "hunter2"},
            error=error,
            exc_info=True,
        )
    text = json.dumps(lines())
    assert "hunter2" not in text
    assert "db:6379/0" in text


def test_what_libraries_log_has_the_same_form(lines):
    logging.getLogger("somewhere").warning("lost %s", "redis://:pw@host")
    logging.getLogger("somewhere").info("not shown")
    (line,) = lines()
    assert line["message"] == "lost redis://:***@host"
    assert line["logger"] == "somewhere"


def test_bytes_and_odd_values_do_not_break_a_line(lines):
    logs.get_logger().info("odd", raw=b"\xff", lone="\ud800", thing=object(), number=float("nan"))
    assert lines()[0]["message"] == "odd"


def test_console_form_is_for_people():
    stream = io.StringIO()
    logs.configure("info", "auto", stream)
    logs.get_logger().info("in json, because this is no terminal")
    logs.configure("info", "console", stream)
    logs.get_logger().info("policies in force", generation=2)
    structlog.reset_defaults()
    first, second = stream.getvalue().splitlines()
    assert json.loads(first)
    assert "policies in force" in second
    assert "generation=2" in second


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("redis://host:6379", "redis://host:6379"),
        ("redis://user@host", "redis://user@host"),
        ("redis://:p%40ss@host", "redis://:***@host"),
        ("redis://u:p@ss@host/0", "redis://u:***@host/0"),
        ("http://h/?token=abc&a=b", "http://h/?token=***&a=b"),
        ("see http://u:p@a and http://v:q@b", "see http://u:***@a and http://v:***@b"),
        ("time 10:30@noon", "time 10:30@noon"),
    ],
)
def test_redact(text, expected):
    assert logs.redact(text) == expected


@pytest.mark.parametrize("text", ["a://" * 50_000, "a://b:" + "c" * 200_000, "?token" * 50_000, "://" + "@" * 100_000])
def test_redact_takes_linear_time(text):
    began = time.process_time()
    logs.redact(text)
    assert time.process_time() - began < 1.0

"""The audit log."""

import json
import stat

from meshcache.observe.audit import AuditLog


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line_for_each_action(tmp_path):
    path = tmp_path / "audit.log"
    log = AuditLog(path)
    log.append("purge", {"who": {"uid": 1}, "what": ["\u00e9\n"], "pending": ()})
    log.append("policies", {"generation": 2})
    first, second = lines(path)
    assert list(first) == ["time", "action", "who", "what", "pending"]
    assert (first["action"], first["what"], second["generation"]) == ("purge", ["\u00e9\n"], 2)
    assert first["time"].endswith("+00:00")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_is_bounded(tmp_path):
    path = tmp_path / "audit.log"
    log = AuditLog(path, most_bytes=1000)
    for number in range(100):
        log.append("purge", {"number": number})
    files = sorted(found.name for found in tmp_path.iterdir())
    assert files == ["audit.log", "audit.log.1", "audit.log.2", "audit.log.3"]
    assert all(found.stat().st_size <= 1000 for found in tmp_path.iterdir())
    numbers = [line["number"] for name in reversed(files) for line in lines(tmp_path / name)]
    assert numbers == list(range(numbers[0], 100))


def test_what_cannot_be_written_is_told_and_raises_nothing(tmp_path):
    told = []
    AuditLog(tmp_path / "no" / "audit.log", on_failure=told.append).append("purge", {})
    assert len(told) == 1

"""The suite's origin server as we start it."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance import editions, suite


@pytest.mark.e2e
def test_listens_on_the_loopback_address_only(tmp_path: Path) -> None:
    package = editions.NPM_CACHE / "package"
    if not package.is_dir():
        pytest.skip("http-cache-tests is not fetched; `make conformance` does that")
    with suite.origin(editions.Edition.of_npm(package), tmp_path) as port:
        listening = [
            fields[1]
            for table in ("/proc/net/tcp", "/proc/net/tcp6")
            for fields in map(str.split, Path(table).read_text().splitlines()[1:])
            if fields[3] == "0A" and fields[1].endswith(f":{port:04X}")
        ]
    assert listening == [f"0100007F:{port:04X}"]

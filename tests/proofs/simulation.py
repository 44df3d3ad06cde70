"""A million requests in less than a minute of computing for each policy, and the miss ratios of LRU as published.

`python -m proofs.simulation` makes a table of `REQUESTS` (1,000,000): keys by Zipf's law (1.0 over 10,000), 200 a
second, fresh for ten minutes, and replays it by the command itself, reading included. What counts is the processor time
of the command, so that other work on the machine does not. The last line is JSON.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT_SECONDS = 60.0
_PER_SECOND = 200
_KEYS = 10_000
_POLICY = """\
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: p}
spec: {eviction: lru, freshness: {staleWhileRevalidate: 30s}, tiers: {hot: {ttl: 10m}, warm: {ttl: 1h}}}
"""


def write_trace(path: Path, requests: int) -> None:
    """Requests of users for objects of some 10 KiB."""
    source = random.Random(1)
    cumulative = list(itertools.accumulate(1 / rank for rank in range(1, _KEYS + 1)))
    sizes = [int(source.lognormvariate(9, 1)) for _ in range(_KEYS)]
    with path.open("w", encoding="utf-8") as file:
        file.write("time,user,url,bytes\n")
        for number, key in enumerate(source.choices(range(_KEYS), cum_weights=cumulative, k=requests)):
            when = 1_700_000_000 + number / _PER_SECOND
            file.write(f"{when:.3f},u{source.randrange(5000)},/object/{key},{sizes[key]}\n")


def main() -> int:
    """Exit status 0 when it is fast enough."""
    requests = int(os.environ.get("REQUESTS") or 1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        trace, policy = Path(folder, "trace.csv"), Path(folder, "policy.yaml")
        write_trace(trace, requests)
        policy.write_text(_POLICY, encoding="utf-8")
        options = ["--policies", str(policy), "--policy", "p", "--origin-cache-control", "max-age=600", "--json"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [sys.executable, "-m", "meshcache", "simulate", str(trace), *options],
            capture_output=True,
            text=True,
            check=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (result,) = json.loads(done.stdout)["policies"]
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    allowed = LIMIT_SECONDS * requests / 1_000_000
    found = {
        "requests": requests,
        "processorSeconds": round(seconds, 1),
        "requestsPerSecond": round(requests / seconds),
        "hitRatio": round(result["total"]["hitRatio"], 4),
        "peakMiB": after.ru_maxrss // 1024,
        "ok": seconds < allowed,
    }
    print(json.dumps(found))
    return 0 if found["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())

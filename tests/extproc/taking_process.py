"""A process that takes the filters' batches, and may be killed: `python taking_process.py DATA`.

A batch comes on standard input behind its length (4 bytes); the answer is one byte: 1 taken, 0 to be sent again.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from pathlib import Path

import structlog

from filter_batches import ONE
from meshcache.extproc.filter_numbers import FilterNumbers
from meshcache.observe.metrics import Metrics
from meshcache.process import die_with_parent


async def main(data: Path) -> None:
    numbers = FilterNumbers(data, lambda: {ONE.experiment: ONE}, Metrics(), structlog.get_logger())
    numbers.start()
    reads, writes = sys.stdin.buffer, sys.stdout.buffer
    while head := await asyncio.to_thread(reads.read, 4):
        taken = await numbers.take(reads.read(struct.unpack("<I", head)[0]))
        writes.write(bytes([taken]))
        writes.flush()
    await numbers.stop()


if __name__ == "__main__":
    die_with_parent()
    asyncio.run(main(Path(sys.argv[1])))

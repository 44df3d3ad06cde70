"""Files that several processes map into memory."""

from __future__ import annotations

import errno
import hashlib
import mmap
import os


def allocate(descriptor: int, size: int) -> None:
    """Make the empty file behind `descriptor` `size` bytes long, all of them on the disk. Raises `OSError`.

    A file with holes will not do for a memory map: on a full disk, the first write into a hole kills the process
    (SIGBUS) instead of failing.
    """
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        # A file system that cannot promise space, with a C library that does not write it out instead.
        os.truncate(descriptor, size)


def map_shared(descriptor: int, size: int) -> mmap.mmap:
    """The first `size` bytes of a file in memory, shared with whoever else maps it. Raises `OSError`."""
    try:
        # In memory from the start: a page's first use would stop the event loop.
        return mmap.mmap(descriptor, size, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except ValueError as error:
        # The file is shorter than it was a moment ago.
        raise OSError(errno.EIO, str(error)) from error


def boot_id() -> bytes:
    """16 bytes that differ from one start of the machine to the next; zeroes where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", "rb") as file:
            return hashlib.blake2b(file.read(64).strip(), digest_size=16).digest()
    except OSError:
        return bytes(16)

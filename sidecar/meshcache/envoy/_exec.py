"""Run as a script: `_exec.py PARENT_PID PROGRAM ARG...` becomes PROGRAM, which the kernel kills when its parent dies.

A script of its own because a `preexec_fn` may deadlock in a process that has threads, as one with gRPC has.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def _main() -> None:
    parent, program = int(sys.argv[1]), sys.argv[2]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    # The parent may have died before the request took effect.
    if os.getppid() != parent:
        sys.exit(1)
    os.execv(program, sys.argv[2:])  # noqa: S606 - replacing this process by the named program is the purpose


if __name__ == "__main__":
    _main()

"""Ctrl-C while a command is being loaded."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

CODE = """
import signal, sys, time
%s
from meshcache.cli.loading import loading
with loading():
    print("in", flush=True)
    sys.stdin.readline()
try:
    print("out", flush=True)
    sys.stdin.readline()
except KeyboardInterrupt:
    sys.exit(7)
"""


def told(code: str, *, at: str) -> tuple[int, str]:
    """Exit status and stderr of a process that gets SIGINT when it is `at` one place or the other."""
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell without job control has those that it starts in the background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "in\n"
        if at == "out":
            process.stdin.write("\n")
            process.stdin.flush()
            assert process.stdout.readline() == "out\n"
        process.send_signal(signal.SIGINT)
        try:
            _, errors = process.communicate("\n\n", timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        return process.returncode, errors


def test_it_ends_the_command_without_a_word() -> None:
    assert told(CODE % "", at="in") == (130, "")


def test_afterwards_it_is_what_it_was() -> None:
    assert told(CODE % "", at="out") == (7, "")


def test_who_ignores_it_goes_on_to() -> None:
    assert told(CODE % "signal.signal(signal.SIGINT, signal.SIG_IGN)", at="in") == (0, "")


@pytest.mark.usefixtures("shell_signals")
@pytest.mark.parametrize("name", ["meshcache.cli", "meshcache.cli.app"])
def test_who_imports_the_package_keeps_his_own(name: str) -> None:
    code = f"import signal, {name}; assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)

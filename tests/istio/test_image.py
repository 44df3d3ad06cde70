"""The image, built and run as a pod would run it: another user than root, a read-only root file system."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
import uuid
from pathlib import Path

import pytest

import meshcache

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(900)]


def docker(*arguments: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def missing() -> str:
    """Why no image can be built here; empty when one can."""
    if shutil.which("docker") is None:
        return "docker is not installed"
    try:
        answer = docker("version", "--format", "{{.Server.Version}}", timeout=20)
    except subprocess.TimeoutExpired:
        return "no docker engine answers"
    return "" if answer.returncode == 0 else f"no docker engine answers: {answer.stderr.strip()}"


@pytest.fixture(scope="module")
def image():
    reason = missing()
    if reason:
        pytest.skip(reason)
    tag = f"meshcache-test:{uuid.uuid4().hex[:12]}"
    built = docker("build", "--quiet", "--tag", tag, str(ROOT), timeout=840)
    assert built.returncode == 0, built.stderr
    yield tag
    docker("image", "rm", "--force", tag)


@pytest.fixture(scope="module")
def container(image):
    """Runs the image's own command, confined as by the injection templates."""
    started = docker(
        *("run", "--detach", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none"),
        # As istio-proxy's user, which is not the image's: nothing may depend on the name or the number.
        *("--user=1337:1337", "--tmpfs=/var/lib/meshcache:uid=1337,gid=1337,size=1g", image),
    )
    assert started.returncode == 0, started.stderr
    name = started.stdout.strip()
    yield name
    docker("rm", "--force", name)


def python(container: str, code: str) -> subprocess.CompletedProcess[str]:
    return docker("exec", container, "python", "-c", code)


def test_it_becomes_ready(container):
    ask = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9464/readyz').status)"
    until = time.monotonic() + 60
    while (answer := python(container, ask)).stdout.strip() != "200":
        assert time.monotonic() < until, answer.stderr + docker("logs", container).stderr
        time.sleep(0.2)
    status = docker("exec", container, "meshcache", "status", "--data", "/var/lib/meshcache")
    assert status.returncode == 0, status.stdout
    assert status.stdout.startswith(f"meshcache {meshcache.__version__}  ready")


def test_there_is_no_installer_and_no_compiler_in_it(container):
    for module in ("pip", "ensurepip", "setuptools"):
        assert f"No module named '{module}'" in python(container, f"import {module}").stderr
    found = python(container, "import shutil; print(*filter(None, map(shutil.which, ['pip', 'gcc', 'cc', 'make'])))")
    assert (found.returncode, found.stdout.strip()) == (0, "")


def test_the_filter_is_in_it_at_a_fixed_place(container):
    told = docker("exec", container, "meshcache", "wasm", "path", "--json")
    assert told.returncode == 0, told.stderr
    code = "import hashlib; print(hashlib.sha256(open('/opt/meshcache/meshcache.wasm', 'rb').read()).hexdigest())"
    assert json.loads(told.stdout)["sha256"] == python(container, code).stdout.strip()


def test_its_own_user_is_not_root(image):
    who = docker("run", "--rm", "--entrypoint=python", image, "-c", "import os; print(os.getuid(), os.getgid())")
    assert who.stdout.split() == ["65532", "65532"]


def test_it_stops_when_told(container):
    begun = time.monotonic()
    assert docker("stop", "--time=30", container).returncode == 0
    assert time.monotonic() - begun < 25
    state = docker("inspect", "--format={{.State.ExitCode}}", container)
    assert state.stdout.strip() == "0", docker("logs", container).stderr

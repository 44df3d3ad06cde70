"""The command `wasm`."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
import structlog.testing

import meshcache
from filter_module import built_filter
from meshcache.cli import main
from meshcache.cli.checks import filter_for_envoy
from meshcache.cli.paths import own_name
from meshcache.wasm import building, module


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    def run(*arguments: str, status: int = 0) -> tuple[str, str]:
        with pytest.raises(SystemExit) as ended:
            main(["wasm", *arguments])
        assert ended.value.code == status
        said = capsys.readouterr()
        return said.out, said.err

    return run


@pytest.fixture(scope="module")
def ours() -> bytes:
    """The filter as it is built."""
    return built_filter().read_bytes()


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place for the module that is this test's own."""
    monkeypatch.setattr(module, "MODULE", tmp_path / "own.wasm")
    monkeypatch.setattr(module.find, "__defaults__", (tmp_path / "own.wasm",))
    return tmp_path / "own.wasm"


def test_path_of_what_is_not_built_is_one_line(run, built: Path) -> None:
    assert run("path", status=1) == ("", f"meshcache: the filter is not built; try: {own_name()} wasm build\n")


@pytest.mark.parametrize("which", ["empty", "junk", "another module", "cut off"])
def test_what_is_no_filter_is_not_taken_for_it(run, ours: bytes, built: Path, which: str) -> None:
    junk = {"empty": b"", "junk": b"junk", "another module": b"\0asm\1\0\0\0", "cut off": ours[:-1]}
    built.write_bytes(junk[which])
    told = f"meshcache: the filter is damaged ({built}); try: {own_name()} wasm build\n"
    assert run("path", status=1) == ("", told)
    assert run("path", "--json", status=1) == ("", told)
    assert run("serve", status=1) == ("", told)


def test_an_old_one_is_told_of(run, ours: bytes, built: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built.write_bytes(ours)
    changed = tmp_path / "src"
    changed.mkdir()
    for source in module.sources().glob("*.zig"):
        (changed / source.name).write_bytes(source.read_bytes() + (b"// other\n" if source.name == "main.zig" else b""))
    monkeypatch.setattr(module, "sources", lambda: changed)
    out, err = run("path")
    assert out == f"{built}\n"
    assert err == f"meshcache: the filter is older than its sources; try: {own_name()} wasm build\n"
    assert json.loads(run("path", "--json")[0])["current"] is False


def test_build_then_path(run, built: Path) -> None:
    out, err = run("build", "--json")
    assert err == ""
    told = json.loads(out)
    content = built.read_bytes()
    assert told == {
        "path": str(built),
        "version": meshcache.__version__,
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "current": True,
    }
    assert json.loads(run("path", "--json")[0]) == told
    assert run("path") == (f"{built}\n", "")


def test_if_changed_leaves_what_is_current(run, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run("build")

    def build(_sources: Path, _target: Path) -> None:
        raise building.BuildError("not again")

    monkeypatch.setattr(building, "build", build)
    assert run("build", "--if-changed") == (f"{built}\n", "")
    assert run("build", status=1) == ("", "meshcache: not again\n")
    built.write_bytes(b"something else")
    assert run("build", "--if-changed", status=1) == ("", "meshcache: not again\n")


def test_build_elsewhere_leaves_the_own_module(run, built: Path, tmp_path: Path) -> None:
    assert run("build", "--out", str(tmp_path / "x.wasm"))[0] == f"{tmp_path / 'x.wasm'}\n"
    assert not built.exists()


def test_what_the_compiler_says_stands_before_the_last_line(run, built: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(_sources: Path, _target: Path) -> None:
        raise building.BuildError("zig does not compile it", "main.zig:1:2: error: no\n")

    monkeypatch.setattr(building, "build", build)
    assert run("build", status=1)[1] == "main.zig:1:2: error: no\nmeshcache: zig does not compile it\n"


def test_a_place_that_cannot_be_written_is_one_line(run, built: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    _, err = run("build", "--out", str(tmp_path / "file" / "x.wasm"), status=1)
    assert err.count("\n") == 1
    assert err.startswith("meshcache: ")


def test_a_folder_that_is_not_there_is_named_and_not_made(run, built: Path, tmp_path: Path) -> None:
    missing = tmp_path / "mistyped"
    told = f"meshcache: there is no folder {missing} for x.wasm\n"
    assert run("build", "--out", str(missing / "x.wasm"), status=1) == ("", told)
    assert not missing.exists()


@pytest.mark.e2e
def test_serve_hands_it_out_until_it_is_told_to_stop() -> None:
    expected = built_filter().read_bytes()
    command = [sys.executable, "-m", "meshcache", "wasm", "serve", "--listen", "127.0.0.1:0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            url = process.stdout.readline().split()[-1]
            answer = httpx.get(url, trust_env=False)
            assert answer.content == expected
            assert answer.headers["etag"] == f'"{hashlib.sha256(expected).hexdigest()}"'
            assert httpx.get(url.replace("wasm/meshcache.wasm", "healthz"), trust_env=False).text == "ok\n"
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_serve_without_a_filter_or_an_address_is_one_line(run, ours: bytes, built: Path) -> None:
    assert run("serve", status=1) == ("", f"meshcache: the filter is not built; try: {own_name()} wasm build\n")
    built.write_bytes(ours)
    _, err = run("serve", "--listen", "nowhere", status=2)
    assert err.count("\n") == 1
    assert err.startswith("meshcache: --listen")


@pytest.mark.parametrize(
    ("found", "what"),
    [(None, "not built"), (module.Module(Path("m.wasm"), b"junk", "", current=True), "damaged")],
)
def test_up_goes_on_without_a_filter_and_says_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, found: module.Module | None, what: str
) -> None:
    log = structlog.testing.CapturingLogger()
    monkeypatch.setattr(module, "find", lambda: found)
    assert filter_for_envoy(log) is None
    (call,) = log.calls
    assert (call.method_name, call.args) == ("warning", (f"without the filter, which is {what}",))
    assert call.kwargs["build_it_by"].endswith("meshcache wasm build")


def test_up_uses_an_old_filter_and_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = structlog.testing.CapturingLogger()
    monkeypatch.setattr(module, "find", lambda: module.Module(tmp_path / "m.wasm", b"", "1", current=False))
    assert filter_for_envoy(log) == tmp_path / "m.wasm"
    assert [call.args for call in log.calls] == [("the filter is older than its sources",)]
    log.calls.clear()
    monkeypatch.setattr(module, "find", lambda: module.Module(tmp_path / "m.wasm", b"", "1", current=True))
    assert filter_for_envoy(log) == tmp_path / "m.wasm"
    assert log.calls == []

"""Properties of the image that can be read off the Dockerfile."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import typer

from meshcache.cli.app import build

ROOT = Path(__file__).resolve().parents[2]


def instructions():
    """(instruction, argument) for each line, continuations joined and comments dropped."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if not line.lstrip().startswith("#")]
    text = "\n".join(lines).replace("\\\n", " ")
    return [tuple(line.strip().split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def last_stage():
    all_of_them = instructions()
    begin = max(index for index, (name, _) in enumerate(all_of_them) if name == "FROM")
    return all_of_them[begin:]


def argument(name):
    (found,) = (value for key, value in last_stage() if key == name)
    return found


def test_there_is_a_build_stage_from_which_only_the_environment_is_taken():
    stages = [value for name, value in instructions() if name == "FROM"]
    assert len(stages) == 3
    assert stages[0].endswith(" AS build")
    copies = [value for name, value in last_stage() if name == "COPY"]
    assert copies == ["--from=build /opt/meshcache /opt/meshcache", "policies /etc/meshcache/policies"]


def test_the_base_is_a_slim_python_by_tag():
    (tag,) = (value.removeprefix("PYTHON=") for name, value in instructions() if name == "ARG")
    # With the patch release: what was built once is what is built again.
    assert re.fullmatch(r"3\.11\.\d+-slim-[a-z]+", tag)
    bases = [value.split()[0] for name, value in instructions() if name == "FROM"]
    assert bases == ["python:${PYTHON}", "scratch", "python:${PYTHON}"]


def test_the_filter_is_an_image_of_one_file_and_lies_at_a_fixed_place_in_the_other():
    (copy,) = (value for name, value in instructions() if name == "COPY" and value.endswith("plugin.wasm"))
    assert copy == "--from=build /plugin.wasm /plugin.wasm"
    (built,) = (value for name, value in instructions() if name == "RUN" and "pip --python" in value)
    assert 'ln -s "$(/opt/meshcache/bin/meshcache wasm path)" /opt/meshcache/meshcache.wasm' in built


def test_what_is_built_from_is_in_the_context():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    build = instructions()[: -len(last_stage())]
    sources = [part for name, value in build if name == "COPY" and "--from" not in value for part in value.split()[:-1]]
    assert {"wasm", "hatch_build.py", "sidecar"} <= set(sources)
    assert {f"!{source}" for source in sources} <= set(ignored)


def test_it_runs_as_a_numeric_user_that_is_not_root():
    user, group = argument("USER").split(":")
    # Kubernetes' runAsNonRoot cannot judge a name.
    assert int(user) > 0
    assert int(group) > 0


def test_the_last_stage_installs_nothing_and_drops_the_installer():
    (run,) = (value for name, value in last_stage() if name == "RUN")
    assert "pip uninstall" in run
    assert "ensurepip" in run
    for tool in ("apt-get", "pip install", "gcc", "build-essential", "curl"):
        assert tool not in run


def test_the_build_backend_is_pinned_too():
    stage = instructions()[: -len(last_stage())]
    names = [name for name, _ in stage]
    environment = next(value for name, value in stage if name == "ENV")
    for variable in ("PIP_CONSTRAINT", "PIP_BUILD_CONSTRAINT"):
        assert f"{variable}=/src/constraints.txt" in environment
    assert names.index("ENV") < max(index for index, name in enumerate(names) if name == "RUN")
    assert re.search(r"^hatchling==", (ROOT / "constraints.txt").read_text(), re.MULTILINE)


def test_nothing_is_written_outside_the_volume():
    data = argument("VOLUME")
    assert "PYTHONDONTWRITEBYTECODE=1" in argument("ENV")
    command = json.loads(argument("CMD"))
    assert command[command.index("--data") + 1] == data


def test_the_default_command_is_one_that_meshcache_takes():
    assert json.loads(argument("ENTRYPOINT")) == ["meshcache"]
    name, *arguments = json.loads(argument("CMD"))
    command = typer.main.get_command(build([name, "status"])).commands[name]
    assert command.make_context(name, arguments).params["metrics_listen"] == "0.0.0.0:9464"


def test_the_context_holds_what_is_copied_and_no_more():
    allowed = {
        line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")
    }
    copied = {
        source
        for name, value in instructions()
        if name == "COPY" and not value.startswith("--from")
        for source in value.split()[:-1]
    }
    assert allowed == copied
    for source in copied:
        assert (ROOT / source).exists()


@pytest.mark.parametrize("line", ["*", "**/__pycache__"])
def test_the_context_leaves_out(line):
    assert line in (ROOT / ".dockerignore").read_text().splitlines()

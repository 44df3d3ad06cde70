"""What the fields of policy documents mean, as the tables of `docs/policies.md` say, for the schema that editors read.

The tables are the source; `python -m meshcache.policy.descriptions docs/policies.md` makes `descriptions.json` anew.
"""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

_FILE: Final = "descriptions.json"
_KIND: Final = re.compile(r"^## (Cache[A-Za-z]+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
_ROW: Final = re.compile(r"^\| `([a-z][^`]*)` \|((?:[^|\\]|\\.)*)\|((?:[^|\\]|\\.)*)\|", re.MULTILINE)
_LINK: Final = re.compile(r"\[([^\]]*)\]\([^)]*\)")


def read_tables(text: str) -> dict[str, dict[str, str]]:
    """By kind and field, the meaning and the default, from the first table of each kind's section."""
    found: dict[str, dict[str, str]] = {}
    for kind, section in _KIND.findall(text):
        table, rows = re.search(r"^\| field .*?(?=^$|\Z)", section, re.MULTILINE | re.DOTALL), {}
        for name, default, meaning in _ROW.findall(table[0] if table else ""):
            default, meaning = (_LINK.sub(r"\1", one).replace("\\|", "|").strip() for one in (default, meaning))
            rows[name] = f"{meaning[:1].upper()}{meaning[1:]}." + (f" Default: {default}." if default else "")
        found[kind] = rows
    return found


def written(tables: dict[str, dict[str, str]]) -> str:
    """The text of the file."""
    return json.dumps(tables, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


@cache
def _all() -> dict[str, dict[str, str]]:
    loaded: dict[str, dict[str, str]] = json.loads(resources.files(__package__).joinpath(_FILE).read_text("utf-8"))
    return loaded


def descriptions(kind: str) -> dict[str, str]:
    """By the path below `spec` (`match[].path.exact`), what the fields of `kind` mean."""
    return _all().get(kind, {})


if __name__ == "__main__":
    Path(__file__).with_name(_FILE).write_text(written(read_tables(Path(sys.argv[1]).read_text("utf-8"))), "utf-8")

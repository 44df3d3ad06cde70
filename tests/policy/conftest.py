"""Short ways to write policy sets."""

from __future__ import annotations

from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from meshcache.policy.compile import Surroundings, compile_documents
from meshcache.policy.documents import Documents

if TYPE_CHECKING:
    from collections.abc import Callable

    from meshcache.policy.snapshot import Snapshot

POLICY = """
apiVersion: meshcache.dev/v1alpha1
kind: CachePolicy
metadata: {name: %s}
spec: {freshness: {defaultTtl: 60s}}
"""


@pytest.fixture
def compiled() -> Callable[..., Snapshot]:
    """Compile one text in which `apiVersion` is filled in, beside the policies named in `policies`."""

    def build(
        text: str, *, policies: tuple[str, ...] = (), surroundings: Surroundings | None = None, secret: bytes = b"s"
    ) -> Snapshot:
        whole = dedent(text).replace("\nkind:", "\napiVersion: meshcache.dev/v1alpha1\nkind:")
        files = [("set.yaml", whole), *((f"z-{name}.yaml", POLICY % name) for name in policies)]
        return compile_documents(Documents.of(files), generation=3, secret=secret, surroundings=surroundings)

    return build

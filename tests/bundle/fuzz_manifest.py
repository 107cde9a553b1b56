# SPDX-License-Identifier: Apache-2.0
"""Fuzzer of the manifest reader of the build. Started by test_fuzzers.py."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fuzzing import edited, fuzz, mutated

from flydsl_build.bundle.manifest import Manifest, ManifestError

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def test_manifest(manifest: Manifest) -> None:
    def read(text: str | bytes) -> None:
        made = Manifest.from_text(text, where="x.json")
        assert Manifest.from_text(made.to_text(), where="x.json") == made

    text = manifest.to_text()
    read(text)
    values: SearchStrategy[str] = edited(json.loads(text)).map(json.dumps)
    fuzz(values | mutated([text.encode()]), read, (ManifestError,))

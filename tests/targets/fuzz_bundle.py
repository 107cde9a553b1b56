# SPDX-License-Identifier: Apache-2.0
"""Fuzzer of the two readers of offload bundles: the build's, and the loader's. Started by test_fuzzers.py."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from fuzzing import fuzz, mutated

from flydsl_build.runtime.code_objects import bundle_entries, map_code_object
from flydsl_build.runtime.errors import CorruptFileError
from flydsl_build.targets.offload_bundle import HEADER_LIMIT, OffloadBundleError, read_bundle, write_bundle

if TYPE_CHECKING:
    from pathlib import Path

    from flydsl_build.targets.offload_bundle import OffloadBundle


def test_bundle(bundle: OffloadBundle, tmp_path: Path) -> None:
    file = tmp_path / "x.hipfb"

    def read(data: bytes) -> None:
        try:
            strict = {target: (entry.offset, entry.size) for target, entry in read_bundle(data).entries.items()}
        except OffloadBundleError:
            strict = None
        entries = bundle_entries(data[:HEADER_LIMIT], len(data), str(file))
        # What the build takes, the loader reads in the same way.
        assert strict is None or strict == entries
        file.write_bytes(data)
        for target, (offset, size) in entries.items():
            image = data[offset : offset + size]
            assert len(image) == size
            # A manifest that agrees with whatever is there, so that the checks behind the digest are reached.
            digest = hashlib.sha256(image).hexdigest()
            facts = {"offset": offset, "size": size, "sha256": digest, "e_flags": int.from_bytes(image[48:52], "little")}
            assert bytes(map_code_object(str(file), target, facts)) == image
            assert image[:4] == b"\x7fELF"

    read(bundle.data)
    first = next(iter(bundle.entries))
    entry = bundle.entries[first]
    small = write_bundle({first: bundle.data[entry.offset : entry.offset + entry.size]})
    fuzz(mutated([bundle.data, small.data]), read, (CorruptFileError, OffloadBundleError))

# SPDX-License-Identifier: Apache-2.0
"""Disassemble a kernel of a code object with llvm-objdump.

The LLVM inside flydsl has no way in: its library exports MLIR's interface and nothing of LLVM's C interface, and no disassembler is linked
into it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.errors import Fault, ToolchainError
from flydsl_build.toolchain.discovery import rocm_roots

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["disassemble", "find_disassemblers"]

_TOOL = "llvm-objdump"
# The first release that reads code object version 6 and knows generic targets, and one that does not exist yet.
_OLDEST, _NEWEST = 19, 40
_UNDECODED = re.compile(r"^\s*\.long\b", re.MULTILINE)


def find_disassemblers(environ: Mapping[str, str] | None = None, trace: list[str] | None = None) -> Iterator[Path]:
    """Yield every llvm-objdump of ROCm and on PATH; those that cannot be found are recorded in `trace`."""
    environ = os.environ if environ is None else environ
    trace = [] if trace is None else trace
    for how, root in rocm_roots(None, environ):
        path = root / "llvm" / "bin" / _TOOL
        if path.is_file():
            yield path
        else:
            trace.append(f"{how} ({path}): not found")
    folders = environ.get("PATH", os.defpath)
    found = [shutil.which(name, path=folders) for name in (*(f"{_TOOL}-{version}" for version in range(_NEWEST, _OLDEST - 1, -1)), _TOOL)]
    if not any(found):
        trace.append(f"{_TOOL}, {_TOOL}-{_OLDEST} to {_TOOL}-{_NEWEST} on PATH: not found")
    yield from (Path(one) for one in found if one)


def disassemble(data: bytes, *, symbol: str, target: str, environ: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Return the instructions of one kernel, and a warning where they are not to be believed whole, else "".

    FlyDSL's LLVM is newer than any release, and sets bits that older disassemblers take for another instruction: the tool that decodes the
    most is used.

    Parameters
    ----------
    data
        A code object.
    symbol
        The kernel's function in it.

    Raises
    ------
    ToolchainError
        No llvm-objdump was found, or none that knows the target; the message has all that were tried.
    """
    trace: list[str] = []
    best: tuple[int, str, Path] | None = None
    with tempfile.TemporaryDirectory(prefix="flydsl-build-") as folder:
        file = Path(folder, f"{target}.elf")
        file.write_bytes(data)
        for tool in find_disassemblers(environ, trace):
            # The processor is named, because the tool does not say so where it does not know the number in e_flags.
            command = [
                str(tool),
                "--disassemble-symbols=" + symbol,
                f"--mcpu={target}",
                "--no-leading-addr",
                "--no-show-raw-insn",
                str(file),
            ]
            try:
                done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
            except (OSError, subprocess.SubprocessError) as error:
                trace.append(f"{tool}: does not run ({error})")
                continue
            text = done.stdout.partition(f"<{symbol}>:\n")[2]
            if done.returncode == 0 and text.strip() and not re.search(r"not a recognized processor|<unknown>", done.stderr + text):
                unknown = len(_UNDECODED.findall(text))
                if best is None or unknown < best[0]:
                    best = (unknown, text.rstrip() + "\n", tool)
                if not unknown:
                    break
                continue
            said = done.stderr.strip().splitlines()
            trace.append(f"{tool}: cannot disassemble {target}" + (f" ({said[0]})" if said else ""))
    if best is not None:
        unknown, text, used = best
        warning = (
            f"{used} does not know {unknown} instructions (.long), and those after them may be wrong: "
            f"put a newer {_TOOL} on PATH, or build with -C dump-ir=DIR for the ISA"
        )
        return text, warning if unknown else ""
    raise ToolchainError(
        Fault(
            where=f"{symbol}, {target}",
            what=f"no {_TOOL} that knows {target} was found, and FlyDSL's own LLVM has no disassembler that can be called",
            fix=f"install ROCm or a newer LLVM with {_TOOL}, put it on PATH or set ROCM_PATH, or build with -C dump-ir=DIR for the ISA",
            detail="searched:\n" + "\n".join(trace),
        )
    )

# SPDX-License-Identifier: Apache-2.0
"""A result of a job as compile processes give it, for tests that compile nothing."""

from __future__ import annotations

from typing import Any

from flydsl_build.codec import encode
from flydsl_build.jobs.job import CodeObjectBuild, JobResult, SpecializationBuild, Tool

# The content of the files that belong to it.
FILES = {"main.hsaco": b"code", "f.o": b"host"}
RESULT: dict[str, Any] = encode(
    JobResult(
        module="pkg.mod",
        target="gfx942",
        axes=(),
        output="/somewhere",
        doc=None,
        public_names=("f",),
        specializations=(
            SpecializationBuild(
                name="f",
                launcher="f",
                group="main",
                axes=(),
                parameters=(),
                factory_parameters=(),
                params={"N": 1},
                form=None,
                values={},
                attributes={},
                classes={},
                doc=None,
                launcher_doc=None,
                constexpr={},
                arguments={},
                slots=(),
                entry="f_0",
                host_object="f.o",
                kernels=("k",),
                kernel_arguments={"k": (0,)},
                source_file="pkg/mod.py",
                source_line=1,
                seconds=2.0,
            ),
        ),
        code_objects=(CodeObjectBuild(group="main", file="main.hsaco", kernels=("k",)),),
        sources={"pkg/mod.py": "0" * 64},
        distributions={"flydsl": "0.5.0"},
        tools=(Tool(name="flydsl", version="0.5.0", distribution="flydsl"),),
        seconds=2.0,
    )
)

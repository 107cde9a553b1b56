# SPDX-License-Identifier: Apache-2.0
"""The description of a wheel variant, by variantlib. Experimental: PEP 817 and PEP 825 are drafts, and pip knows no variants yet."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING

from flydsl_build.errors import ConfigError, Fault, ToolchainError
from flydsl_build.regular_files import read_regular

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["variant_description"]

# The property by which ROCm's own variants are selected, and the plug-in that knows its value on a machine.
_NAMESPACE, _FEATURE = "amd", "gfx_arch"
_PLUGIN = "amd_variant_provider.plugin:AMDVariantPlugin"
_PLUGIN_REQUIRES = ["amd-variant-provider"]


def variant_description(target: str, project: Path) -> str:
    """Return the content of `variant.json` of a wheel for one target, which is its label.

    A `[variant]` table of the project's pyproject.toml wins over what is known here of the provider.

    Raises
    ------
    ToolchainError
        variantlib is not installed.
    ConfigError
        It refuses the project's `[variant]` table.
    """
    try:
        from variantlib.api import VariantDescription, VariantProperty, make_variant_dist_info
        from variantlib.errors import ValidationError
        from variantlib.models.variant_info import ProviderInfo, VariantInfo
        from variantlib.pyproject_toml import VariantPyProjectToml
    except ImportError as error:
        raise ToolchainError(
            Fault(where="variantlib", what=f"cannot be imported ({error})", fix='pip install "flydsl-build[variants]"')
        ) from None
    try:
        table = tomllib.loads(read_regular(project / "pyproject.toml").decode("utf-8")).get("variant")
        info = VariantInfo() if table is None else VariantPyProjectToml({"variant": table})
        info.providers.setdefault(_NAMESPACE, ProviderInfo(requires=_PLUGIN_REQUIRES, plugin_api=_PLUGIN))
        if _NAMESPACE not in info.namespace_priorities:
            info.namespace_priorities.append(_NAMESPACE)
        described = VariantDescription(properties=[VariantProperty(_NAMESPACE, _FEATURE, target)], label=target)
        text: str = make_variant_dist_info(described, variant_info=info)
    except ValidationError as error:
        raise ConfigError(Fault(where="pyproject.toml: variant", what=f"variantlib refuses it: {error}", fix="correct it")) from None
    return text + "\n"

# SPDX-License-Identifier: Apache-2.0
"""Say of a module that was not found which distribution has it."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import re
import sys
import traceback
from typing import TYPE_CHECKING

from flydsl_build.jobs.author_code import is_own_file

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["distribution_of", "missing_module"]

# Distributions that are not named like what is imported. Upper and lower case, `_` and `-` are the same to installers.
_DISTRIBUTIONS = {
    "Crypto": "pycryptodome",
    "OpenSSL": "pyOpenSSL",
    "PIL": "Pillow",
    "aiter": "amd-aiter",
    "attr": "attrs",
    "bs4": "beautifulsoup4",
    "cv2": "opencv-python",
    "dateutil": "python-dateutil",
    "distutils": "setuptools",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "PyMuPDF",
    "git": "GitPython",
    "google.oauth2": "google-auth",
    "google.protobuf": "protobuf",
    "jwt": "PyJWT",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "nacl": "PyNaCl",
    "pkg_resources": "setuptools",
    "pylab": "matplotlib",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "umap": "umap-learn",
    "usb": "pyusb",
    "yaml": "PyYAML",
    "zmq": "pyzmq",
}
# Packages that no distribution has whole: what is in them is distributed under its full name, where the table above has no other.
_NAMESPACES = {
    "azure",
    "azure.ai",
    "azure.mgmt",
    "azure.storage",
    "backports",
    "google",
    "google.cloud",
    "jaraco",
    "ruamel",
    "sphinxcontrib",
    "zope",
}


def _listed(module: str) -> str | None:
    return next((_DISTRIBUTIONS[name] for name in _packages(module) if name in _DISTRIBUTIONS), None)


def _packages(module: str) -> list[str]:
    """Return a module's name and those of the packages that it is in, the longest first."""
    parts = module.split(".")
    return [".".join(parts[:depth]) for depth in range(len(parts), 0, -1)]


def distribution_of(module: str) -> str | None:
    """Return the distribution that has a module: one that is known, an installed one, else one that is named like the module's package.

    None for a package that no distribution has whole.
    """
    *_, top = packages = _packages(module)
    if _listed(module) or top not in _NAMESPACES:
        return _listed(module) or next(iter(importlib.metadata.packages_distributions().get(top, ())), top)
    whole = [name for name in packages if name not in _NAMESPACES]
    return whole[-1].replace(".", "-") if whole else None


def missing_module(error: BaseException | None, roots: Sequence[str]) -> tuple[str, str] | None:
    """Return what is needed and not there, and what to do, in words; None for any other error.

    Parameters
    ----------
    error
        What the author's code raised.
    roots
        The author's folders.
    """
    if not isinstance(error, ModuleNotFoundError) or not error.name:
        return None
    name = _name_in_source(error) if error.name in _NAMESPACES else error.name
    top, distribution = name.partition(".")[0], distribution_of(name)
    # A stand-in for a module has no place.
    here = _place_of(top)
    if here is not None and any(is_own_file(place, roots) for place in here):
        return f"{name}, which is not in the project", "correct the name, or add the module"
    # What is in a namespace package comes from several distributions.
    if here and top not in _NAMESPACES and (_listed(name) is None or _listed(name) == _listed(top)):
        return f"{name}, which {distribution} as it is installed here does not have", (
            f'correct the name, or require a version of "{distribution}" that has it in build-system.requires in pyproject.toml'
        )
    if top in sys.stdlib_module_names:
        return f"{name}, which this Python does not have", "build with a Python that has all of its standard library"
    if distribution is None:
        fix = f"add the distribution that has what is used of {name} to build-system.requires in pyproject.toml"
        return f"{name}, which is not installed in the build environment", fix
    fix = f'add "{distribution}" to build-system.requires in pyproject.toml'
    if _listed(name) is None and top != "torch":
        fix += ", or the distribution that has it if that is named otherwise"
    return f"{name}, which is not installed in the build environment", fix


def _name_in_source(error: ModuleNotFoundError) -> str:
    """Return the whole name of a module of which Python names the first package that is not there: as the importing line has it."""
    name = error.name or ""
    lines = [frame.line or "" for frame in traceback.extract_tb(error.__traceback__) if "importlib" not in frame.filename]
    found = re.search(rf"\b({re.escape(name)}(?:\.\w+)*)(?:\s+import\s+(\w+))?", lines[-1] if lines else "")
    if found is None:
        return name
    package, inside = found.groups()
    return f"{package}.{inside}" if inside and package in _NAMESPACES else package


def _place_of(top: str) -> list[str] | None:
    """Return the folders or the file of a top-level package or module that can be imported; None without one."""
    try:
        spec = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    return [*(spec.submodule_search_locations or ()), *([spec.origin] if spec.origin else [])]

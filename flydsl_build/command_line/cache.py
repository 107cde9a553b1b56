# SPDX-License-Identifier: Apache-2.0
"""`flydsl-build cache`: what is in the cache of compiled kernels, and how to make it smaller."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from flydsl_build.errors import BuildError, Fault

if TYPE_CHECKING:
    import argparse

    from flydsl_build.cache.folder import CacheFolder
    from flydsl_build.command_line.arguments import Subparsers

__all__ = ["add"]

_UNITS = ("B", "kB", "MB", "GB", "TB")
_STEP = 1000


def add(subparsers: Subparsers) -> None:
    """Register the command."""
    from flydsl_build.command_line.arguments import add_json

    parser = subparsers.add_parser("cache", help="show, prune or clear the cache of compiled kernels")
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    info = actions.add_parser("info", help="show where it is and how large")
    add_json(info)
    info.set_defaults(run=_info)
    prune = actions.add_parser("prune", help="remove what killed builds left and what is over the limit, least recently used first")
    prune.add_argument("--size", metavar="SIZE", help='limit instead of `cache-size`: bytes, or "500 MB"')
    prune.set_defaults(run=_prune)
    clear = actions.add_parser("clear", help="remove everything")
    clear.set_defaults(run=_clear)
    for one in (info, prune, clear):
        one.add_argument("--cache-dir", type=Path, metavar="DIR", help="folder instead of the one that a build here would use")


def _folder(arguments: argparse.Namespace) -> CacheFolder:
    """Return the cache of a build in this folder: by its pyproject.toml, if there is one, and the environment."""
    from flydsl_build.cache.folder import CacheFolder, default_folder
    from flydsl_build.config.settings import Settings, read_settings

    here = Path.cwd()
    try:
        settings = read_settings(here, {}, os.environ, need_archs=False)
    except BuildError:
        # There is no project here, or none that could be built.
        given = os.environ.get("FLYDSL_BUILD_CACHE_DIR")
        settings = Settings(project_dir=here, cache_dir=here / given if given else None)
    try:
        folder = arguments.cache_dir or settings.cache_dir or default_folder()
    except RuntimeError:
        raise BuildError(
            Fault(
                where="cache",
                what="the user has no home folder, so no folder is known",
                fix="set HOME or XDG_CACHE_HOME, or name it: --cache-dir DIR",
            )
        ) from None
    try:
        os.scandir(folder).close()
    except FileNotFoundError:
        pass  # No build has made it yet.
    except OSError as error:
        what = f"cannot be read ({error.strerror or error})"
        raise BuildError(Fault(where=str(folder), what=what, fix="see who may read it, or name another: --cache-dir DIR")) from None
    return CacheFolder(folder, limit=settings.cache_size, say=_say)


def _say(text: str) -> None:
    sys.stderr.write(f"flydsl-build: {text}\n")


def _info(arguments: argparse.Namespace) -> int:
    cache = _folder(arguments)
    info = cache.info()
    if arguments.json:
        from flydsl_build.command_line.arguments import write_json

        write_json(
            {
                "folder": str(cache.folder),
                "size": info.size,
                "limit": cache.limit,
                "jobs": info.requests,
                "files": info.blobs,
                "garbage": info.garbage,
            }
        )
        return 0
    sys.stdout.write(f"folder   {cache.folder}\n")
    sys.stdout.write(f"size     {_size(info.size)} of at most {_size(cache.limit)}\n")
    sys.stdout.write(f"entries  {info.requests} jobs, {info.blobs} files\n")
    if info.garbage:
        sys.stdout.write(f"garbage  {info.garbage} files of builds that were killed, or that run now; `prune` removes the former\n")
    return 0


def _prune(arguments: argparse.Namespace) -> int:
    from flydsl_build.config.kinds import SIZE_WORDS, size_of
    from flydsl_build.toolchain.discovery import remove_abandoned_folders

    limit = None
    if arguments.size is not None:
        limit = 0 if arguments.size.strip() == "0" else size_of(arguments.size)
        if limit is None:
            raise BuildError(Fault(where="--size", what=f'found "{arguments.size}"', fix=f"write {SIZE_WORDS}"))
    cache = _folder(arguments)
    removed = cache.prune(limit)
    sys.stdout.write(f"{_size(removed)} removed, {_size(cache.info().size)} left\n")
    for folder in remove_abandoned_folders():
        sys.stdout.write(f"{folder} removed: the build that made it was killed\n")
    return 0


def _clear(arguments: argparse.Namespace) -> int:
    cache = _folder(arguments)
    sys.stdout.write(f"{_size(cache.clear())} removed\n")
    left = cache.info().size
    if left:
        raise BuildError(Fault(where=str(cache.folder), what=f"{_size(left)} could not be removed", fix="see who may write to the folder"))
    return 0


def _size(size: float) -> str:
    for unit in _UNITS[:-1]:
        if size < _STEP:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= _STEP
    return f"{size:.1f} {_UNITS[-1]}"

# SPDX-License-Identifier: Apache-2.0
"""Results of jobs, kept between builds.

A result is found in two steps, as in ccache's direct mode (https://ccache.dev/manual/latest.html#_the_direct_mode). What is known before
anything is compiled (the job, the compiler, this program, the linker, the device libraries) makes the key of a request. A request has
a list of earlier results, each with the dependencies that its compile process reported: the first whose dependencies are all what
they were is the answer. So nothing of the author's is imported to find out that nothing changed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from flydsl_build import __version__
from flydsl_build.cache.dependencies import Fingerprints
from flydsl_build.cache.folder import CacheFolder, Lock, default_folder
from flydsl_build.cache.records import CompileTime, KeptFiles, KeptResult, PackedResult
from flydsl_build.cache.remote import RemoteCache, require_fsspec
from flydsl_build.codec import DecodeError, encode
from flydsl_build.editable.resolution import digest_of_file
from flydsl_build.jobs.environment import worker_environment
from flydsl_build.jobs.frontend import frontends
from flydsl_build.jobs.results import StoredResult, checked_result, facts_of, files_of, pack_result, stored_result, write_result

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from flydsl_build.config.settings import Settings
    from flydsl_build.jobs.job import Job, Linker, Toolkit

__all__ = ["BuildCache", "compilers_digest", "open_cache", "own_digest", "python_digest", "toolchain_digest"]

# Results of one request: branches of a project that are built by turns.
_RESULTS = 16
# The kind of record that has entries of a class, and its form.
_RECORDS: dict[type, tuple[str, Any]] = {KeptResult: ("requests", tuple[KeptResult, ...]), KeptFiles: ("memos", tuple[KeptFiles, ...])}
_Entry = TypeVar("_Entry", KeptResult, KeptFiles, PackedResult)
# The rooms whose code decides what a job's result is.
_MAKERS = ("config", "declare", "targets", "jobs", "llvm_ir", "toolchain", "cache", "engine", "frontends")


def open_cache(settings: Settings, environ: Mapping[str, str], say: Callable[[str], None]) -> BuildCache:
    """Return the cache that the settings ask for; one that keeps nothing if they ask for none."""
    folder: CacheFolder | None = None
    remote: RemoteCache | None = None
    if settings.cache and settings.dump_ir is None:
        if settings.remote_cache is not None:
            require_fsspec(settings.remote_cache)
            remote = RemoteCache(settings.remote_cache, writes=settings.remote_cache_write, say=say)
        try:
            path = settings.cache_dir or default_folder()
        except RuntimeError:
            say("warning: the user has no home folder, so there is no cache; set HOME, XDG_CACHE_HOME or `cache-dir`")
        else:
            folder = CacheFolder(path, limit=settings.cache_size, say=say)
    return BuildCache(folder, project=settings.project_dir, environ=environ, remote=remote)


class BuildCache:
    """What one build sees of the cache folder, and of the project, which is taken not to change while it is built.

    Parameters
    ----------
    folder
        None keeps nothing.
    environ
        The environment of the build.
    remote
        What is asked for jobs that the folder does not have.
    """

    def __init__(self, folder: CacheFolder | None, *, project: Path, environ: Mapping[str, str], remote: RemoteCache | None = None) -> None:
        self.folder = folder
        self.remote = remote
        # What dependencies are in this build.
        self.fingerprints = Fingerprints(os.path.realpath(project), worker_environment(environ))
        self._toolchain = ""
        self._requests: dict[str, str] = {}
        self._impatient: set[str] = set()

    def close(self) -> None:
        """Bring the folder below its limit."""
        if self.folder is not None:
            self.folder.close()

    # --- jobs ----------------------------------------------------------------------------------------------------------------

    def use_toolchain(self, digest: str) -> None:
        """Set what all jobs are compiled with; see `toolchain_digest`."""
        self._toolchain = digest

    def peek(self, job: Job) -> StoredResult | None:
        """Tell of an earlier result of the job whose dependencies are what they were; its files are nowhere yet, and may be lost."""
        found = self._find(job)
        return None if found is None else self._peeked(job, found)

    def lookup(self, job: Job) -> StoredResult | None:
        """Put an earlier result of the job into its output folder, if its dependencies are what they were then."""
        found = self._find(job)
        return self._peeked(job, found) if found is not None and self._take(job, found) else None

    def _find(self, job: Job) -> KeptResult | None:
        return self._agreeing(self._entries(KeptResult, self._request(job))) if self.folder is not None else None

    def _agreeing(self, entries: Iterable[_Entry]) -> _Entry | None:
        """Return the first entry of a record whose dependencies are what they were."""
        return next((one for one in entries if self.fingerprints.agree(one.dependencies)), None)

    def _entries(self, form: type[_Entry], key: str) -> tuple[_Entry, ...]:
        """Return the entries of a record, latest first; none if there is no such record."""
        assert self.folder is not None
        kind, entries = _RECORDS[form]
        found: tuple[_Entry, ...] | None = self.folder.record(kind, key, entries)
        return found or ()

    @staticmethod
    def _peeked(job: Job, found: KeptResult) -> StoredResult:
        digest = _digest(found.result, found.files)
        return stored_result(job, encode(found), cached=True, digest=digest, dependencies=found.dependencies)

    def _take(self, job: Job, found: KeptResult) -> bool:
        packed, files = self._blobs({"": found.result}), self._blobs(found.files)
        if packed is None or files is None:
            return False
        try:
            checked_result(packed[""], files)
        except DecodeError:
            return False
        write_result(job, packed[""], files)
        return True

    def _blobs(self, digests: Mapping[str, str]) -> dict[str, bytes] | None:
        """Return by name what the folder has under these digests; None if something is lost."""
        assert self.folder is not None
        found: dict[str, bytes] = {}
        for name, digest in digests.items():
            data = self.folder.blob(digest)
            if data is None:
                return None
            found[name] = data
        return found

    def fetch(self, jobs: Mapping[int, Job]) -> Iterator[tuple[int, StoredResult]]:
        """Take results out of the remote cache, and keep them in the folder too; yield those that there are."""
        if self.remote is None or not jobs:
            return
        numbers = {self._request(job): number for number, job in jobs.items()}
        wanted: dict[str, list[tuple[str, PackedResult]]] = {}
        for key, entries in self.remote.records(list(numbers)).items():
            found = self._agreeing(entries)
            if found is not None:
                wanted.setdefault(found.pack, []).append((key, found))
        for digest, result, files in self.remote.packs(list(wanted)):
            for key, one in wanted[digest]:
                yield numbers[key], self._keep(jobs[numbers[key]], result, files, one.dependencies, cached=True)

    def _keep(
        self,
        job: Job,
        result: dict[str, Any],
        files: Mapping[str, bytes],
        dependencies: Mapping[str, str | None] | None,
        *,
        cached: bool,
    ) -> StoredResult:
        """Write a result into the job's output folder; add it to the folder of the cache, if its dependencies are known."""
        packed = pack_result(result)
        write_result(job, packed, files)
        kept = {name: _digest_of(data) for name, data in files.items()}
        facts = facts_of(result)
        if self.folder is not None and dependencies is not None:
            for data in (packed, *files.values()):
                self.folder.add_blob(data)
            facts_kept = {name: tuple(value) for name, value in facts.items()}
            entry = KeptResult(dependencies=dict(dependencies), result=_digest_of(packed), files=kept, **facts_kept)
            self._add(self._request(job), entry)
        return stored_result(job, facts, cached=cached, digest=_digest(_digest_of(packed), kept), dependencies=dependencies)

    def settle(self) -> None:
        """Wait until the remote cache has what was put there."""
        if self.remote is not None:
            self.remote.finish()

    def store(self, job: Job, result: dict[str, Any], dependencies: Mapping[str, str | None] | None) -> StoredResult:
        """Keep a fresh result.

        Parameters
        ----------
        result
            The JSON form of a JobResult without faults, whose files are in the job's output folder.
        dependencies
            None if they are not known; the result then serves this build alone.
        """
        if self.folder is not None:
            known = CompileTime(seconds=result["seconds"], specializations=len(job.specializations))
            self.folder.set_record("memos", self._times_key(job), known)
        files = {name: Path(job.output, name).read_bytes() for name in files_of(result)}
        stored = self._keep(job, result, files, dependencies, cached=False)
        if self.remote is not None and dependencies is not None:
            self.remote.write(self._request(job), dependencies, stored.file, list(files))
        return stored

    def try_lock(self, job: Job) -> Lock | None:
        """Return the right to compile the job; None if another build is at it."""
        if self.folder is None or job.output in self._impatient:
            return Lock(None)
        return self.folder.try_lock(self._request(job))

    def give_up_lock(self, job: Job) -> None:
        """Do not wait for another build any longer: from now on there is always a lock for this job."""
        self._impatient.add(job.output)

    def seconds(self, job: Job) -> float | None:
        """Return how long the job will take, going by the last time that it was compiled; None if it never was."""
        if self.folder is None:
            return None
        known: CompileTime | None = self.folder.record("memos", self._times_key(job), CompileTime)
        return None if known is None else known.seconds / max(1, known.specializations) * len(job.specializations)

    def _request(self, job: Job) -> str:
        if job.output not in self._requests:
            self._requests[job.output] = _digest(self._toolchain, compilers_digest([job.frontend]), _request_of(job))
        return self._requests[job.output]

    @staticmethod
    def _times_key(job: Job) -> str:
        return _digest("seconds", job.module, job.target, job.axes)

    # --- small things --------------------------------------------------------------------------------------------------------

    def recall(self, *key: Any) -> bytes | None:
        """Return what was remembered under these JSON values, if what it depends on is what it was."""
        files = self.recall_files(*key)
        return None if files is None else files.get("")

    def remember(self, data: bytes, *key: Any, dependencies: Mapping[str, str | None] | None = None) -> None:
        """Keep data that follows from these JSON values and the dependencies."""
        self.remember_files({"": data}, *key, dependencies=dependencies)

    def recall_files(self, *key: Any) -> dict[str, bytes] | None:
        """Return several things that were remembered together; see `recall`."""
        if self.folder is None:
            return None
        found = self._agreeing(self._entries(KeptFiles, _digest("memo", *key)))
        return None if found is None else self._blobs(found.files)

    def remember_files(self, files: Mapping[str, bytes], *key: Any, dependencies: Mapping[str, str | None] | None = None) -> None:
        """Keep several things together; see `remember`."""
        if self.folder is not None:
            kept = {name: self.folder.add_blob(data) for name, data in files.items()}
            self._add(_digest("memo", *key), KeptFiles(dependencies=dict(dependencies or {}), files=kept))

    def _add(self, key: str, entry: KeptResult | KeptFiles) -> None:
        assert self.folder is not None
        kind, entries = _RECORDS[type(entry)]
        known = self.folder.record(kind, key, entries) or ()
        others = [one for one in known if one.dependencies != entry.dependencies]
        self.folder.set_record(kind, key, [entry, *others][:_RESULTS])


def _digest_of(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _digest(*values: Any) -> str:
    return hashlib.sha256(json.dumps(values, separators=(",", ":")).encode()).hexdigest()


def _request_of(job: Job) -> dict[str, Any]:
    """Return the job without what does not show in its result: places, and targets other than its own."""
    specializations = []
    for one in job.specializations:
        data = {name: value for name, value in encode(one).items() if name not in {"where", "targets"}}
        specializations.append({**data, "options": one.options.for_target(job.target).to_json()})
    return {
        "module": job.module,
        "target": job.target,
        "axes": job.axes,
        "environment": job.environment,
        "externs": [[one.symbol, one.bitcode, one.globals, one.init, one.compatible] for one in job.externs],
        "specializations": specializations,
    }


# --- what all jobs of a build are compiled with ------------------------------------------------------------------------------


def toolchain_digest(toolkit: Toolkit, linker: Linker, *, project: Path, package_roots: Sequence[str]) -> str:
    """Return a digest over everything besides the job, its compiler and the author's files that code objects depend on."""
    bitcode = _folder_digest(Path(toolkit.folder, "amdgcn", "bitcode"))
    return _digest(python_digest(project=project, package_roots=package_roots), linker.version, linker.identity, bitcode)


def python_digest(*, project: Path, package_roots: Sequence[str]) -> str:
    """Return a digest over what a process has that imports the author's modules, besides these and compilers."""
    roots = [os.path.relpath(os.path.realpath(root), os.path.realpath(project)) for root in package_roots]
    return _digest(__version__, own_digest(), sys.implementation.cache_tag, roots)


def compilers_digest(names: Iterable[str]) -> str:
    """Return a digest over the compilers of the front ends of these names."""
    return _digest([[one.name, one.digest()] for one in frontends(names)])


@functools.cache
def own_digest() -> str:
    """Return a digest over the part of this program that makes results."""
    package = Path(__file__).resolve().parents[1]
    rooms = (package / room for room in _MAKERS)
    files = [*package.glob("*.py"), package / "editable" / "resolution.py", *(file for room in rooms for file in room.rglob("*.py"))]
    return _digest([[str(file.relative_to(package)), digest_of_file(file)] for file in sorted(files)])


def _folder_digest(folder: Path) -> str:
    return _digest([[path.name, digest_of_file(path)] for path in sorted(folder.glob("*"))])

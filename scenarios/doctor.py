"""``aftershock doctor``: what this machine permits, and which scenarios that costs."""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import psutil

from chaos.exits import UsageError
from chaos.ledger import check_registry, registry
from chaos.version import untested, versions
from scenarios.scenario import Scenario, all_scenarios

CORES = 2
MEMORY_GIB = 6
MONITOR_GIB = 12
SHARED_MIB = 700
FILES = 1024
KERNEL_OF_EXIT_CODES = (6, 15)
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


class Finding(msgspec.Struct, frozen=True):
    """One thing that scenarios need. ``state``: ok, limited or missing."""

    name: str
    state: str
    seen: str
    remedy: str = ""


def _finding(name: str, good: bool, seen: str, remedy: str, otherwise: str = "missing") -> Finding:
    return Finding(name, "ok" if good else otherwise, seen, "" if good else remedy)


def platform_() -> Finding:
    """Linux, since pids, signals and namespaces are used."""
    seen = f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    return _finding("platform", sys.platform == "linux", seen, "use a Linux machine, or a Linux container")


def packages() -> Finding:
    """The versions of Ray and torch, against those tested."""
    odd = untested()
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    return _finding("packages", not odd, found, "; ".join(odd), "limited")


def cores() -> Finding:
    """Processor cores: every process of a job imports torch."""
    count = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else os.cpu_count() or 1
    return _finding("cores", count >= CORES, f"{count}", f"{CORES} or more, else set longer --deadline", "limited")


def memory() -> Finding:
    """Memory that is free: any run needs some, the memory monitor's scenario more."""
    free = psutil.virtual_memory().available / 2**30
    good = free >= MONITOR_GIB
    state = "limited" if free >= MEMORY_GIB else "missing"
    remedy = f"a run needs {MEMORY_GIB} GiB, oom-worker {MONITOR_GIB}"
    return _finding("memory", good, f"{free:.1f} GiB available", remedy, state)


def shared_memory() -> Finding:
    """Room in /dev/shm for the object stores of a head and two nodes."""
    free = shutil.disk_usage("/dev/shm").free >> 20 if Path("/dev/shm").is_dir() else 0
    remedy = f"{SHARED_MIB} MiB, as with docker run --shm-size=1g"
    return _finding("shared-memory", free >= SHARED_MIB, f"{free} MiB free in /dev/shm", remedy)


def files() -> Finding:
    """Open files that a process may have."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _finding("open-files", soft >= FILES, f"{soft} for each process", f"ulimit -n {FILES}", "limited")


def ports() -> Finding:
    """Free ports on loopback addresses of nodes' own."""
    try:
        with socket.socket() as one:
            one.bind(("127.77.77.77", 0))
        return Finding("ports", "ok", "any loopback address takes a free port")
    except OSError as error:
        return Finding("ports", "missing", f"127.77.77.77: {error.strerror}", "allow binding to all of 127.0.0.0/8")


def workspace() -> Finding:
    """The directory for clusters' working files, short enough for Ray's sockets."""
    try:
        check_registry()
    except UsageError as error:
        return Finding("workspace", "missing", str(registry()), str(error))
    return Finding("workspace", "ok", str(registry()))


def exit_causes() -> Finding:
    """Whether the kernel tells how a process ended that is not our child."""
    release = tuple(int(part) for part in re.findall(r"\d+", platform.release())[:2])
    seen = f"Linux {platform.release()}"
    remedy = "Linux 6.15 tells the cause of a process's end; before it, that it ended is all that is confirmed"
    return _finding("exit-causes", release >= KERNEL_OF_EXIT_CODES, seen, remedy, "limited")


def root() -> Finding:
    """Privileges for network namespaces and mounts."""
    seen = f"uid {os.getuid()}"
    return _finding("root", os.getuid() == 0, seen, "only needed for partitions and full disks", "limited")


def ptrace() -> Finding:
    """Whether stacks and system calls of processes that are not our children may be traced."""
    scope = YAMA.read_text().strip() if YAMA.exists() else "0"
    good = os.getuid() == 0 or scope == "0"
    return _finding("ptrace", good, f"ptrace_scope {scope}", "root, or sysctl kernel.yama.ptrace_scope=0", "limited")


def _tool(name: str, purpose: str) -> Callable[[], Finding]:
    def look() -> Finding:
        path = shutil.which(name)
        return _finding(name, path is not None, path or "not found", f"install {name}: {purpose}", "limited")

    return look


EXAMINATIONS: tuple[Callable[[], Finding], ...] = (
    platform_, packages, cores, memory, shared_memory, files, ports, workspace, exit_causes, root, ptrace,
    _tool("strace", "crash points inside a write"),
)  # fmt: skip


class Diagnosis(msgspec.Struct, frozen=True):
    """All findings, and what the missing ones cost. ``cannot_run``: scenario -> the needs that this machine lacks."""

    findings: list[Finding]
    cannot_run: dict[str, list[str]]

    @property
    def well(self) -> bool:
        """Whether nothing that every run needs is missing."""
        return all(finding.state != "missing" for finding in self.findings)


def examine() -> Diagnosis:
    """Look at this machine; starts nothing."""
    findings = [look() for look in EXAMINATIONS]
    lacking = {finding.name for finding in findings if finding.state != "ok"}
    known = {name: s for name, s in all_scenarios().items() if isinstance(s, Scenario)}
    cost = {name: sorted(set(s.needs) & lacking) for name, s in known.items()}
    return Diagnosis(findings, {name: needs for name, needs in cost.items() if needs})


def require(scenario: Scenario) -> None:
    """Refuse a scenario that this machine does not permit.

    Raises UsageError naming what is missing and the way out.
    """
    for reason in lacking([scenario]).values():
        raise UsageError(f"{scenario.name} cannot run here: {reason}")


def lacking(scenarios: Sequence[Scenario]) -> dict[str, str]:
    """Those of the scenarios that this machine does not permit, by name, with what is missing and the way out."""
    bad = {f.name: f for f in examine().findings if f.state != "ok"} if any(s.needs for s in scenarios) else {}
    missed = {s.name: [bad[need] for need in s.needs if need in bad] for s in scenarios}
    return {name: f"{found[0].name}: {found[0].seen}; {found[0].remedy}" for name, found in missed.items() if found}

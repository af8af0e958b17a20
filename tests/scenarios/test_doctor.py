"""``aftershock doctor``: each examination answers, with a remedy where one is needed, and says what it costs."""

from __future__ import annotations

import dataclasses
import json
import socket
from types import SimpleNamespace

import pytest

from chaos.exits import ExitCode, UsageError
from scenarios import doctor
from scenarios.scenario import Scenario, all_scenarios, find
from scenarios.view import STATES

NEEDY = {name: s.needs for name, s in all_scenarios().items() if isinstance(s, Scenario) and s.needs}
GIB = 2**30


@pytest.fixture
def free(monkeypatch):
    """This machine has so much memory available, GiB."""

    def set_to(gib):
        monkeypatch.setattr("scenarios.doctor.psutil.virtual_memory", lambda: SimpleNamespace(available=gib * GIB))

    return set_to


@pytest.fixture
def linux(monkeypatch):
    """This machine runs that release of Linux."""
    return lambda release: monkeypatch.setattr("scenarios.doctor.platform.release", lambda: release)


# Each examination


def is_told(finding):
    assert finding.state in STATES
    assert finding.name
    assert finding.seen
    assert (finding.remedy == "") == (finding.state == "ok"), finding


@pytest.mark.parametrize("look", doctor.EXAMINATIONS, ids=lambda look: look.__name__)
def test_every_examination_answers_with_a_remedy_where_something_is_wrong(look):
    is_told(look())


def test_every_examination_has_a_name_of_its_own():
    names = [look().name for look in doctor.EXAMINATIONS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("gib", "state"), [(64, "ok"), (12, "ok"), (11.9, "limited"), (6, "limited"), (5.9, "missing")]
)
def test_memory_is_missing_only_below_what_every_run_needs(free, gib, state):
    free(gib)
    finding = doctor.memory()
    is_told(finding)
    assert (finding.state, finding.seen) == (state, f"{gib:.1f} GiB available")


@pytest.mark.parametrize(
    ("release", "state"),
    [("6.18.44-fc-v782", "ok"), ("6.15.0", "ok"), ("7.0", "ok"), ("6.14.9-generic", "limited"), ("5.4.0-1", "limited")],
)
def test_causes_of_exits_are_told_from_linux_6_15_on(linux, release, state):
    linux(release)
    finding = doctor.exit_causes()
    is_told(finding)
    assert finding.state == state


@pytest.mark.parametrize(("count", "state"), [(1, "limited"), (2, "ok"), (64, "ok")])
def test_cores_are_those_that_this_process_may_use(monkeypatch, count, state):
    monkeypatch.setattr("psutil.Process.cpu_affinity", lambda process: list(range(count)))
    is_told(doctor.cores())
    assert doctor.cores().state == state


@pytest.mark.parametrize(("limit", "state"), [(1023, "limited"), (1024, "ok")])
def test_open_files_are_those_of_the_soft_limit(monkeypatch, limit, state):
    monkeypatch.setattr("scenarios.doctor.resource.getrlimit", lambda which: (limit, 1 << 20))
    is_told(doctor.files())
    assert doctor.files().state == state


@pytest.mark.parametrize(("mib", "state"), [(64, "missing"), (700, "ok")])
def test_shared_memory_must_hold_the_object_stores(monkeypatch, mib, state):
    monkeypatch.setattr("scenarios.doctor.shutil.disk_usage", lambda path: SimpleNamespace(free=mib << 20))
    is_told(doctor.shared_memory())
    assert doctor.shared_memory().state == state


@pytest.mark.parametrize(("uid", "state"), [(0, "ok"), (1000, "limited")])
def test_without_root_some_things_are_out_of_reach_and_nothing_is_missing(monkeypatch, uid, state):
    monkeypatch.setattr("os.getuid", lambda: uid)
    is_told(doctor.root())
    assert doctor.root().state == state


@pytest.mark.parametrize(("scope", "uid", "state"), [("0", 1000, "ok"), ("1", 1000, "limited"), ("3", 0, "ok")])
def test_tracing_is_allowed_to_root_or_by_the_kernels_setting(monkeypatch, place, scope, uid, state):
    (place / "scope").write_text(f"{scope}\n")
    monkeypatch.setattr(doctor, "YAMA", place / "scope")
    monkeypatch.setattr("os.getuid", lambda: uid)
    is_told(doctor.ptrace())
    assert (doctor.ptrace().state, doctor.ptrace().seen) == (state, f"ptrace_scope {scope}")


def test_addresses_that_cannot_be_bound_are_told(monkeypatch):
    def refuse(self, address):
        raise OSError(99, "Cannot assign requested address")

    monkeypatch.setattr(socket.socket, "bind", refuse)
    finding = doctor.ports()
    is_told(finding)
    assert (finding.state, finding.seen) == ("missing", "127.77.77.77: Cannot assign requested address")


def test_untested_versions_are_told(monkeypatch):
    monkeypatch.setattr("scenarios.doctor.untested", lambda: ["ray 9.9 is installed", "torch 9.9 is installed"])
    finding = doctor.packages()
    assert (finding.state, finding.remedy) == ("limited", "ray 9.9 is installed; torch 9.9 is installed")


def test_a_tool_that_is_not_there_is_told_with_its_purpose(monkeypatch):
    monkeypatch.setattr("scenarios.doctor.shutil.which", lambda name: None)
    finding = next(found for look in doctor.EXAMINATIONS if (found := look()).name == "strace")
    assert (finding.state, finding.seen) == ("limited", "not found")
    assert finding.remedy.startswith("install strace: ")


def test_a_working_directory_that_is_too_deep_for_sockets_is_missing(place, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(place / ("d" * 100)))
    finding = doctor.workspace()
    is_told(finding)
    assert finding.state == "missing"
    assert "set TMPDIR to a short directory of your own" in finding.remedy


def test_a_short_working_directory_is_well(short_registry):
    assert doctor.workspace().state == "ok"


# What it costs


def test_what_scenarios_need_is_examined():
    known = {look().name for look in doctor.EXAMINATIONS}
    assert NEEDY
    assert {need for needs in NEEDY.values() for need in needs} <= known


def test_a_machine_with_everything_can_run_every_scenario(free, short_registry):
    free(64)
    assert doctor.examine().cannot_run == {}


@pytest.mark.parametrize("gib", [8, 2])
def test_a_need_that_is_limited_or_missing_costs_the_scenarios_that_name_it(free, gib):
    free(gib)
    assert doctor.examine().cannot_run == {name: ["memory"] for name, needs in NEEDY.items() if "memory" in needs}


def test_only_what_is_missing_makes_a_machine_unwell():
    def diagnosis(*states):
        return doctor.Diagnosis([doctor.Finding(str(i), state, "seen") for i, state in enumerate(states)], {})

    assert diagnosis().well
    assert diagnosis("ok", "limited").well
    assert not diagnosis("ok", "limited", "missing").well


def test_a_scenario_that_this_machine_does_not_permit_is_refused_with_the_way_out(free):
    free(8)
    with pytest.raises(
        UsageError, match=r"oom-worker cannot run here: memory: 8.0 GiB available; a run needs 6 GiB, oom-worker 12"
    ):
        doctor.require(find("oom-worker"))
    doctor.require(find("kill-worker"))
    free(64)
    doctor.require(find("oom-worker"))


def test_of_several_scenarios_those_that_cannot_run_are_told_with_the_first_thing_missing(free):
    free(8)
    told = "memory: 8.0 GiB available; a run needs 6 GiB, oom-worker 12"
    assert doctor.lacking([find("kill-worker"), find("oom-worker"), find("segfault")]) == {"oom-worker": told}
    needs_two = dataclasses.replace(find("kill-worker"), name="needy", needs=("platform", "memory"))
    assert doctor.lacking([needs_two]) == {"needy": told}
    free(64)
    assert doctor.lacking([find("oom-worker"), needs_two]) == {}


def test_for_scenarios_that_need_nothing_the_machine_is_not_even_looked_at(monkeypatch):
    monkeypatch.setattr(doctor, "EXAMINATIONS", ())
    assert doctor.lacking([find("kill-worker"), find("segfault")]) == {}
    assert doctor.lacking([]) == {}


def test_the_command_refuses_it_too_and_starts_nothing(command, free, place):
    free(8)
    result = command("run", "oom-worker")
    assert (result.exit_code, result.stdout) == (ExitCode.USAGE, "")
    assert result.stderr.startswith("aftershock: oom-worker cannot run here: memory: ")
    assert not (place / "runs").exists()
    assert command("run", "oom-worker", "--dry-run").exit_code == ExitCode.PASS


# The command


def test_the_command_shows_every_finding_and_exits_with_0_where_nothing_is_missing(command, free, short_registry):
    free(8)
    result = command("doctor")
    lines = result.stdout.splitlines()
    assert result.exit_code == ExitCode.PASS
    assert max(map(len, lines)) <= 100
    shown = [line.split()[0] for line in lines if line.strip() and not line.startswith(" ")]
    assert shown[0] == "need"
    assert [look().name for look in doctor.EXAMINATIONS] == [word for word in shown[1:] if word not in NEEDY]
    assert "oom-worker cannot run here: memory" in lines


def test_the_command_exits_with_1_where_something_that_every_run_needs_is_missing(command, free, short_registry):
    free(1)
    result = command("doctor")
    assert result.exit_code == ExitCode.FAIL
    assert "missing" in result.stdout


def test_the_command_prints_the_same_as_json(command, free, short_registry):
    free(8)
    result = command("doctor", "--json")
    told = json.loads(result.stdout)
    assert result.exit_code == ExitCode.PASS
    assert [finding["name"] for finding in told["findings"]] == [look().name for look in doctor.EXAMINATIONS]
    assert all((finding["remedy"] == "") == (finding["state"] == "ok") for finding in told["findings"])
    assert told["cannot_run"] == {name: ["memory"] for name in NEEDY}


def test_the_examination_starts_nothing_and_leaves_no_run(command, place):
    command("doctor")
    assert [path.name for path in place.rglob("*") if not path.name.startswith("aftershock-")] == []

"""The nodes of a local cluster, lost, brought back, added and drained; small programs stand in for Ray's processes."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from chaos import process as processes
from chaos.agent.plan import NODE
from chaos.cluster import local
from chaos.cluster.local import ClusterFailed, Node
from chaos.ledger import Account
from chaos.process import MARKER, Identity, session_of

INHABITANTS = f"""
import os, subprocess, sys, time
run, file = sys.argv[1:]
plain = {{key: value for key, value in os.environ.items() if key != "{MARKER}"}}

def start(environment, stdin):
    quiet = dict(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/")
    return subprocess.Popen(["sleep", "60"], env=environment, stdin=stdin, **quiet).pid

nothing = subprocess.DEVNULL
print(start({{**plain, "{MARKER}": run}}, nothing), start(plain, open(file)), start(plain, nothing), flush=True)
time.sleep(60)
"""
"""A session of four: one process with the run's marker, one with a file of its workspace, and two without a proof."""

RAY = """#!/bin/sh
echo "$@" >> {here}/calls
case "$*" in
*scripts.scripts*)
  env > {here}/environment
  if [ -e {here}/broken ]; then echo "no port left"; exit 1; fi
  while [ -e {here}/slow ]; do sleep 0.01; done
  {here}/raylet 60 &
  until [ "$(cat /proc/$!/comm)" = raylet ]; do :; done ;;
*cluster.members*)
  if [ -e {here}/scattered ]; then echo "alive are few" >&2; exit 1; fi
  shift 5
  for each in "$@"; do all="$all, \\"$each\\": \\"id of $each\\""; done
  echo "{{${{all#, }}}}" ;;
*cluster.drain*)
  if [ -e {here}/broken ]; then echo "not now" >&2; exit 1; fi
  if [ -e {here}/slow ]; then exec sleep 60; fi ;;
*cluster.health*)
  echo '{{}}' ;;
esac
"""
"""What ``ray start`` and our questions to the GCS do, without Ray."""


class Ray:
    """The stand-in: what it was asked, and what it shall fail at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def be(self, *marks: str) -> None:
        for mark in ("broken", "slow", "scattered"):
            (self.folder / mark).unlink(missing_ok=True)
        for mark in marks:
            (self.folder / mark).touch()

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines() if (self.folder / "calls").exists() else []

    @property
    def environment(self) -> dict[str, str]:
        lines = (self.folder / "environment").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines if "=" in line)


@pytest.fixture
def ray(tmp_path, cluster, monkeypatch):
    """A cluster that is up on the stand-in's processes."""
    folder = tmp_path / "ray"
    folder.mkdir()
    shutil.copy(shutil.which("sleep"), folder / "raylet")
    (folder / "python").write_text(RAY.format(here=folder))
    (folder / "python").chmod(0o755)
    monkeypatch.setattr(local, "sys", SimpleNamespace(executable=str(folder / "python")))
    monkeypatch.setattr(local, "LOOK_S", 0.005)
    cluster.address = "127.0.0.1:6379"
    for node in cluster.nodes:
        up(cluster, node)
    (folder / "calls").write_text("")
    yield Ray(folder)
    for node in cluster.nodes:
        node.starter.kill()
        node.starter.wait()


def up(cluster, node):
    cluster._spawn(node)
    assert node.starter.wait(10) == 0


def wait_for(steps):
    """Go through what is under way, with its pauses."""
    for pause in steps:
        time.sleep(pause)


def of_kind(told, kind):
    return [event.data for event in told if event.kind == kind]


# A node and its lives


@pytest.mark.parametrize(("lives", "name"), [(0, "w1"), (1, "w1"), (2, "w1.2"), (3, "w1.3")])
def test_each_life_of_a_node_has_a_folder_and_a_log_of_its_own(lives, name) -> None:
    node = Node("w1", "127.0.0.1", 1, Path("/workspace"), lives=lives)
    assert (node.folder, node.log) == (Path("/workspace", name), Path("/workspace", f"{name}.log"))


def test_a_cluster_has_a_head_without_cpus_and_its_nodes_by_name(cluster) -> None:
    assert [(node.name, node.cpus, dict(node.labels)) for node in cluster.nodes] == [
        ("head", 0, {}), ("w0", 3, {}), ("w1", 3, {"zone": "b", "spot": "yes"}),
    ]  # fmt: skip
    assert cluster.node("w1") is cluster.nodes[2]
    ends = [node.address.rsplit(".", 1)[1] for node in cluster.nodes]
    assert (ends, len({node.address.rsplit(".", 1)[0] for node in cluster.nodes})) == (["10", "11", "12"], 1)


# Losing a node


@pytest.fixture
def inhabited(cluster, python, run_id):
    """Node w0 as a session of four processes: leader, marked one, holder of a file, stranger; by their identities."""
    (cluster.workspace / "log").touch()
    leader = python(INHABITANTS, run_id, cluster.workspace / "log")
    cluster.node("w0").starter = leader
    return [Identity.of(int(pid)) for pid in (leader.pid, *leader.stdout.readline().split())]


def test_exactly_the_processes_of_the_session_that_are_provably_ours_are_killed(
    cluster, inhabited, spawn, marked, told
) -> None:
    leader, with_marker, with_file, stranger = inhabited
    elsewhere = Identity.of(spawn(env=marked).pid)
    assert {session_of(p.pid) for p in inhabited} == {leader.pid}
    assert set(cluster.node("w0").processes()) == {with_marker, with_file}
    assert cluster.lose("w0") == 2
    assert [p.alive() for p in (with_marker, with_file)] == [False, False]
    assert [p.alive() for p in (leader, stranger, elsewhere)] == [True, True, True]
    assert cluster.node("w0").lost
    (lost,) = of_kind(told, "cluster.node.lost")
    assert (lost["name"], lost["processes"], lost["session"]) == ("w0", 2, leader.pid)


def test_a_stopped_process_of_a_node_is_killed_too(cluster, inhabited, stop) -> None:
    _, with_marker, *_ = inhabited
    with_marker.send(signal.SIGSTOP)
    assert cluster.lose("w0") == 2


def test_a_node_whose_processes_are_gone_is_lost_without_a_kill(cluster, inhabited, told) -> None:
    cluster.lose("w0")
    assert cluster.lose("w0") == 0
    assert [data["processes"] for data in of_kind(told, "cluster.node.lost")] == [2, 0]


def test_what_survives_is_an_error_and_the_node_is_not_lost(cluster, inhabited, monkeypatch, told) -> None:
    monkeypatch.setattr(local, "LOSE_TIMEOUT_S", 0.05)
    monkeypatch.setattr(Identity, "send", lambda self, number: True)
    with pytest.raises(TimeoutError, match=rf"still alive on node w0 after SIGKILL: .*{inhabited[1].pid}"):
        cluster.lose("w0")
    assert not cluster.node("w0").lost
    assert of_kind(told, "cluster.node.lost") == []


def test_a_pid_that_changes_hands_after_the_look_is_not_killed(cluster, inhabited, monkeypatch) -> None:
    """The identity is taken before the proof, so what is signalled is never younger than what was proven."""
    order, identity, proof = [], Identity.of, processes.carries_marker
    monkeypatch.setattr(Identity, "of", lambda pid: order.append(("identity", pid)) or identity(pid))
    monkeypatch.setattr(processes, "carries_marker", lambda pid, run: order.append(("proof", pid)) or proof(pid, run))
    assert inhabited[1] in cluster.node("w0").processes()
    assert order.index(("identity", inhabited[1].pid)) < order.index(("proof", inhabited[1].pid))


# The raylet


def test_the_raylet_of_a_node_is_the_one_of_its_own_session(cluster, ray) -> None:
    found = [cluster.raylet(node.name) for node in cluster.nodes]
    assert len(set(found)) == 3
    assert [session_of(raylet.pid) for raylet in found] == [node.starter.pid for node in cluster.nodes]
    found[1].send(signal.SIGKILL)
    assert cluster.raylet("w0") is None
    assert cluster.raylet("w1") == found[2]


def test_a_process_of_another_name_is_no_raylet(cluster, inhabited) -> None:
    assert cluster.raylet("w0") is None


# Joining


def test_a_lost_node_comes_back_under_its_address_in_a_folder_of_its_own(cluster, ray, told) -> None:
    node, address = cluster.node("w1"), cluster.node("w1").address
    node.node_id = "before"
    cluster.lose("w1")
    wait_for(cluster.join("w1"))
    assert (node.address, node.lives, node.lost, node.folder.name) == (address, 2, False, "w1.2")
    (call,) = ray.calls
    assert {f"--node-ip-address={address}", "--num-cpus=3", f"--temp-dir={node.folder}"} <= set(call.split())
    assert "--address=127.0.0.1:6379 --labels zone=b,spot=yes" in call
    assert (ray.environment[NODE], ray.environment[MARKER]) == ("w1", cluster.ledger.run_id)
    assert node.starter.pid in Account.read(cluster.ledger.path).sessions
    assert cluster.raylet("w1") is not None
    lost, told_up = of_kind(told, "cluster.node.lost")[-1], of_kind(told, "cluster.node.up")[-1]
    assert (lost["node_id"], told_up["name"]) == ("before", "w1")
    assert "node_id" not in told_up, "Ray gives it another one, which is not known yet"


def test_joining_is_over_when_the_node_has_started_and_not_before(cluster, ray, told) -> None:
    cluster.lose("w0")
    ray.be("slow")
    steps = cluster.join("w0")
    assert [next(steps) for _ in range(3)] == [0.005] * 3
    assert of_kind(told, "cluster.node.start")[-1]["name"] == "w0"
    assert of_kind(told, "cluster.node.up") == []
    ray.be()
    wait_for(steps)
    assert [up["name"] for up in of_kind(told, "cluster.node.up")] == ["w0"]


def test_without_a_name_the_node_lost_last_joins_then_a_further_one(cluster, ray) -> None:
    cluster.lose("w1")
    cluster.lose("w0")
    for name, lives in [("w0", 2), ("w1", 2), ("w2", 1), ("w3", 1)]:
        wait_for(cluster.join())
        assert (cluster.node(name).lives, cluster.raylet(name) is not None) == (lives, True)
    assert [node.name for node in cluster.nodes] == ["head", "w0", "w1", "w2", "w3"]
    assert len({node.address for node in cluster.nodes}) == 5
    assert cluster.node("w3").cpus == 3


def test_a_node_that_does_not_start_is_an_error_with_its_last_words(cluster, ray, told) -> None:
    cluster.lose("w1")
    ray.be("broken")
    with pytest.raises(ClusterFailed, match=r"(?s)node w1 at 127\.[\d.]+ did not start:\nno port left"):
        wait_for(cluster.join("w1"))
    assert of_kind(told, "cluster.node.up") == []


def test_a_node_that_takes_too_long_is_an_error(cluster, ray, monkeypatch) -> None:
    cluster.lose("w1")
    ray.be("slow")
    monkeypatch.setattr(local, "START_TIMEOUT_S", 0.1)
    with pytest.raises(ClusterFailed, match="node w1"):
        wait_for(cluster.join("w1"))


# Restoring


def members(ray):
    """The addresses that the GCS was asked for, by question."""
    return [call.split()[5:] for call in ray.calls if "cluster.members" in call]


def test_restoring_starts_what_is_lost_and_waits_for_exactly_the_nodes_there_are(cluster, ray, told) -> None:
    kept = [node.starter.pid for node in cluster.nodes[:2]]
    cluster.lose("w1")
    cluster.restore()
    assert [node.lives for node in cluster.nodes] == [1, 1, 2]
    assert [node.starter.pid for node in cluster.nodes[:2]] == kept
    assert members(ray) == [[node.address for node in cluster.nodes]]
    assert [node.node_id for node in cluster.nodes] == [f"id of {node.address}" for node in cluster.nodes]
    assert all(cluster.raylet(node.name) for node in cluster.nodes)
    assert len(of_kind(told, "cluster.node.lost")) == 1


def test_restoring_a_whole_cluster_only_asks(cluster, ray) -> None:
    cluster.restore()
    assert [node.lives for node in cluster.nodes] == [1, 1, 1]
    assert len(ray.calls) == len(members(ray)) == 1


def test_a_node_that_ray_gave_up_is_ended_and_started_again(cluster, ray, told) -> None:
    """Its raylet ends by itself, since others were told that it is dead; its workers may linger."""
    raylet = cluster.raylet("w0")
    raylet.send(signal.SIGKILL)
    cluster.restore()
    assert [node.lives for node in cluster.nodes] == [1, 2, 1]
    assert cluster.raylet("w0") not in (None, raylet)
    assert [lost["name"] for lost in of_kind(told, "cluster.node.lost")] == ["w0"]


def test_a_node_whose_start_failed_is_started_again(cluster, ray) -> None:
    cluster.lose("w1")
    ray.be("broken")
    with pytest.raises(ClusterFailed):
        wait_for(cluster.join("w1"))
    ray.be()
    cluster.restore()
    assert (cluster.node("w1").lives, cluster.raylet("w1") is not None) == (3, True)


@pytest.mark.parametrize(("mark", "error"), [("broken", "node w1"), ("scattered", "did not gather: alive are few")])
def test_what_cannot_be_restored_is_an_error(cluster, ray, mark, error) -> None:
    cluster.lose("w1")
    ray.be(mark)
    with pytest.raises(ClusterFailed, match=error):
        cluster.restore()


# Draining, and looking


def test_a_drain_names_the_node_by_ray_s_id_and_its_deadline(cluster, ray, told) -> None:
    cluster.node("w1").node_id = "abc"
    before = time.time()
    wait_for(cluster.drain("w1", 12.0))
    (call,) = ray.calls
    *_, address, node_id, deadline_ms = call.split()
    assert (address, node_id) == (cluster.address, "abc")
    (drained,) = of_kind(told, "cluster.node.drain")
    assert drained == {"name": "w1", "deadline_s": int(deadline_ms) / 1000, "accepted": True}
    assert before + 11.99 <= drained["deadline_s"] <= time.time() + 12
    assert cluster.raylet("w1") is not None, "a notice kills nothing"


def test_a_drain_that_ray_refuses_is_an_error_and_not_told(cluster, ray, told) -> None:
    ray.be("broken")
    with pytest.raises(ClusterFailed, match="did not take the notice for node w1: not now"):
        wait_for(cluster.drain("w1", 12.0))
    assert of_kind(told, "cluster.node.drain") == []


def test_a_drain_cut_short_leaves_no_process_behind(cluster, ray, eventually) -> None:
    def running():
        return set(Account.read(cluster.ledger.path).processes())

    before = running()
    ray.be("slow")
    steps = cluster.drain("w1", 12.0)
    next(steps)
    assert eventually(lambda: running() > before)
    steps.close()
    assert running() == before


def test_the_eyes_look_at_this_cluster_in_a_session_of_their_own(cluster, ray) -> None:
    eyes = cluster.eyes()
    assert eyes.communicate(timeout=10)[0] == b"{}\n"
    assert ray.calls == ["-P -m chaos.cluster.health 127.0.0.1:6379"]
    assert sys.executable != local.sys.executable
    assert os.getsid(0) != eyes.pid

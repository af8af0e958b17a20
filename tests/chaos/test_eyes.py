"""What Ray holds of the nodes, as a process tells it line by line, in the history of a run."""

from __future__ import annotations

import json
import subprocess

import pytest

from chaos.eyes import RESOLUTION_MS, Eyes


@pytest.fixture
def eyes(cluster, writer, spawn, monkeypatch):
    """Eyes whose process says what it is told to, by ``say``."""
    monkeypatch.setattr(cluster, "eyes", lambda: spawn("cat", stdin=subprocess.PIPE, stdout=subprocess.PIPE))
    made = Eyes(cluster, writer)
    yield made
    made.close()


@pytest.fixture
def say(eyes):
    def write(text):
        eyes._process.stdin.write(text)
        eyes._process.stdin.flush()

    return write


@pytest.fixture
def hear(eyes, told, eventually):
    """Tick until so many events were told; they as kind, name and id of Ray."""

    def wait(count):
        assert eventually(lambda: eyes.tick() or len(told) >= count)
        return [(event.kind, event.data["name"], event.data["node_id"]) for event in told]

    return wait


def line(node, node_id, *, alive, wall_ns=5, mono_ns=7):
    seen = {"node_id": node_id, "address": node.address, "alive": alive, "wall_ns": wall_ns, "mono_ns": mono_ns}
    return json.dumps(seen).encode() + b"\n"


def test_a_node_is_told_alive_and_dead_with_the_time_at_which_it_was_seen(eyes, say, hear, cluster, told) -> None:
    eyes.open()
    node = cluster.node("w1")
    say(line(node, "a", alive=True, wall_ns=50, mono_ns=70) + line(node, "a", alive=False, wall_ns=60, mono_ns=80))
    assert hear(2) == [("cluster.node.alive", "w1", "a"), ("cluster.node.dead", "w1", "a")]
    assert [(event.wall_ns, event.mono_ns) for event in told] == [(50, 70), (60, 80)]
    assert all(event.data["resolution_ms"] == RESOLUTION_MS for event in told)


def test_the_cluster_learns_the_id_of_a_node_that_is_alive_only(eyes, say, hear, cluster) -> None:
    eyes.open()
    node = cluster.node("w0")
    say(line(node, "a", alive=True))
    hear(1)
    assert (node.node_id, cluster.node("w1").node_id) == ("a", "")
    say(line(node, "b", alive=True) + line(node, "a", alive=False))
    assert hear(3)[1:] == [("cluster.node.alive", "w0", "b"), ("cluster.node.dead", "w0", "a")]
    assert node.node_id == "b", "its first life was given up after its second had begun"


def test_a_line_is_told_once_it_is_whole(eyes, say, hear, cluster, told, eventually) -> None:
    eyes.open()
    whole = line(cluster.node("w0"), "a", alive=True)
    say(whole + whole[:25])
    hear(1)
    assert eventually(lambda: eyes.tick() or eyes._rest == whole[:25])
    assert len(told) == 1
    say(whole[25:-1])
    assert eventually(lambda: eyes.tick() or eyes._rest == whole[:-1])
    assert len(told) == 1
    say(b"\n")
    assert len(hear(2)) == 2


def test_a_node_of_an_unknown_address_is_not_told(eyes, say, hear, cluster) -> None:
    eyes.open()
    stranger = json.dumps({"node_id": "x", "address": "10.0.0.1", "alive": True, "wall_ns": 1, "mono_ns": 1}).encode()
    say(stranger + b"\n" + line(cluster.head, "h", alive=True))
    assert hear(1) == [("cluster.node.alive", "head", "h")]


def test_looking_waits_for_nothing(eyes, told) -> None:
    eyes.tick()
    eyes.open()
    eyes.tick()
    assert told == []


def test_a_process_that_has_ended_is_no_trouble(eyes, told) -> None:
    eyes.open()
    eyes._process.kill()
    eyes._process.wait()
    eyes.tick()
    assert told == []


def test_the_last_lines_are_taken_in_before_the_process_is_ended(eyes, say, cluster, told, eventually) -> None:
    eyes.open()
    process = eyes._process
    say(line(cluster.node("w0"), "a", alive=True))
    assert eventually(lambda: process.stdout.peek())
    eyes.close()
    assert [event.kind for event in told] == ["cluster.node.alive"]
    assert process.poll() == -9
    assert process.stdout.closed


def test_closing_twice_or_unopened_is_closing_once(eyes, told) -> None:
    eyes.close()
    eyes.open()
    eyes.close()
    eyes.close()
    eyes.tick()
    assert told == []

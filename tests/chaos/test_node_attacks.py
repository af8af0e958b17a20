"""Attacks on nodes under way: they go on without their victim, and what fails in them is told and healed."""

from __future__ import annotations

import signal

import pytest

from chaos.cluster.local import ClusterFailed
from chaos.process import Identity


@pytest.fixture
def raylet(machines, spawn):
    """The raylet of node w0, whose only process it is."""
    found = Identity.of(spawn().pid)
    machines.on["w0"] = [found]
    return found


@pytest.fixture
def inhabited(machines, raylet):
    """Let a victim be among the processes of node w0."""

    def place(scene):
        machines.on["w0"].append(scene.victim)
        return scene

    return place


def data_of(told, kind):
    (event,) = [event for event in told if event.kind == kind]
    assert (event.attempt, event.rank, event.step) == (0, 1, 3)
    return event.data


def test_a_dropped_node_is_fired_confirmed_and_healed_once_it_is_back(scene, inhabited, machines, told, kinds) -> None:
    drop = inhabited(scene("drop-node", back_after_s=0.15))
    drop.due()
    assert kinds() == ["fault.fired", "fault.confirmed"]
    assert not drop.victim.alive()
    assert drop.until(lambda: "fault.healed" in kinds())
    assert kinds() == ["fault.fired", "fault.confirmed", "fault.healed"]
    assert machines.done == ["lose w0", "join w0", "joined"]
    told_of = f"all 2 processes of node w0 are gone, {drop.victim.pid} among them"
    assert data_of(told, "fault.confirmed")["evidence"] == told_of
    assert data_of(told, "fault.healed")["seconds"] >= 0.15


def test_an_attack_on_a_node_goes_on_when_its_victim_is_gone(scene, inhabited, kinds, machines) -> None:
    drop = inhabited(scene("drop-node", back_after_s=60))
    drop.due()
    assert not drop.victim.alive()
    assert not drop.until(lambda: "fault.healed" in kinds(), seconds=0.1)
    drop.attacks.close()
    assert kinds()[-1] == "fault.healed"
    assert machines.done == ["lose w0"], "what is lost is brought back by the cluster, not by the attack"


def test_an_attack_on_one_process_ends_with_it(scene, inhabited, kinds) -> None:
    freeze = inhabited(scene("freeze", seconds=60))
    freeze.due()
    freeze.victim.send(signal.SIGKILL)
    assert freeze.until(lambda: "fault.healed" in kinds())


def test_a_frozen_raylet_is_in_the_ledger_and_its_victim_is_not(scene, raylet, kinds, stopped_entries) -> None:
    freeze = scene("freeze-node", seconds=60)
    freeze.due()
    assert freeze.until(lambda: "fault.confirmed" in kinds())
    assert stopped_entries() == [(raylet.pid, raylet.start, "freeze-node-0")]
    assert (raylet.stopped(), freeze.victim.stopped(), freeze.free) == (True, False, True)


def test_a_frozen_raylet_goes_on_when_its_victim_is_gone_and_the_run_ends(
    scene, raylet, kinds, stopped_entries, eventually
) -> None:
    freeze = scene("freeze-node", seconds=60)
    freeze.due()
    assert freeze.until(raylet.stopped)
    freeze.victim.send(signal.SIGKILL)
    assert not freeze.until(lambda: "fault.healed" in kinds(), seconds=0.1)
    assert raylet.stopped()
    freeze.attacks.close()
    assert eventually(lambda: not raylet.stopped())
    assert raylet.alive()
    assert (kinds()[-1], stopped_entries()) == ("fault.healed", [])


@pytest.mark.parametrize("name", ["drop-node", "add-node", "drain-node"])
def test_an_attack_that_stops_nothing_is_not_in_the_ledger(scene, inhabited, ledger, name) -> None:
    before = ledger.path.read_bytes()
    attack = inhabited(scene(name))
    attack.due()
    attack.attacks.close()
    assert ledger.path.read_bytes() == before


def test_a_node_without_a_raylet_is_not_frozen_and_its_victim_is_released(scene, kinds, stopped_entries) -> None:
    freeze = scene("pause-node")
    freeze.due()
    assert (kinds(), freeze.free, stopped_entries()) == (["fault.fired", "fault.healed"], True, [])


def test_an_added_node_is_confirmed_once_it_has_joined(scene, kinds, machines) -> None:
    added = scene("add-node")
    added.due()
    assert (kinds(), added.free) == (["fault.fired"], True)
    assert added.until(lambda: "fault.healed" in kinds())
    assert kinds() == ["fault.fired", "fault.confirmed", "fault.healed"]
    assert (machines.done, added.victim.alive()) == (["join", "joined"], True)


def test_a_drained_node_lives_until_its_deadline_and_its_victim_goes_on_meanwhile(
    scene, inhabited, kinds, machines
) -> None:
    drain = inhabited(scene("drain-node", notice_s=0.3, late_s=0.001))
    drain.due()
    assert drain.until(lambda: drain.free)
    assert (kinds(), drain.victim.alive()) == (["fault.fired"], True)
    assert drain.until(lambda: "fault.healed" in kinds())
    assert kinds() == ["fault.fired", "fault.confirmed", "fault.healed"]
    assert machines.done == ["drain w0 0.3", "lose w0"]
    assert not drain.victim.alive()


@pytest.mark.parametrize(
    ("name", "values", "failing", "error"),
    [
        ("drop-node", {}, "lose", TimeoutError("still alive on node w0 after SIGKILL: 17")),
        ("drop-node", {"back_after_s": 0.01}, "join", ClusterFailed("Ray node w0 did not start")),
        ("add-node", {}, "join", ClusterFailed("Ray node w2 did not start")),
        ("drain-node", {}, "drain", ClusterFailed("Ray did not take the notice")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_fails_in_an_attack_is_told_and_the_attack_is_healed(
    scene, inhabited, machines, told, kinds, name, values, failing, error
) -> None:
    machines.broken[failing] = error
    attack = inhabited(scene(name, **values))
    attack.due()
    assert attack.until(lambda: "fault.healed" in kinds())
    assert kinds()[-2:] == ["fault.failed", "fault.healed"]
    assert data_of(told, "fault.failed") == {**data_of(told, "fault.fired"), "error": str(error)}
    assert attack.free, "the victim does not wait for an attack that failed"
    assert ("fault.confirmed" in kinds()) is (failing == "join" and name == "drop-node"), "it was lost before"
    attack.attacks.tick()
    assert kinds().count("fault.healed") == 1


def test_a_mistake_of_ours_in_an_attack_is_not_hidden(scene, inhabited, machines) -> None:
    machines.broken["lose"] = KeyError("mine")
    with pytest.raises(KeyError, match="mine"):
        inhabited(scene("drop-node")).due()

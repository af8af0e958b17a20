"""Attacks from outside: written down before the signal, confirmed by what the kernel shows, healed on every path."""

from __future__ import annotations

import dataclasses
import signal

from chaos.faults import base
from chaos.faults.freeze import Freeze


def test_an_attack_is_in_the_ledger_and_told_before_the_signal(scene, kinds, stopped_entries, monkeypatch) -> None:
    before = []

    class Noted(Freeze):
        name = "noted"

        def attack(self, victim, place):
            before.append((stopped_entries(), kinds(), noted.free, victim.stopped()))
            yield from super().attack(victim, place)

    monkeypatch.setitem(base._REGISTER, "noted", Noted)
    noted = scene("noted")
    noted.due()
    assert noted.until(noted.victim.stopped)
    entry = (noted.victim.pid, noted.victim.start, "noted-0")
    assert before == [([entry], ["fault.fired"], False, False)]


def test_an_attack_is_fired_confirmed_healed_and_its_entry_closed(scene, told, kinds, stopped_entries) -> None:
    freeze = scene("freeze", seconds=0.1)
    freeze.due()
    assert freeze.until(lambda: "fault.healed" in kinds())
    assert kinds() == ["fault.fired", "fault.confirmed", "fault.healed"]
    assert all((event.attempt, event.rank, event.step) == (0, 1, 3) for event in told)
    fired, confirmed, healed = (event.data for event in told)
    assert fired == {"injection": "freeze-0", "fault": "freeze", "phase": "step", "node": "w0"}
    assert (confirmed["injection"], confirmed["seen"]) == ("freeze-0", "at once")
    assert confirmed["evidence"] == f"process {freeze.victim.pid} is stopped (state T)"
    assert 0 <= confirmed["after_ms"] < 1000 * healed["seconds"]
    assert healed["seconds"] >= 0.1
    assert stopped_entries() == []
    assert freeze.until(lambda: not freeze.victim.stopped())
    assert freeze.victim.alive()


def test_the_victim_may_leave_its_point_once_the_first_blow_has_landed(scene) -> None:
    freeze = scene("freeze")
    freeze.due()
    assert freeze.until(lambda: freeze.free)
    assert freeze.victim.stopped()


def test_a_frozen_victim_is_left_frozen_until_its_time_is_over(scene, kinds) -> None:
    freeze = scene("freeze", seconds=60)
    freeze.due()
    assert not freeze.until(lambda: "fault.healed" in kinds(), seconds=0.2)
    assert freeze.victim.stopped()


def test_a_victim_that_is_gone_before_is_released_and_nothing_is_confirmed(scene, kinds, stopped_entries) -> None:
    freeze = scene("freeze")
    freeze.victim.send(signal.SIGKILL)
    assert freeze.until(lambda: not freeze.victim.alive())
    freeze.due()
    assert freeze.free
    assert freeze.until(lambda: "fault.healed" in kinds())
    assert kinds() == ["fault.fired", "fault.healed"]
    assert stopped_entries() == []


def test_the_end_of_a_frozen_victim_ends_the_attack(scene, kinds, stopped_entries) -> None:
    freeze = scene("freeze", seconds=60)
    freeze.due()
    assert freeze.until(lambda: "fault.confirmed" in kinds())
    freeze.victim.send(signal.SIGKILL)
    assert freeze.until(lambda: "fault.healed" in kinds())
    assert stopped_entries() == []


def test_another_process_that_has_the_victim_s_pid_is_not_touched(scene, event, kinds) -> None:
    freeze = scene("freeze")
    stale = dataclasses.replace(freeze.victim, start=freeze.victim.start - 1)
    freeze.attacks(event("worker.start", pid=stale.pid, attempt=0, rank=1, data={"start": stale.start}))
    freeze.due()
    assert freeze.until(lambda: freeze.free)
    assert not freeze.victim.stopped()
    assert "fault.confirmed" not in kinds()


def test_a_process_that_is_no_worker_is_not_attacked(scene, kinds, stopped_entries) -> None:
    freeze = scene("freeze")
    freeze.attacks._workers.clear()
    freeze.due()
    assert not freeze.until(freeze.victim.stopped, seconds=0.05)
    assert (kinds(), stopped_entries()) == ([], [])


def test_a_fault_that_its_victim_fires_itself_is_no_attack(scene, kinds, stopped_entries) -> None:
    scene("kill").due()
    assert (kinds(), stopped_entries()) == ([], [])


def test_closing_heals_an_attack_under_way(scene, kinds, stopped_entries) -> None:
    freeze = scene("freeze", seconds=60)
    freeze.due()
    assert freeze.until(freeze.victim.stopped)
    freeze.attacks.close()
    assert freeze.until(lambda: not freeze.victim.stopped())
    assert freeze.victim.alive()
    assert kinds()[-1] == "fault.healed"
    assert stopped_entries() == []


def test_closing_twice_is_closing_once(scene, kinds) -> None:
    freeze = scene("freeze", seconds=60)
    freeze.due()
    freeze.attacks.close()
    freeze.attacks.close()
    freeze.attacks.tick()
    assert kinds().count("fault.healed") == 1


def test_a_straggler_is_stopped_again_and_again_and_confirmed_at_the_end(scene, told, kinds) -> None:
    straggler = scene("straggler", seconds=0.6, stopped_s=0.05, running_s=0.05)
    states = []
    straggler.due()
    assert straggler.until(lambda: states.append(straggler.victim.stopped()) or "fault.healed" in kinds())
    assert kinds() == ["fault.fired", "fault.confirmed", "fault.healed"]
    cycles = sum(1 for before, after in zip([False, *states], states, strict=False) if after and not before)
    assert f"was stopped {cycles} times" in told[1].data["evidence"]
    assert cycles >= 2
    assert straggler.until(lambda: not straggler.victim.stopped())


def test_a_straggler_cut_short_is_not_confirmed(scene, kinds) -> None:
    straggler = scene("straggler", seconds=60)
    straggler.due()
    assert straggler.until(straggler.victim.stopped)
    straggler.attacks.close()
    assert kinds() == ["fault.fired", "fault.healed"]
    assert straggler.until(lambda: not straggler.victim.stopped())

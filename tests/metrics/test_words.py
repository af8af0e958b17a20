"""Every word of expectations, both ways: a run that keeps it, one that breaks it, one that does not tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from metrics.expectations import TERMS, parse
from metrics.verdict import Verdict
from tests.capacity import failing, preempted, waiting, without_node
from tests.histories import Run, faulty, healthy, sampled, worst
from tests.metrics.test_blast import ended
from tests.metrics.test_hangs import HANGS, hung
from tests.stories import Hit, checkpoint_name, parts

EXIT = Hit(1, phase="first-step", fault="exit")
LOOP = faulty((Hit(1, 5, fault="exit"),), (EXIT,), (EXIT,), max_failures=2, control=False, gives_up=True)
RAISED = faulty((Hit(1, 6, fault="exception"),))
FROZEN = faulty((Hit(1, 6, fault="freeze", detect_ms=12_000),))
FLAT = healthy(kills=tuple((1, 3 + 2 * i) for i in range(5)), steps=16, every=2, max_failures=5)

WORDS: dict[str, tuple[str, Run, Run, Run]] = {
    "recovers": (
        "recovers(within=6)",
        healthy(),
        faulty((Hit(1, 6, detect_ms=2_000),)),
        healthy().drop("restore.end"),
    ),
    "restarts": ("restarts(times=1)", healthy(), healthy(kills=((1, 6), (0, 10))), healthy().drop("controller.start")),
    "loses": ("loses(steps<=2)", healthy(), healthy(kills=((1, 7),)), healthy(kills=())),
    "completes": ("completes()", healthy(), LOOP, healthy().drop("workload.exit")),
    "resumes": (
        "resumes()",
        healthy(),
        healthy().change("worker.start", {"attempt": 1}, checkpoint=checkpoint_name(0)),
        healthy().drop("state", name="restored"),
    ),
    "keeps_every_step": (
        "keeps_every_step()",
        healthy(),
        healthy().drop("step.end", attempt=1, step=9),
        healthy().change("step.end", samples=[]),
    ),
    "keeps_batch": (
        "keeps_batch()",
        healthy(),
        healthy().change("step.end", {"step": 9, "rank": 1}, samples=[[68, 70]]),
        healthy().change("step.end", samples=[]),
    ),
    "keeps_checkpoints": (
        "keeps_checkpoints()",
        healthy(),
        healthy().change("state", {"step": 12, "rank": 1}, parts=parts(1, 8)),
        healthy().drop("state", step=12),
    ),
    "matches_control": (
        "matches_control()",
        healthy(),
        healthy().change("step.end", {"step": 9}, loss=0.0),
        healthy().with_control(None),
    ),
    "fails": ("fails(error='WorkerGroupError')", LOOP, healthy(), LOOP.drop("workload.exit")),
    "names": ("names(error='InjectedError')", RAISED, healthy(), RAISED.drop("worker.error")),
    "beats_defaults": ("beats_defaults(times=10)", FROZEN, FROZEN.change("fault.fired", wall_ns=1), healthy()),
    "names_culprit": (
        "names_culprit()",
        hung(HANGS, "collective", "elsewhere"),
        hung(HANGS, "elsewhere", "collective"),
        HANGS,
    ),
    "spares_others": (
        "spares_others()",
        healthy(),
        ended(healthy(), 0, after_ms=100),
        healthy().drop("residue.checked"),
    ),
    "stays_flat": (
        "stays_flat(by=0.25, files=20.0)",
        FLAT,
        sampled(FLAT, files=[1200, 1300, 1400, 1500, 1600]),
        FLAT.drop("probe.resources"),
    ),
    "stays_productive": (
        "stays_productive(share=0.1)",
        healthy(),
        healthy().change("workload.start", wall_ns=1),
        healthy().drop("workload.exit"),
    ),
    "resizes": ("resizes(worlds='2, 2')", healthy(), healthy(kills=()), healthy().drop("worker.start")),
    "preempts": ("preempts(times=1)", preempted(healthy()), healthy(), healthy().drop("controller.state")),
    "never_two_groups": (
        "never_two_groups()",
        healthy(),
        healthy().change("attempt.start", {"attempt": 1}, wall_ns=1),
        healthy(kills=()),
    ),
    "notices": ("notices(within=5)", without_node(), without_node(dead_ms=None), healthy()),
    "reschedules": (
        "reschedules(times<=2)",
        failing(healthy(), times=2),
        failing(healthy(), times=3),
        healthy().drop("controller.state"),
    ),
    "idles": ("idles(cpu=0.5)", waiting(), waiting(0.98), healthy()),
    "interruptible": ("interruptible(within=20)", waiting(), waiting(interrupted_s=None), healthy()),
    "ignores_interrupt": ("ignores_interrupt()", waiting(interrupted_s=None), waiting(), healthy()),
}


def test_every_word_is_tried() -> None:
    assert WORDS.keys() == TERMS.keys()


@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("word", TERMS)
def test_each_word_passes_fails_and_does_not_know(word: str, place: int, tmp_path: Path) -> None:
    text, *runs = WORDS[word]
    verdict = (Verdict.PASS, Verdict.FAIL, Verdict.UNKNOWN)[place]
    assert worst(parse(text), runs[place], runs[place].write(tmp_path / "run")) is verdict

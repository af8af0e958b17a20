"""Step and sample ledgers: what the effective history lacks, repeats, or lost."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from chaos.history import Event
from metrics.attempts import Attempt, by_step, commits_before, effective_steps
from metrics.recovery import cut_short, quick_step_seconds, recoveries
from metrics.verdict import Case, Finding, Verdict, per_case, untold

NO_SAMPLES = "the workload told of no samples (observe.samples)"

LARGEST = 10_000_000
"""Samples of one step that are still counted one by one."""


def check_completed(case: Case) -> Finding:
    """The training script ended well, and every rank completed the last step that was asked for."""
    name, expected = "completed", f"exit code 0 with {case.record.steps} steps complete on every rank"
    ended = case.history.first("workload.exit")
    if ended is None:
        return Finding(name, Verdict.UNKNOWN, expected, "the end of the training script was not recorded")
    last = case.attempts[-1].step_of_all if case.attempts else 0
    code = ended.data["code"]
    deadline = case.history.first("run.deadline")
    limit = f" at its deadline of {deadline.data['seconds']:g} s (--deadline)" if deadline else ""
    seen = f"exit code {f'none: it was ended by the harness{limit}' if code is None else code}, {last} steps complete"
    good = code == 0 and last == case.record.steps
    return Finding(name, Verdict.PASS if good else Verdict.FAIL, expected, seen, where="logs/driver.log")


def check_resume_step(case: Case) -> Finding:
    """Every restarted rank was given, and read, the checkpoint that was committed last."""
    name, expected = "resume-step", "every rank reads the last committed checkpoint"
    restarts = [attempt for attempt in case.attempts if attempt.number > 0]
    if not restarts:
        return Finding(name, Verdict.UNKNOWN, expected, "the worker group was never restarted")
    told = []
    short = cut_short(case)
    for attempt in restarts:
        commits = commits_before(case.attempts, attempt.number)
        wanted = commits[-1].data["checkpoint"] if commits else None
        step = commits[-1].step if commits else 0
        if len(attempt.starts) < attempt.world_size and attempt.number not in short:
            return Finding(name, Verdict.UNKNOWN, expected, f"attempt {attempt.number} was not seen on every rank")
        for rank, given in sorted(attempt.checkpoints_given.items()):
            if given != wanted:
                seen = f"attempt {attempt.number}, rank {rank} was given {given}, the last committed is {wanted}"
                return Finding(name, Verdict.FAIL, expected, seen)
            if wanted is not None and rank in _readers(case, attempt) and attempt.number not in short:
                seen = f"attempt {attempt.number}, rank {rank} opened no file of {wanted}"
                return Finding(name, Verdict.FAIL, expected, seen)
        if step is None:
            return Finding(name, Verdict.UNKNOWN, expected, f"the step of {wanted} was not recorded")
        if wanted and case.record.script and not attempt.restore_begins and attempt.number not in short:
            seen = f"attempt {attempt.number}: no rank was seen to open a file of {wanted}; a copy by Ray is not seen"
            return Finding(name, Verdict.UNKNOWN, expected, seen)
        why = " (no checkpoint before)" if not wanted else " (ended before its first step)"
        told.append(f"attempt {attempt.number} from step {step}{why if not wanted or attempt.number in short else ''}")
    if {attempt.number for attempt in restarts} <= short:
        return Finding(name, Verdict.UNKNOWN, expected, "every restarted attempt was ended before its first step")
    return Finding(name, Verdict.PASS, expected, "; ".join(told))


def _readers(case: Case, attempt: Attempt) -> set[int]:
    """The ranks that should have opened a file of their checkpoint, and did not.

    Of a user's script one rank is enough, which may hand what it read to the others, and not every way to read is seen.
    """
    if case.record.script:
        return set()
    return attempt.checkpoints_given.keys() - attempt.restore_begins.keys()


def lost_steps_bound(case: Case) -> int:
    """How many steps one fault may cost: the checkpoint interval, the steps of a poll, and one report.

    A report waits for the next poll up to one interval, and that poll takes some of the next: two intervals of quick
    steps.
    """
    seconds = quick_step_seconds(case.attempts)
    polled = math.ceil(2 * case.record.poll_s / seconds) if seconds else 0
    return case.record.checkpoint_every + polled + 1


def check_lost_steps(case: Case, steps: int | None = None) -> Finding:
    """No fault cost more steps than the bound; without one, than the checkpoint interval and the poll explain."""
    name, bound = "lost-steps", lost_steps_bound(case) if steps is None else steps
    why = f": interval {case.record.checkpoint_every}, a poll, one report" if steps is None else ""
    expected = f"at most {bound} steps{why}"
    found = [r for r in recoveries(case) if r.lost_steps is not None]
    if not found:
        return Finding(name, Verdict.UNKNOWN, expected, "the job never resumed")
    worst = max(found, key=lambda r: r.lost_steps or 0)
    lost = worst.lost_steps or 0
    seen = f"{lost} steps lost: {worst.before} were complete, resumed from {worst.resumed}"
    return Finding(name, Verdict.PASS if lost <= bound else Verdict.FAIL, expected, seen, evidence={"lost": lost})


def check_steps(case: Case) -> Finding:
    """In the effective history each step is done once, in order, by every rank of the group that made it."""
    name, expected = "steps", "each step once, in order, on every rank of the group that made it"
    kept, steps, worlds = by_rank(case), effective(case), _worlds(case)
    if not steps:
        return Finding(name, Verdict.UNKNOWN, expected, "no step was seen")
    for wanted, (step, events) in enumerate(steps.items(), 1):
        gap = "" if step == wanted else f"no rank completed step {wanted}, and step {step} follows"
        if odd := gap or _odd_step(events, worlds):
            return Finding(name, Verdict.FAIL, expected, odd)
    for rank, events in sorted(kept.items()):
        for before, after in itertools.pairwise(events):
            if (after.step or 0) <= (before.step or 0):
                seen = f"rank {rank}: step {after.step} after step {before.step}, in attempt {after.attempt}"
                return Finding(name, Verdict.FAIL, expected, seen)
    if untold := _untold(case):
        return Finding(name, Verdict.UNKNOWN, expected, untold)
    if dark := sorted({e.attempt or 0 for events in steps.values() for e in events if not worlds[e.attempt or 0]}):
        return Finding(name, Verdict.UNKNOWN, expected, f"the world size of attempt {dark[0]} was not recorded")
    return Finding(name, Verdict.PASS, expected, f"{len(steps)} steps, {_told_worlds(steps, worlds)}")


@per_case
def by_rank(case: Case) -> dict[int, list[Event]]:
    """The effective history by rank."""
    return effective_steps(case.attempts)


@per_case
def effective(case: Case) -> dict[int, list[Event]]:
    """The effective history by step."""
    return by_step(by_rank(case))


def _worlds(case: Case) -> dict[int, int]:
    """World size by attempt; 0 where it was not recorded."""
    return {attempt.number: attempt.world_size for attempt in case.attempts}


def _untold(case: Case) -> str:
    """A step of a rank that no event tells though a later one was completed, also among lost steps; empty for none."""
    for attempt in case.attempts:
        furthest = max((event.step or 0 for events in attempt.steps.values() for event in events), default=0)
        for rank, begin in sorted(attempt.resume_steps.items()):
            # A rank that told of none may have been in its first step; not when another one has completed the second.
            steps = sorted({event.step or 0 for event in attempt.steps.get(rank, ())}) or [furthest]
            gaps = itertools.pairwise([*([] if begin is None else [begin]), *steps])
            if lacking := next((before + 1 for before, after in gaps if after > before + 1), None):
                return f"attempt {attempt.number}, rank {rank}: no event tells of step {lacking}"
    return ""


def _odd_step(events: list[Event], worlds: Mapping[int, int]) -> str:
    """What is wrong with a step: made by two groups, double on a rank, or not on every rank; empty when nothing is."""
    step = events[0].step
    made = sorted({event.attempt or 0 for event in events})
    if len(made) > 1:
        return f"step {step} was completed in attempts {' and '.join(map(str, made))}"
    ranks = Counter(event.rank or 0 for event in events)
    where = f"step {step} of attempt {made[0]}, world size {worlds[made[0]]}"
    if double := sorted(rank for rank, count in ranks.items() if count > 1):
        return f"{where}: rank {double[0]} completed it {ranks[double[0]]} times"
    world = set(range(worlds[made[0]]))
    if lacking := sorted(world - ranks.keys()):
        return f"{where}: rank {lacking[0]} did not complete it"
    if world and (foreign := sorted(ranks.keys() - world)):
        return f"{where}: there is no rank {foreign[0]}, which completed it"
    return ""


def _told_worlds(steps: Mapping[int, list[Event]], worlds: Mapping[int, int]) -> str:
    """The world sizes that made these steps, in order: "world sizes 3, 2, 3"."""
    sizes = [size for size, _ in itertools.groupby(worlds[events[0].attempt or 0] for events in steps.values())]
    return f"world size{'s' if len(sizes) > 1 else ''} {', '.join(map(str, sizes))}"


def check_batch(case: Case) -> Finding:
    """Every effective step consumes as many samples over all ranks as the others, whatever the world size.

    The number that most steps consume is taken for the right one.
    """
    name, expected = "global-batch", "as many samples in each step as in every other, whatever the world size"
    steps, worlds = effective(case), _worlds(case)
    counts = _consumption(case)
    if not any(counts.values()):
        return untold(case, name, expected, NO_SAMPLES, "observe.samples(ids)")
    ((usual, _),) = Counter(count for count in counts.values() if count).most_common(1)
    odd = next((step for step, count in counts.items() if count != usual), None)
    if odd is None:
        seen = f"{usual} samples in each of {len(steps)} steps, {_told_worlds(steps, worlds)}"
        return Finding(name, Verdict.PASS, expected, seen, evidence={"samples": usual})
    size = worlds[steps[odd][0].attempt or 0]
    seen = f"step {odd} consumed {counts[odd]} samples at world size {size}, most steps {usual}"
    evidence = {"samples": usual, "step": odd, "consumed": counts[odd], "world_size": size}
    return Finding(name, Verdict.FAIL, expected, seen, evidence=evidence)


def sample_ids(events: Iterable[Event]) -> Counter[int]:
    """How often each sample was consumed in steps.

    Raises ValueError for more than can be held in memory, which only a damaged history tells of.
    """
    events = list(events)
    if (count := consumed(events)) > LARGEST:
        raise ValueError(f"{count} samples in one step")
    return Counter(i for e in events for first, last in e.data["samples"] for i in range(first, last + 1))


def consumed(events: Iterable[Event]) -> int:
    """How many samples were consumed in steps, each as often as it was."""
    return sum(max(0, last - first + 1) for event in events for first, last in event.data["samples"])


@per_case
def _consumption(case: Case) -> dict[int, int]:
    """How many samples each step of the effective history consumed."""
    return {step: consumed(events) for step, events in effective(case).items()}


@dataclass(frozen=True)
class _Ledger:
    """What became of the samples: those missing and doubled, how many there are, and in how many epochs."""

    missing: list[int]
    doubled: list[int]
    samples: int
    epochs: int


def check_samples(case: Case) -> Finding:
    """In the effective history every sample of an epoch up to the furthest is consumed exactly once."""
    name, expected = "samples", "every sample exactly once in each epoch of the effective history"
    steps = effective(case)
    counts = _consumption(case)
    if not any(counts.values()):
        return untold(case, name, expected, NO_SAMPLES, "observe.samples(ids)")
    # A workload that reads in the order of ids begins with the first of them; then each step tells what is due next.
    begin = sample_ids(next(iter(steps.values())))
    in_order = begin == Counter(range(begin.total()))
    size = case.record.epoch_samples
    found = _in_order(steps, counts, size) if in_order and size else _by_count(list(steps.values()), size)
    if found.missing or found.doubled:
        told = (_name("never consumed", found.missing), _name("consumed twice", found.doubled))
        evidence = {"missing": found.missing[:20], "twice": found.doubled[:20]}
        return Finding(name, Verdict.FAIL, expected, "; ".join(filter(None, told)), evidence=evidence)
    made = sum(consumed(e for events in attempt.steps.values() for e in events) for attempt in case.attempts)
    replayed = made - sum(counts.values())
    plural = "s" if found.epochs > 1 else ""
    seen = f"{found.samples} samples, {found.epochs} epoch{plural}; {replayed} replayed after rollback"
    return Finding(name, Verdict.PASS, expected, seen, evidence={"samples": found.samples, "replayed": replayed})


def _in_order(steps: Mapping[int, list[Event]], counts: Mapping[int, int], size: int) -> _Ledger:
    """The ledger where each step takes the next ids of an epoch of ``size``, then from 0 again."""
    missing: Counter[int] = Counter()
    doubled: Counter[int] = Counter()
    place = 0
    for step, events in steps.items():
        count = counts[step]
        if not _are_next(events, place % size, count, size):
            ids, due = sample_ids(events), Counter((place + i) % size for i in range(count))
            missing.update(due - ids)
            doubled.update(ids - due)
        place += count
    # What one step lacks and another has too much of has only moved: neither missing nor doubled in the whole.
    odd = sorted(missing - doubled), sorted(doubled - missing)
    return _Ledger(*odd, samples=min(place, size), epochs=math.ceil(place / size))


def _are_next(events: list[Event], begin: int, count: int, size: int) -> bool:
    """Whether the ranges of a step are the ``count`` ids from ``begin`` on, without wrapping around at ``size``."""
    reached = begin
    for first, last in sorted(tuple(span) for event in events for span in event.data["samples"]):
        if last < first:
            continue
        if first != reached:
            return False
        reached = last + 1
    return reached == begin + count <= size


def _by_count(steps: list[list[Event]], size: int | None) -> _Ledger:
    """The ledger whatever the order of reading, as far as counts can tell.

    After n samples in all, none may have been consumed more than ceil(n / size) times, and in the end none less often
    than the epochs that are over. Where the size is not known it is taken for the largest id seen, plus one, and what
    is missing below that id counts as missing.
    """
    size = size or 1 + max(last for events in steps for e in events for _, last in e.data["samples"])
    seen: Counter[int] = Counter()
    doubled: set[int] = set()
    total = 0
    for ids in map(sample_ids, steps):
        seen.update(ids)
        total += ids.total()
        doubled.update(i for i in ids if seen[i] > math.ceil(total / size))
    least = max(total // size, int(size == max(seen) + 1))
    missing = [i for i in range(size) if seen[i] < least] if least else []
    return _Ledger(missing, sorted(doubled), samples=len(seen), epochs=max(seen.values()))


def _name(what: str, ids: list[int]) -> str:
    if not ids:
        return ""
    shown = ", ".join(map(str, ids[:5])) + (", ..." if len(ids) > 5 else "")
    return f"{len(ids)} samples {what} ({shown})"

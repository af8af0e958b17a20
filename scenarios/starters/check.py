"""A check: a question that is asked of a stored run; its name is a word for --expect.

aftershock validate starter.py
aftershock run kill-worker --from starter.py --expect 'starter_check(limit<=4)'
aftershock analyze runs/<run> --from starter.py --expect 'starter_check(limit<=4)'
"""

from scenarios.words import Case, Finding, Verdict, check


@check
def starter_check(case: Case, limit: float = 10.0) -> Finding:
    """The loss of the last step is no higher than that."""
    expected = f"a last loss of at most {limit:g}"
    ends = [event for event in case.history.select("step.end") if event.data.get("loss") is not None]
    if not ends:  # without evidence the answer is unknown, never pass
        return Finding("starter-check", Verdict.UNKNOWN, expected, "the training program told no loss")
    last = max(ends, key=lambda event: event.step or 0)
    verdict = Verdict.PASS if last.data["loss"] <= limit else Verdict.FAIL
    return Finding("starter-check", verdict, expected, f"{last.data['loss']:.3f} at step {last.step}")

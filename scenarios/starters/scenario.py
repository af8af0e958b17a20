"""A scenario: a job, what breaks it and when, and what is expected of it then.

aftershock validate starter.py           # is it sound?
aftershock run ./starter.py --dry-run    # what would happen?
aftershock run ./starter.py              # about two minutes
"""

from scenarios.words import HEALTHY, Arming, Exit, Rank, Scenario, at_step, recovers, register

register(
    Scenario(
        name="starter-scenario",
        title="Rank 0 leaves with exit code 3; the job must be back within a minute.",
        # What, when, whom: `aftershock list faults`, `list triggers` and `list targets` show what there is.
        inject=lambda shape: (Arming(Exit(code=3), at_step(12), Rank(0)),),
        # All that a recovery must keep, with one bound changed: `aftershock list expectations` shows the words.
        expects=HEALTHY.but(recovers(within=60)),
    )
)

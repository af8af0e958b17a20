"""What a training program may volunteer: three calls, each a no-op outside a run of Aftershock.

    from chaos import observe

    observe.samples(batch["id"])          # which samples this rank consumes for the step under way
    observe.loss(loss.item())             # this rank's loss of the step under way
    observe.state("saved", state_dict)    # the state handed to a checkpoint; "restored": the state after a load

None of them changes, keeps or fails anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chaos.agent.events import harmless
from chaos.agent.session import session


@harmless
def samples(ids: Iterable[int]) -> None:
    """Tell which samples, by an id unique within the epoch, this rank consumes for the step under way."""
    if (me := session()) is not None:
        me.samples(int(i) for i in ids)


@harmless
def loss(value: float) -> None:
    """Tell this rank's loss of the step under way."""
    if (me := session()) is not None:
        me.loss(float(value))


@harmless
def state(name: str, tree: Any) -> None:
    """Tell the state of training at a named moment: a nested dict of tensors (sharded or not) and plain values.

    ``saved`` is compared with what lies on disk, ``restored`` with what was saved, both with the control run's.
    """
    if (me := session()) is not None:
        me.state(name, tree)

"""Raise an exception in the training loop, as a bug of the user's own code would."""

from __future__ import annotations

from chaos.faults.base import Fault, InjectedError, Proof, register


@register
class Raise(Fault):
    """An exception out of the call that the loop is in: the optimizer's step, a forward pass, a report."""

    name = "exception"
    effect = "the controller has received InjectedError from the rank that was hit"
    certifies = "the application's error path: the exception reaches Ray, uses one of max_failures, and the job resumes"
    not_certified = "an exception that the program itself catches; errors in threads of its own"
    proof = Proof.ERROR
    error = "InjectedError"
    in_training_thread = True

    def fire(self) -> None:
        """Raise, here."""
        raise InjectedError("raised on purpose by aftershock (fault: exception)")

"""Raise an exception between two bytecodes of the training thread, wherever it is just then."""

from __future__ import annotations

import ctypes
import threading

from chaos.faults.base import Fault, InjectedError, Proof, register

LATER_S = 0.005
"""How long after the point it comes, seconds: the training has left the point by then."""


@register
class AsyncException(Fault):
    """An asynchronous exception, as a watchdog thread or a notebook's interrupt would send it."""

    name = "async-exception"
    effect = "the controller has received InjectedError from the rank that was hit"
    certifies = "that state half changed when the exception came does not survive the restart"
    not_certified = "a thread that is inside native code: the exception waits until it comes back"
    proof = Proof.ERROR
    error = "InjectedError"
    in_training_thread = True

    def fire(self) -> None:
        """Let another thread ask the interpreter, a moment later, to raise in this one at its next bytecode."""
        threading.Timer(LATER_S, _raise_in, (threading.get_ident(),)).start()


def _raise_in(thread: int) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(InjectedError))

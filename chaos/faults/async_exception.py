"""Raise an exception between two bytecodes of the training thread, wherever it is just then."""

from __future__ import annotations

import ctypes
import threading

from chaos.faults.base import Fault, InjectedError, Proof, register


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
        """Ask the interpreter to raise in this thread at its next bytecode."""
        thread = ctypes.c_ulong(threading.get_ident())
        ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(InjectedError))

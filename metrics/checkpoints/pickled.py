"""What a pickle says, without doing it: classes and calls become symbols; nothing is imported, looked up or executed.

So a value of any class can be compared with another one, field by field, wherever it was saved.
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

LARGEST = 10 << 20
"""Bytes of a pickle beyond which it is not read: what it says is held in memory."""

MOST = 2_000_000
"""Instructions of a pickle beyond which it is not read: each may take some hundred bytes of memory."""

LONGEST = 1024
"""Bytes of a whole number beyond which it is not read: printing it would take for ever."""

SETS = ("builtins.set", "builtins.frozenset")


class Unreadable(Exception):
    """The bytes cannot be read in the form that they seem to have, or not within bounds; the message says why."""


class BytesOnly(Unreadable):
    """Nothing is known to be wrong with the bytes, but they hold more than is read by value, or what is not."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A class or a function that a pickle names."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(slots=True, eq=False)
class Call:
    """Something that a pickle asks to have made: ``what`` is called with ``args``, and then given the rest."""

    what: str
    args: tuple[Any, ...]
    state: Any = None
    items: list[Any] = field(default_factory=list)
    entries: dict[Any, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Nth:
    """Stands for a key that is no plain value, such as a tensor; the key is kept with its value, as a pair."""

    number: int

    def __str__(self) -> str:
        return f"[{self.number}]"


class _Counting(dict[int, Any]):
    """Instructions by code, handed out so many times."""

    left = MOST

    def __getitem__(self, code: int) -> Any:
        self.left -= 1
        if self.left < 0:
            raise BytesOnly(f"its pickle has more than {MOST} instructions")
        return super().__getitem__(code)


KEPT = (
    "PROTO", "FRAME", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINSTRING",
    "SHORT_BINSTRING", "BINBYTES", "BINBYTES8", "SHORT_BINBYTES", "BINUNICODE", "BINUNICODE8", "SHORT_BINUNICODE",
    "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3", "EMPTY_LIST", "EMPTY_DICT", "GLOBAL", "STACK_GLOBAL",
    "BINPERSID", "POP", "POP_MARK", "DUP", "BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "MEMOIZE", "MARK",
    "STOP",
)  # fmt: skip
"""Instructions that only put plain values together, or ask for what is overridden below; all others are refused."""


class _Reader(pickle._Unpickler):
    """The unpickler in Python, for the one in C reserves whatever memory a hostile pickle claims to need."""

    dispatch: ClassVar[dict[int, Any]] = {
        code: pickle._Unpickler.dispatch[code] for code in (getattr(pickle, name)[0] for name in KEPT)
    }
    stack: list[Any]
    read: Callable[[int], bytes]
    pop_mark: Callable[[], list[Any]]

    def __init__(self, text: io.BytesIO, storage: Callable[[Any], Any] | None) -> None:
        super().__init__(text, encoding="latin1")
        self.dispatch = _Counting(type(self).dispatch)  # type: ignore[misc]
        self._storage = storage

    def find_class(self, module: str, name: str) -> Any:
        return Symbol(f"{'builtins' if module == '__builtin__' else module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        if self._storage is None:
            raise BytesOnly("its pickle refers to something outside")
        return self._storage(pid)

    def load_long4(self) -> None:
        (size,) = struct.unpack("<i", self.read(4))
        if not 0 <= size <= LONGEST:
            raise Unreadable(f"its pickle has a whole number of {size} bytes")
        self.stack.append(pickle.decode_long(self.read(size)))

    def load_bytearray8(self) -> None:
        (size,) = struct.unpack("<Q", self.read(8))
        self.stack.append(self.read(min(size, LARGEST)))

    def load_reduce(self) -> None:
        args = self.stack.pop()
        self.stack[-1] = _called(self.stack[-1], args)

    def load_newobj(self) -> None:
        args, kind = self.stack.pop(), self.stack.pop()
        self.stack.append(_called(kind, args))

    def load_newobj_ex(self) -> None:
        named, args, kind = self.stack.pop(), self.stack.pop(), self.stack.pop()
        self.stack.append(_called(kind, (*args, named) if named else args))

    def load_empty_set(self) -> None:
        self.stack.append(Call("builtins.set", ()))

    def load_frozenset(self) -> None:
        self.stack.append(Call("builtins.frozenset", (), items=self.pop_mark()))

    def load_build(self) -> None:
        state = self.stack.pop()
        if type(self.stack[-1]) is Call:
            self.stack[-1].state = state
        elif type(self.stack[-1]) is not dict:  # what torch hangs on the dict of a model are versions, no values
            raise Unreadable(f"its pickle gives a {type(self.stack[-1]).__name__} a state")

    def load_append(self) -> None:
        item = self.stack.pop()
        self._add([item])

    def load_appends(self) -> None:
        self._add(self.pop_mark())

    def _add(self, items: list[Any]) -> None:
        match self.stack[-1]:
            case list() as held:
                held.extend(items)
            case Call() as made:
                made.items.extend(items)
            case other:
                raise Unreadable(f"its pickle appends to a {type(other).__name__}")

    def load_setitem(self) -> None:
        value, key = self.stack.pop(), self.stack.pop()
        self._put([key, value])

    def load_setitems(self) -> None:
        self._put(self.pop_mark())

    def _put(self, items: list[Any]) -> None:
        into = self.stack[-1].entries if type(self.stack[-1]) is Call else self.stack[-1]
        if type(into) is not dict:
            raise Unreadable(f"its pickle puts items into a {type(into).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if _plain(key):
                into[key] = value
            else:
                into[Nth(len(into))] = (key, value)

    dispatch[pickle.LONG4[0]] = load_long4
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
    dispatch[pickle.REDUCE[0]] = load_reduce
    dispatch[pickle.NEWOBJ[0]] = load_newobj
    dispatch[pickle.NEWOBJ_EX[0]] = load_newobj_ex
    dispatch[pickle.EMPTY_SET[0]] = load_empty_set
    dispatch[pickle.FROZENSET[0]] = load_frozenset
    dispatch[pickle.BUILD[0]] = load_build
    dispatch[pickle.APPEND[0]] = load_append
    dispatch[pickle.APPENDS[0]] = load_appends
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.ADDITEMS[0]] = load_appends


def _plain(key: Any) -> bool:
    """Whether it can be the key of a dict; hashing any other could take for ever."""
    parts: Iterable[Any] = key if type(key) is tuple and len(key) <= 16 else (key,)
    return all(part is None or type(part) in (str, int, float, bool, bytes, Symbol) for part in parts)


def _called(what: Any, args: Any) -> Any:
    """What a call gives that makes a plain value; any other stays a call."""
    if type(args) is not tuple:
        raise Unreadable("its pickle calls something without arguments")
    if type(what) is not Symbol:
        return Call("a call", (what, *args))
    match what.name, args:
        case (("collections.OrderedDict" | "builtins.dict"), ()):
            return {}
        case "_codecs.encode", (str() as text, "latin1"):
            return text.encode("latin1")
        case "builtins.complex", (float() as real, float() as imaginary):
            return complex(real, imaginary)
        case name, (list() as items,) if name in SETS:
            return Call(name, (), items=list(items))
    return Call(what.name, args)


def read_pickle(text: io.BytesIO, storage: Callable[[Any], Any] | None = None) -> Any:
    """The next value of a stream of pickles; ``storage`` gives what stands for something outside of it.

    Plain values, lists, tuples and dicts are themselves. Raises Unreadable.
    """
    try:
        return _Reader(text, storage).load()
    except Unreadable:
        raise
    except KeyError as error:
        raise BytesOnly(f"its pickle has an instruction that is not read, {error}") from error
    except EOFError as error:
        raise Unreadable("its pickle ends too early") from error
    except Exception as error:
        raise Unreadable(f"its pickle cannot be read: {error!r}") from error

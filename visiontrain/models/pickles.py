"""Read pickles without running them: an interpreter of the format that imports nothing and calls nothing of the file.

`pickletools` cuts the bytes into operations; they are carried out here on plain values. What names a class or function
becomes a `Reference`, and what would be made by calling one becomes `Inert`, which only remembers, unless the reader
has a builder of its own for that very name. All is bounded: operations, time, the length of names and integers.
"""

from __future__ import annotations

import pickletools
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, BinaryIO, NamedTuple

MOST_STEPS = 3_000_000
"""Operations, and items put into containers: a checkpoint of a large network takes some 100,000."""
MOST_SECONDS = 10.0
"""Of the processor's time, so that a busy machine refuses no honest file."""
MOST_INTEGER_BITS = 2048
MOST_KEY_BITS = 60
"""Of integer keys; larger ones can be chosen so that all have the same hash."""
MOST_NAME = 512
"""Characters of a class's module or name."""
STEPS_BETWEEN_LOOKS = 16
"""At the clock; an insertion among keys of equal hash takes milliseconds."""
KEYS = (str, bytes, int, float, bool, type(None))
"""What keys and members of sets may be, besides flat tuples of these: deep ones exhaust the C stack."""


class UnreadableError(ValueError):
    """A file of weights is damaged, of a form that is not read, or made to exhaust the machine."""


class Reference(NamedTuple):
    """A class or function that a pickle names; it is not looked up."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(eq=False, slots=True)
class Inert:
    """Stands for an object whose class was not run."""

    reference: Reference
    state: Any = None
    """What it would have been given afterwards, mostly its attributes by name."""
    entries: dict[Any, Any] | None = None
    """Of what behaves as a mapping."""


Builder = Callable[..., Any]
"""Makes a value of what a pickle calls a class or function with; raises ValueError or TypeError where it cannot."""


class Allowance:
    """What a file may use up: steps, time, and bytes that are copied rather than read."""

    def __init__(self, copied_bytes: int) -> None:
        self._bytes = copied_bytes
        self._steps = 0
        self._deadline = time.process_time() + MOST_SECONDS

    def step(self) -> None:
        """Count one step. Raises UnreadableError where there are too many, or they take too long."""
        self._steps += 1
        if self._steps > MOST_STEPS:
            raise UnreadableError(f"takes more than {MOST_STEPS:,} steps to read")
        if self._steps % STEPS_BETWEEN_LOOKS == 0 and time.process_time() > self._deadline:
            raise UnreadableError(f"takes more than {MOST_SECONDS:g} seconds to read")

    def copy(self, num_bytes: int) -> None:
        """Count bytes that are about to be copied; a file may refer to the same ones a million times."""
        self._bytes -= num_bytes
        if self._bytes < 0:
            raise UnreadableError("unfolds to far more than its size")


@dataclass(frozen=True)
class Rules:
    """What a pickle may make, apart from plain values."""

    builders: Mapping[Reference, Builder] = field(default_factory=dict)
    give_state: Callable[[Any, Any], None] = lambda value, state: None
    """Gives a value that a builder made its state, where it has a use for one."""
    persistent: Callable[[Any], Any] | None = None
    """What a persistent id stands for."""


def read_pickle(file: BinaryIO, rules: Rules, allowance: Allowance, not_run: Counter[str]) -> Any:
    """The value of the pickle that starts at the file's position, which afterwards is behind it.

    Args:
        file: Its `read` must not allocate more than is there.
        rules: What may be made.
        allowance: What may be used up.
        not_run: Counts what became `Inert`, by class.

    Raises:
        UnreadableError: If it is no pickle, a damaged one, or one that uses up its allowance.
    """
    machine = _Machine(rules, allowance, not_run)
    try:
        for operation, argument, _ in pickletools.genops(file):
            allowance.step()
            machine.run(operation.name, argument)
        return machine.pop()
    except UnreadableError:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise UnreadableError("holds a pickle that is damaged or none at all") from error


class _Machine:
    """The stacks and the memo, and what each operation does to them."""

    def __init__(self, rules: Rules, allowance: Allowance, not_run: Counter[str]) -> None:
        self._rules = rules
        self._allowance = allowance
        self._not_run = not_run
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stacks under each mark
        self._memo: dict[int, Any] = {}

    def pop(self) -> Any:
        return self._stack.pop()

    def run(self, name: str, argument: Any) -> None:
        """Carry out one operation. Raises IndexError, KeyError, TypeError or ValueError where it makes no sense."""
        if name in _VALUES:
            if isinstance(argument, int) and argument.bit_length() > MOST_INTEGER_BITS:
                raise UnreadableError(f"holds an integer of {argument.bit_length():,} bits")
            self._stack.append(argument)
        elif name in _CONSTANTS:
            self._stack.append(_CONSTANTS[name])
        elif name in _EMPTY:
            self._stack.append(_EMPTY[name]())
        elif name in _MEMO_READERS:
            self._stack.append(self._memo[argument])
        elif name in _MEMO_WRITERS:
            self._memo[len(self._memo) if name == "MEMOIZE" else argument] = self._stack[-1]
        elif name in _IGNORED:
            pass
        else:
            operation = _OPERATIONS.get(name)
            if operation is None:
                raise UnreadableError(f"uses the operation {name}, which no file of weights needs")
            operation(self, argument)

    def mark(self, _: Any) -> None:
        self._below.append(self._stack)
        self._stack = []

    def pop_mark(self, _: Any = None) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def drop(self, _: Any) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self.pop_mark()

    def repeat(self, _: Any) -> None:
        self._stack.append(self._stack[-1])

    def make_tuple(self, _: Any, *, count: int | None = None) -> None:
        if count is None:
            items = self.pop_mark()
        else:
            items = [self.pop() for _ in range(count)][::-1]
        self._stack.append(tuple(items))

    def make_list(self, _: Any) -> None:
        items = self.pop_mark()
        self._stack.append(items)

    def make_dict(self, _: Any) -> None:
        items, made = self.pop_mark(), dict[Any, Any]()
        self._put(made, items)
        self._stack.append(made)

    def make_frozenset(self, _: Any) -> None:
        items, made = self.pop_mark(), set[Any]()
        self._add(made, items)
        self._stack.append(frozenset(made))

    def append_one(self, _: Any) -> None:
        item = self.pop()
        self._extend(self._stack[-1], [item])

    def append_all(self, _: Any) -> None:
        items = self.pop_mark()
        self._extend(self._stack[-1], items)

    def set_one(self, _: Any) -> None:
        value, key = self.pop(), self.pop()
        self._put(self._stack[-1], [key, value])

    def set_all(self, _: Any) -> None:
        items = self.pop_mark()
        self._put(self._stack[-1], items)

    def add_all(self, _: Any) -> None:
        items = self.pop_mark()
        self._add(self._stack[-1], items)

    def name_global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(_reference(module, name))

    def name_stacked(self, _: Any) -> None:
        name, module = self.pop(), self.pop()
        self._stack.append(_reference(module, name))

    def call(self, _: Any) -> None:
        arguments, called = self.pop(), self.pop()
        self._stack.append(self._made(called, arguments))

    def make_new_with_keywords(self, _: Any) -> None:
        keywords, arguments, called = self.pop(), self.pop(), self.pop()
        self._stack.append(self._made(called, arguments) if not keywords else self._inert(called))

    def make_named(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._stack.append(self._made(_reference(module, name), tuple(self.pop_mark())))

    def make_stacked(self, _: Any) -> None:
        called, *arguments = self.pop_mark()
        self._stack.append(self._made(called, tuple(arguments)))

    def give_state(self, _: Any) -> None:
        state = self.pop()
        value = self._stack[-1]
        if isinstance(value, Inert):
            value.state = state
        else:  # attributes of a mapping, such as a state_dict's versions, are not kept
            self._rules.give_state(value, state)

    def find_persistent(self, argument: Any) -> None:
        if self._rules.persistent is None:
            raise UnreadableError("refers to data outside it, as files of weights do only in torch's own form")
        self._stack.append(self._rules.persistent(argument))

    def find_persistent_stacked(self, _: Any) -> None:
        self.find_persistent(self.pop())

    def _made(self, called: Any, arguments: Any) -> Any:
        builder = self._rules.builders.get(called) if isinstance(called, Reference) else None
        if builder is None or not isinstance(arguments, tuple):
            return self._inert(called)
        try:
            return builder(*arguments)
        except UnreadableError:
            raise
        except (ValueError, TypeError):
            return self._inert(called)

    def _inert(self, called: Any) -> Inert:
        if isinstance(called, Inert):
            called = called.reference
        reference = called if isinstance(called, Reference) else Reference("?", type(called).__name__)
        self._not_run[str(reference)] += 1
        return Inert(reference)

    def _extend(self, target: Any, items: list[Any]) -> None:
        if isinstance(target, Inert):
            return  # elements of what behaves as a list have no names, and so are no weights
        if not isinstance(target, list):
            raise UnreadableError(f"appends to a {type(target).__name__}")
        target.extend(items)

    def _put(self, target: Any, items: list[Any]) -> None:
        if isinstance(target, Inert):
            target.entries = target.entries if target.entries is not None else {}
            target = target.entries
        if not isinstance(target, dict):
            raise UnreadableError(f"puts entries into a {type(target).__name__}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            self._allowance.step()
            target[_key(key)] = value

    def _add(self, target: Any, items: list[Any]) -> None:
        if isinstance(target, Inert):
            return
        if not isinstance(target, set):
            raise UnreadableError(f"adds members to a {type(target).__name__}")
        for item in items:
            self._allowance.step()
            target.add(_key(item))


def _reference(module: Any, name: Any) -> Reference:
    if not isinstance(module, str) or not isinstance(name, str):
        raise UnreadableError("names a class by something that is no text")
    if max(len(module), len(name)) > MOST_NAME:
        raise UnreadableError(f"names a class by more than {MOST_NAME} characters")
    return Reference(module, name)


def _key(value: Any) -> Any:
    """`value` if it can be hashed at no risk."""
    members = value if type(value) is tuple else (value,)
    if not all(isinstance(member, (*KEYS, Inert)) or type(member) is Reference for member in members):
        raise UnreadableError(f"has a {type(value).__name__} with members that are not plain for a key")
    if any(isinstance(member, int) and member.bit_length() > MOST_KEY_BITS for member in members):
        raise UnreadableError(f"has a key of more than {MOST_KEY_BITS} bits")
    return value


_VALUES = frozenset(
    (
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8", "BYTEARRAY8"),
    )
)
_CONSTANTS: Mapping[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_EMPTY: Mapping[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_SET": set}
_MEMO_READERS = frozenset({"GET", "BINGET", "LONG_BINGET"})
_MEMO_WRITERS = frozenset({"PUT", "BINPUT", "LONG_BINPUT", "MEMOIZE"})
_IGNORED = frozenset({"PROTO", "FRAME", "STOP", "READONLY_BUFFER"})
_OPERATIONS: Mapping[str, Callable[[_Machine, Any], Any]] = {
    "MARK": _Machine.mark,
    "POP_MARK": _Machine.pop_mark,
    "POP": _Machine.drop,
    "DUP": _Machine.repeat,
    "TUPLE": _Machine.make_tuple,
    "TUPLE1": lambda machine, _: machine.make_tuple(_, count=1),
    "TUPLE2": lambda machine, _: machine.make_tuple(_, count=2),
    "TUPLE3": lambda machine, _: machine.make_tuple(_, count=3),
    "LIST": _Machine.make_list,
    "DICT": _Machine.make_dict,
    "FROZENSET": _Machine.make_frozenset,
    "APPEND": _Machine.append_one,
    "APPENDS": _Machine.append_all,
    "SETITEM": _Machine.set_one,
    "SETITEMS": _Machine.set_all,
    "ADDITEMS": _Machine.add_all,
    "GLOBAL": _Machine.name_global,
    "STACK_GLOBAL": _Machine.name_stacked,
    "REDUCE": _Machine.call,
    "NEWOBJ": _Machine.call,
    "NEWOBJ_EX": _Machine.make_new_with_keywords,
    "INST": _Machine.make_named,
    "OBJ": _Machine.make_stacked,
    "BUILD": _Machine.give_state,
    "PERSID": _Machine.find_persistent,
    "BINPERSID": _Machine.find_persistent_stacked,
}

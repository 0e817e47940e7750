"""The native side of a call of a compiled function: checks, addresses, the run and the results, without any Python code.

Enters: records that say for which arguments a compiled graph holds (see binding.py, which fills them in). Leaves: the address of a
vectorcall function. It tries the records of a function in turn; if one fits, its graph runs and the results are returned; if none does,
or anything is unusual, it calls the function's Python `__call__`, which knows all cases. Refuses: nothing.

All of it runs with Python's lock held, but for runs that take long. References follow CPython's rules: what is borrowed from a record
is alive while the record is, which a call holds.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import numpy as np

from graphcell.buffer import RetiredBuffers, Writers
from graphcell.codegen.llvm.text import I8, I32, I64, PTR, VOID, FunctionBuilder, LType, Module, Val, const, i64
from graphcell.context import config
from graphcell.runtime.structures import WORD, StructureBuilder, words
from graphcell.runtime.support import expect, load_support
from graphcell.runtime.vectorcall import ArrayFields, is_possible, slot_offset
from graphcell.tensor import Activity, ContentsEpoch, StateEpoch, StorageEpoch, Tensor

_CODE = "calls"
KEPT_OUTPUTS = 3
"""So many buffers of an output are kept to be given out again."""
KEPT_RECORDS = 8
"""So many signatures of a function are called natively."""
RECORD_SLOTS = 64
"""So many where the extent of an argument says which one it is: a power of two."""
# kinds of nodes of a pattern
IDENTICAL, EQUAL, FLOAT, TENSOR, TUPLE, LIST, DICT = range(7)
# what comes of the outputs
SINGLE, AS_TUPLE, FINISH = range(3)

ANY = -2
"""An epoch that always holds: nothing was read from outside."""

_TYPE_OFFSET = 8  # of an object's type
_VALUE_OFFSET = 16  # of a float's value, of a closure cell's content
_EQUALS = 2  # Py_EQ
_NO_FLAGS = (1 << 63) - 1  # all bits of vectorcall's nargsf that are a number
_MISS = 1  # no object has this address


NodeState = words("NodeState", "kind", "value", "count", "table", "position", "mask", "type")
OutputState: Any = type("OutputState", (ctypes.Structure,), {"_fields_": [("count", WORD), ("arrays", WORD * KEPT_OUTPUTS), ("make", WORD)]})
BindingState = words("BindingState", "home", "free", "run", "plan", "releases", "outputs", "slots", "writes", "contents", "needs")
SpaceState = words("SpaceState", "next", "epoch", "ready", "plan", "inputs", "outputs", "arena", "pool", "callback", "fail", "arrays", "generation")
RecordState = words(
    "RecordState", "owner", "positional", "keywords", "names", "nodes", "state_epoch", "contents_epoch", "cells", "cell_table",
    "globals", "global_table", "check", "binding", "structure", "finish", "hits",
)  # fmt: skip
_TABLE_FIELDS = [("count", WORD), ("counted", WORD), ("always", WORD), ("last", WORD), ("records", WORD * RECORD_SLOTS)]
TableState: Any = type("TableState", (ctypes.Structure,), {"_fields_": _TABLE_FIELDS})

_FUNCTIONS = (
    "Py_IncRef", "Py_DecRef", "PyType_GenericAlloc", "PyTuple_New", "PyTuple_SetItem", "PyTuple_GetItem", "PyTuple_Size",
    "PyList_GetItem", "PyList_Size", "PyDict_Next", "PyDict_Size", "PyDict_GetItemWithError", "PyErr_Clear", "PyErr_NoMemory",
    "PyObject_CallNoArgs", "PyObject_CallFunctionObjArgs", "PyObject_Vectorcall", "PyObject_RichCompareBool", "PyEval_SaveThread",
    "PyEval_RestoreThread", "PyMem_Malloc", "PyMem_Free",
)  # fmt: skip
_OBJECTS = ("tensor_type", "array_type", "none", "true", "false")
_COUNTERS = ("busy", "state_epoch", "storage_epoch", "contents_epoch", "running", "generation", "writing", "claimed")
_EnvironmentState = words("_EnvironmentState", *_FUNCTIONS, *_OBJECTS, *_COUNTERS, "slow", "threads_slot", "threads", "table_offset", "data_offset")


# -- the generated code ------------------------------------------------------------------------------------------------
class _Emitter(StructureBuilder):
    """A builder that knows the structures above and CPython's functions."""

    def environment(self, field: str, type: LType = PTR) -> Val:
        return self.get(Val("@environment", PTR), _EnvironmentState, field, type)

    def python(self, function: str, result: LType, *args: Val) -> Val:
        return self.call_pointer(self.environment(function), result, *args)

    def counter(self, name: str) -> Val:
        return self.load(self.environment(name), I64)

    def add_to_counter(self, name: str, amount: int) -> None:
        at = self.environment(name)
        self.store(self.add(self.load(at, I64), i64(amount)), at)

    def add_to_calls(self, generation: Val, amount: int) -> None:
        """Counts calls under way (see RetiredBuffers)."""
        at = self.gep(self.environment("running"), generation, I64)
        self.store(self.add(self.load(at, I64), i64(amount)), at)

    def type_of(self, thing: Val) -> Val:
        return self.load(self.gep(thing, _TYPE_OFFSET, I8), PTR)

    def is_not(self, x: Val, y: Val | int) -> Val:
        return self.icmp("ne", x, const(y, x.type) if isinstance(y, int) else y)

    def equals(self, x: Val, y: Val | int) -> Val:
        return self.icmp("eq", x, const(y, x.type) if isinstance(y, int) else y)

    def own(self, thing: Val) -> None:
        self.python("Py_IncRef", VOID, thing)

    def let_go(self, thing: Val) -> None:
        self.python("Py_DecRef", VOID, thing)


_NULL = const(0, PTR)
_MISSED = Val(f"inttoptr (i64 {_MISS} to ptr)", PTR)


def _emit_match_tensor(module: Module, data_offset: int) -> None:
    """`match_tensor(node, object, inputs) -> i64`: 1 if the object is a Tensor of the node's type with a contiguous buffer, whose address
    goes into the table `inputs`."""
    b = _Emitter(module, "match_tensor", (("node", PTR), ("object", PTR), ("inputs", PTR)), I64)
    node, f = b.args["node"], ArrayFields
    no = i64(0)
    b.return_if(b.is_not(b.type_of(b.args["object"]), b.get(node, NodeState, "type", PTR)), no)
    array = b.load(b.gep(b.args["object"], data_offset, I8), PTR)
    b.return_if(b.equals(array, 0), no)
    b.return_if(b.is_not(b.type_of(array), b.environment("array_type")), no)
    b.return_if(b.is_not(b.load(b.gep(array, f.DTYPE, I8), PTR), b.get(node, NodeState, "value", PTR)), no)
    rank = b.cast(b.load(b.gep(array, f.RANK, I8), I32), I64)
    b.return_if(b.is_not(rank, b.get(node, NodeState, "count")), no)
    contiguous = b.and_(b.load(b.gep(array, f.FLAGS, I8), I32), const(f.C_CONTIGUOUS, I32))
    b.return_if(b.equals(contiguous, 0), no)
    dims, wanted = b.load(b.gep(array, f.DIMS, I8), PTR), b.get(node, NodeState, "table", PTR)
    with b.loop(0, rank, carried=[i64(0)]) as loop:
        differs = b.xor(b.item(dims, loop.index, I64), b.item(wanted, loop.index, I64))
        loop.carry(b.or_(loop.carried[0], differs))
    b.return_if(b.is_not(loop.results[0], 0), no)
    address = b.load(b.gep(array, f.DATA, I8), I64)
    b.return_if(b.is_not(b.and_(address, b.get(node, NodeState, "mask")), 0), no)
    b.store(address, b.gep(b.args["inputs"], b.get(node, NodeState, "position"), I64))
    b.finish(i64(1))


def _emit_match(module: Module) -> None:
    """`match(cursor, object, inputs) -> i64`: 1 if the object fits the node at `*cursor` (and its children the nodes after it)."""
    b = _Emitter(module, "match", (("cursor", PTR), ("object", PTR), ("inputs", PTR)), I64)
    cursor, thing = b.args["cursor"], b.args["object"]
    node = b.load(cursor, PTR)
    b.store(b.gep(node, ctypes.sizeof(NodeState), I8), cursor)
    kind, value = b.get(node, NodeState, "kind"), b.get(node, NodeState, "value", PTR)
    yes, no = i64(1), i64(0)
    with b.if_then(b.equals(kind, TENSOR)):
        found = b.call("match_tensor", I64, node, thing, b.args["inputs"])
        b.return_if(b.equals(found, 1), yes)
        b.return_if(b.equals(found, 0), no)
    with b.if_then(b.icmp("sle", kind, i64(FLOAT))):
        b.return_if(b.equals(thing, value), yes)
        b.return_if(b.equals(kind, IDENTICAL), no)
        b.return_if(b.is_not(b.type_of(thing), b.type_of(value)), no)
        with b.if_then(b.equals(kind, EQUAL)):
            same = b.python("PyObject_RichCompareBool", I32, thing, value, const(_EQUALS, I32))
            b.return_if(b.equals(same, 1), yes)
            b.return_if(b.equals(same, 0), no)
            b.python("PyErr_Clear", VOID)
        b.return_if(b.equals(kind, EQUAL), no)
        bits = [b.load(b.gep(x, _VALUE_OFFSET, I8), I64) for x in (thing, value)]
        b.return_if(b.equals(*bits), yes)
    b.return_if(b.icmp("sle", kind, i64(FLOAT)), no)
    b.return_if(b.is_not(b.type_of(thing), value), no)
    for container, size, take in (
        (TUPLE, "PyTuple_Size", "PyTuple_GetItem"), (LIST, "PyList_Size", "PyList_GetItem"), (DICT, "PyDict_Size", ""),
    ):  # fmt: skip
        with b.if_then(b.equals(kind, container)):
            b.return_if(b.is_not(b.python(size, I64, thing), b.get(node, NodeState, "count")), no)
            _emit_match_items(b, node, take)
    b.finish(yes)


def _emit_match_items(b: _Emitter, node: Val, take: str) -> None:
    thing, keys = b.args["object"], b.get(node, NodeState, "table", PTR)
    place, key, item = b.alloca(I64), b.alloca(PTR), b.alloca(PTR)
    b.store(i64(0), place)
    with b.loop(0, b.get(node, NodeState, "count")) as loop:
        if take:
            b.store(b.python(take, PTR, thing, loop.index), item)
        else:
            b.return_if(b.equals(b.python("PyDict_Next", I32, thing, place, key, item), 0), i64(0))
            b.return_if(b.is_not(b.load(key, PTR), b.item(keys, loop.index)), i64(0))
        fits = b.call("match", I64, b.args["cursor"], b.load(item, PTR), b.args["inputs"])
        b.return_if(b.equals(fits, 0), i64(0))


def _emit_take(module: Module) -> None:
    """`take(output) -> ptr`: an array that nobody else sees, with a reference of the caller's; null with an exception if there is no memory."""
    b = _Emitter(module, "take", (("output", PTR),), PTR)
    arrays = b.gep(b.args["output"], OutputState.arrays.offset, I8)
    with b.loop(0, b.get(b.args["output"], OutputState, "count")) as loop:
        array = b.item(arrays, loop.index)
        base = b.load(b.gep(array, ArrayFields.BASE, I8), PTR)
        alone = b.and_(*(b.equals(b.load(x, I32), 1) for x in (array, base)))
        with b.if_then(alone):
            b.own(array)
        b.return_if(alone, array)
    b.finish(b.python("PyObject_CallNoArgs", PTR, b.get(b.args["output"], OutputState, "make", PTR)))


def _emit_tensor(module: Module, offsets: dict[str, int]) -> None:
    """`tensor(array) -> ptr`: a new Tensor around an array whose reference it takes over; null with an exception."""
    b = _Emitter(module, "tensor", (("array", PTR),), PTR)
    new = b.python("PyType_GenericAlloc", PTR, b.environment("tensor_type"), i64(0))
    with b.if_then(b.equals(new, 0)):
        b.let_go(b.args["array"])
    b.return_if(b.equals(new, 0), new)
    b.store(b.args["array"], b.gep(new, offsets["_data"], I8))
    for name, value in (("_value", "none"), ("_address", "none"), ("init", "none"), ("_constant", "false"), ("_persistent", "false")):
        thing = b.environment(value)
        b.own(thing)
        b.store(thing, b.gep(new, offsets[name], I8))
    b.finish(new)


def _emit_let_go_of(module: Module) -> None:
    """`let_go_of(space, count)`: drops the arrays taken for the first `count` outputs."""
    b = _Emitter(module, "let_go_of", (("space", PTR), ("count", I64)))
    arrays = b.get(b.args["space"], SpaceState, "arrays", PTR)
    with b.loop(0, b.args["count"]) as loop:
        b.let_go(b.item(arrays, loop.index))
    b.finish()


def _emit_results(module: Module) -> None:
    """`results(record, space, count) -> ptr`: what the call returns, of the arrays in `space`; null with an exception."""
    b = _Emitter(module, "results", (("record", PTR), ("space", PTR), ("count", I64)), PTR)
    record, count = b.args["record"], b.args["count"]
    arrays = b.get(b.args["space"], SpaceState, "arrays", PTR)
    structure = b.get(record, RecordState, "structure")
    single = b.equals(structure, SINGLE)
    first = b.alloca(PTR)
    with b.if_then(single):
        b.store(b.call("tensor", PTR, b.item(arrays, 0)), first)
    b.return_if(single, b.load(first, PTR))
    together = b.python("PyTuple_New", PTR, count)
    with b.if_then(b.equals(together, 0)):
        b.call("let_go_of", VOID, b.args["space"], count)
    b.return_if(b.equals(together, 0), together)
    with b.loop(0, count, carried=[i64(0)]) as loop:
        new = b.call("tensor", PTR, b.item(arrays, loop.index))
        b.python("PyTuple_SetItem", I32, together, loop.index, new)
        loop.carry(b.or_(loop.carried[0], b.cast(b.equals(new, 0), I64)))
    failed = b.is_not(loop.results[0], 0)
    with b.if_then(failed):
        b.let_go(together)
    b.return_if(failed, _NULL)
    b.return_if(b.equals(structure, AS_TUPLE), together)
    result = b.python("PyObject_CallFunctionObjArgs", PTR, b.get(record, RecordState, "finish", PTR), together, _NULL)
    b.let_go(together)
    b.finish(result)


def _emit_perform(module: Module) -> None:
    """`perform(record, binding, space, args, count) -> ptr`: matches the arguments and runs; _MISS if they do not fit."""
    names = (("record", PTR), ("binding", PTR), ("space", PTR), ("args", PTR), ("count", I64))
    b = _Emitter(module, "perform", names, PTR)
    record, binding, space = b.args["record"], b.args["binding"], b.args["space"]
    cursor = b.alloca(PTR)
    b.store(b.get(record, RecordState, "nodes", PTR), cursor)
    inputs, outputs = b.get(space, SpaceState, "inputs", PTR), b.get(space, SpaceState, "outputs", PTR)
    with b.loop(0, b.args["count"]) as loop:
        fits = b.call("match", I64, cursor, b.item(b.args["args"], loop.index), inputs)
        b.return_if(b.equals(fits, 0), _MISSED)
    count, arrays = b.get(binding, BindingState, "outputs"), b.get(space, SpaceState, "arrays", PTR)
    slots = b.get(binding, BindingState, "slots", PTR)
    with b.loop(0, count) as loop:
        array = b.call("take", PTR, b.gep(slots, b.mul(loop.index, i64(ctypes.sizeof(OutputState))), I8))
        with b.if_then(b.equals(array, 0)):
            b.call("let_go_of", VOID, space, loop.index)
        b.return_if(b.equals(array, 0), _NULL)
        b.store(array, b.gep(arrays, loop.index, I64))
        b.store(b.load(b.gep(array, ArrayFields.DATA, I8), PTR), b.gep(outputs, loop.index, I64))
    epoch = b.get(space, SpaceState, "epoch")
    moved = b.and_(b.is_not(epoch, ANY), b.is_not(epoch, b.counter("storage_epoch")))
    others = b.or_(b.is_not(b.counter("claimed"), 0), b.icmp("sgt", b.counter("writing"), i64(0)))
    unsafe = b.and_(b.is_not(b.get(binding, BindingState, "writes"), 0), b.or_(moved, others))  # making an output may have run Python
    with b.if_then(unsafe):
        b.call("let_go_of", VOID, space, count)
    b.return_if(unsafe, _MISSED)
    b.set(record, RecordState, "hits", b.add(b.get(record, RecordState, "hits"), i64(1)))
    failed = b.call("run", I32, binding, space)
    with b.if_then(b.is_not(b.get(binding, BindingState, "writes"), 0)):
        b.add_to_counter("contents_epoch", 1)
    with b.if_then(b.is_not(failed, 0)):
        b.call("let_go_of", VOID, space, count)
    result = b.alloca(PTR)
    b.if_else(
        b.equals(failed, 0),
        lambda: b.store(b.call("results", PTR, record, space, count), result),
        lambda: b.store(b.python("PyObject_CallNoArgs", PTR, b.get(space, SpaceState, "fail", PTR)), result),
    )
    b.finish(b.load(result, PTR))


def _emit_run(module: Module) -> None:
    """`run(binding, space) -> i32`: the graph's own function, without Python's lock where that is worth it; not 0 if a host call failed."""
    b = _Emitter(module, "run", (("binding", PTR), ("space", PTR)), I32, internal=False)
    binding, space = b.args["binding"], b.args["space"]
    function = b.get(binding, BindingState, "run", PTR)
    b.set(space, SpaceState, "plan", b.get(binding, BindingState, "plan"))
    given = [b.get(space, SpaceState, name, PTR) for name in ("inputs", "outputs", "arena", "pool", "callback")]
    releases = b.get(binding, BindingState, "releases")
    with b.if_then(b.equals(releases, 0)):
        short = b.call_pointer(function, I32, *given)
        b.return_if(b.equals(short, 0), const(0, I32))
        b.return_if(b.is_not(short, 0), const(1, I32))
    writes = b.get(binding, BindingState, "writes")  # 1 if it does
    _emit_add_to_writing(b, writes)
    thread = b.python("PyEval_SaveThread", PTR)
    status = b.call_pointer(function, I32, *given)
    b.python("PyEval_RestoreThread", VOID, thread)
    _emit_add_to_writing(b, b.sub(i64(0), writes))
    b.finish(status)


def _emit_add_to_writing(b: _Emitter, amount: Val) -> None:
    at = b.environment("writing")
    b.store(b.add(b.load(at, I64), amount), at)


def _emit_holds(module: Module) -> None:
    """`holds(record, count, keywords) -> i64`: 1 if as many arguments were given and what the function read from outside is unchanged;
    -1 with an exception."""
    b = _Emitter(module, "holds", (("record", PTR), ("count", I64), ("keywords", PTR)), I64)
    record, no = b.args["record"], i64(0)
    b.return_if(b.is_not(b.get(record, RecordState, "positional"), b.args["count"]), no)
    epoch = b.get(record, RecordState, "state_epoch")
    b.return_if(b.and_(b.is_not(epoch, ANY), b.is_not(epoch, b.counter("state_epoch"))), no)
    contents = b.get(record, RecordState, "contents_epoch")
    stale = b.and_(b.is_not(contents, -1), b.is_not(contents, b.counter("contents_epoch")))
    b.return_if(stale, no)
    b.return_if(b.is_not(b.load(b.environment("threads_slot"), PTR), b.environment("threads")), no)
    named, keywords = b.alloca(I64), b.args["keywords"]
    b.store(i64(0), named)
    with b.if_then(b.is_not(keywords, 0)):
        b.store(b.python("PyTuple_Size", I64, keywords), named)
    b.return_if(b.is_not(b.load(named, I64), b.get(record, RecordState, "keywords")), no)
    names = b.get(record, RecordState, "names", PTR)
    with b.loop(0, b.load(named, I64)) as loop:
        given = b.python("PyTuple_GetItem", PTR, keywords, loop.index)
        b.return_if(b.is_not(given, b.item(names, loop.index)), no)
    table = b.get(record, RecordState, "cell_table", PTR)
    with b.loop(0, b.get(record, RecordState, "cells")) as loop:
        pair = b.gep(table, b.mul(loop.index, i64(2)), I64)
        now = b.load(b.gep(b.item(pair, 0), _VALUE_OFFSET, I8), PTR)
        b.return_if(b.is_not(now, b.item(pair, 1)), no)
    table = b.get(record, RecordState, "global_table", PTR)
    with b.loop(0, b.get(record, RecordState, "globals")) as loop:
        entry = b.gep(table, b.mul(loop.index, i64(3)), I64)
        now = b.python("PyDict_GetItemWithError", PTR, b.item(entry, 0), b.item(entry, 1))
        with b.if_then(b.equals(now, 0)):
            b.python("PyErr_Clear", VOID)
        b.return_if(b.is_not(now, b.item(entry, 2)), no)
    check = b.get(record, RecordState, "check", PTR)
    b.return_if(b.equals(check, 0), i64(1))
    answer = b.python("PyObject_CallNoArgs", PTR, check)
    b.return_if(b.equals(answer, 0), i64(-1))
    b.let_go(answer)
    b.finish(b.cast(b.equals(answer, b.environment("true")), I64))


def _emit_attempt(module: Module) -> None:
    """`attempt(record, args, count, keywords) -> ptr`: the result, null with an exception, or _MISS if the record does not fit."""
    names = (("record", PTR), ("args", PTR), ("count", I64), ("keywords", PTR))
    b = _Emitter(module, "attempt", names, PTR)
    record, count = b.args["record"], b.args["count"]
    fits = b.call("holds", I64, record, count, b.args["keywords"])
    b.return_if(b.equals(fits, -1), _NULL)
    b.return_if(b.equals(fits, 0), _MISSED)
    binding = b.get(record, RecordState, "binding", PTR)
    space = b.get(b.get(binding, BindingState, "home", PTR), BindingState, "free", PTR)
    b.return_if(b.equals(space, 0), _MISSED)
    epoch = b.get(space, SpaceState, "epoch")
    b.return_if(b.and_(b.is_not(epoch, ANY), b.is_not(epoch, b.counter("storage_epoch"))), _MISSED)
    missing = b.and_(b.get(binding, BindingState, "needs"), b.xor(b.get(space, SpaceState, "ready"), i64(-1)))  # bits, see blocks.py
    b.return_if(b.is_not(missing, 0), _MISSED)
    contents = b.get(binding, BindingState, "contents")  # for which what is kept of weights holds; -1: nothing is
    b.return_if(b.and_(b.is_not(contents, -1), b.is_not(contents, b.counter("contents_epoch"))), _MISSED)
    b.call("pop", PTR, binding)
    everything = b.add(count, b.get(record, RecordState, "keywords"))
    result = b.call("perform", PTR, record, binding, space, b.args["args"], everything)
    b.call("push", VOID, binding, space)
    b.finish(result)


def _emit_spaces(module: Module) -> None:
    """`pop(binding) -> ptr` and `push(binding, space)` begin and end a call: they take and give back a workspace that no other call uses
    (null if there is none, and no call begins), of those that the binding's `home` has, and between them buffers that Tensors let go of
    are kept, since the call may have their addresses. `add(binding, space)` gives a new one."""
    b = _Emitter(module, "pop", (("binding", PTR),), PTR, internal=False)
    home = b.get(b.args["binding"], BindingState, "home", PTR)
    first = b.get(home, BindingState, "free", PTR)
    b.return_if(b.equals(first, 0), first)
    b.set(home, BindingState, "free", b.get(first, SpaceState, "next", PTR))
    generation = b.counter("generation")
    b.set(first, SpaceState, "generation", generation)
    b.add_to_calls(generation, 1)
    b.finish(first)
    b = _Emitter(module, "add", (("binding", PTR), ("space", PTR)), internal=False)
    home = b.get(b.args["binding"], BindingState, "home", PTR)
    b.set(b.args["space"], SpaceState, "next", b.get(home, BindingState, "free", PTR))
    b.set(home, BindingState, "free", b.args["space"])
    b.finish()
    b = _Emitter(module, "push", (("binding", PTR), ("space", PTR)), internal=False)
    b.add_to_calls(b.get(b.args["space"], SpaceState, "generation"), -1)
    b.call("add", VOID, b.args["binding"], b.args["space"])
    b.finish()


def _emit_slowly(module: Module) -> None:
    """`slowly(self, args, count, keywords) -> ptr`: calls the Python function with `self` before the arguments."""
    names = (("self", PTR), ("args", PTR), ("count", I64), ("keywords", PTR))
    b = _Emitter(module, "slowly", names, PTR)
    count, keywords = b.args["count"], b.args["keywords"]
    total = b.alloca(I64)
    b.store(count, total)
    with b.if_then(b.is_not(keywords, 0)):
        b.store(b.add(count, b.python("PyTuple_Size", I64, keywords)), total)
    everything = b.load(total, I64)
    given = b.python("PyMem_Malloc", PTR, b.mul(b.add(everything, i64(1)), i64(8)))
    out_of_memory = b.equals(given, 0)
    with b.if_then(out_of_memory):
        b.python("PyErr_NoMemory", PTR)
    b.return_if(out_of_memory, _NULL)
    b.store(b.args["self"], given)
    with b.loop(0, everything) as loop:
        b.store(b.item(b.args["args"], loop.index), b.gep(given, b.add(loop.index, i64(1)), I64))
    result = b.python("PyObject_Vectorcall", PTR, b.environment("slow"), given, b.add(count, i64(1)), keywords)
    b.python("PyMem_Free", VOID, given)
    b.finish(result)


def _emit_slot(module: Module) -> None:
    """`slot(table, args, count) -> i64`: which record serves as many rows as the argument that counts has; -1 if none does."""
    b = _Emitter(module, "slot", (("table", PTR), ("args", PTR), ("count", I64)), I64)
    table, none, f = b.args["table"], i64(-1), ArrayFields
    counted = b.get(table, TableState, "counted")
    b.return_if(b.icmp("sge", counted, b.args["count"]), none)
    thing = b.item(b.args["args"], counted)
    b.return_if(b.is_not(b.type_of(thing), b.environment("tensor_type")), none)
    array = b.load(b.gep(thing, b.environment("data_offset", I64), I8), PTR)
    b.return_if(b.equals(array, 0), none)
    b.return_if(b.is_not(b.type_of(array), b.environment("array_type")), none)
    b.return_if(b.equals(b.load(b.gep(array, f.RANK, I8), I32), 0), none)
    rows = b.load(b.load(b.gep(array, f.DIMS, I8), PTR), I64)
    slot = b.and_(rows, i64(RECORD_SLOTS - 1))
    b.return_if(b.equals(b.item(b.gep(table, TableState.records.offset, I8), slot), 0), none)
    b.finish(slot)


def _emit_call(module: Module) -> None:
    """`call(self, args, nargsf, keywords) -> ptr`: CPython's vectorcallfunc."""
    names = (("self", PTR), ("args", PTR), ("nargsf", I64), ("keywords", PTR))
    b = _Emitter(module, "call", names, PTR, internal=False)
    args, keywords = b.args["args"], b.args["keywords"]
    count = b.and_(b.args["nargsf"], i64(_NO_FLAGS))
    table = b.load(b.gep(b.args["self"], b.environment("table_offset", I64), I8), PTR)
    place, stop = b.alloca(I64), b.alloca(I64)
    b.store(i64(0), place)

    def choose() -> None:
        """Puts the only record that may fit between `place` and `stop`."""
        slot = b.call("slot", I64, table, args, count)
        b.store(slot, place)
        b.store(b.add(slot, b.cast(b.icmp("sge", slot, i64(0)), I64)), stop)

    def more() -> Val:
        return b.icmp("slt", b.load(place, I64), b.load(stop, I64))

    def attempt() -> None:
        at = b.load(place, I64)
        record = b.item(b.gep(table, TableState.records.offset, I8), at)
        owner = b.get(record, RecordState, "owner", PTR)
        b.own(owner)
        result = b.call("attempt", PTR, record, args, count, keywords)
        b.let_go(owner)
        with b.if_then(b.is_not(result, _MISSED)):
            b.set(table, TableState, "last", record)
        b.return_if(b.is_not(result, _MISSED), result)
        b.store(b.add(at, i64(1)), place)

    always = b.alloca(I64)
    b.store(i64(0), always)
    with b.if_then(b.is_not(table, 0)):
        b.store(b.or_(b.cast(b.equals(b.counter("busy"), 0), I64), b.get(table, TableState, "always")), always)
    with b.if_then(b.is_not(b.load(always, I64), 0)):
        b.if_else(
            b.icmp("slt", b.get(table, TableState, "counted"), i64(0)),
            lambda: b.store(b.get(table, TableState, "count"), stop),
            choose,
        )
        b.while_loop(more, attempt)
    b.finish(b.call("slowly", PTR, b.args["self"], args, count, keywords))


def assembly(offsets: dict[str, int]) -> str:
    """The LLVM assembly of all that. `offsets`: where a Tensor keeps its attributes."""
    module = Module()
    module.add_global("environment", f"internal global [{ctypes.sizeof(_EnvironmentState)} x i8] zeroinitializer, align 64")
    b = FunctionBuilder(module, "environment_address", (), PTR, internal=False)
    b.finish(Val("@environment", PTR))
    _emit_match_tensor(module, offsets["_data"])
    _emit_tensor(module, offsets)
    for emit in (_emit_match, _emit_take, _emit_let_go_of, _emit_results, _emit_perform, _emit_run, _emit_holds, _emit_attempt,
                 _emit_spaces, _emit_slowly, _emit_slot, _emit_call):  # fmt: skip
        emit(module)
    return str(module)


# -- Python's side -----------------------------------------------------------------------------------------------------
class Native:
    """The loaded code, one for the process; see `native`."""

    def __init__(self, offsets: dict[str, int], threads_offset: int):
        library = load_support(_CODE, assembly(offsets))
        pointer = ctypes.c_void_p
        self.vectorcall = library.address("call")
        self.pop = ctypes.PYFUNCTYPE(pointer, pointer)(library.address("pop"))
        self.push = ctypes.PYFUNCTYPE(None, pointer, pointer)(library.address("push"))
        self.add = ctypes.PYFUNCTYPE(None, pointer, pointer)(library.address("add"))
        self.run = ctypes.PYFUNCTYPE(ctypes.c_int32, pointer, pointer)(library.address("run"))
        self._environment = _EnvironmentState.from_address(ctypes.CFUNCTYPE(pointer)(library.address("environment_address"))())
        for name in _FUNCTIONS:
            setattr(self._environment, name, ctypes.cast(getattr(ctypes.pythonapi, name), pointer).value)
        objects = (Tensor, np.ndarray, None, True, False)
        for name, thing in zip(_OBJECTS, objects, strict=True):
            setattr(self._environment, name, id(thing))
        counters = (Activity, StateEpoch, StorageEpoch, ContentsEpoch, RetiredBuffers.running, RetiredBuffers.generation,
                    Writers.writing, Writers.claimed)  # fmt: skip
        for name, counter in zip(_COUNTERS, counters, strict=True):
            setattr(self._environment, name, ctypes.addressof(counter))
        self._environment.threads_slot = id(config) + threads_offset
        self._environment.data_offset = offsets["_data"]

    def connect(self, slow: Any, table_offset: int) -> bool:
        """Tells what to call, with the function before its arguments, in all unusual cases, and where functions keep their tables.

        False if other functions keep them elsewhere.
        """
        environment = self._environment
        if environment.table_offset not in (0, table_offset):
            return False
        self._slow = slow
        environment.slow, environment.table_offset = id(slow), table_offset
        return True

    def set_threads(self, applied: Any) -> None:
        """Notes the configured number of threads (the very object in the configuration) that the pool has now."""
        self._applied = applied
        self._environment.threads = id(applied)


_SLOTS = ("_address", "_constant", "_data", "_persistent", "_value", "init")


@functools.cache
def native() -> Native | None:
    """The native code of calls, loaded when first asked for; None where it cannot be used."""
    if not is_possible():
        return None
    offsets = _offsets()
    threads = slot_offset(type(config)(), "runtime_num_threads")
    if not threads or not all(offsets.values()) or not _values_are_known():
        return None
    return Native(offsets, threads)


def _offsets() -> dict[str, int]:
    """Where a Tensor keeps its attributes; 0 for what is not found."""
    tensor = Tensor.of_array(np.zeros(1))
    return {name: slot_offset(tensor, name) for name in _SLOTS}


expect(_CODE, lambda: assembly(_offsets()) if is_possible() else None)


def _values_are_known() -> bool:
    """True if floats and closure cells look as expected."""
    number, mark = 1.5e300, object()
    cell = (lambda: mark).__closure__
    assert cell is not None
    content = ctypes.c_int64.from_address(id(cell[0]) + _VALUE_OFFSET).value
    return ctypes.c_double.from_address(id(number) + _VALUE_OFFSET).value == number and content == id(mark)

"""How the operands of one loop op are read: from which root, along which axes, so that all of them walk the same loops.

A value that is a reshape, transpose or broadcast of another (its *root*) needs no memory of its own: it is read from the root, whose
axes are regrouped. Where that does not go together with the other operands, a value that lies in memory with strides is read as it lies; one
that does not must be copied first, which `legalize` sees to by asking `read_operands` beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from graphcell.codegen.axes import Dims, Trail, flatten, fresh_dims, leaves
from graphcell.ir.graph import Node, Value
from graphcell.ops.movement import BroadcastTo, Reshape, Transpose
from graphcell.records import dataclass


@dataclass
class Operand:
    """How a node reads one operand: the root that holds or computes it, and the root's axes."""

    root: Value
    axes: Dims


@dataclass(frozen=True)
class Path:
    """A value, the root that it is reshaped, transposed and broadcast from by `steps`, and whether strides express where it lies."""

    value: Value
    root: Value
    steps: tuple[Node, ...]
    strided: bool


def chain(made_by: Mapping[Value, Node], v: Value) -> tuple[Value, list[Node]]:
    """The root that v is a reshape, transpose or broadcast of, and these, root first."""
    steps: list[Node] = []
    node = made_by.get(v)
    while node is not None and isinstance(node.op, (Reshape, BroadcastTo, Transpose)):
        steps.append(node)
        v = node.operands[0]
        node = made_by.get(v)
    steps.reverse()
    return v, steps


def walk(trail: Trail, axes: Dims, steps: Sequence[Node]) -> Dims | None:
    """The axes of what `steps` make of a root with `axes`; None (with nothing changed) if an extent cannot be split so."""
    mark = trail.mark()
    dims: Dims | None = axes
    for step in steps:
        assert dims is not None
        shape = step.results[0].type.shape
        if isinstance(step.op, Reshape):
            dims = trail.regroup(dims, shape)
        elif isinstance(step.op, Transpose):
            dims = tuple(dims[k] for k in step.op.perm)
        else:
            old = step.operands[0].type.shape
            lead = len(shape) - len(old)
            spread = fresh_dims(shape)
            dims = spread[:lead] + tuple(spread[lead + j] if d == 1 else dims[j] for j, d in enumerate(old))
        if dims is None:
            trail.undo(mark)
            return None
    return dims


def read_operands(trail: Trail, paths: Sequence[Path]) -> tuple[list[Operand], Dims] | int:
    """How to read all operands of one op, and the axes of its dimensions; or the position of an operand that must be copied first."""
    begin = trail.mark()
    known: dict[Value, Dims] = {}
    operands: list[Operand] = []
    common: Dims | None = None
    for position, path in enumerate(paths):
        mark = trail.mark()
        for operand, dims in _ways(trail, path, known):
            if common is None or (trail.unify(dims, common) and not repeats(common)):
                common = dims if common is None else common
                known.setdefault(operand.root, operand.axes)
                operands.append(operand)
                break
            trail.undo(mark)  # the same memory read in two ways, or extents split differently
        else:
            trail.undo(begin)
            return position
    assert common is not None
    return operands, common


def _ways(trail: Trail, path: Path, known: Mapping[Value, Dims]) -> Iterator[tuple[Operand, Dims]]:
    """The ways to read an operand, the best first: along axes that another operand walks already, along new ones, as it lies."""
    found = [known[path.root]] if path.root in known else []
    for axes in (*found, fresh_dims(path.root.type.shape)):
        dims = walk(trail, axes, path.steps)
        if dims is not None:
            yield Operand(path.root, axes), dims
    if path.strided and path.steps:
        axes = fresh_dims(path.value.type.shape)
        yield Operand(path.value, axes), axes


def repeats(dims: Dims) -> bool:
    """True if one axis stands in two places, be it of one dimension: not all elements would be walked."""
    axes = leaves(flatten(dims))
    return len(set(axes)) != len(axes)

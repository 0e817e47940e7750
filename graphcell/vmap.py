"""`vmap`: a function applied along a dimension of its arguments, with MindSpore 2.10's structures and errors.

Enters: a function, or a CellList with one Cell for each place along the dimension. Leaves: a function of Tensors with that dimension. In a graph
the function becomes the body of one loop, whose steps may be fused like any other; eagerly it runs once for each place. Random numbers differ from
place to place. Refused: functions that assign to Parameters, and results that are neither Tensors nor nested tuples and lists of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from graphcell.context import GRAPH_MODE, config
from graphcell.errors import MappedAxisError
from graphcell.jacobian import map_rows
from graphcell.jit import jit
from graphcell.ops.functional.movement import moveaxis, stack
from graphcell.pullback import invoke
from graphcell.tensor import Tensor, state

__all__ = ["vmap"]

Axes = int | None | tuple[Any, ...] | list[Any]


def vmap(fn: Callable[..., Any], in_axes: Axes = 0, out_axes: Axes = 0) -> Callable[..., Any]:
    """`fn` applied to each slice of its arguments, its results stacked.

    Args:
        fn: takes and returns Tensors, or nested tuples and lists of them; a CellList has a Cell for each slice.
        in_axes: the dimension that is mapped over: one for all arguments, or one for each (nested as the arguments are); None: not mapped.
        out_axes: where that dimension stands in the results: one for all, or one for each (nested as the results are).

    Returns:
        A function with the arguments of `fn`. Lists among its results are tuples.

    Raises:
        RuntimeError: axes of other types, out of range, all None, or not as many as there are arguments or results; extents that differ.
    """
    if not callable(fn) and not _is_list_of_cells(fn):
        raise MappedAxisError(f"vmap: 'fn' must be a function, a Cell or a CellList, but is {type(fn).__name__}")

    def mapped(*args: Any) -> Any:
        axes = _spread(in_axes, args, "in_axes")
        given = list(_mapped_tensors(args, axes))
        if not given and not _is_list_of_cells(fn):
            raise MappedAxisError(f"The 'in_axes' of 'vmap' cannot be all None while 'fn' is not a 'CellList', but got {in_axes}.")
        _check_extents(given, len(fn) if _is_list_of_cells(fn) else None)  # type: ignore[arg-type]
        rows = [moveaxis(x, axis, 0) for x, axis in given]
        items, structure = (_each_cell if _is_list_of_cells(fn) else _each_row)(fn, args, axes, rows)
        if out_axes is None:
            raise MappedAxisError("The 'out_axes' of 'vmap' cannot be a single None while 'fn' is not a 'CellList'.")
        if structure is None and isinstance(out_axes, (tuple, list)):
            return _placed((structure,), iter(items), out_axes)[0]
        return _placed(structure, iter(items), out_axes)

    mapped.__name__ = f"vmap_{getattr(fn, '__name__', type(fn).__name__)}"
    compiled = jit(mapped)

    def after_vmap(*args: Any) -> Any:
        return (compiled if config.mode == GRAPH_MODE and state.trace is None else mapped)(*args)

    return after_vmap


def _is_list_of_cells(fn: Any) -> bool:
    from graphcell.nn import CellList

    return isinstance(fn, CellList)


# -- arguments ---------------------------------------------------------------------------------------------------------------------------
def _spread(axes: Any, args: Any, what: str) -> Any:
    """One axis, or a nested tuple of axes, for each of the arguments."""
    if axes is None or (isinstance(axes, int) and not isinstance(axes, bool)):
        return tuple(_spread(axes, x, what) for x in args) if isinstance(args, (tuple, list)) else axes
    if not isinstance(axes, (tuple, list)):
        raise MappedAxisError(f"The axis in vmap`s '{what}' can only be of type Int or None, but got {axes!r}.")
    if not isinstance(args, (tuple, list)) or len(axes) != len(args):
        size = len(args) if isinstance(args, (tuple, list)) else 1
        raise MappedAxisError(
            f"When vmap`s '{what}' is a tuple or list, and its size must be equal to the number of arguments of 'fn': {size}, but got size: {len(axes)}."
        )
    return tuple(_spread(a, x, what) for a, x in zip(axes, args, strict=True))


def _mapped_tensors(x: Any, axis: Any) -> Iterator[tuple[Tensor, int]]:
    """The Tensors that are mapped over, each with its axis."""
    if isinstance(x, (tuple, list)):
        for item, a in zip(x, axis, strict=True):
            yield from _mapped_tensors(item, a)
    elif axis is not None:
        if not isinstance(x, Tensor):
            raise MappedAxisError(f"vmap: an argument that is mapped over must be a Tensor, but is {type(x).__name__}; its axis may be None")
        yield x, _checked_axis(axis, x.ndim, "in_axes")


def _checked_axis(axis: int, rank: int, what: str) -> int:
    if not -rank <= axis < rank:
        raise MappedAxisError(f"The axis: {axis} in '{what}' is out of bounds for array of dimension [{-rank},{rank}).")
    return axis % rank


def _check_extents(given: Sequence[tuple[Tensor, int]], cells: int | None) -> None:
    """Raises if the arguments do not agree on how often the function is applied."""
    extents = [x.shape[axis] for x, axis in given] + ([] if cells is None else [cells])
    for extent in extents[1:]:
        if extent != extents[0]:
            raise MappedAxisError(f"The 'axis_size' of each argument in the scope of 'vmap' should be equal, but got {extents[0]} and {extent}.")
    if not extents[0]:
        raise MappedAxisError("vmap: the dimension that is mapped over is empty")


def _with_rows(x: Any, axis: Any, rows: Iterator[Tensor]) -> Any:
    """The arguments with each Tensor that is mapped over replaced."""
    if isinstance(x, (tuple, list)):
        return type(x)([_with_rows(item, a, rows) for item, a in zip(x, axis, strict=True)])
    return x if axis is None else next(rows)


# -- results -----------------------------------------------------------------------------------------------------------------------------
Structure = tuple[Any, ...] | None
"""How results are nested: None for a Tensor."""


def _flat(result: Any, found: list[Tensor]) -> Structure:
    """Appends the Tensors of a result to `found`; returns how they are nested."""
    if isinstance(result, (tuple, list)):
        return tuple(_flat(item, found) for item in result)
    if not isinstance(result, Tensor):
        raise MappedAxisError(f"vmap: the function must return Tensors, but returns {type(result).__name__}")
    found.append(result)
    return None


def _placed(structure: Structure, items: Iterator[Tensor], axes: Any) -> Any:
    """The stacked results, nested again, with the dimension where `axes` says."""
    if structure is None:
        if not isinstance(axes, int) or isinstance(axes, bool):
            raise MappedAxisError(f"The axis in vmap`s 'out_axes' can only be of type Int, but got {axes!r}.")
        x = next(items)
        return moveaxis(x, 0, _checked_axis(axes, x.ndim, "out_axes"))
    if isinstance(axes, (tuple, list)) and len(axes) != len(structure):
        raise MappedAxisError(f"The size of vmap's 'out_axes' should be equal to the number of results of 'fn': {len(structure)}, but got size: {len(axes)}.")
    each = axes if isinstance(axes, (tuple, list)) else [axes] * len(structure)
    return tuple(_placed(inner, items, axis) for inner, axis in zip(structure, each, strict=True))


# -- running -----------------------------------------------------------------------------------------------------------------------------
def _each_row(fn: Callable[..., Any], args: Any, axes: Any, rows: Sequence[Tensor]) -> tuple[list[Tensor], Structure]:
    """The results of `fn`, stacked, and how they are nested."""
    structure: Structure = None

    def row(*slices: Tensor) -> Sequence[Tensor]:
        nonlocal structure
        found: list[Tensor] = []
        structure = _flat(invoke(fn, _with_rows(tuple(args), axes, iter(slices)), {}), found)
        return found

    return map_rows(row, *rows), structure


def _each_cell(cells: Any, args: Any, axes: Any, rows: Sequence[Tensor]) -> tuple[list[Tensor], Structure]:
    parts: list[list[Tensor]] = []
    structures: list[Structure] = []
    for k, cell in enumerate(cells):
        parts.append([])
        structures.append(_flat(invoke(cell, _with_rows(tuple(args), axes, iter([r[k] for r in rows])), {}), parts[-1]))
    if any(structure != structures[0] for structure in structures):
        raise MappedAxisError("vmap: the Cells must return as many results as each other, nested in one way")
    return [stack(same) for same in zip(*parts, strict=True)], structures[0]

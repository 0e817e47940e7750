"""Names and types of arguments: of functions under their other names, and of methods of Tensor that differ from the functions of their name."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.recording import Program, caught, module_first, scope

EXPRESSIONS = (
    "ops.floor_divide(input=T((3,)), other=2.0)",
    "ops.fmod(input=T((3,)), other=0.7)",
    "ops.remainder(input=T((3,)), other=0.7)",
    "ops.i0(input=T((3,)))",
    "T((3,)).floor_divide(other=Tensor(0.7))",
    "T((3,)).fmod(other=0.7)",
    "T((3,)).true_divide(other=0.7)",
    "T((3,)).float_power(other=2)",
    "T((3,)).multiply(value=2.0)",
    "T((3,)).sub(y=T((3,), 1.0))",
    "T((3,)).sub(other=T((3,), 1.0), alpha=2)",
    "T((3,)).isclose(x2=T((3,)))",
    "T((3,)).isclose(T((3,), 1.0), 0.1, 9.0, True)",
    "T((2, 3)).matmul(tensor2=T((3, 2)))",
    "T((2, 3)).addr(T((2,)), T((3,)), 2, 3)",
    "T((2, 3)).addr(vec1=T((2,)), vec2=T((3,)), beta=2, alpha=3)",
    "T((2, 3)).reshape(shape=(3, 2))",
    "T((2, 3)).view(shape=(3, 2))",
    "T((2, 3)).view(dtype=ms.int32)",
    "T((2, 3)).permute(dims=(1, 0))",
    "T((2, 3)).broadcast_to(shape=(2, 2, 3))",
    "T((1, 3)).squeeze(axis=0)",
    "T((1, 3)).squeeze(axis=None)",
    "T((2, 3)).transpose(dim0=0, dim1=1)",
    "T((2,)).tile(dims=(2,))",
    "T((2,)).tile(reps=(2,))",
    "T((2,)).new_ones(size=(2, 2))",
    "T((2,)).new_zeros(size=2, dtype=ms.int32)",
    "T((2, 3)).index_select(dim=1, index=I)",
    "T((2, 3)).index_select(axis=1, index=I)",
    "T((2, 3)).index_add(indices=I, y=T((2, 3), 1.0), axis=0)",
    "T((2, 3)).index_add(I, T((2, 3), 1.0), 0)",
    "T((2, 3)).index_add(dim=0, index=I, source=T((2, 3), 1.0))",
    "T((2, 3)).index_add(0, I, T((2, 3), 1.0))",
    "T((2, 3)).take(index=I)",
    "T((2, 3)).take(indices=I, axis=1)",
    "T((2, 3)).argsort(dim=0, descending=True)",
    "T((2, 3)).argsort(axis=0)",
    "T((2, 3)).argsort(0, True, True)",
    "T((2,)).diag(diagonal=0)",
    "T((2,)).diag(1)",
    "T((3, 3)).reverse_sequence(Tensor([1, 2, 3]), batch_dim=1)",
    "Tensor([1, 2, 3], ms.int32).masked_fill(M, 1.5)",
    "Tensor([True, True, False]).masked_fill(M, 0)",
    "Tensor([True, True, False]).masked_fill(M, 2.5)",
    "T((3,)).masked_fill(M, True)",
    "Tensor([[1, 0, 2], [3, 2, 4]]).std()",
    "Tensor([[1, 0, 2], [3, 2, 4]], ms.int32).std(0, 1)",
    "Tensor([[1, 0, 2], [3, 2, 4]], ms.uint8).var(axis=1, ddof=1, keepdims=True)",
    # errors
    "Tensor([1, 2, 3], ms.int32).masked_fill(M, Tensor(1.5))",
    "ops.masked_fill(Tensor([True, True, False]), M, 0)",
    "ops.std(Tensor([1, 2, 3]))",
    "T((3,)).true_divide()",
    "T((3,)).matmul()",
    "T((2, 3)).index_select(dim=1)",
    "T((2, 3)).reshape(size=(3, 2))",
)


def value_of(ms: Any, expression: str) -> Any:
    names = {**scope(ms), "I": ms.Tensor([1, 0], ms.int32), "M": ms.Tensor([True, False, True])}
    return caught(lambda: eval(expression, names))


def programs() -> dict[str, Program]:
    return {e: partial(module_first, value_of, e) for e in EXPRESSIONS}

"""Mixed precision function by function: what level 'auto' of `amp.auto_mixed_precision` does while a Cell or function runs.

Enters: a call of a public function of Tensors. Leaves: the same call with its floats cast: those of matrix products and convolutions to the
half precision dtype, those of functions that need range or precision (exponentials, logarithms, powers, sums, normalisation, losses) to
float32. Other functions take what comes, by promotion. The lists are MindSpore's, by the names that its primitives have among the functions
here. Whatever such a function is composed of computes in the dtypes that it was given.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from graphcell import dtype as dt
from graphcell.dtype import DType
from graphcell.tensor import Tensor, state

F = TypeVar("F", bound=Callable[..., Any])

NARROW = frozenset({"bmm", "conv_transpose", "dense", "einsum", "inner", "matmul", "mm", "mv", "prelu", "tensor_dot"})
"""Computed in half precision."""

NARROW_BUT_BIAS = frozenset({"conv1d", "conv2d", "conv3d"})
"""Computed in half precision, but for the bias (the third argument), which is added in its own."""

WIDE = frozenset({
    "acos", "asin", "batch_norm", "binary_cross_entropy_with_logits", "cdist", "cosh", "cross_entropy", "cumprod", "cumsum", "erfinv", "exp", "expm1",
    "group_norm", "kl_div", "l1_loss", "layer_norm", "log", "log10", "log1p", "log2", "log_softmax", "logsigmoid", "logsumexp", "margin_ranking_loss",
    "mse_loss", "multi_margin_loss", "nll_loss", "normalize_batch", "pdist", "pow", "prod", "reciprocal", "renorm", "rsqrt",
    "sinh", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus", "sum", "tan", "triplet_margin_loss", "var",
})  # fmt: skip
"""Computed in float32."""

WIDE_BUT_MEAN = frozenset({"var_mean"})
"""Computed in float32, but for the mean (the second result), which comes in the dtype of the input."""

ALIKE = frozenset({"bias_add", "concat"})
"""Computed in the widest dtype among their floats."""

OPEN = frozenset({"addbmm", "addmm", "addmv", "baddbmm", "kron"})
"""Compositions whose parts are cast each by itself."""


def called(function: Callable[..., Any], plain: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`function` of these arguments, while automatic casts are on; `plain`: it, without what turned to here."""
    dtype, name = state.automatic, plain.__name__
    assert dtype is not None
    if name in OPEN:
        return plain(*args, **kwargs)
    if name in NARROW_BUT_BIAS:
        return _biased(function, args, kwargs, dtype)
    if name in WIDE_BUT_MEAN:
        value, mean = widened(function)(*args, **kwargs)
        x = args[0] if args else kwargs["input"]
        return value, mean.astype(x.dtype)
    wanted = dtype if name in NARROW else dt.float32 if name in WIDE else _widest((*args, *kwargs.values())) if name in ALIKE else None
    if wanted is not None:
        args, kwargs = _cast(args, wanted), _cast(kwargs, wanted)
    with automatic(None):
        return function(*args, **kwargs)


def _biased(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], dtype: DType) -> Any:
    given = dict(zip(("input", "weight", "bias"), args[:3])) | kwargs
    bias = given.pop("bias", None)
    with automatic(None):
        if bias is None or len(args) < 2:
            return function(*_cast(args, dtype), **_cast(kwargs, dtype))
        rest = {name: x for name, x in kwargs.items() if name != "bias"}
        y = function(*_cast(args[:2], dtype), None, *args[3:], **_cast(rest, dtype))
        return y + bias.reshape((-1, *(1,) * (args[1].ndim - 2)))


def _cast(x: Any, dtype: DType) -> Any:
    """The structure `x` with its float Tensors cast."""
    if isinstance(x, Tensor):
        return x.astype(dtype) if x.dtype.is_float and x.dtype is not dtype else x
    if isinstance(x, dict):
        return {name: _cast(v, dtype) for name, v in x.items()}
    return type(x)([_cast(v, dtype) for v in x]) if type(x) in (tuple, list) else x


def _widest(values: Any) -> DType | None:
    """The dtype of all floats together; None if there are none."""
    dtypes = {x.dtype for v in values for x in (v if isinstance(v, (tuple, list)) else (v,)) if isinstance(x, Tensor) and x.dtype.is_float}
    return functools.reduce(dt.promote, dtypes) if dtypes else None


def are_on() -> bool:
    """Whether functions called now cast their floats."""
    return state.automatic is not None


def listed(function: F) -> F:
    """Decorates a function of the lists that is no `composite`."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if state.automatic is None else called(function, function, args, kwargs)

    return call  # type: ignore[return-value]


def uncast(function: F) -> F:
    """Decorates a function that the lists leave out, but not those of which it is composed: inside, nothing is cast."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if state.automatic is None:
            return function(*args, **kwargs)
        with automatic(None):
            return function(*args, **kwargs)

    return call  # type: ignore[return-value]


def widened(function: F) -> F:
    """Decorates a function whose name is not in the lists, but that is computed in float32."""

    plain = uncast(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if state.automatic is None else plain(*_cast(args, dt.float32), **_cast(kwargs, dt.float32))

    return call  # type: ignore[return-value]


@contextmanager
def automatic(dtype: DType | None) -> Iterator[None]:
    """Functions called inside cast their floats, with this half precision dtype; None: they do not."""
    before, state.automatic = state.automatic, dtype
    try:
        yield
    finally:
        state.automatic = before

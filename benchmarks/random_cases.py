"""The families of random_shapes.py: what a case draws, and its program in both libraries.

Both interpreters import this file, ours and PyTorch's, and each of them has one library: it imports neither, but is given them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, ClassVar

import numpy as np

OPERATIONS_A_SECOND, BYTES_A_SECOND = 4e10, 2e10  # about those of one core
LEAST_SECONDS, MOST_SECONDS, MOST_BYTES = 20e-6, 30e-3, 60e6
TOLD_BY_FAMILY = ("dtype", "gradients", "kind")

Shape = tuple[int, ...]
Program = Any
"""A function of Tensors, or a Cell (a Module there), whose Parameters are set to random numbers and have gradients, too."""


class Draw:
    """The random choices of one case."""

    def __init__(self, *seed: int):
        self.numbers = np.random.default_rng(seed)

    def of(self, *choices: Any) -> Any:
        """One of these, all as likely."""
        return choices[int(self.numbers.integers(len(choices)))]

    def size(self, low: int, high: int) -> int:
        """Log-uniform, both ends included."""
        return round(math.exp(self.numbers.uniform(math.log(low), math.log(high))))

    def shape(self) -> Shape:
        """Of two to four axes."""
        return tuple(self.size(2, 3000) for _ in range(self.of(2, 2, 3, 3, 4)))

    def images(self) -> Shape:
        """Images x channels x height x width; every second one is square."""
        height = self.size(6, 300)
        return self.of(1, 2, 4, 8), self.size(1, 128), height, self.of(height, self.size(6, 300))


@dataclass(frozen=True, kw_only=True)
class Case:
    """One program with its sizes: `x` is the shape of its first input."""

    x: Shape
    dtype: str = "float32"
    gradients: bool = False
    ways: ClassVar[tuple[str, ...]] = ("theirs",)
    """The methods for PyTorch, where there are several."""

    @property
    def deviation(self) -> float:
        """The standard deviation of the Parameters; that of the inputs is 1."""
        return 1.0

    @property
    def inputs(self) -> tuple[Shape, ...]:
        """The shapes of what the program is a function of."""
        return (self.x,)

    @property
    def result(self) -> Shape:
        """The shape of what it gives."""
        return self.x

    @property
    def operations(self) -> float:
        """Of its arithmetic without gradients, about."""
        return 2 * math.prod(self.x)

    @property
    def fits(self) -> bool:
        """Whether it takes about as long as a case should."""
        bytes_moved = 4 * (sum(map(math.prod, self.inputs)) + math.prod(self.result))
        seconds = (3 if self.gradients else 1) * (self.operations / OPERATIONS_A_SECOND + bytes_moved / BYTES_A_SECOND)
        return LEAST_SECONDS < seconds < MOST_SECONDS and bytes_moved < MOST_BYTES

    def program(self, library: Any) -> Program:
        """Where `graphcell.ops` and `torch` have the same names, it stands here once."""
        raise NotImplementedError

    def ours(self, gc: Any) -> Program:
        """In graphcell, given the module."""
        return self.program(gc.ops)

    def theirs(self, torch: Any) -> Program:
        """In PyTorch, given the module."""
        return self.program(torch)

    def __str__(self) -> str:
        told = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in TOLD_BY_FAMILY}
        return " ".join(f"{name}={'x'.join(map(str, value)) if isinstance(value, tuple) else value}" for name, value in told.items())


@dataclass(frozen=True, kw_only=True)
class Product(Case):
    """Of matrices `x` and `y` as they lie; `form` says of each whether it is multiplied so (N) or transposed (T)."""

    y: Shape
    form: str

    @classmethod
    def draw(cls, draw: Draw, dtype: str = "float32", batched: bool = False) -> Product:
        batch, most = ((draw.size(2, 3000),), 200) if batched else ((), 3000)
        m, k, n = (draw.size(1, most) for _ in range(3))
        form = draw.of("NN", "NT", "TN")
        x, y = (m, k) if form[0] == "N" else (k, m), (k, n) if form[1] == "N" else (n, k)
        return cls(x=(*batch, *x), y=(*batch, *y), form=form, dtype=dtype)

    @property
    def inputs(self) -> tuple[Shape, ...]:
        return self.x, self.y

    @property
    def result(self) -> Shape:
        return *self.x[:-2], self.x[-2 if self.form[0] == "N" else -1], self.y[-1 if self.form[1] == "N" else -2]

    @property
    def operations(self) -> float:
        return 2 * math.prod(self.result) * self.x[-1 if self.form[0] == "N" else -2]

    def program(self, library: Any) -> Program:
        turn_x, turn_y = self.form[0] == "T", self.form[1] == "T"
        return lambda x, y: library.matmul(x.swapaxes(-1, -2) if turn_x else x, y.swapaxes(-1, -2) if turn_y else y)


@dataclass(frozen=True, kw_only=True)
class Convolution(Case):
    """A layer with ReLU behind it; of two dimensions, weights and a bias."""

    filters: int
    kernel: int
    stride: int
    dilation: int = 1
    groups: int = 1

    @classmethod
    def draw(cls, draw: Draw, dtype: str = "float32", gradients: bool = False) -> Convolution:
        kernel, stride, dilation = draw.of(1, 3, 3, 3, 5, 7), draw.of(1, 1, 2), draw.of(1, 1, 1, 1, 2)
        channels, filters = (draw.of(draw.size(4, 300), 8 * draw.size(1, 40), 16 * draw.size(1, 20)) for _ in range(2))
        channels, groups = draw.of(3, channels, channels, channels), draw.of(1, 1, 1, 1, "depthwise", draw.of(2, 4, 8))
        if groups == "depthwise":
            filters = groups = channels
        channels, filters = -(-channels // groups) * groups, -(-filters // groups) * groups
        least = max(6, dilation * (kernel - 1) + 1)
        height = draw.size(least, 300)
        x = (draw.of(1, 1, 2, 4, 8, 16), channels, height, draw.of(height, height, draw.size(least, 300)))
        return cls(x=x, filters=filters, kernel=kernel, stride=stride, dilation=dilation, groups=groups, dtype=dtype, gradients=gradients)

    @property
    def padding(self) -> int:
        return self.dilation * (self.kernel - 1) // 2

    @property
    def result(self) -> Shape:
        return self.x[0], self.filters, *((side - 1) // self.stride + 1 for side in self.x[2:])

    @property
    def operations(self) -> float:
        return 2 * math.prod(self.result) * self.x[1] // self.groups * self.kernel**2

    def ours(self, gc: Any) -> Program:
        sizes = (self.x[1], self.filters, self.kernel, self.stride)
        layer = gc.nn.Conv2d(*sizes, pad_mode="pad", padding=self.padding, dilation=self.dilation, group=self.groups, has_bias=True)
        return gc.nn.SequentialCell(layer, gc.nn.ReLU())

    def theirs(self, torch: Any) -> Program:
        sizes = (self.x[1], self.filters, self.kernel, self.stride)
        return torch.nn.Sequential(torch.nn.Conv2d(*sizes, self.padding, self.dilation, self.groups), torch.nn.ReLU())


@dataclass(frozen=True, kw_only=True)
class TransposedConvolution(Case):
    """A layer with ReLU behind it, as decoders have them."""

    filters: int
    kernel: int
    stride: int

    @classmethod
    def draw(cls, draw: Draw, gradients: bool = False) -> TransposedConvolution:
        return cls(x=draw.images(), filters=draw.size(2, 128), kernel=draw.of(2, 3, 3, 5), stride=draw.of(1, 2, 2, 3), gradients=gradients)

    @property
    def result(self) -> Shape:
        return self.x[0], self.filters, *((side - 1) * self.stride + self.kernel - 2 * (self.kernel // 2) for side in self.x[2:])

    @property
    def operations(self) -> float:
        return 2 * math.prod(self.x) * self.filters * self.kernel**2

    def ours(self, gc: Any) -> Program:
        sizes = (self.x[1], self.filters, self.kernel, self.stride)
        return gc.nn.SequentialCell(gc.nn.Conv2dTranspose(*sizes, pad_mode="pad", padding=self.kernel // 2, has_bias=True), gc.nn.ReLU())

    def theirs(self, torch: Any) -> Program:
        sizes = (self.x[1], self.filters, self.kernel, self.stride)
        return torch.nn.Sequential(torch.nn.ConvTranspose2d(*sizes, self.kernel // 2), torch.nn.ReLU())


@dataclass(frozen=True, kw_only=True)
class Attention(Case):
    """Of queries `x` (batch x heads x sequence x features) to so many keys; the causal `kind` hides the keys that come later."""

    keys: int
    kind: str
    ways: ClassVar[tuple[str, ...]] = ("theirs", "theirs_fused")

    @classmethod
    def draw(cls, draw: Draw, kind: str = "", gradients: bool = False) -> Attention:
        length = draw.size(30, 3000)
        x = (draw.of(1, 1, 2, 4, 8), draw.of(1, 2, 4, 8, 12), length, draw.of(16, 24, 32, 40, 48, 64, 64, 80, 96, 128))
        keys = length if kind else draw.of(length, length, length, draw.size(30, 3000))
        return cls(x=x, keys=keys, kind=kind, gradients=gradients)

    @property
    def inputs(self) -> tuple[Shape, ...]:
        keys = (*self.x[:2], self.keys, self.x[3])
        return self.x, keys, keys

    @property
    def operations(self) -> float:
        return 4 * math.prod(self.x) * self.keys

    def _written_out(self, library: Any, tensor: Callable[[Any], Any]) -> Program:
        scale = self.x[-1] ** -0.5
        hidden = tensor(np.triu(np.ones((self.x[2], self.keys), bool), 1)) if self.kind else None

        def attention(q: Any, k: Any, v: Any) -> Any:
            scores = library.matmul(q, k.swapaxes(-1, -2)) * scale
            return library.matmul(library.softmax(scores if hidden is None else library.masked_fill(scores, hidden, -1e9), -1), v)

        return attention

    def ours(self, gc: Any) -> Program:
        return self._written_out(gc.ops, gc.Tensor)

    def theirs(self, torch: Any) -> Program:
        return self._written_out(torch, torch.from_numpy)

    def theirs_fused(self, torch: Any) -> Program:
        return partial(torch.nn.functional.scaled_dot_product_attention, is_causal=bool(self.kind))


@dataclass(frozen=True, kw_only=True)
class Recurrent(Case):
    """One layer of `kind` or two, of sequences `x` (batch x steps x features), in one direction or both, with gradients."""

    kind: str
    hidden: int
    layers: int
    both: bool

    @classmethod
    def draw(cls, draw: Draw, kind: str) -> Recurrent:
        x = (draw.size(1, 100), draw.size(4, 100), draw.size(4, 400))
        return cls(kind=kind, x=x, hidden=draw.size(8, 500), layers=draw.of(1, 1, 2), both=draw.of(False, False, True), gradients=True)

    @property
    def deviation(self) -> float:
        return 0.5 / math.sqrt(self.hidden)  # with larger weights, what rounding does would grow from step to step

    @property
    def result(self) -> Shape:
        return *self.x[:2], self.hidden * (2 if self.both else 1)

    @property
    def operations(self) -> float:
        gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[self.kind]
        return 2 * math.prod(self.x[:2]) * gates * self.hidden * (self.x[2] + self.hidden) * self.layers * (2 if self.both else 1)

    def ours(self, gc: Any) -> Program:
        return self.program(gc.nn)

    def theirs(self, torch: Any) -> Program:
        return self.program(torch.nn)

    def program(self, library: Any) -> Program:
        return getattr(library, self.kind)(self.x[2], self.hidden, self.layers, batch_first=True, bidirectional=self.both)


@dataclass(frozen=True, kw_only=True)
class Along(Case):
    """What is done along one axis: `kind` is its name in both libraries."""

    kind: str
    axis: int

    @classmethod
    def draw(cls, draw: Draw, kind: str, gradients: bool = False) -> Along:
        x = draw.shape()
        return cls(kind=kind, x=x, axis=draw.of(*range(len(x))), gradients=gradients)

    @property
    def result(self) -> Shape:
        return self.x if self.kind in ("softmax", "log_softmax", "cumsum") else self.x[: self.axis] + self.x[self.axis + 1 :]

    def program(self, library: Any) -> Program:
        function, axis = getattr(library, self.kind), self.axis
        return lambda x: function(x, axis)


@dataclass(frozen=True, kw_only=True)
class Normalisation(Case):
    """By mean and variance, over `axis` (the `kind` layer_norm) or over all axes but that (batch_norm), with gradients."""

    kind: str
    axis: int
    ways: ClassVar[tuple[str, ...]] = ("theirs", "theirs_fused")

    @classmethod
    def draw(cls, draw: Draw, kind: str) -> Normalisation:
        x = draw.shape()
        return cls(kind=kind, x=x, axis=draw.of(*range(len(x))), gradients=True)

    @property
    def axes(self) -> Shape:
        """What is summed over."""
        return tuple(a for a in range(len(self.x)) if (a == self.axis) == (self.kind == "layer_norm"))

    @property
    def fits(self) -> bool:
        return super().fits and math.prod(self.x[a] for a in self.axes) >= 8  # of two numbers, gradients are what rounding leaves

    def ours(self, gc: Any) -> Program:
        axes, ops = self.axes, gc.ops
        return lambda x: (x - x.mean(axes, keep_dims=True)) * ops.rsqrt(ops.var(x, axes, 0, True) + 1e-5)

    def theirs(self, torch: Any) -> Program:
        axes = self.axes
        return lambda x: (x - x.mean(axes, keepdim=True)) * torch.rsqrt(torch.var(x, axes, correction=0, keepdim=True) + 1e-5)

    def theirs_fused(self, torch: Any) -> Program:
        axis, functional = self.axis, torch.nn.functional
        if self.kind == "layer_norm":
            return lambda x: functional.layer_norm(x.movedim(axis, -1), self.x[axis : axis + 1]).movedim(-1, axis)
        return lambda x: functional.batch_norm(x.movedim(axis, 1), None, None, training=True).movedim(1, axis)


@dataclass(frozen=True, kw_only=True)
class Transpose(Case):
    """Images with their axes in another order, and a number added, so that something is computed."""

    order: Shape
    ways: ClassVar[tuple[str, ...]] = ("theirs", "theirs_at_once")

    @classmethod
    def draw(cls, draw: Draw) -> Transpose:
        return cls(x=draw.images(), order=tuple(map(int, draw.numbers.permutation(4))))

    @property
    def result(self) -> Shape:
        return tuple(self.x[axis] for axis in self.order)

    def ours(self, gc: Any) -> Program:
        order = self.order
        return lambda x: x.permute(order) + 0.5

    def theirs(self, torch: Any) -> Program:
        return lambda x: x.permute(self.order).contiguous() + 0.5

    def theirs_at_once(self, torch: Any) -> Program:
        return lambda x: torch.add(x.permute(self.order), 0.5, out=torch.empty(self.result))


@dataclass(frozen=True, kw_only=True)
class Pooling(Case):
    """Maxima or means of windows of images."""

    of: str
    window: int
    stride: int

    @classmethod
    def draw(cls, draw: Draw, gradients: bool = False) -> Pooling:
        return cls(x=draw.images(), of=draw.of("max", "avg"), window=draw.of(2, 3, 3, 5), stride=draw.of(1, 2, 2, 3), gradients=gradients)

    @property
    def result(self) -> Shape:
        return *self.x[:2], *((side - self.window) // self.stride + 1 for side in self.x[2:])

    def program(self, library: Any) -> Program:
        pool, window, stride = getattr(library, f"{self.of}_pool2d"), self.window, self.stride
        return lambda x: pool(x, window, stride)

    def theirs(self, torch: Any) -> Program:
        return self.program(torch.nn.functional)


@dataclass(frozen=True, kw_only=True)
class Resizing(Case):
    """Images in another size, every second time in twice their own."""

    size: Shape
    mode: str

    @classmethod
    def draw(cls, draw: Draw) -> Resizing:
        x = draw.images()
        size = draw.of((2 * x[2], 2 * x[3]), (draw.size(6, 300), draw.size(6, 300)))
        return cls(x=x, size=size, mode=draw.of("nearest", "bilinear"))

    @property
    def result(self) -> Shape:
        return *self.x[:2], *self.size

    def program(self, library: Any) -> Program:
        size, mode, align = self.size, self.mode, False if self.mode == "bilinear" else None
        return lambda x: library.interpolate(x, size=size, mode=mode, align_corners=align)

    def theirs(self, torch: Any) -> Program:
        return self.program(torch.nn.functional)


FAMILIES: dict[str, Callable[[Draw], Case]] = {
    "product": Product.draw,
    "product-float64": partial(Product.draw, dtype="float64"),
    "product-float16": partial(Product.draw, dtype="float16"),
    "product-bfloat16": partial(Product.draw, dtype="bfloat16"),
    "batched-product": partial(Product.draw, batched=True),
    "convolution": Convolution.draw,
    "convolution-training": partial(Convolution.draw, gradients=True),
    "convolution-bfloat16": partial(Convolution.draw, dtype="bfloat16"),
    "convolution-bfloat16-training": partial(Convolution.draw, dtype="bfloat16", gradients=True),
    "transposed-convolution": TransposedConvolution.draw,
    "transposed-convolution-training": partial(TransposedConvolution.draw, gradients=True),
    "attention": Attention.draw,
    "attention-training": partial(Attention.draw, gradients=True),
    "causal-attention": partial(Attention.draw, kind="causal"),
    "causal-attention-training": partial(Attention.draw, kind="causal", gradients=True),
    "lstm-training": partial(Recurrent.draw, kind="LSTM"),
    "gru-training": partial(Recurrent.draw, kind="GRU"),
    "rnn-training": partial(Recurrent.draw, kind="RNN"),
    "softmax-training": partial(Along.draw, kind="softmax", gradients=True),
    "log-softmax-training": partial(Along.draw, kind="log_softmax", gradients=True),
    "layer-norm-training": partial(Normalisation.draw, kind="layer_norm"),
    "batch-norm-training": partial(Normalisation.draw, kind="batch_norm"),
    "sum": partial(Along.draw, kind="sum"),
    "maximum": partial(Along.draw, kind="amax"),
    "argmax": partial(Along.draw, kind="argmax"),
    "cumsum": partial(Along.draw, kind="cumsum"),
    "transpose": Transpose.draw,
    "pooling": Pooling.draw,
    "pooling-training": partial(Pooling.draw, gradients=True),
    "resizing": Resizing.draw,
}


def drawn(family: str, seed: int, number: int) -> Case:
    """The case of a family with this number, which no other number changes."""
    draw = Draw(seed, number, *family.encode())
    case = FAMILIES[family](draw)
    while not case.fits:
        case = FAMILIES[family](draw)
    return case

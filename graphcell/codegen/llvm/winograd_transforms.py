"""Winograd's minimal filtering algorithms for images: their matrices, and the transforms as vector code.

Enters: `Minimal(outputs, taps, points)`, the algorithm F(outputs, taps) that computes `outputs` neighbouring
results of a correlation with `taps` taps by outputs + taps - 1 multiplications: y = A [(G g) * (B d)], by
evaluation of polynomials at 0, the points, their negatives, and infinity. `Nested` has an algorithm for each axis of
an image, F(1, 1), which does nothing, where a filter has one tap. Leaves: exact matrices, and values of the module under construction.

The matrices amplify rounding errors, the more the farther their points are from 1 and the more points there are.
Largest errors of a 3x3 convolution of normally distributed float32 numbers with 16, 64 and 256 channels against
float64, in units of the largest error of direct summation in float32: F(2x2, 3x3) 0.6, 0.4, 0.3; F(4x4, 3x3) with
the points 5/8 and 3/2 used here 2.5, 2.0, 1.5 (as standard deviations 2.2, 1.9, 1.7), while the textbook's 1 and 2
give 10, 6.6, 7.5; F(6x6, 3x3) with 1, 2 and 1/2 gives 18, 13, 12, which is why it is not used. Gradients in the
weights over 64, 2304 and 16384 pixels: F(3x3, 2x2) 0.8, 0.5, 1.9, F(3x3, 4x4) 1.9, 1.2, 3.2 (2.8, 1.6, 2.3). Of 5x5
convolutions: F(2x2, 5x5) 1.0, 0.8, 0.9 (1.6, 1.3, 1.2); its gradient F(5x5, 2x2) 3.3, 3.1, 5.1 (4.2, 2.3, 3.5). Of 3x5:
F(4x2, 3x5) 2.2, 0.9, 0.6 (1.8, 1.5, 1.4), F(3x5, 4x2) 2.2, 1.8, 4.9 (3.5, 1.7, 3.3).

Along one axis errors are not squared, so that there are larger tiles: F(3, 2) 0.9, 1.2, 1.1; F(5, 2) 2.1, 2.0, 1.8;
F(4, 3) 1.4, 2.1, 1.0; F(3, 4) 1.3, 0.9, 0.9; F(2, 5) 1.2, 0.6, 0.7; F(4, 5) 2.2, 1.7, 1.8; F(2, 7) 2.1, 1.6, 1.8; not used:
(by simulation) F(6, 3) 3.4, 3.0, 2.6, F(4, 7) 5.3, 3.8, 3.4. Gradients: F(2, 3) 0.9, 0.6, 1.7; F(2, 5) 1.4, 1.1, 1.9; F(3, 4) 1.3, 0.7, 2.5;
F(3, 6) 3.3, 1.5, 4.0; F(4, 3) 2.5, 1.1, 3.1; F(4, 5) 3.6, 2.3, 4.6; F(5, 2) 2.7, 1.3, 4.2; F(5, 4) 4.4, 1.8, 4.6; not used:
F(7, 2) 5.5, 2.6, 9.5. Tiles with infinities, NaN or numbers near the largest one are noticed and summed directly
(winograd_direct.py).

References: S. Winograd, "Arithmetic Complexity of Computations", SIAM 1980; A. Lavin, S. Gray, "Fast
Algorithms for Convolutional Neural Networks", CVPR 2016; B. Barabasz, A. Anderson, K. Soodhalter, D. Gregg,
"Error Analysis and Improving the Accuracy of Winograd Convolution for Deep Neural Networks", ACM TOMS 46(4),
2020.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction

from graphcell.codegen.llvm.text import FunctionBuilder, Val
from graphcell.records import dataclass

Exact = tuple[tuple[Fraction, ...], ...]
Matrix = tuple[tuple[float, ...], ...]
Matrices = tuple[Matrix, Matrix]
Transform = Callable[[FunctionBuilder, Matrix, Sequence[Val]], list[Val]]


@dataclass(frozen=True, slots=True)
class Minimal:
    """F(outputs, taps) with the points 0, p and -p for each p of `points`, and infinity."""

    outputs: int
    taps: int
    points: tuple[Fraction, ...]

    def __post_init__(self) -> None:
        if self.size > 1 and self.size != 2 * len(self.points) + 2:
            raise ValueError(f"F({self.outputs}, {self.taps}) needs {self.size - 2} points beside 0 and infinity")

    @property
    def size(self) -> int:
        """Inputs of a tile, which is also the number of products."""
        return self.outputs + self.taps - 1

    @property
    def _finite(self) -> list[Fraction]:
        return [Fraction(0), *(sign * p for p in self.points for sign in (1, -1))] if self.size > 1 else []

    @property
    def input_matrix(self) -> Exact:
        """B, size x size: row i holds the coefficients of the product of all (x - point) but the i-th."""
        points = self._finite
        rows = [_polynomial(points[:i] + points[i + 1 :]) for i in range(len(points))]
        return (*((*row, Fraction(0)) for row in rows), _polynomial(points))

    @property
    def filter_matrix(self) -> Exact:
        """G, size x taps: the filter at each point, over the product of the distances to the others."""
        points = self._finite
        rows = []
        for i, p in enumerate(points):
            distance = math.prod((p - q for j, q in enumerate(points) if j != i), start=Fraction(1))
            rows.append(tuple(p**k / distance for k in range(self.taps)))
        return (*rows, tuple(Fraction(int(k == self.taps - 1)) for k in range(self.taps)))

    @property
    def output_matrix(self) -> Exact:
        """A, outputs x size: powers of the points."""
        return tuple(
            (*(p**j for p in self._finite), Fraction(int(j == self.outputs - 1))) for j in range(self.outputs)
        )

    def __str__(self) -> str:
        return f"F({self.outputs}, {self.taps})"


@dataclass(frozen=True, slots=True)
class Nested:
    """The algorithm of two dimensions: `rows` down the columns of an image, `pixels` along its rows."""

    rows: Minimal
    pixels: Minimal

    @property
    def products(self) -> int:
        """Of a tile."""
        return self.rows.size * self.pixels.size

    @property
    def outputs(self) -> tuple[int, int]:
        return self.rows.outputs, self.pixels.outputs

    @property
    def taps(self) -> tuple[int, int]:
        return self.rows.taps, self.pixels.taps

    @property
    def size(self) -> tuple[int, int]:
        return self.rows.size, self.pixels.size

    @property
    def flat(self) -> bool:
        """Whether it is one of one dimension."""
        return min(self.size) == 1

    @property
    def input_matrices(self) -> Matrices:
        return _rounded(self.rows, "input_matrix"), _rounded(self.pixels, "input_matrix")

    @property
    def filter_matrices(self) -> Matrices:
        return _rounded(self.rows, "filter_matrix"), _rounded(self.pixels, "filter_matrix")

    @property
    def output_matrices(self) -> Matrices:
        return _rounded(self.rows, "output_matrix"), _rounded(self.pixels, "output_matrix")

    def __str__(self) -> str:
        outputs, taps = ("x".join(map(str, extents)) for extents in (self.outputs, self.taps))
        return f"F({outputs}, {taps})"


@functools.cache
def _rounded(one: Minimal, name: str) -> Matrix:
    """One of its matrices as vector code reads it."""
    matrix: Exact = getattr(one, name)
    return tuple(tuple(map(float, row)) for row in matrix)


def _square(one: Minimal) -> Nested:
    return Nested(one, one)


def _by(count: str, algorithms: Sequence[Nested]) -> dict[tuple[int, int], tuple[Nested, ...]]:
    """By their "taps" or "outputs"."""
    found: dict[tuple[int, int], tuple[Nested, ...]] = {}
    for algorithm in algorithms:
        key = getattr(algorithm, count)
        found[key] = (*found.get(key, ()), algorithm)
    return found


def _both_ways(one: Minimal, other: Minimal) -> tuple[Nested, Nested]:
    return Nested(one, other), Nested(other, one)


def _lines(algorithms: Sequence[Minimal]) -> list[Nested]:
    """Along one axis each, for filters with one tap along the other."""
    return [nested for one in algorithms for nested in _both_ways(ALONE, one)]


ALONE = Minimal(1, 1, ())
F2 = _square(Minimal(2, 3, (Fraction(1),)))
F4 = _square(Minimal(4, 3, (Fraction(5, 8), Fraction(3, 2))))
F2_OF_5 = _square(Minimal(2, 5, (Fraction(5, 8), Fraction(3, 2))))
GRADIENT_F2 = _square(Minimal(3, 2, (Fraction(1),)))
GRADIENT_F4 = _square(Minimal(3, 4, (Fraction(5, 8), Fraction(3, 2))))
GRADIENT_F2_OF_5 = _square(Minimal(5, 2, (Fraction(11, 16), Fraction(3, 2))))
_FORWARD_LINES = (
    Minimal(3, 2, (Fraction(1),)),
    Minimal(5, 2, (Fraction(11, 16), Fraction(3, 2))),
    Minimal(4, 3, (Fraction(11, 16), Fraction(3, 2))),
    Minimal(3, 4, (Fraction(11, 16), Fraction(3, 2))),
    Minimal(2, 5, (Fraction(11, 16), Fraction(3, 2))),
    Minimal(4, 5, (Fraction(1, 2), Fraction(1), Fraction(2))),
    Minimal(2, 7, (Fraction(9, 16), Fraction(1), Fraction(2))),
)
_GRADIENT_LINES = (
    Minimal(2, 3, (Fraction(1),)),
    Minimal(2, 5, (Fraction(5, 8), Fraction(7, 4))),
    Minimal(3, 4, (Fraction(11, 16), Fraction(3, 2))),
    Minimal(3, 6, (Fraction(1, 2), Fraction(1), Fraction(2))),
    Minimal(4, 3, (Fraction(11, 16), Fraction(3, 2))),
    Minimal(4, 5, (Fraction(1, 2), Fraction(1), Fraction(7, 4))),
    Minimal(5, 2, (Fraction(11, 16), Fraction(3, 2))),
    Minimal(5, 4, (Fraction(1, 2), Fraction(1), Fraction(7, 4))),
)
FORWARD = _by("taps", (F2, F4, F2_OF_5, *_both_ways(F4.rows, F2_OF_5.rows), *_lines(_FORWARD_LINES)))
GRADIENT = _by("outputs", (GRADIENT_F2, GRADIENT_F4, GRADIENT_F2_OF_5, *_both_ways(_GRADIENT_LINES[2], GRADIENT_F2_OF_5.rows), *_lines(_GRADIENT_LINES)))
"""The algorithms by the taps of a convolution, down and across. The gradient with respect to the weights has as many outputs, and its taps
are a tile of the cotangent."""


def _polynomial(roots: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """The coefficients of the product of all (x - root), the constant first."""
    product = [Fraction(1)]
    for root in roots:
        product = [high - root * low for high, low in zip([Fraction(0), *product], [*product, Fraction(0)], strict=True)]
    return tuple(product)


# -- vector code ---------------------------------------------------------------------------------------------
def evaluate(b: FunctionBuilder, matrix: Matrix, xs: Sequence[Val]) -> list[Val]:
    """matrix . xs for B and G, whose rows for p and -p differ in the sign of their odd (or even) columns
    only, up to a common sign: what they share is computed once.
    """
    if len(matrix) == 1:
        return list(xs)
    results = [_combine(b, matrix[0], xs)]
    for even, odd in _halves(matrix):
        same, opposite = _combine(b, even, xs), _combine(b, odd, xs)
        results += [b.add(same, opposite), b.sub(same, opposite)]
    return [*results, _combine(b, matrix[-1], xs)]


@functools.cache
def _halves(matrix: Matrix) -> tuple[Matrix, ...]:
    """For each point the rows whose sum is its row and whose difference that of its negative."""
    pairs = zip(matrix[1:-1:2], matrix[2:-1:2], strict=True)
    return tuple(tuple(tuple((p + sign * m) / 2 for p, m in zip(*pair, strict=True)) for sign in (1, -1)) for pair in pairs)


def interpolate(b: FunctionBuilder, matrix: Matrix, xs: Sequence[Val]) -> list[Val]:
    """matrix . xs for A, whose columns for p and -p are equal or opposite: sums and differences once."""
    if len(xs) == 1:
        return list(xs)
    pairs = list(zip(xs[1:-1:2], xs[2:-1:2], strict=True))
    sums, differences = [b.add(x, y) for x, y in pairs], [b.sub(x, y) for x, y in pairs]
    results = []
    for power, row in enumerate(matrix):
        middle = sums if power % 2 == 0 else differences
        results.append(_combine(b, [row[0], *row[1:-1:2], row[-1]], [xs[0], *middle, xs[-1]]))
    return results


def transform_grid(
    b: FunctionBuilder, matrices: Matrices, load: Callable[[int, int], Val], along: Transform, store: Callable[[int, int, Val], None]
) -> None:
    """first matrix . grid . transposed second of the grid `load(i, j)`, given to `store(i, j, value)`.

    Elements are loaded column by column and stored row by row, next to where they are needed: more of them
    than there are registers are alive at once in any case.
    """
    transform_rows(b, matrices, transform_columns(b, matrices, load, along), along, store)


def transform_columns(b: FunctionBuilder, matrices: Matrices, load: Callable[[int, int], Val], along: Transform) -> list[list[Val]]:
    """first matrix . grid, by columns."""
    rows, pixels = (len(matrix[0]) for matrix in matrices)
    return [along(b, matrices[0], [load(i, j) for i in range(rows)]) for j in range(pixels)]


def transform_rows(
    b: FunctionBuilder, matrices: Matrices, columns: list[list[Val]], along: Transform, store: Callable[[int, int, Val], None]
) -> None:
    """grid . transposed second matrix of the grid that `transform_columns` left."""
    for i in range(len(matrices[0])):
        for j, value in enumerate(along(b, matrices[1], [column[i] for column in columns])):
            store(i, j, value)


def transform_cycles(matrices: Matrices) -> float:
    """About how long `transform_grid` takes for one vector, as measured with the algorithms of 3 and 3x3 taps: along one axis all is in registers."""
    down, across = ((len(matrix), len(matrix[0])) for matrix in matrices)
    terms = [sum(1 for row in matrix for factor in row if factor) if len(matrix[0]) > 1 else 0 for matrix in matrices]
    memory, arithmetic = (0.62, 0.55) if min(down + across) > 1 else (0.4, 0.3)
    return memory * (down[0] * across[0] + down[1] * across[1]) + arithmetic * (across[1] * terms[0] + down[0] * terms[1])


def _combine(b: FunctionBuilder, factors: Sequence[float], xs: Sequence[Val]) -> Val:
    """The sum of factor * x over the factors that are not zero, beginning with a factor of 1 if there is one."""
    terms = [(f, x) for f, x in zip(factors, xs, strict=True) if f]
    terms.sort(key=lambda term: term[0] != 1)
    factor, x = terms[0]
    total = x if factor == 1 else b.neg(x) if factor == -1 else b.mul(x, b.const(factor, x))
    for factor, x in terms[1:]:
        if abs(factor) == 1:
            total = b.add(total, x) if factor == 1 else b.sub(total, x)
        else:
            total = b.fma(x, b.const(factor, x), total)
    return total

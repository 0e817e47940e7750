"""The register-blocked micro-kernels behind matmul and every convolution.

`MicroKernel` is the outer-product form: `rows` scalars of the left operand, each broadcast, times one row of
`vectors` vectors of the right one, added to rows x vectors accumulators that live in registers over the whole
reduction. The reduction is a nest of counted loops with one constant stride per operand and level, so matmul,
a convolution's taps and a gradient's pixels differ in numbers only. With `a_vector` the left operand is a
vector too (depthwise convolution: the lanes are channels of both operands).

Enters: static descriptions. Leaves: internal functions of the module. Sums are in the order of the nest,
`ways` interleaved partial sums where a tile is too small to hide the latency of a multiply-add; the order
depends on the description only.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphcell.codegen.llvm.contraction import LINE_BYTES, Columns, ContractionTarget, Epilogue, Extra
from graphcell.codegen.llvm.packing import displaced, load_as, opaque, prefetch, store_as, store_finished, zeros
from graphcell.codegen.llvm.text import I64, PTR, FunctionBuilder, LType, Module, Val, constant_mask, i64
from graphcell.records import dataclass

ASKED_AHEAD_BYTES = 4096  # by which a panel from memory is asked for ahead: the processor's own prefetching, some twenty lines, is too late there
_MOST_STREAMED_TILES = 8  # that read such a panel
INLINE_BELOW = 256  # multiply-adds of a call below which LLVM may inline it
_UNROLLED = 32  # multiply-adds in the body of the innermost loop, about
_MANY_TO_RESUME = 8  # vectors of an output that is read again at the end of a pass, which takes long enough to ask for them at its begin
_REGISTERS, _REGISTERS_AVX2 = 32, 16  # for vectors
_IN_FLIGHT = 8  # independent accumulators that hide the latency of a multiply-add


@dataclass(frozen=True, slots=True)
class Level:
    """One loop of a reduction nest. An extent that is a name is a parameter of the function, a multiple of
    `multiple`.
    """

    extent: int | str
    a_stride: int
    b_stride: int
    multiple: int = 1


@dataclass(frozen=True, slots=True)
class Tap:
    """One step of `Taps`: where both operands are (A may only be reached from here together with a row's
    offset), and the rows it is for.
    """

    a_offset: int
    b_offset: int
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Taps:
    """A level that is unrolled: taps of a convolution that do not apply to every row of the tile."""

    steps: tuple[Tap, ...]


Nest = tuple[Level | Taps, ...]


@dataclass(frozen=True, slots=True)
class Fetch:
    """Cache lines of a matrix that a tile asks for beside its work, from the parameter `later` on: in each step `lines` of one row, which lies `stride`
    elements behind the one before; the same row in `rounds` steps, a power of two.
    """

    stride: int
    lines: int
    rounds: int


@dataclass(frozen=True, slots=True)
class MicroKernel:
    """One register tile: see the module's docstring. Offsets and strides are in elements of the buffer they
    refer to.

    `a_offsets[i]` and `c_offsets[i]` lead to row i; `row_steps[i]` is what its row index is ahead of the
    first one's, for the epilogue. `resumes` adds the parameters `resume` (add what C holds) and `last` (apply
    the epilogue), each 0 or 1. `batch_rows` is how many rows make a batch, as the epilogue understands it; 0
    if there is none. `paired`: an element of A and of B is a word of two bfloats, both multiplied and added in one step.
    `ahead`: in each reduction step, as many elements of A as there are rows are asked for, the last of them so many further than the first row's (0: none
    is). `next_tile`: so many elements further begins what the next tile reads of A, which is asked for line by line meanwhile (0: it is not). `streams`:
    few tiles read a panel of B, which comes from memory: it is asked for earlier than the processor does by itself. `rows_ahead`: in each reduction step,
    what is read of B so many steps further is asked for (0: it is not). `packs`: what is read of B is copied to `panel`, which a packed B is read from.
    `past`: C is written past the caches, if there is no epilogue that does it.
    `fetch`: what of B, where it lies, other tiles will read (None: nothing is asked for).
    """

    kind: str
    columns: Columns
    a_offsets: tuple[int, ...]
    c_offsets: tuple[int, ...]
    row_steps: tuple[int, ...]
    nest: Nest
    a_kind: str
    b_kind: str
    c_kind: str
    a_vector: bool = False
    b_packed: bool = True
    resumes: bool = False
    batch_rows: int = 0
    paired: bool = False
    ahead: int = 0
    next_tile: int = 0
    streams: bool = False
    rows_ahead: int = 0
    packs: bool = False
    past: bool = False
    fetch: Fetch | None = None

    @property
    def rows(self) -> int:
        return len(self.a_offsets)

    @property
    def size(self) -> int:
        return self.rows * self.columns.vectors

    @property
    def counts(self) -> tuple[str, ...]:
        """The names of the loop extents that are parameters, outermost first."""
        return tuple(
            level.extent for level in self.nest if isinstance(level, Level) and isinstance(level.extent, str)
        )

    @property
    def empty(self) -> bool:
        """Whether the reduction has no terms."""
        return any(level.extent == 0 if isinstance(level, Level) else not level.steps for level in self.nest)

    @property
    def widths(self) -> tuple[int, ...]:
        """The lanes of each vector."""
        return self.columns.widths(self.kind)

    def mask(self, v: int) -> Val | None:
        """The lanes of vector v that are in use, None for all."""
        if v < self.columns.vectors - 1 or self.columns.tail == self.widths[v]:
            return None
        return constant_mask(self.columns.tail, self.widths[v])


Accumulators = list[Val]  # row by row


def come_from_memory(nbytes: int, tiles: int, target: ContractionTarget) -> bool:
    """Whether packed panels of so many bytes are more than the L2 cache holds, and few tiles read each of them (see `MicroKernel.streams`)."""
    return nbytes > target.l2_bytes // 2 and tiles <= _MOST_STREAMED_TILES


def emit_micro(
    module: Module, name: str, kernel: MicroKernel, epilogue: Epilogue | None, extra: Extra
) -> str:
    """Emits `void name(ptr a, ptr b, ptr c, [ptr panel], [ptr later], counts..., [resume, last], row, column, extra...)`; returns the
    name.
    """
    params = [("a", PTR), ("b", PTR), ("c", PTR), *[("panel", PTR)] * kernel.packs, *[("later", PTR)] * (kernel.fetch is not None)]
    params += [(count, I64) for count in kernel.counts]
    params += [("resume", I64), ("last", I64)] if kernel.resumes else []
    params += [("row", I64), ("column", I64), *extra]
    work = kernel.size
    for level in kernel.nest:
        work *= (
            len(level.steps)
            if isinstance(level, Taps)
            else level.extent
            if isinstance(level.extent, int)
            else 1_000_000
        )
    attributes = "nounwind" if work < INLINE_BELOW else "nounwind noinline"
    b = FunctionBuilder(module, name, params, attributes=attributes)
    b.keep_numbers()
    total = [zeros(LType(kernel.kind, lanes)) for lanes in kernel.widths] * kernel.rows
    if kernel.resumes and kernel.size >= _MANY_TO_RESUME:
        for pointer in _outputs(b, kernel):  # which are read again at the end
            prefetch(b, pointer)
    if not kernel.empty:
        total = _reduce(
            b, kernel, kernel.nest, b.args["a"], b.args["b"], total, Tap(0, 0, tuple(range(kernel.rows)))
        )
    _finish(b, kernel, total, epilogue)
    return b.finish()


def emit_finish(module: Module, name: str, kernel: MicroKernel, epilogue: Epilogue | None, extra: Extra, pitch: int) -> str:
    """Emits `void name(ptr sums, ptr c, row, column, extra...)`, the end of a micro-kernel whose sums lie in memory, row by row, `pitch` elements apart;
    returns the name.
    """
    params = [("sums", PTR), ("c", PTR), ("row", I64), ("column", I64), *extra]
    b = FunctionBuilder(module, name, params)
    rows = [b.gep(b.args["sums"], i * pitch, LType(kernel.kind)) for i in range(kernel.rows)]
    at = [(b.gep(row, v * kernel.columns.lanes, LType(kernel.kind)), LType(kernel.kind, lanes)) for row in rows for v, lanes in enumerate(kernel.widths)]
    _finish(b, kernel, [b.load(pointer, type) for pointer, type in at], epilogue)
    return b.finish()


def call_micro(
    b: FunctionBuilder,
    name: str,
    kernel: MicroKernel,
    a: Val,
    right: Val,
    c: Val,
    *,
    counts: dict[str, Val],
    resume: Val | None,
    last: Val | None,
    row: Val,
    column: Val,
    extra: Extra,
    panel: Val | None = None,
    later: Val | None = None,
) -> None:
    """Calls what `emit_micro` emitted; the extra arguments are those of the calling function."""
    args = [a, right, c, *(pointer for pointer in (panel, later) if pointer is not None), *(counts[count] for count in kernel.counts)]
    if kernel.resumes:
        assert resume is not None and last is not None
        args += [resume, last]
    args += [row, column, *(b.args[n] for n, _ in extra)]
    b.call(name, LType("void"), *args)


def _reduce(
    b: FunctionBuilder, kernel: MicroKernel, nest: Nest, a: Val, right: Val, total: Accumulators, tap: Tap
) -> Accumulators:
    """The levels of `nest`, with the accumulators of the rows of `tap` carried through."""
    if not nest:
        return _steps(b, kernel, Level(1, 0, 0), a, right, total, tap, 1, None)
    level, inner = nest[0], nest[1:]
    if isinstance(level, Taps):
        return _reduce_taps(b, kernel, level, inner, a, right, total)
    if not inner:
        return _reduce_innermost(b, kernel, level, a, right, total, tap)
    if level.extent == 1:
        return _reduce(b, kernel, inner, a, right, total, tap)
    extent = i64(level.extent) if isinstance(level.extent, int) else b.args[level.extent]
    with b.loop(
        0, extent, carried=[a, right, *total], name="reduce", at_least_once=isinstance(level.extent, int)
    ) as loop:
        a_at, right_at, *partial = loop.carried
        partial = _reduce(b, kernel, inner, a_at, right_at, partial, tap)
        loop.carry(
            displaced(b, a_at, level.a_stride, LType(kernel.a_kind)),
            b.gep(right_at, level.b_stride, LType(kernel.b_kind)),
            *partial,
        )
    return list(loop.results[2:])


def _reduce_taps(
    b: FunctionBuilder, kernel: MicroKernel, level: Taps, inner: Nest, a: Val, right: Val, total: Accumulators
) -> Accumulators:
    """Each tap in turn, on the accumulators of its rows."""
    vectors = kernel.columns.vectors
    total = list(total)
    for tap in level.steps:
        own = [i * vectors + v for i in tap.rows for v in range(vectors)]
        part = _reduce(
            b,
            kernel,
            inner,
            opaque(b, a),
            b.gep(right, tap.b_offset, LType(kernel.b_kind)),
            [total[k] for k in own],
            tap,
        )
        for k, value in zip(own, part, strict=True):
            total[k] = value
    return total


def _reduce_innermost(
    b: FunctionBuilder, kernel: MicroKernel, level: Level, a: Val, right: Val, total: Accumulators, tap: Tap
) -> Accumulators:
    """The innermost loop, unrolled; what the unrolling leaves over is a second loop of single steps."""
    most = max(1, _UNROLLED // len(total))
    if isinstance(level.extent, int) and level.extent <= most:
        spare = _zeros_like(total) * (_ways(b, kernel, tap, level.extent) - 1)
        return _join(b, len(total), _steps(b, kernel, level, a, right, [*total, *spare], tap, level.extent, _panel_at(b, kernel, i64(0))))
    unroll = _unroll_factor(level, min(most, 16))
    extent = level.extent
    if isinstance(extent, int):
        full: Val = i64(extent // unroll * unroll)
        rest: Val | None = None if extent % unroll == 0 else i64(extent)
    else:
        count = b.args[extent]
        exact = level.multiple % unroll == 0
        full = count if exact else b.and_(count, i64(-unroll))
        rest = None if exact else count
    spare = _zeros_like(total) * (_ways(b, kernel, tap, unroll) - 1)
    with b.loop(
        0, full, unroll, carried=[a, right, *total, *spare], name="k", at_least_once=isinstance(extent, int)
    ) as loop:
        if kernel.next_tile:
            _ask_for_next_tile(b, kernel, loop.carried[0], b.div(loop.index, i64(unroll), signed=False))
        if kernel.fetch is not None:
            _ask_for_later(b, kernel, kernel.fetch, loop.index, unroll)
        loop.carry(*_advance(b, kernel, level, loop.carried, tap, unroll, _panel_at(b, kernel, loop.index)))
    a, right, *partial = loop.results
    total = _join(b, len(total), partial)
    if rest is None:
        return total
    with b.loop(full, rest, carried=[a, right, *total], name="k.rest") as loop:
        loop.carry(*_advance(b, kernel, level, loop.carried, tap, 1, _panel_at(b, kernel, loop.index)))
    return list(loop.results[2:])


def _panel_at(b: FunctionBuilder, kernel: MicroKernel, step: Val) -> Val | None:
    """Where the copy of what reduction step `step` reads of B begins, if there is one."""
    return b.gep(b.args["panel"], b.mul(step, i64(kernel.columns.padded)), LType(kernel.kind)) if kernel.packs else None


def _ask_for_next_tile(b: FunctionBuilder, kernel: MicroKernel, a: Val, turn: Val) -> None:
    """The cache line that the next tile reads where this one is: of one of its rows in each turn of the loop, so that all of a line's rows have been
    asked for before the next line."""
    rows = 1 << (kernel.rows - 1).bit_length()
    row = b.and_(turn, i64(rows - 1))
    at = b.add(b.mul(row, i64(kernel.next_tile // kernel.rows)), i64(kernel.next_tile))
    prefetch(b, displaced(b, a, at, LType(kernel.a_kind)))


def _ask_for_later(b: FunctionBuilder, kernel: MicroKernel, fetch: Fetch, step: Val, steps: int) -> None:
    """The rows whose turn it is in `steps` steps from `step` on."""
    element = LType(kernel.b_kind)
    row = displaced(b, b.args["later"], b.mul(b.div(step, i64(fetch.rounds), signed=False), i64(fetch.stride)), element)
    for k in range(max(1, steps // fetch.rounds)):
        for line in range(fetch.lines):
            prefetch(b, displaced(b, row, k * fetch.stride + line * (LINE_BYTES // element.bytes), element), 2)


def _zeros_like(total: Accumulators) -> Accumulators:
    return [zeros(value.type) for value in total]


def _unroll_factor(level: Level, most: int) -> int:
    """The largest power of two up to `most`, or a divisor of a static extent larger than half of it."""
    power = 1 << (most.bit_length() - 1)
    if isinstance(level.extent, str):
        return power
    divisor = max(d for d in range(1, most + 1) if level.extent % d == 0)
    return divisor if divisor * 2 > power else power


def _ways(b: FunctionBuilder, kernel: MicroKernel, tap: Tap, steps: int) -> int:
    """Into how many sets of accumulators `steps` consecutive steps go, so that enough multiply-adds are in flight and all
    stay in registers, with those of the rows that `tap` is not for.
    """
    vectors = kernel.columns.vectors
    size = len(tap.rows) * vectors
    room = (_REGISTERS_AVX2 if b.module.avx2 else _REGISTERS) - (kernel.size - size) - vectors - 1
    ways = 1
    while size * ways < _IN_FLIGHT and ways * 2 <= steps and size * ways * 2 <= room:
        ways *= 2
    return ways


def _join(b: FunctionBuilder, size: int, partial: Accumulators) -> Accumulators:
    """Adds the sets of accumulators in pairs."""
    sets = [partial[k : k + size] for k in range(0, len(partial), size)]
    while len(sets) > 1:
        sets = [
            [b.add(x, y) for x, y in zip(s, t, strict=True)]
            for s, t in zip(sets[::2], sets[1::2], strict=True)
        ]
    return sets[0]


def _advance(
    b: FunctionBuilder, kernel: MicroKernel, level: Level, carried: Sequence[Val], tap: Tap, steps: int, panel: Val | None
) -> list[Val]:
    """`steps` reduction steps on (a, b, accumulators...), which come back moved on."""
    a, right, *partial = carried
    partial = _steps(b, kernel, level, a, right, partial, tap, steps, panel)
    return [
        displaced(b, a, steps * level.a_stride, LType(kernel.a_kind)),
        b.gep(right, steps * level.b_stride, LType(kernel.b_kind)),
        *partial,
    ]


def _steps(
    b: FunctionBuilder,
    kernel: MicroKernel,
    level: Level,
    a: Val,
    right: Val,
    partial: Accumulators,
    tap: Tap,
    steps: int,
    panel: Val | None,
) -> Accumulators:
    """`steps` reduction steps in a row, dealt out in turn to the sets of accumulators in `partial`."""
    size = len(tap.rows) * kernel.columns.vectors
    sets = [partial[k : k + size] for k in range(0, len(partial), size)]
    offsets = {kernel.a_offsets[i] for i in tap.rows}
    overlaps = any(offset + level.a_stride in offsets for offset in offsets)
    for step in range(steps):
        a = opaque(b, a) if overlaps and step else a
        _step(
            b,
            kernel,
            a,
            tap.a_offset + step * level.a_stride,
            tap.rows,
            b.gep(right, step * level.b_stride, LType(kernel.b_kind)),
            displaced(b, right, (step + kernel.rows_ahead) * level.b_stride, LType(kernel.b_kind)) if kernel.rows_ahead else None,
            None if panel is None else b.gep(panel, step * kernel.columns.padded, LType(kernel.kind)),
            sets[step % len(sets)],
        )
    return [value for one in sets for value in one]


def _step(
    b: FunctionBuilder,
    kernel: MicroKernel,
    a: Val,
    a_offset: int,
    rows: Sequence[int],
    right: Val,
    later: Val | None,
    panel: Val | None,
    total: Accumulators,
) -> None:
    """One reduction step: total[i][j] += a[i] * right[j] for i in `rows`, in place. `later`: what is read of B `rows_ahead` steps further;
    `panel`: where what this step reads of it is copied to.
    """
    lanes, widths = kernel.columns.lanes, kernel.widths
    a_kind, b_kind = (kernel.a_kind, kernel.b_kind) if kernel.paired else (kernel.kind, kernel.kind)
    if kernel.ahead:
        line = LINE_BYTES // LType(kernel.a_kind).bytes
        for before in range(0, kernel.rows, line):
            prefetch(b, displaced(b, a, a_offset + kernel.ahead - before, LType(kernel.a_kind)), 2)
    vectors = []
    for v, width in enumerate(widths):
        if kernel.streams:
            prefetch(b, displaced(b, right, ASKED_AHEAD_BYTES // LType(kernel.b_kind).bytes + v * lanes, LType(kernel.b_kind)), 2)
        if later is not None:
            prefetch(b, displaced(b, later, v * lanes, LType(kernel.b_kind)))
        mask = None if kernel.b_packed else kernel.mask(v)
        vectors.append(load_as(b, b.gep(right, v * lanes, LType(kernel.b_kind)), kernel.b_kind, b_kind, width, mask))
        if panel is not None:
            b.store(vectors[-1], b.gep(panel, v * lanes, LType(kernel.kind)))
    for n, i in enumerate(rows):
        at = displaced(b, a, a_offset + kernel.a_offsets[i], LType(kernel.a_kind))
        scalar = None if kernel.a_vector else load_as(b, at, kernel.a_kind, a_kind, 0)
        for v, vector in enumerate(vectors):
            if scalar is None:
                left = load_as(b, b.gep(at, v * lanes, LType(kernel.a_kind)), kernel.a_kind, a_kind, widths[v], kernel.mask(v))
            else:
                left = b.splat(scalar, widths[v])
            index = n * len(widths) + v
            if kernel.paired:
                total[index] = _multiply_pairs(b, left, vector, total[index])
            else:
                fma = b.fma_in_place if len(vectors) == 1 and scalar is not None else b.fma
                total[index] = fma(vector, left, total[index])


def _multiply_pairs(b: FunctionBuilder, left: Val, right: Val, total: Val) -> Val:
    """total + both products of the bfloats in each word."""
    pairs = LType("bfloat", 2 * total.type.lanes)
    return b.intrinsic(f"x86.avx512bf16.dpbf16ps.{32 * total.type.lanes}", total.type, total, b.bitcast(left, pairs), b.bitcast(right, pairs))


def _outputs(b: FunctionBuilder, kernel: MicroKernel) -> list[Val]:
    """Where each vector of the tile lies in C, row by row."""
    lanes, element = kernel.columns.lanes, LType(kernel.c_kind)
    return [b.gep(b.gep(b.args["c"], offset, element), v * lanes, element) for offset in kernel.c_offsets for v in range(kernel.columns.vectors)]


def _finish(b: FunctionBuilder, kernel: MicroKernel, total: Accumulators, epilogue: Epilogue | None) -> None:
    """Adds what C holds, applies the epilogue, stores."""
    at, vectors = _outputs(b, kernel), kernel.columns.vectors
    masks = [kernel.mask(v) for _ in kernel.c_offsets for v in range(vectors)]
    if kernel.resumes:
        with b.loop(0, b.args["resume"], carried=total, name="resume") as loop:
            held = [load_as(b, p, kernel.c_kind, kernel.kind, t.type.lanes, m) for p, t, m in zip(at, total, masks, strict=True)]
            loop.carry(*(b.add(h, t) for h, t in zip(held, loop.carried, strict=True)))
        total = list(loop.results)
    if epilogue is None:
        for value, p, m in zip(total, at, masks, strict=True):
            if kernel.past and m is None:
                b.store_past_caches(b.cast(value, value.type.with_kind(kernel.c_kind)), p)
            else:
                store_as(b, value, p, kernel.c_kind, m)
        return

    def finish() -> None:
        for k, (value, p, m) in enumerate(zip(total, at, masks, strict=True)):
            assert epilogue is not None
            store_finished(b, _apply(b, kernel, epilogue, k, value, m), p, kernel.c_kind, m)

    def keep() -> None:
        for value, p, m in zip(total, at, masks, strict=True):
            store_as(b, value, p, kernel.c_kind, m)

    if kernel.resumes:
        b.if_else(b.icmp("ne", b.args["last"], i64(0)), finish, keep)
    else:
        finish()


def _apply(
    b: FunctionBuilder, kernel: MicroKernel, epilogue: Epilogue, k: int, value: Val, mask: Val | None
) -> Val | None:
    i, v = divmod(k, kernel.columns.vectors)
    row, column = b.args["row"], b.args["column"]
    if kernel.row_steps[i]:
        row = b.add(row, i64(kernel.row_steps[i]))
    if v:
        column = b.add(column, i64(v * kernel.columns.lanes))
    return epilogue(b, value, row, column, mask, batch_of(b, row, kernel.batch_rows))


def batch_of(b: FunctionBuilder, row: Val, batch_rows: int) -> Val:
    """The linear batch index of an output row. A tile may hold rows of several batches, so each row asks for
    its own.
    """
    return b.div(row, i64(batch_rows), signed=False) if batch_rows else i64(0)

"""Attention forward: softmax(scale * q @ k^T, masked) @ v without the matrix of scores in memory.

Enters: an `AttentionSpec`. Leaves: a function in the module and its `Plan`. A block is some rows of q of one batch entry. It goes over
the keys in chunks: packs a chunk of k and v (few rows read them where they lie; the blocks that follow find the panels, if those of all keys are
not too large), computes the scores of its rows in scratch memory, turns them into exponentials and adds their product with v to the output so
far, which is scaled down first where a larger score was found. With a mask this is done for some rows at a time, and for the first keys only, if
the mask hides the others (attention_masks.py). The largest score and the sum of exponentials of each row are results, too. What a block does
depends on the shapes and the numbers only, so results are the same for any number of threads.

References: M. Milakov, N. Gimelshein, "Online normalizer calculation for softmax", 2018; T. Dao et al., "FlashAttention", 2022.
"""

from __future__ import annotations

from math import prod

from graphcell.codegen.llvm.attention_masks import (
    Factor,
    count_tiles,
    describe,
    each_part,
    emit_seen,
    first_keys,
    keys_of_chunk,
    may_hide,
    most_seen,
    split_queries,
)
from graphcell.codegen.llvm.attention_products import (
    INFINITY,
    AttentionSpec,
    Panels,
    Parts,
    Row,
    ask_for_row,
    at_column,
    at_row,
    batch_offset,
    clear_after,
    kept_weights,
    largest,
    largest_lane,
    masked_score,
    over_row,
    over_seen,
    split_batch,
)
from graphcell.codegen.llvm.contraction import ContractionTarget, KernelParams, Plan, Stage, affine, ceil_div, round_up, split_evenly, tile_loop
from graphcell.codegen.llvm.exponential import exp
from graphcell.codegen.llvm.matmul_spec import Operand
from graphcell.codegen.llvm.packing import displaced, load_as, store_as, zeros
from graphcell.codegen.llvm.text import I64, PTR, VOID, FunctionBuilder, LType, Module, Val, i64
from graphcell.records import dataclass

_SCRATCH_OF_L2 = 0.4  # the part of that cache which scratch memory of a block may take
_LEAST_SCRATCH = 100_000  # elements that it may take however small that cache is
_ROWS = 128
_KEYS = 512
_MOST_KEPT_BYTES = 4 << 20  # of panels of all keys: of more, each block packs its own
MASKS = ("e", "f")


def emit_attention(module: Module, name: str, spec: AttentionSpec, target: ContractionTarget) -> Plan:
    """Emits the function `name` and returns its plan.

    Buffers: a (q), b (k), d (v), then e and f (the masks there are), c (the output), c1 (largest scores), c2 (sums of exponentials), both
    [batch, m] of the kind that scores are computed in; c3 (powers) if the spec has them; scratch. No extent is 0.
    """
    return _Forward(Parts(module, name, spec.kind, target), spec).emit()


@dataclass(frozen=True)
class Chunks:
    """Keys cut in `whole` chunks of `size` and a last one of `rest`; queries in blocks of at most `rows`."""

    rows: int
    size: int
    whole: int
    rest: int

    @property
    def count(self) -> int:
        return self.whole + (self.rest > 0)

    @property
    def several(self) -> bool:
        """Whether the keys are more than one chunk."""
        return self.count > 1


def choose_chunks(
    spec: AttentionSpec, target: ContractionTarget, rows: int, keys: int, per_key: int, per_row: int, per_score: int, whole: bool = False
) -> Chunks:
    """Chunk sizes for which chunks * per_key + rows * per_row + rows * chunk * per_score stays within what a block may take (above); `whole`: one chunk."""
    lanes = target.lanes(spec.kind)
    size, rows = spec.n if whole else min(keys, round_up(spec.n, lanes)), min(rows, spec.m)
    smallest = spec.n if whole else 4 * lanes
    budget = max(_LEAST_SCRATCH, int(_SCRATCH_OF_L2 * target.l2_bytes) // spec.size)

    def used() -> int:
        return size * per_key + rows * per_row + rows * size * per_score

    while used() > budget and (size > smallest or rows > 32):
        if size > smallest and (size * per_key > rows * per_row or rows <= 32):
            size = round_up(size // 2, 4 * lanes)
        else:
            rows = (rows + 1) // 2
    rows = ceil_div(spec.m, _even_parts(spec.m, rows, 1))
    if size < spec.n:
        parts = _even_parts(spec.n, size, lanes)
        size = spec.n // parts if spec.n % (parts * lanes) == 0 else size
    return Chunks(rows, spec.n, 1, 0) if size >= spec.n else Chunks(rows, size, spec.n // size, spec.n % size)


def _even_parts(extent: int, most: int, unit: int) -> int:
    """The number of parts of at most `most` that `extent` is cut in, if possible equal ones, multiples of `unit`: less code then."""
    fewest = ceil_div(extent, most)
    return next((k for k in range(fewest, 2 * fewest) if extent % (k * unit) == 0), fewest)


@dataclass(frozen=True)
class _Forward:
    parts: Parts
    spec: AttentionSpec

    @property
    def lanes(self) -> int:
        return self.parts.target.lanes(self.spec.kind)

    @property
    def chunks(self) -> Chunks:
        width = round_up(self.spec.d, self.lanes) + round_up(self.spec.e, self.lanes)
        keys = keys_of_chunk(self.spec, _KEYS, self.limits)
        return choose_chunks(self.spec, self.parts.target, _ROWS, keys, width, round_up(self.spec.e, self.lanes), 1, self.spec.powers is not None)

    @property
    def pitch(self) -> int:
        """Elements from row to row of the scores in scratch memory."""
        return round_up(self.chunks.size, self.lanes) + self.lanes

    @property
    def scores(self) -> Operand:
        """The scores in scratch memory."""
        return Operand(self.spec.kind, self.pitch, 1)

    @property
    def width(self) -> int:
        """Elements from row to row of the output in scratch memory."""
        return round_up(self.spec.e, self.lanes)

    @property
    def single(self) -> bool:
        """Whether all queries meet all keys at once. A block is then so short that its operands are asked for while the block before runs."""
        return not self.online and self.chunks.rows == self.spec.m

    @property
    def grid(self) -> int:
        """Blocks of one batch entry."""
        return ceil_div(self.spec.m, self.chunks.rows)

    @property
    def panel_bytes(self) -> tuple[int, int]:
        """Of the panels of a chunk's keys, and of its values: a chunk of fewer keys may pack what others read where it lies."""
        sizes = [self._panels(keys) for keys in (self.chunks.size, self.chunks.rest) if keys]
        keys, values = (round_up(max(p.elements for p in panels) * self.spec.size, 64) for panels in zip(*sizes, strict=True))
        return keys, values

    @property
    def keeps(self) -> bool:
        """Whether panels stay for the blocks of the same batch entry that a thread carries out next."""
        return self.grid > 1 and 0 < sum(self.panel_bytes) * self.chunks.count <= _MOST_KEPT_BYTES

    @property
    def sources(self) -> dict[str, Operand]:
        """The operands by their buffers."""
        return {"a": self.spec.q, "b": self.spec.k, "d": self.spec.v}

    @property
    def online(self) -> bool:
        """Whether sums are corrected from chunk to chunk, as there are several."""
        return self.chunks.several

    @property
    def limits(self) -> bool:
        """Whether a mask may hide keys, so that it is looked at beforehand."""
        return may_hide(self.spec, self.lanes, self.spec.q, self.spec.k, self.spec.v)

    def emit(self) -> Plan:
        spec, chunks, size = self.spec, self.chunks, self.spec.size
        seen = count_tiles(split_queries(spec, chunks.rows)) * I64.bytes if self.limits else 0
        panels = [nbytes * (chunks.count if self.keeps else 1) for nbytes in self.panel_bytes]
        sections = chunks.rows * self.pitch * size, *panels, chunks.rows * self.width * size, seen, chunks.count * I64.bytes if self.keeps else 0
        offsets = [sum(round_up(s, 64) for s in sections[:k]) for k in range(len(sections) + 1)]
        powers = ("c3",) if spec.powers is not None else ()
        buffers = ("a", "b", "d", *MASKS[: len(spec.masks)], "c", "c1", "c2", *powers, "scratch")
        segments = split_evenly(spec.m, chunks.rows)
        params = KernelParams(buffers)
        b = FunctionBuilder(self.parts.module, self.parts.name, params.list, internal=False)
        grid = self.grid
        with b.loop(b.args["begin"], b.args["end"], name="block") as loop:
            batch, within = split_batch(b, loop.index, spec, grid)
            scratch = [b.gep(b.args["scratch"], offset, LType("i8")) for offset in offsets[: 5 if self.limits else 4]]
            packed = b.gep(b.args["scratch"], offsets[5], LType("i8"))
            if self.keeps:
                is_first = b.or_(b.icmp("eq", loop.index, b.args["begin"]), b.icmp("eq", within, i64(0)))
                with b.if_then(is_first), b.loop(0, chunks.count, name="packed", at_least_once=True) as number:
                    b.store(i64(0), b.gep(packed, number.index, I64))
            if self.single:
                after, _ = split_batch(b, b.add(loop.index, i64(1)), spec, grid)
                scratch += [displaced(b, b.args[letter], batch_offset(b, after, x), LType(x.kind)) for letter, x in self.sources.items()]
            for segment in segments:
                with tile_loop(b, segment, within, b.add(within, i64(1)), "rows") as (_, row):
                    self._block(b, segment.size, batch, row, scratch, packed)
        b.finish()
        blocks = spec.blocks * grid
        flops = 2 * chunks.rows * spec.n * (spec.d + spec.e + 8)
        note = f"attention, {chunks.rows} rows, {chunks.whole} chunks of {chunks.size} keys and {chunks.rest}"
        note += f", {describe(split_queries(spec, chunks.rows))}" if self.limits else ""
        return Plan((Stage(self.parts.name, buffers, (), blocks, flops),), (), offsets[-1], note)

    def _panels(self, keys: int) -> tuple[Panels, Panels]:
        """Of the keys, transposed, and of the values of a chunk."""
        spec, rows = self.spec, self.chunks.rows
        turned = Operand(spec.k.kind, spec.k.column, spec.k.row)
        return self.parts.right(spec.d, keys, rows, spec.q, turned, False), self.parts.right(keys, spec.e, rows, self.scores, spec.v, self.online)

    def _block(self, b: FunctionBuilder, rows: int, batch: list[Val], row: Val, scratch: list[Val], packed: Val) -> None:
        spec, chunks = self.spec, self.chunks
        linear = affine(b, [(x, prod(spec.batch[d + 1 :])) for d, x in enumerate(batch)])
        state = [b.gep(b.args[n], b.add(b.mul(linear, i64(spec.m)), row), LType(spec.kind)) for n in ("c1", "c2")]
        q = at_row(b, b.gep(b.args["a"], batch_offset(b, batch, spec.q), LType(spec.q.kind)), row, spec.q)
        k = b.gep(b.args["b"], batch_offset(b, batch, spec.k), LType(spec.k.kind))
        v = b.gep(b.args["d"], batch_offset(b, batch, spec.v), LType(spec.v.kind))
        out = at_row(b, b.gep(b.args["c"], batch_offset(b, batch, spec.out), LType(spec.out.kind)), row, spec.out)
        masks = [
            (at_row(b, b.gep(b.args[letter], batch_offset(b, batch, operand), LType(operand.kind)), row, operand), operand)
            for letter, operand in zip(MASKS, spec.masks.values(), strict=False)
        ]
        if spec.powers is not None:
            state.append(at_row(b, b.gep(b.args["c3"], batch_offset(b, batch, spec.powers), LType(spec.kind)), row, spec.powers))
        if self.online:
            b.call(self._begin(rows), VOID, *state, scratch[3])

        def chunk(number: Val, keys: int) -> None:
            key = b.mul(number, i64(chunks.size))
            columns = [at_column(b, pointer, key, operand) for pointer, operand in masks]
            places, flag = list(scratch), []
            if self.keeps:
                places[1:3] = (b.gep(at, b.mul(number, i64(nbytes)), LType("i8")) for at, nbytes in zip(scratch[1:3], self.panel_bytes, strict=True))
                flag = [b.gep(packed, number, I64)]
            b.call(self._chunk(rows, keys), VOID, q, at_row(b, k, key, spec.k), at_row(b, v, key, spec.v), *columns, *state, *places, *flag)

        if not self.online:
            chunk(i64(0), chunks.size)
        else:
            with b.loop(0, chunks.whole, name="chunk", at_least_once=True) as loop:
                chunk(loop.index, chunks.size)
            if chunks.rest:
                chunk(i64(chunks.whole), chunks.rest)
        b.call(self._finish(rows), VOID, scratch[3], state[1], out)

    def _begin(self, rows: int) -> str:
        """`void f(ptr peak, ptr total, ptr output)`: no scores so far."""
        name, new = self.parts.fresh(("begin", rows), "begin")
        if new:
            kind = LType(self.spec.kind)
            b = FunctionBuilder(self.parts.module, name, [("peak", PTR), ("total", PTR), ("output", PTR)])
            with b.loop(0, rows, name="row", at_least_once=True) as row:
                b.store(b.const(-INFINITY, kind), b.gep(b.args["peak"], row.index, kind))
                b.store(b.const(0.0, kind), b.gep(b.args["total"], row.index, kind))
            with b.loop(0, rows * self.width, self.lanes, name="output", at_least_once=True) as at:
                b.store(zeros(LType(self.spec.kind, self.lanes)), b.gep(b.args["output"], at.index, kind))
            b.finish()
        return name

    def _chunk(self, rows: int, keys: int) -> str:
        """`void f(q, k, v[, mask][, keep], peak, total[, powers], scores, k panels, v panels, output[, counts][, packed])`, all pointers; `packed`, a
        word, is 0 as long as there are no panels of this chunk."""
        name, new = self.parts.fresh(("chunk", rows, keys), "chunk")
        if not new:
            return name
        spec, parts = self.spec, self.parts
        names = ["q", "k", "v", *spec.masks, *self._by_row, "scores", "kp", "vp", "output", *(("counts",) if self.limits else ()), *self._after]
        names += ["packed"] if self.keeps else []
        b = FunctionBuilder(parts.module, name, [(n, PTR) for n in names], attributes="nounwind noinline")
        queries, total = split_queries(spec, rows), None
        if self.limits:
            factors = Factor("q", spec.q, spec.d, weighted=False), Factor("k", spec.k, spec.d, True, False), Factor("v", spec.v, spec.e, True)
            look = emit_seen(parts, spec, queries, keys, factors, peaks=self.online)
            total = b.call(look, I64, *(b.args[n] for n in ("mask", *(("peak",) if self.online else ()), *(x.name for x in factors), "counts")))
            b.return_if(b.icmp("eq", total, i64(0)))
        places = dict(b.args) | {name: b.args[f"{name}p"] for name, panels in zip("kv", self._panels(keys), strict=True) if panels.lies is None}
        if self.keeps:
            with b.if_then(b.icmp("eq", b.load(b.args["packed"], I64), i64(0))):
                self._pack(b, keys, None)
                b.store(i64(1), b.args["packed"])
        else:
            self._pack(b, keys, None if total is None else most_seen(b, b.args["counts"], queries))
        strides = {"q": spec.q, **spec.masks, "output": Operand(spec.kind, self.width, 1)}
        strides |= {n: Operand(spec.kind, 1, 1) if spec.powers is None or n != "powers" else spec.powers for n in self._by_row}
        strides |= {f"next_{letter}": operand for letter, operand in self.sources.items() if self.single}

        def part(size: int, first: Val, *seen: Val) -> None:
            at = {n: displaced(b, places[n], b.mul(first, i64(x.row)), LType(x.kind)) for n, x in strides.items()}
            b.call(self._part(size, keys), VOID, *((places | at)[n] for n in self._part_names), *seen)

        if total is None:
            part(rows, i64(0))
        else:
            each_part(b, queries, rows, keys, b.args["counts"], total, part)
        b.finish()
        return name

    def _pack(self, b: FunctionBuilder, keys: int, most: Val | None) -> None:
        """Packs a chunk's keys and values, those that are not read where they lie; the first `most` if that is known."""
        spec = self.spec
        some, deep = first_keys(keys, self.lanes) if most is not None else (None, None)
        k_panels, v_panels = self._panels(keys)
        for name, panels, source, seen in (("k", k_panels, Operand(spec.k.kind, spec.k.column, spec.k.row), some), ("v", v_panels, spec.v, deep)):
            if panels.lies is None:
                b.call(self.parts.pack(panels, source, seen), VOID, b.args[name], b.args[f"{name}p"], *([] if most is None else [most]))

    @property
    def _by_row(self) -> tuple[str, ...]:
        """What there are numbers of each query of."""
        return ("peak", "total") if self.spec.powers is None else ("peak", "total", "powers")

    @property
    def _after(self) -> tuple[str, ...]:
        """The operands of the block after."""
        return tuple(f"next_{letter}" for letter in self.sources) if self.single else ()

    @property
    def _part_names(self) -> tuple[str, ...]:
        return "q", "k", "v", *self.spec.masks, *self._by_row, "scores", "output", *self._after

    def _part(self, rows: int, keys: int) -> str:
        """Some queries of a block against a chunk of keys. Parameters: pointers by `_part_names`, and how many keys they look at, if a mask limits that."""
        name, new = self.parts.fresh(("part", rows, keys), "part")
        if not new:
            return name
        spec, parts = self.spec, self.parts
        params = [*((n, PTR) for n in self._part_names), *([("seen", I64)] if self.limits else [])]
        b = FunctionBuilder(parts.module, name, params, attributes="nounwind noinline")
        k_panels, v_panels = self._panels(keys)
        output = Operand(spec.kind, self.width, 1)
        seen = [b.args["seen"]] if self.limits else []
        some, deep = first_keys(keys, self.lanes) if self.limits else (None, None)
        b.call(parts.product(rows, k_panels, spec.q, self.scores, False, some), VOID, b.args["q"], b.args["k"], b.args["scores"], *seen)

        def each_row(row: Row) -> None:
            with b.loop(0, rows, name="row", at_least_once=True) as loop:
                for letter, operand in self.sources.items() if self.single else []:
                    ask_for_row(b, b.args[f"next_{letter}"], loop.index, operand, spec.e if letter == "d" else spec.d)
                self._row(b, loop.index, row)

        over_seen(b, Row(keys, self.lanes), seen, each_row)
        resume = [i64(1)] if self.online else []
        product = parts.product(rows, v_panels, self.scores, output, self.online, deep)
        b.call(product, VOID, b.args["scores"], b.args["v"], b.args["output"], *resume, *seen)
        b.finish()
        return name

    def _row(self, b: FunctionBuilder, index: Val, row: Row) -> None:
        """Turns a row of products into exponentials, and keeps its largest score and their sum."""
        spec, kind = self.spec, LType(self.spec.kind)
        scores = at_row(b, b.args["scores"], index, Operand(spec.kind, self.pitch, 1))
        masks = {n: at_row(b, b.args[n], index, operand) for n, operand in spec.masks.items()}
        peak_at, total_at = (b.gep(b.args[n], index, kind) for n in ("peak", "total"))
        found = self._peak(b, scores, masks.get("mask"), row)
        before = b.load(peak_at, kind) if self.online else None
        peak = found if before is None else largest(b, found, before)
        b.store(peak, peak_at)
        # A row of which everything is masked by -inf so far has exponentials 0, not exp(-inf - -inf); the division by 0 at the end says NaN.
        base = b.select(b.fcmp("oeq", peak, b.const(-INFINITY, peak)), b.const(0.0, peak), peak)
        powers = None if spec.powers is None else at_row(b, b.args["powers"], index, spec.powers)
        total = self._exponentials(b, scores, masks.get("keep"), row, base, powers)
        if before is not None:
            shrink = b.extract(exp(b, b.splat(b.sub(before, base), self.lanes)), 0)
            total = b.fma(b.load(total_at, kind), shrink, total)
            output = b.gep(b.args["output"], b.mul(index, i64(self.width)), kind)
            with b.loop(0, self.width, self.lanes, name="shrink", at_least_once=True) as loop:
                at = b.gep(output, loop.index, kind)
                held = b.load(at, LType(spec.kind, self.lanes))
                b.store(b.mul(held, b.splat(shrink, self.lanes)), at)
        b.store(total, total_at)

    def _peak(self, b: FunctionBuilder, scores: Val, mask: Val | None, row: Row) -> Val:
        """The largest score of a row, scaled and masked; where that cannot wait, the scores are stored scaled and masked."""
        spec, vector = self.spec, LType(self.spec.kind, self.lanes)
        lowest = b.const(-INFINITY, vector)

        def step(at: Val, tail: Val | None, so_far: Val) -> Val:
            place = b.gep(scores, at, LType(spec.kind))
            x = b.load(place, vector)
            if not spec.folds_scale:
                column = None if mask is None or spec.mask is None else at_column(b, mask, at, spec.mask)
                x, _ = masked_score(b, spec, x, column, tail)
            if tail is not None:
                x = b.select(tail, x, lowest)
            if tail is not None or not spec.folds_scale:
                b.store(x, place)
            return largest(b, x, so_far)

        (found,) = over_row(b, row, [lowest] * min(2, row.vectors), step, largest)
        peak = largest_lane(b, found)
        return b.mul(peak, b.const(spec.scale, peak)) if spec.folds_scale else peak

    def _exponentials(self, b: FunctionBuilder, scores: Val, keep: Val | None, row: Row, base: Val, powers: Val | None) -> Val:
        """Replaces scores by exp(score - base), or 0 where dropout does not keep them; the sum of all. All go to `powers`, too."""
        spec, vector = self.spec, LType(self.spec.kind, self.lanes)
        scale, down = b.const(spec.scale if spec.folds_scale else 1.0, vector), b.splat(b.neg(base), self.lanes)

        def step(at: Val, tail: Val | None, so_far: Val) -> Val:
            place = b.gep(scores, at, LType(spec.kind))
            # no fused multiply-add: the difference is exactly 0 at the largest score, which was rounded, however large it is
            power = exp(b, b.add(b.mul(b.load(place, vector), scale), down))
            if powers is not None:
                store_as(b, power, b.gep(powers, at, LType(spec.kind)), spec.kind, tail)
            kept = power
            if keep is not None and spec.keep is not None:
                kept = kept_weights(b, spec, power, at_column(b, keep, at, spec.keep), tail, None)
            b.store(kept, place)
            return b.add(power, so_far)

        if powers is not None and row.seen is not None:
            clear_after(b, powers, row, spec.kind)
        (total,) = over_row(b, row, [zeros(vector)] * min(2, row.vectors), step, lambda b, x, y: b.add(x, y))
        return b.reduce("add", total)

    def _finish(self, rows: int) -> str:
        """`void f(ptr output, ptr total, ptr to)`: divides by the sums of exponentials and stores."""
        name, new = self.parts.fresh(("finish", rows), "finish")
        if not new:
            return name
        spec, kind, lanes = self.spec, LType(self.spec.kind), self.lanes
        b = FunctionBuilder(self.parts.module, name, [("output", PTR), ("total", PTR), ("to", PTR)], attributes="nounwind noinline")
        line = Row(spec.e, lanes)
        with b.loop(0, rows, name="row", at_least_once=True) as row:
            total = b.splat(b.load(b.gep(b.args["total"], row.index, kind), kind), lanes)
            source = b.gep(b.args["output"], b.mul(row.index, i64(self.width)), kind)
            to = at_row(b, b.args["to"], row.index, spec.out)

            def step(at: Val, tail: Val | None, so_far: Val, source: Val = source, to: Val = to, total: Val = total) -> Val:
                value = b.div(load_as(b, b.gep(source, at, kind), spec.kind, spec.kind, lanes, tail), total)
                if spec.keep is not None:
                    value = b.mul(value, b.const(spec.dropout, value))
                store_as(b, value, b.gep(to, at, LType(spec.out.kind)), spec.out.kind, tail)
                return so_far

            over_row(b, line, [zeros(LType(spec.kind, lanes))], step, lambda b, x, y: x)
        b.finish()
        return name


"""The gradient of attention, from q, k, v, the output and two numbers for each row of scores; no matrix of scores in memory.

Enters: a `GradientSpec`. Leaves: functions in the module and their `Plan`. A block is a range of keys of one batch entry. It goes over
its keys in chunks and for each of them over the queries in blocks of rows: computes probabilities p and their gradient dP = g v^T in
scratch memory (p from the powers that attention kept, if it did), turns the latter into dS = p (dP - rowsum(g * out)), and adds p^T g
to dv, dS^T q to dk and dS k to dq. Sums run over the queries, and for dq over the keys, in an order that depends on the shapes only.
Where one batch entry is shared by several blocks, each has a dq of its own, and a second stage adds these in order.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd, prod

from graphcell.codegen.llvm.attention import Chunks, choose_chunks
from graphcell.codegen.llvm.attention_masks import Factor, count_tiles, describe, each_part, emit_seen, first_keys, may_hide, replaces_scores, split_queries
from graphcell.codegen.llvm.attention_products import (
    AttentionSpec,
    Panels,
    Parts,
    Row,
    Seen,
    ask_for_row,
    at_column,
    at_row,
    batch_offset,
    clear_after,
    kept_weights,
    load_mask,
    masked_score,
    over_row,
    over_seen,
    split_batch,
)
from graphcell.codegen.llvm.contraction import ContractionTarget, KernelParams, Plan, Stage, affine, ceil_div, round_up, split_evenly, split_index, tile_loop
from graphcell.codegen.llvm.exponential import exp
from graphcell.codegen.llvm.matmul_spec import BLOCKS_WANTED, Operand
from graphcell.codegen.llvm.packing import clear_run, copy_run, displaced, load_strided, zeros
from graphcell.codegen.llvm.partial_sums import PartialSum, emit_row_sum
from graphcell.codegen.llvm.text import I1, I64, PTR, VOID, FunctionBuilder, LType, Module, Val, const, i64
from graphcell.records import dataclass

_ROWS = 128
_KEYS = 256
BY_SCORE = ("i", "j", "k")


@dataclass(frozen=True, slots=True)
class GradientSpec:
    """`forward` describes q, k, v, the output and the mask; g is read, dq, dk and dv are written, the latter with unit column stride."""

    forward: AttentionSpec
    g: Operand
    dq: Operand
    dk: Operand
    dv: Operand


def emit_attention_gradient(module: Module, name: str, spec: GradientSpec, target: ContractionTarget) -> Plan:
    """Emits the functions and returns their plan.

    Buffers: a (q), b (k), d (v), e (the output), f (largest scores), g (sums of exponentials), h (the cotangent of the output), then i,
    j and k (the powers and masks there are), c, c1, c2 (the gradients of q, k, v), scratch, and as the plan says partial. No extent is 0.
    """
    return _Backward(Parts(module, name, spec.forward.kind, target), spec).emit()


@dataclass(frozen=True)
class _Backward:
    parts: Parts
    whole: GradientSpec

    @property
    def spec(self) -> AttentionSpec:
        return self.whole.forward

    @property
    def by_score(self) -> dict[str, Operand]:
        """The operands with an element for each score, in their order."""
        return ({} if self.spec.powers is None else {"powers": self.spec.powers}) | self.spec.masks

    @property
    def single(self) -> bool:
        """Whether all queries meet all keys at once. A block is then so short that its operands are asked for while the block before runs."""
        return not self.chunks.several and not self.several_rows

    @property
    def sources(self) -> list[tuple[str, str, Operand]]:
        """The operands that lie in memory as short rows, far apart, and their buffers."""
        spec = self.spec
        return [("q", "a", spec.q), ("k", "b", spec.k), ("v", "d", spec.v), ("out", "e", spec.out), ("g", "h", self.whole.g)]

    @property
    def lanes(self) -> int:
        return self.parts.target.lanes(self.spec.kind)

    @property
    def width(self) -> tuple[int, int]:
        """d and e in whole vectors."""
        return round_up(self.spec.d, self.lanes), round_up(self.spec.e, self.lanes)

    @property
    def chunks(self) -> Chunks:
        d, e = self.width
        return choose_chunks(self.spec, self.parts.target, _ROWS, _KEYS, 3 * d + 2 * e, d + e, 2)

    @property
    def pitch(self) -> int:
        return round_up(self.chunks.size, self.lanes) + self.lanes

    @property
    def several_rows(self) -> bool:
        return self.chunks.rows < self.spec.m

    @property
    def limits(self) -> bool:
        """Whether a mask may hide keys, so that it is looked at beforehand."""
        return may_hide(self.spec, self.lanes, *(x for _, _, x in self.sources))

    @property
    def ranges(self) -> int:
        """Ranges of keys that one batch entry is shared by, so that there are blocks enough for several threads."""
        wanted = max(1, min(self.chunks.whole, ceil_div(BLOCKS_WANTED, 2 * self.spec.blocks)))
        return ceil_div(self.chunks.whole, ceil_div(self.chunks.whole, wanted))  # none is empty: its dq would not be written

    @property
    def partial(self) -> bool:
        """Whether dq is summed up beside its place."""
        return self.ranges > 1 or (self.chunks.several and self.whole.dq.kind != self.spec.kind)

    @property
    def held(self) -> bool:
        """Whether dk and dv are summed up beside their place."""
        return self.several_rows and self.whole.dk.kind != self.spec.kind

    @property
    def scores(self) -> Operand:
        return Operand(self.spec.kind, self.pitch, 1)

    @property
    def turned(self) -> Operand:
        """The scores in scratch memory, transposed."""
        return Operand(self.spec.kind, 1, self.pitch)

    def sections(self) -> list[tuple[str, int]]:
        """The parts of scratch memory, in elements."""
        spec, chunks = self.spec, self.chunks
        rows, keys = chunks.rows, chunks.size
        d, e = self.width
        table = [("p", rows * self.pitch), ("ds", rows * self.pitch)]
        if spec.powers is None:
            table.append(("ktp", self.score_panels(keys, spec.d).elements))
        table += [("vtp", self.score_panels(keys, spec.e).elements)]
        table += [("kp", self.query_panels(keys).elements)]
        table += [("qp", self.key_panels(rows, spec.d).elements), ("gp", self.key_panels(rows, spec.e).elements)]
        if self.limits:
            table.append(("counts", count_tiles(split_queries(spec, rows)) * I64.bytes // spec.size))
        return table + ([("dks", keys * d), ("dvs", keys * e)] if self.held else [])

    def score_panels(self, keys: int, depth: int) -> Panels:
        """The right operand of products that give scores: a chunk of k or v, transposed."""
        return self.parts.panels(depth, keys, self.chunks.rows)

    def query_panels(self, keys: int) -> Panels:
        """The right operand of dS . k."""
        return self.parts.panels(keys, self.spec.d, self.chunks.rows)

    def key_panels(self, rows: int, columns: int) -> Panels:
        """The right operand of p^T . g and dS^T . q."""
        return replace(self.parts.panels(self.chunks.rows, columns, self.chunks.size), depth=rows)

    # -- the stage ---------------------------------------------------------------------------------------------------
    def emit(self) -> Plan:
        spec, size = self.spec, self.spec.size
        offsets, total = {}, 0
        for name, elements in self.sections():
            offsets[name] = total
            total += round_up(elements, 64) * size
        more = BY_SCORE[: len(self.by_score)]
        target = "partial" if self.partial else "c"
        buffers = ("a", "b", "d", "e", "f", "g", "h", *more, target, "c1", "c2", "scratch")
        b = FunctionBuilder(self.parts.module, self.parts.name, KernelParams(buffers).list, internal=False)
        with b.loop(b.args["begin"], b.args["end"], name="block") as loop:
            batch, within = split_batch(b, loop.index, spec, self.ranges)
            places = {n: b.gep(b.args["scratch"], at, LType("i8")) for n, at in offsets.items()}
            if self.single:
                after, _ = split_batch(b, b.add(loop.index, i64(1)), spec, self.ranges)
                places |= {f"next_{n}": displaced(b, b.args[letter], batch_offset(b, after, x), LType(x.kind)) for n, letter, x in self.sources}
            self._block(b, batch, within, places)
        b.finish()
        blocks = spec.blocks * self.ranges
        flops = 2 * spec.m * spec.n * (3 * spec.d + 2 * spec.e + 12) // self.ranges
        stages = [Stage(self.parts.name, buffers, (), blocks, flops)]
        shared: list[tuple[str, int]] = []
        if self.partial:
            shared.append(("partial", self.ranges * spec.blocks * spec.m * spec.d * size))
            stages.append(self._sum())
        chunks = self.chunks
        note = f"attention gradient, {chunks.rows} rows, {chunks.whole} chunks of {chunks.size} keys and {chunks.rest}, {self.ranges} ranges"
        note += f", {describe(split_queries(spec, chunks.rows))}" if self.limits else ""
        return Plan(tuple(stages), tuple(shared), total, note)

    def _sum(self) -> Stage:
        spec, dq = self.spec, self.whole.dq

        def locate(b: FunctionBuilder, row: Val) -> tuple[Val, Val]:
            *batch, m = split_index(b, row, (*spec.batch, spec.m))
            return affine(b, [(m, dq.row), *zip(batch, dq.batch, strict=True)]), i64(0)

        total = PartialSum(spec.blocks * spec.m, spec.d, self.ranges, spec.kind, dq.kind, self.lanes, "c")
        return emit_row_sum(self.parts.module, f"{self.parts.name}.sum", total, locate, None, ())

    def _block(self, b: FunctionBuilder, batch: list[Val], within: Val, scratch: dict[str, Val]) -> None:
        spec, whole, chunks = self.spec, self.whole, self.chunks
        linear = affine(b, [(x, prod(spec.batch[d + 1 :])) for d, x in enumerate(batch)])

        def start(letter: str, operand: Operand) -> Val:
            return b.gep(b.args[letter], batch_offset(b, batch, operand), LType(operand.kind))

        rows = {n: b.gep(b.args[n], b.mul(linear, i64(spec.m)), LType(spec.kind)) for n in ("f", "g")}
        at = {"q": start("a", spec.q), "out": start("e", spec.out), "peak": rows["f"], "total": rows["g"], "g": start("h", whole.g)}
        if self.partial:
            place = affine(b, [(within, spec.blocks * spec.m * spec.d), (linear, spec.m * spec.d)])
            at["dq"] = b.gep(b.args["partial"], place, LType(spec.kind))
        else:
            at["dq"] = start("c", whole.dq)
        by_key = (("k", "b", spec.k), ("v", "d", spec.v), ("dk", "c1", whole.dk), ("dv", "c2", whole.dv))
        keyed = {n: (start(letter, operand), operand) for n, letter, operand in by_key}
        for letter, (n, operand) in zip(BY_SCORE, self.by_score.items(), strict=False):
            keyed[n] = start(letter, operand), replace(operand, row=operand.column)

        def chunk(key: Val, keys: int, resume: Val) -> None:
            places = at | {n: at_row(b, pointer, key, operand) for n, (pointer, operand) in keyed.items()} | scratch
            b.call(self._chunk(keys), VOID, *(places[n] for n in self._names()), resume)

        per_range = ceil_div(chunks.whole, self.ranges)
        low = b.mul(within, i64(per_range))
        high = b.binary("smin", b.add(low, i64(per_range)), i64(chunks.whole))
        with b.loop(low, high, name="chunk") as loop:
            chunk(b.mul(loop.index, i64(chunks.size)), chunks.size, b.cast(b.icmp("sgt", loop.index, low), I64, signed=False))
        if chunks.rest:
            with b.if_then(b.icmp("eq", within, i64(self.ranges - 1))):
                chunk(i64(chunks.whole * chunks.size), chunks.rest, b.cast(b.icmp("sgt", high, low), I64, signed=False))

    def _names(self) -> list[str]:
        after = [f"next_{n}" for n, _, _ in self.sources] if self.single else []
        return ["q", "k", "v", "out", "peak", "total", "g", *self.by_score, "dq", "dk", "dv", *(n for n, _ in self.sections()), *after]

    def _chunk(self, keys: int) -> str:
        """A chunk of keys against all queries. Parameters: pointers by `_names`, and whether dq holds a sum already."""
        name, new = self.parts.fresh(("chunk", keys), "chunk")
        if not new:
            return name
        spec, whole, parts = self.spec, self.whole, self.parts
        b = FunctionBuilder(parts.module, name, [*((n, PTR) for n in self._names()), ("resume", I64)], attributes="nounwind noinline")
        args = b.args
        if spec.powers is None:
            b.call(parts.pack(self.score_panels(keys, spec.d), Operand(spec.k.kind, spec.k.column, spec.k.row)), VOID, args["k"], args["ktp"])
        b.call(parts.pack(self.score_panels(keys, spec.e), Operand(spec.v.kind, spec.v.column, spec.v.row)), VOID, args["v"], args["vtp"])
        b.call(parts.pack(self.query_panels(keys), spec.k), VOID, args["k"], args["kp"])
        dq = Operand(spec.kind, spec.d, 1) if self.partial else whole.dq
        by_row = {"q": spec.q, "out": spec.out, "peak": Operand(spec.kind, 1, 1), "total": Operand(spec.kind, 1, 1), "g": whole.g, "dq": dq}
        by_row |= self.by_score
        segments = split_evenly(spec.m, self.chunks.rows)
        for segment in segments:
            with tile_loop(b, segment, i64(0), i64(segment.first + segment.tiles), "rows") as (tile, row):
                places = args | {n: at_row(b, args[n], row, operand) for n, operand in by_row.items()}
                later = b.cast(b.icmp("sgt", tile, i64(0)), I64, signed=False)
                b.call(self._rows(segment.size, keys, dq), VOID, *(places[n] for n in self._names()), args["resume"], later)
        if self.held:
            for source, width, columns, to, operand in (("dks", self.width[0], spec.d, "dk", whole.dk), ("dvs", self.width[1], spec.e, "dv", whole.dv)):
                with b.loop(0, keys, name="key", at_least_once=True) as key:
                    held = b.gep(args[source], b.mul(key.index, i64(width)), LType(spec.kind))
                    copy_run(b, held, at_row(b, args[to], key.index, operand), columns, spec.kind, operand.kind, self.lanes)
        b.finish()
        return name

    def _rows(self, rows: int, keys: int, dq: Operand) -> str:
        """A block of queries against a chunk of keys. Parameters: as those of `_chunk`, and whether dk and dv hold sums already."""
        name, new = self.parts.fresh(("rows", rows, keys), "rows")
        if not new:
            return name
        spec, whole, parts = self.spec, self.whole, self.parts
        params = [*((n, PTR) for n in self._names()), ("resume", I64), ("later", I64)]
        b = FunctionBuilder(parts.module, name, params, attributes="nounwind noinline")
        args = b.args
        dk, dv = (Operand(spec.kind, w, 1) for w in self.width) if self.held else (whole.dk, whole.dv)
        to_k, to_v = (args["dks"], args["dvs"]) if self.held else (args["dk"], args["dv"])
        queries, total = split_queries(spec, rows), None
        if self.limits:
            factors = [Factor("q", spec.q, spec.d), Factor("k", spec.k, spec.d, of_keys=True), Factor("g", whole.g, spec.e)]
            products: tuple[tuple[str, str], ...] = ()
            if not replaces_scores(spec):  # where a mask replaces scores, their gradients are 0 whatever v and the output are
                factors += [Factor("v", spec.v, spec.e, of_keys=True), Factor("out", spec.out, spec.e)]
                products = ("g", "v"), ("g", "out")
            look = emit_seen(parts, spec, queries, keys, tuple(factors), ("total",), products)
            total = b.call(look, I64, *(args[n] for n in ("mask", "peak", "total", *(x.name for x in factors), "counts")))
            skipped = b.icmp("eq", total, i64(0))
            with b.if_then(skipped):
                self._leave_out(b, "later" if self.several_rows else None, [(to_k, dk, keys, spec.d), (to_v, dv, keys, spec.e)])
                self._leave_out(b, "resume" if self.chunks.several else None, [(args["dq"], dq, rows, spec.d)])
            b.return_if(skipped)
        one = Operand(spec.kind, 1, 1)
        strides = {"q": spec.q, "out": spec.out, "peak": one, "total": one, "g": whole.g, **self.by_score, "dq": dq, "p": self.scores, "ds": self.scores}
        strides |= {f"next_{n}": operand for n, _, operand in self.sources if self.single}

        def part(size: int, first: Val, *seen: Val) -> None:
            at = {n: displaced(b, args[n], b.mul(first, i64(x.row)), LType(x.kind)) for n, x in strides.items()}
            b.call(self._part(size, keys, dq), VOID, *((args | at)[n] for n in self._names()), args["resume"], *seen)

        if total is None:
            part(rows, i64(0))
        else:
            each_part(b, queries, rows, keys, args["counts"], total, part)
        q_panels, g_panels = self.key_panels(rows, spec.d), self.key_panels(rows, spec.e)
        b.call(parts.pack(g_panels, whole.g), VOID, args["g"], args["gp"])
        b.call(parts.pack(q_panels, spec.q), VOID, args["q"], args["qp"])
        more = [args[n] for n, there in (("later", self.several_rows), ("counts", self.limits)) if there]
        starts = tuple(s.start + k * s.size for s in queries for k in range(s.tiles))
        below = Seen("rows", gcd(rows, *starts), starts) if self.limits else None
        b.call(parts.product(keys, g_panels, self.turned, dv, self.several_rows, below), VOID, args["p"], args["gp"], to_v, *more)
        b.call(parts.product(keys, q_panels, self.turned, dk, self.several_rows, below), VOID, args["ds"], args["qp"], to_k, *more)
        b.finish()
        return name

    def _part(self, rows: int, keys: int, dq: Operand) -> str:
        """Some queries of a block: their probabilities, the gradients of these, and dq. Parameters: pointers by `_names`, whether dq holds a sum already,
        and how many keys they look at, if a mask limits that."""
        name, new = self.parts.fresh(("part", rows, keys), "part")
        if not new:
            return name
        spec, whole, parts = self.spec, self.whole, self.parts
        params = [*((n, PTR) for n in self._names()), ("resume", I64), *([("seen", I64)] if self.limits else [])]
        b = FunctionBuilder(parts.module, name, params, attributes="nounwind noinline")
        args, seen = b.args, [b.args["seen"]] if self.limits else []
        some, deep = first_keys(keys, self.lanes) if self.limits else (None, None)
        if spec.powers is None:
            b.call(parts.product(rows, self.score_panels(keys, spec.d), spec.q, self.scores, False, some), VOID, args["q"], args["ktp"], args["p"], *seen)
        b.call(parts.product(rows, self.score_panels(keys, spec.e), whole.g, self.scores, False, some), VOID, args["g"], args["vtp"], args["ds"], *seen)

        def each_row(row: Row) -> None:
            with b.loop(0, rows, name="row", at_least_once=True) as loop:
                for n, _, operand in self.sources if self.single else []:
                    ask_for_row(b, args[f"next_{n}"], loop.index, operand, spec.d if n in "qk" else spec.e)
                self._row(b, loop.index, row)

        over_seen(b, Row(keys, self.lanes), seen, each_row)
        resume = [args["resume"]] if self.chunks.several else []
        product = parts.product(rows, self.query_panels(keys), self.scores, dq, self.chunks.several, deep)
        b.call(product, VOID, args["ds"], args["kp"], args["dq"], *resume, *seen)
        b.finish()
        return name

    def _leave_out(self, b: FunctionBuilder, flag: str | None, targets: list[tuple[Val, Operand, int, int]]) -> None:
        """Adds nothing to (pointer, operand, rows, columns): they become 0 unless `flag` says that they hold sums already."""
        fresh = const(1, I1) if flag is None else b.icmp("eq", b.args[flag], i64(0))
        with b.if_then(fresh):
            for pointer, operand, rows, columns in targets:
                with b.loop(0, rows, name="clear", at_least_once=True) as loop:
                    clear_run(b, at_row(b, pointer, loop.index, operand), columns, operand.kind, self.lanes)

    def _row(self, b: FunctionBuilder, index: Val, row: Row) -> None:
        """Turns a row of products into probabilities, and their gradients into those of the products."""
        spec, kind, vector = self.spec, LType(self.spec.kind), LType(self.spec.kind, self.lanes)
        p, ds = (at_row(b, b.args[n], index, self.scores) for n in ("p", "ds"))
        by_score = {n: at_row(b, b.args[n], index, operand) for n, operand in self.by_score.items()}
        keep = by_score.get("keep")
        peak, total = (b.load(b.gep(b.args[n], index, kind), kind) for n in ("peak", "total"))
        down = b.splat(b.neg(peak), self.lanes)
        share = b.splat(b.div(b.const(1.0, total), total), self.lanes)
        centre = b.splat(self._dot(b, index), self.lanes)
        scale = b.const(spec.scale, vector)

        def step(at: Val, tail: Val | None, so_far: Val) -> Val:
            place, gradient = b.gep(p, at, kind), b.gep(ds, at, kind)
            power, kept = self._power(b, by_score, place, at, tail, down)
            probability = b.mul(power, share)
            used, moved = probability, b.load(gradient, vector)
            if keep is not None and spec.keep is not None:
                place_of_keep = at_column(b, keep, at, spec.keep)
                used, moved = (kept_weights(b, spec, y, place_of_keep, tail, spec.dropout) for y in (used, moved))
            b.store(used, place)
            moved = b.mul(b.mul(probability, scale), b.sub(moved, centre))
            b.store(moved if kept is None else b.select(kept, moved, zeros(vector)), gradient)
            return so_far

        if row.seen is not None:
            clear_after(b, p, row, spec.kind)
            clear_after(b, ds, row, spec.kind)
        over_row(b, row, [zeros(vector)] * (1 if row.seen is None else 2), step, lambda b, x, y: x)

    def _power(self, b: FunctionBuilder, by_score: dict[str, Val], place: Val, at: Val, tail: Val | None, down: Val) -> tuple[Val, Val | None]:
        """exp(score - peak) of a vector whose products are at `place`, and where a mask keeps the scores (None: everywhere)."""
        spec = self.spec
        mask = None if spec.mask is None else at_column(b, by_score["mask"], at, spec.mask)
        if spec.powers is not None:
            power = load_strided(b, at_column(b, by_score["powers"], at, spec.powers), spec.powers.column, spec.kind, spec.kind, self.lanes, tail)
            return power, None if mask is None or spec.mask is None or spec.mask.kind != "i1" else load_mask(b, spec.mask, mask, self.lanes, tail)
        x = b.load(place, down.type)
        if spec.folds_scale:
            return exp(b, b.add(b.mul(x, b.const(spec.scale, x)), down)), None
        x, kept = masked_score(b, spec, x, mask, tail)
        return exp(b, b.add(x, down)), kept

    def _dot(self, b: FunctionBuilder, index: Val) -> Val:
        """rowsum(g * out)."""
        spec, whole = self.spec, self.whole
        g, out = at_row(b, b.args["g"], index, whole.g), at_row(b, b.args["out"], index, spec.out)

        def step(at: Val, tail: Val | None, so_far: Val) -> Val:
            values = []
            for pointer, operand in ((g, whole.g), (out, spec.out)):
                place = b.gep(pointer, affine(b, [(at, operand.column)]), LType(operand.kind))
                values.append(load_strided(b, place, operand.column, operand.kind, spec.kind, self.lanes, tail))
            if tail is not None:  # a stride of 0 fills all lanes
                values[0] = b.select(tail, values[0], zeros(values[0].type))
            return b.fma(values[0], values[1], so_far)

        (total,) = over_row(b, Row(spec.e, self.lanes), [zeros(LType(spec.kind, self.lanes))], step, lambda b, x, y: b.add(x, y))
        return b.reduce("add", total)


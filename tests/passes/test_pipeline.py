"""The pipeline: records, verification, dumps; and what passes promise as a whole."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from graphcell import dtype as dt
from graphcell.context import config, set_context
from graphcell.errors import ExecutionError, Span, VerificationError
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Builder, Graph, Node, Value, structural_key
from graphcell.ir.op import Array, Op
from graphcell.ir.text import parse, print_graph
from graphcell.ir.types import TensorType
from graphcell.ops.arithmetic import Add, Mul, Neg, StopGradient
from graphcell.ops.control import For
from graphcell.ops.creation import Constant, Full, Literal
from graphcell.passes.eliminate_dead import eliminate_dead
from graphcell.passes.hoist_invariant import hoist_invariant
from graphcell.passes.merge_common import merge_common
from graphcell.passes.pipeline import PIPELINE, run_pipeline
from graphcell.passes.rewrite import Rewriter, Rules, rewrite
from graphcell.passes.simplify import simplify

T = TensorType(dt.float32, (4,))
TEXT = """graph @net(%x: f32[4], %w: f32[4]) {
  %one = full[value=1.0, shape=(4,), dtype=f32]
  %a = mul %x, %one
  %b = exp %a
  %c = exp %x
  %d = mul %b, %c
  %unused = neg %d
  return %d, %w
}"""


def test_records() -> None:
    graph = parse(TEXT)
    after, records = run_pipeline(graph)
    assert [r.name for r in records] == [name for name, _ in PIPELINE]
    assert print_graph(after) == (
        "graph @net(%x: f32[4], %w: f32[4]) -> (f32[4], f32[4]) {\n  %b = exp %x : f32[4]\n  %d = mul %b, %b : f32[4]\n  return %d, %w\n}\n"
    )
    assert records[0].nodes_before == 6 and records[-1].nodes_after == after.count_nodes() == 2
    for r, following in itertools.pairwise(records):
        assert r.nodes_after == following.nodes_before
        assert r.changed or r.nodes_before == r.nodes_after
    assert all(r.seconds >= 0 for r in records)
    assert [r.changed for r in records][:3] == [False, True, True]


def test_a_graph_that_cannot_be_improved_is_kept() -> None:
    graph = run_pipeline(parse(TEXT))[0]
    again, records = run_pipeline(graph)
    assert again is graph and not any(r.changed for r in records)


def breaking(graph: Graph) -> Graph:
    """A pass that is wrong: it gives a result another type."""
    node = graph.nodes[-1]
    wrong = Node(node.op, node.operands, (Value(TensorType(dt.int8, (9,))),), Span("net.py", 3, 0, 3, 1))
    return Graph(graph.name, graph.inputs, [*graph.nodes, wrong], graph.outputs)


def test_a_wrong_pass_is_named() -> None:
    with pytest.raises(VerificationError, match="after the pass breaking: graph net, node 6") as caught:
        run_pipeline(parse(TEXT), passes=(("breaking", breaking),))
    assert caught.value.span is not None and caught.value.span.file == "net.py"
    config.verify = False
    run_pipeline(parse(TEXT), passes=(("breaking", breaking),))


def test_a_broken_graph_is_refused_before_the_first_pass() -> None:
    with pytest.raises(VerificationError, match="graph net, node 6"):
        run_pipeline(breaking(parse(TEXT)))


# -- dumps ---------------------------------------------------------------------------------------------------
def dumped(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def test_dumps(tmp_path: Path) -> None:
    set_context(save_graphs=True, save_graphs_path=str(tmp_path / "ir"))
    after, records = run_pipeline(parse(TEXT), "my net/ü")
    names = dumped(tmp_path / "ir")
    run = names[0][-7:-3]
    expected = [f"00_input_my_net_ü_{run}.ir"]
    expected += [f"{k:02}_{r.name}_my_net_ü_{run}.ir" for k, r in enumerate(records, 1) if r.changed]
    assert names == expected
    assert len(expected) < len(records) + 1  # what changed nothing is not dumped
    last = (tmp_path / "ir" / names[-1]).read_text(encoding="utf-8")
    assert structural_key(parse(last)) == structural_key(after)
    first = (tmp_path / "ir" / names[0]).read_text(encoding="utf-8")
    assert structural_key(parse(first)) == structural_key(parse(TEXT))


def test_dumps_do_not_overwrite_each_other(tmp_path: Path) -> None:
    set_context(save_graphs=1, save_graphs_path=str(tmp_path))
    for _ in range(3):
        run_pipeline(parse(TEXT))
    inputs = [n for n in dumped(tmp_path) if n.startswith("00_input_net_")]
    assert len(inputs) == 3
    number = int(re.findall(r"_(\d{4})\.ir", inputs[-1])[0])
    taken = tmp_path / f"00_input_net_{number + 1:04}.ir"
    taken.write_text("of another process")
    run_pipeline(parse(TEXT))
    assert taken.read_text() == "of another process"
    assert len([n for n in dumped(tmp_path) if n.startswith("00_input_net_")]) == 5


def test_large_constants_are_left_out_of_dumps(tmp_path: Path) -> None:
    set_context(save_graphs=1, save_graphs_path=str(tmp_path))
    b = Builder("big")
    x = b.input(TensorType(dt.float32, (5000,)))
    (c,) = b.append(Constant(Literal(np.arange(5000, dtype=np.float32)), dt.float32), ())
    run_pipeline(b.finish(b.append(Add(), (x, c))))
    assert (tmp_path / dumped(tmp_path)[0]).stat().st_size < 1000


@pytest.mark.parametrize(("level", "files"), [("0", False), ("1", True), ("3", True), ("yes", True)])
def test_the_environment_goes_before_the_context(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str, files: bool
) -> None:
    set_context(save_graphs=2, save_graphs_path=str(tmp_path / "context"))
    monkeypatch.setenv("MS_DEV_SAVE_GRAPHS", level)
    monkeypatch.setenv("MS_DEV_SAVE_GRAPHS_PATH", str(tmp_path / "environment"))
    run_pipeline(parse(TEXT))
    assert (tmp_path / "environment").is_dir() == files
    assert dumped(tmp_path / "context") == []


def test_a_path_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("MS_DEV_SAVE_GRAPHS", "1")
    monkeypatch.setenv("MS_DEV_SAVE_GRAPHS_PATH", str(tmp_path / "file"))
    with pytest.raises(ExecutionError, match="cannot write the graph to"):
        run_pipeline(parse(TEXT))


# -- effects, spans, size ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Note(Op):
    """Has an effect and no result."""

    text: str
    name = "test_note"
    has_effect = True
    notes = []  # type: ignore[var-annotated]

    def infer(self, *operands: TensorType) -> tuple[TensorType, ...]:
        return ()

    def eval(self, *arrays: Array) -> tuple[Array, ...]:
        self.notes.append((self.text, *(float(a.reshape(-1)[0]) for a in arrays)))
        return ()


def notes_of(graph: Graph, inputs: Sequence[Array]) -> list[tuple[str, float]]:
    Note.notes.clear()
    evaluate_graph(graph, inputs)
    return list(Note.notes)


def test_effects_are_kept_in_order() -> None:
    graph = parse(
        """graph @f(%p: i1[], %x: f32[4]) {
          test_note[text="a"] %x
          %y = neg %x
          test_note[text="b"] %y
          test_note[text="b"] %y
          %r = if %p, %x {
            then_graph = @t(%x: f32[4]) { test_note[text="then"] %x  return %x }
            else_graph = @e(%x: f32[4]) { test_note[text="else"] %x  return %x }
          }
          %k, %unused = for[trip_count=2, carried=2, scanned=0, reverse=False] %y, %x {
            body = @l(%i: i64[], %x: f32[4], %y: f32[4]) {
              %n = neg %x
              test_note[text="loop"] %n
              %m = exp %y
              return %n, %m
            }
          }
          test_note[text="end"] %k
          return %x
        }"""
    )
    after, _ = run_pipeline(graph)
    for condition in (True, False):
        inputs = [np.asarray(condition), np.arange(1, 5, dtype=np.float32)]
        expected = ["a", "b", "b", "then" if condition else "else", "loop", "loop", "end"]
        assert [text for text, *_ in notes_of(after, inputs)] == expected
        assert notes_of(after, inputs) == notes_of(graph, inputs)
    assert "exp" not in print_graph(after)


def test_an_effect_alone_keeps_its_loop_and_branch() -> None:
    graph = parse(
        """graph @f(%p: i1[], %x: f32[4]) {
          %r = if %p, %x { then_graph = @t(%x: f32[4]) { test_note[text="t"] return %x } else_graph = @e(%x: f32[4]) { return %x } }
          return
        }"""
    )
    after, _ = run_pipeline(graph)
    assert notes_of(after, [np.asarray(True), np.zeros(4, np.float32)]) == [("t",)]
    assert notes_of(after, [np.asarray(False), np.zeros(4, np.float32)]) == []


def test_an_effect_keeps_what_its_loop_carries() -> None:
    graph = parse(
        """graph @f(%n: i32[], %x: f32[4]) {
          %a = for[trip_count=3, carried=1, scanned=0] %x {
            body = @l(%i: i64[], %x: f32[4]) { %y = add %x, %x test_note[text="for"] %x return %y }
          }
          %b, %c = while[carried=2] %n, %x {
            cond_graph = @c(%n: i32[], %x: f32[4]) {
              %k = full[value=2, shape=(), dtype=i32]
              %r = less %n, %k
              return %r
            }
            body_graph = @b(%n: i32[], %x: f32[4]) {
              %one = full[value=1, shape=(), dtype=i32]
              %m = add %n, %one
              %y = mul %x, %x
              test_note[text="while"] %y
              return %m, %y
            }
          }
          return
        }"""
    )
    after, _ = run_pipeline(graph)
    inputs = [np.asarray(0, np.int32), np.full(4, 3.0, np.float32)]
    expected = [("for", 3.0), ("for", 6.0), ("for", 12.0), ("while", 9.0), ("while", 81.0)]
    assert notes_of(graph, inputs) == notes_of(after, inputs) == expected


def test_spans_stay_and_new_nodes_get_one() -> None:
    first, second = Span("net.py", 1, 0, 1, 5), Span("net.py", 2, 0, 2, 5)
    b = Builder("f")
    x = b.input(T)
    (a,) = b.append(Neg(), (x,), first)
    (s,) = b.append(StopGradient(), (a,), first)
    (c,) = b.append(Add(), (x, s), second)
    (d,) = b.append(Mul(), (c, x), first.as_gradient())
    after, _ = run_pipeline(b.finish([d]))
    assert [(n.op.name, n.span) for n in after.nodes] == [("sub", second), ("mul", first.as_gradient())]


def test_shared_regions_are_rewritten_once() -> None:
    inner = parse(
        "graph @g(%x: f32[4]) { %o = full[value=1.0, shape=(4,), dtype=f32] %y = mul %x, %o %z = exp %y return %z }"
    )
    visits = []

    def count(r: Rewriter, node: Node) -> None:
        visits.append(node)

    body = Graph("body", [Value(TensorType(dt.int64, ())), *inner.inputs], inner.nodes, inner.outputs)
    b = Builder("f")
    v = b.input(T)
    for _ in range(10):
        (v,) = b.append(For(body, 3, 1, 0, False), (v,))
    rewrite(b.finish([v]), Rules((Op, count)))
    assert len(visits) == 10 + 3


@pytest.mark.slow
@pytest.mark.parametrize("run", [simplify, merge_common, eliminate_dead, hoist_invariant])
def test_work_is_linear(run: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted in calls of the rules and the hash function, not in seconds."""
    import gc
    import sys

    def calls(nodes: int) -> int:
        graph = chain(nodes)
        count = 0

        def profile(frame: object, event: str, arg: object) -> None:
            nonlocal count
            count += event == "call"

        gc.collect()
        gc.disable()  # its callbacks would be counted
        sys.setprofile(profile)
        try:
            run(graph)  # type: ignore[operator]
        finally:
            sys.setprofile(None)
            gc.enable()
        return count

    chain(10)
    small, large = calls(200), calls(2000)
    assert large < 11 * small


def chain(nodes: int) -> Graph:
    """A long graph with a loop in it."""
    b = Builder("chain")
    v, w = b.input(T), b.input(T)
    while len(b.nodes) < nodes:
        (one,) = b.append(Full(1.0, (4,), dt.float32), ())
        (a,) = b.append(Mul(), (v, one))
        (n,) = b.append(Neg(), (a,))
        (m,) = b.append(Neg(), (a,))
        (s,) = b.append(Add(), (n, w))
        (v,) = b.append(Mul(), (s, m))
    return b.finish([v])

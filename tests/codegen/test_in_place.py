"""What is written over what is no longer needed: carried values of loops, updates of Parameters, scatters and slices."""

from __future__ import annotations

import numpy as np
import pytest

from graphcell import Parameter, jit, ops
from graphcell.errors import GraphcellError
from graphcell.ir.evaluate import evaluate_graph
from graphcell.ir.graph import Graph
from graphcell.ir.op import Array
from graphcell.ir.text import parse
from graphcell.runtime.executable import Executable, compile_graph
from graphcell.tensor import Tensor
from tests.passes.cases import random_array, same_bits
from tests.passes.random_graphs import random_graph

Updates = tuple[tuple[int, int], ...]


def check(graph: Graph, inputs: list[Array], updates: Updates = ()) -> Executable:
    """Native results, those written into inputs too, have the bits of `eval`; other inputs keep theirs."""
    executable = compile_graph(graph, updates)
    tensors = [Tensor(x.copy()) for x in inputs]
    for _ in range(2):
        wanted = evaluate_graph(graph, [t.asnumpy().copy() for t in tensors])
        before = [t.asnumpy().copy() for t in tensors]
        results = iter(executable(tensors))
        into = dict(updates)
        for k, want in enumerate(wanted):
            got = tensors[into[k]] if k in into else next(results)
            assert same_bits(want, got.asnumpy())
        for k, old in enumerate(before):
            assert k in into.values() or same_bits(old, tensors[k].asnumpy())
    return executable


def numbers(graph: Graph) -> list[Array]:
    rng = np.random.default_rng(0)
    return [random_array(rng, v.type, exact=True) for v in graph.inputs]


def copies(executable: Executable) -> int:
    text = executable.compilation.program.text
    return text.count("call void @llvm.memcpy")


def test_a_loop_writes_its_state_in_place() -> None:
    graph = parse("""graph @f(%x: f32[40], %w: f32[40]) {
      %y = for[trip_count=5, carried=1, scanned=0, reverse=False] %x, %w {
        body = @body(%i: i64[], %c: f32[40], %v: f32[40]) {
          %m = mul %c, %v
          %n = sub %m, %v
          return %n
        }
      }
      return %y
    }""")
    executable = check(graph, numbers(graph))
    assert copies(executable) == 1  # of the first state


def test_a_state_made_before_the_loop_is_not_copied() -> None:
    graph = parse("""graph @f(%x: f32[40]) {
      %s = add %x, %x
      %y = for[trip_count=5, carried=1, scanned=0, reverse=False] %s {
        body = @body(%i: i64[], %c: f32[40]) {
          %n = sub %c, %c
          %m = maximum %n, %c
          return %m
        }
      }
      return %y
    }""")
    assert copies(check(graph, numbers(graph))) == 0


SWAPS = """graph @f(%x: f32[40], %y: f32[40], %z: f32[8, 5]) {{
  %a, %b, %c = for[trip_count=3, carried=3, scanned=0, reverse=False] %x, %y, %z {{
    body = @body(%i: i64[], %p: f32[40], %q: f32[40], %r: f32[8, 5]) {{
      {body}
    }}
  }}
  return %a, %b, %c
}}"""


@pytest.mark.parametrize("body", [
    "return %q, %p, %r",
    "%s = add %p, %q\n%t = sub %p, %q\nreturn %s, %t, %r",
    "%s = add %p, %q\n%t = sub %s, %q\nreturn %t, %s, %r",
    "%s = abs %q\n%t = mul %s, %p\nreturn %s, %t, %r",
    "%s = slice[start=(39,), size=(40,), step=(-1,)] %p\n%t = add %s, %q\nreturn %t, %p, %r",
    "%s = reshape[shape=(8, 5)] %p\n%t = add %s, %r\n%u = reshape[shape=(40,)] %r\nreturn %u, %q, %t",
    "%s = reduce_sum[axis=(0,), keep_dims=True] %r\n%t = broadcast_to[shape=(8, 5)] %s\n"
    "%u = sub %r, %t\n%v = minimum %u, %r\n%p2 = maximum %p, %q\nreturn %p2, %q, %v",
    "%i2 = cast[dtype=i32] %p\n%j = slice[start=(3,), size=(4,), step=(1,)] %i2\n%g = slice[start=(1,), size=(4,), step=(1,)] %q\n"
    "%s = scatter[axes=(0,), kind='update', unique=False] %p, %j, %g\nreturn %s, %p, %r",
    "%g = slice[start=(1,), size=(4,), step=(1,)] %q\n%s = update_slice[start=(7,), step=(2,)] %q, %g\n"
    "%t = update_slice[start=(9,), step=(-3,)] %p, %g\nreturn %t, %s, %r",
])
def test_loops_that_exchange_what_they_carry(body: str) -> None:
    graph = parse(SWAPS.format(body=body))
    check(graph, numbers(graph))


def test_updates_that_exchange_inputs() -> None:
    for body in ("%c = add %a, %b\n%d = sub %a, %b\nreturn %d, %c", "return %b, %a", "%c = add %a, %b\n%d = sub %c, %a\nreturn %d, %c"):
        graph = parse(f"graph @f(%a: f32[50], %b: f32[50]) {{\n{body}\n}}")
        check(graph, numbers(graph), ((0, 0), (1, 1)))


def test_scatters_into_a_parameter_touch_only_what_they_write() -> None:
    graph = parse("""graph @f(%w: f32[100, 8], %i: i32[4], %g: f32[4, 8]) {
      %r = scatter[axes=(0,), kind='add', unique=False] %w, %i, %g
      return %r
    }""")
    executable = check(graph, numbers(graph), ((0, 0),))
    assert len(executable.compilation.program.steps) == 1 and copies(executable) == 0


def test_steps_on_a_table_touch_only_what_they_change() -> None:
    graph = parse("""graph @f(%w: f32[100, 8], %i: i32[4], %g: f32[4, 8], %r: f32[]) {
      %z = full[value=0.0, shape=(100, 8), dtype=f32]
      %s = scatter[axes=(0,), kind='add', unique=False] %z, %i, %g
      %b = broadcast_to[shape=(100, 8)] %r
      %m = mul %b, %s
      %v = sub %w, %m
      return %v
    }""")
    executable = check(graph, numbers(graph), ((0, 0),))
    assert [s.title.rstrip("0123456789") for s in executable.compilation.program.steps] == ["loops", "scatter_step"]  # the rate's negative
    assert copies(executable) == 0


def test_what_a_scatter_into_a_parameter_takes_over_is_written_there_at_once() -> None:
    """A velocity that shrinks before gradients are added; where the old one is read again later, it is not."""
    shrunk = "%f = full[value=0.5, shape=(100, 8), dtype=f32]\n%m = mul %v, %f"
    scatters = "%r = scatter[axes=(0,), kind='add', unique=False] %m, %i, %g\n%s = scatter[axes=(0,), kind='max', unique=False] %r, %j, %g"
    for later, steps in (("return %s", ["loops", "scatter", "scatter"]), ("%t = add %s, %v\nreturn %t", ["loops", "scatter", "scatter", "loops"])):
        graph = parse(f"graph @f(%v: f32[100, 8], %i: i32[4], %j: i32[4], %g: f32[4, 8]) {{\n{shrunk}\n{scatters}\n{later}\n}}")
        executable = check(graph, numbers(graph), ((0, 0),))
        assert [s.title.rstrip("0123456789") for s in executable.compilation.program.steps] == steps
        assert copies(executable) == 0


@pytest.mark.parametrize("raises", ["index", "matrix"])
def test_a_call_that_raises_leaves_a_parameter_as_it_was(raises: str) -> None:
    """Though what is scattered into it was shrunk before."""
    p = Parameter(Tensor(np.ones((10, 4), np.float32)), name="p")

    @jit
    def f(i: Tensor, a: Tensor, g: Tensor) -> Tensor:
        m = p * 0.5
        c = ops.cholesky(a)
        m[i] = g + c[0, 0]
        ops.assign(p, m)
        return c.sum()

    good, bad = Tensor(np.eye(3, dtype=np.float32)), Tensor(-np.eye(3, dtype=np.float32))
    g = Tensor(np.full((1, 4), 7, np.float32))
    f(Tensor([1]), good, g)
    before = p.asnumpy().copy()
    with pytest.raises(GraphcellError):
        f(Tensor([100 if raises == "index" else 1]), bad if raises == "matrix" else good, g)
    np.testing.assert_array_equal(p.asnumpy(), before)


@pytest.mark.parametrize("raises", ["index", "matrix"])
def test_a_loop_that_raises_in_a_later_turn_leaves_a_parameter_as_it_was(raises: str) -> None:
    """Which is assigned after the loop."""
    p = Parameter(Tensor(np.ones((10, 4), np.float32)), name="p")

    @jit
    def f(step: Tensor, a: Tensor, table: Tensor) -> Tensor:
        v, k = p * 2, Tensor(0)
        while k < 5:
            v = v + ops.gather(table, step * k, 0) + ops.cholesky(a)[0, 0]
            a = a - 0.3
            k = k + 1
        ops.assign(p, v)
        return k

    table = Tensor(np.ones((10, 4), np.float32))
    f(Tensor([1]), Tensor([[4.0]]), table)
    before = p.asnumpy().copy()
    with pytest.raises(GraphcellError):
        f(Tensor([4 if raises == "index" else 1]), Tensor([[1.0 if raises == "matrix" else 4.0]]), table)
    np.testing.assert_array_equal(p.asnumpy(), before)


def test_scatters_do_not_write_over_what_is_read_later_or_at_once() -> None:
    for body in (
        "%r = scatter[axes=(0,), kind='add', unique=False] %x, %i, %x\n%s = add %r, %x\nreturn %s",
        "%y = add %x, %x\n%r = scatter[axes=(0,), kind='add', unique=False] %y, %i, %y\nreturn %r",
        "%y = add %x, %x\n%r = scatter[axes=(0,), kind='add', unique=False] %y, %i, %x\n%s = mul %r, %y\nreturn %s",
        "%y = add %x, %x\n%r = scatter[axes=(0,), kind='add', unique=False] %y, %i, %x\n"
        "%s = scatter[axes=(0,), kind='max', unique=False] %r, %i, %x\nreturn %s",
    ):
        graph = parse(f"graph @f(%x: f32[6, 4], %i: i32[6]) {{\n{body}\n}}")
        check(graph, numbers(graph))
        check(graph, numbers(graph), ((0, 0),))


def test_the_condition_of_a_while_loop_sees_the_new_state() -> None:
    graph = parse("""graph @f(%x: f32[], %y: f32[9]) {
      %a, %b = while[carried=2] %x, %y {
        cond_graph = @cond(%p: f32[], %q: f32[9]) {
          %t = full[value=20.0, shape=(), dtype=f32]
          %m = reduce_max[axis=(0,), keep_dims=False] %q
          %s = add %m, %p
          %l = less %s, %t
          return %l
        }
        body_graph = @body(%p: f32[], %q: f32[9]) {
          %one = full[value=1.0, shape=(), dtype=f32]
          %n = add %p, %one
          %w = broadcast_to[shape=(9,)] %p
          %r = add %q, %w
          return %n, %r
        }
      }
      return %a, %b
    }""")
    check(graph, [np.float32(1), np.arange(9, dtype=np.float32)])  # type: ignore[list-item]


@pytest.mark.parametrize("seed", range(400, 425))
def test_random_graphs_with_updates(seed: int) -> None:
    graph, inputs = random_graph(seed, exact=True)
    rng = np.random.default_rng(seed)
    updates: dict[int, int] = {}
    for k, v in enumerate(graph.outputs):
        fitting = [j for j, i in enumerate(graph.inputs) if i.type == v.type and j not in updates.values()]
        if fitting:
            updates[k] = int(rng.choice(fitting))
    executable = compile_graph(graph, tuple(updates.items()))
    tensors = [Tensor(x.copy()) for x in inputs]
    results = iter(executable(tensors))
    for k, want in enumerate(evaluate_graph(graph, inputs)):
        assert same_bits(want, (tensors[updates[k]] if k in updates else next(results)).asnumpy())


@pytest.mark.parametrize("shape", ["", "1", "1, 1", "3", "5, 7", "33, 1", "2000"])
def test_a_kernel_reads_the_old_value_for_one_result_before_it_writes_another_over_it(shape: str) -> None:
    """The result that is written over `c` is not made of it, the other one is."""
    type = f"f32[{shape}]"
    graph = parse(f"""graph @f(%x: {type}, %c: {type}) {{
      %d = add %x, %x
      %n = neg %d
      %old = add %c, %d
      return %n, %old
    }}""")
    check(graph, numbers(graph), ((0, 1),))


def test_a_loop_gives_what_it_carried_beside_what_it_carries_on() -> None:
    graph = parse("""graph @f(%x: f32[12], %c: f32[]) {
      %last, %all = for[trip_count=12, carried=1, scanned=1, reverse=True] %c, %x {
        body = @body(%i: i64[], %c: f32[], %row: f32[]) {
          %d = add %row, %row
          %n = neg %d
          %old = add %c, %d
          return %n, %old
        }
      }
      return %last, %all
    }""")
    check(graph, numbers(graph))


@pytest.mark.parametrize("shape", [(64, 2), (20, 2), (64, 3), (64, 4)])
def test_parameters_that_are_written_by_turns(shape: tuple[int, int]) -> None:
    """The loop nest is unrolled, so it has several stores to the Parameter and to what is returned."""
    p = Parameter(Tensor(np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)))

    @jit
    def f() -> Tensor:
        y = p + p
        ops.assign(p, y + y)
        return ops.relu(y.T)

    before = p.asnumpy().copy()
    assert (f().asnumpy() == 2 * before.T).all() and (p.asnumpy() == 4 * before).all()

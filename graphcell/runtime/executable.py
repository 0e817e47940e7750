"""A compiled graph: binds Tensors to addresses and runs everything in one native call.

Enters: an optimised or raw Graph, and which outputs are written back into which inputs. Leaves: an `Executable`; calling it with Tensors
gives Tensors. Safe to call from several threads. A host call that raises ends the run with that exception.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from graphcell import buffer
from graphcell.buffer import Writers
from graphcell.codegen.program import PROFILE, Step
from graphcell.context import config
from graphcell.errors import ExecutionError
from graphcell.ir.graph import Graph
from graphcell.locks import whole
from graphcell.ops.control import If, While
from graphcell.runtime.compilation import Compilation, compile_program
from graphcell.runtime.loader import Library
from graphcell.runtime.workspaces import Threads, Workspaces, run_host_call
from graphcell.tensor import StorageEpoch, Tensor


class Executable:
    """A graph as native code.

    Attributes:
        updates: (output position, input position) of outputs written into the buffers of inputs.
        updated_inputs: the positions of these inputs, each with whether its old value is read.
        branches: whether how long a run takes may depend on values.
        compilation: graphs, passes, kernels and times, for people who look inside.
    """

    def __init__(self, name: str, compilation: Compilation, updates: tuple[tuple[int, int], ...], library: Library):
        self.name, self.compilation, self.updates = name, compilation, updates
        self.library = library
        self.constants = [buffer.copy(a) for a in compilation.program.constants]
        self.entry = library.address("run")
        updated = dict(updates)
        graph = compilation.graph
        self.output_types = tuple(v.type for k, v in enumerate(graph.outputs) if k not in updated)
        used = {v for node in graph.nodes for v in node.operands} | set(graph.outputs)
        self.updated_inputs = tuple((k, graph.inputs[k] in used) for k in sorted(set(updated.values())))
        self.branches = _branches(graph)
        self._spaces = Workspaces(self)

    def __call__(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Runs on Tensors that have the types of the graph's inputs; returns the outputs that are not written back.

        Raises:
            MemoryError: the temporaries or outputs do not fit into memory.
        """
        if not self.updates:
            return self._run(inputs)
        with Writers.alone():
            return self._run(inputs)

    def _run(self, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        if config.runtime_num_threads is not Threads.applied:
            Threads.apply()
        space = self._spaces.pop()
        try:
            addresses = [t.address() for t in inputs]
            for k, keep in self.updated_inputs:
                addresses[k] = inputs[k].own_buffer(keep)
            space.set_inputs(0, addresses)
            self._spaces.prepare(space, inputs, 0)
            return self._spaces.run(space)
        finally:
            self._spaces.push(space)

    @property
    def arena_bytes(self) -> int:
        """Bytes of all temporaries."""
        return self.compilation.program.arena_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes of what is computed once from frozen inputs."""
        kept = self.compilation.program.kept
        return 0 if kept is None else kept.nbytes

    def profile(self) -> list[tuple[Step, int]]:
        """The cycles spent in each step so far, most first; only for programs compiled with GRAPHCELL_PROFILE=1.

        Raises:
            RuntimeError: for any other.
        """
        program = self.compilation.program
        if not program.profiled:
            raise ExecutionError(f"{self.name} was compiled without counters", hint="set GRAPHCELL_PROFILE=1 before compiling")
        counters = (ctypes.c_int64 * len(program.steps)).from_address(self.library.address(PROFILE))
        return sorted(zip(program.steps, counters, strict=True), key=lambda row: -row[1])

    def kernels(self) -> str:
        """The steps of the program, each with its kernel, and whether and how threads divide it."""
        steps = self.compilation.listing.program.steps
        ways = [f" {s.way}" if s.way else " for all threads" if s.shared else "" for s in steps]
        return "\n".join(f"// {s.title}, {s.blocks} blocks{way}\n{s.kernel}" for s, way in zip(steps, ways, strict=True))

    def llvm(self) -> str:
        """The LLVM assembly as optimised."""
        with whole:
            from graphcell.codegen.llvm.target import optimized_text

        return optimized_text(self.compilation.listing.program.text, self.compilation.target)

    def asm(self) -> str:
        """The machine code as assembly."""
        with whole:
            from graphcell.codegen.llvm.target import assembly

        return assembly(self.compilation.listing.program.text, self.compilation.target)


def _branches(graph: Graph) -> bool:
    """True if a branch or an unbounded loop stands somewhere in the graph."""
    return any(isinstance(n.op, (If, While)) or any(map(_branches, n.op.regions)) for n in graph.nodes if n.op.regions)


def compile_graph(
    graph: Graph, updates: tuple[tuple[int, int], ...] = (), name: str = "", frozen: Sequence[int] = (), keeps_denormals: bool = False
) -> Executable:
    """Compiles `graph` for this machine, or loads its code from the cache.

    Args:
        updates: (output position, input position) pairs: those outputs are written into the buffers of those inputs.
        frozen: positions of inputs that are the same Tensors at each call and seldom change: what depends on them alone is kept.
        keeps_denormals: numbers too small for all their digits stay what they are, as in numpy; else x86 takes them for zero.
    """
    compilation, library = compile_program(graph, updates, name or graph.name, tuple(frozen), keeps_denormals)
    return Executable(compilation.name, compilation, updates, library)


__all__ = ["Compilation", "Executable", "StorageEpoch", "compile_graph", "run_host_call"]

"""What comes of lowering: the LLVM text of a program and what the runtime must know to run it.

Plain data. A process that finds a program on disk needs this file and nothing else of the code generator.
"""

from __future__ import annotations

from dataclasses import field

from graphcell.ir.op import Array, Op
from graphcell.ir.types import TensorType
from graphcell.records import dataclass

PROFILE = "profile"
"""Name of the global that holds the cycles spent in each step, in programs lowered with GRAPHCELL_PROFILE=1."""
ASKING = -(1 << 62)
"""Added to the number of blocks if a kernel asks for them (runtime/threads.py)."""


@dataclass(frozen=True)
class HostCall:
    """An op that native code runs by calling back into Python; a `rare` one only where native code finds no result."""

    op: Op
    operands: tuple[TensorType, ...]
    results: tuple[TensorType, ...]
    where: str = ""
    rare: bool = False


@dataclass(frozen=True)
class Step:
    """One line of the printable plan of a program."""

    title: str
    kernel: str
    blocks: int
    shared: bool = False
    """Whether threads share its blocks."""
    way: str = ""
    """How a team of threads divides it, see team.py."""


@dataclass(frozen=True)
class Kept:
    """What the function `prepare` of a program computes and `run` reads.

    Attributes:
        nbytes: size of the memory that is kept.
        sources: positions of the inputs that it depends on, in the order of the flags that `prepare` takes (one more says: all is new).
        slot: where the kept memory's address stands in the table of inputs.
        arena_bytes: temporaries of `prepare`.
    """

    nbytes: int
    sources: tuple[int, ...]
    slot: int
    arena_bytes: int


@dataclass
class Program:
    """What `lower` gives. `inputs` of its functions: the graph's inputs, the kept memory, the constants."""

    text: str
    arena_bytes: int
    constants: list[Array]
    host_calls: list[HostCall]
    steps: list[Step] = field(default_factory=list)
    profiled: bool = False
    kept: Kept | None = None

"""Which of MindSpore's names are here, and what is different on purpose: writes docs/compatibility.md.

Enters: graphcell/mindspore_names.txt, a line `module  name  kind  group` for each public name of MindSpore 2.10. Leaves: a page of Markdown on the
standard output. `python -m graphcell.compatibility > docs/compatibility.md` brings the page up to date, and
`python -m graphcell.compatibility --api TABLE > graphcell/mindspore_names.txt` makes the names of a table with the columns module, name, kind
and tier (T0 to T3). Refuses: tables without these columns.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import sys
import textwrap
from collections.abc import Iterable
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

from graphcell.errors import ArgumentValueError
from graphcell.missing import NAMES
from graphcell.records import dataclass

GROUPS = ("essential", "common", "further", "rare")
"""How often programs need a name: the first are what the owner's documents use, the second what tutorials and model collections use; the
third are the rest of what MindSpore runs on a CPU; the last have no CPU kernel there, are deprecated or doubles."""

DIFFERENCES: tuple[tuple[str, str], ...] = (
    (
        "NaN propagates",
        "through every minimum and maximum: `ops.clamp`, `Tensor.max`, `ops.relu`, max pooling, `ops.argmax`. MindSpore loses it in these.",
    ),
    (
        "Sorting puts NaN last",
        "as the largest number, as numpy does; MindSpore's CPU kernel leaves it where it was, and what stands beside it unsorted.",
    ),
    ("Integers divided by zero", "give 0, and so does the remainder. MindSpore gives the largest or the smallest integer."),
    ("Shifts by the width or more", "give 0 (or -1 for a negative number shifted right). MindSpore shifts by the remainder."),
    ("Floats too large for an integer", "become the nearest integer there is, and NaN becomes 0. MindSpore gives the smallest integer."),
    (
        "Indices out of range",
        "raise IndexError in both modes, in the call that they belong to; as data of an operation they raise an error that also is MindSpore's RuntimeError."
        " MindSpore may raise in a later call. Nothing is ever read or written beside a buffer.",
    ),
    (
        "Captured Tensors are inputs",
        "of a compiled function: a new value in a global, a closure or an attribute is seen by the next call. MindSpore keeps the value that it compiled with.",
    ),
    (
        "Gradients of what `has_aux` hands on",
        "`grad` and `value_and_grad` with `has_aux` give the other outputs as they are, and a gradient of what a caller makes of them flows, in both modes,"
        " as in MindSpore's PYNATIVE_MODE. In its GRAPH_MODE they are constants, those that are no dicts.",
    ),
    (
        "Lists and dicts in the arguments",
        "of a compiled function are copied: what it writes into them is seen inside it and in its result. MindSpore copies lists, too, but writes "
        "`d[key] = value` into the dict of the caller.",
    ),
    (
        "Changed attributes are noticed",
        "by a compiled Cell: `net.k = 2`, `set_train()`, `to_float()` and a replaced sub-Cell take effect with the next call. MindSpore keeps its graph.",
    ),
    (
        "Hooks",
        "of all kinds work in graphs as they do eagerly. A hook may remove itself and others, or register others, while hooks run; MindSpore raises "
        "RuntimeError. A backward hook that changes lists or attributes makes the call run as Python. Outputs that are not used have zeros for "
        "gradients, MindSpore's PYNATIVE_MODE gives None; Tensors in nested tuples count one by one. `Tensor.register_hook` inside a graph sees the "
        "uses that follow it; the hooks of an argument belong to gradients that are taken outside of a compiled function.",
    ),
    (
        "`load_state_dict` is whole or nothing:",
        "if a value does not fit, or `strict` refuses names, nothing is copied. MindSpore leaves a part of it.",
    ),
    ("`get_func_graph_proto`", "gives MindSpore's message, of graphcell's operations (graphcell/ir/proto.py); `compiled` is True after `compile` already."),
    ("Two Parameters of one name", "may be in one graph; MindSpore's GRAPH_MODE raises RuntimeError. `Cell.check_names` finds them, optimizers refuse them."),
    ("`Cell.set_inputs` declared in tuples", "are compared element by element; MindSpore refuses every call."),
    (
        "Values are not shared",
        "by `view`, `reshape`, transposes and what else rearranges, by `Tensor(tensor)`, `astype` and `set_data`: each gives values of its own, in both modes. "
        "What is written into a part that an index gave (`x[0][1] = 5`) reaches the whole. `asnumpy()` keeps the values of then when the Tensor is written "
        "to later. MindSpore shares memory in these outside of graphs.",
    ),
    (
        "Gradients of frozen Parameters",
        "are zeros in both modes, as MindSpore's are in PYNATIVE_MODE; its GRAPH_MODE computes those that are asked for by name.",
    ),
    (
        "`Parameter.set_data` keeps the shape",
        "and raises ValueError for another one, unless `slice_shape=True` says that this is wanted. MindSpore changes the shape without a word.",
    ),
    (
        "More of Python compiles",
        "`try`, `match`, `for … else`, sets, `:=`, lambdas where they stand. What does not compile is named with its line (GC101).",
    ),
    (
        "A compiled call that asks for values",
        "(numpy or `asnumpy` in `construct`, results whose shape depends on values) runs as Python as a whole, with a warning that names the line; the Cells"
        " and compiled functions that it calls are compiled by themselves, and the gradient is cut where MindSpore's LAX level cuts it. `fullgraph=True`"
        " and STRICT make it an error.",
    ),
    (
        "A forward pass kept by `set_grad`",
        "serves the next gradient while inputs and weights are what they were, else the forward pass runs again; MindSpore goes on from weights that have"
        " changed meanwhile.",
    ),
    (
        "Uninitialised Tensors",
        "are initialised when their values are first asked for. MindSpore raises RuntimeError. `Tensor(..., init=\"ones\")` knows the names of"
        " initializers, and numbers; MindSpore takes any `init`, and raises TypeError in `init_data`.",
    ),
    (
        "Tensors of the device `meta`",
        "have no values: what asks for them raises RuntimeError. Many operations of MindSpore read whatever the memory holds.",
    ),
    (
        "Gradients of weights that `bprop` returns",
        "(`return (dx,), {self.w: dw}`) are left out in both modes, as in MindSpore's PYNATIVE_MODE; in its GRAPH_MODE a `bprop` may not read a Parameter.",
    ),
    (
        "Random numbers",
        "are a function of the seed and the number of the call: the same in both modes, for any number of threads and on any machine. They are not"
        " MindSpore's numbers. `set_rng_state` takes all random operations back; MindSpore's older ones do not follow it.",
    ),
    (
        "Optimizers",
        "follow their documented formulas where MindSpore's CPU kernels do not: `nn.Momentum(use_nesterov=True)`, `nn.Adagrad(update_slots=False)` (both are"
        " left out there) and `nn.FTRL` with `l1` (which there moves positive Parameters up). `nn.Lamb` and `nn.LARS` run, too. After the last rate of a"
        " list, that one stays; MindSpore raises RuntimeError.",
    ),
    (
        "`experimental.optim`",
        "`Adam` heeds `amsgrad`, which MindSpore's CPU kernel leaves out. Whatever is assigned to a group's 'lr' is written into the Parameter that is there,"
        " so that compiled steps see it and are not compiled anew; MindSpore puts it in the Parameter's place, and of Tensors takes no notice. A group"
        " that `add_param_group` appends has its state, where MindSpore's next step fails, and all state is in `parameters_dict`. `SequentialLR` and"
        " `CosineAnnealingWarmRestarts` work together, and `step(epoch)` serves every scheduler. `mint.optim` runs: its update kernels are missing on"
        " MindSpore's CPU. `FusedAdamW` is AdamW.",
    ),
    (
        "Data pipelines",
        "shuffle in orders of their own: repeatable with a seed and the same for any number of threads, but not MindSpore's. Workers are threads, as many"
        " as are asked for; without a number, rows are made in one thread ahead of their use. Rows before a failing one come, and names of columns are"
        " checked when a step is made. The rows of `map(…)` and of Python's other iterators are kept for further epochs, as those of generators are in"
        " MindSpore too; `take` tells its size without going to the end of a generator.",
    ),
    (
        "Op-level seeds",
        "of functions and primitives give sequences that a new run of the program repeats, as MindSpore's do; `set_seed` starts all of them anew, those of"
        " primitives that exist already too, and in both modes. `ops.randperm` without a seed gives another order in each call; in MindSpore 0 is a seed, and"
        " a seed gives one order for ever.",
    ),
    (
        "More random functions",
        "run on the CPU: `ops.gamma`, `ops.poisson`, `Tensor.normal_`, `uniform_`, `random_`, `exponential_`, `bernoulli_`, for which MindSpore has no CPU"
        " kernel.",
    ),
    (
        '`VarianceScaling(distribution="truncated_normal")`',
        "draws from a truncated normal distribution, as documented. MindSpore 2.10 draws from a uniform one of the same variance.",
    ),
    (
        "Checkpoints",
        "appear whole or not at all. Damaged ones, and two entries of one name, are a ValueError; a checksum is checked wherever there is one. A dict of"
        " Tensors can be saved. `async_save` copies the values first; loading waits for it. Encryption needs the package `cryptography`.",
    ),
    (
        "`load_param_into_net` copies",
        "so that a target network stays behind the one that it was loaded from. In MindSpore both share their values from then on, in-place updates too.",
    ),
    (
        "`load_param_into_net` with prefixes",
        "gives an entry `net.fc.weight` to the Parameter `fc.weight` where no entry has its very name, as MindSpore does, but only at a dot, and to the"
        " Parameter with the longest such name. If one value does not fit, none is loaded.",
    ),
    ("Errors appear where they happen", "never in a later call; `pynative_synchronize` changes nothing."),
    ("`jit_level`, `backend`, `exec_order`", "and the keys of `set_context` about devices are checked and kept; every graph is compiled in full."),
    ("`mutable` numbers", "are constants of a compiled function; another number compiles anew. Tensors are variables wherever they are."),
    (
        "Classes",
        "print with the path that they have in MindSpore, under the name of the package that was imported: `<class 'graphcell.nn.layer.basic.Dense'>`, "
        "and `<class 'mindspore.nn.layer.basic.Dense'>` in a program run by `python -m graphcell run`.",
    ),
    (
        "Callbacks",
        "`eval_loss` is the mean over an evaluation; MindSpore takes the last batch's. `EarlyStopping` heeds its `baseline`; MindSpore puts `min_delta` in its"
        " place. `ModelCheckpoint` starts anew in each run, and deletes an old file after the new one is written. `OnRequestExit` needs no environment"
        " variable, and saves no MindIR.",
    ),
    (
        "`Model`",
        "shows a progress bar for runs of more than three seconds, on a terminal alone (`TQDM_DISABLE=1` switches it off)."
        " `Model.build` compiles on a CPU too. A dataset may serve several models.",
    ),
    (
        "Metrics",
        "that are one number are Python floats, so that they print the same under any version of numpy. `ROC` of several classes takes any number of samples.",
    ),
    (
        "Primitive classes",
        "give gradients where MindSpore has none, or zeros: `ops.Cholesky`, `ops.Cummax`, `ops.InplaceAdd`, `ops.EmbeddingLookup`, `ops.CropAndResize`,"
        " `ops.IOU` and others; and `ops.MatrixInverse(adjoint=True)` those of its formula. `ops.LSTM` has one layer and one direction, and `ops.CTCLoss`"
        " its default merging of labels; what else they take raises NotImplementedError.",
    ),
    (
        "Masks of attention",
        "may be of different kinds: a padded key never counts. `nn.MultiheadAttention` of MindSpore adds 1 to its scores when `attn_mask` is float.",
    ),
    (
        "`nn.CTCLoss(zero_infinity=True)`, `nn.SampledSoftmaxLoss`, `nn.ClipByNorm(axis)`",
        "do what their documentation says. MindSpore's CPU kernels leave infinity, keep right classes in the sample, and take norms of other elements.",
    ),
    (
        "`nn.SoftmaxCrossEntropyWithLogits` of labels that do not add up to 1",
        "in a row has the gradient of its formula: softmax times the sum of the labels, minus the labels. MindSpore leaves the sum out, in the example"
        " of `nn.ForwardValueAndGrad` too.",
    ),
    (
        "In-place methods under `to_float`",
        "(`self.w.add_(x)` in `construct`) change the Parameter in its own dtype, in both modes; in MindSpore's PYNATIVE_MODE they do not change it.",
    ),
    ("`nn.LSTM` in half precision", "has gradients, MindSpore's are 0; and `nn.SeLU` has those of its formula for negative inputs."),
    ("`nn.EmbeddingLookup`", "gives its table a dense gradient, and raises for a row that is not there. MindSpore gives the rows, and zeros."),
    (
        "Loss scaling trains on the CPU",
        "too: `amp.build_train_network(level=\"O2\")` and `Model(amp_level=\"O2\")` scale the loss dynamically, `nn.TrainOneStepWithLossScaleCell` runs."
        " MindSpore raises ValueError there, or has no kernel.",
    ),
    (
        "Level `auto` of mixed precision",
        "casts by functions: by MindSpore's lists of primitives under the names that these have in `ops`; primitives that are written as classes as"
        " MindSpore casts these. `nn.SoftmaxCrossEntropyWithLogits` and `nn.Norm` of float16 give float32, in MindSpore float16. `nn.RNNCell` and its"
        " like compute in the dtype of their weights.",
    ),
    (
        "One process",
        "is a world of its own: `communication.init()` needs no launcher, and gives rank 0 of 1; MindSpore raises RuntimeError without one."
        " Environment variables of launchers that speak of several processes, and groups of other ranks, raise NotImplementedError. All keys of"
        " `set_auto_parallel_context` are checked before one is set, and kept, and `reset_auto_parallel_context` puts all of them back; only a"
        " training step for several devices is refused.",
    ),
    (
        "`Tensor.std` and `Tensor.var` of integers",
        "are those of their values. MindSpore rounds the mean to an integer first.",
    ),
    (
        "Losses of unsigned targets",
        "(`ops.multilabel_soft_margin_loss`) are those of other integers. MindSpore computes 1 - 2 as 255.",
    ),
    (
        "`grad_position` beyond the arguments",
        "raises an error that is both IndexError, as in MindSpore's GRAPH_MODE, and RuntimeError, as in its PYNATIVE_MODE.",
    ),
    (
        "`recompute`",
        "of Cells lowers the peak memory in both modes; random numbers, dropout masks and moving statistics are those of one run, and a recomputed Cell"
        " may hold others. The numbers are the same but for rounding: in graphs other kernels add in another order, and eagerly an op may have moved from"
        " numpy to its native kernel in between (with `GRAPHCELL_EAGER_KERNELS=0` they are the same to the bit).",
    ),
    (
        "`vmap`",
        "is a loop whose body is the function, once for each place: operations need no rules of their own, and random numbers differ from place to place.",
    ),
    (
        "Inputs of any size",
        "declared by `set_inputs`: where one dimension is open (the batch), and rows meet in sums and extrema at most, as in losses, batch statistics and "
        "training steps, graphs for blocks of rows serve all sizes; else each shape is compiled when it is first met.",
    ),
    (
        "`ops.ApplyFtrl` and `ops.ApplyAdagradDA` with `l1`",
        "follow their documented formulas, which move Parameters towards 0. MindSpore's CPU kernels move some away from it.",
    ),
    (
        "Equal largest elements",
        "share the gradient of `Tensor.max(axis=…)` and `min`, as with `ops.amax`; MindSpore gives all of it to the first where the axis is an int, as"
        " `ops.max` does in both.",
    ),
    ("`nn.BCELoss` and `ops.binary_cross_entropy`", "of probabilities outside of [0, 1] are infinite or NaN; MindSpore raises an exception."),
    (
        "Recursion",
        "in `jit` ends where Python's numbers say so. A function that calls itself until a Tensor says to stop is an error; MindSpore compiles it.",
    ),
    ("Singular matrices", "raise ValueError in `ops.inverse`; MindSpore gives zeros or infinities."),
    (
        "`mint`",
        "also computes that for which MindSpore 2.10 has no kernel on the CPU, which is most of it (`acos`, `topk`, `einsum`, `nn.Conv2d`, `nn.LayerNorm`,"
        " `nn.functional.cross_entropy`); results and gradients are PyTorch's there. `mint.index_add` leaves its input as it is, MindSpore's kernel adds to"
        " it. `mint.nn.functional.nll_loss(reduction=\"none\")` is 0 where the class is ignored, and weights of losses have gradients. `mint.allclose` and"
        " `mint.equal` in a compiled function are Bool scalars; `mint.empty` is filled with zeros. Layers check their arguments when they are made.",
    ),
    ("Only the CPU", "and no complex, sparse or quantised Tensors, no distributed training."),
)


@dataclass(frozen=True)
class Name:
    """A public name of MindSpore: `group` is one of GROUPS; `(m)` after `module` says that it is a class and the name a member of it."""

    module: str
    name: str
    kind: str
    group: str


def read_names(path: Path = NAMES) -> list[Name]:
    """The names of a file such as graphcell/mindspore_names.txt."""
    lines = path.read_text().splitlines()
    return [Name(*line.split("\t")) for line in lines if line and not line.startswith("#")]


def names_of_table(path: Path) -> str:
    """The text of graphcell/mindspore_names.txt, from a tab-separated table.

    Raises:
        ValueError: the table has no columns module, name, kind and tier.
    """
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    if not rows or not {"module", "name", "kind", "tier"} <= set(rows[0]):
        raise ArgumentValueError(f"{path}: expected the columns module, name, kind and tier")
    lines = [f"{r['module']}\t{r['name']}\t{r['kind']}\t{GROUPS[int(r['tier'][1:])]}" for r in rows]
    return "# Public names of MindSpore 2.10: module, name, kind, how often programs need it (" + ", ".join(GROUPS) + ")\n" + "\n".join(lines) + "\n"


def holder_of(module: str) -> Any:
    """What has the names of `module` here (a module or a class), or None."""
    if module == "mindspore.ops.primitive":
        module = "mindspore.ops"
    path = ["graphcell", *module.removesuffix("(m)").split(".")[1:]]
    try:
        return importlib.import_module(".".join(path))
    except ModuleNotFoundError:
        pass
    try:
        return getattr(importlib.import_module(".".join(path[:-1])), path[-1])
    except (ModuleNotFoundError, AttributeError):
        return None


def is_present(name: Name) -> bool:
    """True if the name is here, and is of its kind: a class for a class, a function or method that can be called."""
    holder = holder_of(name.module)
    try:
        found = reduce(getattr, name.name.split("."), holder)
    except AttributeError:
        return False
    if name.kind == "class":
        return isinstance(found, type)
    if isinstance(found, ModuleType):
        return name.kind == "module"
    return callable(found) or name.kind not in ("function", "method")


def page(names: Iterable[Name]) -> str:
    """docs/compatibility.md."""
    modules: dict[str, list[tuple[Name, bool]]] = {}
    for name in names:
        modules.setdefault(name.module, []).append((name, is_present(name)))
    parts = [_HEAD, _counts(modules), "## Different on purpose\n", *(f"* **{title}**: {text}" for title, text in DIFFERENCES), "", "## Names\n"]
    parts += [_lists(module, found) for module, found in modules.items()]
    return "\n".join(parts).rstrip() + "\n"


_HEAD = """# Compatibility with MindSpore 2.10

Made by `python -m graphcell.compatibility > docs/compatibility.md` from graphcell/mindspore_names.txt; do not edit. A name counts as present if it can be
imported and is of its kind; how it behaves is what the tests say. `mindspore.ops.primitive` are the classes of `ops` (`ops.ReLU`), and `(m)`
marks the members of a class. *Essential* and *common* names are those of MindSpore's tutorials and of usual models; *further* ones are the rest of
what MindSpore runs on a CPU; *rare* ones have no CPU kernel there, are deprecated, or are doubles.
"""


def _counts(modules: dict[str, list[tuple[Name, bool]]]) -> str:
    rows = ["## Counts\n", f"| present of all | {' | '.join(GROUPS)} | together |", "| --- |" + " --- |" * (len(GROUPS) + 1)]
    everything = [x for found in modules.values() for x in found]
    for title, found in [*modules.items(), ("**all**", everything)]:
        columns = [[here for name, here in found if name.group == group] for group in GROUPS] + [[here for _, here in found]]
        rows.append(f"| {title} | " + " | ".join(f"{sum(c)} of {len(c)}" if c else "" for c in columns) + " |")
    return "\n".join(rows) + "\n"


def _lists(module: str, found: list[tuple[Name, bool]]) -> str:
    present = sorted(name.name for name, here in found if here)
    lines = [f"### {module}\n"]
    if not present:
        return f"{lines[0]}\nNone of {len(found)} names.\n"
    lines.append(_wrapped(f"Present ({len(present)})", present))
    for group in GROUPS:
        missing = sorted(name.name for name, here in found if not here and name.group == group)
        if missing:
            lines.append(_wrapped(f"Missing, {group} ({len(missing)})", missing))
    return "\n".join(lines)


def _wrapped(title: str, names: list[str]) -> str:
    return textwrap.fill(f"{title}: {', '.join(names)}", 150, break_long_words=False, break_on_hyphens=False) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m graphcell.compatibility", description="Writes docs/compatibility.md to the standard output.")
    parser.add_argument("--api", type=Path, help="write graphcell/mindspore_names.txt instead, from this table")
    parser.add_argument("--names", type=Path, default=NAMES, help="the names to look for (default: graphcell/mindspore_names.txt)")
    options = parser.parse_args(arguments)
    sys.stdout.write(names_of_table(options.api) if options.api else page(read_names(options.names)))
    return 0


if __name__ == "__main__":
    sys.exit(main())

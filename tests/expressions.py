"""Programs of one expression: `call(ms, scope, "M.add(x, y)", ["T((2, 3))", "2"])` gives its result and the gradients of its float operands."""

from __future__ import annotations

import linecache
from functools import partial
from typing import Any

import numpy as np

from tests.recording import caught, fill, gradients, ramp

Calls = list[tuple[str, list[str]]]


def mint_scope(ms: Any) -> dict[str, Any]:
    """`M` is mint, `N` mint.nn, `F` mint.nn.functional."""
    mint = ms.mint
    return {"ms": ms, "M": mint, "N": mint.nn, "F": mint.nn.functional, "Tensor": ms.Tensor, "np": np, "ramp": ramp, "T": lambda shape, start=0.0: ms.Tensor(ramp(shape, start))}  # fmt: skip


def function(ms: Any, expression: str, count: int) -> Any:
    """A function of x, y, z, … whose source is known, so that it can be compiled."""
    source = f"def f({', '.join('xyzuv'[:count])}):\n    return {expression}\n"
    name = f"<mint {expression}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    namespace = mint_scope(ms)
    exec(compile(source, name, "exec"), namespace)
    return namespace["f"]


def call(ms: Any, expression: str, inputs: list[str], compiled: bool = False) -> Any:
    """The result, and the gradients of the inputs if both are floats."""
    values = [eval(x, mint_scope(ms)) for x in inputs]
    target = function(ms, expression, len(inputs))
    if compiled:
        target = ms.jit(target)
    result = target(*values)
    outputs = result if isinstance(result, (list, tuple)) else [result]
    tensors = [y for y in outputs if isinstance(y, ms.Tensor)]
    if not tensors or "allclose(" in expression or "M.equal(" in expression:  # of which a graph makes a scalar Tensor
        return {"result": str(result)}
    if not any("Float" in str(y.dtype) for y in tensors) or not any(isinstance(x, ms.Tensor) and "Float" in str(x.dtype) for x in values):
        return {"result": result}
    return {"result": result, "gradients": caught(lambda: gradients(ms, target, values)["inputs"])}


def programs_of(calls: Calls) -> dict[str, Any]:
    """A program for each call."""
    return {f"{expression} of {', '.join(inputs)}": partial(_call, expression, inputs) for expression, inputs in calls}


def _call(expression: str, inputs: list[str], ms: Any) -> Any:
    return call(ms, expression, inputs)


# -- layers ----------------------------------------------------------------------------------------------------------------
def layer_program(expression: str, inputs: list[str], ms: Any) -> Any:
    """`call_layer`, eagerly."""
    return call_layer(ms, expression, inputs)


def call_layer(ms: Any, expression: str, inputs: list[str], compiled: bool = False) -> Any:
    """A layer in training whose Parameters have values of their names: its outputs and gradients, what it
    keeps beside them, and its outputs when it does not train.
    """
    values = [eval(x, mint_scope(ms)) for x in inputs]
    net = eval(expression, mint_scope(ms))
    fill(ms, net)
    for p in net.get_parameters():
        if p.name == "running_var":
            p.set_data(ms.Tensor(np.abs(p.asnumpy()) + 0.5, p.dtype))
    net.set_train()
    if compiled:
        net.construct = ms.jit(net.construct)
    trained = gradients(ms, net, values)
    state = {p.name: ms.Tensor(p.asnumpy() + 0) for p in net.get_parameters() if not p.requires_grad}
    net.set_train(False)
    return {"trained": trained, "state": state, "evaluated": net(*values)}

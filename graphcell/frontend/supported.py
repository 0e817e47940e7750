"""Which syntax a compiled function may use, and the way out where it may not."""

from __future__ import annotations

import ast

from graphcell.errors import UnsupportedSyntaxError

UNSUPPORTED: dict[type[ast.AST], tuple[str, str]] = {
    ast.Yield: ("yield", "return a list or a tuple instead"),
    ast.YieldFrom: ("yield from", "return a list or a tuple instead"),
    ast.Await: ("await", "compiled functions run synchronously; await outside of @jit"),
    ast.AsyncFunctionDef: ("async def", "compiled functions run synchronously; use a plain def"),
    ast.AsyncFor: ("async for", "collect the items outside of @jit and pass them as a list"),
    ast.AsyncWith: ("async with", "enter the context outside of @jit"),
    ast.ClassDef: ("a class definition", "move the class to the top of the module"),
    ast.TryStar: ("try with except*", "use try and except, or handle the error outside of @jit"),
}
"""Node type: its name for the user, and what to do instead. `ast.TypeAlias` (3.12) joins below."""

if hasattr(ast, "TypeAlias"):
    UNSUPPORTED[ast.TypeAlias] = ("a type alias", "move it to the top of the module")

FORBIDDEN_BUILTINS = {
    "eval": "write the expression out",
    "exec": "write the statements out",
    "compile": "write the code out",
    "input": "read the input before the compiled function, and pass it as an argument",
    "breakpoint": "call the function without @jit (or with MS_JIT=0) to debug it",
    "vars": "name the variables",
    "dir": "name the attributes",
}
"""Builtins that need the frame of a running function (those two take no argument then), or that make no sense
at compile time.
"""


def unsupported(node: ast.AST) -> UnsupportedSyntaxError:
    """The error for a node that has no meaning in a compiled function."""
    known = UNSUPPORTED.get(type(node))
    kind = "statement" if isinstance(node, ast.stmt) else "expression"
    if known is None:
        return UnsupportedSyntaxError(
            f"Unsupported {kind} '{type(node).__name__}'.", hint="move it out of the compiled function"
        )
    name, way_out = known
    return UnsupportedSyntaxError(
        f"Unsupported {kind} '{type(node).__name__}': {name} cannot be compiled.", hint=way_out
    )


def forbidden_builtin(name: str) -> UnsupportedSyntaxError:
    """The error for a builtin that cannot be called in a compiled function."""
    return UnsupportedSyntaxError(
        f"{name}() cannot be called in a compiled function.", hint=FORBIDDEN_BUILTINS[name]
    )


def leaves(body: tuple[ast.stmt, ...]) -> bool:
    """True if a return, break or continue in `body` may leave it."""
    return any(_leaves(statement, False) for statement in body)


def returns_or_breaks(body: tuple[ast.stmt, ...]) -> bool:
    """True if a loop body holds a return, or a break of this loop."""
    return any(_breaks(statement, False) for statement in body)


def _leaves(node: ast.AST, in_loop: bool) -> bool:
    if isinstance(node, ast.Return):
        return True
    if isinstance(node, (ast.Break, ast.Continue)):
        return not in_loop
    return _any_child(node, in_loop, _leaves)


def _breaks(node: ast.AST, in_loop: bool) -> bool:
    if isinstance(node, ast.Return):
        return True
    if isinstance(node, ast.Break):
        return not in_loop
    return _any_child(node, in_loop, _breaks)


def _any_child(node: ast.AST, in_loop: bool, test) -> bool:  # type: ignore[no-untyped-def]
    if isinstance(node, (ast.expr, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return False
    if isinstance(node, (ast.For, ast.While)):
        return any(test(child, True) for child in node.body) or any(
            test(child, in_loop) for child in node.orelse
        )
    return any(test(child, in_loop) for child in ast.iter_child_nodes(node))


def assigned_names(body: tuple[ast.stmt, ...]) -> set[str]:
    """The names that `body` assigns in the scope where it stands."""
    names: set[str] = set()
    for node in _walk_scope(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, (ast.Store, ast.Del)):
            names.add(node.id)
        names.update(captured_name(node))
    return names


def captured_name(node: ast.AST) -> tuple[str, ...]:
    """The name that a pattern of `match` binds by itself, if it does."""
    name = node.rest if isinstance(node, ast.MatchMapping) else node.name if isinstance(node, (ast.MatchAs, ast.MatchStar)) else None
    return (name,) if name else ()


def updated_names(body: tuple[ast.stmt, ...]) -> set[str]:
    """The names whose new value is computed of their old one: `i += 1`, `i = f(i)`."""
    names: set[str] = set()
    for node in _walk_scope(body):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
        elif isinstance(node, ast.Assign):
            read = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
            stored = {
                n.id
                for t in node.targets
                for n in ast.walk(t)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            }
            names |= read & stored
    return names


def _walk_scope(body: tuple[ast.stmt, ...]) -> list[ast.AST]:
    """All nodes of `body`, without those of nested functions and comprehensions."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(body)
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(
            node, (ast.FunctionDef, ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
        ):
            waiting.extend(ast.iter_child_nodes(node))
    return found


def read_outside(function: ast.AST, loop: ast.AST) -> set[str]:
    """The names that `function` reads somewhere outside of `loop`, but for reads of other loops' own variables in their bodies."""
    if function is loop:
        return set()
    if isinstance(function, ast.Name):
        return {function.id} if isinstance(function.ctx, ast.Load) else set()
    names: set[str] = set()
    if isinstance(function, ast.AugAssign) and isinstance(function.target, ast.Name):
        names.add(function.target.id)
    own_body: list[ast.stmt] = []
    if isinstance(function, ast.For) and not any(node is loop for node in ast.walk(function)):
        own_body = function.body
        bound = assigned_names((ast.Assign([function.target], ast.Constant(None)),))
        for statement in own_body:
            names |= read_outside(statement, loop) - bound
    for child in ast.iter_child_nodes(function):
        if child not in own_body:
            names |= read_outside(child, loop)
    return names


def only_appended(body: tuple[ast.stmt, ...], name: str) -> bool:
    """True if `body` uses `name` in no other way than `name.append(...)` statements."""
    uses = sum(isinstance(n, ast.Name) and n.id == name for s in body for n in ast.walk(s))
    appends = sum(_is_append(n, name) for s in body for n in ast.walk(s))
    return uses == appends > 0


def _is_append(node: ast.AST, name: str) -> bool:
    if not (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
    ):
        return False
    function = node.value.func
    return function.attr == "append" and isinstance(function.value, ast.Name) and function.value.id == name

"""The house has no stairs that run back up: every module imports only from floors below its own."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "graphcell"
FLOORS: tuple[tuple[str, ...], ...] = (
    ("version", "records", "errors", "missing", "late", "wire", "progress"),
    ("dtype", "buffer", "locks", "collection"),
    ("context", "auto_parallel_context", "communication"),
    ("ir",),
    ("tensor",),
    ("formatting",),
    ("ops",),
    ("common", "parameter"),
    ("passes",),
    ("codegen",),
    ("runtime",),
    ("frontend",),
    ("jit", "dynamic", "dynamic_stages", "pullback", "bprop", "recompute", "jacobian", "vmap", "grad", "composite", "loops", "gradient_primitives"),
    ("nn",),
    ("experimental",),
    ("mint",),
    ("dataset",),
    ("train", "amp"),
    ("loading",),
    ("__init__",),
    ("alias", "compatibility", "__main__", "spawned"),
)
FLOOR = {name: k for k, names in enumerate(FLOORS) for name in names}


def module_names() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else path.stem


def top_level_imports(path: Path) -> list[str]:
    """Rooms of graphcell that a module imports when it is imported itself."""
    found = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "graphcell":
            parts = node.module.split(".")[1:]
            found += [parts[0]] if parts else [alias.name for alias in node.names if alias.name in FLOOR]
        if isinstance(node, ast.Import):
            found += [parts[1] for alias in node.names if (parts := alias.name.split("."))[0] == "graphcell" and len(parts) > 1]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("path", module_names(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    here = room(path)
    assert here in FLOOR, f"{here} has no floor: add it to the list, and to docs/architecture.md"
    for other in top_level_imports(path):
        assert FLOOR[other] <= FLOOR[here], f"{path.name} (in {here}) imports {other}, which stands above it"


def test_codegen_and_ops_are_strangers() -> None:
    """Ops get the emitter as an argument; they never import codegen."""
    for path in (PACKAGE / "ops").rglob("*.py"):
        assert "codegen" not in top_level_imports(path), path


def test_docs_name_the_rooms() -> None:
    text = (PACKAGE.parent / "docs" / "architecture.md").read_text()
    for name in FLOOR:
        assert name in text, f"docs/architecture.md does not mention {name}"

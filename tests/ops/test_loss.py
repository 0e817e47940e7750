"""Losses against what MindSpore 2.10 gave (tests/programs/losses.json), and by finite differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graphcell import Tensor, jit, nn, ops, value_and_grad
from graphcell.context import GRAPH_MODE, PYNATIVE_MODE
from graphcell.ops.functional.loss import poisson_nll_loss
from tests.helpers import check_gradients
from tests.recording import check, load, ramp, recorded

DIFFERENT = {
    "nn.BCEWithLogitsLoss('x')": "an unknown reduction is refused at once",
    "nn.KLDivLoss('x')": "the same",
}
PROGRAMS = [key for key in load("losses") if key not in DIFFERENT]
COMPILED = [key for key in PROGRAMS if isinstance(recorded("losses")[key], dict) and "value" in recorded("losses")[key]]


@pytest.mark.parametrize("key", PROGRAMS)
def test_eager(key: str) -> None:
    check("losses", key, PYNATIVE_MODE)


@pytest.mark.slow
@pytest.mark.parametrize("key", COMPILED)
def test_compiled(key: str) -> None:
    check("losses", key, GRAPH_MODE)


X, Y = ramp((2, 3)).astype(np.float64), ramp((2, 3), 1.0).astype(np.float64)
P = 1 / (1 + np.exp(-X))
CLASSES = np.array([2, 0])
SIGNS = np.array([1.0, -1.0])


@pytest.mark.parametrize(
    ("loss", "arrays"),
    [
        (ops.mse_loss, (X, Y)),
        (ops.huber_loss, (X, Y)),
        (lambda x, y: ops.smooth_l1_loss(x, y, 0.7, "mean"), (X, Y)),
        (ops.l1_loss, (X, Y)),
        (lambda x: ops.cross_entropy(x, Tensor(CLASSES)), (X,)),
        (lambda x, w: ops.cross_entropy(x, Tensor(CLASSES), w, 0, "mean", 0.2), (X, np.array([0.5, 1.0, 2.0]))),
        (lambda x, y: ops.cross_entropy(x, y), (X, P)),
        (lambda x: ops.nll_loss(x, Tensor(CLASSES), None, -100, "sum", 0.3), (X,)),
        (ops.binary_cross_entropy, (P, np.abs(Y) / 3)),
        (ops.binary_cross_entropy_with_logits, (X, np.abs(Y) / 3, P, P + 1)),
        (lambda x: ops.kl_div(x, Tensor(P)), (X,)),
        (lambda x, y: ops.cosine_embedding_loss(x, y, Tensor(SIGNS), 0.1), (X, Y)),
        (ops.margin_ranking_loss, (X, Y, np.sign(X + 0.1))),
        (lambda x: ops.hinge_embedding_loss(x, Tensor(np.sign(Y))), (X,)),
        (ops.gaussian_nll_loss, (X, Y, P)),
        (poisson_nll_loss, (X, P)),
        (lambda x: ops.soft_margin_loss(x, Tensor(np.sign(Y))), (X,)),
        (lambda x: ops.multilabel_soft_margin_loss(x, Tensor((Y > 0).astype(np.float64))), (X,)),
        (lambda x: ops.multi_margin_loss(x, Tensor(CLASSES), 2), (X,)),
        (lambda a, b, c: ops.triplet_margin_loss(a, b, c, 3.0), (X, Y, P)),
    ],
)
def test_gradients(loss: Any, arrays: Any) -> None:
    check_gradients(loss, *arrays, order=1, rtol=1e-4)


def numbers(x: Any) -> Any:
    return x.asnumpy().astype(np.float64)


def test_soft_margin_loss_is_its_formula() -> None:
    sign = np.sign(Y)
    got = ops.soft_margin_loss(Tensor(X), Tensor(sign), "none")
    np.testing.assert_allclose(numbers(got), np.log1p(np.exp(-sign * X)), rtol=1e-12)


def test_triplet_margin_loss_is_its_formula() -> None:
    def distance(a: Any, b: Any) -> Any:
        return np.sqrt(((a - b + 1e-6) ** 2).sum(-1))

    got = nn.TripletMarginLoss(margin=2.0, reduction="none")(Tensor(X), Tensor(Y), Tensor(P))
    np.testing.assert_allclose(numbers(got), np.maximum(distance(X, Y) - distance(X, P) + 2.0, 0), rtol=1e-12)
    swapped = nn.TripletMarginLoss(margin=2.0, reduction="none", swap=True)(Tensor(X), Tensor(Y), Tensor(P))
    far = np.minimum(distance(X, P), distance(Y, P))
    np.testing.assert_allclose(numbers(swapped), np.maximum(distance(X, Y) - far + 2.0, 0), rtol=1e-12)


def test_triplet_loss_with_a_distance_of_ones_own() -> None:
    loss = nn.TripletMarginWithDistanceLoss(lambda a, b: ops.abs(a - b).sum(-1), margin=0.5, reduction="sum")
    got = loss(Tensor(X), Tensor(Y), Tensor(P))
    want = np.maximum(np.abs(X - Y).sum(-1) - np.abs(X - P).sum(-1) + 0.5, 0).sum()
    np.testing.assert_allclose(numbers(got), want, rtol=1e-12)


def test_cross_entropy_of_large_logits_is_finite() -> None:
    logits = Tensor(np.array([[1e4, -1e4, 0.0], [-3e38, 3e38, 0.0]], np.float32))
    loss = ops.cross_entropy(logits, Tensor(np.array([0, 1])), reduction="none")
    assert loss.asnumpy().tolist() == [0.0, 0.0]
    with_logits = ops.binary_cross_entropy_with_logits(Tensor([1e30, -1e30]), Tensor([1.0, 0.0]), reduction="none")
    assert with_logits.asnumpy().tolist() == [0.0, 0.0]


def test_class_numbers_may_be_int64() -> None:
    logits = Tensor(ramp((2, 3)))
    small = ops.cross_entropy(logits, Tensor(CLASSES.astype(np.int32)))
    assert float(ops.cross_entropy(logits, Tensor(CLASSES))) == float(small)


def test_ignored_targets_count_for_nothing() -> None:
    logits = Tensor(ramp((3, 4)))
    some = ops.cross_entropy(logits, Tensor(np.array([1, -100, 3])))
    kept = ops.cross_entropy(Tensor(ramp((3, 4))[[0, 2]]), Tensor(np.array([1, 3])))
    np.testing.assert_allclose(numbers(some), numbers(kept), rtol=1e-6)


@pytest.mark.parametrize("key", DIFFERENT)
def test_known_differences_are_differences(key: str) -> None:
    with pytest.raises(AssertionError):
        check("losses", key, PYNATIVE_MODE)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4)])
def test_class_numbers_that_are_floats_are_told_apart_from_probabilities(shape: tuple[int, ...]) -> None:
    labels = Tensor(np.ones(shape[:1] + shape[2:] if len(shape) > 1 else (), np.float32))
    with pytest.raises(TypeError, match="class numbers, which must be integers, but are Float32") as caught:
        nn.CrossEntropyLoss()(Tensor(ramp(shape)), labels)
    assert "TypeCast" in str(caught.value)
    nn.CrossEntropyLoss()(Tensor(ramp(shape)), labels.astype("int32"))


@pytest.mark.parametrize("compiled", [jit, lambda f: f], ids=["compiled", "eager"])
def test_weights_of_classes_that_no_target_names_do_not_matter(compiled: Any) -> None:
    weight = np.array([2.0, np.inf, 0.5, np.nan])
    x = np.concatenate([X, X[:, :1]], 1)

    def loss(x: Any, w: Any) -> Any:
        return ops.cross_entropy(x, Tensor(CLASSES), weight=w)

    value, gradient = compiled(value_and_grad(loss))(Tensor(x), Tensor(weight))
    share = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    rows, factor = np.arange(2), weight[CLASSES] / weight[CLASSES].sum()
    np.testing.assert_allclose(value.asnumpy(), -(factor * np.log(share[rows, CLASSES])).sum(), rtol=1e-12)
    np.testing.assert_allclose(gradient.asnumpy(), (share - np.eye(4)[CLASSES]) * factor[:, None], rtol=1e-12)


@pytest.mark.parametrize("name", ["mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "cross_entropy", "nll_loss", "kl_div", "soft_margin_loss"])
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("given", [tuple, list])
def test_what_is_no_tensor_is_an_error(name: str, place: int, given: type) -> None:
    """A tuple of one Tensor, as gradients come with `has_aux`, would be one dimension more that broadcasts."""
    operands: list[object] = [Tensor(P.astype(np.float32)), Tensor(P.astype(np.float32))]
    operands[place] = given([operands[place]])
    with pytest.raises(TypeError, match=f"{name}: .* must be a Tensor, but is {given.__name__}"):
        getattr(ops, name)(*operands)


@pytest.mark.parametrize("loss", [nn.L1Loss, nn.MAELoss, nn.MSELoss, nn.RMSELoss, nn.SmoothL1Loss, nn.HuberLoss])
def test_cells_take_tensors_alone(loss: type[nn.Cell]) -> None:
    x = Tensor(P.astype(np.float32))
    for operands in (((x,), x), (x, [x])):
        with pytest.raises(TypeError, match="must be a Tensor, but"):
            loss()(*operands)

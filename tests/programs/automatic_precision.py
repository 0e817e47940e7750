"""Level 'auto' of mixed precision: the dtypes that functions and layers give for float32 and float16, a small network, its training."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.recording import Program, caught, fill, parameters, ramp


def elementwise(ms: Any) -> list[Any]:
    ops = ms.ops
    names = (
        "exp", "log", "sqrt", "rsqrt", "square", "abs", "neg", "reciprocal", "sigmoid", "tanh", "relu", "gelu", "silu", "softplus", "erf", "erfc",
        "erfinv", "sin", "cos", "tan", "cosh", "sinh", "acos", "asin", "atan", "log1p", "log2", "log10", "expm1", "floor", "leaky_relu", "elu",
        "hardswish", "mish", "softsign", "logsigmoid", "celu", "selu", "relu6", "hardtanh",
    )  # fmt: skip
    return [getattr(ops, name) for name in names]


def arithmetic(ms: Any) -> list[Any]:
    ops = ms.ops

    def functions(x: Any, h: Any) -> Any:
        return (
            ops.pow(x, 2), x**2, x**h, x + h, x * h, x / h, x - h, x // h, x % h, ops.maximum(x, h), ops.where(x > 0, x, h), ops.concat((x, h)),
            ops.hypot(x, h), ops.atan2(x, h), ops.logaddexp(x, h), ops.xlogy(x, h), ops.addcmul(x, x, h, 1.0), x.T, x.reshape((-1,)),
            ops.bias_add(x, h[0]), ops.clamp(x, 0.1, 0.5),
        )  # fmt: skip

    return [functions]


def products(ms: Any) -> list[Any]:
    ops = ms.ops

    def functions(x: Any, h: Any) -> Any:
        b = h[0]
        return (
            x @ h, ops.matmul(x, h), ops.bmm(x.expand_dims(0), h.expand_dims(0)), ops.MatMul()(x, h), ops.mm(x, h), ops.mv(x, b), ops.dense(x, h, b),
            ops.dense(x, h), ops.tensor_dot(x, h, 1), ops.inner(x, x), ops.outer(x[0], x[1]), ops.addmm(x, x, h), ops.prelu(x.reshape((1, 3, 3)), b),
            ops.conv2d(x.reshape((1, 1, 3, 3)), b.reshape((1, 1, 1, 3))), ops.conv2d(x.reshape((1, 1, 3, 3)), b.reshape((1, 1, 1, 3)), b[:1]),
            ops.conv1d(x.reshape((1, 3, 3)), h.reshape((3, 3, 1))),
        )  # fmt: skip

    return [functions]


def sums(ms: Any) -> list[Any]:
    ops = ms.ops

    def functions(x: Any, h: Any) -> Any:
        return (
            x.sum(), ops.sum(x), x.mean(), x.prod(), x.max(), x.var(), x.std(), ops.cumsum(x, 0), ops.cumprod(x, 0), ops.logsumexp(x, 0), ops.softmin(x),
            ops.softmax(x, -1), ops.log_softmax(x, -1), ops.Softmax()(x), ops.Exp()(x), ops.Pow()(x, 2.0), ops.group_norm(x.reshape((1, 3, 3)), 3, h[0], h[1]),
            ops.mse_loss(x, h), ops.l1_loss(x, h), ops.smooth_l1_loss(x, h), ops.kl_div(x, h), ops.huber_loss(x, h), ops.cdist(x, h),
            ops.cross_entropy(x, ms.Tensor([0, 1, 2], ms.int32)), ops.nll_loss(x, ms.Tensor([0, 1, 2], ms.int32)), ops.renorm(x, 2, 0, 1.0),
            ops.binary_cross_entropy_with_logits(x, h, h * 0 + 1, h * 0 + 1),
        )  # fmt: skip

    return [functions]


def reductions(ms: Any) -> list[Any]:
    ops = ms.ops

    def functions(x: Any, h: Any) -> Any:
        return (
            ops.ReduceSum()(x, 1), ops.ReduceSum(True)(h, 0), ops.ReduceMean()(x, 1), ops.ReduceMax()(x, 1), ops.ReduceMin()(x, 1), ops.ReduceProd()(x, 1),
            ops.ReduceStd((1,))(x), ops.CumSum()(x, 1), ops.CumProd()(x, 1), ops.L2Normalize(1)(x), ops.L2Loss()(x), ops.SquareSumAll()(x, x),
            ops.LpNorm(1)(x), ops.LogSoftmax()(x), ops.ArgMaxWithValue(1)(x)[1], ops.AddN()([x, x]), ops.Trace()(x), ops.norm(x),
        )  # fmt: skip

    def further(x: Any, h: Any) -> Any:
        return (
            ops.mean(x, 1), ops.amax(x, 1), ops.amin(x, 1), ops.std(x, 1), ops.var(x, 1), ops.var_mean(x, 1), ops.std_mean(x, 1), ops.var_mean(h, 1), x.std(1),
            x.var(1), x.cumsum(1), x.cumprod(1), x.logsumexp(1), x.norm(), ops.nansum(x, 1), ms.mint.sum(x, 1), ms.mint.mean(x, 1), ms.mint.prod(x, 1),
        )  # fmt: skip

    return [functions, further]


def primitives(ms: Any) -> list[Any]:
    ops = ms.ops

    def functions(x: Any, h: Any) -> Any:
        image, ones = x.reshape((1, 3, 3, 1)), [ms.Tensor([1.0, 1.0, 1.0]) for _ in range(4)]
        return (
            ops.Inv()(x), ops.inv(x), x.inv(), ops.Reciprocal()(x), ops.LayerNorm()(x, x[0], x[1]), ops.SigmoidCrossEntropyWithLogits()(x, x),
            ops.SoftmaxCrossEntropyWithLogits()(x, x), ops.SparseSoftmaxCrossEntropyWithLogits()(x, ms.Tensor([0, 1, 2], ms.int32)),
            ops.BatchNorm()(image, *ones)[0], ops.SmoothL1Loss()(x, x), ops.KLDivLoss()(x, x), ops.BinaryCrossEntropy()(x, x, x), ops.LRN()(image),
        )  # fmt: skip

    return [functions]


TOPICS = {"elementwise": elementwise, "arithmetic": arithmetic, "products": products, "sums": sums, "reductions": reductions, "primitives": primitives}


def dtypes(topic: str, ms: Any) -> Any:
    """Of a function, which gets a wrapper; the values of float16 are MindSpore's to its precision."""
    found = []
    for function in TOPICS[topic](ms):
        run = ms.amp.auto_mixed_precision(function, "auto")
        for dtype in (ms.float32, ms.float16):
            x, h = (ms.Tensor(abs(ramp((3, 3), k)) * 0.4 + 0.1, t) for k, t in ((0.0, dtype), (1.0, ms.float32)))
            found.append(run(x) if topic == "elementwise" else run(x, h))
    return [found, run is function]


LAYERS = {
    "Dense": ("nn.Dense(3, 3)", (3, 3)), "Dense without bias": ("nn.Dense(3, 3, has_bias=False)", (3, 3)), "Conv1d": ("nn.Conv1d(3, 2, 1)", (1, 3, 3)),
    "Dense of relu": ("nn.Dense(3, 3, activation='relu')", (3, 3)),
    "Conv2d": ("nn.Conv2d(1, 1, 2)", (1, 1, 3, 3)), "Conv2d with bias": ("nn.Conv2d(1, 1, 2, has_bias=True)", (1, 1, 3, 3)),
    "Conv2dTranspose": ("nn.Conv2dTranspose(1, 1, 2)", (1, 1, 3, 3)), "Conv3d": ("nn.Conv3d(1, 1, 1)", (1, 1, 1, 3, 3)),
    "LayerNorm": ("nn.LayerNorm((3,))", (3, 3)), "BatchNorm1d": ("nn.BatchNorm1d(3)", (3, 3)), "BatchNorm2d": ("nn.BatchNorm2d(1)", (1, 1, 3, 3)),
    "GroupNorm": ("nn.GroupNorm(3, 3)", (1, 3, 3)), "PReLU": ("nn.PReLU(3)", (1, 3, 3)), "Softmax": ("nn.Softmax()", (3, 3)), "GELU": ("nn.GELU()", (3, 3)),
    "to_float inside": ("nn.SequentialCell(nn.Dense(3, 3), nn.Dense(3, 3).to_float(ms.float16))", (3, 3)),
}  # fmt: skip


def layer(key: str, ms: Any) -> Any:
    source, shape = LAYERS[key]
    found = []
    for dtype in (ms.float32, ms.float16):
        net = eval(source, {"nn": ms.nn, "ms": ms})
        fill(ms, net)
        given = ms.amp.auto_mixed_precision(net, "auto")
        found.append([given(ms.Tensor(ramp(shape), dtype)), given is net])
    return found


def network(ms: Any) -> Any:
    nn = ms.nn

    class Net(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.bn, self.fc, self.norm = nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dense(32, 5), nn.LayerNorm((5,))
            self.w = ms.Parameter(ms.Tensor(ramp((5, 5), 3.0)), name="w")
            self.softmax = nn.Softmax()

        def construct(self, x: Any) -> Any:
            a = ms.ops.relu(self.bn(self.conv(x)))
            b = self.fc(a.reshape((a.shape[0], -1)))
            c = ms.ops.matmul(self.norm(b), self.w)
            return a, b, c, self.softmax(c), ms.ops.gelu(c)

    net = Net()
    fill(ms, net)
    return net


def small_network(ms: Any) -> Any:
    net = network(ms)
    net.set_train(False)
    plain = net(ms.Tensor(ramp((2, 1, 4, 4)) * 0.5))
    ms.amp.auto_mixed_precision(net, "auto")
    return [[y.dtype for y in plain], net(ms.Tensor(ramp((2, 1, 4, 4)) * 0.5)), parameters(net)]


def small_network_as_float16(ms: Any) -> Any:
    net = ms.amp.auto_mixed_precision(network(ms), "auto")
    net.set_train(False)
    return net(ms.Tensor(ramp((2, 1, 4, 4)) * 0.5, ms.float16))


def gradients(ms: Any) -> Any:
    net = ms.amp.auto_mixed_precision(ms.nn.Dense(3, 2, has_bias=True), "auto")
    fill(ms, net)

    def loss(x: Any) -> Any:
        return (net(x) ** 2).sum()

    value, (by_x, by_weights) = ms.value_and_grad(loss, 0, net.trainable_params())(ms.Tensor(ramp((4, 3))))
    return [value, by_x, by_weights]


def training(ms: Any) -> Any:
    net = ms.nn.SequentialCell(ms.nn.Dense(3, 4), ms.nn.ReLU(), ms.nn.Dense(4, 2))
    fill(ms, net)
    step = ms.amp.build_train_network(net, ms.nn.SGD(net.trainable_params(), 0.01), ms.nn.MSELoss(), level="auto")
    x, y = ms.Tensor(ramp((4, 3))), ms.Tensor(ramp((4, 2), 1.0))
    kinds = [type(step).__name__, type(step.network).__name__]
    return [kinds, [step(x, y) for _ in range(3)], [p.value() for p in net.get_parameters()], str(step)]


def model(ms: Any) -> Any:
    net = ms.nn.Dense(3, 2, has_bias=False)
    fill(ms, net)
    m = ms.train.Model(net, ms.nn.MSELoss(), ms.nn.SGD(net.trainable_params(), 0.01), amp_level="auto")
    x, y = ramp((4, 3)), ramp((4, 2), 1.0)
    m.train(2, ms.dataset.NumpySlicesDataset((x, y), shuffle=False).batch(2), dataset_sink_mode=False)
    return [m.predict(ms.Tensor(x)), net.weight.value(), type(m.train_network).__name__]


def repeated(ms: Any) -> Any:
    net = ms.nn.Dense(3, 2, has_bias=False)
    fill(ms, net)
    x, amp = ms.Tensor(ramp((4, 3))), ms.amp
    same = [amp.auto_mixed_precision(net, "auto") is net, amp.auto_mixed_precision(net, "auto") is net, amp.auto_mixed_precision(net, "O0") is net]
    return [same, net(x).dtype, caught(lambda: amp.auto_mixed_precision(3, "auto")), caught(lambda: amp.auto_mixed_precision(net, "auto", ms.float32))]


def integers(ms: Any) -> Any:
    """They stay what they are."""

    def function(x: Any) -> Any:
        return ms.ops.sum(x), x * 2, x * 2.0, ms.ops.cumsum(x, 0)

    return ms.amp.auto_mixed_precision(function, "auto")(ms.Tensor([[1, 2], [3, 4]], ms.int32))


def programs() -> dict[str, Program]:
    plain = (small_network, small_network_as_float16, gradients, training, model, repeated, integers)
    return {
        **{f"dtypes {topic}": partial(dtypes, topic) for topic in TOPICS},
        **{f"layer {key}": partial(layer, key) for key in LAYERS},
        **{program.__name__: program for program in plain},
    }

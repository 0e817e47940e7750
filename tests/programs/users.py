"""Programs as users write them: training by hand, frozen parts, shared weights, layers and optimizers of their own, control flow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.recording import fill, ramp

Program = Callable[[Any], Any]


def data(ms: Any) -> tuple[Any, Any, Any]:
    """Inputs (4, 3), targets (4, 2), labels (4,)."""
    return ms.Tensor(ramp((4, 3))), ms.Tensor(ramp((4, 2), 2.0)), ms.Tensor([0, 1, 1, 0], ms.int32)


def filled(ms: Any, net: Any) -> Any:
    fill(ms, net)
    return net


def small_net(ms: Any) -> Any:
    nn = ms.nn
    return filled(ms, nn.SequentialCell(nn.Dense(3, 4), nn.Tanh(), nn.Dense(4, 2)))


def weights_of(net: Any) -> list[Any]:
    return [(p.name, p.value()) for p in net.get_parameters()]


def steps(ms: Any, step: Any, count: int = 4) -> list[Any]:
    x, y, _ = data(ms)
    return [step(x, y) for _ in range(count)]


# -- training --------------------------------------------------------------------------------------------------------------
def frozen_part(ms: Any) -> Any:
    class Net(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.body = ms.nn.Dense(3, 4, activation="tanh")
            self.head = ms.nn.Dense(4, 2)
            self.scale = ms.Parameter(ms.Tensor(1.5, ms.float32), name="scale")

        def construct(self, x: Any) -> Any:
            h = self.body(x)
            return self.head(h) * self.scale, h

    net, loss_fn = filled(ms, Net()), ms.nn.MSELoss()
    for p in net.body.get_parameters():
        p.requires_grad = False

    def forward(x: Any, y: Any) -> Any:
        out, h = net(x)
        return loss_fn(out, y), out, h

    results = []
    for _ in range(2):
        optimizer = ms.nn.Momentum(net.trainable_params(), 0.1, 0.9)
        gradient = ms.value_and_grad(forward, None, optimizer.parameters, has_aux=True)
        for _ in range(3):
            (loss, out, _), gradients = gradient(*data(ms)[:2])
            optimizer(gradients)
            results.append((loss, out, list(gradients)))
        for p in net.body.get_parameters():
            p.requires_grad = True
    return results, weights_of(net)


def adversaries(ms: Any) -> Any:
    """Two networks that train against each other."""
    nn, ops = ms.nn, ms.ops
    generator = filled(ms, nn.SequentialCell(nn.Dense(2, 5), nn.LeakyReLU(0.2), nn.Dense(5, 3), nn.Tanh()))
    judge = filled(ms, nn.SequentialCell([nn.Dense(3, 5), nn.ReLU(), nn.Dense(5, 1)]))

    def loss(logits: Any, target: float) -> Any:
        ones = ops.ones_like(logits)
        return ops.binary_cross_entropy_with_logits(logits, ones * target, ones, ones)

    def judge_loss(real: Any, noise: Any) -> Any:
        return loss(judge(real), 1.0) + loss(judge(ops.stop_gradient(generator(noise))), 0.0)

    def generator_loss(noise: Any) -> Any:
        return loss(judge(generator(noise)), 1.0)

    judge_step = ms.value_and_grad(judge_loss, None, judge.trainable_params())
    generator_step = ms.value_and_grad(generator_loss, None, generator.trainable_params())
    judge_optimizer, generator_optimizer = nn.Adam(judge.trainable_params(), 0.01, beta1=0.5), nn.RMSProp(generator.trainable_params(), 0.01)
    real, noise = data(ms)[0], ms.Tensor(ramp((4, 2), 1.0))
    results = []
    for _ in range(3):
        a, gradients = judge_step(real, noise)
        judge_optimizer(gradients)
        b, gradients = generator_step(noise)
        generator_optimizer(gradients)
        results.append((a, b))
    return results, weights_of(generator)


def gradient_penalty(ms: Any) -> Any:
    net, x = small_net(ms), data(ms)[0]

    def total(x: Any) -> Any:
        return net(x).sum()

    slope = ms.grad(total)

    def penalty(x: Any) -> Any:
        return ((ms.ops.sqrt((slope(x) ** 2).sum(-1)) - 1.0) ** 2).mean()

    return penalty(x), list(ms.grad(penalty, None, net.trainable_params())(x))


def moving_average(ms: Any) -> Any:
    class Average(ms.nn.Cell):
        def __init__(self, net: Any, decay: float) -> None:
            super().__init__()
            self.decay = decay
            self.source = ms.ParameterTuple(net.trainable_params())
            self.average = self.source.clone("average")

        def construct(self) -> Any:
            for a, s in zip(self.average, self.source):
                ms.ops.assign(a, self.decay * a + (1 - self.decay) * s)
            return True

    net = small_net(ms)
    average = Average(net, 0.75)
    net[0].bias.set_data(ms.Tensor(ramp((4,), 3.0)))
    return [average() for _ in range(2)], [(p.name, p.value()) for p in average.average]


def accumulated_gradients(ms: Any) -> Any:
    net, loss_fn = small_net(ms), ms.nn.MSELoss()
    sums = ms.ParameterTuple(net.trainable_params()).clone("sum", init="zeros")
    optimizer = ms.nn.SGD(net.trainable_params(), 0.1)

    def forward(x: Any, y: Any) -> Any:
        return loss_fn(net(x), y)

    gradient = ms.value_and_grad(forward, None, net.trainable_params())

    @ms.jit
    def collect(x: Any, y: Any) -> Any:
        loss, gradients = gradient(x, y)
        for k in range(len(sums)):
            ms.ops.assign_add(sums[k], gradients[k])
        return loss

    @ms.jit
    def update() -> Any:
        optimizer(sums)
        for s in sums:
            ms.ops.assign(s, ms.ops.zeros_like(s))
        return True

    losses = []
    for _ in range(2):
        losses += [collect(*data(ms)[:2]) for _ in range(2)]
        update()
    return losses, weights_of(net)


# -- optimizers ------------------------------------------------------------------------------------------------------------
def my_adam(ms: Any) -> Any:
    ops = ms.ops

    class MyAdam(ms.nn.Optimizer):
        def __init__(self, params: Any, rate: float) -> None:
            super().__init__(rate, params)
            self.power1 = ms.Parameter(ms.Tensor(1.0, ms.float32), name="power1")
            self.power2 = ms.Parameter(ms.Tensor(1.0, ms.float32), name="power2")
            self.m = self.parameters.clone("m", init="zeros")
            self.v = self.parameters.clone("v", init="zeros")

        def construct(self, gradients: Any) -> Any:
            rate = self.get_lr()
            power1, power2 = self.power1 * 0.9, self.power2 * 0.99
            self.power1, self.power2 = power1, power2
            for p, m, v, g in zip(self.parameters, self.m, self.v, gradients):
                m_new, v_new = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * ops.square(g)
                ops.assign(m, m_new)
                ops.assign(v, v_new)
                ops.assign_sub(p, rate * (m_new / (1 - power1)) / (ops.sqrt(v_new / (1 - power2)) + 1e-8))
            return True

    net = small_net(ms)
    optimizer = MyAdam(net.trainable_params(), 0.05)
    step = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(net, ms.nn.MSELoss()), optimizer)
    return steps(ms, step), weights_of(net), optimizer.power1.value(), [p.name for p in optimizer.get_parameters()]


def by_hyper_map(ms: Any) -> Any:
    """Momentum by a MultitypeFuncGraph, with the helpers of nn.Optimizer."""
    from importlib import import_module

    composite = import_module(f"{ms.__name__}.ops.composite")
    F = import_module(f"{ms.__name__}.ops.functional")
    update = composite.MultitypeFuncGraph("update")

    @update.register("Tensor", "Tensor", "Tensor", "Tensor")
    def _update(rate: Any, p: Any, m: Any, g: Any) -> Any:
        m_new = 0.9 * m + g
        done = True
        done = F.depend(done, F.assign(m, m_new))
        done = F.depend(done, F.assign_sub(p, rate * m_new))
        return done

    class Momentum(ms.nn.Optimizer):
        def __init__(self, params: Any, rate: Any, weight_decay: float) -> None:
            super().__init__(rate, params, weight_decay)
            self.moments = self.parameters.clone(prefix="moment", init="zeros")
            self.hyper_map = composite.HyperMap()

        def construct(self, gradients: Any) -> Any:
            gradients = self.scale_grad(self.decay_weight(self.flatten_gradients(gradients)))
            rate = self.get_lr()
            self.assignadd(self.global_step, self.global_step_increase_tensor)
            return self.hyper_map(F.partial(update, rate), self.parameters, self.moments, gradients)

    net = small_net(ms)
    optimizer = Momentum(net.trainable_params(), [0.1, 0.05, 0.02, 0.01], 0.01)
    step = ms.nn.TrainOneStepCell(ms.nn.WithLossCell(net, ms.nn.MSELoss()), optimizer)
    return steps(ms, step), weights_of(net), optimizer.global_step.value()


def lookahead(ms: Any) -> Any:
    class Lookahead(ms.nn.Cell):
        def __init__(self, inner: Any) -> None:
            super().__init__(auto_prefix=False)
            self.inner = inner
            self.parameters = inner.parameters
            self.slow = inner.parameters.clone("slow")
            self.count = ms.Parameter(ms.Tensor(0, ms.int32), name="count")

        def construct(self, gradients: Any) -> Any:
            self.inner(gradients)
            self.count += 1
            if self.count % 2 == 0:
                for s, f in zip(self.slow, self.parameters):
                    new = s + 0.5 * (f - s)
                    ms.ops.assign(s, new)
                    ms.ops.assign(f, new)
            return True

    net, loss_fn = small_net(ms), ms.nn.MSELoss()
    optimizer = Lookahead(ms.nn.SGD(net.trainable_params(), 0.2))

    def forward(x: Any, y: Any) -> Any:
        return loss_fn(net(x), y)

    gradient = ms.value_and_grad(forward, None, optimizer.parameters)
    losses = []
    for _ in range(5):
        loss, gradients = gradient(*data(ms)[:2])
        optimizer(gradients)
        losses.append(loss)
    return losses, optimizer.count.value(), weights_of(net)


def clipped(ms: Any) -> Any:
    class Step(ms.nn.Cell):
        def __init__(self, net: Any, optimizer: Any) -> None:
            super().__init__()
            self.net, self.optimizer = net, optimizer
            self.gradient = ms.value_and_grad(net, None, optimizer.parameters)

        def construct(self, *inputs: Any) -> Any:
            loss, gradients = self.gradient(*inputs)
            gradients = ms.ops.clip_by_global_norm(gradients, 0.5)
            self.optimizer(gradients)
            return loss, ms.ops.sqrt(sum([(g**2).sum() for g in gradients]))

    net = small_net(ms)
    step = Step(ms.nn.WithLossCell(net, ms.nn.MSELoss()), ms.nn.Adagrad(net.trainable_params(), learning_rate=0.1))
    return steps(ms, step, 3)


# -- layers ----------------------------------------------------------------------------------------------------------------
def three_ways(ms: Any) -> Any:
    """x·sigmoid(x) by functions, by primitives, and with a backward pass of its own."""
    nn, ops = ms.nn, ms.ops

    class ByFunctions(nn.Cell):
        def construct(self, x: Any) -> Any:
            return ops.mul(ops.sigmoid(x), x)

    class ByPrimitives(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.sigmoid, self.mul = ops.Sigmoid(), ops.Mul()

        def construct(self, x: Any) -> Any:
            return self.mul(self.sigmoid(x), x)

    class ByBprop(ByPrimitives):
        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            s = self.sigmoid(x)
            return (dout * (s + out * (1 - s)),)

    x = data(ms)[0]
    found = []
    for kind in (ByFunctions, ByPrimitives, ByBprop):
        net = filled(ms, nn.SequentialCell(nn.Dense(3, 3), kind(), nn.Dense(3, 1)))
        inputs, weights = ms.grad(net, 0, net.trainable_params())(x)
        found.append((net(x), inputs, list(weights)))
    return found


def attention(ms: Any) -> Any:
    class Attention(ms.nn.Cell):
        def __init__(self, size: int, heads: int) -> None:
            super().__init__()
            self.q, self.k, self.v = (ms.nn.Dense(size, size) for _ in range(3))
            self.heads = heads
            self.norm = ms.nn.LayerNorm((size,))
            self.drop = ms.nn.Dropout(p=0.1)

        def construct(self, x: Any, mask: Any = None) -> Any:
            batch, time, size = x.shape
            width = size // self.heads
            q, k, v = [f(x).view(batch, time, self.heads, width).swapaxes(1, 2) for f in (self.q, self.k, self.v)]
            scores = ms.ops.matmul(q, k.swapaxes(-1, -2)) / width**0.5
            if mask is not None:
                scores = scores.masked_fill(mask, -1e9)
            y = ms.ops.matmul(self.drop(ms.ops.softmax(scores, -1)), v).swapaxes(1, 2).reshape(batch, time, size)
            return self.norm(x + y)

    net = filled(ms, Attention(4, 2))
    x, mask = ms.Tensor(ramp((2, 3, 4))), ms.Tensor([[False, True, True], [False, False, True], [False, False, False]])

    def loss(x: Any) -> Any:
        return (net(x, mask) ** 3).sum()

    return net(x), net(x, mask), list(ms.grad(loss, None, net.trainable_params())(x))


def recurrent(ms: Any) -> Any:
    class Recurrent(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.x, self.h = ms.nn.Dense(3, 4), ms.nn.Dense(4, 4, has_bias=False)

        def construct(self, x: Any) -> Any:
            h = ms.ops.zeros((x.shape[1], 4), x.dtype)
            outputs = []
            for t in range(x.shape[0]):
                h = ms.ops.tanh(self.x(x[t]) + self.h(h))
                outputs.append(h)
            return ms.ops.stack(outputs), h

    net, x = filled(ms, Recurrent()), ms.Tensor(ramp((5, 2, 3)))
    inputs, weights = ms.grad(net, 0, net.trainable_params())(x)
    return net(x), inputs, list(weights)


def siamese(ms: Any) -> Any:
    ops = ms.ops

    class Siamese(ms.nn.Cell):
        """One body, three inputs."""

        def __init__(self, body: Any) -> None:
            super().__init__()
            self.body = body

        def construct(self, anchor: Any, same: Any, other: Any) -> Any:
            a, s, o = self.body(anchor), self.body(same), self.body(other)
            return ops.relu(ops.norm(a - s, dim=-1) - ops.norm(a - o, dim=-1) + 2.0).mean()

    net, x = Siamese(small_net(ms)), data(ms)[0]
    return [p.name for p in net.get_parameters()], ms.value_and_grad(net, 0, net.trainable_params())(x, x * 0.5, x + 1.0)


def tied_weights(ms: Any) -> Any:
    class Tied(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = ms.nn.Embedding(5, 3)
            self.middle = ms.nn.Dense(3, 3)
            self.head = ms.nn.Dense(3, 5, has_bias=False)
            self.head.weight = self.embedding.embedding_table

        def construct(self, index: Any) -> Any:
            return self.head(ms.ops.tanh(self.middle(self.embedding(index))))

    net, index = filled(ms, Tied()), ms.Tensor([[1, 4], [0, 1]])
    loss_fn = ms.nn.CrossEntropyLoss()

    def loss(index: Any) -> Any:
        return loss_fn(net(index).reshape(-1, 5), index.reshape(-1).astype(ms.int32))

    return [(n, p.name) for n, p in net.parameters_and_names()], net(index), list(ms.grad(loss, None, net.trainable_params())(index))


def focal_loss(ms: Any) -> Any:
    class Focal(ms.nn.LossBase):
        def __init__(self, reduction: str = "mean") -> None:
            super().__init__(reduction)
            self.log_softmax, self.one_hot = ms.nn.LogSoftmax(), ms.ops.OneHot()
            self.on, self.off = ms.Tensor(1.0, ms.float32), ms.Tensor(0.0, ms.float32)

        def construct(self, logits: Any, labels: Any) -> Any:
            target = self.one_hot(labels, logits.shape[-1], self.on, self.off)
            logs = self.log_softmax(logits)
            return self.get_loss(-(target * (1 - ms.ops.exp(logs)) ** 2 * logs).sum(-1), weights=2.0)

    _, logits, labels = data(ms)
    return [Focal(reduction)(logits, labels) for reduction in ("mean", "sum", "none")], ms.grad(Focal())(logits, labels)


# -- cells ------------------------------------------------------------------------------------------------------------------
def containers(ms: Any) -> Any:
    nn = ms.nn

    class Holder(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.cells_list = nn.CellList([nn.Dense(2, 2), nn.ReLU()])
            self.cells_list.append(nn.Dense(2, 3))
            self.by_name = nn.CellDict({"x": nn.Dense(2, 2), "y": nn.Tanh()})
            self.by_name["z"] = nn.Dense(2, 2)
            self.sequence = nn.SequentialCell([nn.Dense(3, 3), nn.SequentialCell(nn.Dense(3, 2), nn.Sigmoid())])
            self.sequence.append(nn.Dense(2, 2))
            self.pair = ms.ParameterTuple((ms.Parameter(ms.Tensor([1.0]), name="p1"), ms.Parameter(ms.Tensor([2.0]), name="p2")))
            self.unnamed = ms.Parameter(ms.Tensor([4.0]))

        def construct(self, x: Any) -> Any:
            for cell in self.cells_list:
                x = cell(x)
            x = self.by_name["z"](self.by_name["y"](self.by_name["x"](self.sequence(x))))
            return x * self.pair[0] + self.pair[1] + self.unnamed

    inner = Holder()
    outer = nn.SequentialCell(inner, nn.Dense(2, 2))
    inner.cells_list.insert(0, nn.Dense(2, 2))
    names = [(n, p.name) for n, p in outer.parameters_and_names()]
    filled(ms, outer)
    return names, [(n, type(c).__name__) for n, c in outer.cells_and_names()], outer(ms.Tensor(ramp((2, 2))))


def control_flow(ms: Any) -> Any:
    class Flow(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.layers = ms.nn.CellList([ms.nn.Dense(2, 2) for _ in range(3)])
            self.skip = 1

        def power(self, x: Any, depth: int) -> Any:
            return x if depth == 0 else self.power(x * 1.5, depth - 1)

        def construct(self, x: Any, count: Any, flag: bool = True) -> Any:
            outputs = []
            for k, layer in enumerate(self.layers):
                if k == self.skip:
                    continue
                x = layer(x)
                outputs.append(x)
            total, i = ms.ops.zeros_like(x), 0
            while i < count:
                if total.sum() > 3.0:
                    total = total - x
                    if i == 4:
                        break
                else:
                    total = total + self.power(x, 2)
                i = i + 1
            last = outputs[-1] if flag else outputs[0]
            return total, i, last, {"first": outputs[0], "count": len(outputs)}

    net = filled(ms, Flow())
    x = ms.Tensor(ramp((2, 2)))
    return net(x, 6), net(x, 2, False), net(-x, ms.Tensor(5))


def state_in_parameters(ms: Any) -> Any:
    class Running(ms.nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.count = ms.Parameter(ms.Tensor(0, ms.int32), name="count", requires_grad=False)
            self.mean = ms.Parameter(ms.Tensor(ramp((3,))), name="mean", requires_grad=False)

        def construct(self, x: Any) -> Any:
            self.count = self.count + 1
            if self.training:
                ms.ops.assign(self.mean, self.mean + (x.mean(0) - self.mean) / self.count)
            if self.count > 2:
                return x - self.mean * 2.0
            return x - self.mean

    net, x = Running(), data(ms)[0]
    net.set_train()
    found = [net(x), net(x * 2.0), net(x * 3.0)]
    return found, net.count.value(), net.mean.value()


PROGRAMS: tuple[Program, ...] = (
    frozen_part, adversaries, gradient_penalty, moving_average, accumulated_gradients, my_adam, by_hyper_map, lookahead, clipped, three_ways, attention,
    recurrent, siamese, tied_weights, focal_loss, containers, control_flow, state_in_parameters,
)  # fmt: skip


def programs() -> dict[str, Program]:
    """All programs by name."""
    return {program.__name__: program for program in PROGRAMS}

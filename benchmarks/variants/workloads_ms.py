"""Programs of the same kinds as ../peers/workloads_ms.py in other shapes, sizes and dtypes; the same options and output."""
import importlib.util
import pathlib
import sys

import numpy as np

_spec = importlib.util.spec_from_file_location("peers_ms", pathlib.Path(__file__).parent.parent / "peers" / "workloads_ms.py")
P = sys.modules["peers_ms"] = importlib.util.module_from_spec(_spec)  # MindSpore looks a function up by its module
_spec.loader.exec_module(P)
ms, nn, ops, Tensor, t, labels, train = P.ms, P.nn, P.ops, P.Tensor, P.t, P.labels, P.train


def grad(f, *x):
    g = ms.jit(ms.value_and_grad(f, 0))
    return lambda: g(*x)


def infer(net, x):
    net.set_train(False)

    @ms.jit
    def run(x):
        return net(x)

    return lambda: run(x)


def mlp(*sizes):
    layers = [nn.Dense(i, o, activation="relu") for i, o in zip(sizes[:-2], sizes[1:-1])]
    return nn.SequentialCell([*layers, nn.Dense(*sizes[-2:])])


mlp_infer_one = lambda: infer(mlp(784, 4096, 4096, 10), t(1, 784))
mlp_odd_train = lambda: train(mlp(300, 500, 77, 13), t(100, 300), labels(100, 13))
tiny_mlp_latency = lambda: infer(mlp(8, 32, 32, 4), t(1, 8))


def matmul_of(dtype, m, k, n):
    a, b = t(m, k).astype(dtype), t(k, n).astype(dtype)

    @ms.jit
    def f(a, b):
        return ops.matmul(a, b).astype(ms.float32)

    return lambda: f(a, b)


matmul_f64 = lambda: matmul_of(ms.float64, 700, 700, 700)
matmul_bf16 = lambda: matmul_of(ms.bfloat16, 768, 768, 768)
matmul_tall = lambda: matmul_of(ms.float32, 20000, 40, 30)
matmul_one_row = lambda: matmul_of(ms.float32, 1, 4096, 4096)


def rmsnorm_silu():
    w = t(1500)

    def f(x):
        y = x / ops.sqrt((x * x).mean(-1, keep_dims=True) + 1e-6) * w
        return (y * ops.sigmoid(y)).sum()

    return grad(f, t(1000, 1500))


def log_softmax_wide():
    x = t(48, 50257)

    def f(x):
        return (ops.log_softmax(x, -1) ** 2).mean()

    return grad(f, x)


def columns_norm():
    """Normalises columns (as batch norm does) and sums a cubic."""
    x = t(20000, 100)

    def f(x):
        m = x.mean(0)
        v = ((x - m) ** 2).mean(0)
        y = (x - m) / ops.sqrt(v + 1e-5)
        return (y * y * y).mean()

    return grad(f, x)


def elementwise_f64():
    x = t(1000, 1000).astype(ms.float64)

    def f(x):
        return (ops.exp(ops.sin(x)) * ops.log(x * x + 1.0)).sum()

    return grad(f, x)


class Inverted(nn.Cell):
    def __init__(self, cin, cout, stride):
        super().__init__()
        mid = cin * 4
        self.net = nn.SequentialCell([
            nn.Conv2d(cin, mid, 1, pad_mode="valid"), nn.BatchNorm2d(mid), nn.ReLU6(),
            nn.Conv2d(mid, mid, 3, stride=stride, pad_mode="pad", padding=1, group=mid), nn.BatchNorm2d(mid), nn.ReLU6(),
            nn.Conv2d(mid, cout, 1, pad_mode="valid"), nn.BatchNorm2d(cout)])
        self.same = stride == 1 and cin == cout

    def construct(self, x):
        y = self.net(x)
        return x + y if self.same else y


class Mobile(nn.Cell):
    def __init__(self):
        super().__init__()
        self.stem = nn.SequentialCell([nn.Conv2d(3, 16, 3, stride=2, pad_mode="pad", padding=1), nn.BatchNorm2d(16), nn.ReLU6()])
        self.body = nn.SequentialCell([Inverted(16, 24, 2), Inverted(24, 24, 1), Inverted(24, 40, 2), Inverted(40, 40, 1)])
        self.fc = nn.Dense(40, 10)

    def construct(self, x):
        return self.fc(self.body(self.stem(x)).mean((2, 3)))


mobile_train = lambda: train(Mobile(), t(8, 3, 96, 96), labels(8, 10))
mobile_infer = lambda: infer(Mobile(), t(1, 3, 160, 160))


class Stem(nn.Cell):
    """The beginning of an ImageNet ResNet-50: 7x7 stride 2, max pooling, two bottlenecks."""

    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 64, 7, stride=2, pad_mode="pad", padding=3)
        self.b = nn.BatchNorm2d(64)
        self.relu = nn.ReLU()
        self.pool = nn.MaxPool2d(3, 2, pad_mode="same")
        self.down = nn.SequentialCell([nn.Conv2d(64, 256, 1, pad_mode="valid"), nn.BatchNorm2d(256)])
        self.a = self.neck(64)
        self.d = self.neck(256)
        self.fc = nn.Dense(256, 100)

    def neck(self, cin):
        return nn.SequentialCell([nn.Conv2d(cin, 64, 1, pad_mode="valid"), nn.BatchNorm2d(64), nn.ReLU(),
                                  nn.Conv2d(64, 64, 3, pad_mode="pad", padding=1), nn.BatchNorm2d(64), nn.ReLU(),
                                  nn.Conv2d(64, 256, 1, pad_mode="valid"), nn.BatchNorm2d(256)])

    def construct(self, x):
        x = self.pool(self.relu(self.b(self.c(x))))
        x = self.relu(self.down(x) + self.a(x))
        x = self.relu(x + self.d(x))
        return self.fc(x.mean((2, 3)))


stem_infer = lambda: infer(Stem(), t(1, 3, 224, 224))
stem_train = lambda: train(Stem(), t(4, 3, 112, 112), labels(4, 100))


class Vgg(nn.Cell):
    def __init__(self):
        super().__init__()
        self.net = nn.SequentialCell([
            nn.Conv2d(3, 32, 5, pad_mode="pad", padding=2), nn.ReLU(), nn.AvgPool2d(2, 2),
            nn.Conv2d(32, 48, 3, pad_mode="pad", padding=1), nn.ReLU(), nn.MaxPool2d(2, 2),
            nn.Conv2d(48, 64, 3, pad_mode="pad", padding=1), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(),
            nn.Dense(1024, 100), nn.ReLU(), nn.Dense(100, 10)])

    def construct(self, x):
        return self.net(x)


vgg_train = lambda: train(Vgg(), t(32, 3, 32, 32), labels(32, 10))


class Gru(nn.Cell):
    def __init__(self, i=100, h=160):
        super().__init__()
        self.h = h
        self.wx, self.wh = nn.Dense(i, 3 * h), nn.Dense(h, 3 * h)
        self.fc = nn.Dense(h, 10)

    def construct(self, x):
        h = ops.zeros((x.shape[1], self.h), ms.float32)
        for i in range(x.shape[0]):
            a, b = self.wx(x[i]), self.wh(h)
            ar, az, an = ops.split(a, self.h, axis=1)
            br, bz, bn = ops.split(b, self.h, axis=1)
            r, z = ops.sigmoid(ar + br), ops.sigmoid(az + bz)
            h = (1 - z) * ops.tanh(an + r * bn) + z * h
        return self.fc(h)


gru_train = lambda: train(Gru(), t(50, 20, 100), labels(20, 10), opt="adam")
gru_infer_one = lambda: infer(Gru(128, 512), t(40, 1, 128))


def attention_long():
    q, k, v = t(1, 4, 1024, 64), t(1, 4, 1024, 64), t(1, 4, 1024, 64)

    def f(q, k, v):
        w = ops.softmax(ops.matmul(q, k.transpose(0, 1, 3, 2)) * 0.125, axis=-1)
        return (ops.matmul(w, v) ** 2).sum()

    g = ms.jit(ms.value_and_grad(f, (0, 1, 2)))
    return lambda: g(q, k, v)


def attention_causal():
    q, k, v = t(1, 4, 1024, 64), t(1, 4, 1024, 64), t(1, 4, 1024, 64)
    later = Tensor(np.triu(np.ones((1024, 1024), bool), 1))

    def f(q, k, v):
        scores = ops.masked_fill(ops.matmul(q, k.transpose(0, 1, 3, 2)) * 0.125, later, -1e9)
        return (ops.matmul(ops.softmax(scores, axis=-1), v) ** 2).sum()

    g = ms.jit(ms.value_and_grad(f, (0, 1, 2)))
    return lambda: g(q, k, v)


def sort_rows():
    x = t(256, 4096)

    @ms.jit
    def f(x):
        return ops.sort(x)

    return lambda: f(x)


def topk_rows():
    x = t(512, 5000)

    @ms.jit
    def f(x):
        return ops.topk(x, 10)

    return lambda: f(x)


def transformer_infer():
    rng = P.rng
    tok = Tensor(rng.integers(0, 1000, (1, 100)).astype("int32"))
    return infer(P.Transformer(s=100), tok)


def xent_of(n, classes):
    x, y = t(n, classes), labels(n, classes)
    return grad(lambda x: ops.cross_entropy(x, y), x)


xent_ten = lambda: xent_of(65536, 10)
xent_hundred = lambda: xent_of(8192, 100)


def softmax_masked():
    x, w = t(8, 8, 256, 256), t(8, 8, 256, 256)
    mask = Tensor(np.where(np.arange(256) < P.rng.integers(64, 257, (8, 1, 1, 1)), 0, -1e9).astype(np.float32))
    return grad(lambda x: (ops.softmax(x + mask, axis=-1) * w).sum(), x)


def layernorm_of(rows, width):
    """With the gradients of its weights."""
    norm = nn.LayerNorm((width,), epsilon=1e-5)
    g = ms.jit(ms.value_and_grad(lambda x: ops.gelu(norm(x), approximate="tanh").sum(), 0, norm.trainable_params()))
    x = t(rows, width)
    return lambda: g(x)


layernorm_short = lambda: layernorm_of(100000, 16)
layernorm_weights = lambda: layernorm_of(4096, 768)


class CifarCnn(nn.Cell):
    def __init__(self):
        super().__init__()
        self.net = nn.SequentialCell([
            nn.Conv2d(3, 32, 5, pad_mode="pad", padding=2, has_bias=True), nn.ReLU(), nn.MaxPool2d(2, 2),
            nn.Conv2d(32, 32, 5, pad_mode="pad", padding=2, has_bias=True), nn.ReLU(), nn.AvgPool2d(2, 2),
            nn.Conv2d(32, 64, 5, pad_mode="pad", padding=2, has_bias=True), nn.ReLU(), nn.AvgPool2d(2, 2), nn.Flatten(),
            nn.Dense(1024, 64), nn.ReLU(), nn.Dense(64, 10)])

    def construct(self, x):
        return self.net(x)


cifar_train = lambda: train(CifarCnn(), t(64, 3, 32, 32), labels(64, 10))


def newton_loop():
    """Square roots by Newton's iteration until all have converged."""
    x = ops.abs(t(1000)) + 0.5

    @ms.jit
    def f(x):
        y = x
        i = Tensor(0, ms.int32)
        while ops.abs(y * y - x).max() > 1e-5 and i < 50:
            y = 0.5 * (y + x / y)
            i = i + 1
        return y

    return lambda: f(x)


def heat_stencil():
    """One step of heat conduction, and how far it is from what was measured."""
    v = t(1200, 1100)

    def f(u):
        p = ops.pad(u, (1, 1, 1, 1))
        lap = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4.0 * u
        return ops.square(u + 0.1 * lap - v).mean()

    return grad(f, t(1200, 1100))


def rotary_pairs():
    """Rotary position embedding of interleaved pairs."""
    angle = np.outer(np.arange(200), 10000.0 ** (-np.arange(0, 64, 2) / 64)).astype(np.float32)
    cos, sin = Tensor(np.cos(angle)), Tensor(np.sin(angle))

    def f(x):
        a, b = x[..., ::2], x[..., 1::2]
        y = ops.stack((a * cos - b * sin, a * sin + b * cos), axis=-1).reshape(x.shape)
        return (y * y * x).sum()

    return grad(f, t(4, 8, 200, 64))


def poisson_loss():
    def f(x, y):
        return (ops.exp(x) - y * x + ops.lgamma(y + 1.0)).mean()

    return grad(f, t(1000, 1000), ops.abs(t(1000, 1000)) * 5.0)


def softmax_middle():
    return grad(lambda x: ops.square(ops.softmax(x, 1)).sum(), t(64, 200, 60))


def mish_groupnorm():
    norm = nn.GroupNorm(8, 32)
    return grad(lambda x: ops.mish(norm(x)).sum(), t(16, 32, 28, 28))


def vector_chain():
    @ms.jit
    def f(v, a, b):
        z = ops.matmul(ops.tanh(ops.matmul(v, a)), b) + v
        return ops.matmul(a.T, z)

    v, a, b = t(2000), t(2000, 1500) * 0.02, t(1500, 2000) * 0.02
    return lambda: f(v, a, b)


class WordVectors(nn.Cell):
    """Scores of words beside others."""

    def __init__(self):
        super().__init__()
        self.word, self.context = nn.Embedding(20000, 100), nn.Embedding(20000, 100)

    def construct(self, word, context):
        return ops.matmul(self.context(context), self.word(word).expand_dims(2)).squeeze(2)


def word_vectors_train():
    """Plain SGD on two tables of which few rows are used in a step."""
    net = WordVectors()
    optimizer = nn.SGD(net.trainable_params(), 0.5)
    word, context = (Tensor(P.rng.integers(0, 20000, shape).astype(np.int32)) for shape in ((256,), (256, 6)))
    sign = Tensor(np.array([[1, -1, -1, -1, -1, -1]] * 256, np.float32))
    grad_fn = ms.value_and_grad(lambda w, c: -ops.log(ops.sigmoid(net(w, c) * sign)).sum(1).mean(), None, optimizer.parameters)

    @ms.jit
    def step(w, c):
        loss, grads = grad_fn(w, c)
        return ops.depend(loss, optimizer(grads))

    return lambda: step(word, context)


def kalman_filter():
    """The likelihood of 60 observations of 16 series under a linear model, by its transition matrix."""
    h, noise = Tensor(np.eye(2, 4)), Tensor(0.5 * np.eye(2))
    z = t(60, 16, 2).astype(ms.float64)

    def f(a):
        x, p = ops.zeros((16, 4), ms.float64), ops.eye(4, 4, ms.float64)
        loss = 0.0
        for k in range(60):
            x, p = ops.matmul(x, a.T), ops.matmul(ops.matmul(a, p), a.T) + 0.1 * ops.eye(4, 4, ms.float64)
            s = ops.matmul(ops.matmul(h, p), h.T) + noise
            e, inverse = z[k] - ops.matmul(x, h.T), ops.inverse(s)
            gain = ops.matmul(ops.matmul(p, h.T), inverse)
            loss = loss + 0.5 * (ops.matmul(e, inverse) * e).sum() + 8.0 * ops.logdet(s)
            x, p = x + ops.matmul(e, gain.T), p - ops.matmul(ops.matmul(gain, h), p)
        return loss

    return grad(f, Tensor(0.95 * np.eye(4) + 0.1 * np.eye(4, k=2)))


def gaussian_process():
    """The likelihood of 120 observations, by the logarithms of three lengths."""
    y = t(120, 1).astype(ms.float64)

    def f(length, x):
        s = x / ops.exp(length)
        k = ops.exp(-0.5 * ops.square(s.expand_dims(1) - s).sum(2)) + 0.1 * ops.eye(120, 120, ms.float64)
        lower = ops.cholesky(k)
        return 0.5 * (y * ops.cholesky_solve(y, lower)).sum() + ops.log(ops.diagonal(lower)).sum()

    return grad(f, Tensor(np.array([0.1, 0.3, -0.2])), t(120, 3).astype(ms.float64))


def turned_vectors():
    """Vectors turned by quaternions that are made to have length 1, beside those measured."""

    def f(q, v):
        w, x, y, z = (q[:, k] / ops.sqrt(ops.square(q).sum(1)) for k in range(4))
        a, b, c = v[:, 0], v[:, 1], v[:, 2]
        i, j, k = y * c - z * b, z * a - x * c, x * b - y * a
        turned = ops.stack((a + 2.0 * (w * i + y * k - z * j), b + 2.0 * (w * j + z * i - x * k), c + 2.0 * (w * k + x * j - y * i)), axis=1)
        return ops.square(turned - goal).mean()

    goal = t(30000, 3)
    return grad(f, t(30000, 4), t(30000, 3))


def price_paths():
    """2000 paths of a price whose volatility changes, step by step."""
    noise = t(120, 2, 2000)

    @ms.jit
    def f(price, variance, noise):
        k = Tensor(0, ms.int32)
        while k < 120:
            root = ops.sqrt(ops.relu(variance) * 0.01)
            price = price * ops.exp(root * noise[k, 0] - 0.005 * variance)
            variance = variance + (0.04 - variance) * 0.02 + 0.3 * root * noise[k, 1]
            k = k + 1
        return ops.relu(price - 1.0).mean()

    price, variance = ops.abs(t(2000)) * 0.0 + 1.0, ops.abs(t(2000)) * 0.05
    return lambda: f(price, variance, noise)


def grads(f, *x):
    g = ms.jit(ms.value_and_grad(f, tuple(range(len(x)))))
    return lambda: g(*x)


def modulated_norm():
    """The normalisation of diffusion transformers, scaled, shifted and gated by a condition."""

    def f(x, c):
        shift, scale, gate = ops.chunk(c[:, None], 3, 2)
        y = ops.layer_norm(x, (384,), None, None, 1e-6) * (1.0 + scale) + shift
        return ops.square(x + gate * ops.gelu(y, approximate="tanh")).mean()

    return grads(f, t(8, 196, 384), t(8, 1152) * 0.1)


def periodic_gate():
    """Snake, a periodic activation of audio with a rate of each channel, gated."""

    def f(x, a, b):
        s = ops.sin(x * a)
        y, g = x + s * s / a, ops.sigmoid(b)
        return ops.square(y * g + x * (1.0 - g)).mean()

    return grads(f, t(4, 48, 2205), ops.abs(t(48, 1)) + 0.5, t(48, 1))


def layernorm_bf16():
    def f(x, gamma, beta):
        return ops.gelu(ops.layer_norm(x, (768,), gamma, beta, 1e-5), approximate="tanh").astype(ms.float32).mean()

    return grads(f, *(v.astype(ms.bfloat16) for v in (t(2000, 768), ops.abs(t(768)) + 0.5, t(768))))


def focal_loss():
    """A loss that takes the logarithm of one probability of each row."""
    x, y = t(20000, 21), labels(20000, 21)

    def f(x):
        log_p = ops.gather_elements(ops.log_softmax(x, -1), 1, y[:, None])[:, 0]
        return -(ops.square(1.0 - ops.exp(log_p)) * log_p).mean()

    return grad(f, x)


ALL = """mlp_infer_one mlp_odd_train tiny_mlp_latency matmul_f64 matmul_bf16 matmul_tall rmsnorm_silu log_softmax_wide columns_norm elementwise_f64
mobile_train mobile_infer stem_infer stem_train vgg_train gru_train gru_infer_one attention_long transformer_infer newton_loop
matmul_one_row attention_causal sort_rows topk_rows xent_ten xent_hundred softmax_masked layernorm_short layernorm_weights cifar_train
heat_stencil rotary_pairs poisson_loss softmax_middle mish_groupnorm vector_chain
word_vectors_train kalman_filter gaussian_process turned_vectors price_paths modulated_norm periodic_gate layernorm_bf16 focal_loss"""

if __name__ == "__main__":
    P.main(globals(), ALL)

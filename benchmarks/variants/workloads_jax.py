"""The variants in JAX, without the convolutional ones; the same options and output as ../peers/workloads_jax.py."""
import importlib.util
import pathlib

import jax
import jax.numpy as jnp
from jax import lax

_spec = importlib.util.spec_from_file_location("peers_jax", pathlib.Path(__file__).parent.parent / "peers" / "workloads_jax.py")
P = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(P)
t, labels, dense, lin, train, of = P.t, P.labels, P.dense, P.lin, P.train, P.of


def mlp(*sizes):
    params = {str(k): dense(i, o) for k, (i, o) in enumerate(zip(sizes, sizes[1:]))}

    def f(p, x):
        for k in range(len(sizes) - 2):
            x = jax.nn.relu(lin(p[str(k)], x))
        return lin(p[str(len(sizes) - 2)], x)

    return params, f


def infer(params, f, x):
    j = jax.jit(f)
    return lambda: j(params, x)


mlp_infer_one = lambda: infer(*mlp(784, 4096, 4096, 10), t(1, 784))
mlp_odd_train = lambda: train(*mlp(300, 500, 77, 13), t(100, 300), labels(100, 13))
tiny_mlp_latency = lambda: infer(*mlp(8, 32, 32, 4), t(1, 8))


def matmul_of(dtype, m, k, n):
    if dtype == jnp.float64:
        jax.config.update("jax_enable_x64", True)
    return of(lambda a, b: (a @ b).astype(jnp.float32), t(m, k).astype(dtype), t(k, n).astype(dtype), grad=False)


matmul_f64 = lambda: matmul_of(jnp.float64, 700, 700, 700)
matmul_bf16 = lambda: matmul_of(jnp.bfloat16, 768, 768, 768)
matmul_tall = lambda: matmul_of(jnp.float32, 20000, 40, 30)
matmul_one_row = lambda: matmul_of(jnp.float32, 1, 4096, 4096)
sort_rows = lambda: of(lambda x: (jnp.sort(x), jnp.argsort(x)), t(256, 4096), grad=False)
topk_rows = lambda: of(lambda x: lax.top_k(x, 10), t(512, 5000), grad=False)


def rmsnorm_silu():
    w = t(1500)
    return of(lambda x: jax.nn.silu(x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * w).sum(), t(1000, 1500))


log_softmax_wide = lambda: of(lambda x: (jax.nn.log_softmax(x, -1) ** 2).mean(), t(48, 50257))


def columns_norm():
    def f(x):
        m = x.mean(0)
        v = ((x - m) ** 2).mean(0)
        y = (x - m) / jnp.sqrt(v + 1e-5)
        return (y * y * y).mean()

    return of(f, t(20000, 100))


def elementwise_f64():
    jax.config.update("jax_enable_x64", True)
    return of(lambda x: (jnp.exp(jnp.sin(x)) * jnp.log(x * x + 1.0)).sum(), t(1000, 1000).astype(jnp.float64))


def gru(i, h):
    params = dict(wx=dense(i, 3 * h), wh=dense(h, 3 * h), fc=dense(h, 10))

    def f(p, x):
        s = jnp.zeros((x.shape[1], h))
        for k in range(x.shape[0]):
            ar, az, an = jnp.split(lin(p["wx"], x[k]), 3, 1)
            br, bz, bn = jnp.split(lin(p["wh"], s), 3, 1)
            r, z = jax.nn.sigmoid(ar + br), jax.nn.sigmoid(az + bz)
            s = (1 - z) * jnp.tanh(an + r * bn) + z * s
        return lin(p["fc"], s)

    return params, f


gru_train = lambda: train(*gru(100, 160), t(50, 20, 100), labels(20, 10), opt="adam")
gru_infer_one = lambda: infer(*gru(128, 512), t(40, 1, 128))


def attention_of(masked):
    q, k, v = t(1, 4, 1024, 64), t(1, 4, 1024, 64), t(1, 4, 1024, 64)
    f = lambda q, k, v: ((jax.nn.softmax(masked(q @ k.transpose(0, 1, 3, 2) * 0.125), -1) @ v) ** 2).sum()
    j = jax.jit(jax.value_and_grad(f, (0, 1, 2)))
    return lambda: j(q, k, v)


attention_long = lambda: attention_of(lambda scores: scores)
attention_causal = lambda: attention_of(lambda scores: jnp.where(jnp.triu(jnp.ones((1024, 1024), bool), 1), -1e9, scores))


def newton_loop():
    x = jnp.abs(t(1000)) + 0.5

    def f(x):
        more = lambda s: (jnp.abs(s[0] * s[0] - x).max() > 1e-5) & (s[1] < 50)
        return lax.while_loop(more, lambda s: (0.5 * (s[0] + x / s[0]), s[1] + 1), (x, 0))[0]

    j = jax.jit(f)
    return lambda: j(x)


def xent_of(n, classes):
    x, y = t(n, classes), labels(n, classes)
    return of(lambda x: -jnp.take_along_axis(jax.nn.log_softmax(x, -1), y[:, None], 1).mean(), x)


xent_ten = lambda: xent_of(65536, 10)
xent_hundred = lambda: xent_of(8192, 100)


def softmax_masked():
    x, w = t(8, 8, 256, 256), t(8, 8, 256, 256)
    mask = jnp.where(jnp.arange(256) < P.rng.integers(64, 257, (8, 1, 1, 1)), 0.0, -1e9).astype(jnp.float32)
    return of(lambda x: (jax.nn.softmax(x + mask, -1) * w).sum(), x)


def layernorm_of(rows, width):
    def f(x, g, b):
        m = x.mean(-1, keepdims=True)
        v = ((x - m) ** 2).mean(-1, keepdims=True)
        return jax.nn.gelu((x - m) * lax.rsqrt(v + 1e-5) * g + b).sum()

    j, a = jax.jit(jax.value_and_grad(f, (0, 1, 2))), (t(rows, width), jnp.ones(width), jnp.zeros(width))
    return lambda: j(*a)


layernorm_short = lambda: layernorm_of(100000, 16)
layernorm_weights = lambda: layernorm_of(4096, 768)


def heat_stencil():
    v = t(1200, 1100)

    def f(u):
        p = jnp.pad(u, 1)
        lap = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4.0 * u
        return ((u + 0.1 * lap - v) ** 2).mean()

    return of(f, t(1200, 1100))


def rotary_pairs():
    angle = jnp.outer(jnp.arange(200.0), 10000.0 ** (-jnp.arange(0, 64, 2) / 64))
    cos, sin = jnp.cos(angle), jnp.sin(angle)

    def f(x):
        a, b = x[..., ::2], x[..., 1::2]
        y = jnp.stack((a * cos - b * sin, a * sin + b * cos), -1).reshape(x.shape)
        return (y * y * x).sum()

    return of(f, t(4, 8, 200, 64))


def poisson_loss():
    return of(lambda x, y: (jnp.exp(x) - y * x + lax.lgamma(y + 1.0)).mean(), t(1000, 1000), jnp.abs(t(1000, 1000)) * 5.0)


softmax_middle = lambda: of(lambda x: jnp.square(jax.nn.softmax(x, 1)).sum(), t(64, 200, 60))


def mish_groupnorm():
    def f(x):
        g = x.reshape(16, 8, 4, 28, 28)
        y = (g - g.mean((2, 3, 4), keepdims=True)) * lax.rsqrt(g.var((2, 3, 4), keepdims=True) + 1e-5)
        return jax.nn.mish(y.reshape(x.shape)).sum()

    return of(f, t(16, 32, 28, 28))


def vector_chain():
    v, a, b = t(2000), t(2000, 1500) * 0.02, t(1500, 2000) * 0.02
    f = jax.jit(lambda v, a, b: a.T @ (jnp.tanh(v @ a) @ b + v))
    return lambda: f(v, a, b)


def word_vectors_train():
    tables = t(20000, 100), t(20000, 100)
    word, context = (jnp.asarray(P.rng.integers(0, 20000, shape)) for shape in ((256,), (256, 6)))
    sign = jnp.array([[1.0, -1, -1, -1, -1, -1]] * 256)

    def loss_of(p, w, c):
        return -jax.nn.log_sigmoid((p[1][c] @ p[0][w][:, :, None])[:, :, 0] * sign).sum(1).mean()

    def step(p, w, c):
        loss, g = jax.value_and_grad(loss_of)(p, w, c)
        return loss, jax.tree.map(lambda p, g: p - 0.5 * g, p, g)

    j, state = jax.jit(step, donate_argnums=0), [tables]

    def run():
        loss, state[0] = j(state[0], word, context)
        return loss, state[0]

    return run


def kalman_filter():
    jax.config.update("jax_enable_x64", True)
    eye, h, noise = jnp.eye(4), jnp.eye(2, 4), 0.5 * jnp.eye(2)

    def f(a, z):
        def step(state, z):
            x, p = state
            x, p = x @ a.T, a @ p @ a.T + 0.1 * eye
            s = h @ p @ h.T + noise
            e, inverse = z - x @ h.T, jnp.linalg.inv(s)
            gain = p @ h.T @ inverse
            loss = 0.5 * (e @ inverse * e).sum() + 8.0 * jnp.linalg.slogdet(s)[1]
            return (x + e @ gain.T, p - gain @ h @ p), loss

        return lax.scan(step, (jnp.zeros((16, 4)), eye), z)[1].sum()

    return of(f, 0.95 * eye + 0.1 * jnp.eye(4, k=2), t(60, 16, 2).astype(jnp.float64))


def gaussian_process():
    jax.config.update("jax_enable_x64", True)
    y = t(120, 1).astype(jnp.float64)

    def f(length, x):
        s = x / jnp.exp(length)
        k = jnp.exp(-0.5 * jnp.square(s[:, None] - s).sum(2)) + 0.1 * jnp.eye(120)
        lower = jnp.linalg.cholesky(k)
        return 0.5 * (y * jax.scipy.linalg.cho_solve((lower, True), y)).sum() + jnp.log(jnp.diag(lower)).sum()

    return of(f, jnp.array([0.1, 0.3, -0.2]), t(120, 3).astype(jnp.float64))


def turned_vectors():
    goal = t(30000, 3)

    def f(q, v):
        w, x, y, z = (q[:, k] / jnp.sqrt(jnp.square(q).sum(1)) for k in range(4))
        a, b, c = v[:, 0], v[:, 1], v[:, 2]
        i, j, k = y * c - z * b, z * a - x * c, x * b - y * a
        turned = jnp.stack((a + 2.0 * (w * i + y * k - z * j), b + 2.0 * (w * j + z * i - x * k), c + 2.0 * (w * k + x * j - y * i)), 1)
        return jnp.square(turned - goal).mean()

    return of(f, t(30000, 4), t(30000, 3))


def price_paths():
    noise = t(120, 2, 2000)

    @jax.jit
    def f(price, variance, noise):
        def step(k, state):
            price, variance = state
            root = jnp.sqrt(jnp.maximum(variance, 0.0) * 0.01)
            price = price * jnp.exp(root * noise[k, 0] - 0.005 * variance)
            return price, variance + (0.04 - variance) * 0.02 + 0.3 * root * noise[k, 1]

        return jnp.maximum(lax.fori_loop(0, 120, step, (price, variance))[0] - 1.0, 0.0).mean()

    price, variance = jnp.abs(t(2000)) * 0.0 + 1.0, jnp.abs(t(2000)) * 0.05
    return lambda: f(price, variance, noise)


def grads(f, *x):
    g = jax.jit(jax.value_and_grad(f, tuple(range(len(x)))))
    return lambda: g(*x)


def modulated_norm():
    def f(x, c):
        shift, scale, gate = jnp.split(c[:, None], 3, 2)
        d = x - x.mean(-1, keepdims=True)
        y = d * jax.lax.rsqrt(jnp.square(d).mean(-1, keepdims=True) + 1e-6) * (1.0 + scale) + shift
        return jnp.square(x + gate * jax.nn.gelu(y)).mean()

    return grads(f, t(8, 196, 384), t(8, 1152) * 0.1)


def periodic_gate():
    def f(x, a, b):
        s = jnp.sin(x * a)
        y, g = x + s * s / a, jax.nn.sigmoid(b)
        return jnp.square(y * g + x * (1.0 - g)).mean()

    return grads(f, t(4, 48, 2205), jnp.abs(t(48, 1)) + 0.5, t(48, 1))


def layernorm_bf16():
    def f(x, gamma, beta):
        d = x - x.mean(-1, keepdims=True)
        y = d * jax.lax.rsqrt(jnp.square(d).mean(-1, keepdims=True) + 1e-5) * gamma + beta
        return jax.nn.gelu(y).astype(jnp.float32).mean()

    return grads(f, *(jnp.asarray(v).astype(jnp.bfloat16) for v in (t(2000, 768), jnp.abs(t(768)) + 0.5, t(768))))


def focal_loss():
    x, y = t(20000, 21), labels(20000, 21)

    def f(x):
        log_p = jnp.take_along_axis(jax.nn.log_softmax(x, -1), y[:, None], 1)[:, 0]
        return -(jnp.square(1.0 - jnp.exp(log_p)) * log_p).mean()

    return of(f, x)


if __name__ == "__main__":
    P.main(globals())

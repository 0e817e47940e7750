"""The variants in PyTorch; the same options and output as ../peers/workloads_torch.py."""
import importlib.util
import pathlib

import torch
import torch.nn as nn
import torch.nn.functional as F

_spec = importlib.util.spec_from_file_location("peers_torch", pathlib.Path(__file__).parent.parent / "peers" / "workloads_torch.py")
P = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(P)
t, labels, train, infer = P.t, P.labels, P.train, P.infer


def mlp(*sizes):
    layers = [m for i, o in zip(sizes[:-2], sizes[1:-1]) for m in (nn.Linear(i, o), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(*sizes[-2:]))


mlp_infer_one = lambda: infer(mlp(784, 4096, 4096, 10), t(1, 784))
mlp_odd_train = lambda: train(mlp(300, 500, 77, 13), t(100, 300), labels(100, 13))
tiny_mlp_latency = lambda: infer(mlp(8, 32, 32, 4), t(1, 8))


def matmul_of(dtype, m, k, n):
    a, b = t(m, k).to(dtype), t(k, n).to(dtype)
    f = P.jit(lambda a, b: (a @ b).float())
    return lambda: f(a, b)


matmul_f64 = lambda: matmul_of(torch.float64, 700, 700, 700)
matmul_bf16 = lambda: matmul_of(torch.bfloat16, 768, 768, 768)
matmul_tall = lambda: matmul_of(torch.float32, 20000, 40, 30)
matmul_one_row = lambda: matmul_of(torch.float32, 1, 4096, 4096)


def rmsnorm_silu():
    w = t(1500)
    return P.grad_of(lambda x: F.silu(x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * w).sum(), t(1000, 1500))


log_softmax_wide = lambda: P.grad_of(lambda x: (F.log_softmax(x, -1) ** 2).mean(), t(48, 50257))


def columns_norm():
    def f(x):
        m = x.mean(0)
        v = ((x - m) ** 2).mean(0)
        y = (x - m) / torch.sqrt(v + 1e-5)
        return (y * y * y).mean()

    return P.grad_of(f, t(20000, 100))


elementwise_f64 = lambda: P.grad_of(lambda x: (torch.exp(torch.sin(x)) * torch.log(x * x + 1.0)).sum(), t(1000, 1000).double())


class Inverted(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        mid = cin * 4
        self.net = nn.Sequential(nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid), nn.ReLU6(),
                                 nn.Conv2d(mid, mid, 3, stride, 1, groups=mid, bias=False), nn.BatchNorm2d(mid), nn.ReLU6(),
                                 nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout))
        self.same = stride == 1 and cin == cout

    def forward(self, x):
        y = self.net(x)
        return x + y if self.same else y


class Mobile(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU6())
        self.body = nn.Sequential(Inverted(16, 24, 2), Inverted(24, 24, 1), Inverted(24, 40, 2), Inverted(40, 40, 1))
        self.fc = nn.Linear(40, 10)

    def forward(self, x):
        return self.fc(self.body(self.stem(x)).mean((2, 3)))


mobile_train = lambda: train(Mobile(), t(8, 3, 96, 96), labels(8, 10))
mobile_infer = lambda: infer(Mobile(), t(1, 3, 160, 160))


class Stem(nn.Module):
    def __init__(self):
        super().__init__()
        self.c, self.b, self.pool = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.MaxPool2d(3, 2, 1)
        self.down = nn.Sequential(nn.Conv2d(64, 256, 1, bias=False), nn.BatchNorm2d(256))
        self.a, self.d, self.fc = self.neck(64), self.neck(256), nn.Linear(256, 100)

    def neck(self, cin):
        return nn.Sequential(nn.Conv2d(cin, 64, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1, bias=False),
                             nn.BatchNorm2d(64), nn.ReLU(), nn.Conv2d(64, 256, 1, bias=False), nn.BatchNorm2d(256))

    def forward(self, x):
        x = self.pool(F.relu(self.b(self.c(x))))
        x = F.relu(self.down(x) + self.a(x))
        x = F.relu(x + self.d(x))
        return self.fc(x.mean((2, 3)))


stem_infer = lambda: infer(Stem(), t(1, 3, 224, 224))
stem_train = lambda: train(Stem(), t(4, 3, 112, 112), labels(4, 100))


def vgg_train():
    net = nn.Sequential(nn.Conv2d(3, 32, 5, 1, 2), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(32, 48, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2),
                        nn.Conv2d(48, 64, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(1024, 100), nn.ReLU(), nn.Linear(100, 10))
    return train(net, t(32, 3, 32, 32), labels(32, 10))


class Gru(nn.Module):
    def __init__(self, i=100, h=160):
        super().__init__()
        self.h, self.wx, self.wh, self.fc = h, nn.Linear(i, 3 * h), nn.Linear(h, 3 * h), nn.Linear(h, 10)

    def forward(self, x):
        h = torch.zeros(x.shape[1], self.h)
        for i in range(x.shape[0]):
            ar, az, an = self.wx(x[i]).split(self.h, 1)
            br, bz, bn = self.wh(h).split(self.h, 1)
            r, z = torch.sigmoid(ar + br), torch.sigmoid(az + bz)
            h = (1 - z) * torch.tanh(an + r * bn) + z * h
        return self.fc(h)


gru_train = lambda: train(Gru(), t(50, 20, 100), labels(20, 10), opt="adam")
gru_infer_one = lambda: infer(Gru(128, 512), t(40, 1, 128))


def attention_of(attend):
    q, k, v = (t(1, 4, 1024, 64).requires_grad_(True) for _ in range(3))
    f = P.jit(lambda q, k, v: (attend(q, k, v) ** 2).sum())

    def run():
        q.grad = k.grad = v.grad = None
        y = f(q, k, v)
        y.backward()
        return y.detach()

    return run


attention_long = lambda: attention_of(lambda q, k, v: torch.softmax(q @ k.transpose(2, 3) * 0.125, -1) @ v)
attention_causal = lambda: attention_of(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True))


def first_of(f, x):
    """`f`, compiled if asked for, which gives values and indices."""
    f = P.jit(f)
    return lambda: f(x)[0]


sort_rows = lambda: first_of(lambda x: tuple(torch.sort(x)), t(256, 4096))
topk_rows = lambda: first_of(lambda x: tuple(torch.topk(x, 10)), t(512, 5000))


def transformer_infer():
    tok = torch.from_numpy(P.rng.integers(0, 1000, (1, 100)))
    return infer(P.Transformer(L=100), tok)


def xent_of(n, classes):
    x, y = t(n, classes), labels(n, classes)
    return P.grad_of(lambda x: F.cross_entropy(x, y), x)


xent_ten = lambda: xent_of(65536, 10)
xent_hundred = lambda: xent_of(8192, 100)


def softmax_masked():
    x, w = t(8, 8, 256, 256), t(8, 8, 256, 256)
    mask = torch.where(torch.arange(256) < torch.from_numpy(P.rng.integers(64, 257, (8, 1, 1, 1))), 0.0, -1e9)
    return P.grad_of(lambda x: (F.softmax(x + mask, -1) * w).sum(), x)


def layernorm_of(rows, width):
    norm = nn.LayerNorm(width)

    def f(x):
        norm.zero_grad()
        return F.gelu(norm(x), approximate="tanh").sum()

    return P.grad_of(f, t(rows, width))


layernorm_short = lambda: layernorm_of(100000, 16)
layernorm_weights = lambda: layernorm_of(4096, 768)


class CifarCnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(3, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(32, 32, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2),
                                 nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(1024, 64), nn.ReLU(), nn.Linear(64, 10))

    def forward(self, x):
        return self.net(x)


cifar_train = lambda: train(CifarCnn(), t(64, 3, 32, 32), labels(64, 10))


def newton_loop():
    x = t(1000).abs() + 0.5

    def f(x):
        y = x
        for _ in range(50):
            if (y * y - x).abs().max() <= 1e-5:
                break
            y = 0.5 * (y + x / y)
        return y

    def run():
        with torch.no_grad():
            return f(x)

    return run


def heat_stencil():
    v = t(1200, 1100)

    def f(u):
        p = F.pad(u, (1, 1, 1, 1))
        lap = p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4.0 * u
        return F.mse_loss(u + 0.1 * lap, v)

    return P.grad_of(f, t(1200, 1100))


def rotary_pairs():
    angle = torch.outer(torch.arange(200.0), 10000.0 ** (-torch.arange(0, 64, 2) / 64))
    cos, sin = torch.cos(angle), torch.sin(angle)

    def f(x):
        a, b = x[..., ::2], x[..., 1::2]
        y = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        return (y * y * x).sum()

    return P.grad_of(f, t(4, 8, 200, 64))


def poisson_loss():
    y = t(1000, 1000).abs() * 5.0
    return P.grad_of(lambda x: (torch.exp(x) - y * x + torch.lgamma(y + 1.0)).mean(), t(1000, 1000))


softmax_middle = lambda: P.grad_of(lambda x: torch.softmax(x, 1).square().sum(), t(64, 200, 60))


def mish_groupnorm():
    norm = nn.GroupNorm(8, 32)
    return P.grad_of(lambda x: F.mish(norm(x)).sum(), t(16, 32, 28, 28))


def vector_chain():
    v, a, b = t(2000), t(2000, 1500) * 0.02, t(1500, 2000) * 0.02
    f = P.jit(lambda v, a, b: a.T @ (torch.tanh(v @ a) @ b + v))
    return lambda: f(v, a, b)


def word_vectors_train():
    tables = [nn.Embedding(20000, 100, sparse=True) for _ in range(2)]
    o = torch.optim.SGD([p for m in tables for p in m.parameters()], lr=0.5)
    word, context = (torch.from_numpy(P.rng.integers(0, 20000, shape)) for shape in ((256,), (256, 6)))
    sign = torch.tensor([[1.0, -1, -1, -1, -1, -1]] * 256)
    loss_of = P.jit(lambda: -F.logsigmoid((tables[1](context) @ tables[0](word).unsqueeze(2)).squeeze(2) * sign).sum(1).mean())

    def step():
        o.zero_grad()
        loss = loss_of()
        loss.backward()
        o.step()
        return loss.detach()

    return step


def kalman_filter():
    eye = torch.eye(4, dtype=torch.float64)
    h, noise = eye[:2], 0.5 * torch.eye(2, dtype=torch.float64)
    z = t(60, 16, 2).double()

    def f(a):
        x, p, loss = torch.zeros(16, 4, dtype=torch.float64), eye, 0.0
        for k in range(60):
            x, p = x @ a.T, a @ p @ a.T + 0.1 * eye
            s = h @ p @ h.T + noise
            e, inverse = z[k] - x @ h.T, torch.linalg.inv(s)
            gain = p @ h.T @ inverse
            loss = loss + 0.5 * (e @ inverse * e).sum() + 8.0 * torch.logdet(s)
            x, p = x + e @ gain.T, p - gain @ h @ p
        return loss

    return P.grad_of(f, 0.95 * eye + 0.1 * torch.diag(torch.ones(2, dtype=torch.float64), 2))


def gaussian_process():
    y, x = t(120, 1).double(), t(120, 3).double()

    def f(length):
        s = x / torch.exp(length)
        k = torch.exp(-0.5 * (s.unsqueeze(1) - s).square().sum(2)) + 0.1 * torch.eye(120, dtype=torch.float64)
        lower = torch.linalg.cholesky(k)
        return 0.5 * (y * torch.cholesky_solve(y, lower)).sum() + torch.log(torch.diagonal(lower)).sum()

    return P.grad_of(f, torch.tensor([0.1, 0.3, -0.2], dtype=torch.float64))


def turned_vectors():
    def f(q):
        w, x, y, z = (q[:, k] / q.square().sum(1).sqrt() for k in range(4))
        a, b, c = v[:, 0], v[:, 1], v[:, 2]
        i, j, k = y * c - z * b, z * a - x * c, x * b - y * a
        turned = torch.stack((a + 2.0 * (w * i + y * k - z * j), b + 2.0 * (w * j + z * i - x * k), c + 2.0 * (w * k + x * j - y * i)), 1)
        return (turned - goal).square().mean()

    goal, q, v = t(30000, 3), t(30000, 4), t(30000, 3)
    return P.grad_of(f, q)


def price_paths():
    noise = t(120, 2, 2000)
    price, variance = t(2000).abs() * 0.0 + 1.0, t(2000).abs() * 0.05

    @torch.no_grad()
    def f(price, variance, noise):
        for k in range(120):
            root = (torch.relu(variance) * 0.01).sqrt()
            price = price * torch.exp(root * noise[k, 0] - 0.005 * variance)
            variance = variance + (0.04 - variance) * 0.02 + 0.3 * root * noise[k, 1]
        return torch.relu(price - 1.0).mean()

    g = P.jit(f)
    return lambda: g(price, variance, noise)


def grads(f, *x):
    for leaf in x:
        leaf.requires_grad_(True)
    g = P.jit(f)

    def run():
        for leaf in x:
            leaf.grad = None
        y = g(*x)
        y.backward()
        return y.detach()

    return run


def modulated_norm():
    def f(x, c):
        shift, scale, gate = torch.chunk(c[:, None], 3, 2)
        y = F.layer_norm(x, (384,), None, None, 1e-6) * (1.0 + scale) + shift
        return (x + gate * F.gelu(y, approximate="tanh")).square().mean()

    return grads(f, t(8, 196, 384), t(8, 1152) * 0.1)


def periodic_gate():
    def f(x, a, b):
        s = torch.sin(x * a)
        y, g = x + s * s / a, torch.sigmoid(b)
        return (y * g + x * (1.0 - g)).square().mean()

    return grads(f, t(4, 48, 2205), t(48, 1).abs() + 0.5, t(48, 1))


def layernorm_bf16():
    def f(x, gamma, beta):
        return F.gelu(F.layer_norm(x, (768,), gamma, beta, 1e-5), approximate="tanh").float().mean()

    return grads(f, *(v.bfloat16() for v in (t(2000, 768), t(768).abs() + 0.5, t(768))))


def focal_loss():
    x, y = t(20000, 21), labels(20000, 21)

    def f(x):
        log_p = F.log_softmax(x, -1).gather(1, y[:, None])[:, 0]
        return -(torch.square(1.0 - torch.exp(log_p)) * log_p).mean()

    return P.grad_of(f, x)


if __name__ == "__main__":
    P.main(globals())

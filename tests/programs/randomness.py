"""Random functions: dtypes, shapes and refused arguments (the numbers themselves are the generator's own)."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tests.recording import module_first, ramp

EXPRESSIONS = [
    "ops.rand(2, 3)",
    "ops.rand((2, 3))",
    "ops.rand()",
    "ops.rand(3, dtype=ms.float16)",
    "ops.rand(3, dtype=ms.float64)",
    "ops.rand(3, seed=2)",
    "ops.rand(3, dtype=ms.int32)",
    "ops.rand(-1)",
    "ops.rand(2.5)",
    "ops.rand('x')",
    "ops.rand(3, seed=-1)",
    "ops.rand(3, seed='x')",
    "ops.randn(2, 3)",
    "ops.randn((2,))",
    "ops.randn(3, dtype=ms.float16)",
    "ops.randn(3, dtype=ms.int32)",
    "ops.rand_like(Tensor(ramp((2, 3))))",
    "ops.rand_like(Tensor(ramp((2, 3))), dtype=ms.float16)",
    "ops.rand_like(Tensor([1, 2]), dtype=ms.float32)",
    "ops.rand_like(Tensor([1, 2]))",
    "ops.rand_like(3)",
    "ops.randn_like(Tensor(ramp((2, 3))))",
    "ops.randn_like(3)",
    "ops.randint(0, 10, (2, 3))",
    "ops.randint(-5, 5, (4,), dtype=ms.int32)",
    "ops.randint(5, 5, (4,))",
    "ops.randint(0.5, 5, (4,))",
    "ops.randint(0, 5, 'x')",
    "ops.randint(0, 10, (2,), dtype=ms.float32)",
    "ops.randint_like(Tensor(ramp((2, 3))), 0, 5)",
    "ops.randint_like(Tensor([1, 2]), 0, 5)",
    "ops.randperm(5)",
    "ops.randperm(0)",
    "ops.randperm(-1)",
    "ops.randperm(2.5)",
    "ops.randperm(5, dtype=ms.int32)",
    "ops.uniform((1, 4), Tensor(1.0), Tensor(2.0), seed=1)",
    "ops.uniform((2, 2), Tensor([1.0, 2.0]), Tensor([3.0, 4.0]))",
    "ops.uniform((3, 2), Tensor([1, 2], ms.int32), Tensor([3, 4], ms.int32), dtype=ms.int32)",
    "ops.uniform((2,), 1.0, 2.0)",
    "ops.uniform((-2,), Tensor(1.0), Tensor(2.0))",
    "ops.normal((2, 3), Tensor(0.0), Tensor(1.0))",
    "ops.normal((2, 3), 0.0, 1.0)",
    "ops.normal((2, 3), Tensor([1.0, 2.0, 3.0]), Tensor(1.0), seed=3)",
    "ops.normal((2, 3), 'x', 1.0)",
    "ops.standard_normal((2, 3))",
    "ops.standard_normal((2, 3), seed=1)",
    "ops.standard_laplace((2, 3))",
    "ops.laplace((2, 3), Tensor(1.0), Tensor(2.0))",
    "ops.bernoulli(Tensor(ramp((2, 3))), 0.3)",
    "ops.bernoulli(Tensor([1, 2, 3]), 1.0)",
    "ops.bernoulli(Tensor([1, 2, 3], ms.int32), Tensor([0.0, 1.0, 1.0]))",
    "ops.bernoulli(Tensor([1.0]), 1.5)",
    "ops.bernoulli(Tensor([1.0]), 'x')",
    "ops.bernoulli(3.0)",
    "ops.multinomial(Tensor([0.0, 1.0, 0.0]), 4)",
    "ops.multinomial(Tensor([[0.1, 0.9], [0.5, 0.5]]), 3)",
    "ops.multinomial(Tensor([0.1, 0.5, 0.4]), 2, False)",
    "ops.multinomial(Tensor([0.1, 0.5, 0.4]), 4, False)",
    "ops.multinomial(Tensor([0.1, 0.5, 0.4]), 0)",
    "ops.multinomial(Tensor([0.1, 0.5, 0.4]), 2.5)",
    "ops.multinomial(Tensor([1, 2]), 2)",
    "ops.gumbel_softmax(Tensor(ramp((2, 3))))",
    "ops.gumbel_softmax(Tensor(ramp((2, 3))), 0.5, True, 0)",
    "ops.gumbel_softmax(Tensor(ramp((2, 3))), 0.0)",
    "ops.gumbel_softmax(Tensor([1, 2]))",
    "ops.dropout(Tensor(ramp((2, 3))), 0.3)",
    "ops.dropout(Tensor(ramp((2, 3)), ms.float16), 0.3)",
    "ops.dropout(Tensor(ramp((2, 3))), 0.3, True, 2)",
    "ops.dropout(3.0)",
    "ops.dropout(Tensor([1, 2]), 0.5)",
    "ops.dropout1d(Tensor(ramp((2, 3, 4))))",
    "ops.dropout1d(Tensor(ramp((2, 3, 4))), 2.0)",
    "ops.dropout1d(Tensor(ramp((2, 3, 4, 5))))",
    "ops.dropout2d(Tensor(ramp((2, 3, 4, 5))), 0.2)",
    "ops.dropout2d(Tensor(ramp((2, 3))), 0.2)",
    "ops.dropout3d(Tensor(ramp((2, 3, 2, 2, 2))), 0.2)",
    "ops.shuffle(Tensor(ramp((4, 2))))",
    "ops.gamma((3,), 1., 1.)",
    "ops.gamma((3,), Tensor([1,2]), Tensor([1,2]))",
    "ops.gamma(3, Tensor(1.), Tensor(1.))",
    "ops.random_gamma(Tensor([3,2]), Tensor([1.,2.]))",
    "ops.random_gamma(Tensor([3]), Tensor([1.,2.],ms.float64), seed=2)",
    "ops.random_gamma((3,), Tensor([1.,2.]))",
    "ops.random_gamma(Tensor([3]), 1.)",
    "ops.random_gamma(Tensor([3]), Tensor([1,2]))",
    "ops.random_poisson(Tensor([3,2]), Tensor([1.,2.]))",
    "ops.random_poisson(Tensor([3]), Tensor([1.,2.]), seed=3, dtype=ms.int32)",
    "ops.random_poisson(Tensor([3]), Tensor(4.), dtype=ms.float64)",
    "ops.random_poisson((3,), Tensor(4.))",
    "ops.random_poisson(Tensor([3]), 4.)",
    "ops.random_poisson(Tensor([3]), Tensor([1,2]))",
    "ops.random_poisson(Tensor([3]), Tensor(4.), dtype=ms.int8)",
    "ops.random_categorical(Tensor(np.zeros((2,5),np.float32)), 4)",
    "ops.random_categorical(Tensor(np.zeros((2,5),np.float32)), 4, 3, ms.int32)",
    "ops.random_categorical(Tensor(np.zeros((2,5),np.float16)), 4, 3, ms.int16)",
    "ops.random_categorical(Tensor(np.zeros((5,),np.float32)), 4)",
    "ops.random_categorical(Tensor(np.zeros((2,5),np.float32)), -1)",
    "ops.random_categorical(Tensor(np.zeros((2,5),np.float32)), 0)",
    "ops.random_categorical(Tensor(np.zeros((2,5),np.float32)), 2.5)",
    "ops.random_categorical(Tensor(np.zeros((2,5),np.int32)), 2)",
    "ops.random_categorical(Tensor(np.zeros((2,5),np.float32)), 4, 0, ms.float32)",
    "ops.multinomial_with_replacement(Tensor([[0.,9.,4.,0.]]), Tensor(2), Tensor(5), 2, True)",
    "ops.multinomial_with_replacement(Tensor([[0.,9.,4.,0.]]), 2, 5, 2, True)",
    "ops.multinomial_with_replacement(Tensor([[0.,9.,4.,0.]]), 2, 5, 2)",
    "ops.multinomial_with_replacement(Tensor([0.,9.,4.,0.]), 2, 5, 2)",
    "ops.multinomial_with_replacement(Tensor([0.,9.,4.,0.]), 2, 5, 3)",
    "ops.log_uniform_candidate_sampler(Tensor([[1, 7], [0, 4], [3, 3]]), 2, 5, True, 8)",
    "ops.log_uniform_candidate_sampler(Tensor([[1, 7], [0, 4], [3, 3]]), 2, 5, False, 8, 3)",
    "ops.log_uniform_candidate_sampler(Tensor([[1, 7], [0, 4], [3, 3]]), 2, 9, True, 8)",
    "ops.uniform_candidate_sampler(Tensor([[1], [3], [4], [6], [3]]), 1, 3, False, 4)",
    "ops.uniform_candidate_sampler(Tensor([[1], [3], [4], [6], [3]]), 1, 3, True, 4)",
    "ops.uniform_candidate_sampler(Tensor([[1], [3], [4], [6], [3]]), 1, 5, True, 4)",
    "ops.choice_with_mask(Tensor(np.ones((4,3),bool)))",
    "ops.choice_with_mask(Tensor(np.ones((4,3),bool)), 5, 2)",
    "ops.choice_with_mask(Tensor(np.zeros((4,3),bool)), 5)",
    "ops.choice_with_mask(Tensor(np.ones((4,),bool)), 5)",
    "ops.choice_with_mask(Tensor(np.ones((4,3),np.float32)), 5)",
    "Tensor(np.zeros(3,np.float32)).multinomial(2)",
    "Tensor(np.ones(3,np.float32)).multinomial(2)",
    "Tensor(np.ones((2,3),np.float32)).random_categorical(2)",
    "ops.UniformInt()((2,3), Tensor(1,ms.int32), Tensor(5,ms.int32))",
    "ops.UniformInt(3)((2,3), Tensor(1,ms.int32), Tensor(5,ms.int32))",
    "ops.UniformInt()((2,3), Tensor([1,2,3],ms.int32), Tensor(5,ms.int32))",
    "ops.UniformReal(seed=2)((2,2))",
    "ops.UniformReal(seed=2, seed2=3)((2,2))",
    "ops.StandardNormal(seed=2)((3, 4))",
    "ops.StandardLaplace(seed=2)((3, 4))",
    "ops.RandomGamma(seed=3)(Tensor([3, 2]), Tensor([1.,2.]))",
    "ops.RandomPoisson(seed=3, dtype=ms.int32)(Tensor([3, 2]), Tensor([1.,2.]))",
    "ops.RandomCategorical()(Tensor(np.zeros((2,5),np.float32)), 4, 0)",
    "ops.RandomCategorical(ms.int64)(Tensor(np.zeros((2,5),np.float32)), 4, 2)",
    "ops.RandomShuffle(seed=1)(Tensor(np.arange(4.0)))",
    "ops.Multinomial(seed=10)(Tensor([[0., 9., 4., 0.]]), 2)",
    "ops.Multinomial(seed=10, dtype=ms.int64)(Tensor([0., 9., 4., 0.]), 6)",
    "ops.MultinomialWithReplacement(numsamples=2,replacement=True)(Tensor([[0., 9., 4., 0.]]), Tensor(2), Tensor(5))",
    "ops.RandomChoiceWithMask(count=4, seed=1)(Tensor(np.ones((4,3),bool)))",
    "ops.Bernoulli()(Tensor([1.,2.]), Tensor([0.,1.]))",
    "ops.RandpermV2(0,0)(5)",
    "ops.TruncatedNormal()(Tensor([2,3],ms.int32))",
    "ops.TruncatedNormal(ms.float64, 3)(Tensor([2,3],ms.int32))",
    "ops.LogNormalReverse(1.,2.)(Tensor(np.zeros((2,3),np.float32)))",
    "ops.LogUniformCandidateSampler(2,5,True,8)(Tensor([[1, 7], [0, 4], [3, 3]]))",
    "ops.UniformCandidateSampler(1,3,False,4)(Tensor([[1], [3], [4], [6], [3]]))",
    "ops.Dropout(0.5)(Tensor(np.ones(4,np.float32)))",
    "ops.Dropout3D(0.5)(Tensor(np.ones((1,2,2,2,2),np.float32)))",
    "ms.set_seed(1)",
    "ms.set_seed(-1)",
    "ms.set_seed('x')",
    "ms.set_seed(1.5)",
    "ms.set_seed(2**32)",
    "(ms.set_seed(7), ms.get_seed())",
    "(ms.set_seed(1), np.random.uniform(0, 3, (2, 5)))[1]",
]


def describe(ms: Any, expression: str) -> Any:
    return _kind(ms, eval(expression, {"ms": ms, "ops": ms.ops, "Tensor": ms.Tensor, "np": np, "ramp": ramp}))


def _kind(ms: Any, result: Any) -> Any:
    if isinstance(result, tuple):
        return [_kind(ms, r) for r in result]
    return [str(result.dtype), list(result.shape)] if isinstance(result, ms.Tensor) else result


def repeats(ms: Any) -> Any:
    """Two draws, the seed set again, two draws: are they the same, and do the two differ?"""
    results = []
    for draw in (
        lambda: ms.ops.rand(3),
        lambda: ms.ops.randn(3),
        lambda: ms.ops.uniform((3,), ms.Tensor(1.0), ms.Tensor(2.0), seed=5),
        lambda: ms.ops.standard_normal((3,), seed=5),
        lambda: ms.ops.dropout(ms.Tensor(np.ones(40, np.float32)), 0.5),
        lambda: ms.ops.randint(0, 1000, (5,)),
        lambda: ms.nn.Dense(2, 2).weight.value(),
    ):
        seen = []
        for _ in range(2):
            ms.set_seed(11)
            seen.append([draw().asnumpy().tolist() for _ in range(2)])
        results.append([seen[0] == seen[1], seen[0][0] == seen[0][1]])
    return results


def programs() -> dict[str, Any]:
    return {e: partial(module_first, describe, e) for e in EXPRESSIONS} | {"repeats": repeats}

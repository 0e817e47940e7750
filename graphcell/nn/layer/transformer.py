"""Transformer layers (Vaswani et al., 2017): attention of several heads, encoder, decoder, and both together."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from graphcell import dtype as dt
from graphcell import ops
from graphcell.common.initializer import XavierNormal, XavierUniform, initializer
from graphcell.errors import ArgumentTypeError, ArgumentValueError, ShapeError
from graphcell.nn.cell import Cell
from graphcell.nn.checks import positive_int
from graphcell.nn.layer.activation import GELU, ReLU
from graphcell.nn.layer.basic import Dense, Dropout
from graphcell.nn.layer.container import CellList
from graphcell.nn.layer.normalization import LayerNorm
from graphcell.ops.functional.attention import attend, attention_weights, both_masks, weighted_sum
from graphcell.parameter import Parameter
from graphcell.tensor import Tensor


class MultiheadAttention(Cell):
    """softmax(q @ k^T / sqrt(head_dim), masked) @ v for each of `num_heads` parts of the features, between projections.

    Args:
        embed_dim: features of query and output; a multiple of num_heads.
        num_heads: heads.
        dropout: in training, the probability of dropping a weight. Default 0.0.
        has_bias: of all projections. Default True.
        add_bias_kv: a trained key and value are added to those given. Default False.
        add_zero_attn: a key and value of zeros are added. Default False.
        kdim, vdim: features of key and value. Default embed_dim.
        batch_first: (batch, steps, features) instead of (steps, batch, features). Default False.
        dtype: of the Parameters.

    Inputs:
        query: (L, N, embed_dim), or (L, embed_dim) without a batch. key: (S, N, kdim). value: (S, N, vdim).
        key_padding_mask: (N, S): Bool, True for keys that do not count, or floats added to their scores.
        need_weights: also give the weights. Default True.
        attn_mask: (L, S) or (N * num_heads, L, S): Bool or UInt8, True for scores that do not count, or floats added to the scores.
        average_attn_weights: the weights given are the mean of all heads. Default True.

    Outputs: a tuple of the output, (L, N, embed_dim), and with need_weights the weights, (N, L, S), or (N, num_heads, L, S) if not averaged.

    Raises:
        ValueError: settings, shapes or masks that do not fit. TypeError: inputs of another dtype than the Parameters.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, has_bias: bool = True, add_bias_kv: bool = False, add_zero_attn: bool = False,
        kdim: int | None = None, vdim: int | None = None, batch_first: bool = False, dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        self.embed_dim, self.num_heads = embed_dim, positive_int("MultiheadAttention", "num_heads", num_heads)
        self.kdim, self.vdim = embed_dim if kdim is None else kdim, embed_dim if vdim is None else vdim
        self.dropout, self.batch_first, self.add_zero_attn, self.dtype = dropout, batch_first, add_zero_attn, dtype
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise ArgumentValueError("The init argument 'embed_dim' must be divisible by 'num_heads'.")
        self.in_proj_weight = self.q_proj_weight = self.k_proj_weight = self.v_proj_weight = None
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = _weight("in_proj_weight", (3 * embed_dim, embed_dim), dtype)
        else:
            self.q_proj_weight = _weight("q_proj_weight", (embed_dim, embed_dim), dtype)
            self.k_proj_weight = _weight("k_proj_weight", (embed_dim, self.kdim), dtype)
            self.v_proj_weight = _weight("v_proj_weight", (embed_dim, self.vdim), dtype)
        self.in_proj_bias = Parameter(initializer("zeros", (3 * embed_dim,), dtype), "in_proj_bias") if has_bias else None
        self.out_proj = Dense(embed_dim, embed_dim, has_bias=has_bias, dtype=dtype)
        self.bias_k: Any = Parameter(initializer(XavierNormal(), (1, 1, embed_dim), dtype), "bias_k") if add_bias_kv else None
        self.bias_v: Any = Parameter(initializer(XavierNormal(), (1, 1, embed_dim), dtype), "bias_v") if add_bias_kv else None

    def construct(
        self, query: Any, key: Any, value: Any, key_padding_mask: Any = None, need_weights: bool = True, attn_mask: Any = None,
        average_attn_weights: bool = True,
    ) -> Any:  # fmt: skip
        batched = self._check(query, key, value)
        q = self._batch_first(query, batched)
        k = q if key is query else self._batch_first(key, batched)  # what is one Tensor stays one
        v = k if value is key else self._batch_first(value, batched)
        q, k, v = self._project(q, k, v)
        mask = self._mask(key_padding_mask, attn_mask, q, k, batched)
        k, v, mask = self._with_more_keys(k, v, mask)
        weights: Any = None
        if need_weights or (self.training and self.dropout):
            weights = ops.dropout(attention_weights(q, k, self.num_heads, mask), self.dropout, self.training)
            y = weighted_sum(weights, v)
        else:
            y = attend(q, k, v, self.num_heads, mask)
        y = self.out_proj(y)
        y = y if batched and self.batch_first else ops.transpose(y, (1, 0, 2)) if batched else y[0]
        if not need_weights:
            return (y,)
        weights = weights.mean(1) if average_attn_weights else weights
        return y, weights if batched else weights[0]

    def _check(self, query: Any, key: Any, value: Any) -> bool:
        """Whether there is a batch dimension."""
        for name, x in (("query", query), ("key", key), ("value", value)):
            if not isinstance(x, Tensor):
                raise ArgumentTypeError(f"For 'MultiheadAttention', the '{name}' must be a Tensor, but got {type(x).__name__}.")
        rank = query.ndim
        if rank not in (2, 3):
            raise ShapeError(f"The `query` should be unbatched 2D or batched 3D tensor, but got `query` with {rank}D.")
        if key.ndim != rank or value.ndim != rank:
            raise ShapeError(
                f"For {'batched' if rank == 3 else 'unbatched'} `query`, the `key` and `value` must be {rank}D tensor, "
                f"but got `key` with {key.ndim}D and `value` with {value.ndim}D."
            )
        if query.shape[-1] != self.embed_dim:
            raise ShapeError(f"The `embed_dim` should be {self.embed_dim}, but got {query.shape[-1]}.")
        if key.shape[:-1] != value.shape[:-1] or (key.shape[-1], value.shape[-1]) != (self.kdim, self.vdim):
            raise ShapeError(
                f"The shape of `key` {key.shape} does not match `value` {value.shape}, where 'kdim' is {self.kdim} and 'vdim' is {self.vdim}."
            )
        batch = 0 if self.batch_first else 1
        if rank == 3 and query.shape[batch] != key.shape[batch]:
            raise ShapeError(f"The `query` {query.shape} and the `key` {key.shape} must have one batch size.")
        return bool(rank == 3)

    def _batch_first(self, x: Any, batched: bool) -> Any:
        """(batch, steps, features)."""
        if not batched:
            return x.expand_dims(0)
        return x if self.batch_first else ops.transpose(x, (1, 0, 2))

    def _project(self, q: Any, k: Any, v: Any) -> Any:
        """Queries, keys and values; one product for those that come from one Tensor."""
        e, bias = self.embed_dim, self.in_proj_bias
        if self.in_proj_weight is None:
            weights: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
            biases = (None,) * 3 if bias is None else ops.split(bias, e)
            return [ops.dense(x, w, b) for x, w, b in zip((q, k, v), weights, biases)]
        if q is k and k is v:
            return ops.split(ops.dense(q, self.in_proj_weight, bias), e, axis=2)
        parts = [(q, 0, 1), (k, 1, 3)] if k is v else [(q, 0, 1), (k, 1, 2), (v, 2, 3)]
        found: list[Any] = []
        for x, begin, end in parts:
            y = ops.dense(x, self.in_proj_weight[begin * e : end * e], None if bias is None else bias[begin * e : end * e])
            found.extend(ops.split(y, e, axis=2))
        return found

    def _mask(self, key_padding_mask: Any, attn_mask: Any, q: Any, k: Any, batched: bool) -> Any:
        """Both masks as one, for scores of shape (batch, heads, queries, keys); None if there is none."""
        shape = (q.shape[0], self.num_heads, q.shape[1], k.shape[1])
        masks = []
        if attn_mask is not None:
            masks.append(_mask_of_scores(attn_mask, shape))
        if key_padding_mask is not None:
            masks.append(_mask_of_keys(key_padding_mask, shape, batched))
        return both_masks(*masks) if len(masks) == 2 else masks[0] if masks else None

    def _with_more_keys(self, k: Any, v: Any, mask: Any) -> Any:
        """Keys and values with the trained one and that of zeros, which no mask refuses."""
        more = 0
        if self.bias_k is not None:
            k, v = (ops.concat((x, ops.broadcast_to(b, (x.shape[0], 1, self.embed_dim))), 1) for x, b in ((k, self.bias_k), (v, self.bias_v)))
            more += 1
        if self.add_zero_attn:
            k, v = (ops.concat((x, ops.zeros((x.shape[0], 1, self.embed_dim), x.dtype)), 1) for x in (k, v))
            more += 1
        if more and mask is not None:
            mask = ops.concat((mask, ops.zeros((*mask.shape[:3], more), mask.dtype)), 3)
        return k, v, mask


def _mask_of_scores(mask: Any, shape: tuple[int, ...]) -> Any:
    """An attn_mask, as one for scores of `shape`."""
    batch, heads, queries, keys = shape
    if mask.dtype == dt.uint8:
        mask = mask.astype(dt.bool_)
    if mask.dtype != dt.bool_ and not mask.dtype.is_float:
        raise ArgumentValueError(f"`attn_mask` only support float, byte, and bool types, but got not {mask.dtype}.")
    if mask.ndim not in (2, 3):
        raise ShapeError(f"The `attn_mask` must be `None`, 2-D or 3-D, but got `attn_mask` with {mask.ndim}D.")
    wanted = (queries, keys) if mask.ndim == 2 else (batch * heads, queries, keys)
    if mask.shape != wanted:
        raise ShapeError(f"The shape of the `attn_mask` should be {wanted}, but got {mask.shape}.")
    return mask.reshape((1, 1, queries, keys) if mask.ndim == 2 else shape)


def _mask_of_keys(mask: Any, shape: tuple[int, ...], batched: bool) -> Any:
    """A key_padding_mask, as one for scores of `shape`."""
    batch, _, _, keys = shape
    if mask.dtype != dt.bool_ and not mask.dtype.is_float:
        raise ArgumentValueError("only bool and floating types of key_padding_mask are supported")
    wanted = (batch, keys) if batched else (keys,)
    if mask.shape != wanted:
        raise ShapeError(f"The shape of `key_padding_mask` should be {wanted}, but got {mask.shape}.")
    return mask.reshape((batch, 1, 1, keys))


def _weight(name: str, shape: tuple[int, int], dtype: Any) -> Parameter:
    return Parameter(initializer(XavierUniform(), shape, dtype), name)


def _activation(given: Any) -> Callable[..., Any]:
    """relu or gelu: by name, as the function or as a Cell."""
    functions: tuple[Callable[..., Any], ...] = (ops.relu, ops.gelu)
    if isinstance(given, str):
        if given not in ("relu", "gelu"):
            raise ArgumentValueError(f"The activation must be relu/gelu, but get {given}")
        return functions[given == "gelu"]
    if not callable(given):
        raise ArgumentValueError(f"The argument 'activation' must be str, callable or Cell instance, but get {given}.")
    if given not in functions and not isinstance(given, (ReLU, GELU)):
        raise ArgumentValueError(f"The argument 'activation' must be ops.relu or ops.gelu instance, but get {given}.")
    return given  # type: ignore[no-any-return]


class _Layer(Cell):
    """What encoder and decoder layers have: attention, a network of two dense layers for each step, and `norms` sums with a norm.

    Args:
        d_model: features of input and output.
        nhead: heads.
        dim_feedforward: features between the dense layers. Default 2048.
        dropout: in training, the probability of dropping an element. Default 0.1.
        activation: 'relu' (default) or 'gelu', `ops.relu` or `ops.gelu`, or a Cell `nn.ReLU()` or `nn.GELU()`.
        layer_norm_eps: epsilon of the norms. Default 1e-5.
        batch_first: (batch, steps, features) instead of (steps, batch, features). Default False.
        norm_first: the norms come before the attention and the dense layers, not after the sums. Default False.
        dtype: of the Parameters.

    Raises:
        TypeError, ValueError: settings, shapes or masks that do not fit.
    """

    norms = 2

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1, activation: Any = "relu", layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        self.d_model, self.nhead, self.dim_feedforward = d_model, nhead, dim_feedforward
        self.batch_first, self.norm_first, self.dtype = batch_first, norm_first, dtype
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, dtype=dtype)
        if self.norms == 3:
            self.multihead_attn = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, dtype=dtype)
        self.dense1 = Dense(d_model, dim_feedforward, dtype=dtype)
        self.dropout = Dropout(p=dropout)
        self.dense2 = Dense(dim_feedforward, d_model, dtype=dtype)
        for k in range(self.norms):
            setattr(self, f"norm{k + 1}", LayerNorm((d_model,), epsilon=layer_norm_eps, dtype=dtype))
        for k in range(self.norms):
            setattr(self, f"dropout{k + 1}", Dropout(p=dropout))
        self.activation = _activation(activation)

    def _add(self, x: Any, norm: Cell, part: Callable[[Any], Any]) -> Any:
        """x and what `part` makes of it, with the norm before or after."""
        return x + part(norm(x)) if self.norm_first else norm(x + part(x))

    def _dense(self, x: Any) -> Any:
        return self.dense2(self.dropout(self.activation(self.dense1(x))))


class TransformerEncoderLayer(_Layer):
    """A layer of a Transformer's encoder: self-attention, then the dense layers.

    Inputs: src (steps, batch, d_model), or (steps, d_model); src_mask and src_key_padding_mask: see MultiheadAttention. Output: as src.
    """

    def construct(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None) -> Any:
        def attention(x: Any) -> Any:
            return self.dropout1(self.self_attn(x, x, x, src_key_padding_mask, False, src_mask)[0])

        x = self._add(src, self.norm1, attention)
        return self._add(x, self.norm2, lambda x: self.dropout2(self._dense(x)))


class TransformerDecoderLayer(_Layer):
    """A layer of a Transformer's decoder: self-attention, attention to the encoder's output, then the dense layers.

    Inputs: tgt (steps, batch, d_model), or (steps, d_model); memory: the encoder's output; masks: see MultiheadAttention. Output: as tgt.
    """

    norms = 3

    def construct(
        self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
    ) -> Any:  # fmt: skip
        def attention(x: Any) -> Any:
            return self.dropout1(self.self_attn(x, x, x, tgt_key_padding_mask, False, tgt_mask)[0])

        def attention_to_memory(x: Any) -> Any:
            return self.dropout2(self.multihead_attn(x, memory, memory, memory_key_padding_mask, False, memory_mask)[0])

        x = self._add(tgt, self.norm1, attention)
        x = self._add(x, self.norm2, attention_to_memory)
        return self._add(x, self.norm3, lambda x: self.dropout3(self._dense(x)))


class _Stack(Cell):
    """Copies of a layer, one after the other, and perhaps a norm at the end."""

    def __init__(self, layer: Cell, num_layers: int, norm: Cell | None):
        super().__init__()
        if not isinstance(layer, Cell):
            raise ArgumentTypeError(f"For '{type(self).__name__}', the layer must be a Cell, but got {type(layer).__name__}.")
        self.layers = CellList([copy.deepcopy(layer) for _ in range(num_layers)])
        self.num_layers, self.norm = num_layers, norm


class TransformerEncoder(_Stack):
    """A Transformer's encoder: `num_layers` copies of `encoder_layer`, then `norm`, if it is given.

    Inputs and output: as of TransformerEncoderLayer.
    """

    def __init__(self, encoder_layer: Cell, num_layers: int, norm: Cell | None = None):
        super().__init__(encoder_layer, num_layers, norm)

    def construct(self, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None) -> Any:
        for layer in self.layers:
            src = layer(src, src_mask, src_key_padding_mask)
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(_Stack):
    """A Transformer's decoder: `num_layers` copies of `decoder_layer`, then `norm`, if it is given.

    Inputs and output: as of TransformerDecoderLayer.
    """

    def __init__(self, decoder_layer: Cell, num_layers: int, norm: Cell | None = None):
        super().__init__(decoder_layer, num_layers, norm)

    def construct(
        self, tgt: Any, memory: Any, tgt_mask: Any = None, memory_mask: Any = None, tgt_key_padding_mask: Any = None,
        memory_key_padding_mask: Any = None,
    ) -> Any:  # fmt: skip
        for layer in self.layers:
            tgt = layer(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Cell):
    """An encoder and a decoder, each with a norm at the end; weights of two dimensions start Xavier uniform.

    Args:
        d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype: see TransformerEncoderLayer.
            Default d_model 512, nhead 8.
        num_encoder_layers, num_decoder_layers: default 6.
        custom_encoder, custom_decoder: Cells to be used instead.

    Inputs: src and tgt, (steps, batch, d_model), and masks, see MultiheadAttention. Output: as tgt.

    Raises:
        TypeError, ValueError: settings, shapes or masks that do not fit.
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6, dim_feedforward: int = 2048,
        dropout: float = 0.1, activation: Any = "relu", custom_encoder: Cell | None = None, custom_decoder: Cell | None = None,
        layer_norm_eps: float = 1e-5, batch_first: bool = False, norm_first: bool = False, dtype: Any = dt.float32,
    ):  # fmt: skip
        super().__init__()
        settings = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, dtype)
        norm = LayerNorm((d_model,), epsilon=layer_norm_eps, dtype=dtype)
        if custom_encoder is None:
            custom_encoder = TransformerEncoder(TransformerEncoderLayer(*settings), num_encoder_layers, norm)
        if custom_decoder is None:
            custom_decoder = TransformerDecoder(TransformerDecoderLayer(*settings), num_decoder_layers, copy.deepcopy(norm))
        self.encoder, self.decoder = custom_encoder, custom_decoder
        for p in self.get_parameters():
            if p.ndim > 1:
                p.set_data(initializer(XavierUniform(), p.shape, p.dtype))
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def construct(
        self, src: Any, tgt: Any, src_mask: Any = None, tgt_mask: Any = None, memory_mask: Any = None, src_key_padding_mask: Any = None,
        tgt_key_padding_mask: Any = None, memory_key_padding_mask: Any = None,
    ) -> Any:  # fmt: skip
        batch = 0 if self.batch_first else 1
        if src.ndim != tgt.ndim or (src.ndim == 3 and src.shape[batch] != tgt.shape[batch]):
            raise ShapeError(f"The batch size of 'src' and 'tgt' must be equal, but their shapes are {src.shape} and {tgt.shape}.")
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise ShapeError("The number of features for 'src' and 'tgt' must be equal to `d_model`.")
        memory = self.encoder(src, src_mask, src_key_padding_mask)
        return self.decoder(tgt, memory, tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)

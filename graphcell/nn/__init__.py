"""Neural network layers, losses and optimizers."""

from typing import TYPE_CHECKING

from graphcell.late import late as _late
from graphcell.nn import layer as layer
from graphcell.nn import optim as optim
from graphcell.nn.cell import Cell as Cell

METRICS = (
    "F1", "MAE", "MSE", "ROC", "Accuracy", "BleuScore", "ConfusionMatrix", "ConfusionMatrixMetric", "CosineSimilarity", "Dice", "Fbeta",
    "HausdorffDistance", "Loss", "MeanSurfaceDistance", "Metric", "OcclusionSensitivity", "Perplexity", "Precision", "Recall",
    "RootMeanSquareDistance", "Top1CategoricalAccuracy", "Top5CategoricalAccuracy", "TopKCategoricalAccuracy", "auc", "get_metric_fn", "names",
    "rearrange_inputs",
)  # fmt: skip
"""The names of `train.metrics`, which MindSpore has in `nn` too."""

_ROOMS = {
    "dynamic_lr": (
        "cosine_decay_lr", "exponential_decay_lr", "inverse_decay_lr", "natural_exp_decay_lr", "piecewise_constant_lr", "polynomial_decay_lr",
        "warmup_lr",
    ),
    "layer": layer.__all__,
    "learning_rate_schedule": ("CosineDecayLR", "ExponentialDecayLR", "InverseDecayLR", "NaturalExpDecayLR", "PolynomialDecayLR", "WarmUpLR"),
    "loss.loss": (
        "BCELoss", "BCEWithLogitsLoss", "CosineEmbeddingLoss", "CrossEntropyLoss", "CTCLoss", "DiceLoss", "FocalLoss", "GaussianNLLLoss",
        "HingeEmbeddingLoss", "HuberLoss", "KLDivLoss", "L1Loss", "LossBase", "MAELoss", "MarginRankingLoss", "MSELoss", "MultiClassDiceLoss",
        "MultilabelMarginLoss", "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "PoissonNLLLoss", "RMSELoss", "SampledSoftmaxLoss",
        "SmoothL1Loss", "SoftMarginLoss", "SoftmaxCrossEntropyWithLogits", "TripletMarginLoss", "TripletMarginWithDistanceLoss",
    ),
    "optim": optim.__all__,
    "wrap": (
        "DistributedGradReducer", "DynamicLossScaleUpdateCell", "FixedLossScaleUpdateCell", "ForwardValueAndGrad", "GetNextSingleOp",
        "GradAccumulationCell", "MicroBatchInterleaved", "ParameterUpdate", "PipelineCell", "PipelineGradReducer", "TrainOneStepCell",
        "TrainOneStepWithLossScaleCell", "VirtualDatasetCellTriple", "WithEvalCell", "WithGradCell", "WithLossCell",
    ),
}  # fmt: skip

__all__ = sorted(["Cell", *(name for room in _ROOMS.values() for name in room)])

if TYPE_CHECKING:
    from graphcell.nn.dynamic_lr import *  # noqa: F403
    from graphcell.nn.layer.activation import *  # noqa: F403
    from graphcell.nn.layer.basic import *  # noqa: F403
    from graphcell.nn.layer.channel_shuffle import *  # noqa: F403
    from graphcell.nn.layer.combined import *  # noqa: F403
    from graphcell.nn.layer.container import *  # noqa: F403
    from graphcell.nn.layer.conv import *  # noqa: F403
    from graphcell.nn.layer.dense import *  # noqa: F403
    from graphcell.nn.layer.embedding import *  # noqa: F403
    from graphcell.nn.layer.image import *  # noqa: F403
    from graphcell.nn.layer.math import *  # noqa: F403
    from graphcell.nn.layer.normalization import *  # noqa: F403
    from graphcell.nn.layer.padding import *  # noqa: F403
    from graphcell.nn.layer.pooling import *  # noqa: F403
    from graphcell.nn.layer.rnn_cells import *  # noqa: F403
    from graphcell.nn.layer.rnns import *  # noqa: F403
    from graphcell.nn.layer.timedistributed import *  # noqa: F403
    from graphcell.nn.layer.transformer import *  # noqa: F403
    from graphcell.nn.learning_rate_schedule import *  # noqa: F403
    from graphcell.nn.loss.loss import *  # noqa: F403
    from graphcell.nn.optim import *  # noqa: F403
    from graphcell.nn.wrap import *  # noqa: F403

else:
    __getattr__, __dir__ = _late(__name__, {**_ROOMS, "metrics": METRICS})

"""The programs of the owner's documents as they stand there (misprints mended), with the output that the documents, or MindSpore 2.10.0, show.

Where the two differ it is said beside the program: MindSpore 2.10 prints the gradient for an int position as a bare Tensor, and its
layers start from other numbers than those of the page on Functional and Cell.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

OutputOf = Callable[[str], str]

FUNCTIONAL = """
import mindspore as ms
import mindspore.nn as nn
import mindspore.ops as ops

class MyCell(nn.Cell):
    def construct(self, x, y):
        output = ops.add(x, y)
        return output

net = MyCell()
x = ms.Tensor([1, 2, 3], ms.float32)
y = ms.Tensor([4, 5, 6], ms.float32)
output = net(x, y)
print(output)
"""

MY_CELL = """
import mindspore.nn as nn
import mindspore.ops as ops

class MyCell(nn.Cell):
    def __init__(self, forward_net):
        super(MyCell, self).__init__(auto_prefix=True)
        self.net = forward_net
        self.relu = ops.ReLU()

    def construct(self, x):
        y = self.net(x)
        return self.relu(y)

"""

TRAINABLE = """
inner_net = nn.Conv2d(120, 240, 4, has_bias=False)
my_net = MyCell(inner_net)
print(my_net.trainable_params())
"""

DENSE = """
import mindspore.nn as nn

net = nn.Dense(2, 1, has_bias=True)
print(net.trainable_params())

for param in net.trainable_params():
    param_name = param.name
    if "bias" in param_name:
        param.requires_grad = False
print(net.trainable_params())
"""

CHECKPOINT = """
import mindspore as ms
import mindspore.ops as ops
import mindspore.nn as nn

net = nn.Dense(2, 1, has_bias=True)
for param in net.get_parameters():
    print(param.name, param.data.asnumpy())

ms.save_checkpoint(net, "dense.ckpt")
dense_params = ms.load_checkpoint("dense.ckpt")
print(dense_params)
new_params = {}
for param_name in dense_params:
    print(param_name, dense_params[param_name].data.asnumpy())
    new_params[param_name] = ms.Parameter(ops.ones_like(dense_params[param_name].data), name=param_name)

ms.load_param_into_net(net, new_params)
for param in net.get_parameters():
    print(param.name, param.data.asnumpy())
"""

SUB_CELLS = """
from mindspore import nn

class MyCell(nn.Cell):
    def __init__(self):
        super(MyCell, self).__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, 1)
        self.conv2 = nn.Conv2d(32, 64, 3, 1)
        # 使用insert_child_to_cell添加子模块
        self.insert_child_to_cell('conv3', nn.Conv2d(64, 128, 3, 1))

        self.sequential_block = nn.SequentialCell(
            nn.ReLU(),
            nn.Conv2d(128, 256, 3, 1),
            nn.ReLU()
        )

    def construct(self, x):
        x = self.conv1(x)
        x = self.conv2(x)
        x = self.conv3(x)
        x = self.sequential_block(x)
        return x

module = MyCell()

# 使用cells_and_names遍历所有子模块(包括直接和间接子模块)
for name, cell_instance in module.cells_and_names():
    print(f"Cell name: {name}, type: {type(cell_instance)}")
"""

CONVOLUTIONS = """
import numpy as np
import mindspore as ms

def compare(my_net):
    # 构造随机输入
    x = np.random.uniform(-1, 1, (2, 120, 12, 12)).astype(np.float32)
    for _, cell in my_net.cells_and_names():
        if isinstance(cell, nn.Conv2d):
            # 固定MindSpore初始化参数
            cell.weight.set_data(ms.common.initializer.initializer(0.1, cell.weight.shape, cell.weight.dtype))

    y_ms = my_net(ms.Tensor(x))
    wanted = np.lib.stride_tricks.sliding_window_view(x.astype(np.float64), (4, 4), axis=(2, 3)).sum((1, 4, 5)) * 0.1
    wanted = np.maximum(np.repeat(wanted[:, None], 240, axis=1), 0)
    return np.max(np.abs(y_ms.asnumpy() - wanted))

try:
    compare(MyCell(nn.Conv2d(120, 240, 4, has_bias=False)))
except ValueError as e:
    print(e)
print(compare(MyCell(nn.Conv2d(120, 240, 4, has_bias=False, pad_mode="pad"))) < 1e-4)
"""

NETWORK = """
import math
import numpy as np
import mindspore as ms
from mindspore import nn

# 定义模型
class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layer1 = nn.SequentialCell([
            nn.Conv2d(3, 12, kernel_size=3, pad_mode='pad', padding=1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2)
        ])
        self.layer2 = nn.SequentialCell([
            nn.Conv2d(12, 4, kernel_size=3, pad_mode='pad', padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=2, stride=2)
        ])
        self.pool = nn.AdaptiveMaxPool2d((5, 5))
        self.fc = nn.Dense(100, 10)

    def construct(self, x):
        x = self.layer1(x)
        x = self.layer2(x)
        x = self.pool(x)
        x = x.view((-1, 100))
        out = self.fc(x)
        return out

net = Network()
"""

MIXED_PRECISION = """
net.to_float(ms.float16)  # 将net里所有的操作加float16的标志,框架会在编译时在输入加cast方法
for _, cell in net.cells_and_names():
    if isinstance(cell, (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)):
        cell.to_float(ms.float32)

loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction='mean').to_float(ms.float32)
net_with_loss = nn.WithLossCell(net, loss_fn=loss)

x = ms.Tensor(np.random.uniform(-1, 1, (2, 3, 40, 40)), ms.float32)
print(net(x).dtype, net_with_loss(x, ms.Tensor([1, 2], ms.int32)).dtype)
"""

INITIALISATION = """
for _, cell in net.cells_and_names():
    if isinstance(cell, nn.Conv2d):
        cell.weight.set_data(ms.common.initializer.initializer(
            ms.common.initializer.HeNormal(negative_slope=0, mode='fan_out', nonlinearity='relu'),
            cell.weight.shape, cell.weight.dtype))
    elif isinstance(cell, (nn.BatchNorm2d, nn.GroupNorm)):
        cell.gamma.set_data(ms.common.initializer.initializer("ones", cell.gamma.shape, cell.gamma.dtype))
        cell.beta.set_data(ms.common.initializer.initializer("zeros", cell.beta.shape, cell.beta.dtype))
    elif isinstance(cell, (nn.Dense)):
        cell.weight.set_data(ms.common.initializer.initializer(
            ms.common.initializer.HeUniform(negative_slope=math.sqrt(5)),
            cell.weight.shape, cell.weight.dtype))
        cell.bias.set_data(ms.common.initializer.initializer("zeros", cell.bias.shape, cell.bias.dtype))

for name, p in net.parameters_and_names():
    print(name, p.shape, float(np.abs(p.asnumpy()).max()) > 0)
print(net(ms.Tensor(np.ones((1, 3, 40, 40)), ms.float32)).shape)
"""

SAMPLER = """
import numpy as np
import mindspore as ms
import mindspore.nn as nn
import mindspore.ops as ops

ms.set_context(mode=ms.PYNATIVE_MODE)
ms.set_seed(1)

class MySampler(nn.Cell):
    # 自定义取样器,在每个batch选取max_num个大于0.5的值
    def __init__(self, max_num):
        super(MySampler, self).__init__()
        self.max_num = max_num

    def random_positive(self, x):
        # 三方库numpy的方法,选取大于0.5的位置
        pos = np.where(x > 0.5)[0]
        pos_indice = np.random.choice(pos, self.max_num)
        return pos_indice

    def construct(self, x):
        # 正向网络构造
        batch = x.shape[0]
        pos_value = []
        pos_indice = []
        for i in range(batch):
            a = x[i].asnumpy()
            pos_ind = self.random_positive(a)
            pos_value.append(ms.Tensor(a[pos_ind], ms.float32))
            pos_indice.append(ms.Tensor(pos_ind, ms.int32))
        pos_values = ops.stack(pos_value, axis=0)
        pos_indices = ops.stack(pos_indice, axis=0)
        print("pos_values forword", pos_values)
        print("pos_indices forword", pos_indices)
        return pos_values, pos_indices
"""

BPROP = """
    def bprop(self, x, out, dout):
        # 反向网络构造
        pos_indices = out[1]
        print("pos_indices backward", pos_indices)
        grad_x = dout[0]
        print("grad_x backward", grad_x)
        batch = x.shape[0]
        dx = []
        for i in range(batch):
            dx.append(ops.UnsortedSegmentSum()(grad_x[i], pos_indices[i], x.shape[1]))
        return ops.stack(dx, axis=0)
"""

SAMPLE = """
x = ms.Tensor(np.random.uniform(0, 3, (2, 5)), ms.float32)
print("x", x)
sampler = MySampler(3)
pos_values, pos_indices = sampler(x)
grad = ms.grad(sampler, grad_position=0)(x)
print("dx", grad)
"""

ANNOUNCED = SAMPLE.replace("MySampler(3)", "MySampler(3).set_grad()")

CELL_AND_PARAMETER = """
import numpy as np
import mindspore
from mindspore import nn
from mindspore import ops
from mindspore import Tensor, Parameter

class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.w = Parameter(Tensor(np.random.randn(5, 3), mindspore.float32), name='w')  # weight
        self.b = Parameter(Tensor(np.random.randn(3,), mindspore.float32), name='b')  # bias

    def construct(self, x):
        z = ops.matmul(x, self.w) + self.b
        return z

net = Network()
print(net.b.asnumpy())
print(net.trainable_params())
print(type(net.get_parameters()))
for name, param in net.parameters_and_names():
    print(f"{name}:\\n{param.asnumpy()}")
net.b[0] = 1.
print(net.b.asnumpy()[0])
net.b.set_data(Tensor([3, 4, 5]))
print(net.b.asnumpy())

import mindspore as ms

@ms.jit
def modify_parameter():
    b_hat = ms.Tensor([7, 8, 9])
    ops.assign(net.b, b_hat)
    return True

modify_parameter()
print(net.b.asnumpy())

from mindspore.common.initializer import initializer
from mindspore import ParameterTuple
# Creation
x = Parameter(default_input=ms.Tensor(np.arange(2 * 3).reshape((2, 3))), name="x")
y = Parameter(default_input=initializer('ones', [1, 2, 3], ms.float32), name='y')
z = Parameter(default_input=2.0, name='z')
params = ParameterTuple((x, y, z))

# Clone from params and change the name to "params_copy"
params_copy = params.clone("params_copy")

print(params)
print(params_copy)
net.set_train()
print(net.phase)
net.set_train(False)
print(net.phase)

class Threshold(nn.Cell):
    def __init__(self, threshold, value):
        super().__init__()
        self.threshold = threshold
        self.value = value

    def construct(self, inputs):
        cond = ops.gt(inputs, self.threshold)
        value = ops.fill(inputs.dtype, inputs.shape, self.value)
        return ops.select(cond, inputs, value)

m = Threshold(0.1, 20)
inputs = mindspore.Tensor([0.1, 0.2, 0.3], mindspore.float32)
print(repr(m(inputs)))

class Dropout2d(nn.Cell):
    def __init__(self, keep_prob):
        super().__init__()
        self.keep_prob = keep_prob
        self.dropout2d = ops.Dropout2D(keep_prob)

    def construct(self, x):
        return self.dropout2d(x)

    def bprop(self, x, out, dout):
        _, mask = out
        dy, _ = dout
        if self.keep_prob != 0:
            dy = dy * (1 / self.keep_prob)
        dy = mask.astype(mindspore.float32) * dy
        return (dy.astype(x.dtype), )

dropout_2d = Dropout2d(0.8)
dropout_2d.bprop_debug = True
"""


def test_items_001_to_005_functional(mode: int, output_of: OutputOf) -> None:
    assert output_of(FUNCTIONAL) == "[5. 7. 9.]\n"
    outside = FUNCTIONAL.replace("output = net(x, y)", "output = ops.add(x, y)")
    assert output_of(outside) == "[5. 7. 9.]\n"


def test_item_011_trainable_params_print(mode: int, output_of: OutputOf) -> None:
    wanted = "[Parameter (name=net.weight, shape=(240, 120, 4, 4), dtype=Float32, requires_grad=True)]\n"
    assert output_of(MY_CELL + TRAINABLE) == wanted


def test_items_021_022_dense(output_of: OutputOf) -> None:
    weight = "Parameter (name=weight, shape=(1, 2), dtype=Float32, requires_grad=True)"
    bias = "Parameter (name=bias, shape=(1,), dtype=Float32, requires_grad=True)"
    assert output_of(DENSE) == f"[{weight}, {bias}]\n[{weight}]\n"


def test_items_047_to_053_checkpoint(mode: int, output_of: OutputOf) -> None:
    """The page shows weights near 0.004 and a bias of 0, as an older MindSpore drew them; here, as in 2.10, they are items 87 and 88."""
    lines = output_of(CHECKPOINT).splitlines()
    assert re.fullmatch(r"weight \[\[[\d. e+-]+\]\]", lines[0]) and re.fullmatch(r"bias \[[\d. e+-]+\]", lines[1])
    assert lines[2] == (
        "{'weight': Parameter (name=weight, shape=(1, 2), dtype=Float32, requires_grad=True), "
        "'bias': Parameter (name=bias, shape=(1,), dtype=Float32, requires_grad=True)}"
    )
    assert lines[3:5] == lines[:2] and lines[5:] == ["weight [[1. 1.]]", "bias [1.]"]


def test_items_055_to_058_sub_cells(output_of: OutputOf) -> None:
    assert output_of(SUB_CELLS).splitlines() == [
        "Cell name: , type: <class '__main__.MyCell'>",
        "Cell name: conv1, type: <class 'mindspore.nn.layer.conv.Conv2d'>",
        "Cell name: conv2, type: <class 'mindspore.nn.layer.conv.Conv2d'>",
        "Cell name: conv3, type: <class 'mindspore.nn.layer.conv.Conv2d'>",
        "Cell name: sequential_block, type: <class 'mindspore.nn.layer.container.SequentialCell'>",
        "Cell name: sequential_block.0, type: <class 'mindspore.nn.layer.activation.ReLU'>",
        "Cell name: sequential_block.1, type: <class 'mindspore.nn.layer.conv.Conv2d'>",
        "Cell name: sequential_block.2, type: <class 'mindspore.nn.layer.activation.ReLU'>",
    ]


def test_items_069_to_072_convolutions_side_by_side(mode: int, output_of: OutputOf) -> None:
    """In place of PyTorch's, numpy's sums of windows."""
    wanted = "operands could not be broadcast together with shapes (2,240,12,12) (2,240,9,9) \nTrue\n"
    assert output_of(MY_CELL + CONVOLUTIONS) == wanted


def test_items_073_to_082_mixed_precision(mode: int, output_of: OutputOf) -> None:
    assert output_of(NETWORK + MIXED_PRECISION) == "Float16 Float32\n"


def test_items_095_to_099_initialisation(mode: int, output_of: OutputOf) -> None:
    assert output_of(NETWORK + INITIALISATION).splitlines() == [
        "layer1.0.weight (12, 3, 3, 3) True",
        "layer1.1.moving_mean (12,) False",
        "layer1.1.moving_variance (12,) True",
        "layer1.1.gamma (12,) True",
        "layer1.1.beta (12,) False",
        "layer2.0.weight (4, 12, 3, 3) True",
        "layer2.1.moving_mean (4,) False",
        "layer2.1.moving_variance (4,) True",
        "layer2.1.gamma (4,) True",
        "layer2.1.beta (4,) False",
        "fc.weight (10, 100) True",
        "fc.bias (10,) False",
        "(1, 10)",
    ]


FIRST = """x [[1.2510660e+00 2.1609735e+00 3.4312444e-04 9.0699774e-01 4.4026768e-01]
 [2.7701578e-01 5.5878061e-01 1.0366821e+00 1.1903024e+00 1.6164502e+00]]
pos_values forword [[0.90699774 2.1609735  0.90699774]
 [0.5587806  1.6164502  0.5587806 ]]
pos_indices forword [[3 1 3]
 [1 4 1]]
"""


def test_items_113_to_120_without_bprop_the_forward_pass_runs_twice(output_of: OutputOf) -> None:
    """The page prints a tuple of one gradient with digits of double precision; MindSpore 2.10 prints the bare Tensor."""
    assert output_of(SAMPLER + SAMPLE) == (
        FIRST
        + """pos_values forword [[0.90699774 1.251066   2.1609735 ]
 [1.1903024  1.1903024  0.5587806 ]]
pos_indices forword [[3 0 1]
 [3 3 1]]
dx [[0. 0. 0. 0. 0.]
 [0. 0. 0. 0. 0.]]
"""
    )


def test_item_121_after_set_grad_it_runs_once(output_of: OutputOf) -> None:
    both = output_of(SAMPLER + SAMPLE + ANNOUNCED)
    assert both.partition("dx")[2].split("\n", 2)[2] == (
        """x [[1.2519144  1.6760695  0.42116082 0.59430444 2.4022336 ]
 [2.9047847  0.9402725  2.076968   2.6291676  2.68382   ]]
pos_values forword [[1.2519144 1.2519144 1.6760695]
 [2.6291676 2.076968  0.9402725]]
pos_indices forword [[0 0 1]
 [3 2 1]]
dx [[0. 0. 0. 0. 0.]
 [0. 0. 0. 0. 0.]]
"""
    )


def test_items_122_to_127_custom_bprop(output_of: OutputOf) -> None:
    assert output_of(SAMPLER + BPROP + ANNOUNCED) == (
        FIRST
        + """pos_indices backward [[3 1 3]
 [1 4 1]]
grad_x backward [[1. 1. 1.]
 [1. 1. 1.]]
dx [[0. 1. 0. 2. 0.]
 [0. 2. 0. 0. 1.]]
"""
    )


def test_items_130_131_op_level_seeds(mode: int, output_of: OutputOf) -> None:
    program = """
    # If a random op is called twice within one program, the two results will be different:
    import mindspore as ms
    from mindspore import Tensor, ops

    minval = Tensor(1.0, ms.float32)
    maxval = Tensor(2.0, ms.float32)
    print(ops.uniform((1, 4), minval, maxval, seed=1))  # generates 'A1'
    print(ops.uniform((1, 4), minval, maxval, seed=1))  # generates 'A2'
    """
    first, second = ("import mindspore\nmindspore.set_seed(5)\n" + program.replace("\n    ", "\n") for _ in range(2))
    lines = output_of(first).splitlines()
    assert output_of(second).splitlines() == lines and lines[0] != lines[1]
    numbers = np.array([line.strip("[]").split() for line in lines], float)
    assert numbers.shape == (2, 4) and (numbers >= 1).all() and (numbers < 2).all()


def test_item_130_another_run_of_the_program_repeats_the_numbers(tmp_path: Path) -> None:
    path = tmp_path / "random.py"
    path.write_text(
        "import mindspore as ms\nfrom mindspore import Tensor, ops\n"
        "for _ in range(2):\n    print(ops.uniform((1, 4), Tensor(1.0, ms.float32), Tensor(2.0, ms.float32), seed=1))\n"
    )
    first, second = (
        subprocess.run([sys.executable, "-m", "graphcell", "run", str(path)], capture_output=True, text=True, timeout=600).stdout for _ in range(2)
    )
    assert first == second and len(set(first.splitlines())) == 2


def test_items_028_to_046_and_204_to_220_cell_and_parameter(mode: int, output_of: OutputOf) -> None:
    lines = output_of(CELL_AND_PARAMETER).splitlines()
    row = r"\[[\d. e+-]+\]"
    assert re.fullmatch(row, lines[0])
    assert lines[1:4] == [
        "[Parameter (name=w, shape=(5, 3), dtype=Float32, requires_grad=True), Parameter (name=b, shape=(3,), dtype=Float32, requires_grad=True)]",
        "<class 'generator'>",
        "w:",
    ]
    assert re.fullmatch(rf"\[{row}(\n {row}){{4}}\]", "\n".join(lines[4:9])) and lines[9:11] == ["b:", lines[0]]
    assert lines[11:] == [
        "1.0",
        "[3. 4. 5.]",
        "[7. 8. 9.]",
        "(Parameter (name=x, shape=(2, 3), dtype=Int64, requires_grad=True), Parameter (name=y, shape=(1, 2, 3), dtype=Float32, requires_grad=True), "
        "Parameter (name=z, shape=(), dtype=Float32, requires_grad=True))",
        "(Parameter (name=params_copy.x, shape=(2, 3), dtype=Int64, requires_grad=True), "
        "Parameter (name=params_copy.y, shape=(1, 2, 3), dtype=Float32, requires_grad=True), "
        "Parameter (name=params_copy.z, shape=(), dtype=Float32, requires_grad=True))",
        "train",
        "predict",
        "Tensor(shape=[3], dtype=Float32, value= [ 2.00000000e+01,  2.00000003e-01,  3.00000012e-01])",
    ]


def test_item_006_programs_run_unchanged_from_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "functional.py"
    path.write_text(FUNCTIONAL)
    done = subprocess.run([sys.executable, "-m", "graphcell", "run", str(path)], capture_output=True, text=True, timeout=600)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[5. 7. 9.]\n", "")

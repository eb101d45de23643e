# SPDX-License-Identifier: Apache-2.0
"""Models of images in plain PyTorch, written from their publications: peers for the steps of ours.

Modules have the names of pipetwin's layers, so that `tensor_names` can find the tensor that belongs to each parameter.
ResNets of large images are torchvision's, as they are.
"""
import torch
import torch.nn.functional as F
import torchvision
from torch import nn
from torchvision.models.resnet import BasicBlock


def named(**modules):
    """Modules one after the other, under these names."""
    sequence = nn.Sequential()
    for name, module in modules.items():
        sequence.add_module(name, module)
    return sequence


def convolution(read, made, kernel=1, stride=1, **others):
    """A convolution without bias whose padding keeps the image's size at a stride of 1."""
    kernel = (kernel, kernel) if isinstance(kernel, int) else kernel
    return nn.Conv2d(read, made, kernel, stride, padding=(kernel[0] // 2, kernel[1] // 2), bias=False, **others)


# --- AmoebaNet: tensorflow/tpu's (reference) and torchgpipe's; Real et al., arXiv 1802.01548 ---

# The terms of states 2 to 6, (operation, state that it reads), and the states that the cell's output joins.
CELLS = {
    ("d", False): ([("1x1", 1), ("max3", 1), ("none", 1), ("1x7", 0), ("1x1", 0), ("1x7", 0), ("max3", 2), ("none", 2),
                    ("avg3", 1), ("1x1", 5)], [0, 3, 4, 6]),
    ("d", True): ([("max2", 0), ("max3", 0), ("none", 2), ("3x3", 1), ("1x7", 2), ("max3", 2), ("none", 3), ("max2", 1),
                   ("avg3", 2), ("1x1", 3)], [4, 5, 6]),
    ("b", False): ([("1x1", 1), ("max3", 1), ("none", 1), ("sep3", 0), ("1x1", 1), ("sep3", 0), ("1x1", 2), ("none", 2),
                    ("avg3", 1), ("1x1", 5)], [0, 3, 4, 6]),
    ("b", True): ([("max2", 0), ("max3", 0), ("none", 2), ("3x3", 1), ("sep5", 2), ("max3", 2), ("none", 3), ("sep3", 1),
                   ("avg3", 4), ("1x1", 3)], [5, 6]),
}


class FactorizedReduction(nn.Module):
    """Half of the channels are of every second pixel, half of those one further down and right."""

    def __init__(self, read, made, norm):
        super().__init__()
        self.relu = nn.ReLU()
        self.even = convolution(read, made // 2, stride=2)
        self.odd = convolution(read, made // 2, stride=2)
        self.norm = norm(made)

    def forward(self, x):
        x = self.relu(x)
        moved = F.pad(x[:, :, 1:, 1:], (0, 1, 0, 1))
        return self.norm(torch.cat([self.even(x), self.odd(moved)], dim=1))


class Operations:
    """What stands between two states of a cell with `made` channels each."""

    def __init__(self, made, norm, is_reference):
        self.made, self.norm, self.is_reference = made, norm, is_reference

    def pointwise(self, read, stride=1):
        return named(relu=nn.ReLU(), conv=convolution(read, self.made, stride=stride), norm=self.norm(self.made))

    def narrow(self, read, *inner):
        """1x1 to a quarter of the channels, the (kernel, stride) of `inner`, 1x1 to all of them."""
        quarter = self.made // 4
        parts = [(read, quarter, 1, 1), *[(quarter, quarter, *i) for i in inner], (quarter, self.made, 1, 1)]
        modules = {}
        for number, (reads, makes, kernel, stride) in enumerate(parts, start=1):
            modules.update({f"relu{number}": nn.ReLU(), f"conv{number}": convolution(reads, makes, kernel, stride),
                            f"norm{number}": self.norm(makes)})
        return named(**modules)

    def separable(self, read, kernel, stride):
        modules = {}
        for number, (channels, step) in enumerate([(read, stride), (self.made, 1)], start=1):
            modules.update({f"relu{number}": nn.ReLU(),
                            f"depthwise{number}": convolution(channels, channels, kernel, step, groups=channels),
                            f"pointwise{number}": convolution(channels, self.made), f"norm{number}": self.norm(self.made)})
        return named(**modules)

    def pooled(self, pool, read):
        if read == self.made:
            return pool
        return named(pool=pool, conv=convolution(read, self.made), norm=self.norm(self.made))

    def make(self, operation, read, stride):
        if operation == "none" and stride == 1 and read == self.made:
            return nn.Identity()
        if operation in ("none", "1x1"):
            return self.pointwise(read, stride)
        if operation == "3x3":
            return self.narrow(read, (3, stride))
        if operation == "1x7":
            return self.narrow(read, ((1, 7), (1, stride)), ((7, 1), (stride, 1)))
        if operation in ("sep3", "sep5"):
            return self.separable(read, int(operation[-1]), stride)
        if operation == "max2":
            return self.pooled(nn.MaxPool2d(2, stride, ceil_mode=True), read)  # TensorFlow's SAME hangs over at the end
        if operation == "max3" and self.is_reference:
            return self.pooled(nn.MaxPool2d(3, stride, padding=1), read)
        return self.pooled(nn.AvgPool2d(3, stride, padding=1, count_include_pad=False), read)


class Cell(nn.Module):
    """`previous` and `before`: channels of the output before the cell, and of the one before that. `follows`: which of
    "same", "smaller" than the one before that the output before the cell is; "first" of the reference keeps it as it is."""

    def __init__(self, kind, is_reduction, made, previous, before, follows, norm, is_reference):
        super().__init__()
        operations = Operations(made, norm, is_reference)
        self.state0 = operations.pointwise(previous)
        self.state1 = nn.Identity()
        width = made
        if follows == "first" and is_reference:
            width = before
        elif follows == "smaller":
            self.state1 = FactorizedReduction(before, made, norm)
        elif before != made:
            self.state1 = operations.pointwise(before)
        channels = [made, width] + 5 * [made]
        self.terms, self.joined = CELLS[kind, is_reduction]
        for number, (operation, state) in enumerate(self.terms):
            stride = 2 if is_reduction and state < 2 else 1
            side = "left" if number % 2 == 0 else "right"
            self.add_module(f"state{2 + number // 2}_{side}", operations.make(operation, channels[state], stride))

    def forward(self, x, before):
        states = [self.state0(x), self.state1(before)]
        for number in range(0, len(self.terms), 2):
            name = f"state{2 + number // 2}"
            left, right = (self.terms[number + i][1] for i in (0, 1))
            states.append(getattr(self, name + "_left")(states[left]) + getattr(self, name + "_right")(states[right]))
        return torch.cat([states[i] for i in self.joined], dim=1)


class AmoebaNet(nn.Module):
    def __init__(self, cells, layers, filters, classes, is_reference, channels=3):
        super().__init__()

        def norm(made):
            return nn.BatchNorm2d(made, **({"eps": 1e-3, "momentum": 0.0003} if is_reference else {}))

        first = 32 if is_reference else filters // 4
        stem = {"conv": nn.Conv2d(channels, first, 3, 2, padding=0 if is_reference else 1, bias=False), "norm": norm(first)}
        self.stem1 = named(**(stem if is_reference else {"relu": nn.ReLU(), **stem}))
        self.names = []
        widths = [first, first]  # of the two outputs so far
        follows = "first"

        def add(name, made, is_reduction):
            nonlocal follows
            self.add_module(name, Cell(cells, is_reduction, made, widths[-1], widths[-2], follows, norm, is_reference))
            self.names.append(name)
            widths.append(made * len(CELLS[cells, is_reduction][1]))
            follows = "smaller" if is_reduction else "same"

        stem_filters = filters // 4 if is_reference else filters // 2
        add("stem2", stem_filters, True)
        add("stem3", 2 * stem_filters, True)
        for block in range(3):
            if block > 0:
                add(f"cell{2 * block}_reduction", filters << block, True)
            for cell in range(layers // 3):
                add(f"cell{2 * block + 1}_normal{cell + 1}", filters << block, False)
        self.classify = named(linear=nn.Linear(widths[-1], classes))
        self.relu = nn.ReLU() if is_reference else nn.Identity()

    def forward(self, x):
        before = x = self.stem1(x)
        for name in self.names:
            before, x = x, getattr(self, name)(x, before)
        return self.classify(self.relu(x).mean(dim=(2, 3)))


# --- ResNet of small images: He et al., arXiv 1512.03385, section 4.2 ---

class PaddedSkip(nn.Module):
    """Every second pixel, and zeros for further channels."""

    def __init__(self, more, stride):
        super().__init__()
        self.more, self.stride = more, stride

    def forward(self, x):
        return F.pad(x[:, :, ::self.stride, ::self.stride], (0, 0, 0, 0, 0, self.more))


class SmallResNet(nn.Module):
    def __init__(self, depth, classes, projections, channels=3):
        super().__init__()
        self.conv1, self.bn1, self.relu = convolution(channels, 16, 3), nn.BatchNorm2d(16), nn.ReLU()
        width = 16
        for group in range(3):
            blocks = []
            for block in range((depth - 2) // 6):
                made, stride = 16 << group, 2 if block == 0 and group > 0 else 1
                skip = None
                if made != width and projections:
                    skip = nn.Sequential(convolution(width, made, stride=stride), nn.BatchNorm2d(made))
                elif made != width:
                    skip = PaddedSkip(made - width, stride)
                blocks.append(BasicBlock(width, made, stride, skip))
                width = made
            self.add_module(f"layer{group + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        x = self.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(x.mean(dim=(2, 3)))


# --- torchgpipe's U-Net ---

class UNet(nn.Module):
    """Dropout left out."""

    def __init__(self, depth, convolutions, channels, read=3):
        super().__init__()
        self.depth, self.convolutions = depth, convolutions
        for level in range(depth):
            made = channels << level
            self.stack(f"encoder_{level}_encode", read, made, made)
            read = made
        self.stack("bottleneck_0", read, channels << depth, read)
        for step in range(depth):
            made = (channels << (depth - 1 - step)) // 2
            self.stack(f"decoder_{step}_decode", 4 * made, made, made)
        self.segment = named(conv=convolution(channels // 2, 1))

    def stack(self, name, read, inside, made):
        for i in range(self.convolutions):
            makes = made if i + 1 == self.convolutions else inside
            self.add_module(f"{name}_{i}_conv", convolution(read, makes, 3))
            read = makes

    def run(self, name, x):
        for i in range(self.convolutions):
            x = F.leaky_relu(F.instance_norm(getattr(self, f"{name}_{i}_conv")(x)), 0.01)
        return x

    def forward(self, x):
        skips = []
        for level in range(self.depth):
            skips.append(self.run(f"encoder_{level}_encode", x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.run("bottleneck_0", x)
        for step in range(self.depth):
            skip = skips.pop()
            x = F.interpolate(x, scale_factor=2)
            x = F.pad(x, (0, skip.shape[3] - x.shape[3], 0, skip.shape[2] - x.shape[2]))
            x = self.run(f"decoder_{step}_decode", torch.cat([x, skip], dim=1))
        return self.segment(x)


# --- The peer of a model, and the names of its tensors ---

def peer_of(model, channels):
    """The module for the keys of a scenario's [model]."""
    kind = model["kind"]
    if kind.startswith("amoebanet"):
        return AmoebaNet(kind[-1], model["layers"], model["filters"], model["classes"],
                         model.get("variant", "reference") == "reference", channels)
    if kind == "unet":
        return UNet(model["depth"], model["convolutions"], model["channels"], channels)
    if model["depth"] in (18, 34, 50, 101, 152):
        return getattr(torchvision.models, f"resnet{model['depth']}")(num_classes=model["classes"])
    return SmallResNet(model["depth"], model["classes"], model.get("projections", True), channels)


def make_smooth(module):
    """GELU in place of ReLU, and the mean of a window in place of its largest number, everywhere."""
    for name, part in module.named_children():
        if isinstance(part, nn.ReLU):
            setattr(module, name, nn.GELU())
        elif isinstance(part, nn.MaxPool2d):
            window = (part.kernel_size, part.stride, part.padding, part.ceil_mode)
            setattr(module, name, nn.AvgPool2d(*window, count_include_pad=False))
        else:
            make_smooth(part)


# What torchvision calls the parts that pipetwin has under another name.
RENAMED = {"downsample.0": "residual.conv", "downsample.1": "residual.bn", "fc": "fc.linear"}


def tensor_names(module):
    """(module, name in it, pipetwin's name) of every parameter and every running value of a peer."""
    for path, part in module.named_modules():
        own = path
        for theirs, ours in RENAMED.items():
            if path == theirs or path.endswith("." + theirs):
                own = path[:len(path) - len(theirs)] + ours
        is_norm = isinstance(part, nn.BatchNorm2d)
        for name, _ in [*part.named_parameters(recurse=False), *part.named_buffers(recurse=False)]:
            yield part, name, f"{own}.{'gain' if is_norm and name == 'weight' else name}"


def as_peer_has_it(part, tensor, shape):
    """A tensor of pipetwin's in the layout of PyTorch. A convolution's is (height, width, inputs, outputs) there, rows by
    columns, and (outputs, inputs, height, width) here; a linear layer's is (inputs, outputs)."""
    if isinstance(part, nn.Conv2d):
        outputs, inputs, height, width = shape
        return tensor.reshape(height, width, inputs, outputs).permute(3, 2, 0, 1)
    return tensor.t().reshape(shape) if isinstance(part, nn.Linear) else tensor.reshape(shape)

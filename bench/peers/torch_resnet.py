#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A ResNet-50 in plain PyTorch on the CPU, channels last, step by step beside ours: bench/image_training.cpp starts it.

For every line on standard input it does one training step and prints the wall seconds, the processor seconds of all its threads and
the loss. Needs a PyTorch alone: scripts/install-packages bench installs Debian's, and a current one does as well.
"""
import argparse
import ctypes
import os
import sys
import time

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--pixels", type=int, default=224)
parser.add_argument("--threads", type=int, default=1)
parser.add_argument("--bf16", action="store_true", help="autocast: fp32 weights, products in bf16")
args = parser.parse_args()

# Without this a good part of PyTorch's step is page faults: large buffers go back to the kernel after every use.
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
libc = ctypes.CDLL("libc.so.6")
libc.mallopt(M_MMAP_THRESHOLD, 1 << 30)
libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
os.environ.setdefault("OPENBLAS_NUM_THREADS", str(args.threads))

import torch  # noqa: E402
import torch.nn as nn  # noqa: E402
import torch.nn.functional as F  # noqa: E402

torch.set_num_threads(args.threads)
torch.set_flush_denormal(True)
torch.manual_seed(1)


def convolution(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Block(nn.Module):
    def __init__(self, inputs, width, stride):
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, width, 1), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = convolution(width, width, 3, stride), nn.BatchNorm2d(width)
        self.conv3, self.bn3 = convolution(width, 4 * width, 1), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.projection = None
        if inputs != 4 * width:
            self.projection = nn.Sequential(convolution(inputs, 4 * width, 1, stride), nn.BatchNorm2d(4 * width))

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.projection is None else self.projection(x)
        return self.relu(y)


layers = [convolution(3, 64, 7, 2), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
channels = 64
for blocks, width, stride in ((3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)):
    for block in range(blocks):
        layers.append(Block(channels, width, stride if block == 0 else 1))
        channels = 4 * width
model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))
model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images = torch.rand(args.batch, 3, args.pixels, args.pixels).contiguous(memory_format=torch.channels_last)
classes = torch.randint(0, 1000, (args.batch,))
print(sum(p.numel() for p in model.parameters()), flush=True)
for _ in sys.stdin:
    begin, cpu_begin = time.perf_counter(), time.process_time()
    optimizer.zero_grad(set_to_none=True)
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
        loss = F.cross_entropy(model(images).float(), classes)
    loss.backward()
    optimizer.step()
    print(time.perf_counter() - begin, time.process_time() - cpu_begin, loss.item(), flush=True)

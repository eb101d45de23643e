#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ResNet-50's convolutions beside PyTorch's with channels_last, one thread each, in turns.

    bench/peers/torch_convolutions.py build/release/bench/convolution_bench [fp32|bf16] [samples] [rounds]

A line for each shape: milliseconds of ours and ratios PyTorch / ours (above 1: ours is faster) of the forward, of the gradient by
the input and of that by the weight; at the end the sums, each shape as often as the network has it. Best of the rounds on both sides.
"""
import subprocess
import sys
import time

import torch


def milliseconds(call):
    call()
    best = 1e9
    end = time.thread_time() + 0.15
    n = 0
    while time.thread_time() < end or n < 4:
        begin = time.thread_time()
        call()
        best = min(best, time.thread_time() - begin)
        n += 1
    return 1e3 * best


def torch_times(kind, size, channels, outputs, kernel, stride, samples, dtype):
    last = torch.channels_last
    x = torch.rand(samples, channels, size, size).to(dtype).contiguous(memory_format=last)
    if kind == "pool":
        pool = torch.nn.MaxPool2d(3, 2, 1)
        x.requires_grad_(True)
        y = pool(x)
        dy = torch.rand_like(y).contiguous(memory_format=last)
        forward = milliseconds(lambda: pool(x))
        return forward, milliseconds(lambda: torch.autograd.grad(y, x, dy, retain_graph=True)), 0.0
    w = torch.rand(outputs, channels, kernel, kernel).to(dtype).contiguous(memory_format=last)
    size_of = [kernel // 2, kernel // 2]
    convolve = lambda: torch.ops.aten.convolution(x, w, None, [stride, stride], size_of, [1, 1], False, [0, 0], 1)
    dy = torch.rand_like(convolve()).contiguous(memory_format=last)

    def gradient(mask):
        return torch.ops.aten.convolution_backward(dy, x, w, None, [stride, stride], size_of, [1, 1], False, [0, 0], 1, mask)

    return (milliseconds(convolve), milliseconds(lambda: gradient([True, False, False])),
            milliseconds(lambda: gradient([False, True, False])))


def main():
    program = sys.argv[1]
    kind = sys.argv[2] if len(sys.argv) > 2 else "fp32"
    samples = int(sys.argv[3]) if len(sys.argv) > 3 else 4
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 2
    dtype = torch.bfloat16 if kind == "bf16" else torch.float32
    torch.set_num_threads(1)
    ours, theirs = {}, {}

    def keep(best, case, times):
        best[case] = [min(pair) for pair in zip(best.get(case, [1e9] * 3), times)]

    with torch.no_grad():
        for _ in range(rounds):
            output = subprocess.run([program, kind, str(samples)], capture_output=True, text=True, check=True).stdout
            for line in output.splitlines():
                words = line.split()
                case = (words[0], *map(int, words[1:7]))
                keep(ours, case, list(map(float, words[7:])))
                with torch.enable_grad():
                    keep(theirs, case, torch_times(*case[:6], samples, dtype))
    print(f"{kind}, {samples} samples: ms of ours, PyTorch {torch.__version__} / ours")
    sums = [[0.0] * 3, [0.0] * 3]
    for case, times in ours.items():
        ratios = [other / own if own else 0 for own, other in zip(times, theirs[case])]
        print(f"{case[0]} {case[4]}x{case[4]}/{case[5]} {case[2]:5} -> {case[3]:5} at {case[1]:3}, {case[6]} times: "
              + "  ".join(f"{t:8.3f} {r:5.2f}" for t, r in zip(times, ratios)))
        for i in range(3):
            sums[0][i] += case[6] * times[i]
            sums[1][i] += case[6] * theirs[case][i]
    print("all: " + "  ".join(f"{own:8.2f} {other / own:5.2f}" for own, other in zip(*sums)))
    print(f"in all: {sum(sums[0]):.1f} ms, {sum(sums[1]) / sum(sums[0]):.3f}")


main()

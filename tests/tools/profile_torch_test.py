# SPDX-License-Identifier: Apache-2.0
"""Tests of tools/profile_torch.py. Exits with 77, which ctest takes as skipped, where this Python has no torch.

    profile_torch_test.py PIPETWIN      the program that reads the profiles
"""

import contextlib
import importlib.util
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import unittest

if importlib.util.find_spec("torch") is None:
    print("skipped: no Python with torch was found (Debian: python3-torch)")
    sys.exit(77)

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
import profile_torch
from profile_torch import ProfileError, profile

PIPETWIN = ""
FLOAT = 4

MODEL = """
from torch import nn

def build():
    return [("embedding", nn.Embedding(100, 32)), ("block0", nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))),
            ("block1", nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))), ("head", nn.Linear(32, 100))]

def broken():
    return [nn.Linear(8, 4), nn.Linear(8, 4)]
"""

SCENARIO = """
[model]
kind = "profile"
file = "model.profile.json"
[training]
batch = 8
[pipeline]
stages = 2
micro_batches = 4
schedule = "1f1b"
partition = [2, 2]
"""


def quick(blocks, example_input, sizes=(1,), **others):
    return profile(blocks, example_input, micro_batch_sizes=sizes, repetitions=5, seconds=0, **others)


def saved_of(layer, shape, **others):
    """Saved bytes of a layer between two others, so that its input needs a gradient and its output is handed on."""
    result = quick([nn.Linear(shape[-1], shape[-1]), layer, nn.Identity()], torch.randn(shape), sizes=[shape[0]], **others)
    return result["layers"][1]["samples"][0]["saved_bytes"]


class SavedBytes(unittest.TestCase):
    """Against what the formula of each gradient needs, for an input of 4 x 8 floats."""

    shape = (4, 8)
    elements = 32

    def test_a_linear_keeps_its_input(self):
        self.assertEqual(saved_of(nn.Linear(8, 24), self.shape), FLOAT * self.elements)

    def test_gelu_keeps_its_input(self):
        self.assertEqual(saved_of(nn.GELU(), self.shape), FLOAT * self.elements)

    def test_a_layer_norm_keeps_its_input_and_a_mean_and_a_deviation_per_row(self):
        self.assertEqual(saved_of(nn.LayerNorm(8), self.shape), FLOAT * (self.elements + 2 * 4))

    def test_softmax_keeps_its_output_which_is_the_next_ones_input(self):
        # Its own input stands for what is kept: as large, and once over the two layers.
        self.assertEqual(saved_of(nn.Softmax(dim=-1), self.shape), FLOAT * self.elements)

    def test_the_last_layer_keeps_its_own_output(self):
        result = quick([nn.Linear(8, 8), nn.Softmax(dim=-1)], torch.randn(self.shape), sizes=[4])
        self.assertEqual(result["layers"][1]["samples"][0]["saved_bytes"], 2 * FLOAT * self.elements)

    def test_dropout_keeps_a_mask_beside_its_input(self):
        # Of floats where the mask is multiplied with, of bytes where a kernel does both.
        extra = saved_of(nn.Dropout(0.5), self.shape) - FLOAT * self.elements
        self.assertIn(extra, [FLOAT * self.elements, self.elements])

    def test_a_storage_that_two_layers_of_a_block_keep_counts_once(self):
        class Gated(nn.Module):
            """(x a) * gelu(x b): x for both products, both factors, and gelu's input."""

            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(8, 24), nn.Linear(8, 24)

            def forward(self, x):
                return self.a(x) * nn.functional.gelu(self.b(x))

        self.assertEqual(saved_of(Gated(), self.shape), FLOAT * (self.elements + 3 * 4 * 24))

    def test_an_embedding_keeps_its_indices(self):
        result = quick(nn.Sequential(nn.Embedding(10, 16), nn.Linear(16, 2)), torch.zeros(4, 5, dtype=torch.int64), [4])
        sample = result["layers"][0]["samples"][0]
        self.assertEqual(sample["saved_bytes"], 8 * 4 * 5)
        self.assertEqual(sample["input_bytes"], 8 * 4 * 5)
        self.assertEqual(sample["output_bytes"], FLOAT * 4 * 5 * 16)

    def test_a_layer_that_works_in_place_finds_its_input_each_time(self):
        self.assertEqual(saved_of(nn.ReLU(inplace=True), self.shape), FLOAT * self.elements)

    def test_parameters_do_not_count_though_they_are_saved(self):
        # The gradient of a Linear's input needs its weights: 8 x 1000 floats that are there anyway.
        self.assertEqual(saved_of(nn.Linear(8, 1000), self.shape), FLOAT * self.elements)


class Profiles(unittest.TestCase):

    def test_sizes_grow_with_the_micro_batch_and_parameters_do_not(self):
        result = quick(nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 3, bias=False)), torch.randn(2, 8), [4, 1, 4])
        self.assertEqual([layer["parameter_count"] for layer in result["layers"]], [8 * 16 + 16, 0, 16 * 3])
        self.assertEqual([layer["parameter_bytes"] for layer in result["layers"]], [4 * 144, 0, 4 * 48])
        for layer, width in zip(result["layers"], [16, 16, 3]):
            self.assertEqual([sample["micro_batch_size"] for sample in layer["samples"]], [1, 4])
            self.assertEqual([sample["output_bytes"] for sample in layer["samples"]], [FLOAT * width, FLOAT * 4 * width])

    def test_the_first_layer_makes_no_gradient_of_its_input_and_one_without_weights_no_other(self):
        result = quick(nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 64)), torch.randn(8, 64), [8])
        first, gelu, last = [layer["samples"][0] for layer in result["layers"]]
        self.assertEqual(first["backward_input_ns"], 0)
        self.assertGreater(first["backward_weight_ns"], 0)
        self.assertGreater(gelu["backward_input_ns"], 0)
        self.assertEqual(gelu["backward_weight_ns"], 0)
        self.assertGreater(last["backward_input_ns"], 0)

    def test_the_two_parts_of_a_matrix_products_backward_are_alike(self):
        # dx = dy w' and dw = x' dy are products of the same three sizes: 512 x 512 x 512. Other work on the machine disturbs
        # one measurement or another, but not ten in a row.
        torch.set_num_threads(1)
        model = nn.Sequential(nn.Linear(512, 512), nn.Linear(512, 512, bias=False))
        shares = []
        while len(shares) < 10 and not any(0.2 < share < 0.8 for share in shares):
            sample = profile(model, torch.randn(512, 512), micro_batch_sizes=[512])["layers"][1]["samples"][0]
            both = sample["backward_input_ns"] + sample["backward_weight_ns"]
            shares.append(sample["backward_input_ns"] / both)
        self.assertTrue(any(0.2 < share < 0.8 for share in shares), shares)

    def test_a_loss_hands_nothing_on(self):
        class Loss(nn.Module):

            def forward(self, x):
                return (x * x).mean()

        self.assertEqual(quick([nn.Linear(4, 4), Loss()], torch.randn(2, 4))["layers"][1]["samples"][0]["output_bytes"], 0)

    def test_modes_and_gradients_are_as_before(self):
        model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)).eval()
        quick(model, torch.randn(2, 4))
        self.assertFalse(any(module.training for module in model.modules()))
        self.assertTrue(all(p.grad is None for p in model.parameters()))

    def test_half_precision_halves_the_bytes(self):
        result = quick([nn.Linear(4, 4), nn.Linear(4, 4)], torch.randn(2, 4), precision="bf16")
        self.assertEqual(result["precision"], "bf16")
        self.assertEqual(result["layers"][0]["parameter_bytes"], 2 * 20)
        self.assertEqual(result["layers"][1]["samples"][0]["saved_bytes"], 2 * 4)


class Refusals(unittest.TestCase):

    def expect(self, words, *arguments, **others):
        with self.assertRaises(ProfileError) as caught:
            quick(*arguments, **others)
        for word in [*words, "\nhint: "]:
            self.assertIn(word, str(caught.exception))

    def test_two_outputs(self):
        self.expect(["block 0 'layer0' (LSTM)", "returns a tuple of 2, expected one tensor"], [nn.LSTM(4, 4)],
                    torch.randn(2, 3, 4))

    def test_shapes_that_do_not_fit(self):
        self.expect(["block 1 'layer1' (Linear): cannot take (1, 4) float32", "mat1 and mat2"],
                    [nn.Linear(4, 4), nn.Linear(5, 4)], torch.randn(2, 4))

    def test_values_that_are_not_finite(self):
        class Logarithm(nn.Module):

            def forward(self, x):
                return torch.log(x - x)

        self.expect(["block 1 'layer1' (Logarithm)", "its output holds 4 of 4 values that are not finite"],
                    [nn.Linear(4, 4), Logarithm()], torch.randn(2, 4))

    def test_a_model_that_is_no_list(self):
        self.expect(["TransformerEncoderLayer", "in which order"], nn.TransformerEncoderLayer(8, 2), torch.randn(2, 4, 8))

    def test_what_is_no_block(self):
        self.expect(["block 'layer1'", "expected an nn.Module"], [nn.Linear(4, 4), torch.relu], torch.randn(2, 4))

    def test_an_input_without_samples(self):
        self.expect(["example_input", "() float32"], [nn.Linear(4, 4)], torch.tensor(1.0))


class Program(unittest.TestCase):

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.model = self.file("my_model.py", MODEL)
        self.out = os.path.join(self.folder.name, "model.profile.json")

    def file(self, name, content):
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as out:
            out.write(content)
        return path

    def run_tool(self, *arguments):
        """Exit code and what was printed to stdout and stderr."""
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = profile_torch.main([*arguments, "--repetitions", "5"])
            except SystemExit as stopped:
                code = stopped.code
        return code, out.getvalue(), err.getvalue()

    def test_a_profile_goes_through_simulate(self):
        code, out, err = self.run_tool(f"{self.model}:build", "--input", "2,16", "--vocabulary", "100",
                                       "--micro-batch-sizes", "1,2", "--out", self.out)
        self.assertEqual(code, 0, err)
        self.assertIn("4 layers at micro-batch sizes 1, 2", out)
        scenario = self.file("model.toml", SCENARIO)
        done = subprocess.run([PIPETWIN, "simulate", scenario, "--json"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(result["cost_source"], "measured")
        with open(self.out, encoding="utf-8") as file:
            layers = json.load(file)["layers"]
        # Every rank works 4 micro-batches of 2 samples through its two layers, forward and backward.
        for rank, mine in enumerate([layers[:2], layers[2:]]):
            samples = [layer["samples"][1] for layer in mine]
            whole = 4 * sum(s["forward_ns"] + s["backward_input_ns"] + s["backward_weight_ns"] for s in samples)
            self.assertAlmostEqual(result["devices"][rank]["busy_ms"], whole / 1e6, delta=1e-5)

    def test_what_is_there_is_kept_unless_forced(self):
        self.file("model.profile.json", "mine")
        arguments = [f"{self.model}:build", "--input", "2,16", "--vocabulary", "100", "--out", self.out]
        code, _, err = self.run_tool(*arguments)
        self.assertEqual(code, 6)
        self.assertIn("--force", err)
        self.assertEqual(self.run_tool(*arguments, "--force")[0], 0)

    def test_refusals_name_the_place(self):
        for source, words in [(f"{self.model}:broken", ["block 1 'layer1' (Linear)", "cannot take (1, 4) float32"]),
                              (f"{self.model}:builds", ["my_model.py: holds no 'builds'", "build, broken"]),
                              (f"{self.model}x:build", ["no such file"]), ("my_model", ["expected FILE.py:FUNCTION"])]:
            code, _, err = self.run_tool(source, "--input", "2,8", "--out", self.out)
            self.assertEqual(code, 3)
            for word in ["error: ", *words, "hint: "]:
                self.assertIn(word, err)
            self.assertFalse(os.path.exists(self.out))
        self.assertEqual(self.run_tool(f"{self.model}:build", "--input", "2,x", "--out", self.out)[0], 2)


class Traces(unittest.TestCase):

    def test_a_trace_of_torchs_profiler_becomes_the_medians_of_its_ranges(self):
        layer = nn.Linear(64, 64)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as recorded:
            for micro_batch in range(5):
                with torch.profiler.record_function(f"PP:0F{micro_batch}"):
                    output = layer(torch.randn(16, 64))
                with torch.profiler.record_function(f"PP:0B{micro_batch}"):
                    output.sum().backward()
        with tempfile.TemporaryDirectory() as folder:
            trace, out = os.path.join(folder, "rank0.json"), os.path.join(folder, "x.profile.json")
            recorded.export_chrome_trace(trace)
            done = subprocess.run([PIPETWIN, "import", "torch-trace", trace, "--micro-batch-size", "16", "--out", out],
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stderr)
            with open(trace, encoding="utf-8") as file:
                events = json.load(file)
            with open(out, encoding="utf-8") as file:
                sample = json.load(file)["layers"][0]["samples"][0]
        events = events["traceEvents"] if isinstance(events, dict) else events
        for action, measured in [("F", sample["forward_ns"]),
                                 ("B", sample["backward_input_ns"] + sample["backward_weight_ns"])]:
            durations = [event["dur"] for event in events if str(event.get("name")).startswith(f"PP:0{action}")]
            self.assertEqual(len(durations), 5)
            self.assertAlmostEqual(measured, 1000 * statistics.median(durations), delta=1)


if __name__ == "__main__":
    PIPETWIN = sys.argv.pop(1)
    unittest.main()

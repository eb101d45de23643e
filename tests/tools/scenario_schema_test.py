#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/scenario.schema.json accepts every shipped scenario and every example of docs/scenario.md, and refuses wrong ones."""
import copy
import json
import pathlib
import re
import sys
import tomllib
import unittest

import json_schema

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCHEMA = json.loads((ROOT / "docs/scenario.schema.json").read_text())


def faults(value, schema):
    return json_schema.faults(value, schema, SCHEMA)


GPT = {"model": {"kind": "gpt", "layers": 2, "d_model": 8, "heads": 2, "context": 8}}
LAYERS = {"model": {"kind": "layers", "input": 4, "layer": [{"type": "linear", "outputs": 2}, {"type": "cross_entropy"}]}}


def changed(scenario, path, value):
    result = copy.deepcopy(scenario)
    table = result
    steps = path.split(".")
    for step in steps[:-1]:
        table = table.setdefault(int(step) if step.isdigit() else step, {}) if isinstance(table, dict) else table[int(step)]
    table[steps[-1]] = value
    return result


class ScenarioSchema(unittest.TestCase):
    def test_accepts_every_shipped_scenario(self):
        files = sorted((ROOT / "scenarios").rglob("*.toml"))
        self.assertGreater(len(files), 20)
        for file in files:
            with self.subTest(file=file.name):
                self.assertEqual(list(faults(tomllib.loads(file.read_text()), SCHEMA)), [])

    def test_accepts_every_example_of_the_page(self):
        page = (ROOT / "docs/scenario.md").read_text()
        examples = [tomllib.loads(text) for text in re.findall(r"```toml\n(.*?)```", page, re.S)]
        examples = [example for example in examples if "model" in example]
        self.assertGreater(len(examples), 5)
        for example in examples:
            with self.subTest(example=example):
                self.assertEqual(list(faults(example, SCHEMA)), [])

    def test_accepts_what_a_search_finds(self):
        for key in ("stages", "micro_batches", "schedule", "chunks", "recompute", "partition", "channel_capacity",
                    "data_parallel", "shard", "tensor_parallel", "sequence_parallel", "scatter_boundaries"):
            self.assertEqual(list(faults(changed(GPT, f"pipeline.{key}", "auto"), SCHEMA)), [], key)

    def test_refuses_wrong_ones(self):
        wrong = [{}, {"model": {}}, {"model": {"kind": "gpt"}}, changed(GPT, "model.kind", "gtp"),
                 changed(GPT, "model.hidden", 8), changed(GPT, "pipelines.stages", 2),
                 changed(GPT, "pipeline.stage", 2), changed(GPT, "pipeline.stages", 0),
                 changed(GPT, "pipeline.stages", 5000), changed(GPT, "pipeline.stages", 1.5),
                 changed(GPT, "pipeline.stages", "two"), changed(GPT, "pipeline.group_size", "auto"),
                 changed(GPT, "pipeline.shard", "zero"), changed(GPT, "pipeline.sequence_parallel", 1),
                 changed(GPT, "pipeline.partition", [1, "2"]), changed(GPT, "training.batch", -1),
                 changed(GPT, "training.optimizer", "lion"), changed(GPT, "training.betas", 0.9),
                 changed(GPT, "cluster.backend", "tpu"), changed(GPT, "output.checkpoint_every", True),
                 changed(LAYERS, "model.layer.0.type", "lniear"), changed(LAYERS, "model.layer.0.outputs", 0),
                 changed(LAYERS, "model.layer.0.output", 4), changed(LAYERS, "model.d_model", 4)]
        self.assertEqual(list(faults(LAYERS, SCHEMA)), [])
        for scenario in wrong:
            with self.subTest(scenario=scenario):
                self.assertTrue(any(faults(scenario, SCHEMA)))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

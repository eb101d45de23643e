#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/scenario.schema.json accepts every shipped scenario and every example of docs/scenario.md, and refuses wrong ones.

The checker below knows the words of JSON Schema 2020-12 that the schema has, and refuses a schema with others.
"""
import copy
import json
import pathlib
import re
import sys
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCHEMA = json.loads((ROOT / "docs/scenario.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "integer": int, "number": (int, float), "boolean": bool}
KNOWN = {"$schema", "$defs", "$ref", "title", "description", "type", "enum", "const", "minimum", "maximum", "items",
         "properties", "required", "additionalProperties", "anyOf", "allOf", "if", "then"}


def is_type(value, name):
    if isinstance(value, bool):
        return name == "boolean"
    return isinstance(value, TYPES[name])


def faults(value, schema, place=""):
    """What is wrong with the value; nothing where the schema accepts it."""
    assert not set(schema) - KNOWN, set(schema) - KNOWN
    if "$ref" in schema:
        target = SCHEMA
        for step in schema["$ref"].removeprefix("#/").split("/"):
            target = target[step]
        yield from faults(value, target, place)
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(is_type(value, name) for name in names):
        yield f"{place}: not of type {', '.join(names)}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{place}: {value!r} is no word"
    if "const" in schema and value != schema["const"]:
        yield f"{place}: not {schema['const']!r}"
    if isinstance(value, (int, float)):
        if value < schema.get("minimum", value) or value > schema.get("maximum", value):
            yield f"{place}: {value} is out of range"
    if "anyOf" in schema and all(any(faults(value, one, place)) for one in schema["anyOf"]):
        yield f"{place}: {value!r} has none of the forms"
    for one in schema.get("allOf", []):
        yield from faults(value, one, place)
    if "if" in schema and not any(faults(value, schema["if"], place)):
        yield from faults(value, schema["then"], place)
    if isinstance(value, list) and "items" in schema:
        for index, entry in enumerate(value):
            yield from faults(entry, schema["items"], f"{place}[{index}]")
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        for key in schema.get("required", []):
            if key not in value:
                yield f"{place}.{key} is missing"
        for key, entry in value.items():
            if key in properties:
                yield from faults(entry, properties[key], f"{place}.{key}")
            elif schema.get("additionalProperties", True) is False:
                yield f"{place}.{key} is unknown"


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

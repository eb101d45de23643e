#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The schemas of docs/schemas accept what every command really prints and writes, and refuse documents that were damaged."""
import copy
import json
import pathlib
import random
import re
import sys
import tempfile
import unittest

import json_schema
import schema_outputs

try:
    import jsonschema
except ImportError:
    jsonschema = None

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PROGRAM = str(pathlib.Path(sys.argv[1]).resolve())
sys.path.insert(0, str(ROOT / "tools/schemas"))
SCHEMAS = {file.name.removesuffix(".schema.json"): json.loads(file.read_text())
           for file in sorted((ROOT / "docs/schemas").glob("*.schema.json"))}


def faults(document, name):
    return list(json_schema.faults(document, SCHEMAS[name], SCHEMAS[name]))


def places(value, path=()):
    """The path of every value in a document; of lists only those of the first and last entry."""
    yield path
    if isinstance(value, dict):
        for key, entry in value.items():
            yield from places(entry, (*path, key))
    elif isinstance(value, list):
        for index in sorted({0, len(value) - 1} if value else ()):
            yield from places(value[index], (*path, index))


def with_value(document, path, change):
    """A copy in which `change` was applied to the container and the key of a value."""
    copied = copy.deepcopy(document)
    container = copied
    for step in path[:-1]:
        container = container[step]
    change(container, path[-1])
    return copied


class Schemas(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.found = schema_outputs.documents(PROGRAM, pathlib.Path(cls.scratch.name), ROOT)
        cls.first = {}
        for name, what, document in cls.found:
            cls.first.setdefault(name, document)

    @classmethod
    def tearDownClass(cls):
        cls.scratch.cleanup()

    def test_are_those_of_the_tables(self):
        import importlib.machinery
        import importlib.util
        loader = importlib.machinery.SourceFileLoader("schemas", str(ROOT / "scripts/schemas"))
        script = importlib.util.module_from_spec(importlib.util.spec_from_loader("schemas", loader))
        loader.exec_module(script)
        there = {file.name: file.read_text() for file in (ROOT / "docs/schemas").glob("*.json")}
        self.assertEqual(there, script.schemas(), "scripts/schemas --write")

    def test_accept_what_commands_print_and_write(self):
        for name, what, document in self.found:
            with self.subTest(schema=name, of=what):
                self.assertEqual(faults(document, name)[:5], [])

    def test_there_is_an_output_for_each(self):
        self.assertEqual(sorted(self.first), sorted(SCHEMAS))

    def test_of_results_are_those_of_all_commands_that_print_any(self):
        page = (ROOT / "docs/cli.md").read_text()
        commands = set(re.findall(r"^\| `([a-z]+)[ `]", page.split("## Commands")[1].split("## Options")[0], re.M))
        asked = {words[0] for _, words in schema_outputs.QUESTIONS}
        self.assertEqual(commands - asked, {"launch", "view"})  # as train, in processes; nothing

    def test_refuse_a_missing_key(self):
        for name, document in self.first.items():
            for key in SCHEMAS[name]["required"]:
                with self.subTest(schema=name, key=key):
                    damaged = {other: value for other, value in document.items() if other != key}
                    self.assertIn(f".{key} is missing", faults(damaged, name))

    def test_refuse_an_unknown_key(self):
        for name, document in self.first.items():
            with self.subTest(schema=name):
                self.assertEqual(faults({**document, "new_key": 1}, name), [".new_key is unknown"])

    def test_refuse_values_of_another_type_wherever_they_are(self):
        drawn = random.Random(1)
        for name, document in self.first.items():
            everywhere = [path for path in places(document) if path and not {"estimated_from", "keys"} & set(path)]
            for path in drawn.sample(everywhere, min(30, len(everywhere))):
                def change(container, key):
                    container[key] = [[["wrong"]]] if not isinstance(container[key], list) else {"wrong": 1}
                with self.subTest(schema=name, place=path):
                    self.assertTrue(faults(with_value(document, path, change), name))

    def test_refuse_another_version(self):
        for name, document in self.first.items():
            if "schema_version" in document:
                self.assertEqual(faults({**document, "schema_version": 2}, name), [".schema_version: not 1"])

    def test_have_a_name_and_a_version_and_need_no_other_file(self):
        for name, schema in SCHEMAS.items():
            self.assertEqual(schema["$id"], f"urn:pipetwin:schema:{name}:1")
            self.assertIs(schema["additionalProperties"], False)
            for target in re.findall(r'"\$ref": "([^"]*)"', json.dumps(schema)):
                self.assertTrue(target.startswith("#/$defs/"), target)

    def test_say_what_python3_jsonschema_says(self):
        if jsonschema is None:
            self.skipTest("python3-jsonschema is not installed")
        for name, schema in SCHEMAS.items():
            judge = jsonschema.validators.validator_for(schema)
            judge.check_schema(schema)
            self.assertTrue(judge(schema).is_valid(self.first[name]), name)
            self.assertFalse(judge(schema).is_valid({**self.first[name], "new_key": 1}), name)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])

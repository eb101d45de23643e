#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The workflows of .github are YAML, and every script that they run is there with the words that it gets.

The YAML is read by PyYAML where Debian's python3-yaml is installed, else by lines alone.
"""
import pathlib
import re
import sys
import unittest

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))


def commands(file):
    return re.findall(r"(?:^|\s)((?:scripts|\.ci)/[a-z-]+)((?: [a-z-]+)*)", "\n".join(re.findall(r"run: (.*)", file.read_text())))


class Workflows(unittest.TestCase):
    def test_are_yaml_with_jobs_that_end(self):
        if yaml is None:
            self.skipTest("PyYAML is not installed (python3-yaml)")
        for file in FILES:
            with self.subTest(file=file.name):
                workflow = yaml.safe_load(file.read_text())
                self.assertEqual(workflow["permissions"], {"contents": "read"})
                for job in workflow["jobs"].values():
                    self.assertEqual(job["container"], "debian:12")
                    self.assertGreater(job["timeout-minutes"], 0)
                    for step in job["steps"]:
                        self.assertEqual(len({"run", "uses"} & set(step)), 1, step)

    def test_run_scripts_that_are_there(self):
        found = {script for file in FILES for script, _ in commands(file)}
        self.assertEqual(found, {".ci/run", "scripts/install-packages", "scripts/daily", "scripts/wheel"})
        for script in found:
            self.assertTrue((ROOT / script).stat().st_mode & 0o100, script)

    def test_install_purposes_that_are_known(self):
        known = re.search(r"unknown purpose.*one of ([a-z ]+)\"", (ROOT / "scripts/install-packages").read_text())[1].split()
        for file in FILES:
            for script, words in commands(file):
                if script == "scripts/install-packages":
                    self.assertEqual(set(words.split()) - set(known), set(), file.name)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The workflows of .github are YAML, and every script that they run is there with the words that it gets; .ci/run picks tests that
are there.

The YAML is read by PyYAML where Debian's python3-yaml is installed, else by lines alone.

    workflows_test.py [FOLDER]      FOLDER: where the test programs are built; those that are not there are not asked
"""
import pathlib
import os
import re
import subprocess
import sys
import unittest

try:
    import yaml
except ImportError:
    yaml = None

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
FOLDER = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else None
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
                    container = job["container"]
                    self.assertEqual(container if isinstance(container, str) else container["image"], "debian:12")
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

    def test_install_what_their_scripts_need_by_purposes(self):
        packages = dict(re.findall(r"^        ([a-z]+)\) echo (.*?) ;;", (ROOT / "scripts/install-packages").read_text(), re.M | re.S))
        for file in FILES:
            with self.subTest(file=file.name):
                wanted = re.findall(r"apt-get install[^\n]*", file.read_text())
                self.assertEqual(wanted, ["apt-get install -y --no-install-recommends ca-certificates git"])
                found = dict(commands(file))
                if "scripts/wheel" in found or "scripts/daily" in found:
                    purposes = found["scripts/install-packages"].split()
                    self.assertIn("python3-venv", " ".join(packages[one] for one in purposes).split())


def tests_of(program):
    """Names of all tests of a program of GoogleTest."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("GTEST_")}
    listed = subprocess.run([str(program), "--gtest_list_tests"], env=plain, capture_output=True, text=True, check=True)
    names, suite = [], ""
    for line in listed.stdout.splitlines():
        name = line.split("  # ")[0].rstrip()
        if name.startswith("  "):
            names.append(suite + name.strip())
        elif name.endswith("."):
            suite = name
    return names


class Sanitizers(unittest.TestCase):
    def test_run_and_leave_out_tests_that_are_there(self):
        text = (ROOT / ".ci/run").read_text()
        for variable, programs in (("threads", ("exec/exec_tests", "integration/integration_tests")),
                                   ("repeats", ("core/core_tests", "exec/exec_tests", "exec/cuda/cuda_kernel_tests"))):
            built = [FOLDER / program for program in programs] if FOLDER else []
            if not built or not all(program.exists() for program in built):
                self.skipTest(f"not all of {', '.join(programs)} are built")
            names = [name for program in built for name in tests_of(program)]
            patterns = "".join(re.findall(rf"^{variable}\+?='(.*)'$", text, re.M)).split(":")
            self.assertGreater(len(patterns), 10)
            for pattern in patterns:
                plain = re.escape(pattern.removeprefix("-")).replace(r"\*", ".*").replace(r"\?", ".")
                with self.subTest(variable=variable, pattern=pattern):
                    self.assertTrue(any(re.fullmatch(plain, name) for name in names), "no test has such a name")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])

# SPDX-License-Identifier: Apache-2.0
"""Tests scripts/hooks: which commits git refuses once they are installed."""

import os
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class Hooks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(os.path.join(ROOT, ".clang-format"), self.folder)
        self.git("init", "-q")
        for key, value in [
            ("user.name", "A"),
            ("user.email", "a@example.org"),
            ("core.hooksPath", os.path.join(ROOT, "scripts", "hooks")),
        ]:
            self.git("config", key, value)

    def git(self, *args):
        return subprocess.run(["git", *args], cwd=self.folder, capture_output=True, text=True)

    def commit(self, source, subject):
        with open(os.path.join(self.folder, "a b.cpp"), "w", encoding="utf-8") as file:
            file.write(source)
        self.git("add", "-A")
        return self.git("commit", "-qm", subject)

    @unittest.skipUnless(shutil.which("clang-format-16"), "clang-format-16 is missing")
    def test_a_staged_source_has_to_be_formatted(self):
        refused = self.commit("int  x;\n", "a: b")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("not formatted: a b.cpp", refused.stderr)
        self.assertIn("scripts/format", refused.stderr)
        self.assertEqual(self.commit("int x;\n", "a: b").returncode, 0)

    @unittest.skipUnless(shutil.which("clang-format-16"), "clang-format-16 is missing")
    def test_what_is_staged_counts_not_what_lies_there(self):
        self.commit("int x;\n", "a: b")
        with open(os.path.join(self.folder, "a b.cpp"), "w", encoding="utf-8") as file:
            file.write("int  y;\n")
        self.assertEqual(self.git("commit", "-q", "--allow-empty", "-m", "a: b").returncode, 0)

    def test_a_subject_has_at_most_72_letters(self):
        longest = "x" * 72
        self.assertEqual(
            self.git("commit", "-q", "--allow-empty", "-m", longest).returncode, 0
        )
        refused = self.git("commit", "-q", "--allow-empty", "-m", longest + "x", "-m", "body")
        self.assertEqual(refused.returncode, 1)
        self.assertIn("73 letters, and may have 72", refused.stderr)
        self.assertIn("hint:", refused.stderr)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The notebooks, carried out without Jupyter: their answers, and that all their pictures are pictures.

    PYTHONPATH=FOLDER notebooks_test.py

FOLDER has the package as python/build.py puts it together."""

import json
import pathlib
import sys
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "notebooks"
sys.path.insert(0, str(ROOT / "tools" / "site"))

import notebooks  # noqa: E402


class Notebook(unittest.TestCase):
    def names_of(self, name, pictures):
        """What a notebook leaves behind; it shows at least so many pictures."""
        done, names = notebooks.run(FOLDER / f"{name}.ipynb")
        shown = [value for *_, value in done if value and "<svg" in value]
        self.assertGreaterEqual(len(shown), pictures)
        for value in shown:
            picture = xml.etree.ElementTree.fromstring("<all>" + value[value.index("<svg"):value.rindex("</svg>") + 6] + "</all>")
            self.assertGreater(len(list(picture.iter())), 10)
        return names

    def test_each_is_in_the_list(self):
        index = (FOLDER / "README.md").read_text()
        for file in FOLDER.glob("*.ipynb"):
            self.assertIn(f"({file.name})", index)
            for cell in json.loads(file.read_text())["cells"]:
                self.assertFalse(cell.get("outputs"), f"{file.name} is stored with results")

    def test_first_plan(self):
        names = self.names_of("first-plan", 1)
        best, found = names["best"], names["found"]
        self.assertLessEqual(best["peak_bytes"], 24 * 2**30)  # of a card
        self.assertEqual(best["stages"] * best["data_parallel"] * best["tensor_parallel"], 8)
        self.assertLessEqual(found.json["lower_bound_ms"], best["step_ms"])
        bubbles = [step.bubble for step in names["tried"].values()]
        self.assertEqual(bubbles, sorted(bubbles, reverse=True))  # fewer micro-batches, more bubble
        # A search of its own simulates its best plan alike.
        self.assertAlmostEqual(names["tried"][best["micro_batches"]].step_ms, best["step_ms"], delta=1e-6 * best["step_ms"])

    def test_invent_a_schedule(self):
        names = self.names_of("invent-a-schedule", 2)
        # docs/tutorials/invent-a-schedule.md has these times.
        self.assertEqual({name: step.step_ms for name, step in names["slow"].items()},
                         {"gpipe": 36, "1f1b": 41, "zb-h1": 33, "mine": 36})
        self.assertTrue(names["verdict"])
        self.assertFalse(names["broken"])

    def test_read_a_torch_trace(self):
        names = self.names_of("read-a-torch-trace", 1)
        self.assertEqual(names["slowest"], 2)  # the stage that was made with three blocks in place of two
        self.assertLess(abs(names["corrected"].step_error_percent), abs(names["compared"].step_error_percent))

    def test_a_papers_figures(self):
        names = self.names_of("a-papers-figures", 1)
        for devices in (4, 8):  # docs/validation.md: predicted, within 3 %
            paper = names["published"][devices] / names["published"][2]
            self.assertLess(abs(names["throughput"][devices] / names["throughput"][2] / paper - 1), 0.03)
        for ours, formula in names["bubbles"].values():
            self.assertAlmostEqual(ours, formula, places=12)
        # Qi et al.: m (F + B) without a bubble, (m + p - 1)(F + B) with that of 1F1B.
        self.assertEqual(names["rows"]["1f1b"].step_ms, (8 + 3) * 3)
        self.assertEqual(names["rows"]["zb-h2"]["bubble"]["span"], 0)

    def test_memory_against_time(self):
        names = self.names_of("memory-against-time", 1)
        front = names["front"]
        self.assertEqual([point[0] for point in front], sorted(point[0] for point in front))
        self.assertEqual([point[1] for point in front], sorted((point[1] for point in front), reverse=True))
        for point in names["points"]:
            self.assertTrue(any(best[0] <= point[0] and best[1] <= point[1] for best in front), point)


if __name__ == "__main__":
    unittest.main()

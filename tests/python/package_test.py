#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package and the C library under it, beside the program.

    PYTHONPATH=FOLDER package_test.py PROGRAM [unittest's arguments]

FOLDER has the package as python/build.py puts it together, PROGRAM is the whole `pipetwin`. PIPETWIN_SOAK multiplies the
1,000 random calls."""

import ctypes
import doctest
import importlib
import importlib.util
import json
import math
import multiprocessing
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import unittest

import pipetwin
from pipetwin import _inputs, _library, _questions, _results
from pipetwin._library import library as loaded_library

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = None
SCENARIOS = ROOT / "scenarios"
NUMBERS = ["simulate", "--stages", "4", "--micro-batches", "8", "--forward-ms", "1", "--backward-ms", "2", "--json"]
SEARCH = ["plan", "llama-3.2-1b", "--cluster", "8x-h100-sxm", "--schedule", "1f1b", "--json"]
LONG_SEARCH = ["plan", "llama-3.1-405b", "--cluster", "8x-h100-sxm", "--nodes", "128", "--json"]
PAPER = str(SCENARIOS / "papers" / "gpipe-transformer-48.toml")
QUESTIONS = [
    NUMBERS,
    [*NUMBERS[:-1]],
    [*NUMBERS, "--schedule", "zb-h1", "--jitter", "0.1", "--seed", "7"],
    [*NUMBERS, "--schedule", "gpipe,1f1b,zb-v"],
    ["simulate", PAPER, "--json"],
    ["simulate", PAPER, "--set", "pipeline.micro_batches=8"],
    ["sweep", "--stages", "2,4", "--micro-batches", "8", "--forward-ms", "1", "--backward-ms", "2", "--json"],
    ["check", str(SCENARIOS / "own-schedule.csv"), "--json"],
    ["check", str(SCENARIOS / "own-schedule.csv"), "--preposted-receives"],
    ["plan", PAPER, "--set", "pipeline.stages=\"auto\"", "--set", "cluster.count=4", "--json"],
    SEARCH,
    ["simulate", "--help"],
]
MISTAKES = [
    ["simulate", PAPER, "--set", "pipeline.stages=-1"],
    ["simulate", PAPER, "--set", "pipeline.schedul=\"gpipe\""],
    ["simulate", PAPER, "--stage", "4"],
    ["simulate", "no-such-file.toml"],
    ["plan", "llama-3-70b", "--cluster", "8x-h100-sxm", "--nodes", "0"],
    ["plan", "llama-3-7b", "--cluster", "8x-h100-sxm"],
    ["plan", "llama-2-13b", "--cluster", "8x-rtx-4090", "--schedule", "1f1b"],
    ["import", "hf", str(ROOT / "README.md"), "--out", "x.json", "--device", "h100-sxm"],
    ["export", "svgg", PAPER, "--out", "x.svg"],
]


COSTS = {"schema_version": 1, "source": "measured", "device": "x", "precision": "fp32", "layers": [
    {"name": f"layer{i}", "parameter_bytes": 1024, "samples": [{"micro_batch_size": 1, "forward_ns": 1000000,
     "backward_ns": 2000000, "output_bytes": 64, "saved_bytes": 256}]} for i in range(4)]}
OPEN = {"model": {"kind": "profile", "file": "costs.profile.json"}, "training": {"batch": 8}, "cluster": {"count": 2},
        "pipeline": {"micro_batches": 8, "data_parallel": 1}}


def small_plan():
    return pipetwin.plan(pipetwin.Scenario(OPEN, {"costs.profile.json": COSTS}))


def of_stages(stages, costs=COSTS):
    return pipetwin.Scenario({**OPEN, "pipeline": {"stages": stages, "micro_batches": 8, "schedule": "1f1b"},
                              "cluster": {"count": 4}}, {"costs.profile.json": costs})


def of_program(words):
    done = subprocess.run([PROGRAM, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def without_progress(notes):
    return [line for line in notes.splitlines() if not re.match(r"(planning|every shape|looking for .*): \d+ %", line)]


class AsTheProgram(unittest.TestCase):
    def test_the_same_bytes(self):
        for words in QUESTIONS:
            with self.subTest(words=words):
                code, out, err = of_program(words)
                answer = pipetwin.ask(words)
                self.assertEqual((answer.code, answer.result), (code, out))
                self.assertEqual(without_progress(answer.notes), without_progress(err))

    def test_the_same_errors(self):
        for words in MISTAKES:
            with self.subTest(words=words):
                code, out, err = of_program(words)
                self.assertNotEqual(code, 0)
                with self.assertRaises(pipetwin.PipetwinError) as raised:
                    pipetwin.ask(words)
                error = raised.exception
                self.assertEqual((error.code, error.answer.result), (code, out))
                self.assertEqual(without_progress(error.answer.notes), without_progress(err))
                place = f"{error.place}: " if error.place else ""
                self.assertIn(f"error: {place}{error.reason}\nhint: {error.hint}\n", err)

    def test_places_have_parts(self):
        text = "model = {kind = \"mlp\", sizes = [8, 8, 8]}\n[pipeline]\nstages = -2\n"
        with self.assertRaises(pipetwin.BadInputError) as raised:
            pipetwin.simulate(pipetwin.Scenario(text))
        error = raised.exception
        self.assertEqual((error.file, error.line, error.key, error.kind, error.code),
                         ("scenario.toml", 3, "pipeline.stages", "bad input", 3))
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "scenario.toml"
            file.write_text(text)
            done = subprocess.run([PROGRAM, "simulate", "scenario.toml"], cwd=folder, capture_output=True, text=True,
                                  check=False)
        self.assertEqual(error.answer.notes, done.stderr)

    def test_files_come_and_go_as_text(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "x.svg"
            self.assertEqual(of_program(["export", "svg", str(SCENARIOS / "own-schedule.csv"), "--out", str(out)])[0], 0)
            text = (SCENARIOS / "own-schedule.csv").read_text()
            ours = pipetwin.ask(["export", "svg", "own-schedule.csv", "--out", "x.svg"],
                                files={"own-schedule.csv": text}, outputs=["x.svg"])
            self.assertEqual(ours.file("x.svg").decode(), out.read_text())

    def test_an_output_may_have_the_name_of_a_given_file(self):
        rows = "0F0,0B0\r\n"
        answer = pipetwin.ask(["export", "torch-csv", "s.csv", "--out", "s.csv", "--force"], files={"s.csv": rows},
                              outputs=["s.csv"])
        self.assertEqual(answer.file("s.csv").decode().split(",")[0], "0F0")

    def test_given_files_keep_apart(self):
        both = pipetwin.sweep(of_stages(2), of_stages(4)).json["plans"]
        alone = [pipetwin.simulate(of_stages(stages)).step_ms for stages in (2, 4)]
        self.assertEqual([plan["step_ms"] for plan in both], alone)
        self.assertNotEqual(*alone)
        with self.assertRaisesRegex(pipetwin.UsageError, "costs.profile.json"):
            pipetwin.sweep(of_stages(2), of_stages(2, {**COSTS, "device": "y"}))

    def test_paths_are_files_of_their_own(self):
        plan, rows = small_plan(), pipetwin.Schedule([["0F0", "0B0"]])
        before = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                for name in ("exported", "imported"):
                    pathlib.Path(name).write_text(rows.to_csv())
                self.assertEqual(pipetwin.export("torch-csv", "exported"), pipetwin.export("torch-csv", rows))
                self.assertIn("0F0", pipetwin.import_file("imported", "torch-csv").content)
                trace = plan.file("predicted.trace.json")
                with self.assertRaisesRegex(pipetwin.FileError, "predicted.trace.json: cannot open"):
                    pipetwin.compare(plan, "predicted.trace.json")
                pathlib.Path("predicted.trace.json").write_text(trace)
                self.assertEqual(pipetwin.compare(plan, "predicted.trace.json").step_error_percent, 0)
                pathlib.Path("costs.profile.json").write_text("{}")
                with self.assertRaisesRegex(pipetwin.BadInputError, "costs.profile.json"):
                    pipetwin.simulate(of_stages(2), profile="costs.profile.json")
            finally:
                os.chdir(before)

    def test_schedules_of_spreadsheets(self):
        plain = pipetwin.Schedule([[("0F1", "0B0"), "0F0"], ["1F0"]])
        for text in ("\ufeff(0F1;0B0)OVERLAP_F_B,0F0\n1F0,\n", '"(0F1;0B0)OVERLAP_F_B","0F0"\r\n"1F0",""\r\n',
                     "sep=;\r(0F1;0B0)OVERLAP_F_B;0F0\r1F0;\r", "(0F1;0B0)OVERLAP_F_B\t 0F0\r\r\n1F0\r\r\n\t"):
            with self.subTest(text=text):
                self.assertEqual(pipetwin.Schedule.from_csv(text), plain)
        with self.assertRaises(pipetwin.BadInputError):
            pipetwin.Schedule.from_csv('"0F0,0B0"x\n')

    def test_what_is_wrong_with_a_schedule(self):
        found = pipetwin.check([["0F0", "0B0"], ["1B0", "1F0"]])
        self.assertEqual([(one["rank"], one["action"]) for one in found.violations], [(1, "1B0")])
        self.assertEqual(pipetwin.check([["0F0", "0B0"]]).violations, [])

    def test_a_search_keeps_its_files(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "plan"
            code, _, _ = of_program([*SEARCH, "--out", str(out)])
            self.assertEqual(code, 0)
            plan = pipetwin.plan("llama-3.2-1b", "8x-h100-sxm", schedule="1f1b")
            for name in ("scenario.toml", "profile.json", "schedule.csv", "plan.json", "predicted.trace.json"):
                self.assertEqual(plan.file(name), (out / name).read_bytes().decode(), name)
        self.assertNotIn("/", plan["answer"]["written"]["folder"])
        self.assertEqual(plan.schedule.ranks, plan.ranked[0]["stages"])
        again = pipetwin.simulate(plan)
        self.assertAlmostEqual(again.step_ms / plan.step_ms, 1, places=9)
        self.assertIn("<table>", plan._repr_html_())

    def test_the_program_of_the_package(self):
        for words in (NUMBERS, ["--version"]):
            done = subprocess.run([sys.executable, "-m", "pipetwin", *words], capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stdout), of_program(words)[:2])
        done = subprocess.run([sys.executable, "-m", "pipetwin", "train", PAPER, "--out", "x"], capture_output=True,
                              text=True, check=False)
        self.assertEqual(done.returncode, 5)
        self.assertIn("has no executor", done.stderr)


class Timelines(unittest.TestCase):
    def test_lie_where_the_library_has_them(self):
        step = pipetwin.simulate(stages=4, micro_batches=8, schedule="1f1b", forward_ms=1, backward_ms=2)
        timeline = step.timeline
        size = ctypes.c_size_t()
        lib = loaded_library()
        for rank, row in enumerate(timeline.raw):
            at = lib.pipetwin_answer_row(step.answer.handle(), rank, ctypes.byref(size))
            self.assertEqual((ctypes.addressof(row), len(row)), (at, size.value))
        self.assertEqual(timeline.end, 33_000_000)
        # The last rank of 1F1B: F and B in turns, without a gap.
        last = [(timeline.kinds[span.kind], span.micro_batch) for span in timeline.raw[3]
                if timeline.kinds[span.kind] in "FB"]
        self.assertEqual(last, [(kind, batch) for batch in range(8) for kind in "FB"])
        self.assertEqual(timeline.chunks(3), {3: 0})
        self.assertTrue(timeline.svg().startswith("<svg"))

    def test_outlive_the_objects_that_they_came_with(self):
        rows = pipetwin.simulate(stages=2, micro_batches=2, schedule="gpipe", forward_ms=1, backward_ms=2).timeline.raw
        self.assertEqual(rows[0][-1].end, 9_000_000)

    def test_outlive_a_closed_answer(self):
        answer = pipetwin.simulate(stages=2, micro_batches=2, schedule="gpipe", forward_ms=1, backward_ms=2).answer
        rows, handle = answer.rows(), answer.handle()
        answer.close()
        self.assertEqual(loaded_library().pipetwin_answer_code(handle), 0)
        self.assertEqual(rows[0][-1].end, 9_000_000)
        del rows
        self.assertEqual(loaded_library().pipetwin_answer_code(handle), -1)

    def test_numpy_arrays_are_views(self):
        try:
            import numpy
        except ImportError:
            self.skipTest("numpy is not installed")
        timeline = pipetwin.simulate(stages=2, micro_batches=2, schedule="1f1b", forward_ms=1, backward_ms=2).timeline
        row = timeline[0]
        self.assertEqual(row.__array_interface__["data"][0], ctypes.addressof(timeline.raw[0]))
        self.assertEqual(row["end"].max(), 9_000_000)
        self.assertTrue((row["begin"] <= row["ready"]).all() and (row["ready"] <= row["end"]).all())
        self.assertIsInstance(row, numpy.ndarray)


class Threads(unittest.TestCase):
    def test_get_what_each_alone_gets(self):
        alone = [pipetwin.ask(words).result for words in QUESTIONS[:9]]
        wrong = []

        def work(first):
            for turn in range(len(alone)):
                index = (first + turn) % len(alone)
                if pipetwin.ask(QUESTIONS[index]).result != alone[index]:
                    wrong.append(QUESTIONS[index])

        threads = [threading.Thread(target=work, args=(2 * number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_one_question_is_asked_by_one_of_them(self):
        lib = loaded_library()
        question = lib.pipetwin_question_new(b"plan")
        for word in LONG_SEARCH[1:]:
            lib.pipetwin_question_word(question, word.encode())
        codes = []
        has_begun = threading.Event()
        progress = _library._PROGRESS(lambda share, what, user: has_begun.set() or 0)
        lib.pipetwin_question_on_progress(question, progress, None)
        searching = threading.Thread(target=lambda: codes.append(lib.pipetwin_answer_code(lib.pipetwin_ask(question))))
        searching.start()
        self.assertTrue(has_begun.wait(60))
        second = lib.pipetwin_ask(question)
        self.assertEqual(lib.pipetwin_answer_code(second), 2)
        self.assertIn(b"another thread", lib.pipetwin_answer_error(second, 4))
        self.assertEqual(lib.pipetwin_question_word(question, b"--json"), -1)
        lib.pipetwin_question_cancel(question)
        searching.join(60)
        self.assertFalse(searching.is_alive())
        self.assertEqual(codes, [130])
        lib.pipetwin_question_free(question)
        lib.pipetwin_answer_free(second)


class Stop(Exception):
    pass


class Searches(unittest.TestCase):
    def test_end_with_an_exception_of_the_callback(self):
        thrown = Stop("mine")

        def progress(share, what):
            raise thrown

        with self.assertRaises(Stop) as raised:
            pipetwin.ask(LONG_SEARCH, progress=progress)
        self.assertIs(raised.exception, thrown)

    def test_end_with_ctrl_c(self):
        timer = threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT))
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            pipetwin.ask(LONG_SEARCH)

    def test_end_with_the_best_so_far(self):
        shares = []

        def progress(share, what):
            shares.append(share)
            return "best" in what and len(shares) > 20

        plan = pipetwin.plan("llama-3-70b", "8x-h100-sxm", nodes=8, progress=progress, files=False)
        self.assertGreater(len(plan.ranked), 0)
        self.assertFalse(plan["proven_optimal"])
        self.assertTrue(all(0 <= share <= 1 for share in shares))


def ask_in_child(results):
    try:
        pipetwin.ask(NUMBERS)
        results.put("answered")
    except pipetwin.UnavailableError as error:
        results.put(error.reason)


class BadInput(unittest.TestCase):
    def test_a_forked_process_is_told(self):
        pipetwin.ask(NUMBERS)
        fork = multiprocessing.get_context("fork")
        results = fork.Queue()
        child = fork.Process(target=ask_in_child, args=(results,))
        child.start()
        self.assertIn("forked", results.get(timeout=20))
        child.join()

    def test_freed_and_foreign_handles(self):
        lib = loaded_library()
        answer = pipetwin.ask(NUMBERS)
        handle = answer.handle()
        answer.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            answer.rows()
        for bad in (handle, None, 1, 2**63):
            self.assertEqual(lib.pipetwin_answer_code(bad), -1)
            self.assertIsNone(lib.pipetwin_answer_result(bad, None))
            self.assertIsNone(lib.pipetwin_answer_row(bad, 0, None))
            self.assertEqual(lib.pipetwin_question_word(bad, b"x"), -1)
            self.assertIsNone(lib.pipetwin_ask(bad))
            lib.pipetwin_answer_free(bad)
            lib.pipetwin_question_free(bad)
            lib.pipetwin_question_cancel(bad)

    def test_what_is_no_question(self):
        for words in (["train", "x"], ["view"], ["simulat"], ["import", "auto", "-", "--out", "x"]):
            with self.assertRaises(pipetwin.UsageError):
                pipetwin.ask(words)

    def test_wrong_types_and_numbers(self):
        with self.assertRaises(TypeError):
            pipetwin.ask("simulate x")
        with self.assertRaises(TypeError):
            pipetwin.ask(["simulate", 4])
        with self.assertRaises(TypeError):
            pipetwin.simulate(stages="four" and object())
        with self.assertRaises(TypeError):
            pipetwin.Model(7)
        with self.assertRaises(TypeError):
            pipetwin.plan("llama-3-8b", "8x-h100-sxm", progress=3)
        for bad in (math.nan, math.inf):
            with self.assertRaises(pipetwin.UsageError):
                pipetwin.simulate(stages=2, micro_batches=2, forward_ms=bad, backward_ms=1)
            with self.assertRaises(pipetwin.UsageError):
                pipetwin.simulate({"model": {"kind": "mlp", "sizes": [bad]}})
        with self.assertRaises(pipetwin.UsageError):
            pipetwin.simulate(stages=2, micro_batches=2, forward_ms=1, backward_ms=1, no_such_option=1)
        with self.assertRaises(pipetwin.UsageError):
            pipetwin.ask(["check", "../x"], files={"../x": ""})
        with self.assertRaises(pipetwin.BadInputError):
            pipetwin.Action.parse("F")

    def test_errors_can_be_pickled(self):
        import pickle
        with self.assertRaises(pipetwin.UsageError) as raised:
            pipetwin.ask(["simulat"])
        again = pickle.loads(pickle.dumps(raised.exception))
        self.assertEqual((str(again), again.hint), (str(raised.exception), raised.exception.hint))

    def test_random_calls(self):
        draw = random.Random(int(os.environ.get("PIPETWIN_SEED", "1")))
        values = [None, True, False, 0, -1, 1, 2, 3, 4, 7, 2**31, 2**70, 0.5, -2.5, math.nan, math.inf, "", "x", "1f1b",
                  "gpipe", "zb-v", "auto", "\0", "\udc80", "a" * 3000, b"bytes", [], [1, 2], ["gpipe", "1f1b"], {}, {"a": 1},
                  {"pipeline": {"stages": 2}}, object(), PAPER, "4k", pipetwin.Schedule([["0F0", "0B0"]]), (1,), set,
                  [["0F0", "0B0"], ["1F0", "1B0"]], [[None]], pipetwin.Model("llama-3-8b"), "[model]\nkind = 1\n"]
        names = ["schedule", "stages", "micro_batches", "chunks", "forward_ms", "backward_ms", "profile", "set", "jitter",
                 "latency_ms", "nonsense", "capacity", "seed", "recompute", "group_size", "set"]
        raised = {}
        rounds = 1000 * int(os.environ.get("PIPETWIN_SOAK", "1"))
        for _ in range(rounds):
            options = {draw.choice(names): draw.choice(values) for _ in range(draw.choice((0, 0, 1, 1, 2)))}
            call = draw.choice([
                lambda: pipetwin.simulate(draw.choice(values), **options),
                lambda: pipetwin.simulate(**{"stages": 2, "micro_batches": 4, "forward_ms": 1, "backward_ms": 2, **options}),
                lambda: pipetwin.check(draw.choice(values), **options),
                lambda: pipetwin.export(draw.choice(["svg", "torch-csv", "x"]), draw.choice(values), **options),
                lambda: pipetwin.compare(draw.choice(values), *[draw.choice(values) for _ in range(draw.randrange(2))]),
                lambda: pipetwin.Schedule(draw.choice(values)).to_csv(),
                lambda: pipetwin.ask(draw.choice(values)),
                lambda: pipetwin.ask(["simulate", *[draw.choice(values) for _ in range(draw.randrange(4))]]),
                lambda: pipetwin.import_file(draw.choice(values), draw.choice(["auto", "hf", "csv", "x"])),
            ])
            try:
                call()
                kind = "answered"
            except Exception as error:
                kind = type(error).__name__
                self.assertIsInstance(error, (pipetwin.PipetwinError, TypeError, ValueError), repr(error))
            raised[kind] = raised.get(kind, 0) + 1
        self.assertGreater(raised.get("answered", 0), rounds // 50, raised)
        print(f"{rounds} random calls: {raised}")


class Wheel(unittest.TestCase):
    @unittest.skipUnless(shutil.which("dpkg"), "there is no dpkg")
    def test_has_the_licence_of_every_library(self):
        spec = importlib.util.spec_from_file_location("build", ROOT / "python" / "build.py")
        build = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(build)
        library = pathlib.Path(PROGRAM).parents[1] / "lib" / "libpipetwin.so"
        theirs = [path for name, path in build.places(library).items() if not build.SYSTEM.match(name)]
        texts = build.licences([*theirs, *build.HEADERS])
        self.assertGreaterEqual(len(texts), len(theirs) + len(build.HEADERS))
        for package, text in texts.items():
            self.assertRegex(text.decode(), "(?i)licen[cs]e|copyright", package)


class Documentation(unittest.TestCase):
    def test_examples_of_docstrings(self):
        for module in (pipetwin, _inputs, _library, _questions, _results, importlib.import_module("pipetwin.torch")):
            failed, tried = doctest.testmod(module)
            self.assertEqual(failed, 0, module.__name__)

    def test_everything_public_has_a_docstring(self):
        for name in pipetwin.__all__:
            self.assertTrue((getattr(pipetwin, name).__doc__ or "").strip(), name)

    def test_the_page_names_everything_public(self):
        page = (ROOT / "docs" / "python.md").read_text()
        for name in pipetwin.__all__:
            self.assertIn(f"`{name}", page.replace("pipetwin.", ""), name)

    def test_importing_takes_no_torch_and_no_numpy(self):
        script = "import sys, pipetwin; print(sorted({'torch', 'numpy', 'pandas'} & set(sys.modules)))"
        self.assertEqual(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                                        check=True).stdout, "[]\n")


if __name__ == "__main__":
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    unittest.main()

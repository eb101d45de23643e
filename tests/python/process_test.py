#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python package beside signals, forks, few open files, and a stand-in for PyTorch.

    PYTHONPATH=FOLDER process_test.py [unittest's arguments]

FOLDER has the package as python/build.py puts it together."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock

import pipetwin
from pipetwin import _library
from pipetwin._library import library as loaded_library

SEARCH = ["plan", "llama-3.2-1b", "--cluster", "8x-h100-sxm", "--schedule", "1f1b", "--json"]
LONG_SEARCH = ["plan", "llama-3.1-405b", "--cluster", "8x-h100-sxm", "--nodes", "128", "--json"]
COSTS = {"schema_version": 1, "source": "measured", "device": "x", "precision": "fp32", "layers": [
    {"name": f"layer{i}", "parameter_bytes": 1024, "samples": [{"micro_batch_size": 1, "forward_ns": 1000000,
     "backward_ns": 2000000, "output_bytes": 64, "saved_bytes": 256}]} for i in range(4)]}
OPEN = {"model": {"kind": "profile", "file": "costs.profile.json"}, "training": {"batch": 8}, "cluster": {"count": 2},
        "pipeline": {"micro_batches": 8, "data_parallel": 1}}


def small_plan():
    return pipetwin.plan(pipetwin.Scenario(OPEN, {"costs.profile.json": COSTS}))


ALARMS = """
import gc, signal, pipetwin
class Stop(Exception): pass
def on_alarm(number, frame):
    raise Stop
signal.signal(signal.SIGALRM, on_alarm)
for turn in range(4):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.1, 0.0002)
        pipetwin.ask(%r, progress=lambda share, what: None)
    except Stop:
        pass
    finally:
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                break
            except Stop:
                pass
    gc.collect()
assert pipetwin.ask(["devices", "--json"]).code == 0
print("whole")
"""


class Signals(unittest.TestCase):
    def test_leave_nothing_freed_in_use(self):
        done = subprocess.run([sys.executable, "-c", ALARMS % LONG_SEARCH], capture_output=True, text=True, check=False,
                              timeout=60)
        self.assertEqual((done.returncode, done.stdout), (0, "whole\n"), done.stderr[-2000:])


class Files(unittest.TestCase):
    def test_outputs_that_cannot_be_read_are_an_error(self):
        import resource
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        taken = []

        def leave_three(share, what):  # folders within folders take more of them
            if taken:
                return
            for own in pathlib.Path(folder).iterdir():
                (own / "1/2/3/4").mkdir(parents=True)
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, limits[1]))
            try:
                while True:
                    taken.append(os.dup(0))
            except OSError:
                for _ in range(3):
                    os.close(taken.pop())

        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, TMPDIR=folder):
            try:
                with self.assertRaisesRegex(pipetwin.FileError, "cannot be read: Too many open files\nhint: raise"):
                    pipetwin.ask([*SEARCH, "--out", "plan"], outputs=["plan"], progress=leave_three)
            finally:
                for number in taken:
                    os.close(number)
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)


class Forks(unittest.TestCase):
    def exit_code_in_child(self, act):
        child = os.fork()
        if child == 0:
            signal.alarm(5)
            code = 1
            try:
                code = act() or 0
            finally:
                os._exit(code)
        return os.waitpid(child, 0)[1]

    def test_take_no_lock_of_python_along(self):
        with _library._loading:
            self.assertEqual(self.exit_code_in_child(lambda: loaded_library().pipetwin_kind_name(0) != b"F"), 0)

    def test_take_no_lock_of_the_library_along(self):
        lib = loaded_library()
        ends = threading.Event()

        def work():
            while not ends.is_set():
                lib.pipetwin_question_free(lib.pipetwin_question_new(b"check"))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(100):
                if self.exit_code_in_child(lambda: lib.pipetwin_question_free(lib.pipetwin_question_new(b"check"))):
                    self.fail("a child hangs")
        finally:
            ends.set()
            for thread in threads:
                thread.join()


class StandInForTorch:
    """The part of torch that pipetwin.torch.schedule uses, which keeps what was loaded."""

    def __init__(self):
        loaded = self.loaded = []

        class Runtime:
            def __init__(self, stages, micro_batches, loss_fn=None):
                self.micro_batches = micro_batches

            def _load_csv(self, file, format):
                loaded.append((pathlib.Path(file).read_text(), format))

        class Module:
            def to(self, device):
                return self

        class Stage:
            def __init__(self, module, index, count, device):
                self.stage_index = index

        self.module = Module
        schedules = types.SimpleNamespace(_PipelineScheduleRuntime=Runtime,
                                          _ComputationType=types.SimpleNamespace(REDUCE_GRAD=1))
        pipelining = types.SimpleNamespace(PipelineStage=Stage, schedules=schedules)
        distributed = types.SimpleNamespace(is_initialized=lambda: True, get_rank=lambda: 0, pipelining=pipelining)
        torch = types.SimpleNamespace(__version__="2.6", distributed=distributed, device=str,
                                      nn=types.SimpleNamespace(Module=Module))
        self.modules = {"torch": torch, "torch.distributed": distributed, "torch.distributed.pipelining": pipelining}


class InPyTorch(unittest.TestCase):
    def test_a_plan_and_a_schedule_are_loaded(self):
        stand_in, plan = StandInForTorch(), small_plan()
        with unittest.mock.patch.dict(sys.modules, stand_in.modules):
            for source in (plan, plan.schedule):
                runtime = pipetwin.torch.schedule(source, [stand_in.module() for _ in range(plan.schedule.stages)])
                self.assertEqual(runtime.micro_batches, 8)
        for text, format in stand_in.loaded:
            self.assertEqual(format, "compute_comms")
            self.assertEqual(pipetwin.Schedule.from_csv(text).placement(), plan.schedule.placement())


class Folders(unittest.TestCase):
    def test_given_files_go_to_no_other_folder_than_tmpdir(self):
        words = "import pipetwin; pipetwin.check(pipetwin.Schedule([['0F0', '0B0']]))"
        with tempfile.TemporaryDirectory() as folder:
            asked = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True,
                                   env=os.environ | {"TMPDIR": f"{folder}/not-there"})
        self.assertEqual(asked.returncode, 1)
        self.assertIn("FileError: TMPDIR: no folder for the given files", asked.stderr)


if __name__ == "__main__":
    unittest.main()

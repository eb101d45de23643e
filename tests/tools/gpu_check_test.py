# SPDX-License-Identifier: Apache-2.0
"""Tests of scripts/gpu-check on a machine without a GPU: the programs of the bundle and CUDA's tools are stand-ins, which say
what they were called with, and print what the real ones print where the script reads it."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = {"machine.txt", "clocks.csv", "tests.txt", "runs.txt", "peer.txt", "speed.txt", "runs.tar.gz", "summary.txt"}
ORDER = ["CudaSelfTest.*", "profile k1-m1", "train k1", "train k1-own-attention", "torch_gpt2.py",
         "profile k2-m4", "train k2",
         "profile k2-m4-streams", "train k2-streams", "profile k4-m8", "train k4", "gpu_kernel_bench", "gpu_kernel_bench",
         "profile resnet50-k1-m1", "train resnet50-k1", "train resnet50-k1-own", "profile resnet50-k2-m4", "train resnet50-k2",
         "profile unet-k1-m1", "train unet-k1", "train unet-k1-own", "profile unet-k2-m4", "train unet-k2",
         "profile llama-k1-m1", "train llama-k1", "train llama-k1-own-attention", "profile llama-k2-m4", "train llama-k2",
         "profile llama-small-gpu-k1-m2", "train llama-small-gpu", "profile llama-small-cpu-k1-m2", "train llama-small-cpu",
         "train ncu-m1", "-*CudaProducts*:CudaSelfTest.*",
         "-GpuLinkTest.*", "*CudaProducts*", "GpuLinkTest.*", "memcheck", "memcheck"]

STAND_IN = r"""#!/usr/bin/env bash
echo "$(basename "$0") $*" >>"$CALLS"
if [ -n "${STALLS:-}" ] && [[ "$(basename "$0") $*" == *"$STALLS"* ]]; then
    mkdir -p "$FOLDER/stalling"
    while [ -e "$FOLDER/stalling" ]; do sleep 0.05; done &
    trap 'wait_is_over=1' TERM
    wait
fi
"""
PIPETWIN = STAND_IN + r"""
while [ $# -gt 0 ]; do
    case $1 in
        devices | profile | train | compare) command=$1 ;;
        --json) json=1 ;;
        --out) out=$2 ;;
        training.steps=*) steps=${1#*=} ;;
    esac
    shift
done
case $command in
    devices)
        if [ -z "${json:-}" ]; then
            echo "cuda available"
        else
            cat "$FOLDER/devices.json"
            sleep 0.01
            echo
        fi
        ;;
    profile) echo '{}' >"$out" ;;
    train)
        mkdir "$out"
        if [ -z "${wait_is_over:-}" ]; then
            for ((step = 0; step < steps; ++step)); do
                printf 'step %5d  loss  10.9000  |gradient|    1.0000      70.00 ms\n' "$step"
            done
        fi
        echo "outside the plan: context 500 MB" >&2
        echo '{}' >"$out/report.json"
        ;;
    compare) printf '           predicted  measured   error\n     step    70.0 ms   70.0 ms  0.00 %%\n' ;;
esac
"""
TESTS = STAND_IN + r"""
if [[ "$*" == *"${FAILS:-nothing}"* ]]; then
    echo '[  FAILED  ] CudaThat.Fails'
    exit 1
fi
echo '[  PASSED  ] 3 tests.'
"""
SMI = STAND_IN + r"""
while [[ "$*" == *-lms* ]] && [ -d "$FOLDER" ]; do
    echo "1980 MHz"
    sleep 0.5
done
"""
NCU = STAND_IN + r"""
while [ $# -gt 0 ] && [ "$1" != --log-file ]; do shift; done
cat >"$2" <<'END'
==PROF== Connected to process 1
"ID","Kernel Name","dram__bytes.sum","gpu__time_duration.sum"
"","","byte","ns"
"0","gemm, wide","2,000,000","1,000"
"1","gelu","4,000","500"
"2","gemm, wide","2,000,000","3,000"
END
shift 2
"$@"
"""
SANITIZER = STAND_IN + "echo '========= ERROR SUMMARY: 0 errors'\n"
PYTHON = f"""#!/usr/bin/env bash
case "$*" in
    *torch_gpt2.py*)
        echo "python3 $*" >>"$CALLS"
        echo '{{"peer": "eager"}}'
        ;;
    *find_spec*) ;;
    *) exec "{sys.executable}" "$@" ;;
esac
"""


def state_of_machine(state, detail):
    """As long as `pipetwin devices --json` is where it knows twenty devices: more than a pipe takes at once is still to come
    when the reader has seen the state."""
    return json.dumps({"schema_version": 1, "cuda": {"state": state, "detail": detail, "devices": [{"name": "Stand-in GPU"}]},
                       "profiles": [{"name": f"device-{i}", "description": 1300 * "x"} for i in range(20)]}, indent=2)


def end_session(session):
    """Kills what a check that was itself killed left running, and waits for its end: a program that still writes would hinder
    the removal of the test's folder."""
    def members():
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
            except OSError:  # the process has ended meanwhile
                continue
            if int(of) == session and state not in "ZX":
                yield int(stat.parent.name)

    while left := list(members()):
        for process in left:
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.01)


class GpuCheck(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.bundle, self.results, tools = (self.folder / name for name in ("bundle", "results", "tools"))
        for name, text in [("bundle/bin/pipetwin", PIPETWIN), ("bundle/bin/gpu_tests", TESTS),
                           ("bundle/bin/gpu_kernel_tests", TESTS), ("bundle/bin/gpu_kernel_bench", STAND_IN),
                           ("tools/nvidia-smi", SMI), ("tools/ncu", NCU), ("tools/compute-sanitizer", SANITIZER),
                           ("tools/python3", PYTHON)]:
            path = self.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            path.chmod(0o755)
        tarfile.open(self.bundle / "lib.tar.gz", "w:gz").close()
        shutil.copy(ROOT / "scripts" / "gpu-check", self.bundle)
        (self.bundle / "commit.txt").write_text("0123abc\n")
        (self.folder / "devices.json").write_text(state_of_machine("available", None))
        (self.folder / "tmp").mkdir()
        self.environment = {key: value for key, value in os.environ.items() if not key.startswith("PIPETWIN_")}
        self.environment.update(PATH=f"{tools}:{os.environ['PATH']}", TMPDIR=str(self.folder / "tmp"), FOLDER=str(self.folder),
                                CALLS=str(self.folder / "calls"))

    def start(self, script=None, **environment):
        check = subprocess.Popen([script or self.bundle / "gpu-check", self.results], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                                 env={**self.environment, **environment})
        self.addCleanup(end_session, check.pid)
        return check

    def check(self, script=None, **environment):
        check = self.start(script, **environment)
        output, _ = check.communicate(timeout=60)
        return check.returncode, output

    def summary(self):
        return (self.results / "summary.txt").read_text()

    def kept(self):
        with tarfile.open(self.results / "runs.tar.gz") as archive:
            return set(archive.getnames())

    def calls(self):
        """In the words of ORDER; without those that come before all phases, and without compare."""
        calls = []
        for line in (self.folder / "calls").read_text().splitlines():
            if match := re.search(r"--tool (\S+)|--gtest_filter=(\S+)", line):
                calls.append(match[1] or match[2])
            elif match := re.match(r"pipetwin (train|profile) .*--out \S*/([\w-]+)", line):
                calls.append(f"{match[1]} {match[2]}")
            elif match := re.search(r"torch_gpt2.py|gpu_kernel_bench", line):
                calls.append(match[0])
        return calls

    def test_all_phases_come_in_order_and_leave_eight_files(self):
        code, output = self.check()
        self.assertEqual(code, 0, output)
        self.assertEqual(self.calls(), ORDER)
        self.assertEqual({path.name for path in self.results.iterdir()}, RESULTS)
        self.assertLessEqual({"runs/k1/report.json", "runs/k1-own-attention/report.json", "runs/k2/report.json", "runs/ncu-m1.csv",
                              "runs/k2-streams/report.json", "runs/k4/report.json", "runs/profiles/k4-m8.profile.json"},
                             self.kept())
        names = re.findall(r"^ *\d+ s  (.+): passed", self.summary(), re.MULTILINE)
        self.assertEqual(names, ["self-test", "profile k1-m1.profile.json", "train k1", "train k1-own-attention",
                                 "PyTorch, micro-batches: 1",
                                 "profile k2-m4.profile.json", "train k2", "profile k2-m4-streams.profile.json",
                                 "train k2-streams", "profile k4-m8.profile.json",
                                 "train k4", "bench", "bench of convolutions",
                                 *(f"{what} {model}-{name}" for model in ("resnet50", "unet") for what, name in (
                                     ("profile", "k1-m1.profile.json"), ("train", "k1"), ("train", "k1-own"),
                                     ("profile", "k2-m4.profile.json"), ("train", "k2"))),
                                 "profile llama-k1-m1.profile.json", "train llama-k1", "train llama-k1-own-attention",
                                 "profile llama-k2-m4.profile.json", "train llama-k2",
                                 "profile llama-small-gpu-k1-m2.profile.json", "train llama-small-gpu",
                                 "profile llama-small-cpu-k1-m2.profile.json", "train llama-small-cpu",
                                 "losses of llama-small on GPU and CPU",
                                 "ncu-m1", "kernels", "executor", "products", "links", "memcheck, whether it works", "memcheck"])
        for line in ("commit 0123abc", "Stand-in GPU", "[  PASSED  ] 3 tests.", '{"peer": "eager"}', "outside the plan: context",
                     "step    70.0 ms", "nothing failed"):
            self.assertIn(line, self.summary())
        self.assertRegex(self.summary(), r"wall clock: \d+ tokens/s, [\d.]+ ms a step, over 50 steps")
        self.assertRegex(self.summary(), r"wall clock: \d+ images/s, [\d.]+ ms a step, over 10 steps")
        self.assertIn("losses of 20 steps agree within 1e-3", self.summary())
        self.assertIn("kernels in all: 3 calls, 4.5 us", self.summary())
        self.assertIn("1980 MHz", (self.results / "clocks.csv").read_text())
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def test_an_answer_that_is_still_being_written_is_no_missing_gpu(self):
        for _ in range(5):
            code, output = self.check(PIPETWIN_GPU_PHASES="selftest")
            self.assertEqual(code, 0, output)
            self.assertNotIn("no usable GPU", output)

    def test_a_machine_without_a_gpu_is_told_so(self):
        (self.folder / "devices.json").write_text(state_of_machine("no driver", "CUDA driver version is insufficient"))
        code, _ = self.check()
        self.assertEqual(code, 5)
        self.assertIn("no usable GPU: CUDA driver version is insufficient", self.summary())
        self.assertEqual(self.calls(), [])

    def test_without_a_bundle_it_ends_at_once(self):
        for bundle in ("nowhere", "tmp"):
            code, output = self.check(ROOT / "scripts" / "gpu-check", PIPETWIN_GPU_BUNDLE=str(self.folder / bundle))
            self.assertEqual(code, 2)
            self.assertRegex(output, f"^gpu-check: no bundle in {self.folder / bundle}, .*'scripts/gpu-bundle'.*gpu-bundle/gpu-check")
            self.assertEqual(output.count("\n"), 1)
            self.assertFalse(self.results.exists())

    def test_in_a_checkout_it_takes_the_bundle_from_another_place(self):
        code, output = self.check(ROOT / "scripts" / "gpu-check", PIPETWIN_GPU_BUNDLE=str(self.bundle),
                                  PIPETWIN_GPU_PHASES="links selftest")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.calls(), ["CudaSelfTest.*", "GpuLinkTest.*"])

    def test_what_is_for_other_calls(self):
        code, output = self.check(PIPETWIN_GPU_PHASES="microbatches translation")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.calls(), [
            "profile k1-m4", "train k1-m4", "torch_gpt2.py", "profile k1-m16", "train k1-m16", "torch_gpt2.py",
            "profile tanh-k1-m1", "train k1-tanh", "train k1-tanh-own-gelu", "torch_gpt2.py", "train ncu-m16",
            "profile translation-k1-m1", "train translation-k1", "train translation-k1-own-attention",
            "profile translation-k2-m4", "train translation-k2",
            "profile translation-small-gpu-k1-m2", "train translation-small-gpu",
            "profile translation-small-cpu-k1-m2", "train translation-small-cpu"])
        self.assertIn("losses of translation-small on GPU and CPU: passed", self.summary())

    def test_two_processes_share_the_gpu(self):
        code, output = self.check(PIPETWIN_GPU_PHASES="groups")
        self.assertEqual(code, 0, output)
        divided = ("devices", "rows", "gradients", "weights")
        self.assertEqual(self.calls(), [
            "profile groups-gpu-k1-m2", "train groups-gpu", "profile groups-cpu-k1-m2", "train groups-cpu"] +
            [call for name in divided for call in (f"profile {name}", f"train {name}", f"train {name}")])
        for name in divided:
            self.assertIn(f"losses of {name} and of one process: passed", self.summary())

    def test_every_pipeline_of_the_grid_has_costs_of_its_own(self):
        code, output = self.check(PIPETWIN_GPU_PHASES="grid")
        self.assertEqual(code, 0, output)
        calls = self.calls()
        pipelines = [f"k{stages}-m{micro_batches}-{schedule}" for stages in (2, 4) for micro_batches in (4, 8, 16)
                     for schedule in ("gpipe", "1f1b", "zb-h1")]
        self.assertEqual(calls, [f"{what} {name}" for name in pipelines for what in ("profile", "train")] +
                         ["profile k2-m4-gpipe-stash", "train k2-offload"])

    def test_an_unknown_phase_is_refused(self):
        code, output = self.check(PIPETWIN_GPU_PHASES="train speed")
        self.assertEqual(code, 2)
        self.assertIn("no phase 'speed'; there are selftest train", output)

    def test_what_fails_is_named_at_the_end_and_hinders_nothing_else(self):
        code, _ = self.check(FAILS="=*CudaProducts*", PIPETWIN_GPU_PHASES="products links")
        self.assertEqual(code, 1)
        self.assertIn("products: FAILED after", self.summary())
        self.assertIn("CudaThat.Fails", self.summary())
        self.assertIn("links: passed", self.summary())
        self.assertRegex(self.summary(), r"FAILED: products; \n$")

    def test_losses_of_gpu_and_cpu_that_differ_are_a_failure(self):
        program = self.bundle / "bin" / "pipetwin"
        text = program.read_text()
        self.assertIn("loss  10.9000", text)
        program.write_text(text.replace("loss  10.9000", "loss  %s").replace(
            '"$step"', '"$step" "$([[ $out == *cpu ]] && echo 10.9200 || echo 10.9000)"'))
        code, _ = self.check(PIPETWIN_GPU_PHASES="llama")
        self.assertEqual(code, 1)
        self.assertIn("step 0: losses 10.9000 and 10.9200", self.summary())

    def test_without_time_everything_is_left_out(self):
        code, output = self.check(PIPETWIN_GPU_SECONDS="5")
        self.assertEqual(code, 0, output)
        self.assertEqual(self.calls(), [])
        self.assertIn("self-test: left out, no time left", self.summary())
        self.assertIn("memcheck, whether it works: left out, no time left", self.summary())

    def test_profiles_of_an_earlier_check_are_not_measured_again(self):
        (self.folder / "k2-m4.profile.json").write_text("{}")
        code, output = self.check(PIPETWIN_GPU_PHASES="pipeline", PIPETWIN_GPU_PROFILES=str(self.folder))
        self.assertEqual(code, 0, output)
        self.assertEqual(self.calls(), ["train k2", "profile k2-m4-streams", "train k2-streams", "profile k4-m8",
                                        "train k4"])

    def cut_off(self, kill):
        """In the third training; returns the exit code."""
        check = self.start(STALLS="/k2 --profile", PIPETWIN_GPU_PHASES="selftest train pipeline")
        stalling = self.folder / "stalling"
        self.addCleanup(lambda: stalling.exists() and stalling.rmdir())
        limit = time.monotonic() + 30
        while not stalling.exists():
            self.assertLess(time.monotonic(), limit)
            time.sleep(0.05)
        begin = time.monotonic()
        check.send_signal(kill)
        if kill == signal.SIGKILL:
            check.wait()
            stalling.rmdir()
        output, _ = check.communicate(timeout=60)
        self.assertLess(time.monotonic() - begin, 10)
        self.assertNotIn("no usable GPU", output)
        for line in ("self-test: passed", "train k1: passed", "wall clock", "train k1-own-attention: passed"):
            self.assertIn(line, self.summary())
        self.assertNotIn("train k2: passed", self.summary())
        self.assertLessEqual({path.name for path in self.results.iterdir()}, RESULTS)
        self.assertIn("runs/k1/report.json", self.kept())
        return check.returncode

    def test_told_to_end_it_keeps_what_it_has_and_what_the_training_had(self):
        self.assertEqual(self.cut_off(signal.SIGTERM), 143)
        self.assertIn("CUT OFF", self.summary())
        self.assertIn("runs/k2/report.json", self.kept())
        self.assertEqual(list((self.folder / "tmp").iterdir()), [])

    def test_killed_it_leaves_what_the_phases_before_gave(self):
        self.assertEqual(self.cut_off(signal.SIGKILL), -signal.SIGKILL)

    def test_the_filters_name_tests_that_exist(self):
        suites, tests = set(), set()
        for path in (ROOT / "tests" / "exec").rglob("*.cpp"):
            for suite, test in re.findall(r"^(?:TYPED_)?TEST(?:_[FP])?\(\s*(\w+),\s*(\w+)", path.read_text(), re.MULTILINE):
                suites.add(suite)
                tests.add(f"{suite}.{test}")
        script = (ROOT / "scripts" / "gpu-check").read_text()
        words = set(re.findall(r"(?:Cuda|Gpu)[A-Z]\w+(?:\.\w+)?", script))
        self.assertGreater(len(words), 8)
        for word in words:
            found = word in tests if "." in word else any(suite.startswith(word) for suite in suites)
            self.assertTrue(found, f"no test is called {word}")


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""pipetwin.torch.record without torch: stages and loops that behave as PyTorch's, Lightning's and torchtitan's.

    PYTHONPATH=FOLDER recorder_test.py

FOLDER has the package as python/build.py puts it together. torch_test.py records a training of PyTorch itself."""

import json
import pathlib
import sys
import tempfile
import threading
import types
import unittest

import pipetwin
from pipetwin import _recorder

COSTS = {"schema_version": 1, "source": "measured", "device": "x", "precision": "fp32", "layers": [
    {"name": f"layer{i}", "parameter_bytes": 1024, "samples": [{"micro_batch_size": 1, "forward_ns": 1000000,
     "backward_ns": 2000000, "output_bytes": 64, "saved_bytes": 256}]} for i in range(2)]}


def plan_of(schedule="1f1b", recompute="none"):
    return pipetwin.Scenario({"model": {"kind": "profile", "file": "costs.profile.json"}, "training": {"batch": 4},
                              "pipeline": {"stages": 2, "micro_batches": 4, "schedule": schedule, "recompute": recompute}},
                             {"costs.profile.json": COSTS})


class Stage:
    """A stage as torch.distributed.pipelining calls it; its clock is the test's."""

    def __init__(self, index, clock):
        self.stage_index, self.clock = index, clock

    def forward_one_chunk(self, fwd_chunk_id, args=(), kwargs=None):
        self.clock.time += 1_000_000

    def backward_one_chunk(self, bwd_chunk_id, loss=None, full_backward=True, last_backward=False):
        self.clock.time += 2_000_000 if full_backward else 1_000_000

    def backward_weight_one_chunk(self, bwd_chunk_id, last_backward=False):
        self.clock.time += 1_000_000


class Clock:
    time = 0


class Rank:
    """A rank that follows its row of a predicted timeline to the nanosecond."""

    def __init__(self, plan, rank, folder, gather, **options):
        self.clock = Clock()
        self.stage = Stage(rank, self.clock)
        self.timeline = pipetwin.simulate(plan).timeline
        self.rank = rank
        self.recorder = _recorder.Recorder(plan, folder, [self.stage], rank=rank, ranks=2, gather=gather, **options)
        self.recorder._now = lambda: self.clock.time
        self.length = self.timeline.end

    def compute(self):
        start = self.clock.time
        for span in self.timeline.raw[self.rank]:
            self.clock.time = start + span.ready
            kind = self.timeline.kinds[span.kind]
            if kind == "F":
                self.stage.forward_one_chunk(span.micro_batch)
            elif kind in "BI":
                self.stage.backward_one_chunk(span.micro_batch, full_backward=kind == "B")
            elif kind == "W":
                self.stage.backward_weight_one_chunk(span.micro_batch)
        self.clock.time = start + self.length


def gatherer(ranks):
    """all_gather_object of ranks that are closed one after the other, rank 0 last."""
    parts = []

    def gather(part):
        parts.append(part)
        return parts if len(parts) == ranks else []
    return gather


def record(folder, plan, steps=3, losses=(4, 3, 2), **options):
    gather = gatherer(2)
    ranks = [Rank(plan, rank, folder, gather, **options) for rank in (0, 1)]
    for number in range(steps):
        for rank in ranks:
            with rank.recorder.step():
                rank.compute()
        ranks[1].recorder.log(loss=losses[number % len(losses)], grad_norm=losses[number % len(losses)])
    ranks[1].recorder.close()
    ranks[0].recorder.close()
    return ranks[0].recorder


class Recorder(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.scratch.name) / "run"
        self.addCleanup(self.scratch.cleanup)

    def test_a_run_as_predicted_has_no_error(self):
        for schedule in ("1f1b", "gpipe", "zb-h1"):
            with self.subTest(schedule=schedule):
                folder = self.folder / schedule
                recorder = record(folder, plan_of(schedule))
                self.assertEqual(recorder.comparison.step_error_percent, 0)
                self.assertEqual(pipetwin.compare(str(folder)).text, (folder / "report.json").read_text())
                self.assertIn("<svg", pipetwin.draw(str(folder / "measured.trace.json")))

    def test_the_loss_of_the_last_rank_is_in_the_metrics(self):
        record(self.folder, plan_of())
        lines = [json.loads(line) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual([line["loss"] for line in lines], [4, 3, 2])
        self.assertEqual([line["step"] for line in lines], [0, 1, 2])
        self.assertEqual(lines[0]["samples_per_second"], 4 / (lines[0]["step_ms"] / 1e3))

    def test_first_steps_do_not_count(self):
        record(self.folder, plan_of(), steps=5, skip=2)
        trace = json.loads((self.folder / "measured.trace.json").read_text())
        self.assertEqual(trace["pipetwin"]["step_numbers"], [2, 3, 4])

    def test_a_slower_stage_is_seen(self):
        plan = plan_of()
        gather = gatherer(2)
        ranks = [Rank(plan, rank, self.folder, gather) for rank in (0, 1)]
        for rank in ranks:
            rank.length += 10_000_000
            for _ in range(2):
                with rank.recorder.step():
                    rank.compute()
        ranks[1].recorder.close()
        ranks[0].recorder.close()
        predicted = pipetwin.simulate(plan).timeline.end
        error = ranks[0].recorder.comparison.step_error_percent
        self.assertAlmostEqual(error, 100 * (predicted / (predicted + 10_000_000) - 1), places=6)

    def test_another_order_is_refused(self):
        recorder = _recorder.Recorder(plan_of("gpipe"), self.folder, [stage := Stage(0, Clock())], rank=0, ranks=2,
                                      gather=lambda part: [part, {**part, "rank": 1}], skip=0)
        with self.assertRaisesRegex(pipetwin.UsageError, "computed 0B0 where the plan has 0F1"), recorder.step():
            for micro_batch in range(4):
                stage.forward_one_chunk(micro_batch)
                stage.backward_one_chunk(bwd_chunk_id=micro_batch)

    def test_plans_that_cannot_be_recorded_are_refused_before_the_training(self):
        costs = {"costs.profile.json": COSTS}
        shape = {"model": {"kind": "profile", "file": "costs.profile.json"}, "training": {"batch": 8}}
        twice = {"stages": 2, "micro_batches": 4, "schedule": "1f1b", "data_parallel": 2}
        with self.assertRaisesRegex(pipetwin.UsageError, "replicas are not recorded, and the plan has 2"):
            _recorder.Recorder(pipetwin.Scenario({**shape, "pipeline": twice}, costs), self.folder, [], ranks=4)
        pairs = {"stages": 2, "chunks": 2, "micro_batches": 4, "schedule": "dualpipe-v"}
        costs = {"costs.profile.json": {**COSTS, "layers": [{**COSTS["layers"][0], "name": f"layer{i}"} for i in range(4)]}}
        with self.assertRaisesRegex(pipetwin.UsageError, "pairs of a forward and a backward are not recorded"):
            _recorder.Recorder(pipetwin.Scenario({**shape, "pipeline": pairs}, costs), self.folder, [], ranks=2)
        self.assertFalse(self.folder.exists())

    def test_bad_input(self):
        with self.assertRaisesRegex(pipetwin.UsageError, "the plan has 2 ranks, the process group 4"):
            _recorder.Recorder(plan_of(), self.folder, [], ranks=4)
        with self.assertRaisesRegex(pipetwin.UsageError, "record more steps"):
            record(self.folder / "few", plan_of(), steps=1)
        self.assertIn('"loss": 4.0', (self.folder / "few/metrics.jsonl").read_text())
        record(self.folder, plan_of())
        with self.assertRaisesRegex(pipetwin.FileError, "there is a run"):
            record(self.folder, plan_of())
        recorder = _recorder.Recorder(plan_of(), self.folder / "x", [], ranks=2)
        with self.assertRaisesRegex(pipetwin.UsageError, "no step has ended"):
            recorder.log(loss=1)
        with self.assertRaisesRegex(pipetwin.UsageError, "no step has begun"):
            recorder.end_step()
        with self.assertRaises(ZeroDivisionError), recorder.step():
            raise ZeroDivisionError
        self.assertEqual(recorder._number, 0)  # such a step does not count
        with self.assertRaises(TypeError):
            recorder.torchtitan(object())

    def test_a_loss_that_is_no_number_is_null(self):
        recorder = record(self.folder, plan_of(), losses=(float("nan"), float("inf"), 2))
        lines = [json.loads(line, parse_constant=self.fail) for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        for key in ("loss", "grad_norm"):
            self.assertEqual([line[key] for line in lines], [None, None, 2])
        self.assertIsNotNone(recorder.comparison)

    def test_lightning(self):
        with self.assertRaises(pipetwin.UnavailableError):
            _recorder.Recorder(plan_of(), self.folder, [], ranks=2).lightning()
        stand_in = types.ModuleType("lightning.pytorch")
        stand_in.Callback = type("Callback", (), {})
        sys.modules.update({"lightning": types.ModuleType("lightning"), "lightning.pytorch": stand_in})
        self.addCleanup(lambda: [sys.modules.pop(name) for name in ("lightning", "lightning.pytorch")])
        gather = gatherer(2)
        for number in (1, 0):
            rank = Rank(plan_of(), number, self.folder, gather)
            callback = rank.recorder.lightning()
            self.assertIsInstance(callback, stand_in.Callback)
            for batch in range(3):  # as Trainer.fit calls them
                callback.on_train_batch_start(None, None, "batch", batch)
                rank.compute()
                callback.on_train_batch_end(None, None, {"loss": 7.0}, "batch", batch)
            callback.on_train_end(None, None)
        self.assertEqual(rank.recorder.comparison.step_error_percent, 0)
        self.assertIn('"loss": 7.0', (self.folder / "metrics.jsonl").read_text())

    def test_torchtitan(self):
        gather = gatherer(2)
        for number in (1, 0):
            rank = Rank(plan_of(), number, self.folder, gather)

            class Metrics:
                logged = []

                def log(self, step, global_avg_loss, global_max_loss, grad_norm, extra_metrics=None):
                    self.logged.append(global_avg_loss)

            class Trainer:  # train_step logs within itself, as torchtitan's does
                def __init__(self):
                    self.metrics_processor, self.step, self.closed = Metrics(), 0, False

                def train_step(self, data_iterator):
                    self.step += 1
                    rank.compute()  # noqa: B023 - called in this turn of the loop
                    self.metrics_processor.log(self.step, 9.0 - self.step, 9.0, 1.0)

                def close(self):
                    self.closed = True

            trainer = rank.recorder.torchtitan(Trainer())
            for _ in range(3):
                trainer.train_step(iter(()))
            trainer.close()
            self.assertTrue(trainer.closed)
            self.assertEqual(trainer.metrics_processor.logged[-3:], [8.0, 7.0, 6.0])
        self.assertEqual(rank.recorder.comparison.step_error_percent, 0)
        lines = [json.loads(line)["loss"] for line in (self.folder / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual(lines, [8.0, 7.0, 6.0])

    def test_a_trainer_whose_step_raised_is_closed(self):
        rank = Rank(plan_of(), 0, self.folder, lambda part: [part, {**part, "rank": 1}])
        closed = []

        def train_step(data_iterator):
            raise ZeroDivisionError

        trainer = types.SimpleNamespace(train_step=train_step, close=lambda: closed.append(True))
        rank.recorder.torchtitan(trainer)
        with self.assertRaises(ZeroDivisionError):
            trainer.train_step(iter(()))
        trainer.close()
        self.assertEqual(closed, [True])

    def test_threads_of_one_process_keep_apart(self):
        runs = [threading.Thread(target=record, args=(self.folder / str(number), plan_of())) for number in range(3)]
        for run in runs:
            run.start()
        for run in runs:
            run.join()
        self.assertEqual(len(list(self.folder.glob("*/report.json"))), 3)


if __name__ == "__main__":
    unittest.main()

# SPDX-License-Identifier: Apache-2.0
"""What commands print with --json: {name of the schema: (title, shape)}."""
from notation import ANYTHING, Maybe, Shared, Words
from shared import (CALIBRATION, COMPARISON, EVIDENCE, EXPLANATION, HEAD, INTERVAL, MEMORY_BESIDE, PEAK, PREDICTION, RECOMPUTE, RUNS,
                    STEP, TRANSLATIONS, VARIED)

SHAPE = {
    "stages": "integer", "chunks": "integer", "micro_batches": "integer", "schedule": "string", "recompute": RECOMPUTE,
    "data_parallel": "integer", "tensor_parallel": "integer", "shard": Words("none", "optimizer", "gradients", "weights"),
    "sequence_parallel": "boolean", "scatter_boundaries": "boolean"}
DIVISIONS = {"context_parallel?": "integer", "expert_parallel?": "integer", "expert_tensor_parallel?": "integer"}
MODULES = {"recompute_modules?": [["string"]]}
FOUND = Shared("found_plan", {
    **SHAPE, **DIVISIONS, **MODULES, "partition": ["integer"], "step_ms": "number", "samples_per_second": "number?",
    "bubble_total": "number", "peak_bytes": "integer", "finished": "boolean"})
BEST = Shared("best_plan", {
    **PREDICTION, **MODULES, "partition": ["integer"], "shard": SHAPE["shard"], "sequence_parallel": "boolean",
    "scatter_boundaries": "boolean"})
ANSWER = {
    "parameters": "integer?", "devices": "integer", "devices_of_cluster": "integer", "device": "string",
    "tokens_per_step": "number", "tokens_per_second": "number", "tokens_per_second_per_device": "number",
    "model_flops_utilisation": "number?", "mfu_definition": "string", "headroom": "number?", "days": "number?",
    "device_hours": "number?", "cost": "number?",
    "loss_by_scale": Maybe({
        "devices": "integer", "slowest_device": "number", "deviation": "number",
        "nearest": Maybe({"model": "string", "device": "string", "precision": "string", "stack": "string", "year": "integer",
                          "from_devices": "integer", "to_devices": "integer", "measured_loss": "number",
                          "predicted_loss": "number", "source": "string"}),
        "unexplained_loss": "number?", "series": "integer"}),
    "warnings": ["string"], "shapes": [FOUND], "front": ["integer"],
    "written": Maybe({"folder": "string",
                      "exports": [{"format": "string", "file": "string?", "notes": ["string"], "why_not": "string?"}]})}
HYBRID = {
    "micro_batch_size": "integer", "micro_batches": "integer", "micro_batch_ms": "number", "samples_per_second": "number",
    "devices": "integer", "devices_used": "integer",
    "stages": [{"layers": "integer", "devices": "integer", "work_ms": "number", "all_reduce_ms": "number"}]}
PLAN = {
    **HEAD, "stack": "string?", "evidence": EVIDENCE, "best": BEST, "candidates": [FOUND], "lower_bound_ms": "number",
    "proven_optimal": "boolean", "order_error_percent": "number", "within_error": "integer",
    "any_partition_bound_ms": "number", "any_order_bound_ms": "number", "not_tried": ["string"], "open": "integer",
    "searched": "integer", "pruned": "integer",
    "infeasible": [{"why": "string", "count": "integer", "example": {**SHAPE, **DIVISIONS}}],
    "heat_map?": [FOUND], "hybrid?": HYBRID, "calibration": CALIBRATION, "answer": Maybe(ANSWER)}
PLAN_TABLE = {
    **HEAD, "model": "string", "tokens": "number?",
    "assumptions": {"mtbf_hours": "number", "checkpoint_s": "number", "restart_s": "number"},
    "deadline": Maybe({"days": "number", "from": "string?", "until": "string?"}),
    "best": "integer?", "front": ["integer"],
    "rows": [{
        "cluster": "string", "nodes": "integer", "stack": "string?", "price": "number?", "plan": Maybe(FOUND),
        "answer": Maybe({key: ANSWER[key] for key in ANSWER if key not in ("shapes", "front", "written")}),
        "interval": INTERVAL,
        "costs_stack": "string?", "evidence": EVIDENCE,
        "failures": Maybe({"share": "number", "checkpoint_every": "integer", "failures": "number?", "more_days": "number?",
                           "more_cost": "number?", "days": "number?", "device_hours": "number?", "cost": "number?"}),
        "complete": "boolean?", "in_time": "boolean?", "why_not": "string?"}]}
LARGEST = {
    **HEAD,
    "largest": {
        "layers": "integer", "layers_in_profile": "integer", "repeated": ["string"], "parameters": "integer?", **SHAPE,
        **DIVISIONS, "partition": ["integer"], "channel_capacity": "integer",
        "devices": [{"rank": "integer", "peak_bytes": PEAK, "limit_bytes": "integer"}],
        "next": Maybe({"layers": "integer", "partition": Maybe(["integer"]), "rank": "integer?", "peak_bytes": "integer?",
                       "limit_bytes": "integer?", "why": "string?"}),
        "complete": "boolean", "open": "integer", "tried": "integer"},
    "calibration": CALIBRATION}
SWEEP = {
    **HEAD,
    "plans": [{
        "scenario": "string?", "settings?": {"*": "string"}, "schedule": "string", "stages": "integer", "chunks": "integer",
        "micro_batches": "integer", "recompute": "string?", "step_ms": "number?", "bubble_total": "number?",
        "live_stashes": "number?", "samples_per_second": "number?", "peak_bytes": "integer?", "why_not": "string?", **VARIED}]}
MODEL = {
    **HEAD, "scenario": "string", "precision": "string",
    "input": Maybe({"positions": "integer", "width": "integer?", "token_ids": "boolean"}),
    "parameters": "integer?", "operations": "number?", "stages": "integer?",
    "units": [{
        "name": "string", "type": "string", "inputs": ["string"],
        "output": Maybe({"positions": "integer", "width": "integer?", "token_ids": "boolean"}), "parameters": "integer?",
        "output_bytes": "integer?", "saved_bytes": "integer?", "operations": "number?", "stage": "integer?"}]}
REPORT = {
    **HEAD, "scenario": "string", "origin": Words("measured", "emulated"), "predicted": Shared("prediction", PREDICTION),
    "comparison": COMPARISON, "training": STEP, "memory_beside": MEMORY_BESIDE, "notes": ["string"],
    "loss": {"first": "number?", "last": "number?"},
    "accuracy?": {"first": "number", "last": "number", "validation": "number?"}, "translations?": TRANSLATIONS}
CHECK = {
    **HEAD, "valid": "boolean", "deadlock_free": "boolean?", "capacity": "integer?", "smallest_capacity": "integer?",
    "deadlock_free_with_begun_receives": "boolean?", "peak_live_activations": Maybe(["integer"]),
    "problems": [{"rank": "integer", "cell": "integer?", "action": "string", "why": "string"}]}
CHANGES = [{"what": "string", "keys": {"*": ANYTHING}, "step_ms": "number", "faster_percent": "number", "peak_bytes": "integer"}]
REPORTED_LOSS = {"loss": "number", "iteration": "integer?", "line": "integer"}
EXCHANGE = {
    **HEAD, "format": "string", "source": "string", "file": "string", "ranks": "integer?", "stages": "integer?",
    "devices": "integer?", "micro_batches": "integer?", "costs": "string?", "layers": "integer?", "parameters": "integer?",
    "left_out": ["string"],
    "log?": Maybe({
        "measured_step_ms": "number", "predicted_step_ms": "number", "error_percent": "number",
        "measured_peak_bytes": "integer?", "predicted_peak_bytes": "integer",
        "loss": Maybe({
            "reports": "integer", "first": Maybe(REPORTED_LOSS), "last": Maybe(REPORTED_LOSS), "not_finite": "integer",
            "first_not_finite": Maybe({"iteration": "integer?", "line": "integer"}),
            "spike": Maybe({**REPORTED_LOSS, "median_before": "number"})}),
        "timers": [{"name": "string", "measured_least_ms": "number?", "measured_most_ms": "number",
                    "predicted_least_ms": "number", "predicted_most_ms": "number"}],
        "compute_factor": "number?", "messages_factor": "number?", "update_factor": "number?", "tried": "integer", "changes": CHANGES, "changes_that_do_not_fit": CHANGES})}
STATED = Shared("stated", {"value": "number", "kind": "string", "source": "string"})
STATED_LINK = {"bytes_per_second": STATED, "latency_ns": STATED}
OF_GROUPS = Shared("nanoseconds_of_groups", {"*": ["integer"]})
DEVICE = {
    "schema_version": HEAD["schema_version"], "name": "string", "description": "string",
    "matrix_flops_per_second": {"*": STATED},
    "matrix_efficiency?": {"*": {"large": "number", "half_size": "number", "kind": "string", "source": "string"}},
    "attention_efficiency?": {"forward": "number", "backward": "number", "half_sequence": "number", "kind": "string",
                              "source": "string"},
    "memory_bytes": STATED, "memory_bytes_per_second": STATED, "copy_efficiency?": STATED, "multiprocessors?": STATED,
    "device_link?": STATED_LINK, "host_link": STATED_LINK, "launch_ns": STATED, "context_bytes": STATED,
    "communication_bytes?": STATED,
    "collectives?": {"bytes": ["integer"], "all_gather_ns?": OF_GROUPS, "reduce_scatter_ns?": OF_GROUPS,
                     "all_reduce_ns?": OF_GROUPS, "all_to_all_ns?": OF_GROUPS, "kind": "string", "source": "string"}}
DEVICES = {
    **HEAD, "machine": {"processor": "string", "cores": "integer", "memory_bytes": "integer"},
    "cuda": {
        "state": Words("available", "no driver", "no device", "libraries missing", "not built"), "detail": "string?",
        "versions": "string?",
        "devices": [{
            "name": "string", "compute_capability": "integer", "memory_bytes": "integer", "multiprocessors": "integer",
            "free_bytes": "integer?",
            "rates": Maybe({"bf16_flops_per_second": "number", "fp32_flops_per_second": "number",
                            "device_copy_bytes_per_second": "number", "host_to_device_bytes_per_second": "number",
                            "device_to_host_bytes_per_second": "number"})}]},
    "profiles": [DEVICE],
    "links": [{"name": "string", "description": "string", **STATED_LINK, "half_bandwidth_bytes": STATED}],
    "clusters": ["string"], "models": ["string"],
    "stacks": [{"name": "string", "description": "string", "year": "integer", "frameworks": ["string"],
                "devices": {"*": ["string"]}}]}
DEMO = {
    **HEAD, "folder": "string", "page": "string",
    "steps": [{"step": "integer", "name": "string", "title": "string", "why": "string", "commands": ["string"],
               "by_hand": "string?", "files": ["string"], "done": "boolean"}]}

RESULTS = {
    "simulate": ("A prediction: simulate", {**PREDICTION, "explanation": EXPLANATION, **VARIED, "calibration": CALIBRATION}),
    "sweep": ("Plans side by side: sweep, simulate and plan with several values", SWEEP),
    "plan": ("A search for plans: plan", PLAN),
    "plan-table": ("Plans of several clusters, numbers of nodes and stacks: plan", PLAN_TABLE),
    "plan-largest": ("The largest model that fits: plan --largest", LARGEST),
    "model": ("The units of a model: model", MODEL),
    "train": ("The last step of a training: train, launch", {**HEAD, **STEP, "memory_beside": MEMORY_BESIDE,
                                                             "translations?": TRANSLATIONS}),
    "run": ("Predicted against measured: run, and report.json of a run folder", REPORT),
    "translate": ("Translations: translate", {
        **HEAD, "run": "string", "checkpoint": "string", "steps_done": "integer", "to": "string", "beam": "integer",
        "translations": [{"text": "string", "translation": "string"}]}),
    "compare": ("Two timelines: compare", COMPARISON),
    "check": ("A verdict on a schedule: check", CHECK),
    "exchange": ("What was read and written: import, export", EXCHANGE),
    "calibrate-rows": ("A stack corrected by measured runs: calibrate ROWS.json", {
        **HEAD, "source": "string", "file": "string", "stack": "string",
        "calibrated": [{"device": "string", "precision": "string", "products": "number", "attention": "number",
                        "passes": "number", "inside": "number", "between": "number", "activations": "number"}], **RUNS}),
    "calibrate-trace": ("Measured layers: calibrate TRACE", {
        **HEAD, "source": "string", "file": "string",
        "points": [{"kind": "string", "micro_batch_size": "integer", "forward_ms": "number", "backward_ms": "number",
                    "forwards": "integer", "backwards": "integer"}]}),
    "devices": ("This machine, and what is known: devices", DEVICES),
    "demo": ("The steps of the tour: demo", DEMO),
    "completion": ("What was printed or written: completion", {
        **HEAD, "format": Words("bash", "zsh", "fish", "man"), "files": ["string"], "text": "string?"}),
    "version": ("The version: version", HEAD),
}

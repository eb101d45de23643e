# SPDX-License-Identifier: Apache-2.0
"""Shapes that occur in several documents."""
from notation import Either, Maybe, Shared, Version, Words

HEAD = {"schema_version": Version(1), "tool_version": "string"}
MEMORY = ("total", "weights", "gradients", "optimizer", "stash", "boundary", "workspace", "context")
PEAK = Shared("peak", {kind: "integer" for kind in MEMORY})
PEAK_IF_KNOWN = Shared("peak_if_known", {kind: "integer?" for kind in MEMORY})
PARTS = ("forward", "backward", "backward_input", "backward_weight", "recompute", "communication_wait", "imbalance",
         "fill_and_drain", "reduction", "optimizer", "overhead")
BREAKDOWN = Shared("breakdown", {part: "number" for part in PARTS})
RECOMPUTE = Either("string", ["string"])
LINK = Shared("link", {"between": "string", "latency_ns": "integer", "bytes_per_second": "number",
                       "half_bandwidth_bytes": "integer"})
INTERVAL = Maybe(Shared("interval", {"low": "number", "high": "number", "of": "string", "unseen_device": "string?",
                                     "largest_measured_devices": "integer?"}))
EVIDENCE = [Shared("evidence", {
    "model": "string", "devices": "integer", "device": "string", "precision": "string", "layout": "string", "stack": "string",
    "year": "integer", "source": "string", "predicted": "number", "measured": "number", "differs": ["string"]})]

PREDICTION = {
    **HEAD,
    "schedule": "string", "stages": "integer", "chunks": "integer", "micro_batches": "integer", "recompute": RECOMPUTE,
    "recompute_blocks": "integer?", "recompute_only": "integer?", "stale_gradients": "boolean", "data_parallel": "integer",
    "tensor_parallel": "integer", "context_parallel": "integer", "expert_parallel": "integer",
    "expert_tensor_parallel": "integer",
    "cost_source": Words("measured", "imported", "datasheet", "estimated", null=True),
    "notes": ["string"], "makespan_ms": "number", "step_ms": "number", "interval": INTERVAL, "stack": "string?",
    "evidence": EVIDENCE, "samples_per_second": "number?", "tokens_per_second_per_device": "number?",
    "model_flops_utilisation": "number?", "mfu_definition": Words("palm", "megatron", "hardware"),
    "mfu": {"palm": "number?", "megatron": "number?", "hardware": "number?"},
    "bubble": {"total": "number", "total_without_recompute": "number", "ideal": "number", "span": "number"},
    "breakdown_ms": BREAKDOWN,
    "messages_in_actions_ms": {"shards": "number", "tensor_parallel": "number"},
    "idle_ms": {"warm_up": "number", "steady": "number", "drain": "number", "back_pressure": "number"},
    "devices": [Shared("device", {
        "rank": "integer", "layers": Maybe(["string"]), "busy_ms": "number", "idle_ms": "number",
        "peak_live_activations": "integer", "peak_bytes": PEAK_IF_KNOWN,
        "peak_at": {"ms": "number?", "action": "string?"}, "recompute_bytes": "integer?",
        "beside_bytes": Maybe({"runtime": "integer", "communication": "integer", "product_workspace": "integer",
                               "tensor_buffers": "integer", "allocator_reserve": "integer", "kept_messages": "integer"})})],
    "offload": Maybe({"step_ms_on_device": "number",
                      "devices": [{"rank": "integer", "copied_bytes": "integer", "peak_bytes_on_device": PEAK}]}),
    "critical_path": [{"action": "string", "rank": "integer", "start_ms": "number", "end_ms": "number",
                       "host_copy": "boolean"}],
}
EXPLANATION = Shared("explanation", {
    "text": ["string"],
    "waits": [{"rank": "integer", "action": "string?", "begin_ms": "number", "end_ms": "number", "slack_ms": "number?",
               "chain": [{"action": "string", "rank": "integer", "begin_ms": "number", "end_ms": "number",
                          "reason": Words("compute", "row_order", "latency", "transfer", "link_busy", "back_pressure",
                                          "reduction", "host_copy"),
                          "shared_link?": "string"}]}],
    "what_if": [{"what": "string", "factor": "number", "step_ms": "number", "least_step_ms": "number",
                 "gain_percent": "number"}]})
VARIED = {
    "uncertainty": Maybe({
        "samples": "integer", "seed": "integer",
        "jitter": {"compute": "number", "transfer": "number", "device": "number", "spike_probability": "number",
                   "spike_factor": "number"},
        "step_ms": {"deterministic": "number", "mean": "number", "p50": "number", "p95": "number"}}),
    "straggler": Maybe({"rank": "integer", "factor": "number", "step_ms": "number"}),
    "goodput": Maybe({"mtbf_hours": "number", "devices": "integer", "checkpoint_every": "integer", "share": "number",
                      "step_ms": "number"})}
RUNS = {
    "rows": [{"name": "string", "measured_step_ms": "number", "predicted_step_ms": "number", "calibrated_step_ms": "number",
              "measured_peak_bytes": "integer?", "predicted_peak_bytes": "integer", "calibrated_peak_bytes": "integer",
              "leave_one_out_error_percent": "number?", "leave_one_out_peak_error_percent": "number?"}],
    "leave_one_out_mean_percent": "number?", "leave_one_out_largest_percent": "number?", "warnings": ["string"]}
CALIBRATION = Maybe({"compute_factor": "number", "memory_factor": "number?", "messages_factor": "number?",
                     "update_factor": "number?", **RUNS})

STEP = {"step": "integer", "loss": "number?", "grad_norm": "number?", "learning_rate": "number", "validation_loss": "number?",
        "step_ms": "number", "samples_per_second": "number?", "peak_bytes": ["integer"], "accuracy?": "number",
        "validation_accuracy?": "number?"}
MEMORY_BESIDE = [{"name": "string", "bytes": "integer", "ranks": Maybe(["integer"])}]
TRANSLATIONS = {"directions": [{"direction": "string", "texts": "integer", "bleu": "number", "chrf": "number",
                                "copied_bleu": "number", "copied_chrf": "number"}],
                "texts": [{"direction": "string", "source": "string", "translation": "string", "reference": "string"}]}
PAIR = Shared("pair", {"predicted": "number", "measured": "number", "error_percent": "number?"})
OF_ACTION = Maybe(Shared("of_action", {"predicted_ms": "number", "measured_ms": "number"}))
COMPARISON = {
    **HEAD,
    "makespan_ms": PAIR, "step_ms": PAIR, "interval": INTERVAL, "bubble_total": PAIR,
    "peak_bytes": [{"rank": "integer", "predicted": "integer", "measured": "integer", "error_percent": "number?"}],
    "by_action": {"F": OF_ACTION, "B": OF_ACTION, "I": OF_ACTION, "W": OF_ACTION, "R": OF_ACTION},
    "in_groups_ms": Maybe({"predicted": "number", "measured": "number"}),
    "breakdown_ms": {"predicted": Maybe(BREAKDOWN), "measured": Maybe(BREAKDOWN)},
    "replay": Maybe({"step_ms": "number", "error_percent": "number"}),
    "noise": {"stolen_percent": "number?", "p90_over_p10": "number?", "dropped_steps": "integer?", "steps": "integer?",
              "costs_apart": "number?", "sharing_ranks": "integer?", "shared_cores": "integer?"},
    "not_measurable": "string?", "verdict": "string?"}

# SPDX-License-Identifier: Apache-2.0
"""Files that are read and written: {name of the schema: (title, shape)}. docs/formats.md says what their keys mean."""
from notation import ANYTHING, Maybe, Shared, Version, Words
from shared import LINK, PARTS, PEAK, RECOMPUTE, STEP

TIMES = ("backward_input_ns", "backward_weight_ns", "backward_ns", "core_forward_ns", "whole_forward_ns", "whole_backward_ns",
         "accumulation_ns", "tail_forward_ns", "first_forward_ns", "first_input_ns", "first_weight_ns", "last_forward_ns",
         "last_input_ns", "devices_forward_ns", "devices_backward_ns", "replicas_forward_ns", "replicas_backward_ns")
BYTES = ("input_bytes", "workspace_bytes", "split_bytes", "input_saved_bytes", "core_saved_bytes", "whole_saved_bytes",
         "unread_gradient_bytes")
KERNELS = ("forward_kernels", "backward_kernels", "backward_input_kernels", "backward_weight_kernels")
SAMPLE = Shared("sample", {
    "micro_batch_size": "integer", "forward_ns": "integer", "output_bytes": "integer", "saved_bytes": "integer",
    **{key + "?": "integer" for key in TIMES + BYTES + KERNELS}, "spread?": "number"})
OF_LAYER = ("repeat", "parameter_count", "expert_bytes", "whole_bytes", "running_bytes", "frozen_bytes", "frozen_expert_bytes",
            "optimizer_ns", "replicas_update_ns", "weight_cast_ns", "weight_copy_bytes", "tensor_sums", "output_rows")
SOURCE = Words("measured", "imported", "datasheet", "estimated")
LAYER = {
    "name": "string", "kind?": "string", "inputs?": ["string"], "parameter_bytes": "integer",
    **{key + "?": "integer" for key in OF_LAYER}, "source?": SOURCE, "samples": [SAMPLE],
    "shared?": [{"devices": "integer", "samples": [SAMPLE]}], "operations_per_sample?": "number",
    "masked_operations_per_sample?": "number"}
LAYOUT = {
    "name": "string", "parameters": "integer", "sequence": "integer", "device": "string", "precision": "string",
    "devices": "integer", "stages": "integer", "chunks": "integer", "tensor_parallel": "integer",
    "context_parallel?": "integer", "expert_parallel?": "integer", "micro_batch_size": "integer", "recompute": "string",
    "shard": "string", "schedule": "string", "left_out?": "string"}
PROFILE = {
    "schema_version": Version(1), "source": SOURCE, "device?": "string", "precision?": "string", "stack?": "string",
    "messages_inside?": "number", "messages_between?": "number", "tool_version?": "string", "date?": "string",
    "dispatch_ns?": "integer", "launch_ns?": "integer", "tied_bytes?": "integer", "tokens_per_sample?": "integer",
    "layers": [LAYER],
    "links?": [{"between?": Words("ranks", "nodes", "devices", "replicas"), "latency_ns?": "integer",
                "bytes_per_second?": "number", "half_bandwidth_bytes?": "integer"}],
    "groups?": {"devices": "integer", "sequence_parallel": "boolean", "replicas": "integer",
                "shard": Words("none", "optimizer", "gradients", "weights")},
    "ranks?": [{"device": "integer", "interference": "number"}], "whole_backwards?": "boolean", "halves_over_whole?": "number",
    "calibration?": {"clean_steps": "integer", "dropped_steps": "integer", "p90_over_p10?": "number",
                     "interference?": "number?", "ladder?": [{"message_bytes": "integer", "ns": "integer"}]},
    "run_calibrations?": [{"compute_factor": "number", "memory_factor?": "number?", "runs": "integer", "layouts?": [LAYOUT]}],
    "estimated_from?": {"*": ANYTHING}}
COST = {key: "integer" for key in (
    "forward_ns", "recompute_ns", "backward_ns", "backward_input_ns", "backward_weight_ns", "input_bytes", "output_bytes",
    "saved_bytes", "forward_drop_peak_bytes", "backward_peak_bytes")}
STATE = {**{key: "integer" for key in ("weights_bytes", "gradients_bytes", "optimizer_state_bytes", "workspace_bytes",
                                       "optimizer_ns", "norm_ns")}, "running_bytes?": "integer"}
PLAN = {
    "schema_version": Version(1), "hash": "string", "schedule": "string", "ranks": "integer", "chunks": "integer",
    "micro_batches": "integer", "recompute": RECOMPUTE, "recompute_blocks": "integer", "recompute_only": "integer",
    "recompute_timing": "string", "stale_gradients": "boolean", "rank_of_stage": ["integer"], "weights_of_stage": ["integer"],
    "partition": Maybe(["integer"]), "layer_names": ["string"], "micro_batch_sizes": ["integer"], "cost_class": ["integer"],
    "costs": [[Shared("stage_cost", COST)]], "states": [STATE], "links": [LINK], "reductions": [LINK],
    "tied_gradient_bytes": "integer", "host_link": Maybe(LINK), "dispatch_ns": "integer", "channel_capacity": "integer?",
    "smallest_capacity": "integer", "memory_limit_bytes": "integer?", "memory_limits_bytes": ["integer"],
    "context_bytes": ["integer"], "replicas": "integer", "tensor_parallel": "integer", "all_reduce_ns": ["integer"],
    "overlap_reduction": "boolean", "weight_gather_ns": ["integer"],
    "cost_source": Words("measured", "imported", "datasheet", "estimated", null=True), "notes": ["string"],
    "peak_bytes": [PEAK], "bucketed_sums?": [{"head_ns": "integer", "tail_ns": "integer", "slowed_ns": "integer"}],
    "contention?": {"cores": "integer?", "interference": "number", "link_sharing": Words("fair", "fifo"),
                    "shared_links": [{"name": "string?", "bytes_per_second": "number"}], "way_of_edge": [["integer"]],
                    "way_of_copies": [["integer"]]},
    "skips?": [["integer"]], "message_bytes?": [["integer"]]}
TRACE = {
    "schema_version": Version(1), "tool_version?": "string", "origin": Words("predicted", "measured", "emulated"),
    "plan_hash": "string", "schedule": "string", "rows": "string", "channel_capacity": "integer?", "samples": "integer?",
    "replicas?": "integer", "step_begins_ns": ["integer"], "step_numbers?": ["integer"], "peak_bytes": ["integer"],
    "breakdown_ns": Maybe({part: "integer" for part in PARTS}), "replayed_step_ns?": "integer?",
    "noise": {"stolen_percent?": "number", "p90_over_p10?": "number", "dropped_steps?": "integer", "steps?": "integer",
              "costs_apart?": "number", "sharing_ranks?": "integer", "shared_cores?": "integer"}}

FILES = {
    "profile": ("Costs of layers: *.profile.json, and what profile prints", PROFILE),
    "plan": ("plan.json of a run folder", PLAN),
    "trace": ("What the key pipetwin of a *.trace.json holds", TRACE),
    "step": ("A line of metrics.jsonl of a run folder", STEP),
}

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "core/base/error.h"
#include "core/scenario/scenario.h"
#include "tests/support/error_of.h"

/// Texts of scenarios that several tests begin with.
namespace pipetwin::testing {

/// The shortest scenarios.
inline constexpr std::string_view gpt = R"([model]
kind = "gpt"
layers = 4
d_model = 32
heads = 4
context = 16
)";

inline constexpr std::string_view mlp = R"([model]
kind = "mlp"
sizes = [784, 64, 10]
)";

inline constexpr std::string_view translation = R"([model]
kind = "translation"
layers = 1
d_model = 32
heads = 4
source_context = 40
target_context = 32
)";

/// Every key of every table, away from its default.
inline constexpr std::string_view full = R"(# a comment
[model]
kind = "gpt"
layers = 4
d_model = 32
heads = 4
context = 16
vocabulary = 300
feed_forward = 48
tied = true
dropout = 0.125
[data]
kind = "text"
path = "../texts/a b"
validation = "../texts/c"
[training]
batch = 33
steps = 7
optimizer = "rmsprop"
learning_rate = 1e-3
learning_rate_schedule = "cosine"
warmup_steps = 3
final_learning_rate = 1e-5
clip_norm = 0.5
precision = "fp64"
seed = 42
validate_every = 3
validation_batches = 5
[pipeline]
stages = 2
micro_batches = 8
schedule = "1f1b"
chunks = 1
recompute = "except-last"
recompute_timing = "lazy"
offload = "stash"
group_size = 4
deferred_weights = 1
message_order = "lower-rank-first"
receives = "blocking"
partition = [3, 7]
channel_capacity = 2
data_parallel = 3
all_reduce = "two-level"
shard_optimizer = true
overlap_reduction = true
tensor_parallel = 1
[cluster]
backend = "paced"
device = "h100-sxm"
scale_costs = "cautious"
speeds = [1, 0.5]
count = 6
per_node = 4
nvlink_domain = 8
nics_per_node = 2
oversubscription = 1.5
nodes_per_leaf = 4
placement = "round-robin"
link = "nvlink-4"
node_link = "infiniband-ndr"
link_gbps = 400.5
node_link_gbps = 100
link_latency_us = 0.5
node_link_latency_us = 2
host_link = "pcie-4"
host_link_gbps = 128
host_link_latency_us = 7
host_memory = "250 GB"
transfer = "hand-over"
cores = 3
interference = 0.25
link_sharing = "fair"
gpu_shares = "streams"
link_ctas = 4
memory_limit = "4 GiB"
[[cluster.shared_link]]
devices = [1, 0]
rate = "12 GB/s"
kind = "host"
[[cluster.shared_link]]
devices = [0, 1, 2]
rate = "pcie-4"
kind = "memory"
[output]
checkpoint_every = 0
)";

/// A model of layers, with repeats and one inside another.
inline constexpr std::string_view layers_text = R"([model]
kind = "layers"
input = 8
[[model.layer]]
type = "linear"
outputs = 4
repeat = 2
bias = false
[[model.layer]]
type = "residual"
name = "block"
repeat = 3
[[model.layer.layer]]
type = "layer_norm"
[[model.layer.layer]]
type = "linear"
outputs = 4
[[model.layer]]
type = "cross_entropy"
)";

/// As if it stood in /home/u/scenarios/s.toml.
inline Scenario parse(std::string_view text, const std::vector<Override>& overrides = {}) {
    return parse_scenario(text, "/home/u/scenarios/s.toml", overrides);
}

/// The error that reading the text gives; a failed test if it gives none.
inline Error refusal(std::string_view text, const std::vector<Override>& overrides = {}) {
    return error_of([&] { parse(text, overrides); });
}

/// One more line, or several.
inline std::string with(std::string_view base, std::string_view more) {
    return fmt::format("{}{}\n", base, more);
}

/// A scenario that is refused.
struct Refusal {
    std::string_view base;
    std::string_view more;
    std::string_view text;  ///< part of the error
};

/// Each is bad input, at a place in the file, with its text and with `hint` in the suggestion.
inline void expect_refused(const std::vector<Refusal>& cases, const std::string& hint = "") {
    for (const Refusal& one : cases) {
        SCOPED_TRACE(one.more);
        const Error error = refusal(with(one.base, one.more));
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_THAT(error.place(), ::testing::StartsWith("/home/u/scenarios/s.toml"));
        EXPECT_THAT(error.text(), ::testing::HasSubstr(std::string(one.text)));
        EXPECT_THAT(error.hint(), ::testing::HasSubstr(hint));
    }
}

}  // namespace pipetwin::testing

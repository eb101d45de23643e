// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pipetwin {

/// What a measured run has to have in common with another one to say much of it, and how well the
/// other measured runs predict it.
struct MeasuredLayout {
    std::string name{};           ///< of the run, for people
    std::int64_t parameters = 0;  ///< of the model
    int sequence = 0;             ///< tokens of a sample; 0: not known, or it has none
    std::string device{};
    std::string precision{};
    int devices = 1;
    int stages = 1;
    int chunks = 1;
    int tensor_parallel = 1;
    int context_parallel = 1;
    int expert_parallel = 1;
    int micro_batch_size = 1;  ///< samples
    std::string recompute = "none";
    std::string shard = "none";  ///< and of which groups: "optimizer, of a node"
    std::string schedule{};
    /// By which share its step is predicted too long or too short by the factors of all other runs;
    /// none where there is no other.
    std::optional<double> left_out{};

    bool operator==(const MeasuredLayout&) const = default;
};

/// The degrees by which samples and experts are divided, with their keys in files, of those
/// above 1.
std::vector<std::pair<std::string_view, int>> divided_degrees(const MeasuredLayout& layout);

/// The keys of a layout in files, in the order of the members.
inline constexpr std::array<std::string_view, 16> measured_layout_keys{"name",
                                                                       "parameters",
                                                                       "sequence",
                                                                       "device",
                                                                       "precision",
                                                                       "devices",
                                                                       "stages",
                                                                       "chunks",
                                                                       "tensor_parallel",
                                                                       "context_parallel",
                                                                       "expert_parallel",
                                                                       "micro_batch_size",
                                                                       "recompute",
                                                                       "shard",
                                                                       "schedule",
                                                                       "left_out"};

/// How much two runs have in common, the most first.
enum class Nearness {
    SameLayout,   ///< but for the numbers of replicas and micro-batches
    SameStages,   ///< another size of micro-batches, schedule or shard
    OtherLayout,  ///< other stages, chunks, recompute, or devices to a layer
    OtherModel    ///< or samples, device, precision
};

/// What the runs have in common.
Nearness nearness(const MeasuredLayout& one, const MeasuredLayout& other);

}  // namespace pipetwin

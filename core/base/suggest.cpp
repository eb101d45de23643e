// SPDX-License-Identifier: Apache-2.0
#include "core/base/suggest.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace pipetwin {

namespace {

/// Longest word that is compared, in characters: the bound keeps a hostile key of megabytes cheap.
constexpr std::size_t longest_word = 64;

char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// A word of another program and the one of ours that means it.
struct Alias {
    std::string_view theirs;
    std::string_view ours;
    /// Another word of the lists in which it means that; empty: of every list that has `ours`.
    std::string_view beside{};
};

/// Words that no edit distance leads to the right one ("gpu" is one letter away from "cpu").
constexpr std::array aliases{
    Alias{"gpu", "cuda"},
    Alias{"gpus", "cuda"},
    Alias{"nvidia", "cuda"},
    Alias{"float32", "fp32"},
    Alias{"float", "fp32"},
    Alias{"float64", "fp64"},
    Alias{"double", "fp64"},
    Alias{"bfloat16", "bf16"},
    Alias{"float16", "fp16"},
    Alias{"half", "fp16"},
    Alias{"fp16", "bf16", "fp64"},
    Alias{"float16", "bf16", "fp64"},
    Alias{"half", "bf16", "fp64"},
    Alias{"transformer", "gpt", "mlp"},
    Alias{"decoder", "gpt", "mlp"},
    Alias{"resnet50", "resnet"},
    Alias{"nccl", "cuda", "paced"},
    Alias{"gloo", "cpu", "paced"},
    Alias{"mpi", "cpu", "paced"},
    Alias{"f16", "fp16"},
    Alias{"16", "fp16"},
    Alias{"f32", "fp32"},
    Alias{"32", "fp32"},
    Alias{"tf32", "fp32"},
    Alias{"f64", "fp64"},
    Alias{"bf", "bf16"},
    Alias{"bfp16", "bf16"},
    Alias{"float8", "fp8"},
    Alias{"f8", "fp8"},
    // Types of gradients of weights that have two bytes.
    Alias{"bf16", "same", "fp32"},
    Alias{"bfloat16", "same", "fp32"},
    Alias{"fp16", "same", "fp32"},
    Alias{"float16", "same", "fp32"},
    Alias{"half", "same", "fp32"},
    // Recompute.
    Alias{"full", "block"},
    Alias{"full", "always"},
    Alias{"uniform", "block"},
    Alias{"checkpoint", "block", "selective"},
    Alias{"checkpointing", "block", "selective"},
    Alias{"gradient_checkpointing", "block", "selective"},
    Alias{"layer", "block", "selective"},
    Alias{"true", "block", "selective"},
    Alias{"on", "block", "selective"},
    Alias{"yes", "block", "selective"},
    Alias{"true", "always", "except-last"},
    Alias{"selective_block", "selective"},
    Alias{"core_attn", "selective"},
    Alias{"core_attention", "selective"},
    Alias{"attention", "selective"},
    Alias{"false", "none"},
    Alias{"off", "none"},
    Alias{"no", "none"},
    Alias{"true", "stash"},
    Alias{"cpu", "stash"},
    Alias{"host", "stash"},
    Alias{"activations", "stash"},
    // What replicas share.
    Alias{"1", "optimizer", "weights"},
    Alias{"zero1", "optimizer", "weights"},
    Alias{"zero-1", "optimizer", "weights"},
    Alias{"optim", "optimizer", "weights"},
    Alias{"true", "optimizer", "weights"},
    Alias{"2", "gradients", "weights"},
    Alias{"zero2", "gradients", "weights"},
    Alias{"zero-2", "gradients", "weights"},
    Alias{"optim_grads", "gradients", "weights"},
    Alias{"shard_grad_op", "gradients", "weights"},
    Alias{"3", "weights"},
    Alias{"zero3", "weights"},
    Alias{"zero-3", "weights"},
    Alias{"fsdp", "weights"},
    Alias{"fsdp2", "weights"},
    Alias{"full", "weights"},
    Alias{"full_shard", "weights"},
    Alias{"optim_grads_params", "weights"},
    Alias{"parameters", "weights"},
    Alias{"0", "none", "weights"},
    Alias{"no_shard", "none"},
    // Keys.
    Alias{"lr", "learning_rate"},
    Alias{"dtype", "precision"},
    Alias{"batch_size", "batch"},
    Alias{"global_batch_size", "batch"},
    Alias{"mini_batch", "batch"},
    Alias{"num_microbatches", "micro_batches"},
    Alias{"gradient_accumulation_steps", "micro_batches"},
    Alias{"gradient_accumulation", "micro_batches"},
    Alias{"pp", "stages"},
    Alias{"num_stages", "stages"},
    Alias{"pipeline_parallel", "stages"},
    Alias{"pipeline_parallel_size", "stages"},
    Alias{"dp", "data_parallel"},
    Alias{"data_parallel_size", "data_parallel"},
    Alias{"tp", "tensor_parallel"},
    Alias{"tensor_parallel_size", "tensor_parallel"},
    Alias{"vpp", "chunks"},
    Alias{"virtual_stages", "chunks"},
    Alias{"virtual_pipeline_stages", "chunks"},
    Alias{"activation_checkpointing", "recompute"},
    Alias{"checkpoint_activations", "recompute"},
    Alias{"activation_checkpoint", "recompute"},
    Alias{"gradient_checkpointing", "recompute"},
    Alias{"recompute_granularity", "recompute"},
    Alias{"recompute_activations", "recompute"},
    Alias{"recompute_num_layers", "recompute"},
    Alias{"sp", "sequence_parallel"},
    Alias{"scatter_gather_tensors_in_pipeline", "scatter_boundaries"},
    Alias{"grad_dtype", "gradients"},
    Alias{"grad_accum_dtype", "gradients"},
    Alias{"main_grads_dtype", "gradients"},
    Alias{"accumulate_allreduce_grads_in_fp32", "gradients"},
    Alias{"hidden_size", "d_model"},
    Alias{"num_layers", "layers"},
    Alias{"num_attention_heads", "heads"},
    Alias{"num_heads", "heads"},
    Alias{"seq_length", "sequence"},
    Alias{"seq_len", "sequence"},
    Alias{"sequence_length", "sequence"},
    Alias{"vocab_size", "vocabulary"},
    Alias{"clip_grad", "clip_norm"},
    Alias{"gradient_clipping", "clip_norm"},
    Alias{"zero", "shard"},
    Alias{"zero_stage", "shard"},
    Alias{"distributed_optimizer", "shard"},
    Alias{"use_distributed_optimizer", "shard"},
    Alias{"zero_optimization", "shard"},
    Alias{"data_parallel_sharding_strategy", "shard"},
    Alias{"fsdp", "shard"},
    Alias{"fully_sharded", "shard"},
    Alias{"pipe", "pipeline"},
    Alias{"parallelism", "pipeline"},
    Alias{"parallel", "pipeline"},
    Alias{"optimizer", "training"},
    Alias{"train", "training"},
    Alias{"dataset", "data"},
    Alias{"checkpoint", "output"},
    Alias{"hardware", "cluster"},
    Alias{"num_gpus", "count"},
    Alias{"gpus", "count"},
    Alias{"num_devices", "count"},
    Alias{"devices_per_node", "per_node"},
    Alias{"gpus_per_node", "per_node"},
    Alias{"save_every", "checkpoint_every"},
    Alias{"save_interval", "checkpoint_every"},
};

/// Keys that other programs have and this one has nothing for: the nearest word would mean
/// something else.
constexpr std::array<std::string_view, 9> not_supported{"context_parallel",
                                                        "context_parallel_size",
                                                        "cp",
                                                        "expert_parallel",
                                                        "expert_parallel_size",
                                                        "ep",
                                                        "cpu_offload",
                                                        "expert_tensor_parallel",
                                                        "loss_scale"};

/// A key that other programs have and that follows from others here.
struct Explained {
    std::string_view theirs;
    std::string_view beside;  ///< a key of the list in which it is meant
    std::string_view hint;
};

constexpr std::array explained{
    Explained{"micro_batch_size",
              "micro_batches",
              "write micro_batches, which is training.batch / (data_parallel x the size)"},
    Explained{"microbatch_size",
              "micro_batches",
              "write micro_batches, which is training.batch / (data_parallel x the size)"},
    Explained{"mbs",
              "micro_batches",
              "write micro_batches, which is training.batch / (data_parallel x the size)"},
    Explained{"epochs", "steps", "write steps: a training counts them, as in steps = 100"},
    Explained{"num_epochs", "steps", "write steps: a training counts them, as in steps = 100"},
    Explained{"nodes", "per_node", "write count, the number of devices: nodes x per_node"},
    Explained{"num_nodes", "per_node", "write count, the number of devices: nodes x per_node"},
    Explained{"nnodes", "per_node", "write count, the number of devices: nodes x per_node"},
};

bool is_alike(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, {}, lower, lower);
}

bool is_not_supported(std::string_view word) {
    return std::ranges::any_of(not_supported,
                               [word](std::string_view other) { return is_alike(word, other); });
}

/// The only known word that begins with `word`, or whose part behind an underscore is `word`:
/// "asynchronous" for "async", "checkpoint_every" for "every". Empty: none, or several.
std::string_view only_longer_word(std::string_view word, std::span<const std::string_view> known) {
    constexpr std::size_t shortest = 4;
    const auto goes_on = [word](std::string_view candidate) {
        const bool is_begin = is_alike(candidate.substr(0, word.size()), word);
        const std::size_t begin =
            candidate.size() > word.size() ? candidate.size() - word.size() : 0;
        const bool is_end =
            begin > 1 && candidate[begin - 1] == '_' && is_alike(candidate.substr(begin), word);
        return is_begin || is_end;
    };
    return word.size() >= shortest && std::ranges::count_if(known, goes_on) == 1
               ? *std::ranges::find_if(known, goes_on)
               : std::string_view();
}

/// The first known word that begins with `word` and the mark; empty if none does.
std::string_view longer_word(std::string_view word,
                             char mark,
                             std::span<const std::string_view> known) {
    constexpr std::size_t shortest = 3;
    const auto found = std::ranges::find_if(known, [&](std::string_view candidate) {
        const std::string_view rest = candidate.substr(std::min(word.size(), candidate.size()));
        return is_alike(candidate.substr(0, word.size()), word) && rest.starts_with(mark);
    });
    return word.size() >= shortest && found != known.end() ? *found : std::string_view();
}

}  // namespace

/// Optimal string alignment: insert, delete, replace, or swap two neighbours, one each.
///
///     d(i, j) = min( d(i-1, j) + 1,  d(i, j-1) + 1,  d(i-1, j-1) + (a[i] != b[j]),
///                    d(i-2, j-2) + 1   if the last two characters are swapped )
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> before_last(b.size() + 1);
    std::vector<std::size_t> last(b.size() + 1);
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::swap(before_last, last);
        std::swap(last, row);
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const bool same = lower(a[i - 1]) == lower(b[j - 1]);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
            const bool swapped = i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                                 lower(a[i - 2]) == lower(b[j - 1]);
            if (swapped) {
                row[j] = std::min(row[j], before_last[j - 2] + 1);
            }
        }
    }
    return row[b.size()];
}

std::string_view same_word(std::string_view word, std::span<const std::string_view> known) {
    for (const std::string_view candidate : known) {
        if (is_alike(candidate, word)) {
            return candidate;
        }
    }
    for (const Alias& alias : aliases) {
        const auto found = std::ranges::find(known, alias.ours);
        const bool is_list =
            alias.beside.empty() || std::ranges::find(known, alias.beside) != known.end();
        if (is_list && is_alike(alias.theirs, word) && found != known.end()) {
            return *found;
        }
    }
    return {};
}

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
    if (word.empty() || word.size() > longest_word || is_not_supported(word)) {
        return {};
    }
    if (const std::string_view same = same_word(word, known); !same.empty()) {
        return same;
    }
    // If several schedules fit a name ("interleaved"), the first one is the plain one.
    if (const std::string_view longer = longer_word(word, '-', known); !longer.empty()) {
        return longer;
    }
    std::string_view best;
    std::size_t best_distance = longest_word;
    for (const std::string_view candidate : known) {
        const std::size_t allowed =
            std::max<std::size_t>(1, std::max(word.size(), candidate.size()) / 3);
        const std::size_t distance = edit_distance(word, candidate);
        if (distance <= allowed && distance < best_distance) {
            best = candidate;
            best_distance = distance;
        }
    }
    best = best.empty() ? longer_word(word, '_', known) : best;
    return best.empty() ? only_longer_word(word, known) : best;
}

Hint suggestion(std::string_view word, std::span<const std::string_view> known) {
    for (const Explained& one : explained) {
        if (is_alike(one.theirs, word) && std::ranges::find(known, one.beside) != known.end()) {
            return std::string(one.hint);
        }
    }
    const std::string_view near = nearest_word(word, known);
    if (near.empty()) {
        return fmt::format(
            "{}known: {}",
            is_not_supported(word) ? fmt::format("'{}' is not supported yet; ", word) : "",
            fmt::join(known, ", "));
    }
    return did_you_mean(near);
}

Hint suggestion_of_listed(std::string_view word, std::span<const std::string_view> known) {
    return nearest_word(word, known).empty() ? Hint("name one of these") : suggestion(word, known);
}

}  // namespace pipetwin

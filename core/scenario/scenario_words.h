#pragma once

#include <array>
#include <string_view>

/// The words of a scenario, in the order of their enums; and those that belong to the language, but
/// that this version does not run yet.
namespace pipetwin::words {

using Word = std::string_view;

inline constexpr std::array<Word, 4> model_kinds{"gpt", "mlp", "layers", "profile"};
inline constexpr std::array<Word, 3> later_model_kinds{"amoebanet-d", "resnet", "unet"};

inline constexpr std::array<Word, 4> data_kinds{"text", "tokens", "mnist", "synthetic"};
inline constexpr std::array<Word, 1> later_data_kinds{"cifar10"};

inline constexpr std::array<Word, 5> optimizers{"sgd", "momentum", "rmsprop", "adam", "adamw"};

inline constexpr std::array<Word, 3> rate_schedules{"constant", "linear", "cosine"};

inline constexpr std::array<Word, 3> precisions{"fp32", "fp64", "bf16"};

inline constexpr std::array<Word, 3> backends{"cpu", "paced", "cuda"};

inline constexpr std::array<Word, 4> scale_costs{"none", "compute", "memory", "cautious"};
inline constexpr std::array<Word, 2> placements{"fill", "round-robin"};
inline constexpr std::array<Word, 3> transfers{"asynchronous", "blocking", "hand-over"};
inline constexpr std::array<Word, 3> link_sharings{"fifo", "fair", "none"};

inline constexpr std::array<Word, 2> gpu_shares{"own", "streams"};

inline constexpr std::array<Word, 3> recomputes{"none", "always", "except-last"};
inline constexpr std::array<Word, 2> recompute_timings{"eager", "lazy"};
inline constexpr std::array<Word, 2> offloads{"none", "stash"};
inline constexpr std::array<Word, 2> message_orders{"plain", "lower-rank-first"};
inline constexpr std::array<Word, 3> all_reduces{"ring", "tree", "two-level"};

}  // namespace pipetwin::words

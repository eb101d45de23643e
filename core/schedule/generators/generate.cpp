// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/generators/generate.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/schedule/generators/generators.h"
#include "core/schedule/generators/schedule_traits.h"

namespace pipetwin {

namespace {

/// The row of an order that is read from a file.
constexpr ScheduleTraits file_traits{.name = "file", .chunks = ChunkCounts::Several};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, {}, ascii::lower, ascii::lower);
}

void check_range(std::string_view what, int value, int largest) {
    if (value < 1 || value > largest) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("{} = {} is out of range", what, value),
                    fmt::format("give a number from 1 to {}", largest))
            .about(fmt::format("pipeline.{}", what));
    }
}

}  // namespace

std::vector<const ScheduleTraits*>& schedules::rows() {
    static std::vector<const ScheduleTraits*> rows{&naive_traits,
                                                   &gpipe_traits,
                                                   &one_f_one_b_traits,
                                                   &interleaved_1f1b_traits,
                                                   &looped_bfs_traits,
                                                   &zb_h1_traits,
                                                   &zb_h2_traits,
                                                   &zb_auto_traits,
                                                   &zb_v_traits,
                                                   &interleaved_zb_traits,
                                                   &dualpipe_v_traits,
                                                   &chimera_traits,
                                                   &hanayo_traits,
                                                   &forward_only_traits,
                                                   &pipedream_traits,
                                                   &pipedream_2bw_traits};
    return rows;
}

std::vector<ScheduleName> known_schedules() {
    std::vector<ScheduleName> names;
    for (const ScheduleTraits* const row : schedules::rows()) {
        names.push_back({.kind = static_cast<ScheduleKind>(names.size()),
                         .name = row->name,
                         .torch_name = row->torch_name});
    }
    return names;
}

const ScheduleTraits& schedule_traits(ScheduleKind kind) {
    if (kind == ScheduleKind::FromFile) {
        return file_traits;
    }
    const auto& rows = schedules::rows();
    PIPETWIN_EXPECT(std::cmp_less(static_cast<int>(kind), rows.size()),
                    "schedule kind out of range");
    return *rows[as_index(static_cast<int>(kind))];
}

const ScheduleTraits& schedule_traits(std::string_view our_name) {
    const auto& rows = schedules::rows();
    const auto row = std::ranges::find(rows, our_name, &ScheduleTraits::name);
    return row == rows.end() ? file_traits : **row;
}

namespace {

/// What papers and programs call a schedule, or a family of which it is the plain one.
constexpr auto other_names = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"zero-bubble", "zb-h1"},
    {"zerobubble", "zb-h1"},
    {"zero_bubble", "zb-h1"},
    {"zb", "zb-h1"},
    {"zb1p", "zb-h1"},
    {"zb-1p", "zb-h1"},
    {"zb2p", "zb-h2"},
    {"zb-2p", "zb-h2"},
    {"zbv", "zb-v"},
    {"vpp", "interleaved-1f1b"},
    {"virtual-pipeline", "interleaved-1f1b"},
    {"interleaving", "interleaved-1f1b"},
    {"interleave", "interleaved-1f1b"},
    {"pipedream-flush", "1f1b"},
    {"dapple", "1f1b"},
    {"one-forward-one-backward", "1f1b"},
    {"fthenb", "gpipe"},
    {"f-then-b", "gpipe"},
    {"afab", "gpipe"},
    {"all-forward-all-backward", "gpipe"},
    {"bfs", "looped-bfs"},
    {"breadth-first", "looped-bfs"},
    {"bidirectional", "chimera"},
});

}  // namespace

ScheduleKind schedule_kind(std::string_view name) {
    // PyTorch's classes are called ScheduleGPipe, Schedule1F1B, ...; its option values leave the
    // prefix out.
    constexpr std::string_view prefix = "schedule";
    std::string_view word = name;
    if (word.size() > prefix.size() && equal_ignoring_case(word.substr(0, prefix.size()), prefix)) {
        word.remove_prefix(prefix.size());
    }
    const std::vector<ScheduleName> names = known_schedules();
    for (const ScheduleName& known : names) {
        const bool ours = equal_ignoring_case(word, known.name);
        const bool torchs =
            !known.torch_name.empty() && equal_ignoring_case(word, known.torch_name);
        if (ours || torchs) {
            return known.kind;
        }
    }
    std::vector<std::string_view> our_names;
    Hint hint;
    for (const ScheduleName& known : names) {
        our_names.push_back(known.name);
        const ScheduleTraits& row = schedule_traits(known.kind);
        if (!row.kin.empty() && equal_ignoring_case(word, row.kin)) {
            hint = std::string(row.kin_differs);
        }
    }
    for (const auto& [theirs, ours] : other_names) {
        if (equal_ignoring_case(word, theirs)) {
            hint = did_you_mean(ours);
        }
    }
    throw Error(ErrorKind::BadInput,
                "",
                fmt::format("'{}' is not a known schedule", name),
                hint.empty() ? suggestion(name, our_names) : hint);
}

std::string_view to_string(ScheduleKind kind) {
    return schedule_traits(kind).name;
}

Schedule generate(ScheduleKind kind, const ScheduleShape& shape, const GeneratorOptions& options) {
    const ScheduleTraits& row = schedule_traits(kind);
    PIPETWIN_EXPECT(row.generate, "a schedule from a file is read, not generated");
    return row.generate(shape, options);
}

void check_shape(const ScheduleShape& shape) {
    check_range("stages", shape.ranks, largest_shape.ranks);
    check_range("chunks", shape.chunks, largest_shape.chunks);
    check_range("micro_batches", shape.micro_batches, largest_shape.micro_batches);
    const std::int64_t actions =
        std::int64_t{largest_actions_per_pair} * shape.ranks * shape.chunks * shape.micro_batches;
    if (actions > largest_schedule) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("{} x {} x {} make up to {} actions",
                                counted(shape.ranks, "stage"),
                                counted(shape.chunks, "chunk"),
                                counted(shape.micro_batches, "micro-batch"),
                                actions),
                    fmt::format("a schedule may have {} actions: use fewer micro-batches",
                                largest_schedule))
            .about("pipeline.micro_batches");
    }
}

}  // namespace pipetwin

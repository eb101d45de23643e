#include "core/schedule/generators/generate.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/schedule/generators/generators.h"

namespace pipetwin {

namespace {

constexpr std::array names{
    ScheduleName{ScheduleKind::Naive, "naive", ""},
    ScheduleName{ScheduleKind::GPipe, "gpipe", "GPipe"},
    ScheduleName{ScheduleKind::OneFOneB, "1f1b", "1F1B"},
    ScheduleName{ScheduleKind::Interleaved1F1B, "interleaved-1f1b", "Interleaved1F1B"},
    ScheduleName{ScheduleKind::LoopedBfs, "looped-bfs", "LoopedBFS"},
    ScheduleName{ScheduleKind::ZbH1, "zb-h1", ""},
    ScheduleName{ScheduleKind::ZbH2, "zb-h2", ""},
    ScheduleName{ScheduleKind::ZbAuto, "zb-auto", ""},
    ScheduleName{ScheduleKind::ZbV, "zb-v", "ZBVZeroBubble"},
    ScheduleName{ScheduleKind::InterleavedZb, "interleaved-zb", "InterleavedZeroBubble"},
    ScheduleName{ScheduleKind::DualPipeV, "dualpipe-v", "DualPipeV"},
    ScheduleName{ScheduleKind::Chimera, "chimera", ""},
    ScheduleName{ScheduleKind::Hanayo, "hanayo", ""},
    ScheduleName{ScheduleKind::ForwardOnly, "forward-only", ""},
    ScheduleName{ScheduleKind::PipeDream, "pipedream", ""},
    ScheduleName{ScheduleKind::PipeDream2Bw, "pipedream-2bw", ""},
};

bool equal_ignoring_case(std::string_view a, std::string_view b) {
    const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
    return std::ranges::equal(a, b, {}, lower, lower);
}

void check_range(std::string_view what, int value, int largest) {
    if (value < 1 || value > largest) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("{} = {} is out of range", what, value),
                    fmt::format("give a number from 1 to {}", largest));
    }
}

}  // namespace

std::span<const ScheduleName> known_schedules() {
    return names;
}

ScheduleKind schedule_kind(std::string_view name) {
    // PyTorch's classes are called ScheduleGPipe, Schedule1F1B, ...; its option values leave the
    // prefix out.
    constexpr std::string_view prefix = "schedule";
    std::string_view word = name;
    if (word.size() > prefix.size() && equal_ignoring_case(word.substr(0, prefix.size()), prefix)) {
        word.remove_prefix(prefix.size());
    }
    for (const ScheduleName& known : names) {
        const bool ours = equal_ignoring_case(word, known.name);
        const bool torchs =
            !known.torch_name.empty() && equal_ignoring_case(word, known.torch_name);
        if (ours || torchs) {
            return known.kind;
        }
    }
    std::vector<std::string_view> our_names;
    for (const ScheduleName& known : names) {
        our_names.push_back(known.name);
    }
    throw Error(ErrorKind::BadInput,
                "",
                fmt::format("'{}' is not a schedule that can be generated", name),
                suggestion(name, our_names));
}

std::string_view to_string(ScheduleKind kind) {
    for (const ScheduleName& known : names) {
        if (known.kind == kind) {
            return known.name;
        }
    }
    PIPETWIN_EXPECT(kind == ScheduleKind::FromFile, "schedule kind out of range");
    return "file";
}

bool has_stale_gradients(ScheduleKind kind) {
    return kind == ScheduleKind::PipeDream || kind == ScheduleKind::PipeDream2Bw;
}

Schedule generate(ScheduleKind kind, const ScheduleShape& shape, const GeneratorOptions& options) {
    switch (kind) {
        case ScheduleKind::Naive:
            return schedules::naive(shape);
        case ScheduleKind::GPipe:
            return schedules::gpipe(shape, options.gpipe_order);
        case ScheduleKind::OneFOneB:
            return schedules::one_f_one_b(shape);
        case ScheduleKind::Interleaved1F1B:
            return schedules::interleaved_1f1b(shape, options.group_size);
        case ScheduleKind::LoopedBfs:
            return schedules::looped_bfs(shape);
        case ScheduleKind::ZbH1:
            return schedules::zb_h1(shape);
        case ScheduleKind::ZbH2:
            return schedules::zb_h2(shape);
        case ScheduleKind::ZbAuto:
            return schedules::zb_auto(shape, options.zero_bubble);
        case ScheduleKind::ZbV:
            return schedules::zb_v(shape);
        case ScheduleKind::InterleavedZb:
            return schedules::interleaved_zb(shape);
        case ScheduleKind::DualPipeV:
            return schedules::dualpipe_v(shape);
        case ScheduleKind::Chimera:
            return schedules::chimera(shape);
        case ScheduleKind::Hanayo:
            return schedules::hanayo(shape);
        case ScheduleKind::ForwardOnly:
            return schedules::forward_only(shape);
        case ScheduleKind::PipeDream:
        case ScheduleKind::PipeDream2Bw:
            return schedules::pipedream(shape, to_string(kind));
        case ScheduleKind::FromFile:
            break;
    }
    PIPETWIN_EXPECT(false, "a schedule from a file is read, not generated");
}

void check_shape(const ScheduleShape& shape) {
    check_range("stages", shape.ranks, 4096);
    check_range("chunks", shape.chunks, 64);
    check_range("micro_batches", shape.micro_batches, 65536);
    const std::int64_t actions =
        std::int64_t{largest_actions_per_pair} * shape.ranks * shape.chunks * shape.micro_batches;
    if (actions > largest_schedule) {
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("{} stages x {} chunks x {} micro-batches make up to {} actions",
                                shape.ranks,
                                shape.chunks,
                                shape.micro_batches,
                                actions),
                    fmt::format("a schedule may have {} actions: use fewer micro-batches",
                                largest_schedule));
    }
}

}  // namespace pipetwin

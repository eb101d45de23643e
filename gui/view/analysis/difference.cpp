// SPDX-License-Identifier: Apache-2.0
#include "gui/view/analysis/difference.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/number_text.h"
#include "core/base/short_number.h"
#include "core/timeline/metrics.h"
#include "sim/explain/breakdown.h"
#include "sim/explain/rank_waits.h"

namespace pipetwin::gui {

namespace {

constexpr double least_share = 0.001;  ///< of a step: a smaller difference is none
constexpr std::size_t most_parts = 3;

double ratio(Duration part, Duration whole) {
    return whole > Duration{} ? to_seconds(part) / to_seconds(whole) : 0;
}

/// A part of a step in words, and its mean over the ranks.
struct StepPart {
    std::string words;
    Duration time{};
};

/// What a step consists of.
struct StepParts {
    Duration length{};
    std::vector<StepPart> parts;  ///< they sum to the length
    std::vector<StepPart> waits;  ///< by where in a rank's row they are
    std::vector<Duration> wait_of_rank;
};

StepParts parts_of(const StepAnalysis& step) {
    StepParts all;
    all.length = step.length();
    const Breakdown breakdown = sim::breakdown(step.plan(), step.replayed());
    for (const BreakdownPart& part : breakdown_parts) {
        all.parts.push_back({std::string(part.words), breakdown.*part.value});
    }
    all.parts.push_back({"unexplained", step.length() - breakdown.sum()});
    const std::vector<sim::RankWaits> waits = sim::rank_waits(step.plan(), step.replayed());
    const auto ranks = static_cast<std::int64_t>(std::max<std::size_t>(1, waits.size()));
    Duration first{};
    Duration last{};
    Duration between{};
    for (const sim::RankWaits& rank : waits) {
        first += rank.before_first;
        last += rank.after_last;
        between += rank.wait - rank.before_first - rank.after_last;
        all.wait_of_rank.push_back(rank.wait);
    }
    all.waits = {{"before its first action", first / ranks},
                 {"between its actions", between / ranks},
                 {"after its last action", last / ranks}};
    return all;
}

/// Whether a step of one run does the work of a step of the other, as far as the runs say it.
bool do_same_work(const StepAnalysis& a, const StepAnalysis& b) {
    const auto work_of = [](const StepAnalysis& step) {
        const auto rate = throughput_of(step.run(), step.side());
        const std::optional<SideData>& side = step.run().side(step.side());
        return rate && side ? rate->per_second * to_seconds(side->step) : 0.0;
    };
    constexpr double rounding = 1e-6;
    const double mine = work_of(a);
    const double its = work_of(b);
    return std::abs(mine - its) <= rounding * std::max(mine, its);
}

/// "fill and drain 2.00 ms less", of the largest differences first.
std::vector<std::string> differences(const std::vector<StepPart>& mine,
                                     const std::vector<StepPart>& its,
                                     Duration least) {
    std::vector<StepPart> all;
    for (std::size_t i = 0; i < mine.size(); ++i) {
        const Duration more = mine[i].time - its[i].time;
        if (std::chrono::abs(more) >= least && more != Duration{}) {
            all.push_back({mine[i].words, more});
        }
    }
    std::ranges::stable_sort(all, std::ranges::greater{}, [](const StepPart& part) {
        return std::chrono::abs(part.time);
    });
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < std::min(all.size(), most_parts); ++i) {
        texts.push_back(fmt::format("{} {} {}",
                                    all[i].words,
                                    short_time(std::chrono::abs(all[i].time)),
                                    all[i].time < Duration{} ? "less" : "more"));
    }
    return texts;
}

/// "A rank waits 1.50 ms less before its first action on average; rank 3 6.00 ms less in all."
std::string wait_words(const StepParts& mine, const StepParts& its, Duration least) {
    std::vector<std::string> places;
    for (std::size_t i = 0; i < mine.waits.size(); ++i) {
        const Duration more = mine.waits[i].time - its.waits[i].time;
        if (std::chrono::abs(more) >= least) {
            places.push_back(fmt::format("{} {} {}",
                                         short_time(std::chrono::abs(more)),
                                         more < Duration{} ? "less" : "more",
                                         mine.waits[i].words));
        }
    }
    if (places.empty()) {
        return " Ranks wait as long.";
    }
    std::string text = fmt::format(" On average a rank waits {}.", fmt::join(places, " and "));
    if (mine.wait_of_rank.size() != its.wait_of_rank.size()) {
        return text;
    }
    std::size_t most = 0;
    const auto change = [&](std::size_t rank) {
        return mine.wait_of_rank[rank] - its.wait_of_rank[rank];
    };
    for (std::size_t rank = 1; rank < mine.wait_of_rank.size(); ++rank) {
        most = std::chrono::abs(change(rank)) > std::chrono::abs(change(most)) ? rank : most;
    }
    return text + fmt::format(" The largest change is that of rank {}: {} {}.",
                              most,
                              short_time(std::chrono::abs(change(most))),
                              change(most) < Duration{} ? "less" : "more");
}

/// Shares of both steps, where these do different work.
std::string shares_sentence(const StepParts& mine,
                            const StepParts& its,
                            const std::string& baseline) {
    std::vector<std::string> texts;
    std::vector<std::pair<double, std::string>> changes;
    for (std::size_t i = 0; i < mine.parts.size(); ++i) {
        const double here = ratio(mine.parts[i].time, mine.length);
        const double there = ratio(its.parts[i].time, its.length);
        if (std::abs(here - there) >= least_share) {
            changes.emplace_back(std::abs(here - there),
                                 fmt::format("{} is {} of the step, there {}",
                                             mine.parts[i].words,
                                             short_percent(here),
                                             short_percent(there)));
        }
    }
    std::ranges::stable_sort(
        changes, std::ranges::greater{}, &std::pair<double, std::string>::first);
    for (std::size_t i = 0; i < std::min(changes.size(), most_parts); ++i) {
        texts.push_back(changes[i].second);
    }
    return fmt::format("Does other work in a step than {}{}{}.",
                       baseline,
                       texts.empty() ? "" : ": ",
                       fmt::join(texts, "; "));
}

}  // namespace

std::string difference_sentence(const StepAnalysis& step,
                                const StepAnalysis& other,
                                const std::string& baseline) {
    for (const StepAnalysis* const one : {&step, &other}) {
        if (!one->has_causes()) {
            return one->note();
        }
    }
    const StepParts mine = parts_of(step);
    const StepParts its = parts_of(other);
    if (!do_same_work(step, other)) {
        return shares_sentence(mine, its, baseline);
    }
    const Duration more = mine.length - its.length;
    const Duration least = scaled(std::max(mine.length, its.length), least_share);
    const std::vector<std::string> parts = differences(mine.parts, its.parts, least);
    std::string text = std::chrono::abs(more) < least
                           ? fmt::format("As long as {}", baseline)
                           : fmt::format("{} ({}) {} than {}",
                                         short_time(std::chrono::abs(more)),
                                         short_percent(ratio(std::chrono::abs(more), its.length)),
                                         more < Duration{} ? "less" : "more",
                                         baseline);
    text += parts.empty() ? "." : fmt::format(": {}.", fmt::join(parts, ", "));
    return text + wait_words(mine, its, least);
}

}  // namespace pipetwin::gui

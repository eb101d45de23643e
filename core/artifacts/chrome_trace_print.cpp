// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/artifacts/chrome_trace.h"
#include "core/artifacts/chrome_trace_words.h"
#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/version.h"
#include "core/schedule/edge.h"
#include "core/schedule/schedule_csv.h"

namespace pipetwin {

namespace {

using namespace chrome_trace;
using nlohmann::json;

std::string_view category_of(Op op) {
    constexpr std::array<std::string_view, 3> categories{"compute", "send", "receive"};
    return categories.at(as_index(lane_of(op)));
}

/// Microseconds with three decimals: whole nanoseconds survive.
std::string microseconds(Duration time) {
    const std::int64_t magnitude = std::abs(time.count());
    return fmt::format(
        "{}{}.{:03}", time.count() < 0 ? "-" : "", magnitude / 1000, magnitude % 1000);
}

/// Begin of each step in the file: one after the other.
std::vector<Duration> step_begins(const TimelineSet& set) {
    std::vector<Duration> begins;
    Duration begin{};
    for (const Timeline& step : set.steps) {
        begins.push_back(begin);
        Duration last{};
        for (const auto& row : step.ranks) {
            for (const Span& span : row) {
                last = std::max(last, span.end);
            }
        }
        begin += last;
    }
    return begins;
}

class Writer {
  public:
    explicit Writer(const Trace& trace) : trace_(trace), begins_(step_begins(trace.timelines)) {}

    std::string print() {
        out("{{\"displayTimeUnit\":\"ms\",\n\"pipetwin\":{},\n\"traceEvents\":[",
            metadata().dump());
        names();
        for (std::size_t step = 0; step < begins_.size(); ++step) {
            spans(step);
            links(step);
            host_copies(step);
        }
        memory();
        out("\n]}}\n");
        return fmt::to_string(buffer_);
    }

  private:
    json metadata() const {
        const TimelineSet& set = trace_.timelines;
        json begins = json::array();
        for (const Duration begin : begins_) {
            begins.push_back(begin.count());
        }
        json peaks = json::array();
        for (const Bytes peak : set.peak_bytes) {
            peaks.push_back(peak.count);
        }
        json breakdown = nullptr;
        if (set.breakdown) {
            for (const BreakdownPart& part : breakdown_parts) {
                breakdown[std::string(part.key)] = ((*set.breakdown).*part.value).count();
            }
        }
        const auto or_null = [](const auto& value) { return value ? json(*value) : json(nullptr); };
        json all{{"schema_version", schema_version},
                 {"tool_version", program_version()},
                 {"origin", std::string(to_string(set.steps.front().origin))},
                 {"plan_hash", trace_.plan_hash},
                 {"schedule", trace_.schedule_name},
                 {"rows", print_schedule_csv(trace_.schedule)},
                 {"channel_capacity", or_null(trace_.channel_capacity)},
                 {"samples", or_null(trace_.samples)},
                 {"step_begins_ns", begins},
                 {"peak_bytes", peaks},
                 {"breakdown_ns", breakdown},
                 {"replayed_step_ns",
                  set.replayed_step ? json(set.replayed_step->count()) : json(nullptr)},
                 {"noise",
                  {{"stolen_percent", set.noise.stolen_percent},
                   {"p90_over_p10", set.noise.p90_over_p10},
                   {"dropped_steps", set.noise.dropped_steps},
                   {"steps", set.noise.steps}}}};
        if (set.noise.costs_apart) {
            all["noise"]["costs_apart"] = *set.noise.costs_apart;
        }
        if (!set.numbers.empty()) {
            all["step_numbers"] = set.numbers;
        }
        if (set.noise.sharing_ranks > 0) {
            all["noise"]["sharing_ranks"] = set.noise.sharing_ranks;
            all["noise"]["shared_cores"] = set.noise.shared_cores;
        }
        if (const std::size_t others = set.steps.front().replicas.size(); others > 0) {
            all["replicas"] = 1 + others;
        }
        return all;
    }

    /// Writes the names of processes and threads for viewers.
    void names() {
        const auto ranks = static_cast<std::size_t>(trace_.schedule.rank_count());
        for (std::size_t row = 0; row < trace_.timelines.steps.front().row_count(); ++row) {
            event(R"("ph":"M","name":"process_name","pid":{},"args":{{"name":"{}rank {}"}})",
                  row,
                  row < ranks ? "" : fmt::format("replica {}, ", row / ranks),
                  row % ranks);
            event(R"("ph":"M","name":"process_sort_index","pid":{0},"args":{{"sort_index":{0}}})",
                  row);
            const std::size_t lanes = offloads() ? lane_names.size() : std::size_t{CopyOutLane};
            for (std::size_t lane = 0; lane < lanes; ++lane) {
                event(R"("ph":"M","name":"thread_name","pid":{},"tid":{},"args":{{"name":"{}"}})",
                      row,
                      lane,
                      lane_names.at(lane));
            }
        }
    }

    void spans(std::size_t step) {
        const Timeline& timeline = trace_.timelines.steps[step];
        for (std::size_t row = 0; row < timeline.row_count(); ++row) {
            const std::vector<Span>& spans = timeline.row_at(row);
            for (std::size_t cell = 0; cell < spans.size(); ++cell) {
                const Span& span = spans[cell];
                const Op op = span.action.op;
                const bool has_groups = row < timeline.in_groups.size() && is_compute(op);
                slice(span,
                      step,
                      fmt::format(R"("cat":"{}","pid":{},"tid":{})",
                                  category_of(op),
                                  row,
                                  static_cast<int>(lane_of(op))),
                      has_groups ? fmt::format(R"("cell":{},"groups_us":{})",
                                               cell,
                                               microseconds(timeline.in_groups[row][cell]))
                                 : fmt::format(R"("cell":{})", cell));
                if (can_wait(op)) {
                    arrow(span, step, row);
                }
            }
        }
    }

    void links(std::size_t step) {
        const auto& links = trace_.timelines.steps[step].links;
        for (std::size_t edge = 0; edge < links.size(); ++edge) {
            for (const Span& span : links[edge]) {
                const std::size_t stage = as_index(span.action.stage);
                slice(span,
                      step,
                      fmt::format(R"("cat":"link","pid":{},"tid":{})",
                                  trace_.schedule.rank_of_stage.at(stage),
                                  static_cast<int>(LinkLane)),
                      fmt::format(R"("edge":{})", edge));
            }
        }
    }

    bool offloads() const {
        return std::ranges::any_of(trace_.timelines.steps,
                                   [](const Timeline& step) { return !step.host_copies.empty(); });
    }

    /// Copies of stashes, each with the cell of the action that makes the stash or needs it.
    void host_copies(std::size_t step) {
        const auto& copies = trace_.timelines.steps[step].host_copies;
        for (std::size_t row = 0; row < copies.size(); ++row) {
            const std::vector<Action>& actions = trace_.schedule.ranks.at(row / 2);
            std::size_t cell = 0;
            for (const Span& span : copies[row]) {  // in the order of their cells
                while (actions.at(cell) != span.action) {
                    ++cell;
                }
                slice(span,
                      step,
                      fmt::format(R"("cat":"host","pid":{},"tid":{})",
                                  row / 2,
                                  static_cast<int>(row % 2 == 0 ? CopyOutLane : CopyInLane)),
                      fmt::format(R"("cell":{})", cell));
            }
        }
    }

    void slice(const Span& span,
               std::size_t step,
               const std::string& where,
               const std::string& which) {
        const bool waits = can_wait(span.action.op) || span.ready > span.begin;
        event(R"("ph":"X","name":"PP:{}",{},"ts":{},"dur":{},"args":{{"step":{},{}{}}})",
              to_string(span.action),
              where,
              microseconds(begins_[step] + span.begin),
              microseconds(span.end - span.begin),
              step,
              which,
              waits ? ",\"wait_us\":" + microseconds(span.ready - span.begin) : "");
    }

    /// From the end of a send to the end of its receive.
    void arrow(const Span& span, std::size_t step, std::size_t row) {
        const std::size_t edge = as_index(edge_of(trace_.schedule, span.action));
        const std::size_t micro_batches = as_index(trace_.schedule.micro_batches);
        const std::size_t edges =
            2 * (trace_.schedule.rank_of_stage.size() + trace_.schedule.skips.size());
        const Timeline& timeline = trace_.timelines.steps[step];
        const std::size_t replica = row / timeline.ranks.size();
        const std::size_t walk = step * (1 + timeline.replicas.size()) + replica;
        const std::size_t id = (walk * edges + edge) * micro_batches +
                               static_cast<std::size_t>(span.action.micro_batch);
        const bool send = is_send(span.action.op);
        event(R"("ph":"{}",{}"name":"message","cat":"message","id":{},"pid":{},"tid":{},"ts":{})",
              send ? "s" : "f",
              send ? "" : R"("bp":"e",)",
              id,
              row,
              static_cast<int>(lane_of(span.action.op)),
              microseconds(begins_[step] + span.end));
    }

    void memory() {
        for (std::size_t rank = 0; rank < trace_.memory.size(); ++rank) {
            for (const MemoryPoint& point : trace_.memory[rank]) {
                std::string values;
                for (int kind = 0; kind < memory_kind_count; ++kind) {
                    const auto memory_kind = static_cast<MemoryKind>(kind);
                    values += fmt::format(R"({}"{}":{})",
                                          kind == 0 ? "" : ",",
                                          to_string(memory_kind),
                                          point.use[memory_kind].count);
                }
                event(R"("ph":"C","name":"memory","pid":{},"ts":{},"args":{{{}}})",
                      rank,
                      microseconds(point.time),
                      values);
            }
        }
    }

    template <class... Values>
    void event(fmt::format_string<Values...> body, Values&&... values) {
        out("{}\n{{", first_ ? "" : ",");
        out(body, std::forward<Values>(values)...);
        out("}}");
        first_ = false;
    }

    template <class... Values>
    void out(fmt::format_string<Values...> text, Values&&... values) {
        fmt::format_to(std::back_inserter(buffer_), text, std::forward<Values>(values)...);
    }

    const Trace& trace_;
    std::vector<Duration> begins_;
    fmt::memory_buffer buffer_;
    bool first_ = true;
};

}  // namespace

std::string print_chrome_trace(const Trace& trace) {
    PIPETWIN_EXPECT(!trace.timelines.steps.empty(), "a trace holds at least one step");
    return Writer(trace).print();
}

}  // namespace pipetwin

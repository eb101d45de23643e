// SPDX-License-Identifier: Apache-2.0
#include "core/timeline/memory_limits.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/plan/plan.h"

namespace pipetwin {

std::string memory_table(std::string_view what, const std::vector<NamedMemory>& rows) {
    std::string table = fmt::format("{:>4}  {:>12}", what, "total");
    for (int kind = 0; kind < memory_kind_count; ++kind) {
        table += fmt::format("  {:>12}", to_string(static_cast<MemoryKind>(kind)));
    }
    for (const NamedMemory& row : rows) {
        table += fmt::format("\n{:>4}  {:>12}", row.name, format_bytes(row.use.total()));
        for (const Bytes bytes : row.use.bytes) {
            table += fmt::format("  {:>12}", format_bytes(bytes));
        }
        table += row.remark.empty() ? "" : "  " + row.remark;
    }
    return table;
}

namespace {

/// Ranks over their limit are marked.
std::string table_with_limits(const Plan& plan, const std::vector<MemoryUse>& peaks) {
    std::vector<NamedMemory> rows;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        const MemoryUse& peak = peaks[as_index(rank)];
        NamedMemory& row = rows.emplace_back(NamedMemory{fmt::to_string(rank), peak});
        const std::optional<Bytes> limit = plan.memory_limit(rank);
        if (limit && peak.total() > *limit) {
            row.remark = plan->memory_limits.empty()
                             ? "over the limit"
                             : fmt::format("over the limit of {}", format_bytes(*limit));
        }
    }
    return memory_table("rank", rows);
}

bool is_all_recomputed(const Plan& plan, int rank) {
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        if (plan->schedule.rank_of_stage[as_index(stage)] == rank &&
            plan->recompute.of(model_stage_of(plan->schedule, stage)) != Recompute::Always) {
            return false;
        }
    }
    return true;
}

/// What needs less memory on a rank, as far as the plan leaves it open.
std::string hint_for(const Plan& plan, int rank) {
    const std::vector<int>& sizes = plan->micro_batch_sizes;
    const bool has_larger = sizes.empty() || std::ranges::max(sizes) > 1;
    const bool can_divide =
        !plan->partition || plan->partition->stage_count() < plan->partition->layer_count();
    const bool can_recompute = !is_all_recomputed(plan, rank);
    std::vector<std::string_view> ways;
    if (has_larger) {
        ways.emplace_back("more micro-batches");
    }
    if (can_recompute) {
        ways.emplace_back("recompute = \"always\"");
    }
    if (can_divide) {
        ways.emplace_back("more stages");
    }
    if (ways.empty()) {
        return "use devices with more memory, or a smaller model";
    }
    const std::string_view last = ways.back();
    ways.pop_back();
    return fmt::format("{}{}{} need{} less memory per rank",
                       fmt::join(ways, ", "),
                       ways.empty() ? "" : " or ",
                       last,
                       ways.empty() && can_recompute ? "s" : "");
}

}  // namespace

void check_memory(const Plan& plan) {
    check_memory(plan, peak_memory(plan));
}

void check_memory(const Plan& plan, const std::vector<MemoryUse>& peaks) {
    int over = 0;
    int worst = 0;  // of those over their limit: by how much
    Bytes most_over;
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        const std::optional<Bytes> limit = plan.memory_limit(rank);
        const Bytes total = peaks[as_index(rank)].total();
        if (limit && total > *limit) {
            ++over;
            if (total - *limit > most_over) {
                most_over = total - *limit;
                worst = rank;
            }
        }
    }
    if (over == 0) {
        return;
    }
    const Bytes limit = *plan.memory_limit(worst);
    throw Error(
        ErrorKind::Infeasible,
        "memory",
        fmt::format("{} of {} {} more than the limit of {} ({} bytes{}); rank {} peaks at {} "
                    "({} bytes)\n{}",
                    over,
                    counted(peaks.size(), "rank"),
                    verb_for(over, "needs", "need"),
                    format_bytes(limit),
                    limit.count,
                    plan->allocator_reserve > 0 ? ", without cluster.allocator_reserve" : "",
                    worst,
                    format_bytes(peaks[as_index(worst)].total()),
                    peaks[as_index(worst)].total().count,
                    table_with_limits(plan, peaks)),
        hint_for(plan, worst))
        .because(ErrorReason::Memory);
}

}  // namespace pipetwin

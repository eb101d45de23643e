// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "cli/base/console.h"
#include "cli/predict/combination.h"
#include "cli/text/json_output.h"
#include "core/svg/figure_look.h"
#include "sim/questions/outlook.h"
#include "sim/questions/training_bill.h"

/// The best plans of a model on several clusters, numbers of nodes and stacks: one table.
namespace pipetwin::cli {

/// The numbers of the best plan of a combination: those of `plan` for it alone.
struct FoundRow {
    std::string device;
    int devices = 1;             ///< that the plan uses
    int devices_of_cluster = 1;  ///< all
    std::string shape;           ///< "2x8x4s"
    std::string schedule;        ///< "interleaved-zb x4"
    std::string micro_batches;   ///< "128 of 1"
    std::string sentence;        ///< the plan in words
    Duration step{};
    double tokens_per_second = 0;
    std::optional<double> headroom{};  ///< share of memory that is left; none: not known
    sim::TrainingBill bill{};
    sim::BillWithFailures failures{};
    sim::Outlook outlook{};
    bool is_complete = true;  ///< false: the search was ended before
    Json plan{};              ///< as `found_plan_json`
    Json answer{};            ///< as `answer_json`, without shapes
};

/// A combination and its plan, or the reason why it has none.
struct PlanRow {
    Combination of;
    std::optional<FoundRow> found{};
    std::string why_not{};
};

/// The day by which a training is to end.
struct Deadline {
    double days = 0;
    std::string from{};   ///< "2026-12-01"; empty where days were given
    std::string until{};  ///< as `from`
};

/// All that a table shows.
struct PlanTable {
    std::string model{};
    std::string head{};  ///< "4,194,304 tokens per step (512 samples of 8,192)"
    std::optional<double> tokens{};
    sim::FailureAssumptions failures{};
    bool failures_are_given = false;  ///< all three numbers
    std::optional<Deadline> deadline{};
    std::vector<PlanRow> rows{};

    /// Rows whose plans no other beats in days or cost without losing in the other; from the
    /// shortest time up. Device hours stand in for a cost that is not known.
    std::vector<std::size_t> front() const;
    /// The row of the least cost that ends in time; without a deadline the cheapest. None: no row
    /// has days, or none ends in time.
    std::optional<std::size_t> answer() const;
    bool has_costs() const;
    bool has_any_plan() const;
};

/// The table as text: rows, what follows from a deadline, evidence and assumptions. `with_sources`
/// adds where each number comes from.
std::string plan_table_text(const PlanTable& table, bool with_sources, const Console& console);

/// The table as Markdown, with assumptions below it.
std::string plan_table_markdown(const PlanTable& table, bool with_sources);

/// A line for each combination; what is not known is an empty field.
std::string plan_table_csv(const PlanTable& table);

Json plan_table_json(const PlanTable& table);

/// Cost (device hours where no price is known) over days, both with failures, the front drawn.
/// Throws Error(Infeasible) where no combination has a plan.
std::string plan_table_svg(const PlanTable& table, const FigureLook& look);

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "bench/accuracy/grid.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <random>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "exec/base/noise.h"
#include "exec/profiling/profiler.h"

namespace pipetwin::accuracy {

namespace {

using nlohmann::json;

constexpr std::array numbers_of_micro_batches{1, 2, 4, 8, 16};

/// Layers per piece. What is left over goes to the outer pieces, which hold the embedding and the
/// head.
std::vector<int> layers_per_piece(int units, int pieces, int partition) {
    std::vector<int> layers(static_cast<std::size_t>(pieces), units / pieces);
    for (int rest = 0; rest < units % pieces; ++rest) {
        ++(rest % 2 == 0 ? layers.front() : layers.back());
    }
    if (partition == 1 && pieces > 1) {
        --layers.front();
        ++layers[1];
    }
    return layers;
}

/// Cells that differ in their rows, in the pieces that these are about, or in who divides what.
class DifferentCells {
  public:
    explicit DifferentCells(const GridOptions& options)
        : options_(options), model_(gpt_model(options.model)) {}

    /// Adds the cell where there is such an order, and none of the cells before is the same.
    void add(const GridCell& cell) {
        bool fresh = false;
        try {
            fresh = known_.insert(identity(cell)).second;
        } catch (const Error&) {  // no such order
            fresh = false;
        }
        if (fresh) {
            grid_.cells.push_back(cell);
        }
        grid_.void_cells += fresh ? 0 : 1;
    }

    Grid grid() && { return std::move(grid_); }

  private:
    std::string identity(const GridCell& cell) const {
        exec::ProfilerOptions sizes = exec::profiler_options(accuracy::scenario_of(cell, options_));
        sizes.precision = cell.precision;
        const Plan plan = make_plan(
            accuracy::scenario_of(cell, options_), model_, exec::unmeasured_profile(model_, sizes));
        std::string text = fmt::format("{} {} {} {} {} {} {}",
                                       plan.hash(),
                                       pipetwin::to_string(cell.precision),
                                       cell.devices,
                                       cell.sequence,
                                       cell.selective,
                                       cell.replicas,
                                       pipetwin::to_string(cell.shard));
        for (const int layers : plan->partition->layers_per_stage()) {
            text += fmt::format(" {}", layers);
        }
        return text;
    }

    const GridOptions& options_;
    Model model_;
    std::set<std::string> known_;
    Grid grid_;
};

}  // namespace

std::string to_string(const GridCell& cell) {
    if (cell.is_divided()) {
        return fmt::format(
            "K={} {} M={} {} {} {}",
            cell.stages,
            cell.devices > 1 ? fmt::format("T={}{}", cell.devices, cell.sequence ? " sequence" : "")
                             : fmt::format("{}/{}", pipetwin::to_string(cell.shard), cell.replicas),
            cell.micro_batches,
            cell.schedule,
            cell.selective ? "selective" : pipetwin::to_string(cell.recompute),
            pipetwin::to_string(cell.precision));
    }
    return fmt::format("K={} M={} {}{} {} p{} {}",
                       cell.stages,
                       cell.micro_batches,
                       cell.schedule,
                       cell.chunks > 1 ? fmt::format(" V={}", cell.chunks) : "",
                       pipetwin::to_string(cell.recompute),
                       cell.partition,
                       pipetwin::to_string(cell.precision));
}

SettledScenario scenario_of(const GridCell& cell, const GridOptions& options) {
    SettledScenario scenario;
    scenario.training.batch = options.batch;
    scenario.training.precision = cell.precision;
    scenario.training.optimizer = OptimizerKind::AdamW;
    scenario.training.learning_rate = 1e-6;  // so that random data leads nowhere
    scenario.pipeline.stages = cell.stages;
    scenario.pipeline.chunks = cell.chunks;
    scenario.pipeline.micro_batches = cell.micro_batches;
    scenario.pipeline.schedule = cell.schedule;
    scenario.pipeline.recompute = cell.recompute;
    scenario.pipeline.recompute_timing =
        RecomputeTiming::Eager;  // as docs/internals/accuracy.md has it
    scenario.pipeline.tensor_parallel = cell.devices;
    scenario.pipeline.sequence_parallel = cell.sequence;
    scenario.pipeline.data_parallel = cell.replicas;
    scenario.pipeline.shard = cell.shard;
    if (cell.selective) {
        scenario.pipeline.layer_recompute = LayerRecompute::Selective;
    }
    scenario.pipeline.partition =
        layers_per_piece(2 * options.model.layers + 2, cell.stages * cell.chunks, cell.partition);
    return scenario;
}

Grid accuracy_grid(const GridOptions& options) {
    struct Order {
        const char* schedule;
        int chunks;
    };
    constexpr std::array orders{
        Order{"gpipe", 1}, Order{"1f1b", 1}, Order{"zb-h1", 1}, Order{"interleaved-1f1b", 2}};
    DifferentCells cells(options);
    for (const Precision precision : options.precisions) {
        for (const int stages : {1, 2}) {
            for (const int micro_batches : numbers_of_micro_batches) {
                for (const Order& order : orders) {
                    for (const Recompute recompute :
                         {Recompute::None, Recompute::Always, Recompute::ExceptLast}) {
                        for (const int partition : {0, 1}) {
                            cells.add({.stages = stages,
                                       .micro_batches = micro_batches,
                                       .schedule = order.schedule,
                                       .chunks = order.chunks,
                                       .recompute = recompute,
                                       .partition = partition,
                                       .precision = precision});
                        }
                    }
                }
            }
        }
    }
    return std::move(cells).grid();
}

Grid divided_grid(const GridOptions& options) {
    const std::array parts{GridCell{.devices = 2},
                           GridCell{.devices = 2, .sequence = true},
                           GridCell{.devices = 2, .selective = true},
                           GridCell{.devices = 2, .sequence = true, .selective = true},
                           GridCell{.replicas = 2, .shard = Shard::Gradients},
                           GridCell{.replicas = 2, .shard = Shard::Weights}};
    DifferentCells cells(options);
    for (const Precision precision : options.precisions) {
        for (const GridCell& part : parts) {
            for (const int micro_batches : numbers_of_micro_batches) {
                for (const char* const schedule : {"gpipe", "1f1b"}) {
                    for (const Recompute recompute : {Recompute::None, Recompute::Always}) {
                        if (part.selective && recompute != Recompute::None) {
                            continue;
                        }
                        GridCell cell = part;
                        cell.micro_batches = micro_batches;
                        cell.schedule = schedule;
                        cell.recompute = recompute;
                        cell.precision = precision;
                        cells.add(cell);
                    }
                }
            }
        }
    }
    return std::move(cells).grid();
}

std::vector<GridCell> in_seeded_order(std::vector<GridCell> cells, const GridOptions& options) {
    std::mt19937_64 random(options.seed);
    for (std::size_t rest = cells.size(); rest > 1; --rest) {  // std::shuffle differs by library
        std::swap(cells[rest - 1], cells[random() % rest]);
    }
    const double wanted = std::ceil(options.share * static_cast<double>(cells.size()));
    cells.resize(
        std::clamp<std::size_t>(static_cast<std::size_t>(std::max(1.0, wanted)), 1, cells.size()));
    return cells;
}

double standard_error_of_median(double p90_over_p10, int values) {
    constexpr double deciles_apart = 2.563;  // of a normal distribution, in standard deviations
    const double deviation = std::log(p90_over_p10) / deciles_apart;
    return std::sqrt(std::numbers::pi / 2) * deviation / std::sqrt(std::max(1, values));
}

Middle middle_of(std::vector<double> ratios) {
    if (ratios.empty()) {
        return {};
    }
    for (double& ratio : ratios) {
        ratio = std::log(ratio);
    }
    std::ranges::sort(ratios);
    const std::size_t cut = ratios.size() / 10;  // at each end
    const double low = ratios[cut];
    const double high = ratios[ratios.size() - 1 - cut];
    const auto count = static_cast<double>(ratios.size());
    const auto kept = static_cast<double>(ratios.size() - 2 * cut);
    double sum = 0;
    double winsorized = 0;
    for (std::size_t index = 0; index < ratios.size(); ++index) {
        sum += index >= cut && index < ratios.size() - cut ? ratios[index] : 0;
        winsorized += std::clamp(ratios[index], low, high);
    }
    double squares = 0;
    for (const double ratio : ratios) {
        squares += std::pow(std::clamp(ratio, low, high) - winsorized / count, 2);
    }
    return {.value = std::exp(sum / kept),
            .standard_error = ratios.size() > 1
                                  ? std::sqrt(squares / (count - 1)) / (kept / std::sqrt(count))
                                  : Middle{}.standard_error};
}

bool RoundsVerdict::passes() const {
    return clean >= exec::fewest_clean_steps &&
           standard_error <=
               standard_error_of_median(exec::largest_p90_over_p10, exec::fewest_clean_steps);
}

double RoundsVerdict::dropped_share() const {
    return clean + dropped > 0 ? static_cast<double>(dropped) / (clean + dropped) : 0;
}

json verdict_json(const RoundsVerdict& verdict) {
    return {verdict.clean, verdict.dropped, verdict.p90_over_p10, verdict.standard_error};
}

RoundsVerdict parse_verdict(const json& array) {
    return {.clean = array.at(0),
            .dropped = array.at(1),
            .p90_over_p10 = array.at(2),
            .standard_error = array.at(3)};
}

std::string print_cell(const CellResult& result) {
    json parts = json::object();
    for (const auto& [name, pair] : result.parts) {
        parts[name] = {pair.predicted.count(), pair.measured.count()};
    }
    return json{{"cell", result.cell},
                {"predicted_ns", result.predicted.count()},
                {"measured_ns", result.measured.count()},
                {"error", result.error},
                {"replay_error", result.replay_error},
                {"noise_floor", result.noise_floor},
                {"bubble_difference", result.bubble_difference},
                {"memory_difference_bytes", result.memory_difference},
                {"verdict", verdict_json(result.verdict)},
                {"parts_ns", parts}}
        .dump();
}

CellResult parse_cell(const std::string& line) {
    const json object = json::parse(line);
    CellResult result;
    result.cell = object.at("cell");
    result.predicted = Duration{object.at("predicted_ns").get<std::int64_t>()};
    result.measured = Duration{object.at("measured_ns").get<std::int64_t>()};
    result.error = object.at("error");
    result.replay_error = object.at("replay_error");
    result.noise_floor = object.at("noise_floor");
    result.bubble_difference = object.at("bubble_difference");
    result.memory_difference = object.at("memory_difference_bytes");
    result.verdict = parse_verdict(object.at("verdict"));
    for (const auto& [name, pair] : object.at("parts_ns").items()) {
        result.parts[name] = {.predicted = Duration{pair.at(0).get<std::int64_t>()},
                              .measured = Duration{pair.at(1).get<std::int64_t>()}};
    }
    return result;
}

}  // namespace pipetwin::accuracy

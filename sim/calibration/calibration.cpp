// SPDX-License-Identifier: Apache-2.0
#include "sim/calibration/calibration.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/number_text.h"
#include "core/plan/plan.h"
#include "core/timeline/footprint.h"
#include "sim/calibration/factor_search.h"
#include "sim/calibration/step_range.h"
#include "sim/search/partition_choice.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

constexpr double smallest_factor = 1e-3;
constexpr double largest_factor = 1e3;

/// Factors that layers of a right model on the right device have.
constexpr double least_compute = 0.6;
constexpr double most_compute = 1.7;
constexpr double least_memory = 0.5;
constexpr double most_memory = 2;

/// Factors that messages, and the optimizer's update, may take: beyond them timers measured
/// something else.
constexpr FactorRange range_of_messages{.least = 1.0 / 8, .most = 8};
constexpr FactorRange range_of_update{.least = 1.0 / 10, .most = 10, .resolution = 1e-5};

}  // namespace

std::string setup_text(const SettledScenario& scenario) {
    const SettledScenario::PipelinePart& pipeline = scenario.pipeline;
    return fmt::format(
        "{}, {}, {}, {}, a batch of {}",
        counted(pipeline.stages, "stage"),
        counted(pipeline.data_parallel, "replica"),
        counted(pipeline.stages * pipeline.data_parallel * pipeline.rank_devices(), "device"),
        counted(pipeline.micro_batches, "micro-batch"),
        scenario.training.batch);
}

namespace {

/// What tells models, samples, devices and precisions apart.
std::string kind_of(const Profile& profile) {
    return fmt::format("{} {} {} {}",
                       all_parameters(profile),
                       profile.tokens_per_sample,
                       profile.device,
                       profile.precision);
}

/// Runs with the profile that is corrected.
class RunFit {
  public:
    RunFit(const std::vector<SettledRun>& runs, const Model& model, const Profile& profile)
        : runs_(runs), model_(model), profile_(profile) {
        own_ = kind_of(profile);
        for (const SettledRun& run : runs) {
            scenarios_.push_back(run.scenario);
            kinds_.push_back(run.costs ? kind_of(run.costs->profile) : own_);
            all_.push_back(all_.size());
        }
        renew_partitions();
    }

    Calibration fitted() {
        constexpr int most_rounds = 6;
        predict_all();
        before_ = predicted_;
        uses_layers_ = !runs_where(&RunFit::has_layer_timers).empty();
        uses_pipeline_ = !runs_where(&RunFit::has_pipeline_timer).empty();
        for (int round = 0; round < most_rounds; ++round) {
            const double memory = factors_.memory;
            fit_times();
            predict_all();
            fit_memory();  // where stashes are copied to host memory, peaks depend on times
            if (factors_.memory == memory) {
                break;
            }
            renew_partitions();
        }
        predict_all();
        return result();
    }

  private:
    const Profile& profile_of(std::size_t run) const {
        return runs_[run].costs ? runs_[run].costs->profile : profile_;
    }

    const Model& model_of(std::size_t run) const {
        return runs_[run].costs ? *runs_[run].costs->model : model_;
    }

    /// With the partition that was best for it at last.
    PredictedRun predict(std::size_t run, const CostFactors& factors) const {
        return predicted_run(runs_[run].place,
                             scenarios_[run],
                             model_of(run),
                             with_known_factors(profile_of(run), factors));
    }

    /// The median of values of runs: of those of the kind that is asked for where there are any,
    /// else of the medians of each kind.
    template <class Value>
    double median_of(const std::vector<std::size_t>& runs,
                     const std::string& asked,
                     const Value& value) const {
        std::map<std::string, std::vector<double>> by_kind;
        const bool has_asked =
            std::ranges::any_of(runs, [&](std::size_t run) { return kinds_[run] == asked; });
        for (const std::size_t run : runs) {
            if (!has_asked || kinds_[run] == asked) {
                by_kind[kinds_[run]].push_back(value(run));
            }
        }
        std::vector<double> medians;
        for (const auto& [kind, values] : by_kind) {
            medians.push_back(median(values));
        }
        return median(medians);
    }

    /// With the partition that is best for it, where the run leaves it open: the step never falls
    /// as the factor grows.
    PredictedRun predict_best(std::size_t run, double compute) {
        if (runs_[run].scenario.pipeline.partition.is_auto()) {
            try {
                scenarios_[run].pipeline.partition = partitions_[run].best(compute);
            } catch (const Error& error) {
                throw error.at(runs_[run].place);
            }
        }
        CostFactors factors = factors_;
        factors.compute = compute;
        return predict(run, factors);
    }

    /// For the factors of memory, messages and update that there are.
    void renew_partitions() {
        partitions_.clear();
        remembered_.clear();
        remembered_.reserve(runs_.size());
        for (const std::size_t run : all_) {
            CostFactors factors = factors_;
            factors.compute = 1;
            remembered_.push_back(with_known_factors(profile_of(run), factors));
            partitions_.emplace_back(runs_[run].scenario, model_of(run), remembered_.back());
        }
    }

    void predict_all() {
        predicted_.clear();
        for (const std::size_t run : all_) {
            predicted_.push_back(predict_best(run, factors_.compute));
        }
    }

    bool has_layer_timers(std::size_t run) const {
        return runs_[run].timers.forward && runs_[run].timers.backward;
    }

    bool has_pipeline_timer(std::size_t run) const {
        return runs_[run].timers.pipeline.has_value();
    }

    std::vector<std::size_t> runs_where(bool (RunFit::*is)(std::size_t) const) const {
        std::vector<std::size_t> found;
        std::ranges::copy_if(
            all_, std::back_inserter(found), [&](std::size_t run) { return (this->*is)(run); });
        return found;
    }

    /// The logarithms of predicted by measured times.
    double step_error(std::size_t run, const PredictedRun& predicted) const {
        return std::log(predicted.step / runs_[run].step_seconds);
    }

    double pipeline_error(std::size_t run, const PredictedRun& predicted) const {
        return uses_pipeline_ && has_pipeline_timer(run)
                   ? std::log(predicted.times.pipeline / *runs_[run].timers.pipeline)
                   : step_error(run, predicted);
    }

    double layer_error(std::size_t run, const PredictedRun& predicted) const {
        const MeasuredTimers& timers = runs_[run].timers;
        return uses_layers_ && has_layer_timers(run)
                   ? std::log((predicted.times.forward + predicted.times.backward) /
                              (*timers.forward + *timers.backward))
                   : pipeline_error(run, predicted);
    }

    /// The median of the logarithms that `compute` corrects, for a kind of run: of what layers take
    /// where runs say it, else of their pipelines, else of their steps.
    double layer_distance(const std::vector<std::size_t>& runs,
                          const std::string& asked,
                          double compute) {
        return median_of(runs, asked, [&](std::size_t run) {
            return layer_error(run, predict_best(run, compute));
        });
    }

    double peak_distance(const std::vector<std::size_t>& runs,
                         const std::string& asked,
                         double memory) const {
        return median_of(runs, asked, [&](std::size_t run) {
            CostFactors factors = factors_;
            factors.memory = memory;
            return std::log(static_cast<double>(predict(run, factors).peak.count) /
                            static_cast<double>(runs_[run].peak->count));
        });
    }

    void expect_step_above(std::size_t run) const {
        CostFactors factors{.memory = factors_.memory};
        factors.compute = smallest_factor;
        const double least = predict(run, factors).step;
        if (runs_[run].step_seconds <= least) {
            throw Error(
                ErrorKind::BadInput,
                runs_[run].place,
                fmt::format("a step of {:.4g} s was measured, but transfers, sums between devices "
                            "and the optimizer's update alone are predicted to take {:.4g} s",
                            runs_[run].step_seconds,
                            least),
                "compare batch, number of devices and links of the run with the scenario: no "
                "factor "
                "for layers can correct this");
        }
    }

    void expect_peak_above(std::size_t run) const {
        CostFactors factors = factors_;
        factors.memory = smallest_factor;
        const Bytes least = predict(run, factors).peak;
        if (*runs_[run].peak <= least) {
            throw Error(
                ErrorKind::BadInput,
                runs_[run].place,
                fmt::format(
                    "a device is said to hold {} at most, but weights, gradients, optimizer "
                    "states and what passes between layers alone are predicted to take {}",
                    format_bytes(*runs_[run].peak),
                    format_bytes(least)),
                "compare precision, optimizer, shard and number of devices of the run with the "
                "scenario: no factor for activations can correct this");
        }
    }

    /// Sets a factor with which `error` has a median of 0. False: none of the range does.
    template <class Error>
    bool fit_factor(double CostFactors::*factor,
                    const FactorRange& range,
                    const std::vector<std::size_t>& runs,
                    const Error& error) {
        constexpr double close = 1e-6;
        const bool has_open_partitions = std::ranges::any_of(
            runs_, [](const SettledRun& run) { return run.scenario.pipeline.partition.is_auto(); });
        const auto distance = [&](double value) {
            factors_.*factor = value;
            if (has_open_partitions) {
                renew_partitions();
            }
            fit_compute();
            return median_of(runs, own_, [&](std::size_t run) {
                return error(run, predict_best(run, factors_.compute));
            });
        };
        if (std::abs(distance(1)) < close) {
            return true;
        }
        const bool has_zero = distance(range.least) < 0 && distance(range.most) > 0;
        distance(has_zero ? factor_where_zero(distance, range) : 1);
        return has_zero;
    }

    /// Messages and update by timers, from the inside out: what layers take, then the pipeline,
    /// then the step. False where no factor of a range gives a measured time.
    bool fit_by_timers() {
        factors_.messages = 1;
        factors_.update = 1;
        const std::vector<std::size_t> layers =
            uses_layers_ ? runs_where(&RunFit::has_layer_timers) : std::vector<std::size_t>();
        const std::vector<std::size_t> pipelines =
            uses_pipeline_ ? runs_where(&RunFit::has_pipeline_timer) : std::vector<std::size_t>();
        const auto of_pipeline = [this](std::size_t run, const PredictedRun& predicted) {
            return pipeline_error(run, predicted);
        };
        const auto of_step = [this](std::size_t run, const PredictedRun& predicted) {
            return step_error(run, predicted);
        };
        const bool fits =
            (layers.empty() ||
             fit_factor(&CostFactors::messages, range_of_messages, layers, of_pipeline)) &&
            (pipelines.empty() ||
             fit_factor(&CostFactors::update, range_of_update, pipelines, of_step));
        constexpr double close = 1e-3;
        return fits && std::abs(layer_distance(all_, own_, factors_.compute)) < close;
    }

    /// By all timers that there are, else by those of layers, else by steps alone.
    void fit_times() {
        while (uses_layers_ || uses_pipeline_) {
            if (fit_by_timers()) {
                return;
            }
            (uses_pipeline_ ? uses_pipeline_ : uses_layers_) = false;
            left_out_timers_ = uses_layers_ ? "forward-backward" : "all";
            factors_ = {.memory = factors_.memory};
            renew_partitions();
        }
        std::ranges::for_each(all_, [this](std::size_t run) { expect_step_above(run); });
        fit_compute();
    }

    void fit_compute() {
        const auto distance = [this](double factor) { return layer_distance(all_, own_, factor); };
        const double factor = factor_where_zero(
            distance,
            {.least = smallest_factor, .most = largest_factor, .first = factors_.compute});
        if (factor > 0.999 * largest_factor) {
            throw Error(ErrorKind::BadInput,
                        runs_.front().place,
                        fmt::format("layers that take {} times as long as estimated still make a "
                                    "shorter step than was measured",
                                    largest_factor),
                        "are the layers of the profile measured in the unit that the run is?");
        }
        factors_.compute = factor;
    }

    /// The runs that state a peak, without one.
    std::vector<std::size_t> runs_with_peak(std::size_t left_out) const {
        std::vector<std::size_t> with_peak;
        std::ranges::copy_if(all_, std::back_inserter(with_peak), [&](std::size_t run) {
            return run != left_out && runs_[run].peak.has_value();
        });
        return with_peak;
    }

    void fit_memory() {
        const std::vector<std::size_t> with_peak = runs_with_peak(runs_.size());
        if (with_peak.empty()) {
            return;
        }
        std::ranges::for_each(with_peak, [this](std::size_t run) { expect_peak_above(run); });
        const auto distance = [&](double factor) { return peak_distance(with_peak, own_, factor); };
        const double factor = factor_where_zero(
            distance, {.least = smallest_factor, .most = largest_factor, .first = factors_.memory});
        if (factor > 0.999 * largest_factor) {
            throw Error(ErrorKind::BadInput,
                        runs_[with_peak.front()].place,
                        fmt::format("layers that keep {} times as much as estimated still hold "
                                    "less than was measured",
                                    largest_factor),
                        "leave peak_bytes out where the profile knows no sizes, or where the run "
                        "keeps only what passes between stages");
        }
        factors_.memory = factor;
        has_memory_ = true;
    }

    /// The factor of all runs but one, and what it predicts of that one.
    double leave_one_out_error(std::size_t left_out) {
        std::vector<std::size_t> others;
        std::ranges::copy_if(all_, std::back_inserter(others), [left_out](std::size_t run) {
            return run != left_out;
        });
        const auto distance = [&](double factor) {
            return layer_distance(others, kinds_[left_out], factor);
        };
        const double factor = factor_where_zero(distance,
                                                {.least = smallest_factor,
                                                 .most = largest_factor,
                                                 .first = factors_.compute,
                                                 .resolution = 1e-5});
        const double step = predict_best(left_out, factor).step;
        return step / runs_[left_out].step_seconds - 1;
    }

    /// The memory factor of all other runs with a peak, and what it predicts of this one's.
    std::optional<double> leave_one_out_peak_error(std::size_t left_out) const {
        const std::vector<std::size_t> others = runs_with_peak(left_out);
        if (!runs_[left_out].peak || others.empty()) {
            return std::nullopt;
        }
        const auto distance = [&](double factor) {
            return peak_distance(others, kinds_[left_out], factor);
        };
        CostFactors factors = factors_;
        factors.memory = factor_where_zero(distance,
                                           {.least = smallest_factor,
                                            .most = largest_factor,
                                            .first = factors_.memory,
                                            .resolution = 1e-5});
        const Bytes peak = predict(left_out, factors).peak;
        return static_cast<double>(peak.count) / static_cast<double>(runs_[left_out].peak->count) -
               1;
    }

    Calibration result() {
        Calibration calibration{.compute_factor = factors_.compute};
        if (has_memory_) {
            calibration.memory_factor = factors_.memory;
        }
        if (uses_layers_) {
            calibration.messages_factor = factors_.messages;
        }
        if (uses_pipeline_) {
            calibration.update_factor = factors_.update;
        }
        for (std::size_t run = 0; run < runs_.size(); ++run) {
            const SettledRun& of = runs_[run];
            CalibratedRun& row = calibration.runs.emplace_back();
            row = {.name = of.name.empty() ? fmt::format("run {}", run + 1) : of.name,
                   .setup = setup_text(of.scenario),
                   .layout = layout_of_run(of.scenario, profile_of(run)),
                   .measured_step = of.step_seconds,
                   .predicted_step = before_[run].step,
                   .calibrated_step = predicted_[run].step,
                   .measured_peak = of.peak,
                   .predicted_peak = before_[run].peak,
                   .calibrated_peak = predicted_[run].peak,
                   .fits = predicted_[run].fits};
            if (runs_.size() > 1) {
                row.leave_one_out_error = leave_one_out_error(run);
                row.leave_one_out_peak_error = leave_one_out_peak_error(run);
                row.layout.left_out = std::abs(*row.leave_one_out_error);
            }
            row.layout.name = row.name;
        }
        add_warnings(calibration);
        return calibration;
    }

    void add_warnings(Calibration& calibration) const {
        std::vector<std::string>& warnings = calibration.warnings;
        const double compute = factors_.compute;
        if (compute < least_compute || compute > most_compute) {
            warnings.push_back(fmt::format(
                "layers that take {:.3g} times as long as estimated are implausible ({} to {} is "
                "usual): the run may have had another model or device, another recompute or "
                "attention kernel than the scenario says, or training.batch is not the samples of "
                "a whole step",
                compute,
                least_compute,
                most_compute));
        }
        const double memory = factors_.memory;
        if (memory < least_memory || memory > most_memory) {
            warnings.push_back(fmt::format(
                "layers that keep {:.3g} times as much as estimated are implausible ({} to {} is "
                "usual): the run may have had another recompute, attention kernel, optimizer or "
                "shard than the scenario says, or the peak is what a memory pool had reserved",
                memory,
                least_memory,
                most_memory));
        }
        if (!left_out_timers_.empty()) {
            warnings.push_back(fmt::format(
                "{} timers are left out, as with them no factor of messages ({:.3g} to {:.3g}) and "
                "of the optimizer's update ({:.3g} to {:.3g}) gives the measured step: {}; the "
                "step may hold data loading, or timers may be of other steps",
                left_out_timers_,
                range_of_messages.least,
                range_of_messages.most,
                range_of_update.least,
                range_of_update.most,
                uses_layers_ ? "those of layers and the step decide" : "the step alone decides"));
        }
        for (std::size_t run = 0; run < runs_.size(); ++run) {
            if (!runs_[run].warning.empty()) {
                warnings.push_back(runs_[run].warning);
            }
            const double off = calibration.runs[run].leave_one_out_error.value_or(0);
            if (std::abs(off) > large_error) {
                warnings.push_back(fmt::format(
                    "{}: the other runs predict a step that is {:.0f} % too {}: these rows "
                    "contradict each other, so check batch, devices and what each of them measured",
                    calibration.runs[run].name,
                    100 * std::abs(off),
                    off > 0 ? "long" : "short"));
            }
            if (!calibration.runs[run].fits) {
                warnings.push_back(
                    runs_[run].peak
                        ? fmt::format("{} was measured with a peak of {}, which is more than the "
                                      "memory that its devices have according to their profile",
                                      calibration.runs[run].name,
                                      format_bytes(*runs_[run].peak))
                        : fmt::format("{} was measured, but is predicted not to fit into the "
                                      "memory of its devices: {} per device; with its peak_bytes "
                                      "the memory is corrected, too",
                                      calibration.runs[run].name,
                                      format_bytes(predicted_[run].peak)));
            }
        }
    }

    const std::vector<SettledRun>& runs_;
    const Model& model_;
    const Profile& profile_;
    std::vector<std::size_t> all_;                ///< every index of a run
    std::vector<SettledScenario> scenarios_;      ///< [run] with its partition
    std::string own_;                             ///< kind of the runs that the costs are of
    std::vector<std::string> kinds_{};            ///< [run]
    std::vector<Profile> remembered_{};           ///< [run] with the memory factor
    std::vector<ScaledPartitions> partitions_{};  ///< [run]
    std::vector<PredictedRun> predicted_;         ///< [run] with the factors
    std::vector<PredictedRun> before_;            ///< [run] without
    CostFactors factors_;
    bool has_memory_ = false;
    bool uses_layers_ = false;    ///< timers of forwards and backwards
    bool uses_pipeline_ = false;  ///< the timer of the pipeline
    std::string left_out_timers_{};
};

}  // namespace

PredictedRun predicted_run(const std::string& place,
                           const SettledScenario& scenario,
                           const Model& model,
                           const Profile& profile) {
    try {
        const Plan plan = make_settled_plan(scenario, model, profile);
        const Timeline timeline = simulate(plan);
        const std::vector<Bytes> peaks =
            plan->host_link ? peak_totals(plan, timeline) : peak_totals(plan);
        PredictedRun result{.step = to_seconds(step_time(timeline)),
                            .peak = std::ranges::max(peaks),
                            .partition = plan->partition->layers_per_stage(),
                            .times = longest_times(timeline)};
        for (int rank = 0; rank < plan.rank_count(); ++rank) {
            const Bytes peak = peaks[as_index(rank)];
            result.fits = result.fits && peak <= plan.memory_limit(rank).value_or(peak);
        }
        return result;
    } catch (const Error& error) {
        throw error.at(place);
    }
}

Calibration calibrate_by_runs(const std::vector<SettledRun>& runs,
                              const Model& model,
                              const Profile& profile) {
    PIPETWIN_EXPECT(!runs.empty(), "a calibration needs a run");
    return RunFit(runs, model, profile).fitted();
}

Profile calibrated_profile(const Profile& profile, const Calibration& calibration) {
    Profile result = with_factors(profile,
                                  {.compute = calibration.compute_factor,
                                   .memory = calibration.memory_factor.value_or(1),
                                   .messages = calibration.messages_factor.value_or(1),
                                   .update = calibration.update_factor.value_or(1)});
    RunCalibration by{.compute_factor = calibration.compute_factor,
                      .memory_factor = calibration.memory_factor,
                      .runs = static_cast<int>(calibration.runs.size())};
    for (const CalibratedRun& run : calibration.runs) {
        by.layouts.push_back(run.layout);
    }
    result.run_calibrations.push_back(std::move(by));
    return result;
}

}  // namespace pipetwin::sim

// SPDX-License-Identifier: Apache-2.0
#include "sim/search/largest_model.h"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/model.h"
#include "core/partition/partition.h"
#include "core/plan/plan.h"
#include "core/plan/stage_costs.h"
#include "core/plan/tensor_parallel.h"
#include "core/scenario/cluster.h"
#include "core/scenario/cost_table.h"
#include "core/scenario/division.h"
#include "core/scenario/layer_costs.h"
#include "core/schedule/generators/generate.h"
#include "sim/bounds/layer_sums.h"
#include "sim/search/trial.h"
#include "sim/simulate/settled_capacity.h"
#include "sim/simulate/simulate.h"

namespace pipetwin::sim {

namespace {

constexpr int most_layers = 100'000;  // as in a profile
constexpr std::size_t wave_size = 8;  // candidates; the same on every machine

/// The model with some number of copies.
struct Sized {
    Profile profile;
    Model model;
};

// --- Partitions for one stage to a rank. ---

/// Takes layers from the front, as many to each rank as it has room for.
class Filler {
  public:
    Filler(const SettledScenario& settled, const Sized& sized, const Plan& plan)
        : plan_(plan), peaks_(plan), layers_(sized.model.layer_count()) {
        const Cluster cluster(settled, sized.profile, plan.rank_count());
        std::vector<int> sizes;  // of micro-batches, by cost class
        for (const int size : plan->micro_batch_sizes) {
            if (sizes.empty() || sizes.back() != size) {
                sizes.push_back(size);
            }
        }
        const CostTable table = cost_table(
            sized.model, sized.profile, sizes, device_kinds(cluster), cluster.layer_rules());
        for (const std::vector<LayerSamples>& of_kind : table) {
            samples_.push_back(of_kind.front());  // bytes are the same on every device
        }
        for (const LayerSamples& of_class : samples_) {
            costs_.emplace_back(sized.model, of_class);
        }
        rules_ = {.optimizer = optimizer_state(settled),
                  .devices = plan->tensor_parallel,
                  .fp32_gradients = has_fp32_gradients(settled, sized.profile),
                  .experts = expert_rules(settled, sized.profile),
                  .tied = tied_bytes(sized.model, sized.profile),
                  .tied_room = sized.model.is_executable()};
        states_ = stage_states(sized.profile,
                               samples_,
                               Partition(std::vector<int>(as_index(layers_), 1), layers_),
                               rules_);
        rules_.shards = state_shards(settled, sized.profile);
        rules_.prefetch = 2 * settled.pipeline.prefetch;
        precision_ = sized.profile.precision;
    }

    /// Stage sizes where no rank is more than `excess` above its limit; empty where there are none.
    std::vector<int> fill(Bytes excess) const {
        std::vector<int> sizes;
        int first = 0;
        for (int stage = 0; stage < plan_.stage_count(); ++stage) {
            const int most = layers_ - (plan_.stage_count() - 1 - stage) - first;
            const int likely = sizes.empty() ? 1 : sizes.back();
            sizes.push_back(longest(stage, first, most, std::min(likely, most), excess));
            if (sizes.back() == 0) {
                return {};
            }
            first += sizes.back();
        }
        return first == layers_ ? sizes : std::vector<int>{};
    }

    /// Stage sizes whose largest excess is smallest; at most `excess`, for which there are some.
    std::vector<int> evenest(Bytes excess) const {
        std::vector<int> sizes = fill(excess);
        Bytes below = -*plan_.memory_limit(0);
        for (int stage = 0; stage < plan_.stage_count(); ++stage) {
            below = std::min(below, -*plan_.memory_limit(stage));
        }
        while (excess - below > Bytes{1}) {
            const Bytes middle{below.count + (excess.count - below.count) / 2};
            if (std::vector<int> better = fill(middle); !better.empty()) {
                sizes = std::move(better);
                excess = middle;
            } else {
                below = middle;
            }
        }
        return sizes;
    }

  private:
    bool fits(int stage, int first, int count, Bytes excess) const {
        std::vector<StageCost> costs;
        for (const StageCosts& of_class : costs_) {
            costs.push_back(of_class.of(first, first + count));
        }
        StageState state;
        DividedWeights divided(precision_, rules_);
        const Bytes tied = part_of(rules_.tied, rules_.devices);
        for (int layer = first; layer < first + count; ++layer) {
            const StageState& added = states_[as_index(layer)];
            state.weights += added.weights;
            state.running += added.running;
            state.gradients += added.gradients;
            state.optimizer_state += added.optimizer_state;
            state.workspace = std::max(state.workspace, added.workspace);
            const bool is_end = layer == 0 || layer + 1 == layers_;
            divided.add(added.weights, is_end ? std::min(tied, added.weights) : Bytes{});
        }
        share_out(state, divided, precision_, rules_);
        const int capacity = plan_->channel_capacity.value_or(1);  // no plan needs less
        return peaks_.of(stage, costs, state, capacity) <= *plan_.memory_limit(stage) + excess;
    }

    /// The most layers from `first` on that fit, 0 to `most`; near `likely`, as a rule.
    int longest(int stage, int first, int most, int likely, Bytes excess) const {
        int good = 0;
        int bad = most + 1;
        int next = likely;
        for (int step = 1; good + 1 < bad; step *= 2) {
            (fits(stage, first, next, excess) ? good : bad) = next;
            if (good > 0 && bad <= most) {
                next = std::midpoint(good, bad);
            } else {
                next = good > 0 ? std::min(good + step, most) : std::max(bad - step, 1);
            }
        }
        return good;
    }

    const Plan& plan_;
    StagePeaks peaks_;
    int layers_;
    std::vector<LayerSamples> samples_;  ///< [cost class]
    std::vector<StageCosts> costs_;      ///< [cost class]
    std::vector<StageState> states_;     ///< [layer]; with all of the optimizer's state
    WeightRules rules_;
    std::string precision_;
};

bool has_one_stage_per_rank(const Plan& plan) {
    const Schedule& schedule = plan->schedule;
    for (int stage = 0; stage < plan.stage_count(); ++stage) {
        if (schedule.rank_of_stage[as_index(stage)] != stage ||
            schedule.weights_of_stage[as_index(stage)] != stage) {
            return false;
        }
    }
    return plan.stage_count() == plan.rank_count();
}

// --- One candidate at one size. ---

struct Attempt {
    bool fits = false;
    std::vector<int> partition{};
    int channel_capacity = 0;
    std::vector<MemoryUse> peaks{};
    std::vector<Bytes> limits{};
    std::optional<ClosestPlan> missed{};  ///< where it is made, but does not fit
    std::string why{};                    ///< where it cannot be made
};

/// The peaks of a plan at its own capacity of channels, beside the limits.
Attempt checked(const Candidate& candidate, Plan plan) {
    plan = with_settled_capacity(std::move(plan));
    Attempt attempt{
        .fits = true,
        .partition = plan->partition->layers_per_stage(),
        .channel_capacity = *plan->channel_capacity,
        .peaks = plan->host_link ? peak_memory(plan, simulate(plan)) : peak_memory(plan)};
    for (int rank = 0; rank < plan.rank_count(); ++rank) {
        const Bytes peak = attempt.peaks[as_index(rank)].total();
        const Bytes limit = plan.memory_limit(rank).value();
        attempt.limits.push_back(limit);
        const bool worse =
            !attempt.missed || peak - limit > attempt.missed->peak - attempt.missed->limit;
        if (peak > limit && worse) {
            attempt.fits = false;
            attempt.missed = {.candidate = candidate,
                              .partition = attempt.partition,
                              .rank = rank,
                              .peak = peak,
                              .limit = limit};
        }
    }
    return attempt;
}

/// What all ranks together have for copies, and what a copy takes.
struct Room {
    Bytes left{};  ///< negative where not even the other layers fit
    Bytes of_copy{};
};

/// A candidate and what bounds the copies it can hold.
struct SizedCandidate {
    Candidate candidate;
    int least = 1;  ///< copies: no stage is empty
    int most = 0;
    Bytes lack{};  ///< of a rank, in the mean, with one copy
};

class LargestSearch {
  public:
    LargestSearch(Scenario scenario, const Profile& profile, const RepeatedLayers& repeated)
        : scenario_(std::move(scenario)), profile_(profile), repeated_(repeated) {
        if (scenario_.model.kind != ModelKind::Profile && scenario_.pipeline.shard.is_auto()) {
            // Our own layers are planned to be trained: with what the executor can do.
            scenario_.pipeline.shard.open({Shard::None, Shard::Optimizer});
        }
        scenario_.model.kind = ModelKind::Profile;  // the layers are those of the profile
        // Costs of divided layers are known of the profile's own number of them.
        leave_undivided(scenario_);
        others_ = static_cast<int>(profile.layers.size()) - repeated.group * repeated.copies;
        most_copies_ = (most_layers - others_) / repeated.group;
    }

    LargestModel run(const LargestProgress& progress);
    std::optional<ClosestPlan> closest();

  private:
    std::shared_ptr<const Sized> sized(int copies);
    std::vector<SizedCandidate> candidates_for(int copies);
    int copies_for_any_shape() const;
    std::optional<Room> room_for_copies(const SettledScenario& settled);
    Attempt attempt(const Candidate& candidate, const Sized& model, bool closest = false) const;
    bool holds(const Candidate& candidate, int copies) {
        return attempt(candidate, *sized(copies)).fits;
    }
    int largest_of(const SizedCandidate& contender, int fitting);
    void add_closest(std::vector<SizedCandidate> all, LargestModel& largest);

    Scenario scenario_;
    const Profile& profile_;
    const RepeatedLayers& repeated_;
    int others_ = 0;  ///< layers that are not repeated
    int most_copies_ = 0;
    std::map<int, std::shared_ptr<const Sized>> sizes_;
    std::optional<Error> unknown_;  ///< why the costs of some candidates are not known
};

std::shared_ptr<const Sized> LargestSearch::sized(int copies) {
    std::shared_ptr<const Sized>& entry = sizes_[copies];
    if (!entry) {
        Profile profile = with_copies(profile_, repeated_, copies);
        Model model = scenario_model(scenario_, &profile);
        entry = std::make_shared<const Sized>(std::move(profile), std::move(model));
    }
    return entry;
}

/// None where a rank has no limit. All ranks together must hold the states of all layers. Each
/// holds what it keeps of one micro-batch on one of its pieces, too, so a share of it on all of
/// them.
std::optional<Room> LargestSearch::room_for_copies(const SettledScenario& settled) {
    const SettledScenario::PipelinePart& pipeline = settled.pipeline;
    const auto one = sized(1);
    const Cluster cluster(settled, profile_, pipeline.stages);
    Bytes room;
    for (const RankDevice& device : cluster.devices()) {
        if (!device.memory_limit) {
            return std::nullopt;
        }
        room += *device.memory_limit - device.context;
    }
    const int size = std::max(1, replica_batch(settled) / pipeline.micro_batches);
    const LayerSums sums = layer_sums(settled, one->model, one->profile, cluster, size);
    const bool keeps = !has_schedule_file(settled) && schedule_traits(pipeline.schedule).trains;
    const auto of_layer = [](const std::vector<Bytes>& sum, int layer) {
        return sum[as_index(layer + 1)] - sum[as_index(layer)];
    };
    Room result{.left = room};
    for (int layer = 0; layer < one->model.layer_count(); ++layer) {
        Bytes bytes = of_layer(sums.state, layer);
        bytes += keeps ? Bytes{of_layer(sums.saved, layer).count / pipeline.chunks} : Bytes{};
        if (layer >= repeated_.first && layer < repeated_.first + repeated_.group) {
            result.of_copy += bytes;
        } else {
            result.left -= bytes;
        }
    }
    return result;
}

/// So many that no shape has more pieces than the model has layers.
int LargestSearch::copies_for_any_shape() const {
    const Scenario::PipelinePart& pipeline = scenario_.pipeline;
    const int devices =
        std::max(scenario_.cluster.count,
                 pipeline.stages.value_or(1) * pipeline.tensor_parallel.value_or(1) *
                     pipeline.context_parallel.value_or(1));
    constexpr int most_chunks = 8;
    return std::clamp(most_chunks * devices, 1, most_copies_);
}

/// The candidates for a model with so many copies; what promises most comes first.
std::vector<SizedCandidate> LargestSearch::candidates_for(int copies) {
    const auto model = sized(copies);
    const Choices choices(scenario_, model->model, model->profile);
    std::vector<SizedCandidate> all;
    for (const Shape& shape : shapes_of(scenario_, model->model, model->profile)) {
        for (const ScheduleChoice& choice : choices.of(shape)) {
            if (choice.recompute_by_rank && scenario_.pipeline.recompute.is_auto()) {
                continue;  // it fits where all ranks recompute
            }
            SizedCandidate one{.candidate = {.shape = shape, .choice = choice}};
            const SettledScenario settled = with_candidate(scenario_, one.candidate);
            const int missing = settled.pipeline.pieces() - others_;
            one.least = std::max(1, (missing + repeated_.group - 1) / repeated_.group);
            std::optional<Room> known;
            try {
                known = room_for_copies(settled);
            } catch (const Error& error) {
                unknown_ = error;  // no costs at its micro-batch size
                continue;
            }
            if (!known) {
                throw Error(
                    ErrorKind::BadInput,
                    scenario_.file.string(),
                    "nothing limits the memory of the devices, so nothing limits the model",
                    "set cluster.memory_limit, as in --set cluster.memory_limit=\"16 GiB\", "
                    "or name a device, as in --set cluster.device=h100-sxm")
                    .about("cluster.memory_limit");
            }
            const Room& room = *known;
            one.lack = Bytes{(room.of_copy - room.left).count / shape.stages};
            if (one.lack <= Bytes{}) {
                one.most = room.of_copy.count == 0
                               ? most_copies_
                               : static_cast<int>(std::min<std::int64_t>(
                                     most_copies_, room.left.count / room.of_copy.count));
            }
            all.push_back(std::move(one));
        }
    }
    std::ranges::stable_sort(all, std::greater{}, &SizedCandidate::most);
    return all;
}

Attempt LargestSearch::attempt(const Candidate& candidate, const Sized& model, bool closest) const {
    SettledScenario settled = with_candidate(scenario_, candidate);
    try {
        Plan plan = make_plan(settled, model.model, model.profile);
        const Plan unsettled = plan;
        Attempt balanced = checked(candidate, std::move(plan));
        if (balanced.fits || !scenario_.pipeline.partition.is_auto() || unsettled->host_link ||
            !has_one_stage_per_rank(unsettled) || !model.model.is_chain()) {
            return balanced;
        }
        const Filler filler(settled, model, unsettled);
        const bool room = !filler.fill({}).empty();
        if (!room && !closest) {
            return balanced;
        }
        const Bytes excess = room ? Bytes{} : balanced.missed->peak - balanced.missed->limit;
        settled.pipeline.partition = filler.evenest(excess);
        return checked(candidate, make_plan(settled, model.model, model.profile));
    } catch (const Error& error) {
        return {.why = text_of_refusal(error)};
    }
}

/// Doubling, then bisection: what holds n copies holds fewer, too.
int LargestSearch::largest_of(const SizedCandidate& contender, int fitting) {
    int good = fitting;
    int bad = contender.most + 1;
    for (int step = 1; good + 1 < bad; step *= 2) {
        const int next = std::min(good + step, bad - 1);
        if (!holds(contender.candidate, next)) {
            bad = next;
            break;
        }
        good = next;
    }
    while (good + 1 < bad) {
        const int middle = std::midpoint(good, bad);
        (holds(contender.candidate, middle) ? good : bad) = middle;
    }
    return good;
}

/// What misses least with as few copies as there may be.
void LargestSearch::add_closest(std::vector<SizedCandidate> all, LargestModel& largest) {
    std::ranges::stable_sort(all, {}, &SizedCandidate::lack);
    constexpr std::size_t most_tried = 64;
    all.resize(std::min(all.size(), most_tried));
    for (const SizedCandidate& contender : all) {
        Attempt tried = attempt(contender.candidate, *sized(contender.least), true);
        const auto lack = [](const ClosestPlan& plan) { return plan.peak - plan.limit; };
        if (tried.missed && (!largest.next || lack(*tried.missed) < lack(*largest.next))) {
            largest.next = std::move(tried.missed);
        } else if (!tried.missed) {
            largest.why_no_plan = std::move(tried.why);
        }
    }
}

std::optional<ClosestPlan> LargestSearch::closest() {
    LargestModel result;
    std::vector<SizedCandidate> all = candidates_for(1);
    std::erase_if(all, [](const SizedCandidate& contender) { return contender.least > 1; });
    add_closest(std::move(all), result);
    return result.next;
}

LargestModel LargestSearch::run(const LargestProgress& progress) {
    const std::vector<SizedCandidate> all = candidates_for(copies_for_any_shape());
    if (all.empty() && unknown_) {
        throw Error(*unknown_);
    }
    LargestModel largest{.candidates = std::ssize(all)};
    const SizedCandidate* winner = nullptr;
    for (std::size_t first = 0; first < all.size() && all[first].most > largest.copies;) {
        std::vector<const SizedCandidate*> wave;
        std::vector<std::shared_ptr<const Sized>> models;  // made by one thread
        for (; first < all.size() && wave.size() < wave_size; ++first) {
            if (all[first].most > largest.copies && all[first].most >= all[first].least) {
                wave.push_back(&all[first]);
                models.push_back(sized(std::max(largest.copies + 1, all[first].least)));
            }
        }
        std::vector<char> fits(wave.size(), 0);
        tbb::parallel_for(std::size_t{0}, wave.size(), [&](std::size_t i) {
            fits[i] = static_cast<char>(attempt(wave[i]->candidate, *models[i]).fits);
        });
        const int before = largest.copies;
        for (std::size_t i = 0; i < wave.size(); ++i) {
            const int copies = std::max(largest.copies + 1, wave[i]->least);
            const bool known = copies == std::max(before + 1, wave[i]->least);
            if (fits[i] != 0 && (known || holds(wave[i]->candidate, copies))) {
                winner = wave[i];
                largest.copies = largest_of(*winner, copies);
            }
        }
        largest.tried += std::ssize(wave);
        const double share = static_cast<double>(first) / static_cast<double>(all.size());
        if (progress && !progress(share, largest.copies)) {
            largest.complete = first >= all.size() || all[first].most <= largest.copies;
            break;
        }
        std::erase_if(sizes_, [&largest](const auto& entry) {  // none asks for these again
            return entry.first > 1 && entry.first <= largest.copies;
        });
    }
    if (winner == nullptr) {
        add_closest(all, largest);
        return largest;
    }
    Attempt best = attempt(winner->candidate, *sized(largest.copies));
    largest.candidate = winner->candidate;
    largest.partition = std::move(best.partition);
    largest.channel_capacity = best.channel_capacity;
    largest.peaks = std::move(best.peaks);
    largest.limits = std::move(best.limits);
    largest.is_most = largest.copies == most_copies_;
    if (!largest.is_most) {
        Attempt next = attempt(winner->candidate, *sized(largest.copies + 1), true);
        largest.next = std::move(next.missed);
        largest.why_no_plan = std::move(next.why);
    }
    return largest;
}

}  // namespace

LargestModel largest_model(const Scenario& scenario,
                           const Profile& profile,
                           const RepeatedLayers& repeated,
                           const LargestProgress& progress) {
    if (!scenario.pipeline.partition.is_auto()) {
        throw Error(ErrorKind::BadInput,
                    scenario.file.string(),
                    "pipeline.partition is written for one number of layers, and here it changes",
                    {"leave it out, or --set pipeline.partition=auto",
                     {{"pipeline.partition", "\"auto\""}}})
            .about("pipeline.partition");
    }
    for (const LayerCost& layer : profile.layers) {
        if (!layer.inputs.empty()) {
            throw Error(
                ErrorKind::BadInput,
                scenario.file.string(),
                fmt::format("layer '{}' reads {}, and the largest model is found for layers "
                            "that each read the one before",
                            layer.name,
                            fmt::join(layer.inputs, ", ")),
                "try sizes with 'pipetwin model ... --set model.layers=N --costs-out FILE', "
                "then 'pipetwin simulate ... --profile FILE'")
                .about("model.layers");
        }
    }
    return LargestSearch(scenario, profile, repeated).run(progress);
}

std::optional<ClosestPlan> closest_plan(const Scenario& scenario, const Profile& profile) {
    const RepeatedLayers whole{
        .first = 0, .group = static_cast<int>(profile.layers.size()), .copies = 1};
    return LargestSearch(scenario, profile, whole).closest();
}

}  // namespace pipetwin::sim

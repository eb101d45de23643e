// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <oneapi/tbb/concurrent_hash_map.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/error.h"
#include "core/base/units.h"
#include "core/costs/profile.h"
#include "core/partition/rank_partition.h"
#include "core/scenario/cluster.h"
#include "core/scenario/settled_scenario.h"
#include "sim/bounds/layer_sums.h"
#include "sim/bounds/step_bound.h"
#include "sim/search/candidate.h"
#include "sim/search/shape_bounds.h"

namespace pipetwin {

class Model;

}  // namespace pipetwin

namespace pipetwin::sim {

/// What can be told of candidates without a plan of them.
class CandidateBounds {
  public:
    /// Keeps references to all of them.
    CandidateBounds(const Scenario& scenario, const Model& model, const Profile& profile);

    /// Reads the costs that these shapes need. Before anything else is asked of them; the rest may
    /// be asked by several threads at once.
    void learn(std::span<const Shape> shapes);

    /// Reads what layers of these shapes compute, for `least_without_messages`: shapes that divide
    /// samples or experts alike have it in common. No `learn` is needed before.
    void learn_work(std::span<const Shape> shapes);

    /// Whether all devices together have room for weights, gradients and optimizer state, each
    /// there once. `shape`: any.
    bool may_hold_state(const Shape& shape) const;

    /// What no candidate of the shape goes below even if messages take no time. 0: not known.
    Duration least_without_messages(const Shape& shape) const;

    /// Why its costs are not known; none where they are. Nothing below may be asked then.
    const Error* unknown(const Shape& shape) const;

    /// What no candidate of the shape goes below. Cheap: nothing is searched.
    Duration least(const Shape& shape) const;

    /// An equal share of the work on every rank: what no order of any schedule goes below, nor with
    /// a sequence that the scenario does not divide. Of a shape that was not learned without
    /// messages; the largest number where nothing is known of it.
    Duration share_of_any_order(const Shape& shape) const;

    /// More about the candidates of one shape that share and recompute as `choice` does: it may be
    /// asked about those whose `cost_options_of` is the same. For one thread. Throws Error where
    /// the costs of these options are not known.
    ShapeBounds of(const Shape& shape, const ScheduleChoice& choice) const;

    const Choices& choices() const { return choices_; }
    Choices& choices() { return choices_; }

  private:
    /// What the sums depend on.
    struct SumsKey {
        int tensor_parallel = 1;
        int micro_batch_size = 1;
        int optimizer_shards = 1;
        LayerRecompute layer_recompute = LayerRecompute::None;
        bool sequence_parallel = false;
        bool modules = false;
        bool accumulates = false;      ///< gradients, over micro-batches
        Shard gathered = Shard::None;  ///< of messages that are part of the layers
        int stages = 0;                ///< where costs differ from shape to shape
        bool is_pipeline = false;      ///< where replicas gather: stacks may keep weights gathered
        int replicas = 1;              ///< likewise
        bool takes_all = false;        ///< devices, where those of more are slower
        int context_parallel = 1;
        int expert_parallel = 1;
        int expert_tensor_parallel = 0;
        /// True if those with the same part of divided layers share its state: parts of samples do
        /// where there is one replica, and so do copies of experts.
        bool shares_divided = false;
        int placed = 0;  ///< devices that show all places of groups that divide samples or experts

        auto operator<=>(const SumsKey&) const = default;
    };
    using Sums = std::shared_ptr<const LayerSums>;
    /// What sums depend on that are made when they are asked for, those with messages between
    /// replicas among them.
    struct LaterKey {
        SumsKey layers;
        DeviceGroup replicas;
        DeviceGroup between;
        std::optional<GatheredExperts> experts;

        bool operator==(const LaterKey&) const = default;
    };
    struct HashOfSums {
        static std::size_t hash(const SumsKey& key);
        static bool equal(const SumsKey& a, const SumsKey& b) { return a == b; }
    };
    struct HashOfLater {
        static std::size_t hash(const LaterKey& key);
        static bool equal(const LaterKey& a, const LaterKey& b) { return a == b; }
    };

    /// Where sizes differ by one, the smaller is the bound's.
    SumsKey key_of(const Shape& shape, const CostOptions& options) const;
    bool numbers_in_order() const;
    int placed_devices(const Shape& shape) const;
    CostOptions any_order_options(const Shape& shape) const;
    /// Sums that are not known yet: of which shape and options they are made.
    using Missing = std::map<SumsKey, std::pair<Shape, CostOptions>>;
    void add_missing(const Shape& shape, const CostOptions& options, Missing& missing) const;
    std::vector<CostOptions> learned_options(const Shape& shape) const;
    void learn_divisions(const Missing& missing);
    Missing::value_type work_of(const Shape& shape) const;
    const Profile* divided_profile_of(const LayerDivision& division) const;
    /// `settled` and `rules`: the scenario with a shape and cost options of that key, and those of
    /// its machine.
    Sums make_sums(const SumsKey& key,
                   const SettledScenario& settled,
                   const Cluster& cluster,
                   const LayerRules& rules) const;
    CostTable make_whole_layers(int micro_batch_size,
                                const DeviceKinds& kinds,
                                LayerRules rules) const;
    /// What layers cost without what they compute again, sum up and gather: sums that differ in
    /// these alone have it in common.
    std::shared_ptr<const CostTable> whole_layers(const SumsKey& key,
                                                  const DeviceKinds& kinds,
                                                  const LayerRules& rules) const;
    /// Sums that were not learned. Shapes have those with messages between replicas in common where
    /// their replicas have the same places and links.
    Sums later_sums(const SumsKey& key,
                    const SettledScenario& settled,
                    const Cluster& cluster) const;
    const LayerSums& sums_of(const Shape& shape, const CostOptions& options) const {
        return *sums_.at(key_of(shape, options));
    }
    /// Threads make the sums of all that is missing, each by `make(key, settled scenario, shape)`.
    template <class MakeSums>
    std::vector<std::variant<Sums, Error>> make_missing(const Missing& missing,
                                                        const MakeSums& make) const;
    Duration share_with(const Shape& shape, const LayerSums& sums) const;
    Duration least_with(const Shape& shape, const LayerSums& sums) const;
    /// What copies to host memory add at least, where a stage has to make some.
    Duration least_copies(const Shape& shape, const Cluster& cluster, const LayerSums& sums) const;
    BoundQuestion question_of(const Shape& shape,
                              const CostOptions& options,
                              const Cluster& cluster,
                              const LayerSums& sums) const;
    int micro_batches_of(const Shape& shape) const;
    int shards_of(const Shape& shape) const;
    /// The scenario for what depends on the shape and these cost options alone.
    SettledScenario with_options(const Shape& shape, const CostOptions& options) const;

    const Scenario& scenario_;
    const Model& model_;
    const Profile& profile_;
    Choices choices_;
    bool has_backward_;
    int devices_;  ///< to plan for
    bool devices_vary_;
    /// Costs of one device of each division that a shape has.
    std::vector<std::pair<LayerDivision, Profile>> divided_{};
    std::map<SumsKey, Sums> sums_{};      ///< null: costs are not known there
    std::map<SumsKey, Error> unknown_{};  ///< why
    std::map<SumsKey, Sums> work_{};      ///< without messages; null: not known
    mutable tbb::concurrent_hash_map<LaterKey, Sums, HashOfLater> later_sums_{};
    mutable tbb::concurrent_hash_map<SumsKey, std::shared_ptr<const CostTable>, HashOfSums>
        whole_layers_{};
};

}  // namespace pipetwin::sim

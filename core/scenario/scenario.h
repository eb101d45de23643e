// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/or_auto.h"
#include "core/base/units.h"
#include "core/costs/collectives/all_reduce.h"
#include "core/costs/contention.h"
#include "core/costs/devices/device_profile.h"
#include "core/grid/group_spread.h"
#include "core/model/image_models.h"
#include "core/model/layer_spec.h"
#include "core/model/transformers.h"
#include "core/partition/partition.h"
#include "core/plan/pipeline_settings.h"
#include "core/scenario/choices.h"
#include "core/scenario/optimizers.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/lower.h"
#include "core/schedule/receives.h"
#include "core/schedule/recompute.h"
#include "core/schedule/schedule.h"
#include "core/text/override.h"

namespace pipetwin {

class Model;

/// The word of a way of sending in scenarios: "asynchronous".
std::string_view to_string(TransferMode transfer);

/// What a scenario says about everything but its pipeline, defaults filled in. Keys and their
/// meaning: docs/scenario.md. Paths inside are absolute: the reader resolves them against the
/// file's folder.
struct ScenarioParts {
    std::filesystem::path file;  ///< where it was read from

    /// [model]: the layers, or the sizes that they follow from.
    struct ModelPart {
        ModelKind kind = ModelKind::Gpt;
        GptSizes gpt;
        LlamaSizes llama{};
        std::vector<int> sizes;         ///< mlp
        SampleShape input;              ///< layers, models of images: one sample
        std::vector<LayerSpec> layers;  ///< layers, `repeat` expanded
        std::filesystem::path profile;  ///< profile
        AmoebaNetSizes amoebanet{};
        ResNetSizes resnet{};
        UNetSizes unet{};
        TranslationSizes translation{};

        /// Whether `llama` has its sizes.
        bool has_llama_sizes() const { return kind == ModelKind::Llama || kind == ModelKind::Moe; }
        /// Token ids of one sample; 0: it reads no token ids, or a profile does not say.
        int tokens_per_sample() const;

        bool operator==(const ModelPart&) const = default;
    } model;
    /// What becomes of images before a model reads them. A pixel's value is in [0, 1] first.
    struct ImageChanges {
        std::vector<double> mean{};       ///< taken off; one per channel; empty: 0
        std::vector<double> deviation{};  ///< then divided by; one per channel; empty: 1
        double noise = 0;      ///< deviation of the normal noise that is added before that
        int pad_and_crop = 0;  ///< pixels of the margin from which a window of the size is cut
        bool mirror = false;   ///< left and right change places in half of the samples

        bool operator==(const ImageChanges&) const = default;
    };
    /// What is taken of texts with their translations.
    struct PairSettings {
        std::vector<std::string> languages{};  ///< besides English, in the order of their tokens
        PairDirection direction = PairDirection::FromEnglish;
        double temperature = 5;               ///< a language with D pairs comes as often as D^(1/T)
        std::filesystem::path target_path{};  ///< translations, line by line; empty: in one table
        int piece_count = 0;  ///< of a SentencePiece model that is trained on the texts; 0: none
        std::filesystem::path pieces_path{};              ///< of such a model; empty: none
        std::vector<std::filesystem::path> more_paths{};  ///< further folders of catalogues
        bool bucketing = false;  ///< samples of a mini-batch are in the order of their lengths

        bool has_pieces() const { return piece_count > 0 || !pieces_path.empty(); }

        bool operator==(const PairSettings&) const = default;
    };
    /// [data]: the training samples.
    struct DataPart {
        DataKind kind = DataKind::Synthetic;
        std::filesystem::path path;  ///< a file or folder; empty if none was given
        /// What validation reads: a place of its own, or this share of the data's end.
        std::filesystem::path validation_path{};
        double validation_share = 0;
        ImageChanges changes{};  ///< of images
        PairSettings pairs{};    ///< of texts with translations

        bool has_validation() const {
            return !validation_path.empty() || validation_share > 0 || has_test_files(kind) ||
                   is_of_pairs(kind);
        }

        bool operator==(const DataPart&) const = default;
    } data;
    /// [training]: the mini-batch, the steps and the optimizer.
    struct TrainingPart {
        int batch = 32;
        int steps = 50;
        OptimizerKind optimizer = OptimizerKind::AdamW;
        double learning_rate = 3e-4;
        RateSchedule learning_rate_schedule = RateSchedule::Constant;
        int warmup_steps = 0;
        double final_learning_rate = 0;  ///< towards which linear and cosine go
        double clip_norm = 0;            ///< of all gradients; 0: they are left as they are
        Precision precision = Precision::Fp32;
        std::optional<GradientType> gradients{};     ///< none: as the stack of the costs has them
        std::optional<int> optimizer_state_bytes{};  ///< of a two-byte weight; none: all in fp32
        Accumulation accumulation = Accumulation::Fused;
        std::uint64_t seed = 1;
        int validate_every = 0;  ///< steps; 0: never
        int validation_batches = 8;
        std::vector<int> learning_rate_milestones{};  ///< RateSchedule::Step: steps, ascending
        double learning_rate_factor = 0.1;            ///< RateSchedule::Step: from each of them on
        /// Settings of the optimizer; none: the default that it has (docs/scenario.md).
        std::optional<double> momentum{};
        std::optional<double> weight_decay{};
        WeightDecayOf weight_decay_of = WeightDecayOf::All;
        std::vector<double> betas{};  ///< of adam and adamw: two, or none written
        std::optional<double> rmsprop_decay{};
        std::optional<double> epsilon{};
        double average_decay = 0;  ///< of the averages of the weights; 0: there are none
        /// Whether right classes are counted; none: where the model does not read token ids.
        std::optional<bool> accuracy{};
        int translate = 0;  ///< held-out texts of each language pair, behind the last step
        int beam = 1;       ///< hypotheses of each that are followed at the same time
        /// Rows of a layer's experts: what is written, of which one has a value.
        struct LoadOfExperts {
            double fullest = 1;                            ///< device over the mean
            std::vector<double> shares{};                  ///< [expert], of all rows of a layer
            std::filesystem::path file{};                  ///< of such shares, block by block
            std::vector<std::vector<double>> of_blocks{};  ///< what the file says

            bool is_balanced() const { return fullest == 1 && shares.empty() && of_blocks.empty(); }

            bool operator==(const LoadOfExperts&) const = default;
        } expert_load{};
        double expert_capacity = 0;  ///< rows of an expert over the mean; 0: none is dropped
        int expert_padding = 1;      ///< rows of an expert are filled up to a multiple of this

        bool operator==(const TrainingPart&) const = default;
    } training;
    /// [cluster]: devices, nodes and links.
    struct ClusterPart {
        Backend backend = Backend::Cpu;
        std::string device = this_machine;
        std::vector<std::string> devices;       ///< one per rank; empty: `device` is all of them
        std::vector<double> speeds;             ///< one per rank, relative to the costs; empty: 1
        std::optional<double> device_spread{};  ///< of their speeds; none: as the stack says
        ScaleCosts scale_costs = ScaleCosts::None;
        std::string stack;  ///< of training software, as in profiles/stacks; empty: none is named
        int count = 0;      ///< devices; 0 = as many as stages
        int per_node = 8;
        int nvlink_domain = 0;        ///< devices that fast links join; 0: those of a node
        int nics_per_node = 0;        ///< network adapters of a node; 0: one for each device
        double oversubscription = 1;  ///< of the uplinks of a leaf of the network
        int nodes_per_leaf = 0;       ///< 0: those of a domain
        Placement placement = Placement::ReplicasFirst;
        std::vector<int> nodes;  ///< Placement::Written: of every rank, replica after replica
        std::string link;        ///< a class of links; empty = what the profile or the device says
        std::string node_link;
        double link_gbps = 0;  ///< gigabit per second; 0 = what the profile says
        double node_link_gbps = 0;
        double link_latency_us = 0;
        double node_link_latency_us = 0;
        bool emulate_links = false;  ///< messages take as long as the plan says, not as they do
        std::string host_link;  ///< a class; from each device to its host memory; empty: not known
        double host_link_gbps = 0;
        double host_link_latency_us = 0;
        std::optional<Bytes> host_memory;    ///< for each device; none: not known
        std::optional<Bytes> memory_limit;   ///< of every device
        std::vector<Bytes> memory_limits{};  ///< one per rank; takes the place of `memory_limit`
        /// Reserve of a memory pool beyond its tensors, in per cent of them; none: as the stack
        /// says.
        std::optional<double> allocator_reserve{};
        /// Buffers of each process group that a device is in; none: as the device's profile says.
        std::optional<Bytes> communicator_bytes{};
        TransferMode transfer = TransferMode::Asynchronous;
        int cores = 0;  ///< processors that the ranks share; 0: one for each
        /// Longer by that share for every other rank that computes; none: as the profile says.
        std::optional<double> interference{};
        std::vector<std::vector<double>> pair_interference{};  ///< [rank][other]; in its place
        std::optional<LinkSharing> link_sharing;  ///< of what leaves and enters a node; none: not
        std::vector<NodeLink> shared_links{};     ///< of every node, by some of its devices
        GpuShares gpu_shares = GpuShares::Own;
        std::vector<int> gpu_units{};  ///< Own: of every rank, in 8 multiprocessors; empty: alike
        int link_ctas =
            1;  ///< thread blocks, each on a multiprocessor, that carry a message by NCCL

        /// Devices that fast links join: `nvlink_domain`, or a node.
        int domain_devices() const { return std::max({1, per_node, nvlink_domain}); }
        /// The nodes of such a domain, and of a leaf of the network where it is oversubscribed.
        NodeLevels levels() const {
            const int of_domain = domain_devices() / std::max(1, per_node);
            const bool has_leaves = oversubscription > 1;
            return {.nodes_of_domain = of_domain,
                    .nodes_of_leaf = has_leaves ? std::max(of_domain, nodes_per_leaf) : 0};
        }

        bool operator==(const ClusterPart&) const = default;
    } cluster;
    /// [output]: how often a checkpoint is written.
    struct OutputPart {
        int checkpoint_every = 0;  ///< steps; 0: by time
        /// Where no steps are given: the time between two; 0: never.
        Duration checkpoint_period = std::chrono::minutes(10);

        bool operator==(const OutputPart&) const = default;
    } output;

    bool operator==(const ScenarioParts&) const = default;
};

/// [pipeline]: the cut of the model and the schedule. `Searched` holds the value of a key that a
/// search of plans may have to find: OrAuto in a scenario as it is written, Known in a settled one.
template <template <class> class Searched>
struct PipelineKeys : PipelineSettings {
    Searched<int> stages{1};
    Searched<int> micro_batches{1};
    /// Our name of a generator, or the absolute path of a schedule file ("....csv").
    Searched<std::string> schedule{std::string(default_schedule)};
    Searched<int> chunks{1};
    /// One mode for all model stages, or one for each. The reader fills in the default of a
    /// schedule that is known.
    Searched<RecomputeRules> recompute{Recompute::None};
    /// The reader fills in the default of a schedule that is known; else each that is tried has its
    /// own.
    Searched<RecomputeTiming> recompute_timing{};
    Searched<ModuleLists> recompute_modules{ModuleLists{}};
    Searched<int> data_parallel{1};
    Searched<int> tensor_parallel{1};
    Searched<int> context_parallel{1};
    Searched<int> expert_parallel{1};
    Searched<int> expert_tensor_parallel{0};  ///< 0: as tensor_parallel
    Searched<Shard> shard{Shard::None};
    /// Devices of a rank divide the sequence between layers.
    Searched<bool> sequence_parallel{false};
    /// Each device of a rank sends its part of what passes between stages.
    Searched<bool> scatter_boundaries{false};

    /// Into how many pieces the model is cut; none while that has to be planned.
    auto pieces() const {
        if constexpr (std::same_as<Searched<int>, int>) {
            return file_pieces > 0 ? file_pieces : stages * chunks;
        } else {
            const bool is_known = !stages.is_auto() && !chunks.is_auto();
            return !is_known         ? std::nullopt
                   : file_pieces > 0 ? std::optional(file_pieces)
                                     : std::optional(*stages * *chunks);
        }
    }

    /// Devices of a rank.
    int rank_devices() const
        requires std::same_as<Searched<int>, int>
    {
        return tensor_parallel * context_parallel;
    }

    /// Devices that share each expert.
    int expert_tensor_devices() const
        requires std::same_as<Searched<int>, int>
    {
        return expert_tensor_parallel > 0 ? expert_tensor_parallel : tensor_parallel;
    }

    /// Calls `visit` with each member that a search may find, and that of `other`, which holds them
    /// in another way; not with recompute_timing, which follows the schedule.
    template <class Other, class Visit>
    void each_searched(Other& other, Visit visit) const {
        visit(stages, other.stages);
        visit(micro_batches, other.micro_batches);
        visit(schedule, other.schedule);
        visit(chunks, other.chunks);
        visit(recompute, other.recompute);
        visit(recompute_modules, other.recompute_modules);
        visit(data_parallel, other.data_parallel);
        visit(tensor_parallel, other.tensor_parallel);
        visit(context_parallel, other.context_parallel);
        visit(expert_parallel, other.expert_parallel);
        visit(expert_tensor_parallel, other.expert_tensor_parallel);
        visit(shard, other.shard);
        visit(sequence_parallel, other.sequence_parallel);
        visit(scatter_boundaries, other.scatter_boundaries);
    }

    bool operator==(const PipelineKeys&) const = default;
};

/// A value that is known.
template <class Value>
using Known = Value;

/// Everything a run depends on, as it was written. Where no key is "auto" that has to be planned,
/// `settle` of core/scenario/settled_scenario.h makes plain values of them.
struct Scenario : ScenarioParts {
    using PipelinePart = PipelineKeys<OrAuto>;
    PipelinePart pipeline;

    bool operator==(const Scenario&) const = default;
};

/// What a key of [pipeline] means that is planned, but not written down: its default, or "auto".
/// tensor_parallel is 1 either way, and shard goes up to the optimizer's state: what takes messages
/// with every micro-batch is tried where it is asked for. Samples and experts are not divided,
/// which `leave_division_open` is about.
enum class Unwritten { Default, Auto };

/// Makes context_parallel, expert_parallel and expert_tensor_parallel "auto" among their defaults
/// alone, until something opens them that knows the model (sim::open_division).
void leave_division_open(Scenario& scenario);

/// Gives the defaults to those of these keys that are still "auto" among them alone.
void close_division(Scenario& scenario);

/// Reads a scenario. Throws Error(BadInput) with file:line:column, what was found, what was
/// expected and the nearest known key; for an override the place is "--set key".
Scenario read_scenario(const std::filesystem::path& file,
                       const std::vector<Override>& overrides = {},
                       Unwritten unwritten = Unwritten::Default);

/// Reads a scenario from text; `file` names it in errors and is what relative paths start from.
Scenario parse_scenario(std::string_view text,
                        const std::filesystem::path& file,
                        const std::vector<Override>& overrides = {},
                        Unwritten unwritten = Unwritten::Default);

/// The scenario as TOML with every default written out and absolute paths, so that it means the
/// same wherever it is put; parse(print(x)) = x.
std::string print_scenario(const Scenario& scenario);

/// Throws Error(BadInput) at `place` if a list of so many modes in 'pipeline.recompute' is not one
/// for each piece of the model.
void require_mode_of_each_piece(std::size_t modes, int pieces, std::string place);

/// Throws Error(BadInput) at `place` about a key whose `lists` of modules are neither one for all
/// stages nor one for each piece of the model.
void require_list_of_each_piece(const std::string& key,
                                std::size_t lists,
                                int pieces,
                                std::string place);

struct Profile;

/// Samples of a mini-batch that one of so many replicas takes. Throws Error(BadInput) naming both
/// numbers if the mini-batch cannot be shared out equally.
int replica_batch(const ScenarioParts& scenario, int replicas);

/// Whether the scenario's order comes from the user's own file.
bool has_schedule_file(const Scenario& scenario);

/// The model that the scenario describes. For kind = "profile" the layers come from `profile`.
/// Throws Error(BadInput).
Model scenario_model(const ScenarioParts& scenario, const Profile* profile = nullptr);

/// So many layers of `model`, or whole blocks, in each piece, in the order of the model, as a user
/// writes them. A list that sums to the number of blocks (core/partition/model_blocks.h) counts
/// those: the embedding joins the first piece, the head the last, and only these two may have 0.
/// Throws Error(BadInput), naming what the list sums to and what it should, or that it has not the
/// `expected` entries, where one is expected; the text says what an entry counts in this model.
Partition written_partition(const std::vector<int>& pieces,
                            std::optional<int> expected,
                            const Model& model);

/// The partition that the scenario writes down, in units of `model`; none for "auto". Throws as
/// `written_partition`.
std::optional<Partition> scenario_partition(const Scenario& scenario, const Model& model);

}  // namespace pipetwin

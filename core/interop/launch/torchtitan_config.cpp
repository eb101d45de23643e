#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/launch/training_run.h"
#include "core/schedule/generators/generate.h"

namespace pipetwin {

namespace {

struct Flavor {
    std::string_view model;
    std::string_view flavor;
    int blocks;
};

/// Blocks of torchtitan's models (torchtitan/models/*/__init__.py).
constexpr std::array flavors{
    Flavor{"llama3", "debugmodel", 6},
    Flavor{"llama3", "8B", 32},
    Flavor{"llama3", "70B", 80},
    Flavor{"llama3", "405B", 126},
    Flavor{"deepseek_v3", "16B", 27},
    Flavor{"deepseek_v3", "236B", 60},
    Flavor{"deepseek_v3", "671B", 61},
    Flavor{"qwen3", "0.6B", 28},
    Flavor{"qwen3", "1.7B", 28},
    Flavor{"qwen3", "4B", 36},
    Flavor{"qwen3", "8B", 36},
    Flavor{"qwen3", "14B", 40},
    Flavor{"qwen3", "32B", 64},
};

constexpr std::int64_t most_stages = 1 << 18;
constexpr std::int64_t most_samples = 1 << 30;

/// The words of a text that are apart by blanks.
std::vector<std::string_view> words_in(std::string_view text) {
    std::vector<std::string_view> words;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find(' '), text.size());
        if (end > 0) {
            words.push_back(text.substr(0, end));
        }
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return words;
}

/// Reads a file of torchtitan; one object for each.
class TitanReader {
  public:
    TitanReader(const LaunchFile& file, bool warns) : reader_(file), warns_(warns) {}

    TrainingRun read() {
        read_model();
        read_schedule();
        read_batch();
        read_rest();
        reader_.finish(
            "job profiling metrics lr_scheduler checkpoint comm validation compile debug float8 mx "
            "quantize memory_estimation experimental",
            "parallelism.disable_loss_parallel parallelism.enable_fsdp_symm_mem "
            "parallelism.enable_compiled_autograd parallelism.context_parallel_rotate_method "
            "parallelism.pipeline_parallel_expert_parallel_overlap training.steps training.seq_len "
            "training.dataset training.dataset_path training.compile training.seed "
            "training.deterministic training.gc_freq training.gc_debug training.warmup_steps "
            "training.mixed_precision_reduce "
            "model.hf_assets_path model.tokenizer_path model.print_after_conversion "
            "model.norm_type optimizer.lr optimizer.eps optimizer.beta1 optimizer.beta2 "
            "optimizer.weight_decay optimizer.fused optimizer.implementation "
            "optimizer.early_step_in_backward activation_checkpoint.memory_budget "
            "activation_checkpoint.visualize_memory_budget_pareto "
            "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns "
            "activation_checkpoint.preserve_rng_state "
            "activation_checkpoint.determinism_check activation_checkpoint.debug "
            "fault_tolerance.process_group fault_tolerance.replica_id fault_tolerance.group_size "
            "fault_tolerance.min_replica_size",
            warns_,
            run_);
        return std::move(run_);
    }

  private:
    [[noreturn]] void refuse(std::string_view written, std::string what, std::string hint) const {
        throw Error(
            ErrorKind::Infeasible, reader_.place(written), std::move(what), std::move(hint));
    }

    /// A size of parallelism that no scenario has: 1 or less changes nothing.
    void expect_one(std::string_view written, std::string_view what) {
        if (reader_.whole(written, -1).value_or(1) > 1) {
            reader_.problem(written, what);
        }
    }

    void read_model() {
        const std::string name = reader_.text("model.name").value_or("");
        const std::string flavor = reader_.text("model.flavor").value_or("");
        run_.model = fmt::format("{} {}", name, flavor);
        for (const Flavor& known : flavors) {
            if (known.model == name && known.flavor == flavor) {
                blocks_ = known.blocks;
            }
        }
        const auto converters =
            reader_.texts("model.converters").value_or(std::vector<std::string>{});
        if (std::ranges::any_of(converters,
                                [](const std::string& word) { return !word.empty(); })) {
            reader_.problem("model.converters", "products in 8 bits take other time and memory");
        }
    }

    void read_schedule() {
        run_.stages = reader_.whole("parallelism.pipeline_parallel_degree", 1).value_or(1);
        const std::optional<std::string> name =
            reader_.text("parallelism.pipeline_parallel_schedule");
        const std::string csv =
            reader_.text("parallelism.pipeline_parallel_schedule_csv").value_or("");
        if (!csv.empty()) {
            run_.schedule = csv;
            run_.warnings.push_back(fmt::format(
                "the schedule is the file '{}': its path is relative to the scenario", csv));
        } else {
            try {
                run_.schedule = to_string(name ? schedule_kind(*name) : ScheduleKind::OneFOneB);
            } catch (const Error& error) {
                throw error.at(reader_.place("parallelism.pipeline_parallel_schedule"));
            }
        }
        if (*run_.stages == 1 && csv.empty()) {  // without a pipeline torchtitan has no schedule
            run_.schedule = to_string(ScheduleKind::OneFOneB);
        }
        const bool is_multi =
            csv.empty() && schedule_traits(run_.schedule).chunks != ChunkCounts::One;
        read_split(is_multi);
    }

    /// Stages of a schedule with one per rank, or with two where nothing says more.
    void read_split(bool is_multi) {
        const auto modules = reader_.texts("parallelism.module_fqns_per_model_part");
        const auto points = reader_.texts("parallelism.pipeline_parallel_split_points");
        const std::optional<int> per_stage =
            reader_.whole("parallelism.pipeline_parallel_layers_per_stage", 1);
        const int less_first =
            reader_.whole("parallelism.pipeline_parallel_first_stage_less_layers", 0).value_or(1);
        const int less_last =
            reader_.whole("parallelism.pipeline_parallel_last_stage_less_layers", 0).value_or(1);
        const int ranks = *run_.stages;
        std::int64_t stages = std::int64_t{ranks} * (is_multi ? 2 : 1);
        if (modules && !modules->empty()) {
            run_.blocks = blocks_of_modules(*modules);
            expect_whole_model(*modules);
            stages = static_cast<std::int64_t>(run_.blocks.size());
        } else if (points && !points->empty() && !points->front().empty()) {
            reader_.problem("parallelism.pipeline_parallel_split_points",
                            "newer versions say it with module_fqns_per_model_part");
        } else if (per_stage && blocks_) {
            const std::int64_t all = std::int64_t{*blocks_} + less_first + less_last;
            stages = (all + *per_stage - 1) / *per_stage;
        }
        if (stages > most_stages) {
            refuse("parallelism.pipeline_parallel_degree",
                   fmt::format("{} stages, expected at most {}", stages, most_stages),
                   "is there a digit too many?");
        }
        if (stages % ranks != 0) {
            refuse("parallelism.pipeline_parallel_degree",
                   fmt::format("{} cannot be shared out to {}",
                               counted(stages, "stage"),
                               counted(ranks, "rank")),
                   "torchtitan refuses this, too");
        }
        run_.chunks = static_cast<int>(stages / ranks);
        if (run_.blocks.empty() && blocks_) {
            run_.blocks = shared_out(static_cast<int>(stages), less_first, less_last);
        }
        if (!blocks_ && run_.blocks.empty()) {
            run_.warnings.push_back(
                fmt::format("the number of layers of '{}' is not known here: the fragment has no "
                            "partition",
                            run_.model));
        }
    }

    [[noreturn]] void refuse_modules(std::string what, std::string hint) const {
        refuse("parallelism.module_fqns_per_model_part", std::move(what), std::move(hint));
    }

    /// The number of a layer, "layers.7"; none for other modules.
    std::optional<int> layer_of(std::string_view module) const {
        constexpr std::string_view prefix = "layers.";
        if (!module.starts_with(prefix)) {
            return std::nullopt;
        }
        int layer = 0;
        const char* const begin = module.data() + prefix.size();
        const char* const end = module.data() + module.size();
        const auto [rest, status] = std::from_chars(begin, end, layer);
        if (status != std::errc{} || rest != end || layer < 0) {
            refuse_modules(fmt::format("'{}' names no layer", module.substr(0, 60)),
                           "torchtitan knows whole layers, as in layers.7");
        }
        return layer;
    }

    /// Layers of each stage, of a list of modules for each.
    std::vector<int> blocks_of_modules(const std::vector<std::string>& stages) const {
        std::vector<int> blocks;
        for (const std::string& stage : stages) {
            blocks.push_back(static_cast<int>(std::ranges::count_if(
                words_in(stage),
                [this](std::string_view module) { return layer_of(module).has_value(); })));
        }
        return blocks;
    }

    /// torchtitan runs a module in each stage that names it, and leaves out those that no stage
    /// names, without a word. The partition of a scenario has each layer once, in order.
    void expect_whole_model(const std::vector<std::string>& stages) const {
        std::map<std::string, std::size_t, std::less<>> stage_of;
        std::map<int, std::size_t> stage_of_layer;
        for (std::size_t stage = 0; stage < stages.size(); ++stage) {
            for (const std::string_view module : words_in(stages[stage])) {
                const auto [first, is_new] = stage_of.emplace(module, stage);
                if (!is_new) {
                    refuse_modules(fmt::format("'{}' is in stage {} and again in stage {}",
                                               module.substr(0, 60),
                                               first->second,
                                               stage),
                                   "keep it in one of them");
                }
                if (const std::optional<int> layer = layer_of(module)) {
                    stage_of_layer.emplace(*layer, stage);
                }
            }
        }
        expect_all_layers(stage_of_layer);
        if (blocks_) {
            expect_ends(stage_of);
        }
    }

    void expect_all_layers(const std::map<int, std::size_t>& stage_of_layer) const {
        if (blocks_ && !stage_of_layer.empty() && stage_of_layer.rbegin()->first >= *blocks_) {
            const auto& [layer, stage] = *stage_of_layer.rbegin();
            refuse_modules(fmt::format("'layers.{}' is in stage {}, but the layers of {} are "
                                       "layers.0 to layers.{}",
                                       layer,
                                       stage,
                                       run_.model,
                                       *blocks_ - 1),
                           "take it out of the list");
        }
        const auto known = static_cast<int>(stage_of_layer.size());
        const int layers = blocks_ ? *blocks_ : std::max(1, known);
        std::size_t stage = 0;
        for (int layer = 0; layer < layers; ++layer) {
            const auto found = stage_of_layer.find(layer);
            if (found == stage_of_layer.end()) {
                refuse_modules(fmt::format("no stage has 'layers.{}'", layer),
                               "torchtitan leaves out what no stage names: add it to one");
            }
            if (found->second < stage) {
                refuse_modules(fmt::format("'layers.{}' is in stage {}, in front of 'layers.{}' "
                                           "in stage {}",
                                           layer,
                                           found->second,
                                           layer - 1,
                                           stage),
                               "torchtitan runs the stages in turn: put the layers in order");
            }
            stage = found->second;
        }
    }

    /// The modules around the layers of the models that are known here.
    void expect_ends(const std::map<std::string, std::size_t, std::less<>>& stage_of) const {
        const bool has_head = stage_of.contains("output") || stage_of.contains("lm_head");
        const std::string_view missing = !stage_of.contains("tok_embeddings") ? "tok_embeddings"
                                         : !stage_of.contains("norm")         ? "norm"
                                         : !has_head                          ? "output"
                                                                              : "";
        if (!missing.empty()) {
            refuse_modules(fmt::format("no stage has '{}'", missing),
                           fmt::format("torchtitan leaves out what no stage names: add it to the "
                                       "{} stage",
                                       missing == "tok_embeddings" ? "first" : "last"));
        }
    }

    /// torchtitan's own distribution: embedding and head count as layers, the first stages take
    /// what is left over.
    std::vector<int> shared_out(int stages, int less_first, int less_last) const {
        if (stages == 1) {
            return {*blocks_};
        }
        const std::int64_t all = std::int64_t{*blocks_} + less_first + less_last;
        const auto least = static_cast<int>(all / stages);  // of two stages or more
        if (least == 0 || less_first > least || less_last > least) {
            refuse("parallelism.pipeline_parallel_degree",
                   fmt::format("{}, and embedding and head as {} and {}, for {} stages",
                               counted(*blocks_, "layer"),
                               less_first,
                               less_last,
                               stages),
                   "torchtitan refuses this, too: take fewer stages");
        }
        std::vector<int> blocks(as_index(stages), least);
        for (int stage = 0; stage < all % stages; ++stage) {
            ++blocks[as_index(stage)];
        }
        blocks.front() -= less_first;
        blocks.back() -= less_last;
        return blocks;
    }

    void read_batch() {
        const std::optional<int> local = reader_.whole("training.local_batch_size", 1);
        const std::optional<int> older = reader_.whole("training.batch_size", 1);
        const int samples = local ? *local : older.value_or(8);
        const int replicas = read_replicas();
        run_.data_parallel = replicas;
        const std::int64_t pass = std::int64_t{samples} * replicas;
        if (pass > most_samples) {
            refuse("parallelism.data_parallel_replicate_degree",
                   fmt::format("{} samples of {} replicas are a batch of {}, expected at most {}",
                               samples,
                               replicas,
                               pass,
                               most_samples),
                   "is there a digit too many?");
        }
        run_.batch = static_cast<int>(pass);
        const int global = reader_.whole("training.global_batch_size", -1).value_or(-1);
        const int size =
            reader_.whole("parallelism.pipeline_parallel_microbatch_size", 1).value_or(1);
        if (*run_.stages == 1) {
            read_passes(global);
            return;
        }
        warn_of_open_degree("multiply training.batch");
        if (global > 0 && global != *run_.batch) {
            reader_.problem(
                "training.global_batch_size",
                fmt::format("is not the {} of one pass through the pipeline: passes are "
                            "repeated before an update",
                            counted(*run_.batch, "sample")));
        }
        if (samples % size != 0) {
            refuse(
                "parallelism.pipeline_parallel_microbatch_size",
                fmt::format(
                    "{} cannot be cut into micro-batches of {}", counted(samples, "sample"), size),
                "torchtitan refuses this, too");
        }
        run_.micro_batches = samples / size;
    }

    /// Without a pipeline a pass has the whole local batch, and passes are repeated until the
    /// global batch has been read.
    void read_passes(int global) {
        run_.micro_batches = 1;
        if (global <= 0) {
            warn_of_open_degree("multiply training.batch");
            return;
        }
        if (global % *run_.batch != 0) {
            refuse("training.global_batch_size",
                   fmt::format("{} {} no multiple of the {} of a pass",
                               counted(global, "sample"),
                               verb_for(global, "is", "are"),
                               *run_.batch),
                   "torchtitan refuses this, too");
        }
        run_.micro_batches = global / *run_.batch;
        run_.batch = global;
        warn_of_open_degree("divide pipeline.micro_batches");
    }

    /// Replicas of the pipeline, and what they share (torchtitan/distributed/fsdp.py).
    int read_replicas() {
        const int replicate =
            reader_.whole("parallelism.data_parallel_replicate_degree", 1).value_or(1);
        const int shard = reader_.whole("parallelism.data_parallel_shard_degree", -1).value_or(-1);
        const std::string policy =
            reader_.word("parallelism.fsdp_reshard_after_forward", {"default", "always", "never"})
                .value_or("default");
        if (shard == 1) {
            return replicate;
        }
        if (replicate > 1 && shard > 1) {
            reader_.problem("parallelism.data_parallel_replicate_degree",
                            "weights are shared in groups of replicas, and each group has all of "
                            "them (HSDP)");
        } else if (replicate > 1) {
            run_.warnings.push_back(fmt::format(
                "data_parallel_shard_degree = -1: devices that are left share the weights of each "
                "of the {} replicas (HSDP); the fragment has replicas that keep all of them",
                replicate));
            return replicate;
        }
        read_shares(policy);
        takes_all_devices_ = shard < 0;
        return std::max(shard, 1);
    }

    /// The file does not say how many devices there are.
    void warn_of_open_degree(std::string_view change) {
        if (takes_all_devices_) {
            run_.warnings.push_back(fmt::format(
                "data_parallel_shard_degree = -1: the devices that are left are the replicas, and "
                "the file does not say how many: set pipeline.data_parallel to their number, and "
                "{} by it",
                change));
        }
    }

    /// In a pipeline PyTorch sums the gradients behind the last micro-batch alone, and by default
    /// weights stay gathered until then (torch/distributed/pipelining/stage.py): what remains
    /// shared is the optimizer.
    void read_shares(const std::string& policy) {
        const bool in_pipeline = *run_.stages > 1;
        if (policy == "always") {
            run_.shard = "weights";
        } else if (in_pipeline) {
            run_.shard = "optimizer";
        } else {
            run_.shard = policy == "never" ? "gradients" : "weights";
        }
        if (in_pipeline && policy == "always") {
            run_.warnings.emplace_back(
                "parallelism.fsdp_reshard_after_forward = always: a pipeline of PyTorch's sums "
                "gradients once a step, behind the last micro-batch, and keeps them whole until "
                "then; the fragment's shard = \"weights\" sums them with every micro-batch, and so "
                "needs less memory than the run");
        }
    }

    void read_rest() {
        run_.tensor_parallel = reader_.whole("parallelism.tensor_parallel_degree", 1).value_or(1);
        // Plans of tensor parallelism divide the sequence, also between stages.
        run_.sequence_parallel =
            reader_.answer("parallelism.enable_sequence_parallel").value_or(true) &&
            *run_.tensor_parallel > 1;
        expect_one("parallelism.context_parallel_degree", "devices share the tokens of a sample");
        expect_one("parallelism.expert_parallel_degree", "replicas share the experts");
        expect_one("parallelism.expert_tensor_parallel_degree", "devices share each expert");
        if (reader_.answer("parallelism.enable_async_tensor_parallel").value_or(false)) {
            run_.warnings.emplace_back(
                "enable_async_tensor_parallel: the prediction adds the messages of tensor "
                "parallelism to the time of a layer; overlapped, a step is at most as long");
        }
        if (reader_.answer("training.enable_cpu_offload").value_or(false)) {
            reader_.problem("training.enable_cpu_offload", "weights are in host memory");
        }
        if (reader_.answer("fault_tolerance.enable").value_or(false)) {
            reader_.problem("fault_tolerance.enable", "replicas come and go");
        }
        read_recompute();
        const std::string mixed =
            reader_.text("training.mixed_precision_param").value_or("bfloat16");
        const std::string dtype = reader_.text("training.dtype").value_or("float32");
        run_.precision = mixed == "bfloat16" || dtype == "bfloat16" ? "bf16" : "fp32";
        const std::string optimizer = reader_.text("optimizer.name").value_or("AdamW");
        run_.optimizer = optimizer == "Adam" ? "adam" : "adamw";
        if (optimizer != "Adam" && optimizer != "AdamW") {
            reader_.problem("optimizer.name", "keeps another state than Adam");
        }
        run_.clip_norm = reader_.real("training.max_norm").value_or(1);
        if (run_.precision == "bf16") {
            run_.gradients = "fp32";  // training.mixed_precision_reduce has no other word
        }
        if (dtype == "bfloat16") {
            run_.gradients = "same";
            run_.warnings.emplace_back(
                "training.dtype = bfloat16: weights have no copies in fp32, and the optimizer's "
                "state has two bytes; the fragment's precision = \"bf16\" has both in fp32");
        }
    }

    void read_recompute() {
        const std::string mode =
            reader_
                .word("activation_checkpoint.mode", {"selective", "full", "none", "memory_budget"})
                .value_or("selective");
        const bool is_part =
            reader_.text("activation_checkpoint.selective_ac_option").value_or("2") == "op";
        run_.recompute = mode == "full" ? "block" : "none";
        run_.recompute_early_stop =
            reader_.answer("activation_checkpoint.early_stop").value_or(false) && mode == "full";
        if (mode == "memory_budget") {
            reader_.problem("activation_checkpoint.mode",
                            "the compiler chooses what is computed again");
        }
        if (mode != "selective") {
            return;
        }
        if (is_part) {
            run_.recompute = "selective";
            return;
        }
        const int every = reader_.whole("activation_checkpoint.selective_ac_option", 1).value_or(2);
        if (every == 1) {
            run_.recompute = "block";
            return;
        }
        run_.warnings.push_back(
            fmt::format("activation_checkpoint.mode = selective computes one block of every {} "
                        "again, which has no "
                        "word here: the fragment says recompute = \"none\", which keeps more and "
                        "computes nothing "
                        "again; \"block\" keeps less and computes every block again, so the run "
                        "lies between the "
                        "two",
                        every));
    }

    SettingReader reader_;
    bool warns_;
    std::optional<int> blocks_;
    bool takes_all_devices_ = false;  ///< as replicas: their number is not known
    TrainingRun run_;
};

}  // namespace

TrainingRun torchtitan_run(const LaunchFile& file, bool warns) {
    return TitanReader(file, warns).read();
}

}  // namespace pipetwin

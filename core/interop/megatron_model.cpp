// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_model.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/launch/setting_values.h"
#include "core/interop/launch/tokenizers.h"
#include "core/interop/megatron_layout.h"
#include "core/interop/megatron_memory.h"
#include "core/interop/megatron_shapes.h"

namespace pipetwin {

namespace {

[[noreturn]] void refuse_flags(ErrorKind kind,
                               std::string_view place,
                               std::string what,
                               std::string hint) {
    throw Error(kind, std::string(place), std::move(what), std::move(hint));
}

/// Megatron's default: 4 x width, or as many weights in three matrices, in multiples of 64.
int default_feed_forward(const MegatronFlags& flags) {
    const int width = *flags.hidden_size;
    return flags.gated ? static_cast<int>(std::int64_t{8} * width / 3 / 64 * 64) : 4 * width;
}

/// Layers that compute: --num-layers without those that stand for nothing.
int computing_layers(const MegatronFlags& flags, std::string_view place) {
    std::vector<int> empty = flags.empty_layers;
    std::ranges::sort(empty);
    const bool is_twice = std::ranges::adjacent_find(empty) != empty.end();
    if (is_twice || (!empty.empty() && empty.back() >= *flags.layers) ||
        static_cast<int>(empty.size()) >= *flags.layers) {
        refuse_flags(ErrorKind::BadInput,
                     place,
                     fmt::format("--noop-layers {}, but the layers are 0 to {}",
                                 fmt::join(flags.empty_layers, ","),
                                 *flags.layers - 1),
                     "name each of some layers once");
    }
    return *flags.layers - static_cast<int>(empty.size());
}

void add_experts(const MegatronFlags& flags, DecoderModel& model, std::string_view place) {
    if (flags.experts.value_or(0) == 0) {
        return;
    }
    ExpertShape& experts = model.experts;
    experts.count = *flags.experts;
    experts.per_token = flags.experts_per_token.value_or(2);
    experts.width = flags.expert_width.value_or(model.feed_forward);
    experts.shared_width = flags.shared_width.value_or(0);
    experts.shared_gate = flags.shared_gate && experts.shared_width > 0;
    experts.latent_width = flags.latent_experts.value_or(0);
    if (experts.per_token > experts.count) {
        refuse_flags(ErrorKind::BadInput,
                     place,
                     fmt::format("--moe-router-topk {} is more than --num-experts {}",
                                 experts.per_token,
                                 experts.count),
                     "a token goes through some of the experts; without the flag through 2");
    }
    model.has_experts = without_empty_layers(flags, megatron_expert_layers(flags, place));
}

/// Refuses more stages than any list of stages here holds.
int expect_few_stages(std::int64_t stages, std::string_view place) {
    if (stages > static_cast<std::int64_t>(largest_layout)) {
        refuse_flags(
            ErrorKind::BadInput,
            place,
            fmt::format("{} stages of the pipeline, expected at most {}", stages, largest_layout),
            "is there a digit too many in --pipeline-model-parallel-size or "
            "--num-virtual-stages-per-pipeline-rank?");
    }
    return static_cast<int>(stages);
}

std::string share(int layers, std::string_view of, int parts, std::string_view parts_name) {
    return fmt::format("{} {} cannot be shared out to {} {}", of, layers, parts, parts_name);
}

/// The list of --num-layer-list, one number for each rank; MindSpeed takes nothing else beside it.
const std::vector<int>& listed_layers(const MegatronFlags& flags,
                                      int ranks,
                                      std::string_view place) {
    const std::vector<int>& list = flags.rank_layers;
    if (flags.virtual_stages || flags.virtual_stage_layers || flags.first_layers ||
        flags.last_layers || flags.account_for_embedding || flags.account_for_loss ||
        !flags.empty_layers.empty()) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     "--num-layer-list beside another flag that splits the model",
                     "MindSpeed takes one of them: keep the list, or the others");
    }
    const std::int64_t layers = std::accumulate(list.begin(), list.end(), std::int64_t{0});
    if (list.size() != as_index(ranks) || layers != *flags.layers) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     fmt::format("--num-layer-list has {} and {}, but there are {} and "
                                 "--num-layers {}",
                                 counted(list.size(), "number"),
                                 counted(layers, "layer"),
                                 counted(ranks, "rank"),
                                 *flags.layers),
                     "it has a number for each rank, which sum up to --num-layers");
    }
    return list;
}

/// Layers of every rank, embedding and loss counted where the flags say so.
std::vector<int> layers_of_ranks(const MegatronFlags& flags, int ranks, std::string_view place) {
    if (!flags.rank_layers.empty()) {
        return listed_layers(flags, ranks, place);
    }
    const int layers = *flags.layers;
    if (!flags.first_layers && !flags.last_layers) {
        const int all =
            layers + (flags.account_for_embedding ? 1 : 0) + (flags.account_for_loss ? 1 : 0);
        if (all % ranks != 0) {
            refuse_flags(
                ErrorKind::Infeasible,
                place,
                share(layers, "--num-layers", ranks, "stages") +
                    (all == layers ? ""
                                   : fmt::format(", with embedding and loss as {} layers", all)),
                "give a multiple, or --decoder-first-pipeline-num-layers and "
                "--decoder-last-pipeline-num-layers, or --pipeline-model-parallel-layout");
        }
        return std::vector<int>(as_index(ranks), all / ranks);
    }
    int left = layers;
    int stages = ranks;
    for (const std::optional<int>& end : {flags.first_layers, flags.last_layers}) {
        left -= end.value_or(0);
        stages -= end ? 1 : 0;
    }
    const bool fits = stages < 0 || left < 0 ? false
                      : stages == 0          ? left == 0
                                             : left >= stages && left % stages == 0;
    if (!fits) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     fmt::format("--num-layers {} less {} on the first and {} on the last stage "
                                 "leaves {} for {} between, expected a multiple",
                                 layers,
                                 flags.first_layers ? std::to_string(*flags.first_layers) : "none",
                                 flags.last_layers ? std::to_string(*flags.last_layers) : "none",
                                 left,
                                 counted(stages, "stage")),
                     "Megatron gives the stages between equally many layers each");
    }
    std::vector<int> of_ranks(as_index(ranks), stages > 0 ? left / stages : 0);
    of_ranks.front() = flags.first_layers.value_or(of_ranks.front());
    of_ranks.back() = flags.last_layers.value_or(of_ranks.back());
    return of_ranks;
}

}  // namespace

std::vector<std::string_view> missing_sizes(const MegatronFlags& flags) {
    std::vector<std::string_view> missing;
    for (const auto& [words, size] :
         {std::pair{"the number of layers", &MegatronFlags::layers},
          std::pair{"the hidden size", &MegatronFlags::hidden_size},
          std::pair{"the number of attention heads", &MegatronFlags::heads},
          std::pair{"the sequence length", &MegatronFlags::sequence}}) {
        if (!(flags.*size)) {
            missing.emplace_back(words);
        }
    }
    return missing;
}

std::optional<int> padded_vocabulary(const MegatronFlags& flags) {
    if (flags.padded_vocabulary) {
        return flags.padded_vocabulary;
    }
    std::optional<int> given = flags.vocabulary;
    if (!given) {
        given = tokenizer_words(flags.tokenizer.value_or(""));
    }
    if (!given) {
        given = tokenizer_words(flags.tokenizer_model.value_or(""));
    }
    if (!given) {
        return std::nullopt;
    }
    // Until April 2026 the tokenizer for ready numbers added one that ends a text.
    const bool adds_end = flags.tokenizer == "NullTokenizer" && !flags.ends_inside;
    const int words = *given + flags.extra_vocabulary.value_or(0) + (adds_end ? 1 : 0);
    const int multiple = flags.vocabulary_divisor.value_or(128) * flags.tensor_size.value_or(1);
    return (words + multiple - 1) / multiple * multiple;
}

DecoderModel megatron_model(const MegatronFlags& flags, std::string_view place) {
    PIPETWIN_EXPECT(missing_sizes(flags).empty(), "a model of which sizes are missing");
    DecoderModel model{.family = "megatron"};
    model.blocks = computing_layers(flags, place);
    model.width = *flags.hidden_size;
    model.vocabulary = padded_vocabulary(flags).value_or(1);
    model.context = flags.positions.value_or(*flags.sequence);
    if (model.context < *flags.sequence) {
        refuse_flags(ErrorKind::BadInput,
                     place,
                     fmt::format("--max-position-embeddings {} is less than --seq-length {}",
                                 model.context,
                                 *flags.sequence),
                     "Megatron refuses this, too");
    }
    model.learned_positions = flags.no_positions ? 0 : model.context;
    model.feed_forward = flags.feed_forward.value_or(default_feed_forward(flags));
    if (model.feed_forward < 1) {
        refuse_flags(ErrorKind::BadInput,
                     place,
                     fmt::format("--hidden-size {} is too narrow for --swiglu", model.width),
                     "give the inner width with --ffn-hidden-size");
    }
    model.gated = flags.gated;
    model.feed_forward_bias = !flags.no_bias;
    model.norm_bias = !flags.rms_norm;
    model.tied = !flags.untied;
    model.dropout = flags.hidden_dropout.value_or(0.1) > 0;
    set_megatron_attention(flags, model, place);
    add_experts(flags, model, place);
    model.prediction_blocks = model.further_blocks = flags.prediction_layers.value_or(0);
    if (has_halves(flags)) {
        set_halves(flags, model, place);
    }
    model.adapters = megatron_adapters(flags, model, place);
    model.precision = flags.bf16 ? "bf16" : flags.fp16 ? "fp16" : "fp32";
    return model;
}

std::string more_than_gpt(const MegatronFlags& flags, const DecoderModel& model) {
    const AttentionShape& shape = model.attention;
    const std::array<std::pair<bool, std::string_view>, 21> reasons{{
        {flags.adapters, "adapters that are trained in place of the weights"},
        {has_halves(flags), "layers that are halves: state spaces and attention"},
        {shape.linear.has_value(), "linear attention"},
        {shape.gated, "a gate behind attention"},
        {shape.sinks, "numbers beside the scores of each head"},
        {flags.gated, "a gated inner layer: three matrices in place of two"},
        {flags.squared_relu, "squared ReLU: another activation"},
        {flags.rms_norm, "RMSNorm: norms without a bias"},
        {flags.no_bias, "matrices without a bias"},
        {flags.no_positions, "positions that are not learned"},
        {model.learned_positions > *flags.sequence, "more positions than a sample has tokens"},
        {flags.latent, "latent attention: keys and values out of narrow rows"},
        {shape.key_value_heads != shape.heads, "grouped queries: fewer keys and values"},
        {shape.key_width * shape.heads != model.width, "heads of another width"},
        {flags.head_norms, "norms of queries and keys"},
        {shape.window > 0, "attention that sees less than a sample"},
        {model.experts.count > 0, "experts"},
        {model.prediction_blocks > 0, "layers that predict further tokens"},
        {flags.fp8, "products in 8 bits"},
        {flags.context_size.value_or(1) > 1, "devices that share a sample's tokens"},
        {flags.recompute_selective, "selective recompute: core attention has costs of its own"},
    }};
    const auto* const found =
        std::ranges::find(reasons, true, &std::pair<bool, std::string_view>::first);
    return found == reasons.end() ? std::string() : std::string(found->second);
}

int megatron_chunks(const MegatronFlags& flags, int ranks, std::string_view place) {
    expect_few_stages(std::int64_t{ranks} * flags.virtual_stages.value_or(1), place);
    if (flags.layout) {
        const auto stages = static_cast<int>(flags.layout->stages.size());
        if (stages % ranks != 0) {
            refuse_flags(
                ErrorKind::Infeasible,
                place,
                fmt::format(
                    "a layout of {} on {}", counted(stages, "stage"), counted(ranks, "rank")),
                "its stages have to be a multiple of --pipeline-model-parallel-size");
        }
        return stages / ranks;
    }
    if (flags.virtual_stages && flags.virtual_stage_layers) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     "--num-layers-per-virtual-pipeline-stage beside "
                     "--num-virtual-stages-per-pipeline-rank, expected one of them",
                     "Megatron refuses both at once, too");
    }
    if (flags.virtual_stages) {
        return *flags.virtual_stages;
    }
    if (!flags.virtual_stage_layers) {
        return 1;
    }
    if (flags.first_layers || flags.last_layers) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     "--num-layers-per-virtual-pipeline-stage beside a first or last stage of its "
                     "own size",
                     "Megatron asks for --num-virtual-stages-per-pipeline-rank then");
    }
    const std::int64_t all = std::int64_t{flags.layers.value_or(0)} +
                             (flags.account_for_embedding ? 1 : 0) +
                             (flags.account_for_loss ? 1 : 0);
    const std::int64_t round = std::int64_t{ranks} * *flags.virtual_stage_layers;
    if (!flags.layers || all % round != 0) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     fmt::format("--num-layers-per-virtual-pipeline-stage {} on {} needs "
                                 "--num-layers, a multiple of {}{}",
                                 *flags.virtual_stage_layers,
                                 counted(ranks, "rank"),
                                 round,
                                 all == flags.layers.value_or(0) ? "" : " with embedding and loss"),
                     "");
    }
    return static_cast<int>(all / round);
}

namespace {

/// Whether each group of micro-batches has one for every rank, the last one included.
bool fills_all_groups(std::int64_t micro_batches, std::int64_t group, int ranks) {
    const std::int64_t last = micro_batches % group;
    return last == 0 || last >= ranks;
}

/// The smallest group that Megatron takes; there are as many micro-batches as ranks, or more.
std::int64_t smallest_group(std::int64_t micro_batches, int ranks) {
    std::int64_t group = ranks;
    while (group < micro_batches && !fills_all_groups(micro_batches, group, ranks)) {
        ++group;
    }
    return group;
}

}  // namespace

void check_group_size(const MegatronFlags& flags,
                      int ranks,
                      int chunks,
                      std::optional<std::int64_t> micro_batches,
                      std::string_view place) {
    if (!flags.group_size || chunks == 1) {
        return;
    }
    const int group = *flags.group_size;
    const auto refuse_group = [&](std::string_view why) {
        const std::string hint =
            micro_batches.value_or(ranks) < ranks
                ? fmt::format("no group fits: take {} micro-batches or more, or fewer ranks", ranks)
                : fmt::format(
                      "Megatron takes --microbatch-group-size-per-virtual-pipeline-stage {}",
                      micro_batches ? smallest_group(*micro_batches, ranks) : ranks);
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     fmt::format("--microbatch-group-size-per-virtual-pipeline-stage {} {}, which "
                                 "Megatron refuses",
                                 group,
                                 why),
                     hint);
    };
    if (group < ranks) {
        refuse_group(fmt::format("is less than --pipeline-model-parallel-size {}", ranks));
    }
    if (micro_batches && group > *micro_batches) {
        refuse_group(fmt::format("is more than the {} of a pipeline in a step",
                                 counted(*micro_batches, "micro-batch")));
    }
    if (micro_batches && !fills_all_groups(*micro_batches, group, ranks)) {
        refuse_group(
            fmt::format("leaves a last group of {} of {} micro-batches, fewer than the {} "
                        "ranks",
                        *micro_batches % group,
                        *micro_batches,
                        ranks));
    }
}

namespace {

/// Takes the empty layers out of the stages, which have equally many layers with them.
void take_empty_layers(const MegatronFlags& flags,
                       std::vector<int>& blocks,
                       std::string_view place) {
    if (flags.empty_layers.empty()) {
        return;
    }
    if (flags.account_for_embedding || flags.account_for_loss) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     "--noop-layers beside --account-for-embedding-in-pipeline-split or "
                     "--account-for-loss-in-pipeline-split",
                     "keep one of the two ways");
    }
    computing_layers(flags, place);  // refuses numbers that are no layers
    int layer = 0;
    for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
        const int end = layer + blocks[stage];
        for (; layer < end; ++layer) {
            blocks[stage] -= is_empty_layer(flags, layer) ? 1 : 0;
        }
        if (blocks[stage] == 0 && stage > 0 && stage + 1 < blocks.size()) {
            refuse_flags(ErrorKind::Infeasible,
                         place,
                         fmt::format("--noop-layers leaves stage {} no layer", stage),
                         "every stage of a scenario has one");
        }
    }
}

}  // namespace

std::vector<int> megatron_blocks(const MegatronFlags& flags,
                                 int ranks,
                                 int chunks,
                                 std::string_view place) {
    if (!flags.layers) {
        return {};
    }
    const int stages = expect_few_stages(std::int64_t{ranks} * chunks, place);
    const bool has_ends = flags.first_layers || flags.last_layers;
    if (has_ends && (flags.account_for_embedding || flags.account_for_loss)) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     "a first or last stage of its own size beside "
                     "--account-for-embedding-in-pipeline-split or "
                     "--account-for-loss-in-pipeline-split",
                     "Megatron refuses both at once, too: keep one of the two ways");
    }
    const std::vector<int> of_ranks = layers_of_ranks(flags, ranks, place);
    std::vector<int> blocks;
    for (int chunk = 0; chunk < chunks; ++chunk) {
        for (int rank = 0; rank < ranks; ++rank) {
            const int layers = of_ranks[as_index(rank)];
            if (layers % chunks != 0) {
                refuse_flags(ErrorKind::Infeasible,
                             place,
                             has_ends ? share(layers, "the layers of a rank,", chunks, "chunks")
                                      : share(*flags.layers, "--num-layers", stages, "stages"),
                             "give a multiple, or --pipeline-model-parallel-layout");
            }
            blocks.push_back(layers / chunks);
        }
    }
    take_empty_layers(flags, blocks, place);
    blocks.front() -= flags.account_for_embedding ? 1 : 0;
    blocks.back() -= flags.account_for_loss ? 1 : 0;
    const auto empty =
        std::find_if(blocks.begin(), blocks.end(), [](int layers) { return layers < 0; });
    if (empty != blocks.end()) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     "embedding and loss count as more layers than the one stage has",
                     "leave out --account-for-embedding-in-pipeline-split or give more layers");
    }
    return blocks;
}

void check_layout(const MegatronFlags& flags, std::string_view place) {
    if (!flags.layout) {
        return;
    }
    const bool splits_otherwise = flags.virtual_stages || flags.virtual_stage_layers ||
                                  flags.first_layers || flags.last_layers ||
                                  flags.account_for_embedding || flags.account_for_loss ||
                                  !flags.rank_layers.empty() || !flags.empty_layers.empty();
    if (splits_otherwise) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     "--pipeline-model-parallel-layout beside another flag that splits the model",
                     "the layout says all: leave out --num-layers-per-virtual-pipeline-stage, "
                     "--num-virtual-stages-per-pipeline-rank, --decoder-...-num-layers, "
                     "--account-for-..., --num-layer-list and --noop-layers");
    }
    int decoder_layers = 0;
    int prediction_layers = 0;
    for (const std::string& stage : flags.layout->stages) {
        decoder_layers += static_cast<int>(std::ranges::count(stage, 't'));
        prediction_layers += static_cast<int>(std::ranges::count(stage, 'm'));
    }
    if (flags.layers && decoder_layers != *flags.layers) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     fmt::format("the layout has {} t, but --num-layers is {}",
                                 counted(decoder_layers, "layer"),
                                 *flags.layers),
                     "Megatron refuses this, too");
    }
    if (prediction_layers != flags.prediction_layers.value_or(0)) {
        refuse_flags(ErrorKind::Infeasible,
                     place,
                     fmt::format("the layout has {} m, but --mtp-num-layers is {}",
                                 counted(prediction_layers, "layer"),
                                 flags.prediction_layers.value_or(0)),
                     "Megatron refuses this, too");
    }
}

CoreAttention megatron_attention(const MegatronFlags& flags) {
    const std::string backend = flags.attention_backend.value_or("auto");
    if (backend == "unfused" || backend == "local") {
        return {.is_standard = true,
                .reason = fmt::format("--attention-backend {}", *flags.attention_backend)};
    }
    if (backend == "flash" || backend == "fused") {
        return {};
    }
    if (flags.forbids_fused_attention) {
        return {.is_standard = true, .reason = "NVTE_FLASH_ATTN=0 and NVTE_FUSED_ATTN=0"};
    }
    if (flags.flash_attention || flags.transformer_kernels == "transformer_engine") {
        return {};
    }
    if (flags.transformer_kernels == "local") {
        return {.is_standard = true, .reason = "--transformer-impl local without --use-flash-attn"};
    }
    if (flags.legacy_models) {
        return {.is_standard = true, .reason = "--use-legacy-models without --use-flash-attn"};
    }
    if (flags.is_before_core_models) {
        return {.is_standard = true,
                .reason = "flags of before June 2024, and no --use-flash-attn among them"};
    }
    return {.reason = flags.is_after_core_models
                          ? std::string()
                          : "neither --attention-backend nor --use-flash-attn",
            .is_certain = flags.is_after_core_models || flags.attention_backend.has_value()};
}

}  // namespace pipetwin

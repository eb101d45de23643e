// SPDX-License-Identifier: Apache-2.0
#include "core/interop/megatron_shapes.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/interop/launch/setting_values.h"
#include "core/interop/megatron_memory.h"

namespace pipetwin {

namespace {

[[noreturn]] void refuse_shape(std::string_view place, std::string what, std::string hint) {
    throw Error(ErrorKind::BadInput, std::string(place), std::move(what), std::move(hint));
}

/// "([0]*3+[1]*58)", as Python computes it: lists of 0 and 1, sums, and products with a number.
class LayerPattern {
  public:
    LayerPattern(std::string_view text, std::size_t most) : text_(text), most_(most) {}

    /// The list; none for a text that is no such formula, or a list longer than `most`.
    std::optional<std::vector<int>> list() {
        std::optional<Value> value = sum();
        skip();
        const bool is_list = value && at_ == text_.size() && !value->is_number;
        return is_list ? std::optional(std::move(value->list)) : std::nullopt;
    }

  private:
    struct Value {
        std::vector<int> list{};
        bool is_number = false;
        int number = 0;
    };

    void skip() {
        while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '"')) {
            ++at_;
        }
    }

    bool take(char c) {
        skip();
        const bool is_there = at_ < text_.size() && text_[at_] == c;
        at_ += is_there ? 1 : 0;
        return is_there;
    }

    std::optional<Value> sum() {
        std::optional<Value> result = product();
        while (result && take('+')) {
            const std::optional<Value> more = product();
            if (!more || more->is_number || result->is_number ||
                result->list.size() + more->list.size() > most_) {
                return std::nullopt;
            }
            result->list.insert(result->list.end(), more->list.begin(), more->list.end());
        }
        return result;
    }

    std::optional<Value> product() {
        std::optional<Value> result = factor();
        while (result && take('*')) {
            std::optional<Value> other = factor();
            if (!other || other->is_number == result->is_number) {
                return std::nullopt;
            }
            const Value& list = result->is_number ? *other : *result;
            const int times = result->is_number ? result->number : other->number;
            if (times < 0 || as_index(times) > most_ ||
                list.list.size() * as_index(times) > most_) {
                return std::nullopt;
            }
            Value repeated;
            for (int i = 0; i < times && !list.list.empty(); ++i) {
                repeated.list.insert(repeated.list.end(), list.list.begin(), list.list.end());
            }
            result = std::move(repeated);
        }
        return result;
    }

    std::optional<int> number() {
        skip();
        int value = 0;
        const char* const end = text_.data() + text_.size();
        const auto [rest, status] = std::from_chars(text_.data() + at_, end, value);
        at_ = static_cast<std::size_t>(rest - text_.data());
        return status == std::errc{} && value >= 0 ? std::optional(value) : std::nullopt;
    }

    std::optional<Value> factor() {
        if (take('(')) {
            if (++depth_ > 64) {
                return std::nullopt;
            }
            std::optional<Value> inside = sum();
            --depth_;
            return take(')') ? inside : std::nullopt;
        }
        if (!take('[')) {
            const std::optional<int> value = number();
            return value ? std::optional(Value{.is_number = true, .number = *value}) : std::nullopt;
        }
        Value value;
        while (!take(']')) {
            const std::optional<int> entry = number();
            if (!entry || *entry > 1 || value.list.size() == most_) {
                return std::nullopt;
            }
            value.list.push_back(*entry);
            take(',');
        }
        return value;
    }

    std::string_view text_;
    std::size_t most_;
    std::size_t at_ = 0;
    int depth_ = 0;
};

AttentionShape attention_of(const MegatronFlags& flags, std::string_view place) {
    AttentionShape shape;
    const int width = *flags.hidden_size;
    shape.heads = *flags.heads;
    shape.key_value_heads = flags.grouped ? flags.query_groups.value_or(1) : shape.heads;
    if (shape.heads % shape.key_value_heads != 0) {
        refuse_shape(place,
                     fmt::format("--num-query-groups {} does not divide --num-attention-heads {}",
                                 shape.key_value_heads,
                                 shape.heads),
                     "equal groups of heads share keys and values");
    }
    if (!flags.head_width && width % shape.heads != 0) {
        refuse_shape(
            place,
            fmt::format(
                "--num-attention-heads {} does not divide --hidden-size {}", shape.heads, width),
            "or give the width of a head with --kv-channels");
    }
    shape.key_width = flags.head_width.value_or(width / shape.heads);
    shape.value_width = shape.key_width;
    shape.input_bias = !flags.no_bias || flags.query_bias;
    shape.output_bias = !flags.no_bias;
    shape.head_norms = flags.head_norms;
    shape.window = flags.window ? *flags.window + 1 : 0;
    if (flags.latent) {
        LatentShape latent;
        latent.query_rank = flags.query_rank.value_or(0);
        latent.key_value_rank = flags.key_value_rank.value_or(32);
        latent.rotary_width = flags.rotary_width.value_or(64);
        shape.key_value_heads = shape.heads;
        shape.key_width = flags.key_width.value_or(128) + latent.rotary_width;
        shape.value_width = flags.value_width.value_or(128);
        // Biases of matrices between narrow rows are none of this shape; Megatron has none there.
        shape.input_bias = false;
        shape.head_norms = false;
        shape.latent = latent;
    }
    return shape;
}

/// Blocks that a flag names: of a number N all but each N-th, of a list those with a 1.
std::vector<bool> listed_blocks(const MegatronFlags& flags,
                                std::string_view flag,
                                const std::string& pattern,
                                std::string_view place) {
    const std::size_t layers = as_index(*flags.layers);
    std::vector<bool> blocks(layers);
    if (const int every = whole_in(pattern).value_or(0); every > 0) {
        for (std::size_t block = 0; block < layers; ++block) {
            blocks[block] = (block + 1) % as_index(every) != 0;
        }
        return blocks;
    }
    const std::optional<std::vector<int>> list = LayerPattern(pattern, layers).list();
    if (!list || list->size() != layers) {
        refuse_shape(place,
                     fmt::format("{} '{}', expected a number, or a list of {} times 0 or 1",
                                 flag,
                                 std::string_view(pattern).substr(0, 60),
                                 layers),
                     fmt::format("for example \"([1]*{}+[0])\"", layers - 1));
    }
    std::transform(
        list->begin(), list->end(), blocks.begin(), [](int entry) { return entry == 1; });
    return blocks;
}

/// A size that Megatron-LM has no default for.
int needed(std::optional<int> size, std::string_view flag, std::string_view place) {
    if (!size) {
        refuse_shape(place,
                     fmt::format("--experimental-attention-variant dsa without {}", flag),
                     "Megatron refuses this, too");
    }
    return *size;
}

/// Defaults: megatron/core/transformer/transformer_config.py.
LinearAttentionShape linear_of(const MegatronFlags& flags, std::string_view place) {
    const LinearAttentionShape linear{.key_heads = flags.linear_key_heads.value_or(16),
                                      .key_width = flags.linear_key_width.value_or(128),
                                      .value_heads = flags.linear_value_heads.value_or(32),
                                      .value_width = flags.linear_value_width.value_or(128),
                                      .convolution = flags.linear_convolution.value_or(4)};
    if (linear.value_heads % linear.key_heads != 0) {
        refuse_shape(place,
                     fmt::format("--linear-num-value-heads {} is no multiple of "
                                 "--linear-num-key-heads {}",
                                 linear.value_heads,
                                 linear.key_heads),
                     "Megatron refuses this, too");
    }
    return linear;
}

void set_variant(const MegatronFlags& flags, DecoderModel& model, std::string_view place) {
    AttentionShape& shape = model.attention;
    if (flags.attention_variant == "gated_delta_net") {
        if (!flags.linear_pattern) {
            refuse_shape(place,
                         "--experimental-attention-variant gated_delta_net without "
                         "--linear-attention-freq",
                         "Megatron refuses this, too");
        }
        shape.linear = linear_of(flags, place);
        shape.linear_blocks = without_empty_layers(
            flags, listed_blocks(flags, "--linear-attention-freq", *flags.linear_pattern, place));
    }
    if (flags.attention_variant == "dsa") {
        if (!shape.latent) {
            refuse_shape(place,
                         "--experimental-attention-variant dsa without --multi-latent-attention",
                         "Megatron refuses this, too");
        }
        shape.latent->indexer =
            IndexerShape{.heads = needed(flags.indexer_heads, "--dsa-indexer-n-heads", place),
                         .width = needed(flags.indexer_width, "--dsa-indexer-head-dim", place),
                         .keys = needed(flags.indexer_keys, "--dsa-indexer-topk", place)};
    }
}

}  // namespace

bool is_empty_layer(const MegatronFlags& flags, int layer) {
    return std::ranges::find(flags.empty_layers, layer) != flags.empty_layers.end();
}

std::vector<bool> without_empty_layers(const MegatronFlags& flags, const std::vector<bool>& all) {
    std::vector<bool> kept;
    for (std::size_t layer = 0; layer < all.size(); ++layer) {
        if (!is_empty_layer(flags, static_cast<int>(layer))) {
            kept.push_back(all[layer]);
        }
    }
    return kept;
}

std::vector<bool> megatron_expert_layers(const MegatronFlags& flags, std::string_view place) {
    const std::size_t layers = as_index(*flags.layers);
    const std::string pattern = flags.expert_pattern.value_or("1");
    const int every = whole_in(pattern).value_or(0);
    std::vector<bool> blocks(layers);
    if (every > 0) {
        for (std::size_t block = 0; block < layers; ++block) {
            blocks[block] = block % as_index(every) == 0;
        }
        return blocks;
    }
    const std::optional<std::vector<int>> list = LayerPattern(pattern, layers).list();
    if (!list || list->size() != layers) {
        refuse_shape(
            place,
            fmt::format("--moe-layer-freq '{}', expected a number, or a list of {} times 0 "
                        "or 1",
                        std::string_view(pattern).substr(0, 60),
                        layers),
            fmt::format("for example \"([0]*1+[1]*{})\"", layers - 1));
    }
    std::transform(
        list->begin(), list->end(), blocks.begin(), [](int entry) { return entry == 1; });
    return blocks;
}

void set_megatron_attention(const MegatronFlags& flags,
                            DecoderModel& model,
                            std::string_view place) {
    model.attention = attention_of(flags, place);
    model.attention.gated = flags.output_gate;
    model.attention.sinks = flags.sinks;
    if (flags.window && flags.window_pattern) {
        model.attention.window_blocks = without_empty_layers(
            flags, listed_blocks(flags, "--window-attn-skip-freq", *flags.window_pattern, place));
    }
    set_variant(flags, model, place);
}

// --- Adapters. ---

namespace {

constexpr std::array<std::pair<std::string_view, bool AdapterShape::*>, 4> adapted_products{
    {{"linear_qkv", &AdapterShape::inputs},
     {"linear_proj", &AdapterShape::outputs},
     {"linear_fc1", &AdapterShape::inner},
     {"linear_fc2", &AdapterShape::outer}}};

/// Whether embedding and head are trained beside the adapters.
bool trains_ends(const MegatronFlags& flags, std::string_view place) {
    std::vector<std::string> modules = flags.trained_modules;
    std::ranges::sort(modules);
    const bool are_ends = modules == std::vector<std::string>{"output_layer", "word_embeddings"};
    if (!modules.empty() && !are_ends) {
        refuse_shape(place,
                     fmt::format("--modules_to_save {}, expected word_embeddings and output_layer",
                                 fmt::join(flags.trained_modules, " ")),
                     "the costs have both ends trained or none");
    }
    return are_ends;
}

/// What has no costs beside adapters; empty: nothing.
std::string_view without_adapters(const MegatronFlags& flags, const DecoderModel& model) {
    const Shard shard = megatron_shard(flags);
    return has_halves(flags) || model.attention.latent || model.attention.linear
               ? "such attention has costs without them alone"
           : model.tied ? "a table that embedding and head share is trained with both"
           : model.prediction_blocks > 0
               ? "layers that predict further tokens have costs without them alone"
           : shard == Shard::Weights || shard == Shard::Gradients
               ? "weights that are not trained would have to be gathered, too"
               : "";
}

}  // namespace

std::optional<AdapterShape> megatron_adapters(const MegatronFlags& flags,
                                              const DecoderModel& model,
                                              std::string_view place) {
    if (!flags.adapters) {
        return std::nullopt;
    }
    if (const std::string_view why = without_adapters(flags, model); !why.empty()) {
        refuse_shape(place,
                     fmt::format("--tuner_type lora: adapters are trained: {}", why),
                     "train all weights: --tuner_type full");
    }
    AdapterShape adapters{.rank = flags.adapter_rank.value_or(8),
                          .dropout = flags.adapter_dropout.value_or(0.05) > 0,
                          .ends = trains_ends(flags, place)};
    const bool are_all = flags.adapter_targets.empty() ||
                         flags.adapter_targets == std::vector<std::string>{"all-linear"};
    for (const auto& [word, member] : adapted_products) {
        adapters.*member = are_all || std::ranges::count(flags.adapter_targets, word) > 0;
    }
    for (const std::string& target : flags.adapter_targets) {
        const bool is_known =
            are_all ||
            std::ranges::count(adapted_products,
                               target,
                               &std::pair<std::string_view, bool AdapterShape::*>::first) > 0;
        if (!is_known) {
            refuse_shape(place,
                         fmt::format("--target_modules {}, expected all-linear, linear_qkv, "
                                     "linear_proj, linear_fc1 or linear_fc2",
                                     target),
                         "adapters beside other products have no costs here");
        }
    }
    return adapters;
}

// --- Blocks that are halves. ---

namespace {

constexpr std::string_view half_letters_of_megatron = "M*-E";

/// The symbols in front of those that predict further tokens, with the bounds of stages.
std::string_view main_letters(std::string_view pattern) {
    return pattern.substr(0, pattern.find('/'));
}

/// The symbols of each block that predicts a further token; empty: there is none.
std::string_view prediction_letters(std::string_view pattern) {
    const std::size_t begin = std::min(pattern.find('/'), pattern.size());
    pattern.remove_prefix(std::min(begin + 1, pattern.size()));
    return pattern.substr(0, pattern.find('/'));
}

/// Attention layers stand evenly among the others, and so do feed-forward halves among the state
/// spaces that are left.
std::string letters_of_ratios(int layers, double attention, double feed_forward) {
    const auto rounded = [layers](double ratio) {  // half to even, as Python rounds
        return static_cast<int>(std::nearbyint(layers * ratio));
    };
    std::string symbols(as_index(layers), 'M');
    const int attentions = std::min(layers, rounded(attention));
    const double section = static_cast<double>(layers - attentions) / (attentions + 1);
    double left = section;
    for (char& letter : symbols) {
        const bool is_next = left < 0.5;
        letter = is_next ? '*' : letter;
        left += is_next ? section : -1;
    }
    const int halves = rounded(feed_forward);
    if (halves == 0) {
        return symbols;
    }
    const double ratio = static_cast<double>(layers - attentions - halves) / halves;
    left = ratio;
    for (char& letter : symbols) {
        if (letter != 'M') {
            continue;
        }
        const bool is_next = left < 0.5;
        letter = is_next ? '-' : letter;
        left += is_next ? ratio : -1;
    }
    return symbols;
}

void expect_letters(std::string_view pattern, std::string_view place) {
    for (const char letter : pattern) {
        const bool is_known = half_letters_of_megatron.find(letter) != std::string_view::npos ||
                              letter == '|' || letter == '/';
        if (!is_known) {
            refuse_shape(place,
                         fmt::format("--hybrid-layer-pattern has the letter {}, expected M, *, -, "
                                     "E, | or /",
                                     letter),
                         "other layers have no costs here: G, gated delta rules by themselves, D, "
                         "an indexer, and +, latent attention");
        }
    }
}

/// The stages between the bars of a pattern.
MegatronLayout layout_of_letters(std::string_view symbols, int predictions) {
    MegatronLayout layout{.stages = {"E"}};
    for (const char letter : symbols) {
        if (letter == '|') {
            layout.stages.emplace_back();
        } else {
            layout.stages.back() += 't';
        }
    }
    layout.stages.back() += std::string(as_index(predictions), 'm') + "L";
    return layout;
}

}  // namespace

bool has_halves(const MegatronFlags& flags) {
    return flags.state_spaces || flags.hybrid_pattern ||
           flags.attention_ratio.value_or(0) + flags.feed_forward_ratio.value_or(0) > 0;
}

void settle_halves(MegatronFlags& flags, std::string_view place) {
    if (!has_halves(flags)) {
        return;
    }
    if (!flags.hybrid_pattern) {
        const double attention = flags.attention_ratio.value_or(0);
        const double feed_forward = flags.feed_forward_ratio.value_or(0);
        if (!flags.layers || attention + feed_forward > 1) {
            refuse_shape(place,
                         flags.layers ? "--hybrid-attention-ratio and --hybrid-mlp-ratio above 1"
                                      : "a model with state spaces without --num-layers",
                         "Megatron refuses this, too");
        }
        flags.hybrid_pattern = letters_of_ratios(*flags.layers, attention, feed_forward);
    }
    const std::string_view pattern = *flags.hybrid_pattern;
    expect_letters(pattern, place);
    const std::string_view symbols = main_letters(pattern);
    const auto bars = static_cast<int>(std::ranges::count(symbols, '|'));
    const int layers = static_cast<int>(symbols.size()) - bars;
    if (layers == 0) {
        refuse_shape(place, "--hybrid-layer-pattern without a layer", "M is Mamba-2, * attention");
    }
    flags.layers = layers;
    if (!prediction_letters(pattern).empty()) {
        flags.prediction_layers = static_cast<int>(std::ranges::count(pattern, '/'));
    }
    if (bars > 0) {
        flags.layout = layout_of_letters(symbols, flags.prediction_layers.value_or(0));
    }
}

namespace {

MambaShape mamba_of(const MegatronFlags& flags, std::string_view place) {
    constexpr int expansion = 2;
    MambaShape mamba{.width = flags.mamba_width.value_or(64),
                     .state = flags.mamba_state.value_or(128),
                     .groups = flags.mamba_groups.value_or(8),
                     .convolution = 4,
                     .chunk = 128,
                     .convolution_bias = true};
    mamba.heads = flags.mamba_heads.value_or(expansion * *flags.hidden_size / mamba.width);
    if (mamba.heads < 1 || mamba.heads % mamba.groups != 0) {
        refuse_shape(place,
                     fmt::format("{} of a state space are no multiple of --mamba-num-groups {}",
                                 counted(mamba.heads, "head"),
                                 mamba.groups),
                     "equal groups of heads share what reads and writes their states");
    }
    return mamba;
}

/// The blocks that are like those which predict further tokens: an attention and a feed-forward
/// half.
void set_prediction_halves(std::string_view symbols,
                           std::string_view of_one,
                           DecoderModel& model,
                           std::string_view place) {
    const bool is_pair = of_one.size() == 2 && (of_one[0] == 'M' || of_one[0] == '*') &&
                         (of_one[1] == '-' || of_one[1] == 'E');
    const std::size_t attention = is_pair ? symbols.find(of_one[0]) : symbols.npos;
    const std::size_t feed_forward = is_pair ? symbols.find(of_one[1]) : symbols.npos;
    if (attention == symbols.npos || feed_forward == symbols.npos) {
        refuse_shape(place,
                     fmt::format("layers '{}' predict further tokens, expected an attention and a "
                                 "feed-forward half, each of a kind that a layer is",
                                 of_one),
                     "leave them out for the model without them");
    }
    model.prediction_attention = static_cast<int>(attention);
    model.prediction_feed_forward = static_cast<int>(feed_forward);
}

}  // namespace

void set_halves(const MegatronFlags& flags, DecoderModel& model, std::string_view place) {
    const std::string_view pattern = *flags.hybrid_pattern;
    std::string symbols(main_letters(pattern));
    std::erase(symbols, '|');
    AttentionShape of_mamba = model.attention;
    of_mamba.mamba = mamba_of(flags, place);
    model.other_attentions = {of_mamba};
    model.has_experts.clear();
    for (const char letter : symbols) {
        model.attention_kinds.push_back(letter == 'M' ? 2 : letter == '*' ? 1 : no_half);
        model.feed_forward_widths.push_back(letter == '-' ? model.feed_forward : no_half);
        model.has_experts.push_back(letter == 'E');
    }
    const bool has_any = symbols.find('E') != symbols.npos;
    if (has_any && model.experts.count == 0) {
        refuse_shape(place,
                     "--hybrid-layer-pattern has layers E of experts, but there is no "
                     "--num-experts",
                     "Megatron refuses this, too");
    }
    if (!has_any) {
        model.experts = {};
        model.has_experts.clear();
    }
    if (model.prediction_blocks > 0) {
        set_prediction_halves(symbols, prediction_letters(pattern), model, place);
    }
}

}  // namespace pipetwin

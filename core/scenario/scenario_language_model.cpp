// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iterator>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/scenario/scenario_key.h"
#include "core/scenario/scenario_tables.h"
#include "core/scenario/scenario_words.h"

/// The keys of [model] for models of language.
namespace pipetwin {

namespace {

using std::string_view;

void read_feed_forward(const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
    GptSizes& gpt = scenario.model.gpt;
    gpt.feed_forward = as_int(table.integer(key.name, key.range), 4 * gpt.d_model);
}

/// The form of a model's GELUs, which is printed where it is not the exact one.
template <auto member>
constexpr ScenarioKey gelu_form() {
    return keys::choice<member>("gelu", words::gelu_forms)
        .printed_by([](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
            const GeluForm form = keys::field<member>(scenario);
            if (form != GeluForm::Exact) {
                writer.string(key.name, key.words[as_index(form)]);
            }
        });
}

constexpr std::array<ScenarioKey, 9> keys_of_gpt{
    keys::required<&GptSizes::layers>("layers", {1, (layer_range.high - 2) / 2}).says("blocks"),
    keys::required<&GptSizes::d_model>("d_model", {1, any_size.high / 4}).says("width"),
    keys::required<&GptSizes::heads>("heads", any_size)
        .says("heads of attention; must divide `d_model`"),
    keys::required<&GptSizes::context>("context", any_size).says("tokens per sample"),
    keys::number<&GptSizes::vocabulary>("vocabulary", any_size)
        .says("number of different tokens; text needs at least 256, one for each byte", "256"),
    keys::number<&GptSizes::feed_forward>("feed_forward", any_size)
        .read_by(read_feed_forward)
        .says("inner width of a block's feed-forward half", "4 * `d_model`"),
    keys::boolean<&GptSizes::tied>("tied").says(
        "head and embedding share a matrix, whose gradient is the sum of both uses, see [the "
        "executor](internals/executor.md#tied-embeddings). Not with `chimera`",
        "false"),
    keys::probability<&GptSizes::dropout>("dropout").says(
        "dropout probability, in GPT-2's places: behind the embedding, and behind attention's "
        "output projection and the feed-forward half, before they are added to the residual. "
        "Attention probabilities are not dropped, and validation runs without dropout",
        "0"),
    gelu_form<&GptSizes::gelu>().says(
        "formula of GELU: `exact`, or `tanh`, the approximation that GPT-2 and Megatron have. They "
        "differ by up to 5e-4. See [the layers](#kind--layers)",
        "`exact`")};

/// A number above 0, which is printed where it is not what Llama has.
template <auto member>
constexpr ScenarioKey llama_number(string_view name) {
    return keys::number<member>(name, {0, 1'000'000'000'000})
        .typed("above 0")
        .read_by([](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
            double& value = keys::field<member>(scenario);
            value = table.number(key.name, key.range).value_or(value);
            if (table.has(key.name) && value == 0) {
                table.refuse(key.name, "a number above 0");
            }
        })
        .printed_by([](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
            const Scenario unwritten;
            if (keys::field<member>(scenario) != keys::field<member>(unwritten)) {
                keys::print_member<member>(key, writer, scenario);
            }
        });
}

/// A whole number, which is printed where it was written.
template <auto member>
constexpr ScenarioKey llama_size(string_view name) {
    return keys::number<member>(name, any_size)
        .printed_by([](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
            if (keys::field<member>(scenario) != 0) {
                keys::print_member<member>(key, writer, scenario);
            }
        });
}

constexpr std::array<ScenarioKey, 15> keys_of_llama{
    keys::required<&LlamaSizes::layers>("layers", {1, (layer_range.high - 2) / 2}).says("blocks"),
    keys::required<&LlamaSizes::d_model>("d_model", any_size).says("width"),
    keys::required<&LlamaSizes::heads>("heads", any_size)
        .says("heads of attention; must divide `d_model`, unless `head_size` is given"),
    llama_size<&LlamaSizes::key_value_heads>("key_value_heads")
        .says("heads of keys and values; must divide `heads`: `heads / key_value_heads` "
              "neighbouring heads share one",
              "`heads`"),
    llama_size<&LlamaSizes::head_size>("head_size")
        .says("width of a head; even", "`d_model` / `heads`"),
    keys::required<&LlamaSizes::context>("context", any_size).says("tokens per sample"),
    keys::number<&LlamaSizes::vocabulary>("vocabulary", any_size)
        .says("number of different tokens; text needs at least 256, one for each byte", "256"),
    keys::required<&LlamaSizes::feed_forward>("feed_forward", {1, any_size.high / 2})
        .says("inner width of a block's feed-forward half, which has two matrices in and one out"),
    keys::boolean<&LlamaSizes::tied>("tied").says(
        "head and embedding share a matrix, as in a `gpt`", "false"),
    llama_number<&LlamaSizes::epsilon>("epsilon").says(
        "added to the mean square in every norm; some models have 1e-6", "1e-5"),
    llama_number<&Rotary::base>("rotary_base")
        .typed("above 1")
        .says("the slowest rotary frequency is about 1 / `rotary_base`; 500000 for Llama 3 (its "
              "`rope_theta`)",
              "10000"),
    llama_number<&Rotary::factor>("rotary_factor")
        .says("divides the rotary frequencies, for contexts longer than those of pre-training. "
              "Without `rotary_context` it divides all of them (Hugging Face's `linear`)",
              "1"),
    llama_size<&Rotary::context>("rotary_context")
        .says("context of pre-training. Frequencies with few turns in this many tokens are divided "
              "by `rotary_factor`, the others stay (Hugging Face's `llama3`)",
              "none"),
    llama_number<&Rotary::low_frequency>("rotary_low_frequency")
        .says("frequencies with fewer turns than this in `rotary_context` tokens are divided", "1"),
    llama_number<&Rotary::high_frequency>("rotary_high_frequency")
        .says("frequencies with more turns than this stay; between both limits the divisor changes "
              "gradually",
              "4")};

/// A whole number of experts, which is printed where it is not 1.
template <auto member>
constexpr ScenarioKey moe_size(string_view name) {
    return keys::number<member>(name, any_size)
        .printed_by([](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
            if (keys::field<member>(scenario) > 1) {
                keys::print_member<member>(key, writer, scenario);
            }
        });
}

/// A key of a router that is seldom written.
template <auto member>
constexpr ScenarioKey moe_seldom(ScenarioKey key) {
    return key.printed_by(
        [](const ScenarioKey& own, ScenarioWriter& writer, const Scenario& scenario) {
            const Scenario unwritten;
            if (keys::field<member>(scenario) != keys::field<member>(unwritten)) {
                keys::print_member<member>(own, writer, scenario);
            }
        });
}

constexpr Range layer_range_from_0{0, layer_range.high};

/// Beside those of a `llama`.
constexpr std::array<ScenarioKey, 13> keys_of_experts{
    keys::required<&Routing::experts>("experts", any_size).says("experts of a block"),
    keys::required<&Routing::per_row>("experts_per_token", any_size)
        .says(
            "experts that each token goes through. With 1 and `router_normalised` a token's weight "
            "is always 1, and the router learns from `auxiliary_loss` alone"),
    keys::required<&LlamaSizes::expert_feed_forward>("expert_feed_forward", {1, any_size.high / 2})
        .says("inner width of each expert, which has two matrices in and one out"),
    moe_seldom<&LlamaSizes::shared_feed_forward>(keys::number<&LlamaSizes::shared_feed_forward>(
                                                     "shared_feed_forward", {0, any_size.high / 2}))
        .says("inner width of the half that all tokens go through beside the experts; 0: there is "
              "none",
              "0"),
    moe_seldom<&LlamaSizes::dense_layers>(
        keys::number<&LlamaSizes::dense_layers>("dense_layers", layer_range_from_0))
        .says("blocks in front that have one feed-forward half, of width `feed_forward`, and no "
              "experts",
              "0"),
    moe_seldom<&Routing::scores>(keys::choice<&Routing::scores>("router", words::routers))
        .says("a token's scores: `softmax` of its logits over all experts, as Mixtral has it, or "
              "`sigmoid` of each, as DeepSeek-V3",
              "`softmax`"),
    moe_size<&Routing::groups>("router_groups")
        .says("groups of neighbouring experts; the best ones are chosen first: by their largest "
              "score, or by the sum of their two largest where the scores are sigmoids",
              "1"),
    moe_size<&Routing::chosen_groups>("router_groups_per_token")
        .says("groups whose experts a token may choose", "1"),
    moe_seldom<&Routing::normalised>(keys::boolean<&Routing::normalised>("router_normalised"))
        .says("the weights of a token's experts are divided by their sum", "true"),
    llama_number<&Routing::scale>("router_scale").says("factor of the weights of the experts", "1"),
    moe_seldom<&Routing::auxiliary_loss>(
        keys::number<&Routing::auxiliary_loss>("auxiliary_loss", {0, 1'000'000}))
        .says("factor of the loss of unequal loads, of each block and micro-batch (Switch "
              "Transformer, arXiv 2101.03961): `experts` times the sum over experts of (share of "
              "the choices) * (mean score). Only its gradient counts: reported losses are without "
              "it",
              "0"),
    moe_seldom<&Routing::bias_update>(
        keys::number<&Routing::bias_update>("bias_update", {0, 1'000'000}))
        .says("by which a bias of each expert moves after a step, up where fewer tokens of the "
              "mini-batch than the mean have chosen it, else down; the choice is by scores and "
              "biases, weights are of scores alone (DeepSeek-V3: 0.001)",
              "0: no biases"),
    llama_size<&LlamaSizes::feed_forward>("feed_forward")
        .says("inner width of the feed-forward half of blocks without experts",
              "needed with `dense_layers`")};

/// All keys of a mixture of experts: those of a `llama`, but for what is read otherwise.
std::span<const ScenarioKey> keys_of_moe() {
    static const std::vector<ScenarioKey> all = [] {
        std::vector<ScenarioKey> keys;
        std::ranges::copy_if(keys_of_llama, std::back_inserter(keys), [](const ScenarioKey& key) {
            return key.name != "feed_forward";
        });
        std::ranges::copy(keys_of_experts, std::back_inserter(keys));
        return keys;
    }();
    return all;
}

void check_smoothing(const TomlTable& table, const Scenario& scenario) {
    const TranslationSizes& sizes = scenario.model.translation;
    const double classes = sizes.vocabulary;
    const double most = sizes.smoothing == Smoothing::All ? 1 : (classes - 1) / classes;
    if (sizes.label_smoothing >= most) {
        table.refuse("label_smoothing",
                     fmt::format("0 up to, but not, {:.4g}", most),
                     "0.1 is what the first Transformer had");
    }
}

void check_gelu_form(const TomlTable& table, const Scenario& scenario) {
    const TranslationSizes& sizes = scenario.model.translation;
    if (table.has("gelu") && sizes.activation != FeedForwardActivation::Gelu) {
        table.refuse("gelu",
                     "no such key beside activation = \"relu\"",
                     "write activation = \"gelu\", or leave the key out");
    }
}

constexpr std::array<ScenarioKey, 15> keys_of_translation{
    keys::required<&TranslationSizes::layers>("layers", {1, (layer_range.high - 5) / 5})
        .says("blocks of the encoder; the decoder has as many"),
    keys::required<&TranslationSizes::d_model>("d_model", {1, any_size.high / 4}).says("width"),
    keys::required<&TranslationSizes::heads>("heads", any_size)
        .says("heads of every attention; must divide `d_model`, unless `head_size` is written"),
    keys::number<&TranslationSizes::head_size>("head_size", any_size)
        .printed_by([](const ScenarioKey& key, ScenarioWriter& writer, const Scenario& scenario) {
            if (scenario.model.translation.head_size != 0) {
                keys::print_member<&TranslationSizes::head_size>(key, writer, scenario);
            }
        })
        .says("numbers of a head", "`d_model` / `heads`"),
    keys::number<&TranslationSizes::feed_forward>("feed_forward", any_size)
        .read_by([](const ScenarioKey& key, const TomlTable& table, Scenario& scenario) {
            TranslationSizes& sizes = scenario.model.translation;
            sizes.feed_forward = as_int(table.integer(key.name, key.range), 4 * sizes.d_model);
        })
        .says("inner width of a block's feed-forward half", "4 * `d_model`"),
    keys::number<&TranslationSizes::vocabulary>("vocabulary", {2, any_size.high})
        .says("different tokens of source and target; texts read as bytes need 259, and one more "
              "for each language",
              "320"),
    keys::required<&TranslationSizes::source_context>("source_context", {1, any_size.high / 2})
        .says("tokens of the longest source"),
    keys::required<&TranslationSizes::target_context>("target_context", {1, any_size.high / 2})
        .says("tokens of the longest target"),
    keys::choice<&TranslationSizes::tables>("tables", words::translation_tables)
        .says("token tables of source, target and head: `shared`: one for all three; "
              "`tied-target`: one for the source, one for target and head; `separate`: one each",
              "`shared`"),
    keys::choice<&TranslationSizes::activation>("activation", words::activations)
        .says("`relu` or `gelu`", "`relu`"),
    gelu_form<&TranslationSizes::gelu>()
        .checked_by(check_gelu_form)
        .says("formula of `activation = \"gelu\"`: `exact` or `tanh`, as in a `gpt`", "`exact`"),
    keys::boolean<&TranslationSizes::learned_positions>("learned_positions")
        .says("a table of positions is learned; else sinusoids are added", "false"),
    keys::choice<&TranslationSizes::smoothing>("smoothing", words::smoothings)
        .says("who gets it: `all`: every class e / `vocabulary`, the target too, as in PyTorch; "
              "`others`: every class but the target e / (`vocabulary` - 1), as in lingvo and "
              "tensor2tensor",
              "`all`"),
    keys::number<&TranslationSizes::label_smoothing>("label_smoothing", {0, 1})
        .checked_by(check_smoothing)
        .typed("0 up to 1")
        .says("share e of the loss that is taken from the target", "0"),
    keys::probability<&TranslationSizes::dropout>("dropout").says(
        "probability with which a number is dropped: behind the embedding, and at the end of every "
        "part of a block",
        "0")};

}  // namespace

std::span<const ScenarioKey> language_model_keys(ModelKind kind) {
    switch (kind) {
        case ModelKind::Gpt:
            return keys_of_gpt;
        case ModelKind::Llama:
            return keys_of_llama;
        case ModelKind::Moe:
            return keys_of_moe();
        case ModelKind::Translation:
            return keys_of_translation;
        default:
            return {};
    }
}

}  // namespace pipetwin

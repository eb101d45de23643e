// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_match.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/interop/hf_faults.h"
#include "core/interop/hf_trainable.h"
#include "core/text/json_object.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using std::string_view;

std::string shape_text(const std::vector<std::int64_t>& shape) {
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

bool is_dtype_of_weights(string_view dtype) {
    constexpr std::array<string_view, 4> known{"F32", "F16", "BF16", "F64"};
    return std::ranges::find(known, dtype) != known.end();
}

/// The number behind `begin` in a name: 12 of "h.12.attn" behind "h."; none: -1.
int number_behind(string_view name, string_view begin) {
    int number = -1;
    if (name.starts_with(begin)) {
        name.remove_prefix(begin.size());
        std::from_chars(name.data(), name.data() + name.size(), number);
    }
    constexpr int largest = 1 << 20;
    return number < largest ? number : -1;
}

/// Compares a folder with a model.
class HfMatcher {
  public:
    HfMatcher(const HfFolder& folder, const ScenarioParts::ModelPart& model)
        : folder_(folder), model_(model) {
        match_.names = hf_names(model);
        for (const auto& [name, tensor] : folder.tensors()) {
            const auto [other, is_new] = by_name_.emplace(without_prefix(name), &tensor);
            if (!is_new) {
                add_fault(tensor,
                          fmt::format("it is there as '{}', too", other->second->entry.name),
                          "remove one of them");
            }
        }
    }

    HfMatch match() {
        compare_config();
        for (const HfParameter& parameter : match_.names.parameters) {
            std::vector<HfSource>& sources = match_.sources.emplace_back();
            for (const HfSlice& slice : parameter.slices) {
                sources.push_back(source_of(slice));
            }
        }
        compare_tied_copy();
        refuse_unknown_tensors();
        if (!faults_.empty()) {
            throw hf_faults_error(folder_.path().string(), faults_, hint());
        }
        return std::move(match_);
    }

  private:
    using Tensor = HfFolder::Tensor;

    string_view without_prefix(string_view name) const {
        const string_view prefix = match_.names.prefix;
        return name.starts_with(prefix) ? name.substr(prefix.size()) : name;
    }

    const Tensor* find(string_view name) const {
        const auto found = by_name_.find(without_prefix(name));
        return found == by_name_.end() ? nullptr : found->second;
    }

    void add_fault(const Tensor& tensor, std::string what, std::string hint = {}) {
        faults_.push_back(
            {.where = fmt::format("{}: tensor '{}'", folder_.file_of(tensor), tensor.entry.name),
             .what = std::move(what),
             .hint = std::move(hint)});
    }

    // --- config.json. ---

    /// The model of a config.json. Throws Error(BadInput) for a family that no kind of model is,
    /// naming the one that the scenario's is.
    HfTrainable trainable(const std::string& text, const std::string& place) const {
        try {
            return parse_hf_trainable(text, place);
        } catch (const Error&) {
            const nlohmann::json config = parse_json(text, place);
            const JsonObject object(config, place, "");
            const bool is_named = object.is_text("model_type");
            const std::string type = is_named ? object.text("model_type") : std::string();
            if (!is_named || type == match_.names.family) {
                throw;
            }
            throw Error(ErrorKind::BadInput,
                        fmt::format("{}: /model_type", place),
                        fmt::format("\"{}\", expected \"{}\", as model.kind = \"{}\" is",
                                    type,
                                    match_.names.family,
                                    to_string(model_.kind)),
                        fmt::format("name the folder of a model with \"model_type\": \"{}\"",
                                    match_.names.family));
        }
    }

    void compare_config() {
        const std::optional<std::string> text = folder_.config();
        if (!text) {
            match_.notes.push_back(fmt::format(
                "{} has no {}: what no shape of a tensor tells, such as the number of heads, is "
                "what the scenario says",
                folder_.path().string(),
                hf_file::config));
            return;
        }
        const std::string place = (folder_.path() / hf_file::config).string();
        HfTrainable theirs = trainable(*text, place);
        if (theirs.model.kind != model_.kind) {
            throw Error(
                ErrorKind::BadInput,
                fmt::format("{}: /model_type", place),
                fmt::format("\"{}\", expected \"{}\", as model.kind = \"{}\" is",
                            theirs.family,
                            match_.names.family,
                            to_string(model_.kind)),
                fmt::format("set model.kind = \"{}\", and its keys", to_string(theirs.model.kind)));
        }
        for (HfFault& lack : theirs.lacks) {
            lack.where = fmt::format("{}: {}", hf_file::config, lack.where);
            faults_.push_back(std::move(lack));
        }
        match_.notes = std::move(theirs.notes);
        const std::vector<HfModelKey> ours = hf_model_keys(model_);
        const std::vector<HfModelKey> published = hf_model_keys(theirs.model);
        PIPETWIN_EXPECT(ours.size() == published.size(), "two models of one kind have one list");
        for (std::size_t i = 0; i < ours.size(); ++i) {
            // Tensors say how many words and positions there are, and dropout is a matter of taste.
            constexpr std::array<string_view, 3> free{"context", "vocabulary", "dropout"};
            const bool is_free = std::ranges::find(free, ours[i].name) != free.end();
            if (!is_free && ours[i].value != published[i].value) {
                faults_.push_back({.where = fmt::format("{}: {}", hf_file::config, ours[i].theirs),
                                   .what = fmt::format("{}, but model.{} = {}",
                                                       published[i].value,
                                                       ours[i].name,
                                                       ours[i].value)});
            }
        }
        published_ = theirs.model;
    }

    // --- Tensors that parameters are made of. ---

    HfSource source_of(const HfSlice& slice) {
        const Tensor* const tensor = find(slice.tensor);
        if (tensor == nullptr) {
            add_missing(slice);
            return {};
        }
        used_.insert(tensor);
        const SafetensorsEntry& entry = tensor->entry;
        if (!is_dtype_of_weights(entry.dtype)) {
            add_fault(*tensor,
                      fmt::format("{}, expected F32, F16, BF16 or F64", entry.dtype),
                      "take the model as it was before it was quantized");
            return {};
        }
        if (!has_shape(slice, *tensor)) {
            return {};
        }
        return {.tensor = tensor, .rows = std::min(entry.shape.front(), slice.shape.front())};
    }

    void add_missing(const HfSlice& slice) {
        std::string hint;
        if (slice.tensor == match_.names.head) {
            hint = "set model.tied = true: this model's head is its embedding";
        } else {
            std::vector<string_view> others;
            for (const auto& [name, tensor] : by_name_) {
                if (tensor->entry.shape == slice.shape && !used_.contains(tensor)) {
                    others.push_back(name);
                }
            }
            const string_view name = without_prefix(slice.tensor);
            const string_view near = nearest_word(name, others);
            if (near.substr(0, near.find_last_of('.')) == name.substr(0, name.find_last_of('.')) &&
                !near.empty()) {
                hint = fmt::format("there is '{}': is that the one?", near);
            }
        }
        faults_.push_back({.where = fmt::format("tensor '{}'", slice.tensor),
                           .what = fmt::format("missing, expected {}", shape_text(slice.shape)),
                           .hint = std::move(hint)});
    }

    /// Whether the tensor can be the slice; what is wrong becomes a fault, and what is padded or
    /// cut off a note.
    bool has_shape(const HfSlice& slice, const Tensor& tensor) {
        const std::vector<std::int64_t>& shape = tensor.entry.shape;
        if (shape == slice.shape) {
            return true;
        }
        const bool free_rows = slice.rows != HfSlice::Rows::Fixed && shape.size() == 2 &&
                               shape[1] == slice.shape[1] && shape[0] > 0;
        if (free_rows && slice.rows == HfSlice::Rows::Positions && shape[0] > slice.shape[0]) {
            match_.notes.push_back(
                fmt::format("{} has {} positions, of which the first {} are trained, as "
                            "model.context says: the others are left out",
                            tensor.entry.name,
                            shape[0],
                            slice.shape[0]));
            return true;
        }
        if (free_rows && slice.rows == HfSlice::Rows::Vocabulary) {
            return has_vocabulary(slice, tensor);
        }
        std::string hint;
        if (free_rows) {
            hint = fmt::format("set model.context = {}, or less", shape[0]);
        } else if (shape.size() == 2 && slice.shape.size() == 2 && shape[0] == slice.shape[1] &&
                   shape[1] == slice.shape[0]) {
            hint = fmt::format("it is transposed: a {} has ({}) there",
                               match_.names.family,
                               slice.transposed ? "outputs, inputs" : "inputs, outputs");
        }
        add_fault(tensor,
                  fmt::format("{}, expected {}", shape_text(shape), shape_text(slice.shape)),
                  std::move(hint));
        return false;
    }

    bool has_vocabulary(const HfSlice& slice, const Tensor& tensor) {
        const std::int64_t theirs = tensor.entry.shape[0];
        const std::int64_t ours = slice.shape[0];
        const std::string& name = tensor.entry.name;
        if (theirs < ours) {
            match_.notes.push_back(
                fmt::format("{} has {} words, model.vocabulary = {}: the rows of the others begin "
                            "with the mean of all rows",
                            name,
                            theirs,
                            ours));
            return true;
        }
        if (rows_are_alike(tensor, ours)) {
            match_.notes.push_back(
                fmt::format("{} has {} words, model.vocabulary = {}: its last {} are all alike, "
                            "which is padding, and are left out",
                            name,
                            theirs,
                            ours,
                            counted(theirs - ours, "row")));
            return true;
        }
        add_fault(tensor,
                  fmt::format("{}, expected {}: more words than model.vocabulary = {}, and the "
                              "further ones are not padding",
                              shape_text(tensor.entry.shape),
                              shape_text(slice.shape),
                              ours),
                  fmt::format("set model.vocabulary = {}", theirs));
        return false;
    }

    /// Whether all rows of a tensor from one on have the same bytes.
    bool rows_are_alike(const Tensor& tensor, std::int64_t first) const {
        const std::int64_t rows = tensor.entry.shape[0];
        const std::int64_t row_bytes = (tensor.entry.end - tensor.entry.begin) / rows;
        std::vector<std::byte> one(as_index(row_bytes));
        std::vector<std::byte> other(as_index(row_bytes));
        folder_.read(tensor, first * row_bytes, one);
        for (std::int64_t row = first + 1; row < rows; ++row) {
            folder_.read(tensor, row * row_bytes, other);
            if (other != one) {
                return false;
            }
        }
        return true;
    }

    // --- Tensors that no parameter is made of. ---

    /// The head of a tied model is the table, bit by bit.
    void compare_tied_copy() {
        const bool is_untied =
            std::ranges::any_of(match_.names.parameters, [this](const HfParameter& parameter) {
                return parameter.slices.front().tensor == match_.names.head;
            });
        const Tensor* const copy = find(match_.names.head);
        const Tensor* const table = find(match_.names.table);
        if (is_untied || copy == nullptr) {
            return;
        }
        used_.insert(copy);
        if (table != nullptr && !have_same_bytes(*copy, *table)) {
            add_fault(*copy,
                      fmt::format("it is another matrix than '{}', expected a copy of it, as "
                                  "model.tied = true",
                                  table->entry.name),
                      "set model.tied = false");
        }
    }

    bool have_same_bytes(const Tensor& a, const Tensor& b) const {
        if (a.entry.dtype != b.entry.dtype || a.entry.shape != b.entry.shape) {
            return false;
        }
        const std::int64_t size = a.entry.end - a.entry.begin;
        constexpr std::int64_t piece = std::int64_t{1} << 20;
        std::vector<std::byte> of_a;
        std::vector<std::byte> of_b;
        for (std::int64_t begin = 0; begin < size; begin += piece) {
            of_a.resize(as_index(std::min(piece, size - begin)));
            of_b.resize(of_a.size());
            folder_.read(a, begin, of_a);
            folder_.read(b, begin, of_b);
            if (of_a != of_b) {
                return false;
            }
        }
        return true;
    }

    void refuse_unknown_tensors() {
        for (const auto& [name, tensor] : folder_.tensors()) {
            if (!used_.contains(&tensor) && !is_hf_buffer(name)) {
                add_fault(tensor,
                          fmt::format("{}, belongs to no part of the scenario's model",
                                      shape_text(tensor.entry.shape)));
            }
        }
    }

    // --- What to do. ---

    /// The model that the folder has, as far as config.json or the shapes of tensors say it.
    ScenarioParts::ModelPart model_of_folder() const {
        if (published_) {
            return *published_;
        }
        ScenarioParts::ModelPart model = model_;
        const bool is_llama = model.has_llama_sizes();
        int& layers = is_llama ? model.llama.layers : model.gpt.layers;
        int& width = is_llama ? model.llama.d_model : model.gpt.d_model;
        const bool is_moe = model.kind == ModelKind::Moe;
        int& inner = is_moe     ? model.llama.expert_feed_forward
                     : is_llama ? model.llama.feed_forward
                                : model.gpt.feed_forward;
        bool& tied = is_llama ? model.llama.tied : model.gpt.tied;
        layers = 0;
        for (const auto& [name, tensor] : by_name_) {
            layers = std::max(layers, 1 + number_behind(name, is_llama ? "layers." : "h."));
        }
        width = size_of(without_prefix(match_.names.table), 1, width);
        inner = is_moe     ? size_of("layers.0.block_sparse_moe.experts.0.w1.weight", 0, inner)
                : is_llama ? size_of("layers.0.mlp.gate_proj.weight", 0, inner)
                           : size_of("h.0.mlp.c_fc.weight", 1, inner);
        tied = !by_name_.contains(match_.names.head);
        return layers > 0 ? model : model_;
    }

    /// A dimension of a matrix of the folder; `otherwise` where there is no such matrix.
    int size_of(string_view name, std::size_t dimension, int otherwise) const {
        const auto found = by_name_.find(name);
        return found != by_name_.end() && found->second->entry.shape.size() == 2
                   ? static_cast<int>(std::min<std::int64_t>(found->second->entry.shape[dimension],
                                                             std::numeric_limits<int>::max()))
                   : otherwise;
    }

    std::string hint() const {
        if (used_.empty()) {
            return fmt::format(
                "is it a {}, as model.kind = \"{}\" is? those are the models that "
                "are read",
                match_.names.family,
                to_string(model_.kind));
        }
        std::vector<std::string> keys;
        const std::vector<HfModelKey> ours = hf_model_keys(model_);
        const std::vector<HfModelKey> theirs = hf_model_keys(model_of_folder());
        for (std::size_t i = 0; i < ours.size(); ++i) {
            constexpr std::array<string_view, 3> free{"context", "vocabulary", "dropout"};
            const bool is_free = std::ranges::find(free, ours[i].name) != free.end();
            if (!is_free && ours[i].value != theirs[i].value) {
                keys.push_back(fmt::format("model.{} = {}", ours[i].name, theirs[i].value));
            }
        }
        return keys.empty()
                   ? "name a folder of this model with --weights, as it was published"
                   : fmt::format("as the folder's model is, set {}", fmt::join(keys, ", "));
    }

    const HfFolder& folder_;
    const ScenarioParts::ModelPart& model_;
    std::map<string_view, const Tensor*> by_name_;  ///< without the prefix
    std::set<const Tensor*> used_;
    std::optional<ScenarioParts::ModelPart> published_;
    std::vector<HfFault> faults_;
    HfMatch match_;
};

}  // namespace

HfMatch match_hf_folder(const HfFolder& folder, const ScenarioParts::ModelPart& model) {
    return HfMatcher(folder, model).match();
}

}  // namespace pipetwin

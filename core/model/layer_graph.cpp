// SPDX-License-Identifier: Apache-2.0
#include "core/model/layer_graph.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/number_text.h"
#include "core/base/suggest.h"
#include "core/model/layer_placement.h"
#include "core/model/topological_order.h"

namespace pipetwin {

namespace {

/// Names that a message shows of many.
constexpr std::size_t most_named = 8;

constexpr std::string_view input_word = "input";

/// The number of "input12"; none: the name has another form.
std::optional<int> input_number(std::string_view name) {
    if (!name.starts_with(input_word) || name.size() == input_word.size()) {
        return std::nullopt;
    }
    int number = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + input_word.size(), end, number);
    return read.ec == std::errc() && read.ptr == end && number >= 0 ? std::optional(number)
                                                                    : std::nullopt;
}

/// Goes through the layers of a list once, and finds what they read.
class Resolver {
  public:
    Resolver(std::span<const NamedReads> layers, const ListHolder& holder)
        : layers_(layers), holder_(holder) {
        graph_.inputs.resize(layers.size());
        graph_.is_input_read.assign(as_index(holder.inputs), false);
        graph_.is_resolved.assign(layers.size(), true);
        graph_.is_read.assign(layers.size(), false);
    }

    LayerGraph take() {
        find_names();
        for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
            resolve(layer);
        }
        put_in_order();
        return std::move(graph_);
    }

  private:
    void fault(std::size_t layer, std::string text, std::string hint = {}) {
        graph_.faults.push_back({static_cast<int>(layer),
                                 Error(ErrorKind::BadInput,
                                       place_of_layer(holder_.path, layers_[layer].name),
                                       std::move(text),
                                       std::move(hint))});
        graph_.is_resolved[layer] = false;
    }

    void find_names() {
        for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
            if (!position_.emplace(layers_[layer].name, static_cast<int>(layer)).second) {
                fault(layer, "two layers have this name, expected a name of its own");
            }
            if (holder_.inputs > 0 && input_number(layers_[layer].name)) {
                fault(layer,
                      "has the name of an output that the layers around it read, expected another");
            }
        }
    }

    void resolve(std::size_t layer) {
        if (layers_[layer].inputs.empty()) {
            read(layer, layer > 0 ? static_cast<int>(layer) - 1 : from_outside(0));
        }
        for (const std::string& name : layers_[layer].inputs) {
            const std::optional<int> found = source_of(layer, name);
            if (!found) {
                continue;
            }
            if (std::ranges::find(graph_.inputs[layer], *found) != graph_.inputs[layer].end()) {
                fault(layer, fmt::format("reads '{}' twice", name), "name every input once");
            } else {
                read(layer, *found);
            }
        }
    }

    /// The output that has a name; none, and a fault, where there is none.
    std::optional<int> source_of(std::size_t layer, const std::string& name) {
        const std::optional<int> number =
            holder_.inputs > 0 ? input_number(name) : std::optional<int>();
        if (number && *number < holder_.inputs) {
            return from_outside(*number);
        }
        if (number) {
            fault(layer,
                  fmt::format("reads '{}', but '{}' reads {}",
                              name,
                              holder_.path,
                              counted(holder_.inputs, "output")),
                  holder_.inputs == 1 ? "it is 'input0'"
                                      : fmt::format("they are 'input0' to '{}'",
                                                    name_of_input(holder_.inputs - 1)));
            return std::nullopt;
        }
        const auto found = position_.find(name);
        if (found == position_.end()) {
            refuse_unknown(layer, name);
            return std::nullopt;
        }
        return found->second;
    }

    void read(std::size_t layer, int source) {
        graph_.inputs[layer].push_back(source);
        if (!is_from_outside(source)) {
            graph_.is_read[as_index(source)] = true;
        } else if (holder_.inputs > 0) {
            graph_.is_input_read[as_index(from_outside(source))] = true;
        }
    }

    void refuse_unknown(std::size_t layer, const std::string& name) {
        std::string hint;
        if (const int copy = last_copy(name); copy >= 0) {
            graph_.is_read[as_index(copy)] = true;
            hint = fmt::format("its last copy is '{}'", layers_[as_index(copy)].name);
        } else if (++unknown_ <= most_named) {
            hint = hint_about(name);
        }
        fault(layer, fmt::format("reads '{}', which is no layer", name), std::move(hint));
    }

    /// "block" with a repeat is "block0", "block1", and so on; -1: there are no such copies.
    int last_copy(const std::string& name) const {
        int last = -1;
        for (int copy = 0;; ++copy) {
            const auto found = position_.find(fmt::format("{}{}", name, copy));
            if (found == position_.end()) {
                return copy > 1 ? last : -1;
            }
            last = found->second;
        }
    }

    std::string hint_about(const std::string& name) {
        std::vector<std::string_view> names;
        std::ranges::transform(layers_, std::back_inserter(names), &NamedReads::name);
        if (name == input_word) {
            return holder_.inputs > 0
                       ? fmt::format("what '{}' reads is 'input0', 'input1', ...", holder_.path)
                       : "the first layer alone reads the model's input: let branches begin behind "
                         "it";
        }
        if (const std::string_view near = nearest_word(name, names); !near.empty()) {
            graph_.is_read[as_index(position_.at(near))] = true;
            return fmt::format("did you mean '{}'?", near);
        }
        const bool all = names.size() <= most_named;
        names.resize(std::min(names.size(), most_named));
        return fmt::format("layers: {}{}", fmt::join(names, ", "), all ? "" : ", ...");
    }

    void put_in_order() {
        std::vector<std::vector<int>> inside = graph_.inputs;
        for (std::vector<int>& sources : inside) {
            std::erase_if(sources, is_from_outside);
        }
        TopologicalOrder sorted = topological_order(inside);
        graph_.order = std::move(sorted.order);
        for (const std::vector<int>& circle : sorted.circles) {
            refuse_circle(circle);
        }
    }

    void refuse_circle(const std::vector<int>& circle) {
        std::vector<std::string_view> names;
        for (const int layer : circle) {
            if (names.size() < most_named) {
                names.push_back(layers_[as_index(layer)].name);
            }
        }
        fault(as_index(circle.front()),
              circle.size() == 1 ? "reads itself"
                                 : fmt::format("layers wait for each other in a circle: {}{}",
                                               fmt::join(names, ", "),
                                               circle.size() > most_named ? ", ..." : ""),
              circle.front() == 0 && holder_.inputs == 0
                  ? "the first layer reads the model's input: let it name none"
                  : "let every layer read earlier layers only");
    }

    std::span<const NamedReads> layers_;
    ListHolder holder_;
    std::unordered_map<std::string_view, int> position_;
    std::size_t unknown_ = 0;  ///< names without a layer
    LayerGraph graph_;
};

}  // namespace

std::string name_of_input(int index) {
    return fmt::format("{}{}", input_word, index);
}

LayerGraph layer_graph(std::span<const NamedReads> layers, const ListHolder& holder) {
    return Resolver(layers, holder).take();
}

std::vector<std::vector<int>> in_order(const LayerGraph& graph) {
    std::vector<int> index_of(graph.order.size());
    std::vector<std::vector<int>> inputs(graph.order.size());
    for (std::size_t index = 0; index < graph.order.size(); ++index) {
        const std::size_t listed = as_index(graph.order[index]);
        index_of[listed] = static_cast<int>(index);
        for (const int input : graph.inputs[listed]) {
            inputs[index].push_back(is_from_outside(input) ? input : index_of[as_index(input)]);
        }
    }
    return inputs;
}

}  // namespace pipetwin

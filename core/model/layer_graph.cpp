#include "core/model/layer_graph.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/as_index.h"
#include "core/base/suggest.h"
#include "core/model/topological_order.h"

namespace pipetwin {

namespace {

/// Names that a message shows of many.
constexpr std::size_t most_named = 8;

/// Goes through the layers of a list once, and finds what they read.
class Resolver {
  public:
    explicit Resolver(std::span<const NamedReads> layers) : layers_(layers) {
        graph_.inputs.resize(layers.size());
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
                                       fmt::format("model, layer '{}'", layers_[layer].name),
                                       std::move(text),
                                       std::move(hint))});
        graph_.is_resolved[layer] = false;
    }

    void find_names() {
        for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
            if (!position_.emplace(layers_[layer].name, static_cast<int>(layer)).second) {
                fault(layer, "two layers have this name, expected a name of its own");
            }
        }
    }

    void resolve(std::size_t layer) {
        if (layers_[layer].inputs.empty() && layer > 0) {
            read(layer, static_cast<int>(layer) - 1);
        }
        for (const std::string& name : layers_[layer].inputs) {
            const auto found = position_.find(name);
            if (found == position_.end()) {
                refuse_unknown(layer, name);
            } else if (std::ranges::find(graph_.inputs[layer], found->second) !=
                       graph_.inputs[layer].end()) {
                fault(layer, fmt::format("reads '{}' twice", name), "name every input once");
            } else {
                read(layer, found->second);
            }
        }
    }

    void read(std::size_t layer, int source) {
        graph_.inputs[layer].push_back(source);
        graph_.is_read[as_index(source)] = true;
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
        if (name == "input") {
            return "the first layer alone reads the model's input: let branches begin behind it";
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
        TopologicalOrder sorted = topological_order(graph_.inputs);
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
              circle.front() == 0 ? "the first layer reads the model's input: let it name none"
                                  : "let every layer read earlier layers only");
    }

    std::span<const NamedReads> layers_;
    std::unordered_map<std::string_view, int> position_;
    std::size_t unknown_ = 0;  ///< names without a layer
    LayerGraph graph_;
};

}  // namespace

LayerGraph layer_graph(std::span<const NamedReads> layers) {
    return Resolver(layers).take();
}

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include "core/model/layer_placement.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/inner_layers.h"
#include "core/model/layer_faults.h"
#include "core/model/layer_kinds.h"
#include "core/model/placed_graph.h"

namespace pipetwin {

namespace {

constexpr int deepest_nesting = 64;
/// Above every model there is, and small enough that bytes of all tensors add up without overflow.
constexpr std::int64_t most_numbers = std::int64_t{1} << 50;

void expect_numbers(const std::string& name, const LayerSpec& spec, const SampleShape& input) {
    if (input.token_ids || input.width < 1) {
        refuse_layer(
            name,
            fmt::format(
                "{} reads {}, expected real numbers", to_string(spec.type), to_string(input)),
            input.token_ids ? "put an embedding before it" : "nothing can follow the loss");
    }
}

void expect_layers_inside(const std::string& name, const LayerSpec& spec) {
    if (spec.inner.empty()) {
        refuse_layer(
            name, fmt::format("a {} without layers, expected at least one", to_string(spec.type)));
    }
}

/// Leaves the depth as it was, also where a layer is refused.
class KeptDepth {
  public:
    explicit KeptDepth(int& depth) : depth_(depth), before_(depth) {}
    KeptDepth(const KeptDepth&) = delete;
    KeptDepth& operator=(const KeptDepth&) = delete;
    ~KeptDepth() { depth_ = before_; }

  private:
    int& depth_;
    int before_;
};

bool is_loss(const SampleShape& shape) {
    return !shape.token_ids && shape.width == 0;
}

/// True if each layer reads the one before it alone, and the first one the only input.
bool is_chain(const std::vector<std::vector<int>>& inputs, std::size_t outside) {
    for (std::size_t layer = 0; layer < inputs.size(); ++layer) {
        const int before = layer == 0 ? from_outside(0) : static_cast<int>(layer) - 1;
        if (inputs[layer] != std::vector{before}) {
            return false;
        }
    }
    return outside == 1;
}

/// Gives each layer weights of its own: with those of another the shape of an output is the same,
/// but cannot be told without that layer.
void untie(LayerSpec& spec) {
    spec.tied = false;
    std::ranges::for_each(spec.inner, untie);
}

/// Refuses outputs that a layer reads and none of those inside.
void find_unread_inputs(const std::string& name, LayerGraph& graph) {
    for (std::size_t input = 0; input < graph.is_input_read.size(); ++input) {
        if (!graph.is_input_read[input]) {
            graph.faults.push_back(
                {holder_of_list,
                 Error(ErrorKind::BadInput,
                       place_of_layer("", name),
                       fmt::format("no layer inside reads '{}', expected one that does",
                                   name_of_input(static_cast<int>(input))),
                       "name it in the inputs of a layer inside, or read one output fewer")});
        }
    }
}

}  // namespace

std::string place_of_layer(std::string_view path, std::string_view name) {
    return fmt::format("model, layer '{}{}{}'", path, path.empty() ? "" : ".", name);
}

void refuse_layer(const std::string& name, std::string text, std::string hint) {
    throw Error(ErrorKind::BadInput, place_of_layer("", name), std::move(text), std::move(hint));
}

void expect_positive(const std::string& name, std::string_view what, int value) {
    if (value < 1) {
        refuse_layer(name, fmt::format("{} = {}, expected at least 1", what, value));
    }
}

void expect_epsilon(const std::string& name, double epsilon) {
    if (!(epsilon > 0)) {
        refuse_layer(name,
                     fmt::format("epsilon = {}, expected more than 0", epsilon),
                     "1e-5 is usual: it keeps the root of a variance from 0");
    }
}

void expect_blocks(int layers) {
    constexpr int most_blocks = (static_cast<int>(most_layers) - 2) / 2;
    if (layers < 1 || layers > most_blocks) {
        throw Error(ErrorKind::BadInput,
                    KeyValue{"model.layers"},
                    fmt::format("{}, expected 1 to {}", layers, most_blocks),
                    "is there a digit too many?");
    }
}

LayerSpec language_head(const LayerSpec& norm, int vocabulary, bool tied) {
    return {.name = "head",
            .type = LayerType::Sequence,
            .inner = {norm,
                      {.name = "projection",
                       .type = LayerType::Linear,
                       .outputs = vocabulary,
                       .bias = false,
                       .tied = tied},
                      {.name = "loss", .type = LayerType::CrossEntropy}}};
}

std::int64_t checked_sum(const std::string& name, std::int64_t a, std::int64_t b) {
    if (a > most_numbers - b) {
        refuse_layer(name, "more than 2^50 numbers", "check the sizes");
    }
    return a + b;
}

std::int64_t checked_product(const std::string& name, std::int64_t a, std::int64_t b) {
    if (a != 0 && b > most_numbers / a) {
        refuse_layer(
            name, fmt::format("{} x {} is more than 2^50 numbers", a, b), "check the sizes");
    }
    return a * b;
}

std::string name_without_own(const LayerSpec& spec, int index) {
    return fmt::format("{}{}", to_string(spec.type), index);
}

/// Enters a layer: gives it its name, and checks what no other layer matters for. Returns its path.
std::string LayerPlacement::begin(LayerSpec& spec, const std::string& path, int index) {
    if (++depth_ > deepest_nesting) {
        refuse_layer(path, fmt::format("layers nested deeper than {}", deepest_nesting));
    }
    if (++count_ > most_layers) {
        refuse_layer(path, fmt::format("more than {} layers", most_layers));
    }
    if (spec.name.empty()) {
        spec.name = name_without_own(spec, index);
    }
    std::string name = path.empty() ? spec.name : path + "." + spec.name;
    if (!names_.insert(name).second) {
        refuse_layer(name, "two layers have this name, expected a name of its own");
    }
    if (after_loss) {
        refuse_layer(name, "comes after the loss", "cross_entropy must be the last layer");
    }
    if (!(spec.dropout >= 0 && spec.dropout < 1)) {
        refuse_layer(name, fmt::format("dropout = {}, expected 0 up to, but not, 1", spec.dropout));
    }
    return name;
}

Placed LayerPlacement::place(LayerSpec& spec,
                             const std::string& path,
                             int index,
                             const SampleShape& input) {
    const std::string name = begin(spec, path, index);
    const LayerKind& kind = layer_kind(spec.type);
    if (kind.reads_numbers) {
        expect_numbers(name, spec, input);
    }
    const Placed placed = kind.place(*this, spec, name, input);
    checked_product(name, placed.output.positions, placed.output.width);
    --depth_;
    return placed;
}

SampleShape output_shape(const LayerSpec& spec, const SampleShape& input) {
    LayerSpec own = spec;
    untie(own);
    return LayerPlacement().place(own, "", 0, input).output;
}

Placed LayerPlacement::place_unit(LayerSpec& spec,
                                  const std::string& path,
                                  std::span<const JoinedInput> inputs) {
    const KeptDepth depth(depth_);
    after_loss =
        std::ranges::any_of(inputs, [](const JoinedInput& input) { return is_loss(input.shape); });
    const LayerKind& kind = layer_kind(spec.type);
    if (inputs.size() == 1) {
        return place(spec, path, 0, inputs.front().shape);
    }
    const std::string name = begin(spec, path, 0);
    if (kind.join == nullptr && !kind.may_branch) {
        refuse_layer(name,
                     fmt::format("{} reads {} outputs, expected one", kind.word, inputs.size()),
                     "let an add or a concat join them, and read that");
    }
    std::vector<SampleShape> shapes;
    for (const JoinedInput& input : inputs) {
        expect_numbers(name, spec, input.shape);
        shapes.push_back(input.shape);
    }
    const Placed placed =
        kind.may_branch ? place_branches(spec, name, shapes) : kind.join(spec, name, inputs);
    checked_product(name, placed.output.positions, placed.output.width);
    return placed;
}

/// Puts the layers inside into an order in which each stands behind what it reads, and names the
/// inputs of every one; branches that are none in fact become one layer after the other.
Placed LayerPlacement::place_branches(LayerSpec& spec,
                                      const std::string& name,
                                      const std::vector<SampleShape>& inputs) {
    expect_layers_inside(name, spec);
    std::vector<std::string> input_names;
    std::vector<JoinedInput> outside;
    for (std::size_t input = 0; input < inputs.size(); ++input) {
        input_names.push_back(name_of_input(static_cast<int>(input)));
    }
    for (std::size_t input = 0; input < inputs.size(); ++input) {
        outside.push_back({input_names[input], inputs[input]});
    }
    PlacedGraph placed = place_graph(
        *this, spec.inner, {.path = name, .inputs = static_cast<int>(inputs.size())}, outside);
    LayerGraph& graph = placed.graph;
    find_unread_inputs(name, graph);
    throw_if_any(graph.faults);
    const std::vector<std::vector<int>> sources = in_order(graph);
    std::vector<LayerSpec> ordered;
    Placed all;
    for (const int layer : graph.order) {
        const Placed& one = *placed.placed[as_index(layer)];
        all = {one.output, checked_sum(name, all.parameters, one.parameters)};
        ordered.push_back(std::move(spec.inner[as_index(layer)]));
    }
    const bool chain = is_chain(sources, inputs.size());
    for (std::size_t layer = 0; layer < ordered.size(); ++layer) {
        ordered[layer].inputs.clear();
        for (const int source : chain ? std::vector<int>{} : sources[layer]) {
            ordered[layer].inputs.push_back(is_from_outside(source)
                                                ? input_names[as_index(from_outside(source))]
                                                : ordered[as_index(source)].name);
        }
    }
    spec.inner = std::move(ordered);
    after_loss = is_loss(all.output);
    return all;
}

Placed LayerPlacement::place_inner(LayerSpec& spec,
                                   const std::string& name,
                                   const SampleShape& input) {
    expect_layers_inside(name, spec);
    if (has_branches(spec)) {
        return place_branches(spec, name, {input});
    }
    Placed all{input, 0};
    for (std::size_t i = 0; i < spec.inner.size(); ++i) {
        const int index = static_cast<int>(i);
        if (!spec.inner[i].inputs.empty()) {
            refuse_layer(name,
                         fmt::format("layer {} inside names its inputs, expected that it reads the "
                                     "one before it",
                                     i),
                         "layers of a sequence inside it may name theirs");
        }
        try {
            const Placed one = place(spec.inner[i], name, index, all.output);
            all = {one.output, checked_sum(name, all.parameters, one.parameters)};
        } catch (const LayerFaults& error) {
            std::vector<LayerFault> faults;
            add_faults_inside(error.faults(), index, faults);
            throw LayerFaults(std::move(faults));
        }
    }
    return all;
}

}  // namespace pipetwin

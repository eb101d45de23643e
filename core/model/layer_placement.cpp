#include "core/model/layer_placement.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/layer_kinds.h"

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

}  // namespace

void refuse_layer(const std::string& name, std::string text, std::string hint) {
    throw Error(ErrorKind::BadInput,
                fmt::format("model, layer '{}'", name),
                std::move(text),
                std::move(hint));
}

void expect_positive(const std::string& name, std::string_view what, int value) {
    if (value < 1) {
        refuse_layer(name, fmt::format("{} = {}, expected at least 1", what, value));
    }
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
        refuse_layer(name, "stands after the loss", "cross_entropy must be the last layer");
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
    return LayerPlacement().place(own, "", 0, input).output;
}

Placed LayerPlacement::place_unit(LayerSpec& spec, std::span<const JoinedInput> inputs) {
    depth_ = 0;  // where the layer before was refused, it stands as deep as that was
    after_loss = std::ranges::any_of(inputs, [](const JoinedInput& input) {
        return !input.shape.token_ids && input.shape.width == 0;
    });
    const LayerKind& kind = layer_kind(spec.type);
    if (inputs.size() == 1) {
        return place(spec, "", 0, inputs.front().shape);
    }
    const std::string name = begin(spec, "", 0);
    if (kind.join == nullptr) {
        refuse_layer(name,
                     fmt::format("{} reads {} outputs, expected one", kind.word, inputs.size()),
                     "let an add or a concat join them, and read that");
    }
    for (const JoinedInput& input : inputs) {
        expect_numbers(name, spec, input.shape);
    }
    const Placed placed = kind.join(name, inputs);
    checked_product(name, placed.output.positions, placed.output.width);
    return placed;
}

Placed LayerPlacement::place_inner(LayerSpec& spec,
                                   const std::string& name,
                                   const SampleShape& input) {
    if (spec.inner.empty()) {
        refuse_layer(
            name, fmt::format("a {} without layers, expected at least one", to_string(spec.type)));
    }
    Placed all{input, 0};
    for (std::size_t i = 0; i < spec.inner.size(); ++i) {
        if (!spec.inner[i].inputs.empty()) {
            refuse_layer(name,
                         fmt::format("layer {} inside names its inputs, expected that it reads the "
                                     "one before it",
                                     i),
                         "layers of the model itself may name theirs");
        }
        const Placed one = place(spec.inner[i], name, static_cast<int>(i), all.output);
        all = {one.output, checked_sum(name, all.parameters, one.parameters)};
    }
    return all;
}

}  // namespace pipetwin

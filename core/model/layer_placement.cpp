#include "core/model/layer_placement.h"

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

Placed LayerPlacement::place(LayerSpec& spec,
                             const std::string& path,
                             int index,
                             const SampleShape& input) {
    if (++depth_ > deepest_nesting) {
        refuse_layer(path, fmt::format("layers nested deeper than {}", deepest_nesting));
    }
    if (++count_ > most_layers) {
        refuse_layer(path, fmt::format("more than {} layers", most_layers));
    }
    if (spec.name.empty()) {
        spec.name = fmt::format("{}{}", to_string(spec.type), index);
    }
    const std::string name = path.empty() ? spec.name : path + "." + spec.name;
    if (!names_.insert(name).second) {
        refuse_layer(name, "two layers have this name, expected a name of its own");
    }
    if (after_loss) {
        refuse_layer(name, "stands after the loss", "cross_entropy must be the last layer");
    }
    if (!(spec.dropout >= 0 && spec.dropout < 1)) {
        refuse_layer(name, fmt::format("dropout = {}, expected 0 up to, but not, 1", spec.dropout));
    }
    const LayerKind& kind = layer_kind(spec.type);
    if (kind.reads_numbers) {
        expect_numbers(name, spec, input);
    }
    const Placed placed = kind.place(*this, spec, name, input);
    checked_product(name, placed.output.positions, placed.output.width);
    --depth_;
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
        const Placed one = place(spec.inner[i], name, static_cast<int>(i), all.output);
        all = {one.output, checked_sum(name, all.parameters, one.parameters)};
    }
    return all;
}

}  // namespace pipetwin

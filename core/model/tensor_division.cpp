// SPDX-License-Identifier: Apache-2.0
#include "core/model/tensor_division.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "core/base/error.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"

namespace pipetwin {
namespace {

/// A number that the devices divide equally, and what it counts.
struct DividedSize {
    std::string layer;
    std::string_view what;
    int size = 0;
    bool may_be_shared = false;  ///< or several devices have the same one each

    bool suits(int devices) const {
        return size % devices == 0 || (may_be_shared && devices % size == 0);
    }
};

/// The number of devices nearest to `devices` that divides all sizes; of two the smaller.
int nearest_devices(const std::vector<DividedSize>& sizes, int devices) {
    int most = std::numeric_limits<int>::max();
    for (const DividedSize& each : sizes) {
        most = each.may_be_shared ? most : std::min(most, each.size);
    }
    int nearest = 1;
    for (int candidate = 1; candidate <= most; ++candidate) {
        if (std::abs(candidate - devices) < std::abs(nearest - devices) &&
            std::ranges::all_of(
                sizes, [candidate](const DividedSize& each) { return each.suits(candidate); })) {
            nearest = candidate;
        }
    }
    return nearest;
}

bool is_activation(const LayerSpec& layer) {
    return layer.type == LayerType::Gelu || layer.type == LayerType::SwiGlu ||
           layer.type == LayerType::Relu;
}

bool is_norm(const LayerSpec& layer) {
    return layer.type == LayerType::LayerNorm || layer.type == LayerType::RmsNorm;
}

/// Divides the layers of a model, and notes what they divide.
class Division {
  public:
    Division(int devices, bool sequence, int positions) : devices_(devices), sequence_(sequence) {
        if (sequence_) {
            divide("embedding", "positions", positions);
        }
    }

    /// A unit of the model; `width`: of what it reads.
    LayerSpec unit(const LayerSpec& spec, int width) {
        LayerSpec part = spec;
        if (part.type == LayerType::Embedding && !part.source_table && !part.scaled) {
            divide(part.name, "token ids", part.vocabulary);
            part.cut = cut();
            return part;
        }
        if ((part.type != LayerType::Residual && part.type != LayerType::Sequence) ||
            (has_branches(part) && !has_experts(part))) {
            refuse(part.name);
        }
        for (std::size_t index = 0; index < part.inner.size();) {
            index = inner(part, index, width);
        }
        return part;
    }

    /// Throws where a size is not divided equally.
    void check() const {
        const auto uneven = std::ranges::find_if(
            sizes_, [this](const DividedSize& each) { return !each.suits(devices_); });
        if (uneven != sizes_.end()) {
            throw Error(ErrorKind::Infeasible,
                        KeyValue{"pipeline.tensor_parallel", fmt::to_string(devices_)},
                        fmt::format("{} devices cannot share layer '{}' equally: it has {} {}",
                                    devices_,
                                    uneven->layer,
                                    uneven->size,
                                    uneven->what),
                        fmt::format("set pipeline.tensor_parallel = {}, which divides all layers",
                                    nearest_devices(sizes_, devices_)));
        }
    }

  private:
    void divide(const std::string& layer, std::string_view what, int& size) {
        sizes_.push_back({.layer = layer, .what = what, .size = size});
        size = std::max(1, size / devices_);
    }

    /// Divides one layer of a unit, or two with an activation between them; where the next begins.
    std::size_t inner(LayerSpec& part, std::size_t index, int width) {
        std::vector<LayerSpec>& layers = part.inner;
        LayerSpec& layer = layers[index];
        const bool has_next = index + 1 < layers.size();
        if (is_norm(layer)) {
            layer.cut = cut();
            return index + 1;
        }
        if (layer.type == LayerType::Attention) {
            attention(part.name, layer, width);
            return index + 1;
        }
        if (layer.type == LayerType::Experts) {
            layer.cut = cut();  // all experts, of the rows that a device has
            return index + 1;
        }
        if (layer.type == LayerType::Add && has_experts(part)) {
            return index + 1;
        }
        if (layer.type == LayerType::Linear && layer.dropout == 0 && has_next) {
            LayerSpec& next = layers[index + 1];
            if (next.type == LayerType::CrossEntropy && next.label_smoothing == 0 && !layer.bias) {
                divide(part.name, "classes", layer.outputs);
                layer.cut = cut();
                next.cut = {.devices = devices_};  // of all rows
                return index + 2;
            }
            if (is_activation(next) && index + 2 < layers.size() &&
                layers[index + 2].type == LayerType::Linear) {
                const int blocks = next.type == LayerType::SwiGlu ? 2 : 1;
                int inner_width = layer.outputs / blocks;
                divide(part.name, "inner columns", inner_width);
                layer.outputs = inner_width * blocks;
                layer.cut = cut();
                layer.cut.blocks = blocks;
                layers[index + 2].cut = cut();
                layers[index + 2].cut.rows = true;
                return index + 3;
            }
        }
        refuse(part.name);
    }

    void attention(const std::string& name, LayerSpec& layer, int width) {
        const AttentionSizes whole = attention_sizes(layer, width);
        layer.head_size = whole.head_size;
        layer.key_value_heads = whole.key_value_heads;
        divide(name, "heads", layer.heads);
        layer.cut = cut();
        layer.cut.sharers = std::max(1, devices_ / layer.key_value_heads);
        divide(name, "heads of keys and values", layer.key_value_heads);
        sizes_.back().may_be_shared = true;
    }

    static bool has_experts(const LayerSpec& unit) {
        return std::ranges::any_of(
            unit.inner, [](const LayerSpec& layer) { return layer.type == LayerType::Experts; });
    }

    TensorCut cut() const { return {.devices = devices_, .sequence = sequence_}; }

    [[noreturn]] void refuse(const std::string& layer) const {
        throw Error(ErrorKind::Infeasible,
                    KeyValue{"pipeline.tensor_parallel", fmt::to_string(devices_)},
                    fmt::format("nothing says how devices share layer '{}': a unit may hold norms, "
                                "attention, and two linear layers with an activation between them",
                                layer),
                    "set pipeline.tensor_parallel = 1, or take a gpt or a llama");
    }

    int devices_;
    bool sequence_;
    std::vector<DividedSize> sizes_{};
};

}  // namespace

Model divided_among(const Model& model, int devices, DividedSequence sequence) {
    if (devices == 1) {
        return model;
    }
    Division division(devices, sequence == DividedSequence::Yes, model.layer(0).input.positions);
    std::vector<LayerSpec> units;
    for (int index = 0; index < model.layer_count(); ++index) {
        const Layer& layer = model.layer(index);
        if (!model.is_chain()) {
            throw Error(ErrorKind::Infeasible,
                        KeyValue{"pipeline.tensor_parallel", fmt::to_string(devices)},
                        "devices share the layers of a chain, and this model has branches",
                        "set pipeline.tensor_parallel = 1, or take a gpt or a llama");
        }
        units.push_back(division.unit(layer.spec, layer.input.width));
    }
    division.check();
    return Model::chain(model.layer(0).input, std::move(units));
}

}  // namespace pipetwin

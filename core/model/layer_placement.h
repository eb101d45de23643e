// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/model/layer_spec.h"

/// How layers get their names and shapes. Not for use outside this folder.
namespace pipetwin {

/// More layers than any model has.
inline constexpr std::size_t most_layers = 100'000;

/// "model, layer 'cell3.left'": where an error about a layer says that it is; `path`: what holds
/// the layer, empty at the top.
std::string place_of_layer(std::string_view path, std::string_view name);

/// Throws Error(BadInput) about a layer.
[[noreturn]] void refuse_layer(const std::string& name, std::string text, std::string hint = {});

/// Throws Error(BadInput) naming the layer unless the value is at least 1.
void expect_positive(const std::string& name, std::string_view what, int value);

/// Throws Error(BadInput) naming the layer unless what a norm adds below its root is above 0.
void expect_epsilon(const std::string& name, double epsilon);

/// Throws Error(BadInput) unless a model can have so many blocks of two units, an embedding and a
/// head.
void expect_blocks(int layers);
/// The last unit of a language model: a norm, a product with an output for each word, and the loss.
LayerSpec language_head(const LayerSpec& norm, int vocabulary, bool tied);

/// a + b, for numbers of a model. Throws Error(BadInput) naming the layer if no model has so many.
std::int64_t checked_sum(const std::string& name, std::int64_t a, std::int64_t b);
/// a * b, for numbers of a model. Throws Error(BadInput) naming the layer if no model has so many.
std::int64_t checked_product(const std::string& name, std::int64_t a, std::int64_t b);

/// What follows from a layer's place: its output and the number of its parameters.
struct Placed {
    SampleShape output;
    std::int64_t parameters = 0;
};

/// An output that a layer reads, and the layer that makes it; its name is empty for the model's
/// input.
struct JoinedInput {
    std::string_view layer;
    SampleShape shape;
};

/// "linear0", for a layer that has no name of its own: its type and its index among its siblings.
std::string name_without_own(const LayerSpec& spec, int index);

/// Gives every layer its name and its shapes, in the order of the model.
class LayerPlacement {
  public:
    /// A layer of a graph, which has a name and reads one output or several; `path` is the name of
    /// what holds the graph, empty for a model. Throws LayerFaults where it holds layers with
    /// branches that have faults.
    Placed place_unit(LayerSpec& spec,
                      const std::string& path,
                      std::span<const JoinedInput> inputs);

    /// `spec` gets a name if it has none; `path` is the name of what holds it, empty at the top.
    Placed place(LayerSpec& spec, const std::string& path, int index, const SampleShape& input);

    /// The layers inside a layer: one after the other, or with branches.
    Placed place_inner(LayerSpec& spec, const std::string& name, const SampleShape& input);

    /// Vocabulary x width of the embedding, once it is placed: what a tied layer turns round.
    SampleShape table;
    /// No layer may follow.
    bool after_loss = false;

  private:
    Placed place_branches(LayerSpec& spec,
                          const std::string& name,
                          const std::vector<SampleShape>& inputs);
    std::string begin(LayerSpec& spec, const std::string& path, int index);

    std::unordered_set<std::string> names_;
    std::size_t count_ = 0;
    int depth_ = 0;
};

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "core/model/gelu_form.h"
#include "core/model/layer_spec.h"
#include "core/model/pixels.h"
#include "core/model/rotary.h"
#include "core/model/routing.h"

namespace pipetwin {

class LayerPlacement;
struct JoinedInput;
struct Placed;

/// A field that is a number from 0 to 1.
struct ShareField {
    double LayerSpec::*field = nullptr;
};

/// A field of an attention's rotary positions: a number above 0.
struct RotaryField {
    double Rotary::*field = nullptr;
};

/// A value that a scenario writes about a layer: a whole number from 1 on, yes or no, a share that
/// is lost (from 0 up to, but not, 1: a probability of being dropped, a label smoothing), a number
/// from 0 to 1, a size in pixels, margins, of rotary positions a number above 0 or a whole one, of
/// a router a whole number, yes or no, a number from 0 on or its scores, or a form of GELU.
struct LayerKey {
    std::string_view name{};
    std::variant<int LayerSpec::*,
                 bool LayerSpec::*,
                 double LayerSpec::*,
                 ShareField,
                 Pixels LayerSpec::*,
                 Margins LayerSpec::*,
                 RotaryField,
                 int Rotary::*,
                 int Routing::*,
                 bool Routing::*,
                 double Routing::*,
                 RouterScores Routing::*,
                 GeluForm LayerSpec::*>
        value{};
    bool is_required = false;
    int otherwise = 0;  ///< of a whole number that need not be written
    /// True if the key is printed only where its value differs from that of a layer without the
    /// key.
    bool is_seldom = false;
};

/// All that core knows of a kind of layer: one row of the table in layer_kinds.cpp.
struct LayerKind {
    LayerType type = LayerType::Opaque;
    std::string_view word{};
    std::array<LayerKey, 11>
        key_list{};             ///< in the order in which they are written; then empty ones
    bool holds_layers = false;  ///< its `inner`, each a table of its own
    /// True if layers inside of it may name what they read, and it may read several outputs, which
    /// they name.
    bool may_branch = false;
    /// False: its backward needs nothing but the gradient of its output, and what it keeps itself.
    bool backward_reads_input = true;
    bool reads_numbers = true;  ///< it cannot read token ids, or what the loss leaves
    /// What it makes of its input, and how many parameters it has; `name` is its path. Throws
    /// Error(BadInput) where it does not fit its place.
    Placed (*place)(LayerPlacement& placement,
                    LayerSpec& spec,
                    const std::string& name,
                    const SampleShape& input) = nullptr;
    /// For a kind that may read several outputs: what it makes of two or more; `name` is its path.
    /// Throws Error(BadInput) where they do not fit together. Null: the kind reads one.
    Placed (*join)(const LayerSpec& spec,
                   const std::string& name,
                   std::span<const JoinedInput> inputs) = nullptr;
    /// True if it reads two outputs or more; else one is enough, whatever `join` makes of more.
    bool needs_several = false;

    /// The keys that a scenario may write for the kind, in the order in which they are written.
    std::span<const LayerKey> keys() const;
};

/// The row of a type.
const LayerKind& layer_kind(LayerType type);

/// The kinds that a scenario can write: all but `Opaque`.
std::span<const LayerKind> written_layer_kinds();

}  // namespace pipetwin

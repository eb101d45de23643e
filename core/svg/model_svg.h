// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/svg/figure_look.h"

namespace pipetwin {

/// The layers of a model, and where it is cut, to be drawn.
struct ModelPicture {
    /// One layer. Layers stand in an order in which each reads earlier ones.
    struct Unit {
        std::string name{};
        std::string detail{};  ///< beside the name: type, shape
        std::string tooltip{};
        std::vector<int> inputs{};  ///< indices of the layers that it reads
        int stage = 0;              ///< ascending from layer to layer; 0 where there are no cuts
        bool joins = false;         ///< it sums or joins several outputs
    };

    std::string title{};
    std::vector<Unit> units{};
    std::vector<std::string> stages{};  ///< a line about each stage; empty: the model is not cut
};

/// The model as a picture, from the first layer down: a box for each layer, an arrow to the next
/// one that reads it, an arc to readers further down, a band for each stage. Arrows between
/// neighbouring stages, and those that go past a stage, have colours of their own; the latter are
/// dashed, too. Of a model of more than 100 layers, long runs that read each other one by one are
/// drawn as one box. A figure has its width, and leaves out details, names and lines about stages
/// that have no room in it.
std::string render_model(const ModelPicture& picture, const FigureLook& look = {});

}  // namespace pipetwin

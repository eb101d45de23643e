// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>

#include "core/model/model.h"

namespace pipetwin::bench {

/// `arms` chains of `length` layers between a first and a last layer.
inline Model parallel_arms(int arms, int length) {
    std::vector<Model::Named> named{{.name = "first"}};
    Model::Named last{.name = "last"};
    for (int arm = 0; arm < arms; ++arm) {
        std::string before = "first";
        for (int layer = 0; layer < length; ++layer) {
            named.push_back({.name = fmt::format("{}.{}", arm, layer), .inputs = {before}});
            before = named.back().name;
        }
        last.inputs.push_back(before);
    }
    named.push_back(last);
    return Model::opaque(named);
}

}  // namespace pipetwin::bench

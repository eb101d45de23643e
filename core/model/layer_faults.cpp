// SPDX-License-Identifier: Apache-2.0
#include "core/model/layer_faults.h"

#include <algorithm>
#include <cstddef>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace pipetwin {

LayerFaults::LayerFaults(std::vector<LayerFault> faults)
    : Error(listed_faults(faults, std::vector<std::string>(faults.size()))),
      faults_(std::move(faults)) {}

void add_faults_inside(const std::vector<LayerFault>& faults,
                       int layer,
                       std::vector<LayerFault>& all) {
    for (const LayerFault& fault : faults) {
        LayerFault& added = all.emplace_back(LayerFault{.layer = layer, .error = fault.error});
        if (fault.layer != holder_of_list) {
            added.inside.push_back(fault.layer);
            added.inside.insert(added.inside.end(), fault.inside.begin(), fault.inside.end());
        }
    }
}

void throw_if_any(std::vector<LayerFault>& faults) {
    if (!faults.empty()) {
        std::ranges::stable_sort(faults, {}, [](const LayerFault& fault) {
            return std::tie(fault.layer, fault.inside);
        });
        throw LayerFaults(std::move(faults));
    }
}

Error listed_faults(const std::vector<LayerFault>& faults, const std::vector<std::string>& places) {
    PIPETWIN_EXPECT(!faults.empty() && places.size() == faults.size(),
                    "every fault of a list has a place");
    if (faults.size() == 1) {
        const Error& only = faults.front().error;
        return places.front().empty() ? only : only.at(places.front());
    }
    constexpr std::size_t most_listed = 20;
    std::string text = fmt::format("{} faults in its layers:", faults.size());
    for (std::size_t i = 0; i < std::min(faults.size(), most_listed); ++i) {
        const Error error = places[i].empty() ? faults[i].error : faults[i].error.at(places[i]);
        const std::string& hint = error.hint();
        text += fmt::format(
            "\n  {}: {}{}{}", error.place(), error.text(), hint.empty() ? "" : "; ", hint);
    }
    if (faults.size() > most_listed) {
        text += fmt::format("\n  and {} more", faults.size() - most_listed);
    }
    return {ErrorKind::BadInput,
            places.front().empty() ? "model" : places.front(),
            std::move(text),
            "correct the first one and check again: one may be the cause of another"};
}

}  // namespace pipetwin

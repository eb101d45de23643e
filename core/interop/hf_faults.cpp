// SPDX-License-Identifier: Apache-2.0
#include "core/interop/hf_faults.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace pipetwin {

Error hf_faults_error(const std::string& place,
                      const std::vector<HfFault>& faults,
                      std::string hint) {
    PIPETWIN_EXPECT(!faults.empty(), "an error has a fault");
    constexpr std::size_t most_listed = 40;
    std::string text;
    if (faults.size() > 1) {
        text = fmt::format("{} faults:", faults.size());
    }
    for (std::size_t i = 0; i < std::min(faults.size(), most_listed); ++i) {
        const HfFault& fault = faults[i];
        text += fmt::format("{}{}: {}{}{}",
                            faults.size() > 1 ? "\n  " : "",
                            fault.where,
                            fault.what,
                            fault.hint.empty() ? "" : "; ",
                            fault.hint);
    }
    if (faults.size() > most_listed) {
        text += fmt::format("\n  and {} more", faults.size() - most_listed);
    }
    return {ErrorKind::BadInput, place, std::move(text), std::move(hint)};
}

}  // namespace pipetwin

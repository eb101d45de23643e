#include "core/matrix_rate.h"

#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/error.h"

namespace pipetwin {

double matrix_rate(const DeviceProfile& device, std::string_view precision, std::string hint) {
    const auto found = device.matrix_rates.find(precision);
    if (found == device.matrix_rates.end()) {
        std::vector<std::string_view> known;
        for (const auto& [name, rate] : device.matrix_rates) {
            known.push_back(name);
        }
        throw Error(
            ErrorKind::BadInput,
            fmt::format("device '{}'", device.name),
            fmt::format(
                "no matrix rate at precision '{}', only at {}", precision, fmt::join(known, ", ")),
            std::move(hint));
    }
    return found->second.value;
}

}  // namespace pipetwin

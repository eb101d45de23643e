#include "exec/device.h"

namespace pipetwin::exec {

std::span<double> Device::results(std::size_t count) {
    return results_.emplace_back(count);
}

}  // namespace pipetwin::exec

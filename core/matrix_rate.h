#pragma once

#include <string>
#include <string_view>

#include "core/device_profile.h"

namespace pipetwin {

/// Operations per second of a device's dense matrix products. Throws Error(BadInput) with `hint`,
/// naming the device and the precisions that it knows, where this is none of them.
double matrix_rate(const DeviceProfile& device, std::string_view precision, std::string hint);

}  // namespace pipetwin

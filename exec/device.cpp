#include "exec/device.h"

#include "exec/host_link.h"

namespace pipetwin::exec {

std::unique_ptr<HostLink> Device::make_host_link(const LinkCost& /*planned*/) {
    return nullptr;
}

std::span<double> Device::results(std::size_t count) {
    return results_.emplace_back(count);
}

}  // namespace pipetwin::exec

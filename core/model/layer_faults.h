// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace pipetwin {

/// A fault of one layer of a list, or of a layer inside it: the error's place names that layer.
struct LayerFault {
    int layer = 0;  ///< index in the list as it was written
    Error error;
    /// The way from that layer to the one with the fault: an index in its list, as written, then
    /// one in the list of the layer there, and so on. Empty: the fault is the layer's own.
    std::vector<int> inside{};
};

/// All that is wrong with the layers of a model, in the order of their list. As an error it is the
/// only fault, or a list of them, one a line.
class LayerFaults : public Error {
  public:
    /// At least one fault, ascending by layer, then by the way inside.
    explicit LayerFaults(std::vector<LayerFault> faults);

    const std::vector<LayerFault>& faults() const { return faults_; }

  private:
    std::vector<LayerFault> faults_;
};

/// Index of the layer that holds a list, in `LayerFault::layer`, where the list is refused as a
/// whole.
inline constexpr int holder_of_list = -1;

/// Adds the faults of the list inside a layer to those of the list in which that layer has the
/// index `layer`.
void add_faults_inside(const std::vector<LayerFault>& faults,
                       int layer,
                       std::vector<LayerFault>& all);

/// Throws LayerFaults, in the order of the list, if there are any.
void throw_if_any(std::vector<LayerFault>& faults);

/// The error that lists faults, one a line, each with the place that `places` has for it: the only
/// fault as it is, with its place behind that. `places` has as many entries as `faults`.
Error listed_faults(const std::vector<LayerFault>& faults, const std::vector<std::string>& places);

}  // namespace pipetwin

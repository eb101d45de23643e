#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"

namespace pipetwin {

/// A fault of one layer of a list: its place names the layer.
struct LayerFault {
    int layer = 0;  ///< index in the list as it was written
    Error error;
};

/// All that is wrong with the layers of a model, in the order of their list. As an error it is the
/// only fault, or a list of them, one a line.
class LayerFaults : public Error {
  public:
    /// At least one fault, ascending by layer.
    explicit LayerFaults(std::vector<LayerFault> faults);

    const std::vector<LayerFault>& faults() const { return faults_; }

  private:
    std::vector<LayerFault> faults_;
};

/// The error that lists faults, one a line, each with the place that `places` has for it: the only
/// fault as it is, with its place behind that. `places` has as many entries as `faults`.
Error listed_faults(const std::vector<LayerFault>& faults, const std::vector<std::string>& places);

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/base/units.h"

namespace pipetwin {

/// What libraries hold on a device beside the model's tensors.
struct ContextParts {
    Bytes communication{};      ///< buffers of the process groups
    Bytes product_workspace{};  ///< of matrix products
    Bytes tensor_buffers{};     ///< of messages beside products, where devices share a layer

    Bytes total() const { return communication + product_workspace + tensor_buffers; }
};

}  // namespace pipetwin

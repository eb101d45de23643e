// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "cli/interop/import/importers.h"

namespace pipetwin::cli {

/// Adds to [cluster] what connects the devices of an imported run that has more than a node of
/// them: the nodes of --cluster, else those that its device usually comes in, which a note says.
/// Nothing where the content names no device, or the devices are not all known. Throws
/// Error(BadInput) for a --cluster that is not known, or of another device.
void add_nodes(Imported& imported, const ImportOptions& options);

/// Takes the device of --cluster where --device is not given. Throws as `add_nodes`.
void take_device_of_cluster(ImportOptions& options);

}  // namespace pipetwin::cli

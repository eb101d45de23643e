// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "core/costs/profile.h"

/// The part of a model that comes again and again, so that it can come more often or less.
namespace pipetwin {

/// A run of copies of one group of layers, whose bytes and connections are alike:
///
///     embedding  [attention feed_forward] [attention feed_forward] [attention feed_forward]  head
///                 first                    group = 2                copies = 3
struct RepeatedLayers {
    int first = 0;   ///< layer
    int group = 1;   ///< layers of a copy
    int copies = 0;  ///< at least 2

    int end() const { return first + group * copies; }
    bool operator==(const RepeatedLayers&) const = default;
};

/// Returns the run that covers most layers; of equal ones that of the smallest group, then the
/// first. Times may differ: measured ones always do. Throws Error(BadInput) at `place` if no two
/// neighbouring groups are alike.
RepeatedLayers repeated_layers(const Profile& profile, std::string_view place);

/// Returns the profile of the model with another number of copies, 1 or more. Copies that are not
/// there yet cost what the last one does, and their names count on.
Profile with_copies(const Profile& profile, const RepeatedLayers& repeated, int copies);

/// The names of one copy, as in "block0.attention, block0.feed_forward".
std::vector<std::string> copy_names(const Profile& profile, const RepeatedLayers& repeated);

}  // namespace pipetwin

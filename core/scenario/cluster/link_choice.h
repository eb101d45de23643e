// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/costs/collectives/link_cost.h"
#include "core/costs/profile.h"

namespace pipetwin {

/// What a scenario says about a link. It goes before whatever else is known.
struct WrittenLink {
    std::optional<LinkCost> of_class{};  ///< of the link class that it names
    double gigabits_per_second = 0;      ///< 0: not said
    double latency_us = 0;               ///< 0: not said

    bool is_anything() const { return of_class || gigabits_per_second > 0; }
    /// `link` with what is written in place of its own: the class first, then bandwidth and
    /// latency.
    LinkCost put_over(LinkCost link) const;
};

/// Link of a class of profiles/links.json, of a bandwidth and of a latency that a scenario says;
/// empty and 0: not said. Throws Error(BadInput) on an unknown class.
WrittenLink written_link(const std::string& name, double gigabits_per_second, double latency_us);

/// The measured link of a profile; none: it has no link of that name.
std::optional<LinkCost> profiled_link(const Profile& profile, std::string_view between);

/// Whichever carries a large message more slowly; 0 stands for an instant one.
LinkCost slower(const LinkCost& a, const LinkCost& b);

/// A link that is `factor` times as fast.
LinkCost faster_link(LinkCost link, double factor);

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/cost_source.h"

#include "core/base/error.h"

namespace pipetwin {

std::string_view to_string(CostSource source) {
    switch (source) {
        case CostSource::Measured:
            return "measured";
        case CostSource::Imported:
            return "imported";
        case CostSource::Datasheet:
            return "datasheet";
        case CostSource::Estimated:
            return "estimated";
    }
    PIPETWIN_EXPECT(false, "cost source out of range");
}

}  // namespace pipetwin

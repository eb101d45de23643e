// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/export/exporters.h"

namespace pipetwin::cli {

Exported export_json(const ExportSource& source, const ExportOptions&, Console&) {
    std::string plan = source.plan_json();
    return of_schedule(source.schedule(), std::move(plan));
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/export/exporters.h"
#include "core/interop/jobs/deepspeed_job.h"

namespace pipetwin::cli {

Exported export_deepspeed(const ExportSource& source, const ExportOptions&, Console& console) {
    const ExportSource::Placed placed = source.placed();
    const DeepSpeedJob job = deepspeed_job(placed);
    for (const std::string& remark : job.remarks) {  // JSON has no comments
        console.note(remark);
    }
    return of_plan(placed, job.json);
}

}  // namespace pipetwin::cli

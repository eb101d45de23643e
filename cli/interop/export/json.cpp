#include "cli/interop/export/exporters.h"

namespace pipetwin::cli {

Exported export_json(const ExportSource& source, const ExportOptions&, Console&) {
    Exported exported{.content = source.plan_json(), .result = {}};
    const Schedule schedule = source.schedule();
    exported.result.ranks = schedule.rank_count();
    exported.result.stages = schedule.stage_count();
    exported.result.micro_batches = schedule.micro_batches;
    return exported;
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/interop/export/exporters.h"
#include "core/interop/jobs/megatron_job.h"
#include "core/interop/megatron_layout.h"

namespace pipetwin::cli {

namespace {

void print_notes(const PlanNotes& notes, Console& console) {
    for (const PlanNote& note : notes.all()) {
        console.note(note.text);
    }
}

}  // namespace

Exported export_megatron_layout(const ExportSource& source,
                                const ExportOptions&,
                                Console& console) {
    const ExportSource::Placed placed = source.placed();
    PlanNotes notes;
    const MegatronLayout layout = megatron_plan_layout(placed, notes);
    print_notes(notes, console);
    return of_plan(placed, print_megatron_layout(layout) + '\n');
}

Exported export_megatron_flags(const ExportSource& source, const ExportOptions&, Console& console) {
    const ExportSource::Placed placed = source.placed();
    PlanNotes notes;
    const MegatronPlanFlags flags = megatron_plan_flags(placed, notes);
    print_notes(notes, console);
    return of_plan(placed, flags.line() + '\n');
}

Exported export_slurm_script(const ExportSource& source, const ExportOptions&, Console&) {
    const ExportSource::Placed placed = source.placed();
    return of_plan(placed, print_slurm_script(placed));
}

Exported export_launch_script(const ExportSource& source, const ExportOptions&, Console&) {
    const ExportSource::Placed placed = source.placed();
    return of_plan(placed, print_launch_script(placed));
}

Exported export_kubernetes_job(const ExportSource& source, const ExportOptions&, Console&) {
    const ExportSource::Placed placed = source.placed();
    return of_plan(placed, print_kubernetes_job(placed));
}

Exported export_bridge(const ExportSource& source, const ExportOptions&, Console&) {
    const ExportSource::Placed placed = source.placed();
    return of_plan(placed, print_bridge_overrides(placed));
}

}  // namespace pipetwin::cli

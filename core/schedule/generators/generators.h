#pragma once

#include <functional>
#include <string_view>

#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/row_writer.h"

/// One generator per file, each with its picture in the .cpp. Callers use `generate` of
/// core/schedule/generators/generate.h.
///
/// Every generator writes compute actions only (F, B, I and W), checks its shape before it
/// allocates, and is total: it returns a valid schedule or throws Error(Infeasible) naming the rule
/// that the shape breaks.
namespace pipetwin::schedules {

Schedule naive(const ScheduleShape& shape);
Schedule gpipe(const ScheduleShape& shape, BackwardOrder order);
Schedule one_f_one_b(const ScheduleShape& shape);
Schedule interleaved_1f1b(const ScheduleShape& shape, int group_size);
Schedule looped_bfs(const ScheduleShape& shape);
Schedule zb_h1(const ScheduleShape& shape);
Schedule zb_h2(const ScheduleShape& shape);
Schedule zb_auto(const ScheduleShape& shape, const ZeroBubbleCosts& costs);
Schedule zb_v(const ScheduleShape& shape);
Schedule interleaved_zb(const ScheduleShape& shape);
Schedule dualpipe_v(const ScheduleShape& shape);
Schedule chimera(const ScheduleShape& shape);
Schedule hanayo(const ScheduleShape& shape);
Schedule forward_only(const ScheduleShape& shape);
Schedule pipedream(const ScheduleShape& shape, std::string_view name);

/// The empty grid that a generator fills: stage s on rank s mod p, every stage with its own
/// weights.
Schedule loop_placement(const ScheduleShape& shape);

/// The same for two chunks per rank whose order turns round at the last rank: stage s < p on rank
/// s, every other on rank 2p - 1 - s.
Schedule v_placement(const ScheduleShape& shape);

/// Lets `write` fill each row; chunk c of a rank is its c-th stage.
void fill_rows(Schedule& schedule, const std::function<void(int rank, RowWriter& row)>& write);

/// For generators without chunks. Throws Error(Infeasible): "gpipe: one chunk per rank, got 2".
void require_one_chunk(const ScheduleShape& shape, std::string_view name);

/// For those with a V placement. Throws Error(Infeasible): "zb-v: two chunks per rank, got 1".
void require_two_chunks(const ScheduleShape& shape, std::string_view name);

/// Throws Error(Infeasible) "<name>: <rule>" with the hint unless `holds`.
void require_rule(bool holds, std::string_view name, std::string_view rule, std::string_view hint);

}  // namespace pipetwin::schedules

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string_view>
#include <vector>

#include "core/base/error.h"
#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/row_writer.h"
#include "core/schedule/generators/schedule_traits.h"

/// One generator per file, each with its picture and, below it, the row that says what the rest of
/// the program has to know of the schedule. Callers use core/schedule/generators/generate.h.
///
/// Every generator writes compute actions only (F, B, I and W), checks its shape before it
/// allocates, and is total: it returns a valid schedule or throws Error(Infeasible) naming the rule
/// that the shape breaks.
namespace pipetwin::schedules {

extern const ScheduleTraits naive_traits;
extern const ScheduleTraits gpipe_traits;
extern const ScheduleTraits one_f_one_b_traits;
extern const ScheduleTraits interleaved_1f1b_traits;
extern const ScheduleTraits looped_bfs_traits;
extern const ScheduleTraits zb_h1_traits;
extern const ScheduleTraits zb_h2_traits;
extern const ScheduleTraits zb_auto_traits;
extern const ScheduleTraits zb_v_traits;
extern const ScheduleTraits interleaved_zb_traits;
extern const ScheduleTraits dualpipe_v_traits;
extern const ScheduleTraits chimera_traits;
extern const ScheduleTraits hanayo_traits;
extern const ScheduleTraits forward_only_traits;
extern const ScheduleTraits pipedream_traits;
extern const ScheduleTraits pipedream_2bw_traits;

/// Every row, in the order of `ScheduleKind`. A test may add one of its own before others read the
/// list.
std::vector<const ScheduleTraits*>& rows();

/// The empty grid that a generator fills: stage s on rank s mod p, every stage with its own
/// weights.
Schedule loop_placement(const ScheduleShape& shape);

/// An empty schedule of two chunks per rank whose order turns round at the last rank: stage s < p
/// on rank s, every other on rank 2p - 1 - s.
Schedule v_placement(const ScheduleShape& shape);

/// Lets `write` fill each row; chunk c of a rank is its c-th stage.
void fill_rows(Schedule& schedule, const std::function<void(int rank, RowWriter& row)>& write);

/// For generators without chunks. Throws Error(Infeasible): "gpipe: needs one chunk per rank, got
/// 2".
void require_one_chunk(const ScheduleShape& shape, std::string_view name);

/// For those with a V placement. Throws Error(Infeasible): "zb-v: needs two chunks per rank, got
/// 1".
void require_two_chunks(const ScheduleShape& shape, std::string_view name);

/// Throws Error(Infeasible) "<name>: <rule>" with the hint unless `holds`.
void require_rule(bool holds, std::string_view name, std::string_view rule, const Hint& hint);

}  // namespace pipetwin::schedules

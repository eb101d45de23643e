// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

#include "exec/base/element_range.h"

/// Work that several threads do together while an executor is being made. In a step each rank has
/// one thread, whose time is measured, so nothing is divided then.
namespace pipetwin::exec {

/// Lets `in_pieces` use this many threads for the work of the thread that made the object, as long
/// as it lives.
class WorkDivision {
  public:
    explicit WorkDivision(std::size_t threads);
    WorkDivision(const WorkDivision&) = delete;
    WorkDivision& operator=(const WorkDivision&) = delete;
    ~WorkDivision();

  private:
    std::size_t before_;
};

/// Calls work(piece) for all pieces of [0, size): `piece` elements each, the last one fewer. On
/// this thread alone unless there is a WorkDivision; else several pieces are done at the same time.
/// Returns when all are done, and throws what one of the calls threw.
void in_pieces(std::int64_t size,
               std::int64_t piece,
               const std::function<void(const ElementRange&)>& work);

}  // namespace pipetwin::exec

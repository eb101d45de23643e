// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/accuracy/rounds.h"

#include <iosfwd>
#include <vector>

/// How bench/accuracy prints what it measured.
namespace pipetwin::accuracy {

void print_scalars(const Scalars& scalars, Precision precision, std::ostream& out);
void print_head(std::ostream& out);
void print_row(const CellResult& cell, std::ostream& out);

/// Whether the goals are reached, over the cells that pass the gate, and what those have in common
/// that are predicted too long or too short. True if at least 60 % of the cells pass.
bool print_summary(const std::vector<CellResult>& cells, const Grid& grid, std::ostream& out);

}  // namespace pipetwin::accuracy

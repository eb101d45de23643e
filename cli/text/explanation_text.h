// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "cli/text/sentences.h"
#include "sim/explain/explanation.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

/// A prediction explained in sentences that need no manual (the rules: docs/simulation.md).
namespace pipetwin::cli {

/// "Where the time goes" and, where something would help, "What would help most".
std::vector<Paragraph> explanation_paragraphs(const Plan& plan,
                                              const sim::Explanation& explanation);

/// "stage 2's backward".
std::string target_text(const sim::Target& target);

/// The longest waits with their chains, one line each.
std::vector<std::string> wait_lines(const Plan& plan,
                                    const sim::Explanation& explanation,
                                    std::size_t most);

}  // namespace pipetwin::cli

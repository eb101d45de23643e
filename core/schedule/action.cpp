// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/action.h"

#include <array>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"

namespace pipetwin {

namespace {

struct OpWords {
    Op op;
    std::string_view text;
    std::string_view words;
};

constexpr std::array<OpWords, op_count> table{{
    {Op::Forward, "F", "forward"},
    {Op::Backward, "B", "backward"},
    {Op::BackwardInput, "I", "input gradient"},
    {Op::BackwardWeight, "W", "weight gradient"},
    {Op::Recompute, "R", "recompute"},
    {Op::SendForward, "SEND_F", "send of the output"},
    {Op::RecvForward, "RECV_F", "receive of the input"},
    {Op::SendBackward, "SEND_B", "send of the input's gradient"},
    {Op::RecvBackward, "RECV_B", "receive of the output's gradient"},
    {Op::ReduceGradient, "REDUCE_GRAD", "gradient reduction"},
    {Op::Unshard, "UNSHARD", "unshard"},
    {Op::Reshard, "RESHARD", "reshard"},
    {Op::GradientNorm, "NORM", "gradient norm"},
    {Op::Optimizer, "OPT", "optimizer"},
}};

const OpWords& row(Op op) {
    const std::size_t index = as_index(op);
    PIPETWIN_EXPECT(index < table.size(), "op out of range");
    return table.at(index);
}

}  // namespace

std::string_view op_text(Op op) {
    return row(op).text;
}

std::string_view op_words(Op op) {
    return row(op).words;
}

std::string to_string(const Action& action) {
    if (!has_micro_batch(action.op)) {
        return fmt::format("{}{}", action.stage, op_text(action.op));
    }
    if (action.hop != 0) {
        return fmt::format("{}{}{}{}{}",
                           action.stage,
                           op_text(action.op),
                           action.micro_batch,
                           is_send(action.op) ? '>' : '<',
                           peer_stage(action));
    }
    return fmt::format("{}{}{}", action.stage, op_text(action.op), action.micro_batch);
}

std::string in_full(const Action& action) {
    if (action.hop != 0) {
        return fmt::format("{} (the {} of micro-batch {} from stage {} to stage {})",
                           to_string(action),
                           op_words(action.op),
                           action.micro_batch,
                           is_send(action.op) ? action.stage : peer_stage(action),
                           is_send(action.op) ? peer_stage(action) : action.stage);
    }
    return has_micro_batch(action.op) ? fmt::format("{} (the {} of micro-batch {} on stage {})",
                                                    to_string(action),
                                                    op_words(action.op),
                                                    action.micro_batch,
                                                    action.stage)
                                      : fmt::format("{} (the {} of stage {})",
                                                    to_string(action),
                                                    op_words(action.op),
                                                    action.stage);
}

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace pipetwin {

/// The kinds of actions of a rank. In the text form: F, B, I, W, R, NORM, OPT, SEND_F, ...
/// (PyTorch's words, plus R, NORM and OPT).
enum class Op {
    Forward,         ///< F
    Backward,        ///< B: both gradients
    BackwardInput,   ///< I
    BackwardWeight,  ///< W
    Recompute,       ///< R: forward again, keeping the intermediates
    SendForward,     ///< SEND_F: this stage's output of a micro-batch goes to a later stage
    RecvForward,     ///< RECV_F: this stage's input arrives from an earlier stage
    SendBackward,    ///< SEND_B: the gradient of this stage's input goes to an earlier stage
    RecvBackward,    ///< RECV_B: the gradient of this stage's output arrives from a later stage
    ReduceGradient,  ///< REDUCE_GRAD: over the replicas; no micro-batch
    Unshard,         ///< UNSHARD: no micro-batch
    Reshard,         ///< RESHARD: no micro-batch
    GradientNorm,    ///< NORM: of the stage's summed gradients; no micro-batch
    Optimizer,       ///< OPT: update of the stage's weights; no micro-batch
};
/// Number of values of `Op`.
constexpr int op_count = 14;

/// "2F0": stage 2, forward, micro-batch 0.
struct Action {
    Op op{};
    int stage = 0;
    int micro_batch = 0;
    bool with_next = false;  ///< issued together with the next action of the row (overlapped pair)
    /// Messages: the stages between this stage and the one at the other end. 0: the two are
    /// neighbours. More: a skip message, "0SEND_F2>3".
    std::int16_t hop = 0;

    auto operator<=>(const Action&) const = default;
};

/// "F", "SEND_F", "OPT".
std::string_view op_text(Op op);

/// "forward", "send of the output": for sentences.
std::string_view op_words(Op op);

/// True for F, B, I, W and R.
constexpr bool is_compute(Op op) {
    return op <= Op::Recompute;
}
/// True for SEND_F and SEND_B.
constexpr bool is_send(Op op) {
    return op == Op::SendForward || op == Op::SendBackward;
}
/// True for RECV_F and RECV_B.
constexpr bool is_receive(Op op) {
    return op == Op::RecvForward || op == Op::RecvBackward;
}
/// True for sends and receives.
constexpr bool is_message(Op op) {
    return is_send(op) || is_receive(op);
}
/// True for F, SEND_F and RECV_F: the actions of a row that an evaluation runs.
constexpr bool is_of_forward(Op op) {
    return op == Op::Forward || op == Op::SendForward || op == Op::RecvForward;
}
/// False for REDUCE_GRAD, UNSHARD, RESHARD, NORM and OPT.
constexpr bool has_micro_batch(Op op) {
    return op < Op::ReduceGradient;
}
/// NORM and OPT: what needs the stage's gradients summed up, also with those from elsewhere.
constexpr bool uses_gradients(Op op) {
    return op == Op::GradientNorm || op == Op::Optimizer;
}

/// The most stages that lie between the two ends of a message.
constexpr int largest_hop = INT16_MAX;

/// True for SEND_F and RECV_B: the other end of the message is a later stage.
constexpr bool leads_to_later_stage(Op op) {
    return op == Op::SendForward || op == Op::RecvBackward;
}

/// The stage at the other end of a message. Of any other action: a stage beside its own.
constexpr int peer_stage(const Action& message) {
    const int apart = 1 + message.hop;
    return leads_to_later_stage(message.op) ? message.stage + apart : message.stage - apart;
}

/// "2F0", "0SEND_F3", "1OPT"; a skip message names the stage at its other end: "0SEND_F2>3",
/// "3RECV_F2<0", "3SEND_B2>0", "0RECV_B2<3".
std::string to_string(const Action& action);

/// "2F0 (the forward of micro-batch 0 on stage 2)": for the first name of an action that a reader
/// meets.
std::string in_full(const Action& action);

}  // namespace pipetwin

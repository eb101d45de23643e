// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace pipetwin {

/// What a router makes of its logits.
enum class RouterScores { Softmax, Sigmoid };

/// How a router sends each row to a few of many experts.
///
///   scores   softmax of a row's logits over all experts, or a sigmoid of each (DeepSeek-V3, arXiv
///            2412.19437, section 2.1.2)
///   choice   the experts with the largest scores, or scores and biases, ties to the lower number.
///            With groups only experts of the best groups: a group counts its largest score, or,
///            of sigmoids, the sum of its two largest
///   weights  the scores of the chosen experts, over their sum if `normalised`, times `scale`
struct Routing {
    int experts = 0;  ///< 0: there is no router
    int per_row = 1;
    RouterScores scores = RouterScores::Softmax;
    int groups = 1;         ///< of neighbouring experts, as many in each
    int chosen_groups = 1;  ///< of which experts are chosen
    bool normalised = true;
    double scale = 1;
    /// Factor of the loss of unequal loads, of each layer and micro-batch (Switch Transformer,
    /// arXiv 2101.03961, section 2.2): experts * sum over experts of (share of the choices) * (mean
    /// score over the rows, of sigmoids each over its row's sum).
    double auxiliary_loss = 0;
    /// By which a bias of each expert moves with a mini-batch: up where fewer rows than the mean
    /// have chosen it, down where more have. Only the choice sees it (arXiv 2412.19437, section
    /// 2.1.2). 0: there is none.
    double bias_update = 0;

    bool operator==(const Routing&) const = default;
};

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#include "sim/search/module_choice.h"

#include <algorithm>
#include <utility>

#include "core/base/as_index.h"

namespace pipetwin::sim {

namespace {

/// [stage]: micro-batches that it has at once, from F to B or W.
std::vector<std::int64_t> most_alive(const Schedule& schedule) {
    std::vector<std::int64_t> alive(as_index(schedule.stage_count()));
    std::vector<std::int64_t> most(alive.size());
    for (const std::vector<Action>& row : schedule.ranks) {
        for (const Action& action : row) {
            if (action.stage < 0) {
                continue;
            }
            const std::size_t stage = as_index(action.stage);
            alive[stage] += action.op == Op::Forward ? 1 : 0;
            most[stage] = std::max(most[stage], alive[stage]);
            alive[stage] -= action.op == Op::Backward || action.op == Op::BackwardWeight ? 1 : 0;
        }
    }
    return most;
}

/// A run of layers of which some micro-batches are alive.
struct Piece {
    const LayerSamples& samples;
    const std::vector<int>& blocks;
    int first = 0;
    int end = 0;
    std::int64_t alive = 0;
};

/// [blocks]: what a module gives in the first so many blocks that have it.
KnapsackClass gains_of(const Piece& piece, RecomputeModule module) {
    KnapsackClass choices{{}};
    int last = -1;
    for (int layer = piece.first; layer < piece.end; ++layer) {
        const LayerSample& sample = piece.samples[as_index(layer)];
        const auto found = std::ranges::find(
            sample.modules.made, static_cast<std::size_t>(module), &ModuleBytes::module);
        if (found == sample.modules.made.end()) {
            continue;
        }
        if (const int block = piece.blocks[as_index(layer)]; block != last) {
            choices.push_back(choices.back());
            last = block;
        }
        const Duration sent =
            module == RecomputeModule::Experts ? sample.messages.forward_sums : Duration{};
        choices.back().bytes += piece.alive * found->bytes.count;
        choices.back().time += (found->forward + sent).count();
    }
    return choices;
}

int listed(std::size_t blocks, std::size_t choices) {
    return blocks + 1 == choices ? RecomputeModules::all_blocks : static_cast<int>(blocks);
}

/// Choices of one or several modules, with the lists that they mean.
struct ModuleOptions {
    KnapsackClass choices{};
    std::vector<RecomputeModules> modules{};

    void leave_undominated() {
        ModuleOptions left;
        for (const std::size_t one : undominated(choices)) {
            left.choices.push_back(choices[one]);
            left.modules.push_back(modules[one]);
        }
        *this = std::move(left);
    }
};

ModuleOptions choices_of(const Piece& piece, RecomputeModule module) {
    ModuleOptions all{.choices = gains_of(piece, module)};
    for (std::size_t blocks = 0; blocks < all.choices.size(); ++blocks) {
        RecomputeModules& list = all.modules.emplace_back();
        if (blocks > 0) {
            list.add(module, listed(blocks, all.choices.size()));
        }
    }
    return all;
}

/// What a module inside of experts gives beside these in the first `experts` blocks; `blocks`:
/// those that have it. Not every block of experts has shared ones.
KnapsackChoice beside(const KnapsackClass& gains, std::size_t blocks, std::size_t experts) {
    const KnapsackChoice& inside = gains[std::min(experts, gains.size() - 1)];
    const KnapsackChoice& all = gains[blocks];
    return {.bytes = std::max<std::int64_t>(all.bytes - inside.bytes, 0),
            .time = std::max<std::int64_t>(all.time - inside.time, 0)};
}

/// Whole experts in some blocks, and modules inside of them in further ones.
ModuleOptions choices_of_experts(const Piece& piece) {
    const KnapsackClass experts = gains_of(piece, RecomputeModule::Experts);
    const KnapsackClass activation = gains_of(piece, RecomputeModule::ExpertActivation);
    const KnapsackClass shared = gains_of(piece, RecomputeModule::SharedExperts);
    ModuleOptions all;
    for (std::size_t whole = 0; whole < experts.size(); ++whole) {
        ModuleOptions of_whole;
        for (std::size_t a = std::min(whole, activation.size() - 1); a < activation.size(); ++a) {
            const KnapsackChoice of_activation = beside(activation, a, whole);
            for (std::size_t s = std::min(whole, shared.size() - 1); s < shared.size(); ++s) {
                const KnapsackChoice of_shared = beside(shared, s, whole);
                of_whole.choices.push_back(
                    {.bytes = experts[whole].bytes + of_activation.bytes + of_shared.bytes,
                     .time = experts[whole].time + of_activation.time + of_shared.time});
                RecomputeModules& list = of_whole.modules.emplace_back();
                const auto add = [&](RecomputeModule module, std::size_t blocks, std::size_t most) {
                    if (blocks > 0) {
                        list.add(module, listed(blocks, most));
                    }
                };
                add(RecomputeModule::Experts, whole, experts.size());
                add(RecomputeModule::ExpertActivation, a > whole ? a : 0, activation.size());
                add(RecomputeModule::SharedExperts, s > whole ? s : 0, shared.size());
            }
        }
        of_whole.leave_undominated();
        all.choices.insert(all.choices.end(), of_whole.choices.begin(), of_whole.choices.end());
        all.modules.insert(all.modules.end(), of_whole.modules.begin(), of_whole.modules.end());
    }
    all.leave_undominated();
    return all;
}

void add(RecomputeModules& all, const RecomputeModules& further) {
    for (std::size_t i = 0; i < recompute_module_words.size(); ++i) {
        const auto module = static_cast<RecomputeModule>(i);
        all.add(module, std::max(all.blocks(module), further.blocks(module)));
    }
}

}  // namespace

ModuleChoice::ModuleChoice(const LayerSamples& samples,
                           const std::vector<int>& blocks,
                           const Plan& plan)
    : classes_(as_index(plan.rank_count())) {
    const Schedule& schedule = plan->schedule;
    const std::vector<std::int64_t> alive = most_alive(schedule);
    for (int stage = 0; stage < schedule.stage_count(); ++stage) {
        const int index = schedule.weights_of_stage[as_index(stage)];
        const int first = plan->partition->first_layer(index);
        const Piece piece{.samples = samples,
                          .blocks = blocks,
                          .first = first,
                          .end = first + plan->partition->layers_in(index),
                          .alive = alive[as_index(stage)]};
        std::vector<Class>& of_rank = classes_[as_index(schedule.rank_of_stage[as_index(stage)])];
        const auto add_class = [&](ModuleOptions choices) {
            of_rank.push_back({.piece = index,
                               .choices = std::move(choices.choices),
                               .modules = std::move(choices.modules)});
        };
        for (const RecomputeModule module : {RecomputeModule::FeedForward,
                                             RecomputeModule::LatentUp,
                                             RecomputeModule::Norms,
                                             RecomputeModule::CoreAttention}) {
            add_class(choices_of(piece, module));
        }
        add_class(choices_of_experts(piece));
    }
}

std::optional<ModuleChoice::Answer> ModuleChoice::least_time(int rank, Bytes need) const {
    const std::vector<Class>& classes = classes_.at(as_index(rank));
    std::vector<KnapsackClass> choices;
    for (const Class& one : classes) {
        choices.push_back(one.choices);
    }
    const auto taken = least_time_choices(choices, need.count);
    if (!taken) {
        return std::nullopt;
    }
    Answer answer;
    for (std::size_t i = 0; i < classes.size(); ++i) {
        if (answer.pieces.empty() || answer.pieces.back() != classes[i].piece) {
            answer.pieces.push_back(classes[i].piece);
            answer.modules.emplace_back();
        }
        add(answer.modules.back(), classes[i].modules[(*taken)[i]]);
        answer.given += Bytes{classes[i].choices[(*taken)[i]].bytes};
    }
    return answer;
}

}  // namespace pipetwin::sim

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>
#include <utility>

#include "core/base/as_index.h"
#include "exec/data/random_batch.h"
#include "exec/executor/backend.h"
#include "exec/executor/executor_impl.h"

namespace pipetwin::exec {

/// Whether the layouts fit into what was taken of the GPUs in advance, which counts with no loss
/// between tensors. Else blocks are taken as they come.
bool Executor::Impl::has_room() const {
    constexpr Bytes for_kernels{std::int64_t{16} << 20};  // per rank: what they work in
    struct Pool {
        Bytes all;
        Bytes needed;
    };
    std::map<const Memory*, Pool> pools;
    for (const int index : here) {
        const std::size_t rank = as_index(index);
        const Device& device = workers[rank]->device();
        Pool& pool = pools[&workers[rank]->device().memory()];
        pool.all += device.memory_beside().pool;
        pool.needed += workers[rank]->arena().live().total() + for_kernels +
                       Bytes{static_cast<std::int64_t>(layouts[rank].extent)};
    }
    return std::ranges::all_of(pools, [](const auto& each) {
        const Pool& pool = each.second;
        return pool.all == Bytes{} || pool.needed <= pool.all;
    });
}

/// Every tensor of a step gets its place before the first, but where stashes go to host memory:
/// when they leave their device is a matter of time.
void Executor::Impl::plan_memory() {
    if (plan->host_link && plan->gradient_shards == 1) {
        return;
    }
    const Batch blank = random_batch(model, static_cast<int>(plan.samples().value()), 0);
    const StepInput step{
        .data = split(blank, plan->micro_batch_sizes, {.index = 0, .count = plan->replicas}),
        .optimizer = options.optimizer,
        .step = 0};
    std::vector<RowNeeds> needs(workers.size());  // of other processes' ranks nothing is known
    for (const int rank : here) {
        needs[as_index(rank)] = workers[as_index(rank)]->rehearse(step);
    }
    if (plan->host_link) {
        return;
    }
    std::vector<bool> copied;
    for (std::size_t pair = 0; pair < edges.forward.size(); ++pair) {
        copied.push_back(edges.forward[pair].copies());
        copied.push_back(edges.backward[pair].copies());
    }
    layouts = lay_out_step(plan, needs, copied);
    if (!has_room()) {
        layouts.clear();
        return;
    }
    std::vector<std::byte*> rooms(workers.size());
    for (const int index : here) {
        const std::size_t rank = as_index(index);
        rooms[rank] =
            static_cast<std::byte*>(workers[rank]->arena().take_room(layouts[rank].extent));
    }
    // [edge][micro-batch]
    std::vector<std::vector<void*>> messages(copied.size(),
                                             std::vector<void*>(as_index(plan.micro_batches())));
    const auto address_of = [&](const MessageName& message) -> void*& {
        return messages[as_index(message.edge)][as_index(message.micro_batch)];
    };
    for (std::size_t rank = 0; rank < needs.size(); ++rank) {
        for (std::size_t i = 0; i < needs[rank].arrivals.size(); ++i) {
            address_of(*needs[rank].arrivals[i].received) = rooms[rank] + layouts[rank].arrivals[i];
        }
    }
    for (const int index : here) {
        const std::size_t rank = as_index(index);
        StepPlaces places{.asked = std::move(needs[rank].asked),
                          .at_work = std::move(needs[rank].at_work)};
        for (std::size_t i = 0; i < needs[rank].requests.size(); ++i) {
            const RowNeeds::Need& need = needs[rank].requests[i];
            places.requests.push_back({.bytes = need.bytes,
                                       .address = need.sent
                                                      ? address_of(*need.sent)
                                                      : rooms[rank] + layouts[rank].requests[i]});
        }
        workers[rank]->arena().follow(std::move(places));
    }
    for (std::size_t pair = 0; pair < edges.forward.size(); ++pair) {
        if (copied[2 * pair]) {
            edges.forward[pair].places = std::move(messages[2 * pair]);
            edges.backward[pair].places = std::move(messages[2 * pair + 1]);
        }
    }
}

/// On a GPU an action with the addresses of a step before is a graph that is there already.
void Executor::Impl::repeat_addresses() const {
    if (traits(options.backend).replays_actions && !has_planned_memory()) {
        std::map<const Memory*, std::vector<Arena*>> arenas;
        for (Worker* const worker : workers_here()) {
            arenas[&worker->arena().memory()].push_back(&worker->arena());
        }
        for (const auto& [memory, sharing] : arenas) {
            Arena::deal_free_blocks(sharing);
        }
    }
}

}  // namespace pipetwin::exec

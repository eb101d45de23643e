// SPDX-License-Identifier: Apache-2.0
#include "exec/layers/graph_memory.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "core/base/error.h"

namespace pipetwin::exec {
namespace {

/// Hands rooms out, and makes new ones where all are taken.
class RoomKeeper {
  public:
    explicit RoomKeeper(Rooms& rooms) : rooms_(rooms) {}

    /// A room for so many numbers of a sample: the smallest free one that is large enough, else the
    /// largest free one, which grows, else a new one.
    std::size_t take(std::int64_t numbers) {
        std::size_t best = rooms_.end();
        for (std::size_t room = 0; room < rooms_.end(); ++room) {
            if (!is_taken_[room] && (best == rooms_.end() || is_better(room, best, numbers))) {
                best = room;
            }
        }
        if (best == rooms_.end()) {
            rooms_.numbers.push_back(0);
            is_taken_.push_back(false);
        }
        rooms_.numbers[best] = std::max(rooms_.numbers[best], numbers);
        is_taken_[best] = true;
        return best;
    }

    void give_back(std::size_t room) { is_taken_[room] = false; }

  private:
    bool is_better(std::size_t room, std::size_t than, std::int64_t numbers) const {
        const std::int64_t size = rooms_.numbers[room];
        const std::int64_t other = rooms_.numbers[than];
        return other < numbers ? size > other : size >= numbers && size < other;
    }

    Rooms& rooms_;
    std::vector<bool> is_taken_{};
};

}  // namespace

Bytes Rooms::offset(std::size_t room, int samples, std::int64_t width) const {
    std::int64_t sum = 0;
    for (std::size_t before = 0; before < room; ++before) {
        sum += aligned(Bytes{numbers[before] * samples * width}).count;
    }
    return Bytes{sum};
}

/// Goes through a backward, from the last node to the first.
class GraphMemory::BackwardPlanner {
  public:
    BackwardPlanner(const GraphMemory& memory, Backward half)
        : memory_(memory), half_(half), keeper_(plan_.rooms) {
        plan_.gradients.resize(memory.shape_.numbers.size());
        plan_.summand_rooms.resize(memory.node_count());
        users_.resize(memory.shape_.numbers.size());
    }

    Plan take() {
        for (std::size_t node = memory_.node_count(); node-- > 0;) {
            visit(node);
            release(memory_.output_of(node));
        }
        return std::move(plan_);
    }

  private:
    std::int64_t numbers_of(std::size_t value) const { return memory_.shape_.numbers[value]; }

    void visit(std::size_t node) {
        const GraphShape::Node& own = memory_.shape_.nodes[node];
        for (const std::size_t value : own.operands) {
            const bool last = memory_.is_last_reader(value, node);
            if (memory_.is_outside(value)) {
                if (last && memory_.shape_.inputs == 1 && memory_.needs_input_room(half_)) {
                    plan_.input_room = keeper_.take(numbers_of(value));
                }
            } else if (last) {
                place(value, node);
            }
        }
        // A layer that reads one output writes a summand of a gradient beside it. That of an input
        // from outside may be added to what is there.
        const std::size_t value = own.operands.front();
        if (!own.adds_itself &&
            (memory_.is_outside(value) || !memory_.is_last_reader(value, node))) {
            plan_.summand_rooms[node] = keeper_.take(numbers_of(value));
            keeper_.give_back(plan_.summand_rooms[node]);
        }
    }

    void place(std::size_t value, std::size_t node) {
        Gradient& gradient = plan_.gradients[value];
        const std::size_t root = memory_.root_[value];
        ++users_[root];
        if (root != value) {
            gradient.place = Place::OfSum;
        } else if (may_lie_in_output(value)) {
            gradient.place = Place::OfOutput;
        } else if (half_ == Backward::InputHalf && memory_.gradient_read_[value]) {
            gradient.place = Place::Own;
        } else {
            gradient.place = Place::Room;
            gradient.room = takes_over(value, node) ? gradient_of_output(node).room
                                                    : keeper_.take(numbers_of(value));
        }
    }

    const Gradient& gradient_of_output(std::size_t node) const {
        return plan_.gradients[memory_.root_[memory_.output_of(node)]];
    }

    /// A layer that reads its output works number by number: it writes its gradient over the one
    /// that it reads, where that is in scratch and nothing else reads it.
    bool takes_over(std::size_t value, std::size_t node) {
        const std::size_t output = memory_.output_of(node);
        const std::size_t root = memory_.root_[output];
        const bool does = memory_.shape_.nodes[node].reads_output && root == output &&
                          users_[root] == 1 && gradient_of_output(node).place == Place::Room &&
                          numbers_of(value) == numbers_of(output);
        if (does) {
            users_[root] = 0;  // the room stays taken
        }
        return does;
    }

    bool may_lie_in_output(std::size_t value) const {
        const GraphShape::Node& maker = memory_.shape_.nodes[value - memory_.shape_.inputs];
        return !maker.reads_output && memory_.is_kept(value) &&
               memory_.only_last_reader_reads(value) &&
               (half_ == Backward::Whole || !memory_.weight_reads(value));
    }

    /// The node that made the value has read its gradient.
    void release(std::size_t value) {
        const std::size_t root = memory_.root_[value];
        if (memory_.is_output(root)) {
            return;
        }
        const Gradient& gradient = plan_.gradients[root];
        if (users_[root] > 0 && --users_[root] == 0 && gradient.place == Place::Room) {
            keeper_.give_back(gradient.room);
        }
    }

    const GraphMemory& memory_;
    Backward half_;
    Plan plan_;
    RoomKeeper keeper_;
    std::vector<int> users_;  ///< [root] values of this gradient whose nodes have not been visited
};

GraphMemory::GraphMemory(GraphShape shape)
    : shape_(std::move(shape)), readers_(shape_.numbers.size()) {
    const std::size_t values = shape_.numbers.size();
    PIPETWIN_EXPECT(values == shape_.inputs + node_count(), "each node makes a value");
    for (std::size_t node = 0; node < node_count(); ++node) {
        const std::vector<std::size_t>& operands = shape_.nodes[node].operands;
        for (std::size_t operand = 0; operand < operands.size(); ++operand) {
            readers_[operands[operand]].push_back({.node = node, .operand = operand});
        }
    }
    root_.resize(values);
    gradient_read_.assign(values, false);
    for (std::size_t value = values; value-- > 0;) {
        const std::vector<Reader>& readers = readers_[value];
        const bool is_summand =
            !is_outside(value) && readers.size() == 1 && shape_.nodes[readers.front().node].is_sum;
        root_[value] = is_summand ? root_[output_of(readers.front().node)] : value;
        if (!is_outside(value) && shape_.nodes[value - shape_.inputs].weight_reads_gradient) {
            gradient_read_[root_[value]] = true;
        }
    }
    plan_forward();
    whole_ = BackwardPlanner(*this, Backward::Whole).take();
    input_half_ = BackwardPlanner(*this, Backward::InputHalf).take();
}

bool GraphMemory::reads(const Reader& reader) const {
    return shape_.nodes[reader.node].backward_reads[reader.operand];
}

bool GraphMemory::backward_reads(std::size_t value) const {
    return std::ranges::any_of(readers_[value],
                               [this](const Reader& reader) { return reads(reader); });
}

bool GraphMemory::weight_reads(std::size_t value) const {
    return std::ranges::any_of(readers_[value], [this](const Reader& reader) {
        return shape_.nodes[reader.node].weight_reads[reader.operand];
    });
}

bool GraphMemory::is_kept(std::size_t value) const {
    return !is_outside(value) && !is_output(value) && backward_reads(value);
}

bool GraphMemory::is_last_reader(std::size_t value, std::size_t node) const {
    return readers_[value].back().node == node;
}

/// True if no reader needs a value once its last reader has written the gradient: a layer that
/// reads one output writes it when it has read that.
bool GraphMemory::only_last_reader_reads(std::size_t value) const {
    const std::vector<Reader>& readers = readers_[value];
    const Reader& last = readers.back();
    if (reads(last) && shape_.nodes[last.node].adds_itself) {
        return false;
    }
    return std::none_of(
        readers.begin(), readers.end() - 1, [this](const Reader& reader) { return reads(reader); });
}

bool GraphMemory::needs_input_room(Backward half) const {
    return shape_.inputs == 1 && !only_last_reader_reads(0) &&
           (half == Backward::Whole || !weight_reads(0));
}

void GraphMemory::plan_forward() {
    RoomKeeper keeper(forward_rooms_);
    forward_room_.resize(shape_.numbers.size());
    const auto has_room = [this](std::size_t value) {
        return !is_outside(value) && !is_output(value) && !is_kept(value);
    };
    for (std::size_t node = 0; node < node_count(); ++node) {
        const std::size_t made = output_of(node);
        if (has_room(made)) {
            forward_room_[made] = keeper.take(shape_.numbers[made]);
        }
        for (const std::size_t value : shape_.nodes[node].operands) {
            if (has_room(value) && is_last_reader(value, node)) {
                keeper.give_back(forward_room_[value]);
            }
        }
    }
}

}  // namespace pipetwin::exec

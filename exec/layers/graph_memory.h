// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/units.h"

/// Which matrices of a layer with branches stay from its forward to its backward, and where all
/// others lie while it works. Values are numbered as in core/model/inner_layers.h: what the layer
/// reads, then the outputs of the layers inside it.
namespace pipetwin::exec {

/// What the memory of a layer with branches follows from.
struct GraphShape {
    /// A layer inside.
    struct Node {
        std::vector<std::size_t> operands{};  ///< values that it reads
        std::vector<bool> backward_reads{};   ///< [operand]: its backward, or a half of it
        std::vector<bool> weight_reads{};     ///< [operand]: its W
        bool reads_output = false;            ///< its backward, in place of what it reads
        bool adds_itself = false;             ///< to the gradients of its operands
        bool is_sum = false;                  ///< each operand's gradient is that of its output
        bool weight_reads_gradient = false;   ///< its W reads that of its output
    };
    std::size_t inputs = 1;
    std::vector<Node> nodes{};            ///< each behind what it reads; the last makes the output
    std::vector<std::int64_t> numbers{};  ///< [value] of one sample
};

/// Scratch matrices, one behind the other, that values take in turn.
struct Rooms {
    /// Where operands of products may begin on every device, in bytes.
    static constexpr std::int64_t alignment = 256;

    std::vector<std::int64_t> numbers{};  ///< [room] of one sample

    /// Bytes of all rooms; each begins at a multiple of `alignment`. `width`: bytes of a number.
    Bytes bytes(int samples, std::int64_t width) const { return offset(end(), samples, width); }
    /// The next multiple of `alignment`.
    static Bytes aligned(Bytes bytes) {
        return Bytes{(bytes.count + alignment - 1) / alignment * alignment};
    }
    /// Bytes before a room.
    Bytes offset(std::size_t room, int samples, std::int64_t width) const;
    std::size_t end() const { return numbers.size(); }
};

/// The plan of all three directions.
class GraphMemory {
  public:
    explicit GraphMemory(GraphShape shape);

    const GraphShape& shape() const { return shape_; }
    std::size_t node_count() const { return shape_.nodes.size(); }
    std::size_t output_of(std::size_t node) const { return shape_.inputs + node; }
    bool is_outside(std::size_t value) const { return value < shape_.inputs; }
    bool is_output(std::size_t value) const { return value + 1 == shape_.numbers.size(); }

    /// True for an output inside that stays until the backward: a backward reads it.
    bool is_kept(std::size_t value) const;
    bool backward_reads(std::size_t value) const;
    bool weight_reads(std::size_t value) const;
    /// True if the gradient of a value is first written when the backward comes to this node: the
    /// last that reads it.
    bool is_last_reader(std::size_t value, std::size_t node) const;
    /// True if W reads the gradient of the value, or one that lies in the same place.
    bool weight_reads_gradient(std::size_t value) const { return gradient_read_[root_[value]]; }

    /// Room of an output that is not kept, in the forward.
    std::size_t forward_room(std::size_t value) const { return forward_room_[value]; }
    const Rooms& forward_rooms() const { return forward_rooms_; }

    /// B, or I before W.
    enum class Backward { Whole, InputHalf };
    /// Where the gradient of a value lies.
    enum class Place {
        Given,     ///< the caller says
        OfSum,     ///< it is the gradient of the sum that alone reads the value
        OfOutput,  ///< where the value itself was: nothing reads that any more, nor its own layer
        Own,       ///< in a tensor of its own, until W
        Room       ///< in scratch
    };
    struct Gradient {
        Place place = Place::Given;
        std::size_t room = 0;  ///< of `Room`
    };
    const Gradient& gradient(Backward half, std::size_t value) const {
        return plan(half).gradients[value];
    }
    /// The value whose gradient that of `value` is: of a sum that alone reads it, else its own.
    std::size_t root(std::size_t value) const { return root_[value]; }
    /// Room in which a node writes a gradient that is added to another.
    std::size_t summand_room(Backward half, std::size_t node) const {
        return plan(half).summand_rooms[node];
    }
    /// True if the gradient of the only input cannot be written where that input lies, as layers
    /// read it after the first has written.
    bool needs_input_room(Backward half) const;
    /// Room in which it is summed then.
    std::size_t input_room(Backward half) const { return plan(half).input_room; }
    const Rooms& rooms(Backward half) const { return plan(half).rooms; }

  private:
    struct Plan {
        std::vector<Gradient> gradients{};         ///< [value]
        std::vector<std::size_t> summand_rooms{};  ///< [node]
        std::size_t input_room = 0;
        Rooms rooms{};
    };
    struct Reader {
        std::size_t node = 0;
        std::size_t operand = 0;
    };
    class BackwardPlanner;

    const Plan& plan(Backward half) const { return half == Backward::Whole ? whole_ : input_half_; }
    bool reads(const Reader& reader) const;
    bool only_last_reader_reads(std::size_t value) const;
    void plan_forward();

    GraphShape shape_;
    std::vector<std::vector<Reader>> readers_;  ///< [value], ascending
    std::vector<std::size_t> root_;             ///< [value]
    std::vector<bool> gradient_read_;           ///< [value that is a root]: by a W
    std::vector<std::size_t> forward_room_;     ///< [value]
    Rooms forward_rooms_;
    Plan whole_;
    Plan input_half_;
};

}  // namespace pipetwin::exec

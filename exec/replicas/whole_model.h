// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "exec/base/element_range.h"
#include "exec/executor/executor.h"
#include "exec/executor/trained_parameters.h"
#include "exec/transport/byte_message.h"

namespace pipetwin {

class Plan;

}  // namespace pipetwin

namespace pipetwin::exec {

/// One tensor of a stage's parameters, in one replica.
struct ParameterPlace {
    int replica = 0;
    int device = 0;  ///< of those that divide the layers of the replica
    int stage = 0;
    int parameter = 0;
    int part = 0;  ///< of trained_parts
};

/// A parameter without its contents.
struct ParameterShape {
    /// One of trained_parts: whether the parameter has it, and of which type.
    struct Part {
        bool is_there = false;
        DType type{};
    };
    std::string name;
    bool is_copy = false;
    std::int64_t rows = 0;  ///< padding included
    std::int64_t columns = 0;
    MatrixPadding padding{};
    MatrixCut cut{};
    std::optional<ElementRange> share{};  ///< as Parameter
    bool divides_value = false;           ///< replicas have shares of the value, too
    std::array<Part, trained_parts.size()> parts{};
};

/// The shapes of all parameters of the stages that one executor has, by stage.
using StageShapes = std::map<int, std::vector<ParameterShape>>;
/// The shapes of the stages that the executor has in this process.
StageShapes stage_shapes(Executor& executor);
/// Writes the shapes into a message between processes; `get_stage_shapes` reads them.
void put(ByteWriter& message, const StageShapes& shapes);
/// Reads the shapes that `put` wrote. Throws InternalError past the end of the message.
StageShapes get_stage_shapes(ByteReader& message);

/// Reads and writes the parameters of a training, wherever they lie: in executors of this process,
/// or of others.
class ParameterStore {
  public:
    virtual ~ParameterStore() = default;
    /// The bytes of a tensor. Throws ChannelClosed where the process that has it is lost.
    virtual std::vector<std::byte> read(const ParameterPlace& from) = 0;
    /// Puts `bytes` in place of a tensor's; as many as it has. Throws as `read`.
    virtual void write(std::span<const std::byte> bytes, const ParameterPlace& to) = 0;
};

/// The tensor of `executor` at `place`, whose stage this process has.
Tensor& tensor_at(Executor& executor, const ParameterPlace& place);
/// Copies the bytes of a tensor of `executor` from its device.
std::vector<std::byte> read_tensor(Executor& executor, const ParameterPlace& place);
/// Copies `bytes` into a tensor of `executor`; as many as it has.
void write_tensor(std::span<const std::byte> bytes,
                  Executor& executor,
                  const ParameterPlace& place);

/// Gathers the parameters of the whole model from `store` and calls `use` with them, such as for a
/// checkpoint: each tensor is one whole, whatever share of it a replica or a device has. What is
/// written goes to all replicas, and to all stages that have the same weights. [replica x devices
/// of a rank + device] `shapes` of all stages.
void gather_parameters(const Plan& plan,
                       const std::vector<StageShapes>& shapes,
                       ParameterStore& store,
                       const std::function<void(const TrainedParameters&)>& use);

}  // namespace pipetwin::exec

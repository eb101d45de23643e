#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/compare.h"
#include "core/footprint.h"
#include "core/model.h"
#include "core/plan.h"
#include "core/scenario.h"
#include "core/timeline.h"
#include "exec/data/batch.h"
#include "exec/optimizer.h"
#include "exec/stage.h"

namespace pipetwin::exec {

struct StepResult {
    double loss = 0;                    ///< mean over the mini-batch, before the update
    double grad_norm = 0;               ///< per tensor, then over tensors in model order, in double
    Timeline timeline;                  ///< Measured or Emulated; rows as in the plan
    std::vector<MemoryUse> peak;        ///< per rank, during this step
    double stolen = 0;                  ///< 1 - thread CPU time / wall time over all compute spans
};

/// Where a worker failed.
struct Failure {
    int rank = 0;
    int step = 0;
    Action action;
    std::string message;
};

struct ExecutorOptions {
    Backend backend = Backend::Cpu;
    Precision precision = Precision::Fp32;
    std::uint64_t seed = 1;
    OptimizerSettings optimizer;
    bool input_gradient = false;        ///< the first stage produces the gradient of its input, too
    /// Called by every worker before every action; what it throws is that action's failure. For tests of failing and for
    /// pacing without a model.
    std::function<void(int rank, const Action&)> before_action;
};

/// Trains one partitioned model by walking the plan's rows: one worker thread per rank, each with its own device and
/// arena, channels between them. A worker never decides an order.
///
/// The first error in schedule order wins (C31): every channel is closed, all workers are joined, and run_step throws the
/// original exception - an Error with rank, step and action put before its place, any other type untouched (C30);
/// last_failure() tells where it was. After a failure the gradients are cleared, and the next run_step works (C32).
class Executor {
  public:
    Executor(Plan plan, const Model& model, ExecutorOptions options);
    ~Executor();

    /// One optimizer step over `batch`, whose samples must be the plan's. Throws Error(NotFinite), naming the first stage,
    /// if the loss is not finite; the weights are not updated then.
    StepResult run_step(const Batch& batch, int step);

    std::optional<Failure> last_failure() const;
    const Plan& plan() const;
    Stage& stage(int index);
    /// All parameters in model order; names do not depend on the partition (C39).
    std::vector<Parameter*> parameters();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace pipetwin::exec

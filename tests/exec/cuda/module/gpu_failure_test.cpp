// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <regex>
#include <string>
#include <thread>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/scenario/settled_scenario.h"
#include "core/timeline/footprint.h"
#include "exec/data/random_batch.h"
#include "exec/executor/executor.h"
#include "exec/gpu/cuda_module.h"
#include "exec/gpu/gpu_parts.h"
#include "exec/profiling/profiler.h"
#include "exec/training/trainer.h"
#include "tests/support/cuda_emulation/injection.h"
#include "tests/support/places.h"
#include "tests/support/small_training.h"

/// Trouble with a GPU, on the emulated one: every call of a step fails once.
namespace pipetwin::exec {
namespace gpu_failure_test {

using cuda::emulation::Call;
using cuda::emulation::Injected;
using cuda::emulation::Injection;
using test::Shape;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::StartsWith;

// cudaError_t of two kinds; see CUDA's driver_types.h.
constexpr int out_of_memory = 2;
constexpr int too_many_resources = 701;
constexpr int illegal_address = 700;
constexpr int not_supported = 801;

template <class Function>
Function* in_module(const char* name) {
    void* const module = ::dlopen(places::emulated_module().c_str(), RTLD_NOW);
    return reinterpret_cast<Function*>(::dlsym(module, name));
}

void inject(const Injection& injection) {
    in_module<decltype(pipetwin_emulated_inject)>("pipetwin_emulated_inject")(&injection);
}

void recover() {
    in_module<decltype(pipetwin_emulated_inject)>("pipetwin_emulated_inject")(nullptr);
}

Injected injected() {
    Injected answer;
    in_module<decltype(pipetwin_emulated_injected)>("pipetwin_emulated_injected")(&answer);
    return answer;
}

/// None: nothing was thrown.
template <class Call>
std::optional<Error> caught(const Call& call) {
    try {
        call();
    } catch (const Error& error) {
        return error;
    }
    return std::nullopt;
}

/// Which action each thread is at.
class Whereabouts {
  public:
    struct Where {
        int rank = -1;
        Action action;
    };
    std::function<void(int, const Action&)> hook() {
        return [this](int rank, const Action& action) {
            const std::lock_guard lock(mutex_);
            places_[std::this_thread::get_id()] = {rank, action};
        };
    }
    void forget() { places_.clear(); }
    /// None: at none yet.
    std::optional<Where> of(std::thread::id thread) const {
        const auto found = places_.find(thread);
        return found == places_.end() ? std::nullopt : std::optional(found->second);
    }

  private:
    std::mutex mutex_;
    std::map<std::thread::id, Where> places_;
};

class GpuFailure : public ::testing::Test {
  protected:
    GpuFailure() { ::setenv("PIPETWIN_MODULE_PATH", places::emulated_module_folder().c_str(), 1); }
    ~GpuFailure() override { recover(); }

    static ExecutorOptions options() { return test::options_of(shape()); }
    static Shape shape() {
        return {.stages = 2,
                .micro_batches = 2,
                .batch = 4,
                .schedule = "1f1b",
                .backend = Backend::Cuda};
    }

    const Model model = mlp_model({3, 4, 4});
    const Plan plan = test::plan_of(model, shape());
    const Batch batch = random_batch(model, shape().batch, 1);
};

/// An executor some steps of which have gone well.
struct Warm {
    Warm(const Plan& plan,
         const Model& model,
         const Batch& batch,
         ExecutorOptions options,
         int steps)
        : executor(plan, model, watched(std::move(options))) {
        for (int step = 0; step < steps; ++step) {
            executor.run_step(batch, step);
        }
        places.forget();
    }
    ExecutorOptions watched(ExecutorOptions options) {
        options.before_action = places.hook();
        return options;
    }

    Whereabouts places;
    Executor executor;
};

/// True if no stage can have updated its weights before `action` is done.
bool every_update_needs(const Action& action, const Plan& plan) {
    return action.op == Op::Forward || action.op == Op::SendForward ||
           action.op == Op::RecvForward ||
           (action.op != Op::Optimizer && action.stage + 1 == plan.stage_count());
}

/// In the first step, whose calls are made one by one, or the third, which makes graphs, or the
/// fourth, which runs as graphs.
struct Disturbance {
    Call call;
    int step;
};
void PrintTo(const Disturbance& it, std::ostream* out) {
    *out << "call " << static_cast<int>(it.call) << " in step " << it.step;
}

class EveryCall : public GpuFailure, public ::testing::WithParamInterface<Disturbance> {};

INSTANTIATE_TEST_SUITE_P(GpuFailure,
                         EveryCall,
                         ::testing::Values(Disturbance{Call::Launch, 0},
                                           Disturbance{Call::Launch, 2},
                                           Disturbance{Call::Copy, 0},
                                           Disturbance{Call::EventRecord, 3},
                                           Disturbance{Call::EventQuery, 3},
                                           Disturbance{Call::GraphLaunch, 3},
                                           Disturbance{Call::Work, 0},
                                           Disturbance{Call::Work, 3}));

TEST_P(EveryCall, ThatFailsOnceStopsTheStepIsNamedAndTheNextStepIsAsIfNothingHadBeen) {
    const auto [call, step] = GetParam();
    Warm undisturbed(plan, model, batch, options(), step);
    const StepResult expected = undisturbed.executor.run_step(batch, step);
    std::int64_t calls = 0;
    for (bool happened = true; happened; ++calls) {
        SCOPED_TRACE(calls);
        Warm warm(plan, model, batch, options(), step);
        inject({.call = call, .after = calls, .error = too_many_resources});
        StepResult result;
        const std::optional<Error> error =
            caught([&] { result = warm.executor.run_step(batch, step); });
        const Injected what = injected();
        recover();
        happened = what.happened;
        if (!error) {  // of the calls of a capture it is the capture that fails
            EXPECT_EQ(happened, !warm.executor.notes().empty());
            EXPECT_EQ(result.loss, expected.loss);
            EXPECT_EQ(result.grad_norm, expected.grad_norm);
            continue;
        }
        ASSERT_TRUE(happened);
        const auto where = warm.places.of(what.thread);
        EXPECT_EQ(error->kind(), ErrorKind::WorkerFailed);
        if (where) {
            EXPECT_EQ(
                error->place(),
                fmt::format("rank {}, step {}, {}", where->rank, step, in_full(where->action)));
        } else {
            EXPECT_THAT(error->place(), HasSubstr("before its first action"));
        }
        EXPECT_TRUE(std::regex_match(
            error->text(),
            std::regex("[A-Za-z_]+: too many resources requested for launch \\(701\\)")))
            << error->text();
        EXPECT_FALSE(error->hint().empty());
        if (!where || every_update_needs(where->action, plan)) {
            const StepResult again = warm.executor.run_step(batch, step);
            EXPECT_EQ(again.loss, expected.loss);
            EXPECT_EQ(again.grad_norm, expected.grad_norm);
        } else {
            EXPECT_NO_THROW(warm.executor.run_step(batch, step));
        }
    }
    EXPECT_GT(calls, 4);  // of each kind the step makes four or more
}

// A fault in a kernel ends the context: all ranks fail, and the one whose work it was is told.
TEST_P(EveryCall, ThatFailsForGoodStopsAllRanksAndTheExecutorSaysThatItIsLost) {
    const auto [call, step] = GetParam();
    std::int64_t calls = 0;
    std::int64_t lists = 0;  // failures that named what was on its way
    for (bool happened = true; happened; ++calls) {
        SCOPED_TRACE(calls);
        recover();
        Warm warm(plan, model, batch, options(), step);
        inject({.call = call, .after = calls, .error = illegal_address, .for_good = true});
        const std::optional<Error> error = caught([&] { warm.executor.run_step(batch, step); });
        const Injected what = injected();
        happened = what.happened;
        ASSERT_EQ(error.has_value(), happened);
        if (!happened) {
            continue;
        }
        EXPECT_EQ(error->kind(), ErrorKind::WorkerFailed);
        EXPECT_THAT(error->text(), HasSubstr("an illegal memory access was encountered (700)"));
        EXPECT_THAT(error->hint(), HasSubstr("Xid"));
        if (const auto where = warm.places.of(what.thread); where && call == Call::Work) {
            lists += error->text().find(", met after ") != std::string::npos ? 1 : 0;
            // Another rank's work may have been on the GPU at the same time.
            EXPECT_THAT(error->place() + error->text(),
                        AnyOf(HasSubstr(in_full(where->action)),
                              HasSubstr(fmt::format(
                                  "rank {} with {}", where->rank, to_string(where->action)))));
        }
        const std::optional<Error> again = caught([&] { warm.executor.run_step(batch, step); });
        ASSERT_TRUE(again);
        EXPECT_EQ(again->place(), error->place());
        EXPECT_THAT(again->text(), HasSubstr("cannot use it any more"));
    }
    EXPECT_GT(calls, 4);  // of each kind the step makes four or more
    if (call == Call::Work) {
        EXPECT_GT(lists, calls / 2);  // the others came before the first action
    }
}

TEST_F(GpuFailure, ArrivesFromTheTrainerAsAWorkersFailure) {
    Warm warm(plan, model, batch, options(), 0);
    inject({.call = Call::Launch, .after = 3, .error = too_many_resources});
    const auto error = caught([&] { training_step(warm.executor, batch, 0); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), ErrorKind::WorkerFailed);
    EXPECT_THAT(error->text(), HasSubstr("(701)"));
    EXPECT_FALSE(error->hint().empty());
}

// Whether a stream of a green context can be captured is not documented.
TEST_F(GpuFailure, OfACaptureMeansNoGraphsButTheSameStep) {
    Warm undisturbed(plan, model, batch, options(), 4);
    const StepResult expected = undisturbed.executor.run_step(batch, 4);
    EXPECT_THAT(undisturbed.executor.notes(), IsEmpty());
    for (const Call call : {Call::Capture, Call::Instantiation, Call::GraphLaunch}) {
        Warm warm(plan, model, batch, options(), 1);
        inject({.call = call, .error = not_supported});
        for (int step = 1; step < 4; ++step) {
            warm.executor.run_step(batch, step);
        }
        EXPECT_TRUE(injected().happened);
        const StepResult result = warm.executor.run_step(batch, 4);
        EXPECT_EQ(result.loss, expected.loss) << static_cast<int>(call);
        EXPECT_EQ(result.grad_norm, expected.grad_norm);
        ASSERT_THAT(warm.executor.notes(), SizeIs(1));
        EXPECT_THAT(warm.executor.notes().front(), HasSubstr("(801)"));
    }
}

// --- Memory. ---

TEST_F(GpuFailure, OfTheFirstAllocationShowsThePlannedPeaks) {
    inject({.call = Call::Allocation, .after = 2, .error = out_of_memory});  // behind two streams
    const auto error = caught([&] { Executor(plan, model, options()); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), ErrorKind::Infeasible);
    EXPECT_THAT(error->text(), HasSubstr("wanted, but the GPU has"));
    EXPECT_THAT(error->text(), HasSubstr("rank         total       weights"));
}

TEST_F(GpuFailure, OfAnyAllocationAtTheStartIsToldAndLeavesNothing) {
    bool happened = true;
    for (std::int64_t calls = 0; happened; ++calls) {
        inject({.call = Call::Allocation, .after = calls, .error = out_of_memory});
        const auto error = caught([&] { Executor(plan, model, options()); });
        happened = injected().happened;
        recover();
        EXPECT_EQ(error.has_value(), happened);
    }
    const CudaMemory memory = cuda_memory();
    EXPECT_EQ(memory.free.count, memory.total.count);
}

PlanOf plans_of(const Model& model) {
    return [&model](const SettledScenario& scenario) { return unmeasured_plan(scenario, model); };
}

/// One stage of wide layers: what it keeps of its samples is far more than its weights.
SettledScenario wide(int samples) {
    SettledScenario scenario;
    scenario.model.kind = ModelKind::Mlp;
    scenario.model.sizes = {64, 1024, 1024, 1024, 1024, 1024, 4};
    scenario.training.batch = samples;
    scenario.pipeline.schedule = "1f1b";
    scenario.pipeline.recompute = Recompute::None;
    scenario.cluster.backend = Backend::Cuda;
    return scenario;
}

TEST_F(GpuFailure, TooLargeAPlanIsRefusedWithItsPeaksAndWhatWouldFit) {
    constexpr int samples = 1 << 18;  // 1 GiB for each layer's input; the GPU has 4
    SettledScenario scenario = wide(samples);
    const Model large = scenario_model(scenario);
    const auto error = caught([&] { check_gpu_memory(scenario, plans_of(large)); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), ErrorKind::Infeasible);
    EXPECT_EQ(error->place(), "memory");
    EXPECT_THAT(error->text(), HasSubstr("free of 4.00 GiB"));
    EXPECT_THAT(error->text(), HasSubstr("rank         total       weights"));
    std::smatch found;
    const std::string hint = error->hint();
    ASSERT_TRUE(std::regex_search(hint, found, std::regex("micro_batches = ([0-9]+)"))) << hint;
    scenario.pipeline.micro_batches = std::stoi(found[1]);
    if (hint.find("recompute") != std::string::npos) {
        scenario.pipeline.recompute = Recompute::Always;
    }
    EXPECT_NO_THROW(check_gpu_memory(scenario, plans_of(large)));
}

TEST_F(GpuFailure, AModelTooLargeForTheGpuIsToldSo) {
    SettledScenario scenario = wide(1);
    scenario.model.sizes = {64, 20000, 20000, 4};  // 400 million weights, 16 bytes of state each
    const Model large = scenario_model(scenario);
    const auto error = caught([&] { check_gpu_memory(scenario, plans_of(large)); });
    ASSERT_TRUE(error);
    EXPECT_THAT(error->hint(), HasSubstr("smaller model"));
}

/// A Transformer in bf16 whose attention cuDNN computes.
SettledScenario attending(int samples) {
    SettledScenario scenario;
    scenario.model.kind = ModelKind::Gpt;
    scenario.model.gpt = {
        .layers = 2, .d_model = 128, .heads = 4, .context = 256, .vocabulary = 64, .tied = true};
    scenario.training.batch = samples;
    scenario.training.precision = Precision::Bf16;
    scenario.pipeline.schedule = "1f1b";
    scenario.pipeline.recompute = Recompute::None;
    scenario.cluster.backend = Backend::Cuda;
    return scenario;
}

// No plan of memory counts what cuDNN works in, so the check does.
TEST_F(GpuFailure, APlanThatFitsWithoutCudnnsWorkspaceOnlyIsRefusedWithBothFigures) {
    auto* const set_cudnn = in_module<void(std::int64_t, bool)>("pipetwin_emulated_cudnn_set");
    if (set_cudnn == nullptr) {
        GTEST_SKIP() << "built without the headers of cuDNN";
    }
    constexpr std::int64_t workspace = 60 << 20;  // a 64th of the GPU's 4 GiB is the most
    set_cudnn(workspace, false);
    const auto refused = [](int samples) {
        const SettledScenario scenario = attending(samples);
        const Model gpt = scenario_model(scenario);
        return caught([&] { check_gpu_memory(scenario, plans_of(gpt)); });
    };
    int least = 1;
    for (int step = 1 << 14; step > 0; step /= 2) {
        least += refused(least + step) ? 0 : step;
    }
    const std::optional<Error> error = refused(least + 1);
    ASSERT_TRUE(error);
    EXPECT_THAT(error->text(), HasSubstr("60.00 MiB in which cuDNN's attention works"));
    EXPECT_THAT(error->hint(), HasSubstr("PIPETWIN_OWN_ATTENTION=1"));
    ::setenv("PIPETWIN_OWN_ATTENTION", "1", 1);
    EXPECT_FALSE(refused(least + 1));
    ::unsetenv("PIPETWIN_OWN_ATTENTION");
    set_cudnn(4096, false);
}

// What the emulated contexts take stands in emulated_libraries.cpp.
TEST_F(GpuFailure, MemoryBesideThePlanIsToldLineByLine) {
    Warm warm(plan, model, batch, options(), 3);
    constexpr std::int64_t mebibyte = 1 << 20;
    std::map<std::string, UnplannedMemory> lines;
    for (const UnplannedMemory& line : warm.executor.memory_beside()) {
        lines[line.name] = line;
        EXPECT_GE(line.total, Bytes{}) << line.name;
    }
    EXPECT_EQ(lines.at("CUDA context").total.count, (480 + 2 * 10) * mebibyte);
    EXPECT_TRUE(lines.at("CUDA context").ranks.empty());
    EXPECT_EQ(lines.at("cuBLAS workspace").ranks,
              (std::vector<Bytes>{Bytes{32 * mebibyte}, Bytes{32 * mebibyte}}));
    EXPECT_EQ(lines.count("kernels' scratch"), 1U);
    EXPECT_GE(lines.at("pinned host memory").total.count, 2 * 8 * mebibyte);
    std::int64_t between = 0;  // what may be lost between the tensors of a step
    for (int rank = 0; rank < 2; ++rank) {
        between += peak_memory(plan)[static_cast<std::size_t>(rank)].total().count -
                   resident_memory(plan, rank).total().count;
    }
    EXPECT_LE(lines.at("rest of the pool").total.count,
              2 * 64 * mebibyte + between / 10 + 256);  // rounded up
}

// --- Shares of a GPU. ---

TEST_F(GpuFailure, EveryWayToShareTheGpuGivesTheSameBits) {
    Warm own(plan, model, batch, options(), 3);
    const StepResult expected = own.executor.run_step(batch, 3);
    ExecutorOptions uneven = options();
    uneven.gpu_units = {3, 13};
    ExecutorOptions streams = options();
    streams.gpu_shares = GpuShares::Streams;
    for (const ExecutorOptions& other : {uneven, streams}) {
        Warm warm(plan, model, batch, other, 3);
        EXPECT_EQ(warm.executor.run_step(batch, 3).loss, expected.loss);
    }
}

TEST_F(GpuFailure, MoreUnitsThanTheGpuHasAreRefused) {
    ExecutorOptions greedy = options();
    greedy.gpu_units = {8, 9};  // the emulated one has 16
    const auto error = caught([&] { Executor(plan, model, greedy); });
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), ErrorKind::Infeasible);
    EXPECT_EQ(error->place(), "cluster.gpu_shares");
    EXPECT_EQ(error->text(), "17 units of 8 multiprocessors in all, but the GPU has 16");
}

TEST_F(GpuFailure, ADriverWithoutGreenContextsIsToldWhatToSet) {
    inject({.call = Call::Allocation, .after = 1, .error = not_supported});
    const auto error = caught([&] { Executor(plan, model, options()); });
    recover();
    ASSERT_TRUE(error);
    EXPECT_EQ(error->kind(), ErrorKind::Unavailable);
    EXPECT_EQ(error->place(), "cluster.gpu_shares");
    EXPECT_THAT(error->text(), HasSubstr("(801)"));
    EXPECT_THAT(error->hint(), HasSubstr("gpu_shares = \"streams\""));
}

// --- How fast it is. ---

TEST_F(GpuFailure, EveryRateOfADeviceIsMeasured) {
    const CudaRates rates = measure_cuda(0, {.matrix = 16, .copy = Bytes{4096}, .repeats = 3});
    for (const double rate : {rates.bf16_flops,
                              rates.fp32_flops,
                              rates.device_copy,
                              rates.to_device,
                              rates.from_device}) {
        EXPECT_GT(rate, 0);
    }
    const CudaMemory memory = cuda_memory();
    EXPECT_EQ(memory.free.count, memory.total.count);  // all is given back
}

}  // namespace gpu_failure_test
}  // namespace pipetwin::exec

// A training step of a GPT on the CPU beside PyTorch's, and beside what the machine could do at
// best.
//
//   build/release/bench/cpu_training [rounds] [--threads 1|2] [--peer-bf16] [--peer
//   bench/peers/torch_gpt.py]
//
// GPT with 4 layers, d 512, 8 heads, 256 positions, 8 samples, vocabulary 8192, AdamW. All take
// turns step by step, so that a slow minute slows all; only ratios of one run mean something. One
// thread is measured in processor time, two in wall time.
//
// The ceiling is the time of the step's own matrix products, called bare, by whichever is fastest
// of OpenBLAS and oneDNN (where they are installed) and ours, and of the bytes that every other
// pass must move at the bandwidth that this machine shows in the same run.
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "exec/cpu/onednn_products.h"
#include "exec/cpu/products.h"
#include "exec/executor.h"
#include "exec/random_batch.h"
#include "sim/simulate.h"
#include "tests/support/small_training.h"

namespace {

using namespace pipetwin;

struct Sizes {
    int layers = 4;
    int width = 512;
    int heads = 8;
    int positions = 256;
    int vocabulary = 8192;
    int batch = 8;
};
constexpr Sizes sizes;

double median(std::vector<double> values) {
    if (values.empty()) {
        return 0;
    }
    std::ranges::sort(values);
    return values[values.size() / 2];
}

double seconds_of(clockid_t clock) {
    timespec time{};
    ::clock_gettime(clock, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Seconds of one step.
struct Times {
    double wall = 0;
    double processor = 0;
};

/// One of those that take turns.
struct Runner {
    std::string name;
    std::function<Times()> step;
    std::vector<double> wall{};
    std::vector<double> processor{};
    double loss = 0;
    std::function<double()> bound{};  ///< seconds; none: of no pipeline
};

/// PyTorch in a process of its own.
class Peer {
  public:
    Peer(const std::string& script, int threads, bool bf16) {
        std::array<int, 2> to{};
        std::array<int, 2> from{};
        if (::pipe(to.data()) != 0 || ::pipe(from.data()) != 0) {
            throw std::runtime_error("no pipe to the peer");
        }
        const std::string count = std::to_string(threads);
        child_ = ::fork();
        if (child_ == 0) {
            ::dup2(to[0], STDIN_FILENO);
            ::dup2(from[1], STDOUT_FILENO);
            for (const int end : {to[0], to[1], from[0], from[1]}) {
                ::close(end);
            }
            ::setenv("OPENBLAS_NUM_THREADS", count.c_str(), 1);
            ::setenv("OMP_NUM_THREADS", count.c_str(), 1);
            ::execl("/usr/bin/python3",
                    "python3",
                    script.c_str(),
                    "--threads",
                    count.c_str(),
                    bf16 ? "--bf16" : nullptr,
                    nullptr);
            ::_exit(127);
        }
        ::close(to[0]);
        ::close(from[1]);
        to_ = ::fdopen(to[1], "w");
        from_ = ::fdopen(from[0], "r");
        parameters = std::atol(line().c_str());
    }
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;
    ~Peer() {
        std::fclose(to_);
        std::fclose(from_);
        ::waitpid(child_, nullptr, 0);
    }

    Times step(double& loss) {
        std::fputs("step\n", to_);
        std::fflush(to_);
        Times times;
        const std::string answer = line();
        if (std::sscanf(answer.c_str(), "%lf %lf %lf", &times.wall, &times.processor, &loss) != 3) {
            throw std::runtime_error("the peer did not answer");
        }
        return times;
    }

    long parameters = 0;

  private:
    std::string line() {
        std::array<char, 256> text{};
        if (std::fgets(text.data(), text.size(), from_) == nullptr) {
            throw std::runtime_error("the peer ended: scripts/install-packages bench");
        }
        return text.data();
    }

    pid_t child_ = 0;
    std::FILE* to_ = nullptr;
    std::FILE* from_ = nullptr;
};

// ---- the ceiling ----

using Sgemm = void (*)(
    int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);

Sgemm open_blas() {
    void* const library = ::dlopen("libopenblas.so.0", RTLD_NOW);
    if (library == nullptr) {
        return nullptr;
    }
    if (auto* const threads =
            reinterpret_cast<void (*)(int)>(::dlsym(library, "openblas_set_num_threads"))) {
        threads(1);
    }
    return reinterpret_cast<Sgemm>(::dlsym(library, "cblas_sgemm"));
}

struct Gemm {
    std::string_view name;
    int m;
    int n;
    int k;
    exec::Transposed a;
    exec::Transposed b;
    int times;
    std::vector<double> own{};     ///< seconds
    std::vector<double> blas{};    ///< seconds
    std::vector<double> onednn{};  ///< seconds
};

/// All products of weights in one step, M = 1. Those of the attention are `attention_products`.
std::vector<Gemm> products() {
    using exec::Transposed;
    const int rows = sizes.batch * sizes.positions;
    std::vector<Gemm> all;
    const auto layer = [&](std::string_view name, int inputs, int outputs, int times) {
        all.push_back({name, rows, outputs, inputs, Transposed::No, Transposed::No, times});
        all.push_back({name, rows, inputs, outputs, Transposed::No, Transposed::Yes, times});
        all.push_back({name, inputs, outputs, rows, Transposed::Yes, Transposed::No, times});
    };
    layer("qkv", sizes.width, 3 * sizes.width, sizes.layers);
    layer("out", sizes.width, sizes.width, sizes.layers);
    layer("up", sizes.width, 4 * sizes.width, sizes.layers);
    layer("down", 4 * sizes.width, sizes.width, sizes.layers);
    layer("head", sizes.width, sizes.vocabulary, 1);
    return all;
}

double time_of(const std::function<void()>& call) {
    const double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    call();
    return seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin;
}

/// Bytes that a step must move beside its products, each tensor once, all in fp32 and far from any
/// cache: GELU 2 + 3 of 4 d, two layer norms 2 + 3 (with the skip) of d each, softmax and
/// cross-entropy 1 + 2 of the vocabulary, probabilities of the attention written, read, and read,
/// and AdamW 7 for each parameter.
double bytes_of_passes(long parameters) {
    const double rows = sizes.batch * sizes.positions;
    const double layer = (2 + 3) * 4.0 * sizes.width + 2 * (2 + 4) * 1.0 * sizes.width +
                         3.0 * sizes.heads * sizes.positions;
    return 4 * (rows * (sizes.layers * layer + 3.0 * sizes.vocabulary) +
                7.0 * static_cast<double>(parameters));
}

/// Seconds of one layer's products of scores, probabilities and their gradients, head by head, of
/// which only the half below the diagonal is computed.
double attention_products(float* qkv, float* scores, float* dscores) {
    using exec::Causal;
    using exec::Factor;
    using exec::Transposed;
    const int positions = sizes.positions;
    const int size = sizes.width / sizes.heads;
    const int stride = 3 * sizes.width;
    const double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    for (int sample = 0; sample < sizes.batch; ++sample) {
        for (int head = 0; head < sizes.heads; ++head) {
            float* const q = qkv + std::ptrdiff_t{sample} * positions * stride + head * size;
            float* const k = q + sizes.width;
            float* const v = k + sizes.width;
            float* const p =
                scores + (std::ptrdiff_t{sample} * sizes.heads + head) * positions * positions;
            const auto of_head = [&](float* data, Transposed transposed = Transposed::No) {
                return Factor{data, exec::DType::F32, stride, transposed};
            };
            const auto of_positions = [&](float* data, Transposed transposed = Transposed::No) {
                return Factor{data, exec::DType::F32, positions, transposed};
            };
            const auto to_scores = [&](const Factor& a, const Factor& b, float* c) {
                exec::compute({.m = positions,
                               .n = positions,
                               .k = size,
                               .a = a,
                               .b = b,
                               .c = c,
                               .c_stride = positions,
                               .causal = Causal::Result});
            };
            const auto to_head = [&](const Factor& a, const Factor& b, Causal causal, float* c) {
                exec::compute({.m = positions,
                               .n = size,
                               .k = positions,
                               .a = a,
                               .b = b,
                               .c = c,
                               .c_stride = stride,
                               .causal = causal});
            };
            to_scores(of_head(q), of_head(k, Transposed::Yes), p);
            to_head(of_positions(p), of_head(v), Causal::A, q);
            to_scores(of_head(q), of_head(v, Transposed::Yes), dscores);
            to_head(of_positions(p, Transposed::Yes), of_head(q), Causal::ATransposed, v);
            to_head(of_positions(dscores), of_head(k), Causal::A, q);
            to_head(of_positions(dscores, Transposed::Yes), of_head(q), Causal::ATransposed, k);
        }
    }
    return seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin;
}

/// What a step's products take when they are called bare, and its other passes at the bandwidth of
/// a copy. Measured round by round among the steps, so that all see the same machine.
class Ceiling {
  public:
    explicit Ceiling(long parameters)
        : bytes_(bytes_of_passes(parameters)), sgemm_(open_blas()), gemms_(products()) {
        exec::prepare_cpu_thread();
    }

    void measure() {
        for (Gemm& gemm : gemms_) {
            measure(gemm);
        }
        std::ranges::fill(a_, 1e-3F);  // numbers that products of products keep in range
        std::ranges::fill(b_, 1e-3F);
        attention_.push_back(sizes.layers * attention_products(a_.data(), b_.data(), c_.data()));
        copy_.push_back(time_of([&] { std::memcpy(c_.data(), a_.data(), room * sizeof(float)); }));
    }

    /// Seconds of processor time.
    double step() const {
        double sum = median(attention_) + passes();
        for (const Gemm& gemm : gemms_) {
            double best = median(gemm.own);
            for (const std::vector<double>* const others : {&gemm.blas, &gemm.onednn}) {
                best = others->empty() ? best : std::min(best, median(*others));
            }
            sum += gemm.times * best;
        }
        return sum;
    }

    void print() const {
        fmt::print("{:<22} {:>10} {:>10} {:>10}   GFLOP/s, one thread; 0: not there\n",
                   "product",
                   "OpenBLAS",
                   "oneDNN",
                   "ours");
        double all_own = 0;
        double all_blas = 0;
        double all_onednn = 0;
        for (const Gemm& p : gemms_) {
            const double operations = 2e-9 * p.m * p.n * p.k;
            const auto rate = [&](const std::vector<double>& seconds) {
                return seconds.empty() ? 0 : operations / median(seconds);
            };
            fmt::print("{:<22} {:>10.1f} {:>10.1f} {:>10.1f}\n",
                       fmt::format("{} {} {}x{}x{}", p.name, direction(p), p.m, p.n, p.k),
                       rate(p.blas),
                       rate(p.onednn),
                       rate(p.own));
            all_own += p.times * median(p.own);
            all_blas += p.times * median(p.blas);
            all_onednn += p.times * median(p.onednn);
        }
        fmt::print(
            "all of them in a step: ours {:.3f} s, OpenBLAS {:.3f} s ({:.3f} x), oneDNN "
            "{:.3f} s ({:.3f} x); those of the attention {:.3f} s; other passes {:.3f} s at "
            "{:.1f} GB/s\n",
            all_own,
            all_blas,
            all_blas / all_own,
            all_onednn,
            all_onednn / all_own,
            median(attention_),
            passes(),
            bytes_ / passes() / 1e9);
    }

  private:
    static constexpr std::size_t room = std::size_t{1} << 24U;

    static const char* direction(const Gemm& p) {
        return p.a == exec::Transposed::Yes ? "dw" : p.b == exec::Transposed::Yes ? "dx" : "y";
    }

    double passes() const {
        return bytes_ * median(copy_) / (2 * static_cast<double>(room * sizeof(float)));
    }

    void measure(Gemm& p) {
        const bool a_turned = p.a == exec::Transposed::Yes;
        const bool b_turned = p.b == exec::Transposed::Yes;
        const int a_stride = a_turned ? p.m : p.k;
        const int b_stride = b_turned ? p.k : p.n;
        const exec::Product product{.m = p.m,
                                    .n = p.n,
                                    .k = p.k,
                                    .a = {a_.data(), exec::DType::F32, a_stride, p.a},
                                    .b = {b_.data(), exec::DType::F32, b_stride, p.b},
                                    .c = c_.data(),
                                    .c_stride = p.n,
                                    .skip = a_turned ? c_.data() : nullptr};
        p.own.push_back(time_of([&] { exec::compute(product); }));
        if (exec::has_onednn() && exec::can_compute_by_onednn(product)) {
            if (p.onednn.empty()) {
                exec::compute_by_onednn(product);  // makes its code
            }
            p.onednn.push_back(time_of([&] { exec::compute_by_onednn(product); }));
        }
        if (sgemm_ == nullptr) {
            return;
        }
        constexpr int row_major = 101;
        constexpr int plain = 111;
        constexpr int turned = 112;
        p.blas.push_back(time_of([&] {
            sgemm_(row_major,
                   a_turned ? turned : plain,
                   b_turned ? turned : plain,
                   p.m,
                   p.n,
                   p.k,
                   1,
                   a_.data(),
                   a_stride,
                   b_.data(),
                   b_stride,
                   a_turned ? 1.0F : 0.0F,
                   c_.data(),
                   p.n);
        }));
    }

    double bytes_;
    Sgemm sgemm_;
    std::vector<Gemm> gemms_;
    std::vector<float> a_ = std::vector<float>(room, 0.5F);
    std::vector<float> b_ = std::vector<float>(room, 0.25F);
    std::vector<float> c_ = std::vector<float>(room, 0);
    std::vector<double> attention_;  ///< seconds
    std::vector<double> copy_;       ///< seconds
};

// ---- the step ----

Model model() {
    return gpt_model({.layers = sizes.layers,
                      .d_model = sizes.width,
                      .heads = sizes.heads,
                      .context = sizes.positions,
                      .vocabulary = sizes.vocabulary,
                      .feed_forward = 4 * sizes.width});
}

/// The seconds of a step whose actions last as long as theirs did in the middle one of these steps,
/// with nothing between them: what the schedule allows.
double schedule_bound(const Plan& plan, const std::vector<Timeline>& steps) {
    std::vector<sim::Conditions> of_steps;
    for (const Timeline& step : steps) {
        of_steps.push_back(sim::conditions_of(plan, step));
    }
    sim::Conditions middle = sim::without_communication(of_steps.front());
    for (std::size_t rank = 0; rank < middle.durations.size(); ++rank) {
        for (std::size_t cell = 0; cell < middle.durations[rank].size(); ++cell) {
            std::vector<double> nanoseconds;
            for (const sim::Conditions& step : of_steps) {
                nanoseconds.push_back(static_cast<double>(step.durations[rank][cell].count()));
            }
            middle.durations[rank][cell] = Duration{std::llround(median(nanoseconds))};
        }
    }
    return to_seconds(sim::replayed_step(plan, middle));
}

Runner ours(const test::Shape& shape) {
    const Model gpt = model();
    exec::ExecutorOptions options = test::options_of(shape);
    options.optimizer.learning_rate = 3e-4;
    const Plan plan = test::plan_of(gpt, shape);
    const auto executor = std::make_shared<exec::Executor>(plan, gpt, options);
    const auto timelines = std::make_shared<std::vector<Timeline>>();
    const auto batch = std::make_shared<exec::Batch>(exec::random_batch(gpt, sizes.batch, 1));
    const auto result = std::make_shared<exec::StepResult>();
    const auto count = std::make_shared<int>(0);
    const auto step = [executor, batch, result, count, timelines] {
        const double wall = seconds_of(CLOCK_MONOTONIC);
        const double processor = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        executor->run_step(*batch, *count, *result);
        const Times times{seconds_of(CLOCK_MONOTONIC) - wall,
                          seconds_of(CLOCK_PROCESS_CPUTIME_ID) - processor};
        if ((*count)++ > 0) {  // the first warms up
            timelines->push_back(result->timeline);
        }
        return times;
    };
    std::string cut = "-";
    if (shape.partition) {
        cut = fmt::format("{}", fmt::join(*shape.partition, "+"));
    }
    return {.name = fmt::format("pipetwin {} K={} {} M={} {}",
                                to_string(shape.precision),
                                shape.stages,
                                shape.schedule,
                                shape.micro_batches,
                                cut),
            .step = step,
            .bound = [plan, timelines] { return schedule_bound(plan, *timelines); }};
}

void take_turns(std::vector<Runner>& runners, int rounds, const std::function<void()>& after = {}) {
    for (int round = -1; round < rounds; ++round) {  // the first warms up
        for (Runner& runner : runners) {
            const Times times = runner.step();
            if (round >= 0) {
                runner.wall.push_back(times.wall);
                runner.processor.push_back(times.processor);
            }
        }
        if (after && round >= 0) {
            after();
        }
    }
}

using Seconds = std::vector<double> Runner::*;

void print(const std::vector<Runner>& runners, Seconds seconds, const Runner& against) {
    const double tokens = sizes.batch * sizes.positions;
    const double base = median(against.*seconds);
    for (const Runner& runner : runners) {
        const double time = median(runner.*seconds);
        fmt::print("{:<46} {:>8.3f} s {:>8.3f} s least {:>8.0f} tokens/s {:>7.2f} x\n",
                   runner.name,
                   time,
                   *std::ranges::min_element(runner.*seconds),
                   tokens / time,
                   base / time);
    }
}

Runner torch(const std::shared_ptr<Peer>& peer, std::string name) {
    return {.name = std::move(name), .step = [peer] {
                double loss = 0;
                return peer->step(loss);
            }};
}

struct Arguments {
    int rounds = 5;
    int threads = 0;         ///< 0: one, and then two
    bool peer_bf16 = false;  ///< minutes for each step where the processor has no bf16
    std::string peer = "bench/peers/torch_gpt.py";
};

void one_thread(const Arguments& arguments) {
    const auto plain = std::make_shared<Peer>(arguments.peer, 1, false);
    Ceiling ceiling(plain->parameters);
    std::vector<Runner> runners;
    runners.push_back(torch(plain, "PyTorch fp32, 1 thread"));
    for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
        for (const int micro_batches : {1, 8}) {
            runners.push_back(ours({.stages = 1,
                                    .micro_batches = micro_batches,
                                    .batch = sizes.batch,
                                    .schedule = "1f1b",
                                    .precision = precision}));
        }
    }
    if (arguments.peer_bf16) {
        runners.push_back(
            torch(std::make_shared<Peer>(arguments.peer, 1, true), "PyTorch bf16, 1 thread"));
    }
    take_turns(runners, arguments.rounds, [&ceiling] { ceiling.measure(); });
    ceiling.print();
    fmt::print("\none thread, processor time, times PyTorch fp32\n");
    print(runners, &Runner::processor, runners.front());
    const double best = ceiling.step();
    fmt::print("{:<46} {:>8.3f} s {:>41.2f} x\n",
               "ceiling (fp32)",
               best,
               median(runners.front().processor) / best);
}

void two_threads(const Arguments& arguments) {
    std::vector<Runner> runners;
    runners.push_back(
        torch(std::make_shared<Peer>(arguments.peer, 2, false), "PyTorch fp32, 2 threads"));
    struct Way {
        const char* schedule;
        int micro_batches;
        std::vector<int> cut;
    };
    const std::vector<Way> ways{{"1f1b", 8, {6, 4}},
                                {"1f1b", 8, {7, 3}},
                                {"zb-h1", 8, {7, 3}},
                                {"zb-h1", 4, {7, 3}},
                                {"gpipe", 8, {7, 3}}};
    for (const Precision precision : {Precision::Fp32, Precision::Bf16}) {
        for (const Way& way : ways) {
            runners.push_back(ours({.stages = 2,
                                    .micro_batches = way.micro_batches,
                                    .batch = sizes.batch,
                                    .schedule = way.schedule,
                                    .partition = way.cut,
                                    .precision = precision}));
        }
    }
    take_turns(runners, arguments.rounds);
    fmt::print("\ntwo threads, wall time, times PyTorch fp32\n");
    print(runners, &Runner::wall, runners.front());
    fmt::print(
        "\nthe schedule's bound by the actions of the same steps, and the share of the step "
        "that it is\n");
    for (const Runner& runner : runners) {
        if (runner.bound) {
            const double bound = runner.bound();
            fmt::print(
                "{:<46} {:>8.3f} s {:>8.3f}\n", runner.name, bound, bound / median(runner.wall));
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    Arguments arguments;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "--peer-bf16") {
            arguments.peer_bf16 = true;
        } else if (argument == "--threads" && i + 1 < argc) {
            arguments.threads = std::atoi(argv[++i]);
        } else if (argument == "--peer" && i + 1 < argc) {
            arguments.peer = argv[++i];
        } else {
            arguments.rounds = std::max(1, std::atoi(argv[i]));
        }
    }
    ::signal(SIGPIPE, SIG_IGN);
    try {
        fmt::print("matrix products by the kernel \"{}\"\n", exec::product_kernel());
        if (arguments.threads != 2) {
            one_thread(arguments);
        }
        if (arguments.threads != 1) {
            two_threads(arguments);
        }
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}

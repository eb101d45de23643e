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
// The ceiling is the time of the step's own matrix products, called bare, by whichever is faster of
// OpenBLAS (where it is installed) and ours, and of the bytes that every other pass must move at
// the bandwidth that this machine shows in the same run.
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
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

#include "exec/cpu/products.h"
#include "exec/executor.h"
#include "exec/random_batch.h"
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
};

/// All products of weights in one step, M = 1.
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

/// Seconds of processor time, the median of some.
double time_of(const std::function<void()>& call, int repetitions) {
    std::vector<double> times;
    for (int i = 0; i < repetitions; ++i) {
        const double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
        call();
        times.push_back(seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin);
    }
    return median(times);
}

struct Ceiling {
    double products = 0;  ///< seconds, by the faster one
    double ours = 0;
    double blas = 0;
    double passes = 0;  ///< seconds, the rest at the memory's bandwidth
    double bytes_per_second = 0;
};

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

Ceiling measure_ceiling(long parameters, int repetitions) {
    exec::prepare_cpu_thread();
    constexpr std::size_t room = std::size_t{1} << 24U;
    std::vector<float> a(room, 0.5F);
    std::vector<float> b(room, 0.25F);
    std::vector<float> c(room, 0);
    const Sgemm sgemm = open_blas();
    Ceiling ceiling;
    fmt::print("{:<22} {:>10} {:>10} {:>8}   GFLOP/s, one thread\n",
               "product",
               "OpenBLAS",
               "ours",
               "ratio");
    for (const Gemm& p : products()) {
        const bool a_turned = p.a == exec::Transposed::Yes;
        const bool b_turned = p.b == exec::Transposed::Yes;
        const int a_stride = a_turned ? p.m : p.k;
        const int b_stride = b_turned ? p.k : p.n;
        const exec::Product product{.m = p.m,
                                    .n = p.n,
                                    .k = p.k,
                                    .a = {a.data(), exec::DType::F32, a_stride, p.a},
                                    .b = {b.data(), exec::DType::F32, b_stride, p.b},
                                    .c = c.data(),
                                    .c_stride = p.n,
                                    .skip = a_turned ? c.data() : nullptr};
        std::vector<double> own;
        std::vector<double> blas;
        exec::compute(product);
        for (int i = 0; i < repetitions; ++i) {
            own.push_back(time_of([&] { exec::compute(product); }, 1));
            if (sgemm != nullptr) {
                constexpr int row_major = 101;
                constexpr int plain = 111;
                constexpr int turned = 112;
                blas.push_back(time_of(
                    [&] {
                        sgemm(row_major,
                              a_turned ? turned : plain,
                              b_turned ? turned : plain,
                              p.m,
                              p.n,
                              p.k,
                              1,
                              a.data(),
                              a_stride,
                              b.data(),
                              b_stride,
                              a_turned ? 1.0F : 0.0F,
                              c.data(),
                              p.n);
                    },
                    1));
            }
        }
        const double ours = median(own);
        const double theirs = blas.empty() ? ours : median(blas);
        const double operations = 2e-9 * p.m * p.n * p.k;
        const char* const what = a_turned ? "dw" : b_turned ? "dx" : "y";
        fmt::print("{:<22} {:>10.1f} {:>10.1f} {:>8.3f}\n",
                   fmt::format("{} {} {}x{}x{}", p.name, what, p.m, p.n, p.k),
                   operations / theirs,
                   operations / ours,
                   theirs / ours);
        ceiling.ours += p.times * ours;
        ceiling.blas += p.times * theirs;
        ceiling.products += p.times * std::min(ours, theirs);
    }
    const double copy = time_of([&] { std::memcpy(c.data(), a.data(), room * sizeof(float)); }, 9);
    ceiling.bytes_per_second = 2 * static_cast<double>(room * sizeof(float)) / copy;
    ceiling.passes = bytes_of_passes(parameters) / ceiling.bytes_per_second;
    return ceiling;
}

// ---- the step ----

Model model() {
    return gpt_model({.layers = sizes.layers,
                      .d_model = sizes.width,
                      .heads = sizes.heads,
                      .context = sizes.positions,
                      .vocabulary = sizes.vocabulary,
                      .feed_forward = 4 * sizes.width});
}

Runner ours(const test::Shape& shape) {
    const Model gpt = model();
    exec::ExecutorOptions options = test::options_of(shape);
    options.optimizer.learning_rate = 3e-4;
    const std::shared_ptr<exec::Executor> executor =
        std::make_shared<exec::Executor>(test::plan_of(gpt, shape), gpt, options);
    const auto batch = std::make_shared<exec::Batch>(exec::random_batch(gpt, sizes.batch, 1));
    const auto result = std::make_shared<exec::StepResult>();
    const auto count = std::make_shared<int>(0);
    const auto step = [executor, batch, result, count] {
        const double wall = seconds_of(CLOCK_MONOTONIC);
        const double processor = seconds_of(CLOCK_PROCESS_CPUTIME_ID);
        executor->run_step(*batch, (*count)++, *result);
        return Times{seconds_of(CLOCK_MONOTONIC) - wall,
                     seconds_of(CLOCK_PROCESS_CPUTIME_ID) - processor};
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
            .step = step};
}

void take_turns(std::vector<Runner>& runners, int rounds) {
    for (int round = -1; round < rounds; ++round) {  // the first warms up
        for (Runner& runner : runners) {
            const Times times = runner.step();
            if (round >= 0) {
                runner.wall.push_back(times.wall);
                runner.processor.push_back(times.processor);
            }
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
    const Ceiling ceiling = measure_ceiling(plain->parameters, arguments.rounds);
    fmt::print(
        "all products of a step: OpenBLAS {:.3f} s, ours {:.3f} s ({:.3f} x); other passes {:.3f} "
        "s at {:.1f} GB/s\n",
        ceiling.blas,
        ceiling.ours,
        ceiling.blas / ceiling.ours,
        ceiling.passes,
        ceiling.bytes_per_second / 1e9);
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
    take_turns(runners, arguments.rounds);
    fmt::print("\none thread, processor time, times PyTorch fp32\n");
    print(runners, &Runner::processor, runners.front());
    const double best = ceiling.products + ceiling.passes;
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

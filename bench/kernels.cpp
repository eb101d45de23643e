// SPDX-License-Identifier: Apache-2.0

// How fast the CPU's kernels are, one thread, beside a plain matrix product and the memory of the
// same machine: absolute rates move from hour to hour, so only the ratios of one run mean
// something.
//
//   build/release/bench/kernel_bench [fp32|bf16] [samples] [positions] [width] [heads] [vocabulary]
#include "exec/device/kernels.h"

#include <time.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "core/model/gelu_form.h"
#include "core/scenario/choices.h"
#include "exec/base/random.h"
#include "exec/device/arena.h"
#include "exec/device/device.h"
#include "exec/layers/optimizer.h"

namespace pipetwin::exec {
namespace {

struct Sizes {
    int samples = 4;
    int positions = 256;
    int width = 512;
    int heads = 8;
    int vocabulary = 8192;
};

/// Processor time of this thread: what other programs take does not count.
double now() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Median seconds of one call.
double seconds(const std::function<void()>& call) {
    std::vector<double> times;
    call();  // warm up
    const double end = now() + 0.3;
    do {
        const double begin = now();
        call();
        times.push_back(now() - begin);
    } while (now() < end || times.size() < 5);
    std::ranges::sort(times);
    return times[times.size() / 2];
}

class Bench {
  public:
    Bench(const Sizes& sizes, NumberFormat format) : sizes_(sizes), format_(format) {}

    void run() {
        memory();
        products();
        attention();
        elementwise();
        loss();
        updates();
    }

  private:
    Tensor tensor(std::int64_t rows, std::int64_t columns) {
        return tensor(format_.real, rows, columns);
    }
    Tensor exact(std::int64_t rows, std::int64_t columns) {
        return tensor(format_.exact(), rows, columns);
    }
    Tensor tensor(DType type, std::int64_t rows, std::int64_t columns) {
        Tensor made = arena_.allocate(type, rows, columns, MemoryKind::Stash);
        std::vector<float> values(static_cast<std::size_t>(made.size()));
        const RandomStream random(static_cast<std::uint64_t>(++made_));
        for (std::size_t i = 0; i < values.size(); ++i) {
            values[i] = static_cast<float>(random.uniform(i) * 2 - 1);
        }
        kernels_.upload(values, made);
        return made;
    }

    void line(const std::string& what, double time, double operations, double bytes) {
        const double rate = operations / time / 1e9;
        if (peak_ == 0) {
            peak_ = rate;
        }
        fmt::print("{:<32} {:>9.3f} ms", what, time * 1e3);
        if (operations > 0) {
            fmt::print("  {:>7.1f} GFLOP/s  {:>4.0f} % of the first", rate, 100 * rate / peak_);
        }
        if (bytes > 0) {
            if (bandwidth_ == 0) {
                bandwidth_ = bytes / time;
            }
            fmt::print("  {:>7.1f} GB/s  {:>4.0f} % of a copy",
                       bytes / time / 1e9,
                       100 * bytes / time / bandwidth_);
        }
        fmt::print("\n");
    }

    /// What every pass is held against: it reads and writes, too.
    void memory() {
        const Tensor from = exact(4096, 4096);
        Tensor to = exact(4096, 4096);
        const auto bytes = static_cast<double>(from.bytes().count);
        line("copy of 64 MiB",
             seconds([&] {
                 std::memcpy(to.data(), from.data(), static_cast<std::size_t>(from.bytes().count));
             }),
             0,
             2 * bytes);
    }

    void products() {
        const std::int64_t n = std::int64_t{sizes_.samples} * sizes_.positions;
        const std::int64_t d = sizes_.width;
        const Tensor square = tensor(1024, 1024);
        Tensor result = tensor(1024, 1024);
        line("product 1024 x 1024 x 1024",
             seconds([&] { kernels_.linear_forward(square, square, {}, {}, result); }),
             2.0 * 1024 * 1024 * 1024,
             0);
        const Tensor x = tensor(n, d);
        const Tensor w = tensor(d, 4 * d);
        const Tensor b = tensor(1, 4 * d);
        Tensor y = tensor(n, 4 * d);
        Tensor dx = tensor(n, d);
        Tensor dw = exact(d, 4 * d);
        Tensor db = exact(1, 4 * d);
        const double operations = 2.0 * static_cast<double>(n * d * 4 * d);
        line("linear forward",
             seconds([&] { kernels_.linear_forward(x, w, b, {}, y); }),
             operations,
             0);
        line("linear backward, input",
             seconds([&] { kernels_.linear_backward_input(y, w, {}, dx); }),
             operations,
             0);
        line("linear backward, weights",
             seconds([&] { kernels_.linear_backward_weight(x, y, dw, db); }),
             operations,
             0);
    }

    void attention() {
        const AttentionShape shape{.samples = sizes_.samples,
                                   .positions = sizes_.positions,
                                   .heads = sizes_.heads,
                                   .key_value_heads = sizes_.heads,
                                   .head_size = sizes_.width / sizes_.heads};
        const std::int64_t n = std::int64_t{sizes_.samples} * sizes_.positions;
        Tensor qkv = tensor(n, 3 * std::int64_t{sizes_.width});
        Tensor probabilities = tensor(n * sizes_.heads, sizes_.positions);
        Tensor context = tensor(n, sizes_.width);
        std::byte* const scratch = arena_.workspace(attention_scratch(shape, format_));
        const Tensor dcontext = tensor(n, sizes_.width);
        // What is useful: half of every product lies above the diagonal.
        const double product = static_cast<double>(n) * sizes_.positions * sizes_.width;
        line("attention forward",
             seconds([&] { kernels_.attention_forward(shape, qkv, probabilities, context); }),
             2 * product,
             0);
        line("attention backward",
             seconds([&] {
                 View gradients = qkv;
                 kernels_.attention_backward(
                     shape, probabilities, context, dcontext, gradients, scratch);
             }),
             4 * product,
             0);
    }

    void elementwise() {
        const std::int64_t n = std::int64_t{sizes_.samples} * sizes_.positions;
        const std::int64_t wide = 4 * std::int64_t{sizes_.width};
        const Tensor x = tensor(n, wide);
        const Tensor dy = tensor(n, wide);
        const Tensor gain = tensor(1, wide);
        Tensor y = tensor(n, wide);
        Tensor statistics = exact(n, 2);
        Tensor dgain = exact(1, wide);
        Tensor dbias = exact(1, wide);
        const auto bytes = static_cast<double>(x.bytes().count);
        for (const auto& [form, name] :
             {std::pair{GeluForm::Exact, "gelu"}, {GeluForm::Tanh, "tanh gelu"}}) {
            line(fmt::format("{} forward", name),
                 seconds([&] { kernels_.gelu_forward(form, x, y); }),
                 0,
                 2 * bytes);
            line(fmt::format("{} backward", name),
                 seconds([&] { kernels_.gelu_backward(form, x, dy, y); }),
                 0,
                 3 * bytes);
        }
        line("layer norm forward",
             seconds([&] { kernels_.row_norm_forward({}, x, gain, gain, y, statistics); }),
             0,
             2 * bytes);
        kernels_.row_norm_forward({}, x, gain, gain, y, statistics);
        line("layer norm backward, input",
             seconds([&] { kernels_.row_norm_backward_input({}, x, gain, statistics, dy, {}, y); }),
             0,
             3 * bytes);
        line("layer norm backward, weights",
             seconds(
                 [&] { kernels_.row_norm_backward_weight({}, x, statistics, dy, dgain, dbias); }),
             0,
             2 * bytes);
        line("add", seconds([&] { kernels_.add(x, y); }), 0, 3 * bytes);
    }

    void loss() {
        const std::int64_t n = std::int64_t{sizes_.samples} * sizes_.positions;
        const Tensor logits = tensor(n, sizes_.vocabulary);
        Tensor gradient = tensor(n, sizes_.vocabulary);
        Tensor log_sums = exact(n, 1);
        double sum = 0;
        Tensor targets = arena_.allocate(DType::I32, n, 1, MemoryKind::Stash);
        kernels_.fill_zero(targets);
        const auto bytes = static_cast<double>(logits.bytes().count);
        line("cross-entropy forward",
             seconds([&] {
                 kernels_.cross_entropy_forward(logits, targets, {}, log_sums, {.loss = &sum});
             }),
             0,
             bytes);
        line("cross-entropy backward",
             seconds([&] {
                 kernels_.cross_entropy_backward(logits, targets, log_sums, {}, 1e-3, gradient);
             }),
             0,
             2 * bytes);
    }

    void updates() {
        Parameter parameter;
        parameter.value = tensor(4096, 1024);
        parameter.gradient = exact(4096, 1024);
        parameter.first = exact(4096, 1024);
        parameter.second = exact(4096, 1024);
        kernels_.fill_zero(parameter.second);
        const auto bytes = static_cast<double>(parameter.gradient.bytes().count);
        double beside = 0;
        if (format_.has_master_weights()) {
            parameter.master = exact(4096, 1024);
            beside = bytes / 2;  // the rounded value
        }
        const std::unique_ptr<Device> device = make_cpu_device();
        const std::span<double> squares = device->results(1);
        const auto time = [&](OptimizerKind kind) {
            OptimizerSettings settings;
            settings.kind = kind;
            return seconds([&] { update(*device, std::array{&parameter}, settings, 1, squares); });
        };
        line("sgd", time(OptimizerKind::Sgd), 0, 3 * bytes + beside);
        line("adamw", time(OptimizerKind::AdamW), 0, 7 * bytes + beside);
    }

    Sizes sizes_;
    NumberFormat format_;
    Arena arena_;
    const Kernels& kernels_ = cpu_kernels();
    int made_ = 0;
    double peak_ = 0;       ///< operations per second
    double bandwidth_ = 0;  ///< bytes per second
};

}  // namespace
}  // namespace pipetwin::exec

int main(int argc, char** argv) {
    using namespace pipetwin::exec;
    Sizes sizes;
    NumberFormat format;
    const std::vector<int*> given{
        &sizes.samples, &sizes.positions, &sizes.width, &sizes.heads, &sizes.vocabulary};
    std::size_t next = 0;
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument == "bf16" || argument == "fp32") {
            format.real = argument == "bf16" ? DType::BF16 : DType::F32;
        } else if (next < given.size()) {
            *given[next++] = std::max(1, std::atoi(argv[i]));
        }
    }
    prepare_cpu_thread();
    Bench(sizes, format).run();
    return 0;
}

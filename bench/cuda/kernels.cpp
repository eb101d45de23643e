// SPDX-License-Identifier: Apache-2.0

// How fast the CUDA kernels are at the sizes of GPT-2 124M, micro-batches of 16 x 1024 in bf16:
// what each moves per second, or computes, on an otherwise idle GPU. Products on a share of the
// device, too, with the algorithms that are used (chosen for the whole device, so that bits do not
// depend on the share), and beside them with those that cuBLASLt would choose for the share: that
// is the price of equal bits.
//
//   build/cuda/bench/gpu_kernel_bench [convolutions]
#include "exec/cuda/kernels/kernels.h"

#include "bench/cuda/measured.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "exec/cuda/device/products.h"
#include "exec/cuda/kernels/attention/attention.h"
#include "exec/cuda/runtime/green_context.h"
#include "exec/cuda/runtime/owned.h"

namespace pipetwin::cuda {
namespace {

constexpr std::int64_t samples = 16;
constexpr std::int64_t positions = 1024;
constexpr std::int64_t rows = samples * positions;
constexpr std::int64_t width = 768;
constexpr std::int64_t heads = 12;
constexpr std::int64_t vocabulary = 50304;

/// Numbers of bf16 that are read and written once.
void print_moved(const std::string& name, double time, std::int64_t bytes) {
    fmt::print("{:<44}{:9.1f} us{:9.2f} TB/s\n",
               name,
               1e6 * time,
               1e-12 * static_cast<double>(bytes) / time);
}

void print_computed(const std::string& name, double time, double flops) {
    fmt::print("{:<44}{:9.1f} us{:9.1f} TFLOP/s\n", name, 1e6 * time, 1e-12 * flops / time);
}

void rows_and_elements(cudaStream_t stream) {
    constexpr Real real = Real::BF16;
    const Memory x = Memory::of_numbers(real, rows * 4 * width);
    const Memory dy = Memory::of_numbers(real, rows * 4 * width);
    const Memory y(2 * rows * 4 * width);
    const Memory gain = Memory::of_numbers(real, width);
    const Memory statistics = Memory::of_numbers(Real::F32, 2 * rows);
    const Memory sums = Memory::of_numbers(Real::F32, 8 * width);
    const Memory scratch(4 * std::max({column_sums_scratch(rows, 4 * width),
                                       2 * column_sums_scratch(rows, width),
                                       norm_backward_scratch(rows, width, 2)}));
    const RowNorm norm{rows, width, x.at(0), gain.at(0)};
    const auto time = [&](const char* name, std::int64_t bytes, const auto& call) {
        print_moved(name, seconds(stream, call), bytes);
    };
    constexpr std::int64_t hidden = rows * 4 * width;
    constexpr std::int64_t narrow = rows * width;
    time("GELU forward", 4 * hidden, [&](cudaStream_t s) {
        return gelu_forward(real, Gelu::Exact, hidden, x.at(0), y.at(0), s);
    });
    time("GELU backward", 6 * hidden, [&](cudaStream_t s) {
        return gelu_backward(real, Gelu::Exact, hidden, x.at(0), dy.at(0), y.at(0), s);
    });
    time("GELU by tanh, forward", 4 * hidden, [&](cudaStream_t s) {
        return gelu_forward(real, Gelu::Tanh, hidden, x.at(0), y.at(0), s);
    });
    time("GELU by tanh, backward", 6 * hidden, [&](cudaStream_t s) {
        return gelu_backward(real, Gelu::Tanh, hidden, x.at(0), dy.at(0), y.at(0), s);
    });
    time("layer norm forward", 4 * narrow, [&](cudaStream_t s) {
        return row_norm_forward(real, norm, gain.at(0), y.at(0), statistics.as<float>(), s);
    });
    time("layer norm backward, input, with skip", 8 * narrow, [&](cudaStream_t s) {
        return row_norm_backward_input(
            real, norm, statistics.as<float>(), dy.at(0), dy.at(0), y.at(0), s);
    });
    time("layer norm backward, weights", 4 * narrow, [&](cudaStream_t s) {
        return row_norm_backward_weight(real,
                                        norm,
                                        statistics.as<float>(),
                                        dy.at(0),
                                        {sums.as<float>(), sums.as<float>() + width},
                                        scratch.as<float>(),
                                        s);
    });
    time("layer norm backward, both, with skip", 8 * narrow, [&](cudaStream_t s) {
        return row_norm_backward(real,
                                 norm,
                                 statistics.as<float>(),
                                 dy.at(0),
                                 dy.at(0),
                                 y.at(0),
                                 {sums.as<float>(), sums.as<float>() + width},
                                 scratch.as<float>(),
                                 s);
    });
    for (const std::int64_t columns : {width, 3 * width, 4 * width}) {
        time(fmt::format("column sums, {}", columns).c_str(),
             2 * rows * columns,
             [&](cudaStream_t s) {
                 return column_sums(
                     real, rows, columns, dy.at(0), {sums.as<float>()}, scratch.as<float>(), s);
             });
    }
}

constexpr std::int64_t key_value_heads = 4;

/// What a Llama of this size has in the places of layer norm and GELU, and its rotary positions.
void rows_and_elements_of_llama(cudaStream_t stream) {
    constexpr Real real = Real::BF16;
    const Memory x = Memory::of_numbers(real, rows * 4 * width);
    const Memory dy = Memory::of_numbers(real, rows * 2 * width);
    const Memory y(2 * rows * 4 * width);
    const Memory gain = Memory::of_numbers(real, width);
    const Memory roots = Memory::of_numbers(Real::F32, rows);
    const Memory sums = Memory::of_numbers(Real::F32, width);
    const Memory scratch(
        4 * std::max(column_sums_scratch(rows, width), norm_backward_scratch(rows, width, 1)));
    const RowNorm norm{
        .rows = rows, .width = width, .x = x.at(0), .gain = gain.at(0), .centred = 0};
    const auto time = [&](const char* name, std::int64_t bytes, const auto& call) {
        print_moved(name, seconds(stream, call), bytes);
    };
    constexpr std::int64_t narrow = rows * width;
    time("RMS norm forward", 4 * narrow, [&](cudaStream_t s) {
        return row_norm_forward(real, norm, nullptr, y.at(0), roots.as<float>(), s);
    });
    time("RMS norm backward, input, with skip", 8 * narrow, [&](cudaStream_t s) {
        return row_norm_backward_input(
            real, norm, roots.as<float>(), dy.at(0), dy.at(0), y.at(0), s);
    });
    time("RMS norm backward, gain", 4 * narrow, [&](cudaStream_t s) {
        return row_norm_backward_weight(
            real, norm, roots.as<float>(), dy.at(0), {sums.as<float>()}, scratch.as<float>(), s);
    });
    time("RMS norm backward, both, with skip", 8 * narrow, [&](cudaStream_t s) {
        return row_norm_backward(real,
                                 norm,
                                 roots.as<float>(),
                                 dy.at(0),
                                 dy.at(0),
                                 y.at(0),
                                 {sums.as<float>()},
                                 scratch.as<float>(),
                                 s);
    });
    time("SwiGLU forward", 12 * narrow, [&](cudaStream_t s) {
        return swiglu_forward(real, rows, 2 * width, x.at(0), y.at(0), s);
    });
    time("SwiGLU backward", 20 * narrow, [&](cudaStream_t s) {
        return swiglu_backward(real, rows, 2 * width, x.at(0), dy.at(0), y.at(0), s);
    });
    Rotation rotation{.rows = rows,
                      .stride = width + 2 * key_value_heads * (width / heads),
                      .positions = static_cast<std::int32_t>(positions),
                      .heads = static_cast<std::int32_t>(heads + key_value_heads),
                      .pairs = width / heads / 2};
    for (std::int64_t pair = 0; pair < rotation.pairs; ++pair) {
        rotation.frequencies[pair] = 1.0 / static_cast<double>(1 + pair);
    }
    time("rotary positions", 4 * rows * rotation.heads * 2 * rotation.pairs, [&](cudaStream_t s) {
        return rotate(real, rotation, x.at(0), s);
    });
}

void vocabulary_wide(cudaStream_t stream) {
    constexpr Real real = Real::BF16;
    const Memory x = Memory::of_numbers(real, rows * vocabulary);
    const Memory dx(2 * rows * vocabulary);
    const Memory ids = Memory::of_ids(rows, vocabulary);
    const Memory log_sums(4 * rows);
    const Memory scale = Memory::of_numbers(Real::F32, 1);
    const Memory losses(8 * (rows + 1));
    const CrossEntropy loss{rows, vocabulary, x.at(0), ids.as<std::int32_t>()};
    print_moved("cross-entropy forward",
                seconds(stream,
                        [&](cudaStream_t s) {
                            return cross_entropy_forward(real,
                                                         loss,
                                                         0,
                                                         log_sums.as<float>(),
                                                         {.loss = losses.as<double>() + rows,
                                                          .scratch = losses.as<double>()},
                                                         s);
                        }),
                2 * rows * vocabulary);
    const LossGradient gradient{.scale = scale.as<float>(), .dx = dx.at(0)};
    print_moved("cross-entropy backward",
                seconds(stream,
                        [&](cudaStream_t s) {
                            return cross_entropy_backward(
                                real, loss, log_sums.as<float>(), 0, gradient, s);
                        }),
                4 * rows * vocabulary);
    print_moved("cross-entropy with its gradient",
                seconds(stream,
                        [&](cudaStream_t s) {
                            return cross_entropy_with_gradient(real,
                                                               loss,
                                                               0,
                                                               log_sums.as<float>(),
                                                               {.loss = losses.as<double>() + rows,
                                                                .scratch = losses.as<double>()},
                                                               gradient,
                                                               s);
                        }),
                4 * rows * vocabulary);
    const Memory dtokens = Memory::of_numbers(Real::F32, vocabulary * width);
    const Memory dplaces = Memory::of_numbers(Real::F32, positions * width);
    const Embedding embedding{rows, positions, width, ids.as<std::int32_t>(), 0, positions};
    print_moved("embedding forward",
                seconds(stream,
                        [&](cudaStream_t s) {
                            return embedding_forward(
                                real, embedding, x.at(0), x.at(0), dx.at(0), s);
                        }),
                6 * rows * width);
    print_moved(
        "embedding backward",
        seconds(stream,
                [&](cudaStream_t s) {
                    return embedding_backward(
                        real, embedding, x.at(0), dtokens.as<float>(), dplaces.as<float>(), s);
                }),
        20 * rows * width);
}

/// Causal attention, or, with `lengths`, that of all positions to all: nothing is padding.
void attention(cudaStream_t stream,
               const AttentionShape& shape,
               const std::int32_t* lengths,
               std::string_view name) {
    constexpr Real real = Real::BF16;
    const Memory qkv = Memory::of_numbers(real, rows * shape.qkv_width());
    const Memory dqkv(2 * rows * shape.qkv_width());
    const Memory context(2 * rows * width);
    const Memory dcontext = Memory::of_numbers(real, rows * width);
    const Memory log_sums(4 * rows * heads);
    const Memory scratch(4 * attention_backward_scratch(shape));
    AttentionInputs inputs = inputs_in_one(real, shape, qkv.at(0));
    inputs.lengths = lengths;
    // Two products of positions x positions x size per head, half of it behind a causal mask.
    const auto flops = static_cast<double>((shape.is_causal() ? 2 : 4) * rows * positions * width);
    const double forward = seconds(stream, [&](cudaStream_t s) {
        return attention_forward(real, shape, inputs, context.at(0), log_sums.as<float>(), s);
    });
    const double backward = seconds(stream, [&](cudaStream_t s) {
        return attention_backward(real,
                                  shape,
                                  inputs,
                                  context.at(0),
                                  log_sums.as<float>(),
                                  dcontext.at(0),
                                  gradients_in_one(real, shape, dqkv.at(0)),
                                  scratch.as<float>(),
                                  s);
    });
    print_computed(fmt::format("{} forward", name), forward, flops);
    print_computed(fmt::format("{} backward", name), backward, 2.5 * flops);
}

/// With so many heads of keys and values.
AttentionShape attention_shape(std::int64_t of_keys) {
    return {.samples = static_cast<int>(samples),
            .positions = static_cast<int>(positions),
            .heads = static_cast<int>(heads),
            .key_value_heads = static_cast<int>(of_keys),
            .head_size = static_cast<int>(width / heads)};
}

void padded_attention(cudaStream_t stream) {
    AttentionShape shape = attention_shape(heads);
    shape.padded_keys = shape.positions;
    const Memory lengths = Memory::of_integers(std::vector<std::int32_t>(samples, positions));
    attention(stream, shape, lengths.as<std::int32_t>(), "padded attention");
}

/// Multiprocessors that algorithms are chosen for, and what to call them.
struct Choice {
    const char* name = "";
    int multiprocessors = 0;
};

/// A number that is another one where the product's bits are.
std::uint64_t bits_of(cudaStream_t stream,
                      Products& products,
                      int number,
                      const Products::Operands& operands,
                      std::int64_t bytes) {
    PIPETWIN_CUDA_CHECK(cudaMemsetAsync(operands.d, 0, static_cast<std::size_t>(bytes), stream));
    PIPETWIN_CUDA_CHECK(products.multiply(number, operands, stream));
    std::vector<std::uint64_t> words(static_cast<std::size_t>(bytes) / sizeof(std::uint64_t));
    PIPETWIN_CUDA_CHECK(cudaMemcpyAsync(words.data(),
                                        operands.d,
                                        words.size() * sizeof(std::uint64_t),
                                        cudaMemcpyDeviceToHost,
                                        stream));
    PIPETWIN_CUDA_CHECK(cudaStreamSynchronize(stream));
    std::uint64_t bits = 0;
    for (const std::uint64_t word : words) {
        bits = (bits ^ word) * 0x9E3779B97F4A7C15U;
        bits ^= bits >> 29U;
    }
    return bits;
}

/// Measures one product; returns its bits_of.
std::uint64_t product_on(cudaStream_t stream,
                         const char* name,
                         const Product& product,
                         Choice choice) {
    const auto bytes = [](Real real) { return real == Real::F32 ? 4 : 2; };
    const Memory a = Memory::of_numbers(product.factors, std::int64_t{product.m} * product.k);
    const Memory b = Memory::of_numbers(product.factors, std::int64_t{product.k} * product.n);
    const Memory d(bytes(product.result) * std::int64_t{product.m} * product.n);
    const Memory row = Memory::of_numbers(product.result, product.n);
    const Memory scratch(4 * column_sums_scratch(product.k, product.n));
    const Memory workspace(static_cast<std::int64_t>(Products::workspace_bytes));
    Products products(workspace.at(0), choice.multiprocessors);
    const int alone = products.number_of(product);
    const Products::Operands operands{.a = a.at(0),
                                      .b = b.at(0),
                                      .c = product.a_transposed ? d.at(0) : nullptr,
                                      .bias = product.has_bias ? row.at(0) : nullptr,
                                      .d = d.at(0)};
    const double flops = 2.0 * product.m * product.n * product.k;
    const auto print = [&](const char* what, double time) {
        fmt::print("{:<14}{:<30}{:9.1f} us{:9.1f} TFLOP/s  {}\n",
                   name,
                   what,
                   1e6 * time,
                   1e-12 * flops / time,
                   choice.name);
    };
    const std::uint64_t bits = bits_of(stream,
                                       products,
                                       alone,
                                       operands,
                                       bytes(product.result) * std::int64_t{product.m} * product.n);
    print("product",
          seconds(stream, [&](cudaStream_t s) { return products.multiply(alone, operands, s); }));
    if (!product.a_transposed) {
        return bits;
    }
    print("product, then column sums", seconds(stream, [&](cudaStream_t s) {
              const cudaError_t error = products.multiply(alone, operands, s);
              return error != cudaSuccess ? error
                                          : column_sums(product.factors,
                                                        product.k,
                                                        product.n,
                                                        b.at(0),
                                                        {row.as<float>()},
                                                        scratch.as<float>(),
                                                        s);
          }));
    return bits;
}

void products_on(cudaStream_t stream, const std::vector<Choice>& choices) {
    struct Size {
        const char* name;
        int inputs, outputs;
    };
    constexpr int n = rows;
    for (const Size& size :
         {Size{"qkv", 768, 2304}, {"out", 768, 768}, {"up", 768, 3072}, {"down", 3072, 768}}) {
        const Product forward{.m = n,
                              .n = size.outputs,
                              .k = size.inputs,
                              .factors = Real::BF16,
                              .result = Real::BF16,
                              .has_bias = true};
        const Product input{.m = n,
                            .n = size.inputs,
                            .k = size.outputs,
                            .b_transposed = true,
                            .factors = Real::BF16,
                            .result = Real::BF16};
        const Product weight{.m = size.inputs,
                             .n = size.outputs,
                             .k = n,
                             .a_transposed = true,
                             .factors = Real::BF16,
                             .result = Real::F32};
        struct Named {
            const char* name;
            const Product& product;
        };
        for (const Named& named : {Named{"y", forward}, Named{"dx", input}, Named{"dw", weight}}) {
            const std::string name = fmt::format("{} {}", size.name, named.name);
            std::vector<std::uint64_t> bits;
            for (const Choice& choice : choices) {
                bits.push_back(product_on(stream, name.c_str(), named.product, choice));
            }
            if (std::ranges::count(bits, bits.front()) != std::ssize(bits)) {
                fmt::print("{:<14}the bits depend on the choice\n", name);
            }
        }
    }
}

/// A product and the GELU behind it, or the gradient of the one before it: one after the other, and
/// at once where cuBLASLt knows a way.
void products_with_gelu(cudaStream_t stream, int multiprocessors) {
    constexpr std::int64_t hidden = rows * 4 * width;
    const Memory narrow = Memory::of_numbers(Real::BF16, rows * width);
    const Memory weight = Memory::of_numbers(Real::BF16, 4 * width * width);
    const Memory bias = Memory::of_numbers(Real::BF16, 4 * width);
    const Memory h = Memory::of_numbers(Real::BF16, hidden);
    const Memory y = Memory::of_numbers(Real::BF16, hidden);
    const Memory workspace(static_cast<std::int64_t>(Products::workspace_bytes));
    Products products(workspace.at(0), multiprocessors);
    for (const bool is_forward : {true, false}) {
        const Product alone{.m = static_cast<std::int32_t>(rows),
                            .n = static_cast<std::int32_t>(4 * width),
                            .k = static_cast<std::int32_t>(width),
                            .b_transposed = !is_forward,
                            .factors = Real::BF16,
                            .result = Real::BF16,
                            .has_bias = is_forward};
        Product joined = alone;
        joined.epilogue = is_forward ? Product::Epilogue::Gelu : Product::Epilogue::GeluGradient;
        const int number = products.number_of(alone);
        const Products::Operands operands{.a = narrow.at(0),
                                          .b = weight.at(0),
                                          .bias = is_forward ? bias.at(0) : nullptr,
                                          .d = is_forward ? h.at(0) : y.at(0)};
        const char* const name = is_forward ? "up y, GELU" : "down dx, GELU";
        const auto print = [&](const char* what, const auto& call) {
            fmt::print("{:<14}{:<30}{:9.1f} us\n", name, what, 1e6 * seconds(stream, call));
        };
        print("one after the other", [&](cudaStream_t s) {
            const cudaError_t error = products.multiply(number, operands, s);
            if (error != cudaSuccess) {
                return error;
            }
            return is_forward ? gelu_forward(Real::BF16, Gelu::Tanh, hidden, h.at(0), y.at(0), s)
                              : gelu_backward(
                                    Real::BF16, Gelu::Tanh, hidden, h.at(0), y.at(0), y.at(0), s);
        });
        const std::optional<int> at_once = products.number_if_known(joined);
        if (!at_once) {
            fmt::print("{:<14}cuBLASLt knows no way to compute both at once\n", name);
            continue;
        }
        Products::Operands with_aux = operands;
        with_aux.d = y.at(0);
        with_aux.aux_out = h.at(0);
        with_aux.aux_in = h.at(0);
        print("at once", [&](cudaStream_t s) { return products.multiply(*at_once, with_aux, s); });
    }
}

void run() {
    cudaDeviceProp properties{};
    PIPETWIN_CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
    PIPETWIN_CUDA_CHECK(cudaSetDevice(0));
    const Stream stream = make_stream();
    const int all = properties.multiProcessorCount;
    fmt::print("{}, {} multiprocessors\n", properties.name, all);
    rows_and_elements(stream.get());
    rows_and_elements_of_llama(stream.get());
    vocabulary_wide(stream.get());
    attention(stream.get(), attention_shape(heads), nullptr, "attention");
    attention(
        stream.get(), attention_shape(key_value_heads), nullptr, "attention, 3 heads in a group,");
    padded_attention(stream.get());
    products_on(stream.get(), {{"whole device", all}});
    products_with_gelu(stream.get(), all);
    for (const int ranks : {2, 4}) {
        const auto parts = cut_evenly(0, ranks);
        fmt::print("one of {} ranks: {} multiprocessors\n", ranks, parts[0]->multiprocessors());
        parts[0]->enter();
        products_on(parts[0]->stream(),
                    {{"chosen for the device", all},
                     {"chosen for the share", parts[0]->multiprocessors()}});
        PIPETWIN_CUDA_CHECK(cudaSetDevice(0));
    }
}

}  // namespace
}  // namespace pipetwin::cuda

int main(int count, char** words) {
    try {
        if (count > 1 && std::string_view(words[1]) == "convolutions") {
            pipetwin::cuda::measure_convolutions();
        } else {
            pipetwin::cuda::run();
        }
    } catch (const std::exception& error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
    return 0;
}

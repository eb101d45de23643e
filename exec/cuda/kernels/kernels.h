// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include <cuda_runtime_api.h>

#include "exec/device/update_rules.h"

/// The kernels, the only code that nvcc compiles, behind pointers, sizes and a stream. A launch
/// returns at once; the result says whether the launch itself was accepted.
///
/// Names as in exec/device/kernels.h: x input, y output, dx the gradient of the loss by x; matrices
/// are row-major without gaps. All pointers are the device's. `void` pointers lead to numbers of
/// the type that the first argument names: activations, and parameters as layers read them. Sums
/// and gradients of parameters are fp32, or double where it is said. Gradients of parameters are
/// added to.
///
/// No atomics, and every sum in an order that the shape alone decides: results depend on shapes and
/// values. Where all addresses are multiples of 16 bytes, as an arena's are, accesses are 16 bytes
/// wide; other addresses are correct, too, but sums along a row then have another order.
namespace pipetwin::cuda {

/// Type of the numbers that layers read and write.
enum class Real : std::uint8_t { F32, BF16 };

// elementwise.cu

/// y += x.
cudaError_t add(Real real, std::int64_t size, const void* x, void* y, cudaStream_t stream);

/// Neighbouring columns of a matrix that go into another one with as many rows.
struct ColumnCopy {
    std::int64_t rows = 0;
    std::int64_t columns = 0;  ///< that are copied
    std::int64_t x_width = 0;  ///< columns of x
    std::int64_t y_width = 0;  ///< columns of y
    std::int64_t adds = 0;     ///< 1: y's are added to; 0: overwritten
};
/// y = or += x, where both lead to the first number that is copied.
cudaError_t copy_columns(
    Real real, const ColumnCopy& copy, const void* x, void* y, cudaStream_t stream);

/// y = x_0 + x_1 + ... added up in this order, of `members` operands. That number `own` is y
/// itself; the others lie in x in their order, each `stride` numbers behind the one before.
struct MemberSum {
    std::int64_t size = 0;
    int members = 0;
    int own = 0;
    std::int64_t stride = 0;
    const float* x = nullptr;
    float* y = nullptr;
};
/// Launches the sum y = x_0 + x_1 + ... of `MemberSum`.
cudaError_t sum_members(const MemberSum& sum, cudaStream_t stream);

/// Where the terms of a sum lie.
struct Terms {
    static constexpr std::int64_t most = 32;
    std::int64_t count = 0;
    const void* at[most] = {};  // NOLINT(modernize-avoid-c-arrays): an operand of a kernel
};
/// y = x_0 + x_1 + ... + skip, added up in this order in fp32 and rounded once; skip may be null. y
/// may be one of the operands.
cudaError_t add_up(Real real,
                   std::int64_t size,
                   const Terms& terms,
                   const void* skip,
                   void* y,
                   cudaStream_t stream);

/// y = scale x, from fp32, rounded to the nearest, ties to even.
cudaError_t convert_from_float(
    Real real, std::int64_t size, float scale, const float* x, void* y, cudaStream_t stream);
/// The formula of a GELU: with the normal distribution, or with its approximation by tanh.
enum class Gelu : std::uint8_t { Exact, Tanh };

/// y = x F(x), F the distribution of the form; y may be x.
cudaError_t gelu_forward(
    Real real, Gelu form, std::int64_t size, const void* x, void* y, cudaStream_t stream);
/// dx = dy (F(x) + x F'(x)); dx may be x or dy.
cudaError_t gelu_backward(Real real,
                          Gelu form,
                          std::int64_t size,
                          const void* x,
                          const void* dy,
                          void* dx,
                          cudaStream_t stream);

/// y = v g / (1 + exp(-g)) for rows of x (rows, 2 width) = g | v; y (rows, width).
cudaError_t swiglu_forward(
    Real real, std::int64_t rows, std::int64_t width, const void* x, void* y, cudaStream_t stream);
/// dx (rows, 2 width) = dy v s (1 + g (1 - s)) | dy g s, s = 1 / (1 + exp(-g)); dx may be x.
cudaError_t swiglu_backward(Real real,
                            std::int64_t rows,
                            std::int64_t width,
                            const void* x,
                            const void* dy,
                            void* dx,
                            cudaStream_t stream);

// dropout.cu

/// What a step's dropout has of its own: a graph that was captured in a step before runs again with
/// others.
struct DropoutStep {
    std::uint64_t key = 0;
    std::uint32_t threshold = 0;
    float scale = 1;
};

/// The masks of exec/device/kernels.h.
struct Dropout {
    const DropoutStep* step = nullptr;  ///< in device memory
    std::int64_t first_sample = 0;
    std::int64_t samples = 0;
    std::int64_t numbers_per_sample = 0;
    std::int64_t first = 0;  ///< place of the first number of x in the first sample
    std::int64_t size = 0;   ///< numbers of x
};

/// y = skip + scale x, or skip where x is dropped; skip may be null; y may be x or skip.
cudaError_t dropout(Real real,
                    const Dropout& dropout,
                    const void* x,
                    const void* skip,
                    void* y,
                    cudaStream_t stream);

// row_norm.cu

/// Operands that the functions of a layer norm share, or of an RMS norm, which is not centred; per
/// row z = (x - m) s, m = mean(x) or 0, s = 1 / sqrt(mean((x - m)^2) + epsilon). What is kept of a
/// row is m and s, or s: statistics (rows, 2) or (rows).
struct RowNorm {
    std::int64_t rows = 0;
    std::int64_t width = 0;
    const void* x = nullptr;
    const void* gain = nullptr;
    std::int64_t centred = 1;  ///< or 0
    double epsilon = 1e-5;     ///< no float, behind which there would be padding
};

/// y = gain z, + bias where it is centred; y may be x.
cudaError_t row_norm_forward(Real real,
                             const RowNorm& norm,
                             const void* bias,
                             void* y,
                             float* statistics,
                             cudaStream_t stream);

/// dx = skip + s (g - mean(g) - z mean(g z)), g = gain dy, without mean(g) where it is not centred;
/// skip may be null; dx may be x, dy or skip.
cudaError_t row_norm_backward_input(Real real,
                                    const RowNorm& norm,
                                    const float* statistics,
                                    const void* dy,
                                    const void* skip,
                                    void* dx,
                                    cudaStream_t stream);

// column_sums.cu

/// Number of fp32 scratch numbers that `column_sums` needs; none for few rows. Of
/// `row_norm_backward_weight` as many for each of its sums.
std::int64_t column_sums_scratch(std::int64_t rows, std::int64_t columns);

/// Where sums over rows go.
struct ColumnTotals {
    float* first = nullptr;
    float* second = nullptr;  ///< of a norm that is centred
    std::int64_t adds = 1;    ///< to what is there; 0: they are written over it
};

/// db = totals.first (+)= the sum of the rows of dy: the gradient of a bias.
cudaError_t column_sums(Real real,
                        std::int64_t rows,
                        std::int64_t columns,
                        const void* dy,
                        const ColumnTotals& db,
                        float* scratch,
                        cudaStream_t stream);

/// First total (+)= sum of dy z, the gradient of the gain, second (+)= sum of dy, that of the bias
/// of a norm that is centred, over the rows; norm.gain is not read.
cudaError_t row_norm_backward_weight(Real real,
                                     const RowNorm& norm,
                                     const float* statistics,
                                     const void* dy,
                                     const ColumnTotals& totals,
                                     float* scratch,
                                     cudaStream_t stream);

/// Sums of slices of rows, and where they lie: (slices, sums, columns).
struct Slices {
    std::int64_t slices = 0;
    std::int64_t columns = 0;
    std::int64_t sums = 1;  ///< per column: 1 or 2
    const float* from = nullptr;
};
/// The sums of all slices, in an order that their number decides.
cudaError_t add_slices(const Slices& slices, const ColumnTotals& totals, cudaStream_t stream);

// norm_backward.cu

/// Number of fp32 scratch numbers that the backward of a norm needs, which adds up `sums` numbers
/// per column: 2 where it is centred, else 1.
std::int64_t norm_backward_scratch(std::int64_t rows, std::int64_t width, int sums);

/// `row_norm_backward_weight` and `row_norm_backward_input`, in one pass over x and dy where the
/// width is at most 8192 and a multiple of 16 bytes. The sums have an order of their own.
cudaError_t row_norm_backward(Real real,
                              const RowNorm& norm,
                              const float* statistics,
                              const void* dy,
                              const void* skip,
                              void* dx,
                              const ColumnTotals& gradients,
                              float* scratch,
                              cudaStream_t stream);

// embedding.cu

/// Row r is at position r mod `positions` of its sample and has the token ids[r]. `count` positions
/// of each sample, from `first` on, are embedded; places are counted from there.
struct Embedding {
    std::int64_t rows = 0;
    std::int64_t positions = 1;
    std::int64_t width = 0;
    const std::int32_t* ids = nullptr;
    std::int64_t first = 0;
    std::int64_t count = 1;
    double scale = 1;  ///< of the tokens' rows; no float, behind which there would be padding
    /// The tokens whose rows are here: a token of another row adds nothing.
    std::int64_t first_token = 0;
    std::int64_t tokens = std::int64_t{1} << 62;
};

/// y[r] = scale tokens[ids[r]] + places[r mod positions - first]; places may be null.
cudaError_t embedding_forward(Real real,
                              const Embedding& embedding,
                              const void* tokens,
                              const void* places,
                              void* y,
                              cudaStream_t stream);
/// The rows of dy are added to the rows of dtokens (times `scale`) and of dplaces (may be null)
/// that they came from, in ascending order.
cudaError_t embedding_backward(Real real,
                               const Embedding& embedding,
                               const void* dy,
                               float* dtokens,
                               float* dplaces,
                               cudaStream_t stream);

// cross_entropy.cu; per row l = log(sum exp x)

/// Operands that both functions of a cross-entropy share.
struct CrossEntropy {
    std::int64_t rows = 0;
    std::int64_t width = 0;  ///< classes
    const void* x = nullptr;
    /// (rows), each in [0, width), or -1: the row has no part in the loss.
    const std::int32_t* targets = nullptr;
    /// Columns of x behind those of the classes, which no sum sees and whose gradient is 0.
    std::int64_t padding = 0;
    /// The class of the first column. Where it is not 0, other devices have other classes, and a
    /// target may be one of theirs.
    std::int64_t first = 0;
};

/// Where a loss goes, and how many rows have the target's class. The device writes both sums: they
/// may lie in pinned memory of the host. Each is null where it is not wanted.
struct LossSums {
    double* loss = nullptr;
    double* right = nullptr;
    double* scratch = nullptr;  ///< loss_scratch(rows) numbers
};
/// Numbers of scratch memory for the sums over so many rows.
constexpr std::int64_t loss_scratch(std::int64_t rows) {
    return 2 * rows;
}

/// log_sums = l (rows). With s the smoothing and m a row's mean, a row's loss is l - (1 - s)
/// x[target] - s m; it is right where its first largest number is the target's.
cudaError_t cross_entropy_forward(Real real,
                                  const CrossEntropy& loss,
                                  float smoothing,
                                  float* log_sums,
                                  const LossSums& sums,
                                  cudaStream_t stream);
/// What is found of the classes that are here: (rows, 4), as `Kernels::class_parts` says.
cudaError_t class_parts(Real real, const CrossEntropy& loss, float* parts, cudaStream_t stream);
/// The losses of rows of which several devices have the classes.
struct PartedLoss {
    std::int64_t rows = 0;
    std::int64_t devices = 0;
    const float* parts = nullptr;  ///< (devices, rows, 4)
    const std::int32_t* targets = nullptr;
    float* log_sums = nullptr;
};
/// Computes the sums of `cross_entropy_forward` from the parts of all devices.
cudaError_t cross_entropy_of_parts(const PartedLoss& loss,
                                   const LossSums& sums,
                                   cudaStream_t stream);
/// The gradient of a loss: dx = scale exp(x - l) - scale (1 - smoothing) at the target - scale
/// smoothing / width, or 0 in a row without a target.
struct LossGradient {
    /// In device memory, since it is another one in each step where padding is, and a graph that
    /// was captured in a step before runs again.
    const float* scale = nullptr;
    void* dx = nullptr;  ///< may be x
};
/// Computes `cross_entropy_forward` with the gradient: reads x once, where a row of it fits into
/// shared memory. The bits are those of `cross_entropy_forward` and `cross_entropy_backward`.
cudaError_t cross_entropy_with_gradient(Real real,
                                        const CrossEntropy& loss,
                                        float smoothing,
                                        float* log_sums,
                                        const LossSums& sums,
                                        LossGradient gradient,
                                        cudaStream_t stream);
/// The gradient alone.
cudaError_t cross_entropy_backward(Real real,
                                   const CrossEntropy& loss,
                                   const float* log_sums,
                                   float smoothing,
                                   LossGradient gradient,
                                   cudaStream_t stream);

/// The loss of each of `rows` logits is max(x, 0) - x target + log(1 + exp(-|x|)), each target 0 or
/// 1; it is right where x > 0 and the target is 1, or x <= 0 and it is 0.
cudaError_t binary_cross_entropy_forward(Real real,
                                         std::int64_t rows,
                                         const void* x,
                                         const std::int32_t* targets,
                                         const LossSums& sums,
                                         cudaStream_t stream);
/// dx = scale (1 / (1 + exp(-x)) - target); dx may be x.
cudaError_t binary_cross_entropy_backward(Real real,
                                          std::int64_t rows,
                                          const void* x,
                                          const std::int32_t* targets,
                                          float scale,
                                          void* dx,
                                          cudaStream_t stream);

// updates.cu

/// Whether weight_decay times the weight is added to the gradient that a rule follows. Without, not
/// even a rounding differs from a rule that knows no decay.
enum class WeightDecay : std::uint8_t { No, Yes };

/// Operands of the update of one parameter.
struct UpdateTensor {
    void* value = nullptr;  ///< what layers read
    float* master =
        nullptr;  ///< what is updated, and then rounded into value; null where value is fp32
    const float* gradient = nullptr;
    float* first = nullptr;   ///< state of Momentum, RmsProp and Adam; of `average`, the average
    float* second = nullptr;  ///< of Adam and RmsPropMomentum
    std::int64_t size = 0;
    double* squares = nullptr;     ///< receives the sum of the squares of the gradient
    std::int64_t first_chunk = 0;  ///< set by update_chunks
    exec::CountedNumbers counted{};
};

/// The part of a tensor that one block updates.
struct UpdateChunk {
    std::int32_t tensor = 0;
    std::int32_t index = 0;  ///< its place in the tensor, counted in chunks
};
/// Numbers of a chunk.
constexpr std::int64_t update_chunk_size = 16'384;

/// Cuts the tensors into chunks, and sets each tensor's `first_chunk`.
std::vector<UpdateChunk> update_chunks(std::vector<UpdateTensor>& tensors);

/// Factors of one step's update, in fp32 as the CPU's kernels round them.
using UpdateFactors = exec::UpdateFactors<float>;

/// Operands of one launch that updates all parameters. All arrays lie in memory that the device
/// reads; `factors`, too, since a captured graph runs again with the numbers of another step.
struct Updates {
    const UpdateTensor* tensors = nullptr;
    std::int64_t tensor_count = 0;
    const UpdateChunk* chunks = nullptr;
    std::int64_t chunk_count = 0;
    const UpdateFactors* factors = nullptr;
    double* chunk_squares = nullptr;  ///< scratch, one per chunk
};

/// One pass over all parameters; values are of type `real`.
cudaError_t update(Real real,
                   exec::UpdateRule rule,
                   WeightDecay decay,
                   const Updates& updates,
                   cudaStream_t stream);
/// The sums of the squares of the gradients alone.
cudaError_t sum_squares(const Updates& updates, cudaStream_t stream);

/// first += take_first (w - first) for every parameter, where w is the master or, without one, the
/// value in fp32. Reads no gradients and writes no squares.
cudaError_t average(const Updates& updates, cudaStream_t stream);

}  // namespace pipetwin::cuda

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/model/gelu_form.h"
#include "core/model/rotary.h"
#include "exec/device/number_format.h"
#include "exec/device/tensor.h"
#include "exec/device/update_rules.h"

namespace pipetwin::exec {

class ExpertKernels;
class WindowKernels;

/// Sizes of one self-attention: `samples` sequences of `positions`; heads in groups of heads /
/// key_value_heads share keys and values, neighbours together.
struct AttentionShape {
    int samples = 0;
    int positions = 0;
    int heads = 0;
    int key_value_heads = 0;
    int head_size = 0;

    /// Columns of all queries, and of the context.
    std::int64_t query_width() const { return std::int64_t{heads} * head_size; }
    /// Columns of all keys, and of all values.
    std::int64_t key_width() const { return std::int64_t{key_value_heads} * head_size; }
    /// Columns of Q | K | V.
    std::int64_t qkv_width() const { return query_width() + 2 * key_width(); }
    /// Heads that share keys and values.
    int group() const { return heads / key_value_heads; }
};

/// Sizes of one attention in which every query sees all keys of its sample that are no padding;
/// keys and values may be those of another sequence.
struct PaddedAttentionShape {
    int samples = 0;
    int positions = 0;      ///< queries of a sample
    int key_positions = 0;  ///< keys of a sample, padding included
    int heads = 0;
    int head_size = 0;

    /// Columns of all queries, of all keys, of all values, and of the context.
    std::int64_t width() const { return std::int64_t{heads} * head_size; }
};

/// Neighbouring columns of a matrix, from `first` on.
struct ConstColumns {
    ConstView matrix;
    std::int64_t first = 0;
};

/// Neighbouring columns of a matrix that are written, from `first` on.
struct Columns {
    View matrix;
    std::int64_t first = 0;
};

/// A norm of each row of a matrix: layer norm, or RMSNorm, which is not centred and has no bias.
struct RowNormRule {
    bool centred = true;
    double epsilon = 1e-5;
};

/// Bytes of scratch memory for a padded attention's backward. Where the probabilities are kept: one
/// head's dS and dQ. Else dQ, then dK | dV, and a sum for each row of each head.
Bytes padded_attention_scratch(const PaddedAttentionShape& shape, const NumberFormat& format);

/// Whether rotary positions turn queries and keys, or turn their gradients back.
enum class Turn { Forward, Back };

/// Bytes of scratch memory for an attention's backward. Where the probabilities are kept: one
/// head's dS and dQ, and the sums dK and dV of a group of several heads. Else dQ | dK | dV and a
/// sum for each row of each head.
Bytes attention_scratch(const AttentionShape& shape, const NumberFormat& format);

/// Operands of the update of one parameter; see exec/layers/optimizer.h for the formulas.
struct UpdateView {
    View value;
    ConstView gradient;
    View first;  ///< empty where the optimizer has no state
    View second;
    View master{};              ///< what is updated, and then rounded to `value`; empty: `value`
    View average{};             ///< of the value over the steps; empty where there is none
    double* squares = nullptr;  ///< where the sum of the squares of the gradient goes
    bool is_weight = false;     ///< Parameter::is_weight
    CountedNumbers counted{};   ///< in `squares`
};

/// Where a loss layer's forward leaves what the host reads: memory of `Device::results`, each null
/// where it is not wanted.
struct LossSums {
    double* loss = nullptr;   ///< the sum over the rows
    double* right = nullptr;  ///< the number of rows whose largest number is the target's
};

/// What a cross-entropy makes of the columns of its logits.
struct ClassColumns {
    double smoothing = 0;      ///< share of the target that all classes divide among them
    std::int64_t padding = 0;  ///< columns behind those of the classes; no class
    /// The class of the first column, where other devices have the columns of other classes.
    std::int64_t first = 0;
};

/// The numbers of a micro-batch's matrix that dropout drops: a function of the key, the sample's
/// place in the mini-batch and the number's place in the sample, and so of no partition. Numbers 2k
/// and 2k + 1 of sample s share the bits `RandomStream::with_key(key).of(s).bits(k)`, low half
/// first; one is dropped whose half is below `threshold`.
struct DropoutMask {
    std::uint64_t key = 0;
    int first_sample = 0;
    std::int64_t numbers_per_sample = 0;
    double probability = 0;  ///< of being dropped, 0 up to, but not, 1
    /// The place of the first number in the micro-batch, where other devices have those before it.
    std::int64_t first_number = 0;

    /// A number is dropped if its 32 random bits are below this.
    std::uint32_t threshold() const {
        return static_cast<std::uint32_t>(std::min(probability * 0x1p32, 0x1p32 - 1));
    }
    /// Factor of the numbers that are kept.
    double scale() const { return 1 / (1 - probability); }
};

/// The rows of a micro-batch that an embedding is about: `count` positions of each sample, from
/// `first` on. Positions are counted from there.
struct EmbeddingRows {
    int positions = 0;  ///< of a sample
    int first = 0;
    int count = 0;
    double scale = 1;  ///< of the rows of the token table
    /// The rows of the token table that are here, where other devices have the others: a token of
    /// another row adds nothing.
    std::int64_t first_token = 0;
    std::int64_t tokens = std::numeric_limits<std::int64_t>::max();

    /// The row of a token's numbers in the table that is here; none: another device has it.
    std::optional<std::int64_t> row_of(std::int32_t token) const {
        const std::int64_t row = token - first_token;
        return row >= 0 && row < tokens ? std::optional(row) : std::nullopt;
    }

    /// True for row r of all rows of the micro-batch.
    bool has(std::int64_t row) const {
        const auto position = static_cast<int>(row % positions);
        return position >= first && position < first + count;
    }
};

/// Where the gradient of a weight is summed up over the micro-batches of a step. The first term is
/// written over whatever is there, so nothing has to be zeroed; the others are added to it.
struct GradientSum {
    View view;  ///< empty: not wanted
    bool adds = true;

    GradientSum() = default;
    GradientSum(View where,
                bool adds_to_it = true)  // NOLINT(google-explicit-constructor): added to
        : view(where), adds(adds_to_it) {}
    GradientSum(Tensor& where)  // NOLINT(google-explicit-constructor): added to
        : view(where) {}

    bool empty() const { return view.empty(); }
};

/// Neighbouring columns of one matrix that go into another one with as many rows.
struct ColumnCopy {
    std::int64_t from = 0;   ///< the first of them in x
    std::int64_t to = 0;     ///< the first of them in y
    std::int64_t count = 0;  ///< columns
    bool adds = false;       ///< y's are added to, else overwritten
};

class ColumnKernels;

/// The mathematics of a device: every product, reduction and formula that layers and optimizers are
/// written in.
///
/// Names: x input, y output, w weights, b bias, dx the gradient of the loss by x. All matrices are
/// row-major; n rows are the positions of all samples of a micro-batch. fp32 and fp64; all real
/// operands of one call have one type. `skip` may be empty; else it is added to the result, which
/// is how a residual connection costs no pass of its own. Gradients of weights are added to, in row
/// order, where their GradientSum adds. Results depend on shapes and values alone: not on
/// addresses, threads or the time of day.
///
/// A device may do the work later, in the order of the calls. Numbers for the host therefore go to
/// memory that `Device::results` gave, and may be read once `Device::complete` has returned.
class Kernels {
  public:
    virtual ~Kernels() = default;

    /// The mathematics of windows over images (exec/device/window_kernels.h).
    virtual const WindowKernels& windows() const = 0;
    /// The mathematics of layers whose columns are channels of images
    /// (exec/device/column_kernels.h).
    virtual const ColumnKernels& columns() const = 0;
    /// The mathematics of routers and their experts (exec/device/expert_kernels.h).
    virtual const ExpertKernels& experts() const = 0;

    /// Whether a call has done its work when it returns, and several threads may call at once.
    virtual bool are_immediate() const { return false; }

    /// Returns the place of a sum, for a kernel that can only add. Clears it before the first term.
    View begun(const GradientSum& sum) const;

#define PIPETWIN_KERNEL(name, parameters) virtual void name parameters const = 0
#define PIPETWIN_FUSED_KERNEL(name, parameters) virtual void name parameters const
#include "exec/device/kernel_list.h"
};

/// Kernels that do nothing: used to record a step's allocations without computing.
const Kernels& null_kernels();

/// The elements of x as doubles. For reports: it waits.
std::vector<double> values(const Kernels& kernels, ConstView x);

}  // namespace pipetwin::exec

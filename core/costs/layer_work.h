// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/costs/devices/device_profile.h"
#include "core/costs/estimate.h"
#include "core/costs/kernel_rates.h"
#include "core/costs/profile.h"
#include "core/model/decoder_model.h"

namespace pipetwin {

/// The nearest whole number, no larger than what the check of a profile refuses.
std::int64_t whole_number(double value);

/// Bytes of a number: 4 for "fp32", else 2.
std::int64_t bytes_per_value(std::string_view precision);

/// Pairs of a query and a key that it sees in one sample of `sequence` tokens: itself and those
/// before it, no further back than the window; 0: no window.
double causal_pairs(int window, double sequence);

/// Times of one layer and one micro-batch: the sum of its kernels. Counts are double: they are
/// whole and exact up to 2^53, above which no profile goes.
class LayerWork {
  public:
    /// `device` has a matrix rate at the precision of the options.
    LayerWork(const DeviceProfile& device, const EstimateOptions& options);

    /// Sizes of a product, and what is special about it.
    struct Product {
        double rows = 1;
        double inputs = 1;
        double outputs = 1;
        double matrices = 1;  ///< each row meets one of them
        double again = 0;     ///< share of the forward that recompute of operators does again
        /// Every device that shares the layer casts all of the input, as long as they do not
        /// divide the sequence.
        bool has_whole_input = false;
        bool has_sums = false;  ///< these devices have terms of its results, which are summed
        /// Rank of an adapter that is trained beside the matrix (`AdapterShape`); 0: there is none.
        double adapter = 0;
    };

    /// The matrices of products that follow, and tables of rows, are not trained.
    void freeze() { is_frozen_ = true; }

    /// y (rows, outputs) = x (rows, inputs) * w (inputs, outputs).
    ///
    /// forward      x * w             reads x and w, writes y
    /// of inputs    dy * transposed w     reads dy and w, writes dx
    /// of weights   transposed x * dy     reads x and dy, adds to dw
    void product(const Product& shape);
    void product(double rows, double inputs, double outputs) {
        product({.rows = rows, .inputs = inputs, .outputs = outputs});
    }

    /// Sizes of a convolution over windows of `window` pixels.
    struct Convolution {
        double pixels_read = 1;  ///< of all samples
        double channels = 1;     ///< of each of them
        double pixels = 1;       ///< of the output, of all samples
        double outputs = 1;      ///< of each of them
        double window = 1;
        double groups = 1;
        /// Windows of 3x3 pixels that move by one: where products are in fp32, four outputs are
        /// made of 16 multiplications in place of 36 (Lavin and Gray, arXiv 1509.09308).
        bool saves_products = false;
        bool strided = false;  ///< windows move by more than one pixel
    };

    /// Windows of a pool that slides over an image.
    struct Pool {
        double read = 1;     ///< numbers that it reads, of all samples
        double written = 1;  ///< numbers that it makes
        double window = 1;   ///< pixels of a window
    };

    /// Reads a number once for each window that it is in: where windows overlap caches serve that,
    /// and no faster than the memory. So it is in PyTorch's kernels on V100 (profiles of PipeDream,
    /// msr-fiddle/pipedream): forward and backward of 3x3 pools that move by one take as long as
    /// 18 passes over what they make, where this says 20, and those that move by two 22.
    void pool(const Pool& shape);

    /// Does what a product of (pixels) rows and (window * channels / groups) columns with a matrix
    /// of (outputs) columns does, but each pixel crosses the memory once, however many windows it
    /// is in. Where every channel is a group of its own, no product does that: it is a pass.
    /// `operations` counts all multiplications, also those that are saved.
    void convolution(const Convolution& shape);

    /// A product that is not in 8 bits, whatever the precision of the others: of a head, or of a
    /// router.
    void half_product(double rows, double inputs, double outputs);

    /// Kernels that do little but move values, forward and in the backward of the input.
    void pass(double forward_values, double backward_values);

    /// Rows of tokens are sorted by expert, or come back from there.
    void sort_rows(double forward_values, double backward_values);

    /// Kernels of a block with experts follow: where they are in no graph they have the gap of
    /// those.
    void begin_block_of_experts();

    /// Kernels of experts follow. Where the numbers of their rows are only known on the device the
    /// host waits for them: a graph cannot hold what is launched then, and the host is not ahead.
    void begin_experts(bool waits_for_rows);
    void end_experts();

    /// No product so far is one beside which messages of devices that share the layer go on.
    void forget_ends() { first_ = last_ = End{}; }

    /// Nothing that follows in forward makes what the backward reads (`LayerSample::tail_forward`).
    void begin_tail() { before_tail_ = forward_.seconds; }

    /// An activation, with its gate where it has one.
    void activation(double forward_values, double backward_values);

    /// A pass that every device which shares the layer does whole, as long as they do not divide
    /// the sequence.
    void whole_pass(double forward_values, double backward_values);

    /// Norms are one kernel although operators go one by one: PyTorch has one for a layer norm, and
    /// none for an RMSNorm.
    void fuse_norms() { eager_norms_ = false; }

    /// A row of `width` per token: reads it, writes it; backward reads it and its gradient. Eager
    /// kernels read and write much more.
    void norm(double rows, double width);
    void whole_norm(double rows, double width);

    /// A rotation of `values` by their position, forward and backward.
    void rotation(double values);

    /// Attention of `heads` heads that share keys and values in `key_value_heads` groups, over
    /// samples of `sequence` tokens; each query sees `seen` keys in the mean.
    struct Attention {
        double samples = 1;
        double sequence = 1;
        double seen = 1;
        double window = 0;  ///< keys that a query may see; 0: all of its sample
        double heads = 1;
        double key_value_heads = 1;
        double key_width = 1;
        double value_width = 1;
        double keys = 0;  ///< of a sample, where they are those of another sequence; 0: `sequence`
        /// Tokens of a sample that one kernel has, where that is not `sequence`; 0: it is.
        double beside = 0;

        double key_count() const { return keys > 0 ? keys : sequence; }
    };

    /// FlashAttention: forward two products per pair of a query and a key that it sees, backward
    /// five, as the scores are computed again. No score is ever written.
    void flash_attention(const Attention& shape);

    /// Scores, softmax and dropout over all pairs of a query and a key, seen or not, as kernels of
    /// their own: batched products of a head's matrices, and passes over the scores.
    void standard_attention(const Attention& shape, bool dropout);

    /// The gated delta rule over chunks of 64 tokens (Yang et al., arXiv 2412.06464, section 3.3):
    /// five products inside a chunk and three with the state that it hands on, backward each twice.
    void delta_rule(const LinearAttentionShape& shape, double tokens);

    /// A state space over chunks of tokens (Dao and Gu, arXiv 2405.21060, section 6): per group the
    /// products of what reads and what writes inside a chunk, per head those with the tokens' own
    /// numbers, and two with the state that chunks hand on. Backward does each twice, and the first
    /// and the one that makes the state once again, as mamba_ssm's kernels keep neither.
    void state_space(const MambaShape& shape, double tokens);

    /// Scores of an indexer's heads for pairs of a query and a key, and the choice of keys.
    void choose_keys(const IndexerShape& shape, double pairs, double tokens);

    /// The rows of a table that the tokens pick; backward adds to them.
    void lookup(double rows, double width);

    /// The sum of several outputs of so many values: reads all, writes one; backward reads its
    /// gradient and writes that of each output.
    void sum_outputs(double outputs, double values);

    /// Outputs side by side, `values` in all: reads and writes each value, and so does backward.
    void join_outputs(double values);

    /// Cross-entropy over logits. Fused: forward turns them into fp32, backward into the gradient
    /// in the model's precision. Standard: a cast, a log-softmax and the choice of a value are
    /// kernels of their own, and so are their backwards.
    void loss(double logits, LossKernels kernels);

    /// Times and counts of kernels; sizes are not set. Times that are whole on every device are
    /// those of whole passes. `core_forward` is what selective recompute does again.
    LayerSample sample() const;

    /// Seconds of the forward so far.
    double forward_seconds() const { return forward_.seconds; }

    /// Time of core attention, forward and backward.
    Duration attention_forward() const { return core_forward_.time(); }
    Duration attention_backward() const { return core_backward_.time(); }

    /// Time of whole passes of the forward, without whole casts.
    Duration whole_passes() const { return whole_forward_.time(); }

    /// Bytes of a number that a product of blocks keeps of its input until its backward.
    double kept_input_bytes() const { return rates_.kept_input_bytes.value_or(value_); }

    /// Bytes of narrow copies of weights that are kept between micro-batches.
    double weight_copies() const { return weight_copies_; }

    /// Casts of weights that go on once a step, in seconds.
    double weight_cast() const { return weight_cast_; }

    /// Operations of the forward as publications count them: two for each multiplication of a
    /// product with its addition. Every query of attention meets the keys of the whole sample, or
    /// of its window, whether it sees them or not; what only moves values counts nothing.
    double operations() const { return operations_; }

    /// The part of `operations` that Megatron-LM leaves out of causal attention
    /// (num_floating_point_operations in megatron/training/training.py): of core attention where a
    /// query sees only keys before it, all pairs above half of the sample's. Of a window no more
    /// than half the sample is left, and nothing where it is narrower.
    double masked_operations() const { return masked_operations_; }

  private:
    struct Sum {
        double seconds = 0;
        int kernels = 0;    ///< that are launched one by one
        double waited = 0;  ///< launches behind rows that the host waits for

        Duration time() const { return Duration{whole_number(seconds * 1e9)}; }
    };

    /// Kernels of a product beside which messages go on.
    struct End {
        Sum forward;
        Sum input;
        Sum weight;
    };

    /// The shape of a product, for what it reaches of the dense rate.
    struct Sizes {
        double rows = 1;
        double columns = 1;
        double inner = 1;
    };

    /// Values that a norm reads and writes for each of its row, and what it reaches.
    struct NormCost {
        double forward = 2;
        double backward = 3;
        double forward_efficiency = 1;
        double backward_efficiency = 1;
        int forward_kernels = 1;
        int backward_kernels = 1;
    };

    /// What the three passes of a convolution have in common.
    struct ConvolutionPass {
        double operations = 0;
        double weights = 0;
        double efficiency = 1;
        bool saves_products = false;
    };

    NormCost norm_cost() const;
    /// Counts the operations of core attention.
    void count_attention(const Attention& shape);
    /// Does `effort` times the operations, and moves `values` beside the weights.
    void add(Sum& sum, const ConvolutionPass& pass, double effort, double values) const;
    void add(Sum& sum, double operations, double values, double efficiency) const;
    void add_product(Sum& sum, double operations, double bytes, double reached) const;
    struct Group {
        double matrices = 1;
        double operations = 0;
        double bytes = 0;
    };
    void add_grouped_product(Sum& sum, const Group& group, double reached) const;
    void add_launches(Sum& sum, int kernels) const;
    /// Operations per second of a product.
    double reached(const Sizes& sizes) const;
    /// A kernel that takes so long, and the gap behind it.
    void run(Sum& sum, double seconds) const;
    /// Kernels whose work is counted in that of others.
    void add_kernels(Sum& sum, int kernels) const;
    void cast(Sum& sum, double values, double bytes_of_value) const;
    void adapt(const Product& shape);
    void cast_operands(const Product& shape);
    void cast_as_stack(const Product& shape, const CastBytes& casts);
    void move(Sum& sum, double values, double efficiency) const;
    double efficiency_of(const Sizes& sizes, const MatrixRate& rate) const;

    KernelRates rates_;
    MatrixRate half_;     ///< at the precision of all but products
    MatrixRate product_;  ///< of products
    std::optional<double> efficiency_;
    double memory_rate_;  ///< without an efficiency
    MemoryEfficiency memory_;
    double value_;
    double gap_;                   ///< seconds behind a kernel
    double gap_of_block_;          ///< outside of experts
    bool waits_for_rows_ = false;  ///< the host has waited for rows before it launches
    bool recomputes_operators_;
    bool eager_;
    bool eager_norms_;
    Sum forward_;
    Sum backward_input_;
    Sum backward_weight_;
    Sum core_forward_;  ///< of core attention
    Sum core_backward_;
    Sum operators_;  ///< what recompute of operators does again
    Sum whole_forward_;
    Sum whole_backward_;
    Sum whole_casts_;         ///< of a forward
    End first_;               ///< products of a whole input
    End last_;                ///< products with sums
    double weight_cast_ = 0;  ///< seconds, once a step
    double weight_copies_ = 0;
    bool is_frozen_ = false;  ///< products have no gradient of their weights
    double operations_ = 0;
    double masked_operations_ = 0;
    std::optional<double> before_tail_;  ///< seconds of forward
    double accumulated_ = 0;             ///< weights whose gradients products add up
};

}  // namespace pipetwin

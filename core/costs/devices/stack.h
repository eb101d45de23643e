// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/costs/devices/device_profile.h"
#include "core/costs/devices/kernel_kinds.h"
#include "core/costs/devices/lanes.h"
#include "core/costs/devices/measured_layout.h"

/// What a generation of training software does with a device. Format: docs/devices.md.
namespace pipetwin {

/// How a number of a stack is known.
enum class FactKind { Measured, Counted, Datasheet, Estimated, Fitted };

/// The word in a stack's file: "measured".
std::string_view to_string(FactKind kind);

/// A value of a stack, how it is known, and where from.
template <class T>
struct Fact {
    T value{};
    FactKind kind = FactKind::Estimated;
    std::string source{};     ///< keys of the file's [sources], with ", " between them
    std::string fitted_to{};  ///< the rows, where it is fitted; else empty
    /// Median error in per cent of rows whose source was left out of the fit; none: not known.
    std::optional<double> leave_one_out_percent{};

    bool operator==(const Fact&) const = default;
};

/// What fused attention reaches of a device's dense rate one way:
///
///     share * s / (s + half_sequence) * w / (w + half_work)
///
/// for sequences of s tokens, and w heads times tokens on one device.
struct AttentionShare {
    double share = 0;
    double half_sequence = 0;
    double half_work = 0;

    double at(double sequence, double work) const {
        return share * (sequence / (sequence + half_sequence)) * (work / (work + half_work));
    }

    bool operator==(const AttentionShare&) const = default;
};

/// What fused attention reaches both ways.
struct AttentionShares {
    AttentionShare forward{};
    AttentionShare backward{};

    bool operator==(const AttentionShares&) const = default;
};

/// Bytes that a cast to a narrow number moves for each number of an operand.
struct CastBytes {
    double of_inputs = 0;     ///< in a forward
    double of_gradients = 0;  ///< in a backward, with the other way round of the input
    double of_weights = 0;    ///< once a step; else in a forward, and half of it in a backward
    bool once_a_step = false;
    double memory_share = 1;  ///< that casts reach of the memory rate
    /// An operand of many matrices has kernels for each of them, and bytes beyond those above.
    double grouped_kernels = 0;
    double grouped_bytes = 0;
    /// That stay of a weight between micro-batches, beyond the two of its place in bf16.
    double kept_of_weights = 0;

    bool operator==(const CastBytes&) const = default;
};

/// What a message beside a product does: how much of it is hidden, and what it takes.
struct HiddenMessage {
    bool is_hidden = false;
    int multiprocessors = 0;  ///< that it takes from the work beside it
    int chunks = 1;           ///< of which one is not hidden; 0: all are
    bool in_8_bits = false;   ///< where products are narrow

    bool operator==(const HiddenMessage&) const = default;
};

/// Updated weights of replicas that divide the optimizer's state.
enum class WeightUpdates {
    Bucketed,  ///< gathered in buckets
    Broadcast  ///< sent to all by each in turn
};

/// When weights that were gathered for a forward are given back. In a pipeline those that stay
/// until the last micro-batch are gathered once a step, and gradients are summed once; with
/// `LastOfRun` gradients are summed behind the last of each run of micro-batches, which a rank
/// computes one after the other in one stage.
enum class Reshard { Always, LastMicroBatch, LastOfRun, Never };

/// What stays of gradients in the type of two-byte weights where their sums are in fp32.
enum class GradientsBesideSums {
    None,        ///< each is added to its sum as soon as it is there
    Parameters,  ///< all of a backward are added behind it
    Buckets      ///< in those of replicas that divide no state (PyTorch's DistributedDataParallel)
};

/// How many times as long something takes, or how much as large it is, as a stack says: what
/// measured runs corrected.
struct MeasuredFactors {
    double products = 1;
    double attention = 1;
    double passes = 1;       ///< kernels that only move bytes
    double inside = 1;       ///< messages inside a node
    double between = 1;      ///< messages between nodes
    double activations = 1;  ///< bytes that layers keep for their backwards

    bool operator==(const MeasuredFactors&) const = default;
};

/// A stack of training software. What no table has of a device is not known.
struct Stack {
    std::string name{};  ///< or the absolute path of a file that does not come with the program
    std::string description{};
    int year = 0;
    std::vector<std::string> frameworks{};  ///< "megatron"

    /// Kinds of kernels that it has.
    struct Kernels {
        BlockKernels blocks = BlockKernels::Fused;
        LossKernels loss = LossKernels::Fused;
        AttentionKernels attention = AttentionKernels::Flash;

        bool operator==(const Kernels&) const = default;
    } kernels{};

    /// Kernels that only move bytes: shares of the memory rate, and bytes of each logit.
    struct Passes {
        Fact<double> copies{};
        Fact<double> activations{};
        Fact<double> norms_forward{};
        Fact<double> norms_backward{};
        Fact<double> loss_forward_bytes{};
        Fact<double> loss_backward_bytes{};
        /// Rows of tokens sorted by expert, and back; none: as copies.
        std::optional<Fact<double>> rows{};
        /// Bytes that an update of AdamW moves for each parameter: of its share of a device, and of
        /// all gradients of the device; none: 28, and nothing.
        std::optional<Fact<double>> update_bytes{};
        std::optional<Fact<double>> gradient_bytes{};

        bool operator==(const Passes&) const = default;
    } passes{};

    /// What products reach of the dense rate where nothing else runs.
    struct Products {
        std::vector<std::string> devices{};
        std::string precision{};
        Fact<MatrixEfficiency> reached{};

        bool operator==(const Products&) const = default;
    };
    std::vector<Products> products{};

    /// What is left of the rate of products in training: the power limit holds the clock down.
    struct Sustained {
        std::vector<std::string> devices{};
        std::vector<std::string> precisions{};  ///< none: all that no other row lists
        Fact<double> share{};

        bool operator==(const Sustained&) const = default;
    };
    std::vector<Sustained> sustained{};

    /// What fused attention reaches, in training as alone.
    struct Attention {
        std::vector<std::string> devices{};
        std::string implementation{};  ///< "cudnn-9"
        int head_size = 0;
        Fact<AttentionShares> reached{};

        bool operator==(const Attention&) const = default;
    };
    std::vector<Attention> attention{};

    /// Casts of the operands of narrow products.
    struct Casts {
        std::vector<std::string> devices{};  ///< none: all that no other row lists
        std::string precision{};
        Fact<CastBytes> bytes{};

        bool operator==(const Casts&) const = default;
    };
    std::vector<Casts> casts{};

    /// Messages beside work.
    struct Overlap {
        Fact<bool> tensor{};  ///< of devices that share a layer
        Fact<HiddenMessage> tensor_gather{};
        Fact<HiddenMessage> tensor_sum{};
        Fact<HiddenMessage> tensor_bulk{};  ///< beside another product than its own
        Fact<HiddenMessage> gradients{};    ///< of replicas
        Fact<HiddenMessage> weights{};      ///< of replicas

        bool operator==(const Overlap&) const = default;
    } overlap{};

    /// Attention where devices have parts of each sample: each part of the keys is a kernel, and
    /// what these make is merged in fp32. All messages are waited for as soon as they are sent.
    struct Context {
        double output_bytes = 0;    ///< a number of the outputs, forward, each step but the first
        double query_bytes = 0;     ///< a number of the queries, backward, each step
        double key_bytes = 0;       ///< a number of keys and values, backward, each step
        double message_bytes = 0;   ///< a number of keys and values laid out to be sent, once
        double gradient_bytes = 0;  ///< a number of the gradients of keys and values on their way
        /// Whether keys and values are there once for each head of the queries.
        bool repeats_keys = false;

        bool operator==(const Context&) const = default;
    };
    std::optional<Fact<Context>> context{};  ///< none: one kernel, or steps that add nothing

    /// Messages of process groups.
    struct Collectives {
        Fact<double> latency_us{};
        Fact<double> per_device_us{};
        Fact<double> per_node_us{};
        /// Numbers of a bucket of gradients: so many, or so many for each replica if that is more.
        struct Buckets {
            double least = 0;
            double per_replica = 0;

            bool operator==(const Buckets&) const = default;
        };
        Fact<Buckets> bucket_numbers{};
        std::optional<Fact<double>> bucket_bytes{};  ///< in place of `bucket_numbers`
        /// A step of N devices takes 1 + straggler * sqrt(2 ln N) times as long.
        Fact<double> straggler{};
        WeightUpdates zero1 = WeightUpdates::Bucketed;
        std::optional<Fact<double>> broadcast_us_per_device{};
        std::optional<Fact<double>> sum_us_per_hop_and_bucket{};

        /// Buckets in which so many replicas send so many numbers, which have `bytes` in all; at
        /// least one.
        int buckets_of(std::int64_t numbers, Bytes bytes, int replicas) const;

        bool operator==(const Collectives&) const = default;
    } collectives{};

    /// Times of kernels beside their work.
    struct Launch {
        Fact<Duration> gap{};   ///< on the device, between one kernel and the next
        Fact<Duration> host{};  ///< of the host for each kernel, where it launches them one by one
        bool graphs = false;    ///< one launch for all kernels of an action
        std::optional<Fact<Duration>> experts_gap{};  ///< in place of `gap` in layers of experts
        /// Times of the host behind rows of experts whose numbers it waits for: what it launches
        /// then is in no graph.
        struct ExpertHost {
            Duration kernel{};  ///< for a kernel
            Duration matrix{};  ///< for each matrix of a grouped product, beside that

            bool operator==(const ExpertHost&) const = default;
        };
        std::optional<Fact<ExpertHost>> expert_host{};  ///< none: as all other kernels

        bool operator==(const Launch&) const = default;
    } launch{};

    /// Types of what is kept.
    struct Stored {
        bool fp32_gradients = true;
        GradientsBesideSums beside_sums = GradientsBesideSums::None;
        Fact<bool> inputs_in_8_bits{};  ///< of narrow products, until their backward
        /// The activation of a gate, beside its product: kernels are fused but for these; none: it
        /// is computed again.
        std::optional<Fact<bool>> gate_activations{};
        /// The product of a gate; false: a backward makes it again of what goes into the gate;
        /// none: it stays.
        std::optional<Fact<bool>> gate_products{};
        /// Bytes a logit beside those in fp32 while a fused loss is computed; none: those of the
        /// logits' own type.
        std::optional<Fact<double>> beside_logits{};
        Reshard reshard = Reshard::Always;
        bool offloads_as_needed = false;  ///< activations of blocks that do not fit, to host memory

        bool operator==(const Stored&) const = default;
    } stored{};

    /// Memory beside tensors.
    struct Memory {
        Fact<Bytes> products_workspace{};
        Fact<Bytes> communicator{};
        std::optional<Fact<Bytes>> runtime{};  ///< in place of what the device's file says
        /// Process groups of a device, each with a communicator.
        struct ProcessGroups {
            double always = 0;
            double stages = 1;    ///< in addition where there are several
            double replicas = 1;  ///< the same
            double tensor = 1;    ///< where several devices share a layer

            bool operator==(const ProcessGroups&) const = default;
        };
        std::optional<Fact<ProcessGroups>> process_groups{};  ///< none: one of each kind
        Fact<double> tensor_buffers{};  ///< as large as a block's input of a micro-batch
        Fact<double> allocator_reserve{};
        /// What the memory pool keeps of messages until all that is kept has to go.
        struct Kept {
            /// Outputs of each layer, before devices that share it have summed them: as many as
            /// the host is ahead of the device.
            double tensor_sums = 0;
            /// Copies of a device's weights that gather what replicas have updated.
            double gathered_weights = 0;
            /// Outputs of a layer, whole and laid out anew to be summed or gathered: no place of
            /// theirs is large enough for logits of the same device.
            double tensor_copies = 0;

            bool operator==(const Kept&) const = default;
        };
        std::optional<Fact<Kept>> kept_messages{};  ///< none: nothing

        bool operator==(const Memory&) const = default;
    } memory{};

    /// Corrections by measured runs; each device once for each precision.
    struct Calibrated {
        std::string device{};
        std::string precision{};
        Fact<MeasuredFactors> factors{};

        bool operator==(const Calibrated&) const = default;
    };
    std::vector<Calibrated> calibrated{};

    /// The runs that `calibrated` follows from.
    std::vector<MeasuredLayout> measured{};

    bool operator==(const Stack&) const = default;

    /// The share of products in that precision; null: nothing is known of the device.
    const Sustained* sustained_of(std::string_view device, std::string_view precision) const;
    /// The correction of estimates on a device in a precision; of 1 where there is none.
    MeasuredFactors factors_of(std::string_view device, std::string_view precision) const;

    /// What products reach in training, `large` times the sustained share; null: nothing is known
    /// of the device in that precision.
    std::optional<MatrixEfficiency> products_of(std::string_view device,
                                                std::string_view precision) const;

    /// The row of attention whose heads are nearest in size; null: nothing is known of the device.
    const Attention* attention_of(std::string_view device, double head_size) const;

    /// The messages beside work on a device.
    MessageLanes lanes(const DeviceProfile& device) const;

    /// Casts on a device to a precision; null: nothing is known of them.
    const CastBytes* casts_of(std::string_view device, std::string_view precision) const;

    /// Devices of which products are known, in the file's order, each once.
    std::vector<std::string> devices() const;

    /// Precisions in which products of a device are known, in the file's order.
    std::vector<std::string> precisions_of(std::string_view device) const;
};

}  // namespace pipetwin

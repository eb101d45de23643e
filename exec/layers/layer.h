// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/model/layer_spec.h"
#include "exec/base/random.h"
#include "exec/data/batch.h"
#include "exec/device/arena.h"
#include "exec/device/column_kernels.h"
#include "exec/device/group.h"
#include "exec/device/kernels.h"
#include "exec/device/number_format.h"
#include "exec/device/tensor.h"
#include "exec/layers/layers.h"
#include "exec/layers/optimizer.h"

namespace pipetwin::exec {

/// Arguments of a layer's functions: the micro-batch that it works on, and the memory that it may
/// use.
struct LayerCall {
    const Kernels& kernels;
    Arena& arena;
    std::byte* workspace = nullptr;  ///< at least ExecutableLayer::workspace_bytes(samples)
    int micro_batch = 0;
    int samples = 0;
    int batch_samples = 0;             ///< of the mini-batch: the loss is a mean over these
    int first_sample = 0;              ///< of the micro-batch, in the mini-batch
    int step = 0;                      ///< counts from 0
    double progress = 0;               ///< of the training: 0 in the first step, 1 behind the last
    bool evaluation = false;           ///< forward only: nothing is dropped
    bool recomputation = false;        ///< forward again: side effects happened already
    bool keeps = true;                 ///< false: no backward follows from this forward
    const MicroBatch* data = nullptr;  ///< in forward only
    /// Memory for the loss layer's sum over its rows; null: not wanted. Read once the device is
    /// done.
    double* loss_sum = nullptr;
    /// Memory for the number of right rows that the loss layer finds; null: not wanted.
    double* right_sum = nullptr;
    double loss_scale = 0;  ///< set by the loss layer: the mini-batch's mean loss has scale * sum
    /// Memory for the sum over the rows of an auxiliary loss; null: not wanted. As `loss_sum`.
    double* auxiliary_sum = nullptr;
    double auxiliary_scale = 0;  ///< as `loss_scale`; 0 where there is no auxiliary loss
    /// Called after each part of a primitive layer's backward; may be empty.
    std::function<void(Op part)> after_part{};
    /// The devices that compute layers together, where they do.
    Group& group = idle_group();

    /// Reports that a part of the backward is done.
    void done(Op part) const {
        if (after_part) {
            after_part(part);
        }
    }
    /// y += skip, where there are both.
    void add(ConstView skip, View y) const {
        if (!skip.empty() && !y.empty()) {
            kernels.add(skip, y);
        }
    }
};

/// Tensors that a layer keeps of one micro-batch from forward to backward. Its input is kept by the
/// caller: by the stage, or by the sequence that holds the layer.
struct Kept {
    Tensor input;
    std::vector<Tensor> tensors;  ///< the layer's own
    Tensor gradient;              ///< of the output; only between I and W
    std::vector<Kept> inner;      ///< of the layers inside
    double row_weight = 0;        ///< of a loss: share of a row in the mean over the mini-batch

    /// Frees the tensors. The lists stay as long as they were, so that the next micro-batch asks
    /// for no memory of the host's.
    void clear() {
        input = {};
        tensors.clear();
        gradient = {};
        for (Kept& layer : inner) {
            layer.clear();
        }
    }
};

/// Moments of all rows of a mini-batch that a norm has seen so far: its running values follow them
/// when the step has succeeded.
struct BatchMoments {
    std::int64_t rows = 0;
    Tensor values;  ///< (2, columns) fp64: means, sums of squares around them

    Moments view() const { return {.rows = rows, .values = values}; }
};

/// Cuts a layer's numbers, and of these its parameters, into shares of replicas that have the
/// optimizer's state between them.
class ShareCut {
  public:
    /// Shares of `numbers`, which are those of the layer's parameters without a table that another
    /// layer uses, too.
    ShareCut(int shares, std::int64_t numbers);

    /// [replica]: the part of the next `size` numbers that is its own, counted from the first of
    /// them.
    std::vector<ElementRange> next(std::int64_t size);
    /// [replica]: the part of a table that another layer uses, too, of so many numbers.
    std::vector<ElementRange> of_table(std::int64_t size) const;
    std::int64_t passed() const { return next_; }

  private:
    std::vector<ElementRange> shares_;  ///< [replica]
    std::int64_t next_ = 0;
};

/// How replicas divide the gradients of a layer, or its weights, too.
struct LayerDivision {
    int replica = 0;       ///< this one
    int replicas = 1;      ///< that have the layer between them
    bool weights = false;  ///< they divide these, too
    /// Numbers of the layer's parameters, without those of a table that another layer uses, too.
    std::int64_t numbers = 0;
    /// A parameter may begin at any multiple of so many numbers.
    std::int64_t alignment = 1;
    std::vector<std::unique_ptr<DividedNumbers>> made{};
};

/// Makes the parameters of one unit of partition. Their initial values depend on (seed, index of
/// the unit in the model, number of the parameter in the unit, element) and on nothing else.
class ParameterMaker {
  public:
    /// Distribution from which weights are drawn.
    ///
    /// Gpt, of a model that begins with an embedding: as GPT-2, normal with deviation 0.02, the
    /// last product of every residual branch scaled by 1 / sqrt(number of branches), biases zero.
    /// Transformer, of one whose embedding scales its rows: tables normal with deviation 1 /
    /// sqrt(width), weights uniform in +-sqrt(6 / (inputs + outputs)) (Vaswani et al., arXiv
    /// 1706.03762; Glorot and Bengio, AISTATS 2010), biases zero. Linear, of any other: as torch's
    /// Linear, uniform in +-1/sqrt(inputs), biases too.
    enum class Style { Gpt, Linear, Transformer };
    /// Everything that a unit's parameters depend on.
    struct Settings {
        Style style = Style::Linear;
        double residual_scale = 1;
        bool draws = true;  ///< false: parameters get no values, where they have no memory
        std::uint64_t seed = 1;
        int layer = 0;
        int optimizer_slots = 0;
        double first_begins_at = 0;     ///< what every number of Parameter::first is at the start
        bool averages_weights = false;  ///< a parameter has Parameter::average
        bool shared = false;            ///< another pipeline has the same weights
        NumberFormat format{};
        Parameter* table = nullptr;  ///< the token table, where an earlier unit of the stage has it
        std::string table_name{};    ///< "embedding.tokens": where it is elsewhere
        ShareCut* cut = nullptr;     ///< of the optimizer's state; null: there is all of it
        int replica = 0;             ///< whose share it is
        LayerDivision* division = nullptr;  ///< null: replicas do not divide gradients
        int device = 0;  ///< number of the stage's device, of those that divide layers
    };
    ParameterMaker(Arena& arena, const Kernels& kernels, const Settings& settings);

    /// Kind of a parameter, which decides its initial values. `HeWeight`: normal with deviation
    /// sqrt(2 / inputs), where `inputs` is kh kw outputs for a convolution before a ReLU (He et
    /// al., arXiv 1502.01852, equation 14).
    enum class Role { Weight, ResidualWeight, Bias, Zeros, Ones, Table, HeWeight };
    /// Number of places in the model that use a parameter.
    enum class Uses { One, Two };
    /// Makes the unit's next parameter. `inputs`: number of inputs over which the values of one
    /// output are summed. Where a parameter is used in two places of the model, there is room for
    /// two gradients of it. Its tensors have the padding, too; its numbers are those without.
    Parameter make(const std::string& name,
                   std::int64_t rows,
                   std::int64_t columns,
                   Role role,
                   int inputs = 1,
                   Uses uses = Uses::One,
                   const MatrixPadding& padding = {}) {
        return make(name,
                    {.rows = rows, .columns = columns, .padding = padding},
                    {.role = role, .inputs = inputs, .uses = uses});
    }
    /// What a parameter is beside its name and shape.
    struct Making {
        Role role = Role::Weight;
        int inputs = 1;  ///< of the whole matrix, where devices divide it
        Uses uses = Uses::One;
    };
    /// Makes the unit's next parameter, which is the part of a matrix that `shape` says.
    Parameter make(const std::string& name, const PaddedMatrix& shape, const Making& as);

    /// Number of the device whose parts are made, of those that divide layers.
    int device() const { return settings_.device; }

    /// The model's token table, if this stage has it; else null.
    Parameter* table() const { return settings_.table; }
    /// Makes a copy of the token table, with the same name and values, for a stage that does not
    /// have the table.
    Parameter make_copy_of_table(const PaddedMatrix& shape);

    /// Makes one row of a layer's state (`ExecutableLayer::state`), all `initial`: a parameter that
    /// has a value alone, whatever its optimizer and its replica.
    Parameter make_state(const std::string& name, DType type, std::int64_t columns, int initial);
    /// Makes a matrix of numbers that never change, rounded to those of the model.
    Tensor make_constant(std::int64_t rows,
                         std::int64_t columns,
                         const std::vector<double>& values);
    /// Makes a matrix of sums that a layer's state follows, in fp64.
    Tensor make_sums(std::int64_t rows, std::int64_t columns);

    /// The random stream of the unit's next dropout.
    RandomStream dropout_stream();

  private:
    Parameter allocate(const std::string& name, const PaddedMatrix& shape, Uses uses);
    DividedNumbers& divided_numbers(std::int64_t count);
    void divide(Parameter& parameter, const PaddedMatrix& shape, Uses uses);
    void in_pieces_of(std::int64_t size,
                      const std::function<void(const ElementRange&)>& work) const;
    void in_small_pieces_of(std::int64_t size,
                            const std::function<void(const ElementRange&)>& work) const;
    void draw(Parameter& parameter, const RandomStream& stream, Role role, int inputs) const;
    /// What the numbers of one parameter depend on beside the settings: its role, and its shape.
    struct Drawing {
        RandomStream stream;
        Role role;
        int inputs;
        PaddedMatrix shape;
    };
    template <class Number>
    void draw(Parameter& parameter, const Drawing& drawing) const;
    /// Fills in the numbers of the elements from `first` on, which have no padding.
    template <class Number>
    void draw(const Drawing& drawing, std::uint64_t first, std::span<Number> numbers) const;

    Arena& arena_;
    const Kernels& kernels_;
    Settings settings_;
    DividedNumbers* numbers_ = nullptr;  ///< of the unit, where replicas divide them
    int made_ = 0;
    int dropouts_ = 0;
};

/// `shape` with another width: what a product makes of an image is an image, pixel by pixel.
inline SampleShape with_width(SampleShape shape, int width) {
    shape.width = width;
    return shape;
}

/// One layer: a formula with its two gradients. Knows its shapes and bytes from the start, gets
/// parameters later, so that a plan can be made without allocating anything. Sizes are exact: the
/// arena counts the same.
///
///            forward           backward_input        backward_weight
///   x --> y = skip + f(x)   dx = skip + dy df/dx     dw += dy df/dw
///
/// Every layer can add `skip` to its result (empty: nothing to add). `dx` may be empty: it is
/// not computed then.
class ExecutableLayer {
  public:
    ExecutableLayer(SampleShape input, SampleShape output, NumberFormat format);
    ExecutableLayer(const ExecutableLayer&) = delete;
    ExecutableLayer& operator=(const ExecutableLayer&) = delete;
    virtual ~ExecutableLayer() = default;

    const SampleShape& input() const { return input_; }
    const SampleShape& output() const { return output_; }

    /// Bytes of the input of `samples` samples: rows = samples * positions. Token ids are int32.
    Bytes input_bytes(int samples) const;
    Bytes output_bytes(int samples) const;  ///< 0 after the loss
    /// Bytes kept from forward to backward, input included.
    Bytes saved_bytes(int samples) const { return input_bytes(samples) + kept_bytes(samples); }
    /// Bytes that the layer keeps from forward to backward, without its input.
    virtual Bytes kept_bytes(int samples) const;
    /// Bytes of scratch memory that one call needs.
    virtual Bytes workspace_bytes(int samples) const;
    /// Bytes that I adds to `saved`: gradients between inner layers. 0 for a primitive layer.
    virtual Bytes split_bytes(int samples) const;
    /// Bytes of what is kept, and of `split_bytes`, that W does not read; without the layer's
    /// input. By default all that is kept.
    virtual Bytes unread_bytes(int samples) const;
    /// Bytes of what is kept that core attention makes of the rest: softmax and context.
    virtual Bytes core_bytes(int samples) const;
    /// Drops them.
    virtual void forget_core(Kept& kept) const;
    /// Makes them again, the same bits.
    virtual void recompute_core(LayerCall& call, Kept& kept);
    /// True if W reads the layer's input.
    virtual bool weight_reads_input() const { return has_parameters(); }
    /// True if W reads the gradient of the layer's output.
    virtual bool weight_reads_gradient() const { return has_parameters(); }

    /// True if the gradient by the input reads the input.
    virtual bool backward_reads_input() const { return true; }
    /// True if the gradient by the input may read the output in place of the input.
    virtual bool may_read_output() const { return false; }
    /// The formula of a GELU, which a device may compute with the products around it.
    virtual std::optional<GeluForm> gelu() const { return {}; }

    /// Allocates and draws the parameters; `path` is put before their names. `ends_residual` marks
    /// the last layer of a residual branch.
    virtual void create_parameters(ParameterMaker& maker,
                                   const std::string& path,
                                   bool ends_residual);
    /// All parameters of the layer, in a fixed order.
    virtual std::vector<Parameter*> parameters();
    virtual bool has_parameters() const;

    /// Bytes of the layer's state and of the sums that it follows; they live as long as weights.
    virtual Bytes state_bytes() const;
    /// What training changes without a gradient, and an evaluation and a checkpoint read: running
    /// statistics. In a fixed order; each has a value alone.
    virtual std::vector<Parameter*> state();
    /// The moments that the state follows, where they are exchanged with other replicas.
    virtual std::vector<BatchMoments*> batch_moments();
    /// A mini-batch begins, or has failed: what its micro-batches have left for the state goes.
    virtual void forget_batch();
    /// The step has succeeded: the state follows its mini-batch.
    virtual void commit_batch(const Kernels& kernels);

    /// y = skip + f(x). Puts into `kept` what the gradients need.
    virtual void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) = 0;
    /// dx = skip + dy df/dx; nothing if dx is empty. Where W does not read x, dx may be x itself.
    virtual void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) = 0;
    /// Frees what W does not read, `unread_bytes` of it; called between I and W.
    virtual void free_unread(Kept& kept) const;
    /// dw += dy df/dw. What W does not read may be empty.
    virtual void backward_weight(LayerCall& call, Kept& kept, ConstView x, ConstView dy);
    /// Both gradients, the weights' first: then x is not needed any more, and dx may be x itself.
    virtual void backward(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx);

    /// True for a loss that may leave the gradient of its input in the input's place.
    virtual bool has_gradient_in_forward() const { return false; }
    /// The forward of a training, with the gradient in the place of x: `backward_input` is done.
    virtual void forward_with_gradient(LayerCall& call, View x, Kept& kept);

  protected:
    /// What a backward reads, and where it puts the gradient of the input.
    struct Operands {
        ConstView x;
        ConstView dy;
        ConstView skip;
        View dx;
    };
    /// The backward of a layer inside: `whole`, or its half I.
    static void backward_of(
        ExecutableLayer& inner, bool whole, LayerCall& call, Kept& kept, const Operands& of);
    /// Makes a member one of the layers inside, whose parameters and state are this layer's.
    void contain(ExecutableLayer& inner) { inner_.push_back(&inner); }
    const NumberFormat& format() const { return format_; }
    DType real() const { return format_.real; }
    std::int64_t rows(int samples) const { return std::int64_t{samples} * input_.positions; }
    Bytes matrix_bytes(std::int64_t rows, std::int64_t columns) const;
    /// Bytes of a matrix of numbers that half precision is too coarse for.
    Bytes exact_bytes(std::int64_t rows, std::int64_t columns) const;

  private:
    template <class Item>
    std::vector<Item*> of_inner(std::vector<Item*> (ExecutableLayer::*items)());

    SampleShape input_;
    SampleShape output_;
    NumberFormat format_;
    std::vector<ExecutableLayer*> inner_;  ///< layers inside, in the order of their parameters
};

/// A layer whose I is the gradient of its input alone.
class PlainLayer : public ExecutableLayer {
  public:
    using ExecutableLayer::ExecutableLayer;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) final;

  private:
    /// dx = skip + dy df/dx; dx is not empty.
    virtual void input_gradient(const LayerCall& call, const Kept& kept, const Operands& of) = 0;
};

/// A layer that reads several outputs: a join of them, or layers with branches between them.
///
///   x_0 --.                                dx_k = dy df/dx_k, or added to what is in dx_k
///   x_1 --+--> y = f(x_0, x_1, ...)
///
/// An x that no backward reads (`backward_reads`) may be empty there, and in W one that W does not
/// read.
class JoiningLayer : public ExecutableLayer {
  public:
    JoiningLayer(std::vector<SampleShape> inputs, SampleShape output, NumberFormat format);

    /// [input] Shapes of what it reads.
    const std::vector<SampleShape>& inputs() const { return inputs_; }
    /// True if a backward reads input number `input`.
    virtual bool backward_reads(std::size_t input) const = 0;
    /// True if W reads input number `input`.
    virtual bool weight_reads(std::size_t input) const = 0;
    /// True for a sum, whose gradient is that of each input.
    virtual bool is_sum() const { return false; }

    /// Place of one input's gradient; empty: it is not wanted.
    struct InputGradient {
        View dx{};
        bool adds = false;  ///< to what is there
    };
    /// y = f(x_0, x_1, ...). Puts into `kept` what the gradients need.
    virtual void join(LayerCall& call, std::span<const ConstView> x, View y, Kept& kept) = 0;
    /// dx_k = dy df/dx_k, from the last reader of an x to its first; no dx_k may be an x.
    virtual void join_backward_input(LayerCall& call,
                                     Kept& kept,
                                     std::span<const ConstView> x,
                                     ConstView dy,
                                     std::span<const InputGradient> dx) = 0;
    /// dw += dy df/dw, behind `join_backward_input`; nothing where there are no parameters.
    virtual void join_backward_weight(LayerCall& call,
                                      Kept& kept,
                                      std::span<const ConstView> x,
                                      ConstView dy);
    /// Both gradients; no dx_k may be an x.
    virtual void join_backward(LayerCall& call,
                               Kept& kept,
                               std::span<const ConstView> x,
                               ConstView dy,
                               std::span<const InputGradient> dx);

    /// For a layer that may read one output alone; any other throws InternalError.
    void forward(LayerCall& call, ConstView x, ConstView skip, View y, Kept& kept) override;
    void backward_input(
        LayerCall& call, Kept& kept, ConstView x, ConstView dy, ConstView skip, View dx) override;

  private:
    std::vector<SampleShape> inputs_;
};

}  // namespace pipetwin::exec

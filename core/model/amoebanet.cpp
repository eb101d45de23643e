// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/model/image_models.h"
#include "core/model/image_specs.h"

namespace pipetwin {

namespace {

/// Operations of the cells.
enum class CellOp { None, Conv1, Conv3, Conv7, Sep3, Sep5, Avg3, Max2, Max3 };

/// An operation on a state of the cell.
struct CellTerm {
    CellOp op = CellOp::None;
    int state = 0;
};

/// A state of the cell: the sum of two operations.
struct CellSum {
    CellTerm left;
    CellTerm right;
};

/// States 0 and 1 are what the cell reads; `sums` makes states 2 to 6.
struct CellPlan {
    std::array<CellSum, 5> sums;
    std::array<bool, 7> is_output;  ///< [state] it is among the channels that the cell makes
};

using enum CellOp;

constexpr CellPlan normal_d{{{{{Conv1, 1}, {Max3, 1}},
                              {{None, 1}, {Conv7, 0}},
                              {{Conv1, 0}, {Conv7, 0}},
                              {{Max3, 2}, {None, 2}},
                              {{Avg3, 1}, {Conv1, 5}}}},
                            {true, false, false, true, true, false, true}};
constexpr CellPlan reduction_d{{{{{Max2, 0}, {Max3, 0}},
                                 {{None, 2}, {Conv3, 1}},
                                 {{Conv7, 2}, {Max3, 2}},
                                 {{None, 3}, {Max2, 1}},
                                 {{Avg3, 2}, {Conv1, 3}}}},
                               {false, false, false, false, true, true, true}};
constexpr CellPlan normal_b{{{{{Conv1, 1}, {Max3, 1}},
                              {{None, 1}, {Sep3, 0}},
                              {{Conv1, 1}, {Sep3, 0}},
                              {{Conv1, 2}, {None, 2}},
                              {{Avg3, 1}, {Conv1, 5}}}},
                            {true, false, false, true, true, false, true}};
constexpr CellPlan reduction_b{{{{{Max2, 0}, {Max3, 0}},
                                 {{None, 2}, {Conv3, 1}},
                                 {{Sep5, 2}, {Max3, 2}},
                                 {{None, 3}, {Sep3, 1}},
                                 {{Avg3, 4}, {Conv1, 3}}}},
                               {false, false, false, false, false, true, true}};

const CellPlan& cell_plan(AmoebaNetCells cells, bool is_reduction) {
    if (cells == AmoebaNetCells::D) {
        return is_reduction ? reduction_d : normal_d;
    }
    return is_reduction ? reduction_b : normal_b;
}

/// Pixels a side that the pool of the auxiliary head reads at a time.
constexpr int auxiliary_window = 5;

/// An output inside the network: the layer that makes it, its channels, the size of its image.
struct CellValue {
    std::string layer;
    int channels = 0;
    Pixels size{};
};

Pixels halved(Pixels size) {
    return {.height = (size.height + 1) / 2, .width = (size.width + 1) / 2};
}

/// Layers in which the two programs differ, and those that both write in many places.
class AmoebaNetLayers {
  public:
    explicit AmoebaNetLayers(const AmoebaNetSizes& sizes)
        : is_reference_(sizes.variant == AmoebaNetVariant::Reference),
          drop_path_(sizes.drop_path) {}

    bool is_reference() const { return is_reference_; }
    bool drops_paths() const { return drop_path_ > 0; }

    /// Drops what an operation makes, of some samples: as many in every cell, and ever more.
    LayerSpec drop_path(std::string name) const {
        return {.name = std::move(name),
                .type = LayerType::DropPath,
                .dropout = drop_path_,
                .rising = true};
    }

    LayerSpec norm(std::string name) const {
        LayerSpec spec = plain_layer(std::move(name), LayerType::BatchNorm);
        if (is_reference_) {
            spec.epsilon = 1e-3;
            spec.momentum = 0.0003;
        }
        return spec;
    }

    /// ReLU, convolution, norm; names end in `suffix`.
    void add_convolution(std::vector<LayerSpec>& layers,
                         LayerSpec convolution,
                         const std::string& suffix = {}) const {
        layers.push_back(plain_layer("relu" + suffix, LayerType::Relu));
        convolution.name = "conv" + suffix;
        layers.push_back(std::move(convolution));
        layers.push_back(norm("norm" + suffix));
    }

    std::vector<LayerSpec> pointwise(int channels, int stride = 1) const {
        std::vector<LayerSpec> layers;
        add_convolution(layers, image_convolution("", channels, {1, 1}, stride));
        return layers;
    }

    /// A convolution between two that narrow and widen, each with its ReLU and norm.
    std::vector<LayerSpec> narrow(int channels, const std::vector<LayerSpec>& inner) const {
        std::vector<LayerSpec> layers;
        int number = 1;
        add_convolution(layers, image_convolution("", channels / 4, {1, 1}), "1");
        for (const LayerSpec& convolution : inner) {
            add_convolution(layers, convolution, std::to_string(++number));
        }
        add_convolution(
            layers, image_convolution("", channels, {1, 1}), std::to_string(number + 1));
        return layers;
    }

    /// Twice ReLU, a convolution of each channel alone, one of each pixel alone, and a norm.
    std::vector<LayerSpec> separable(int read, int channels, int kernel, int stride) const {
        std::vector<LayerSpec> layers;
        for (const char* const suffix : {"1", "2"}) {
            const bool is_first = layers.empty();
            layers.push_back(plain_layer(std::string("relu") + suffix, LayerType::Relu));
            LayerSpec depthwise = image_convolution(std::string("depthwise") + suffix,
                                                    is_first ? read : channels,
                                                    {kernel, kernel},
                                                    is_first ? stride : 1);
            depthwise.groups = depthwise.outputs;
            layers.push_back(std::move(depthwise));
            layers.push_back(
                image_convolution(std::string("pointwise") + suffix, channels, {1, 1}));
            layers.push_back(norm(std::string("norm") + suffix));
        }
        return layers;
    }

    /// Half as many pixels a side, of which none is lost: half of the channels are of every second
    /// pixel, the others of the pixels one further down and right.
    std::vector<LayerSpec> factorized_reduction(int channels) const {
        LayerSpec even = image_convolution("even", channels / 2, {1, 1}, 2);
        LayerSpec odd = even;
        odd.name = "odd";
        odd.padding = {.top = -1, .left = -1, .bottom = 1, .right = 1};
        return {plain_layer("relu", LayerType::Relu),
                reading(std::move(even), {"relu"}),
                reading(std::move(odd), {"relu"}),
                reading(plain_layer("concat", LayerType::Concat), {"even", "odd"}),
                reading(norm("norm"), {"concat"})};
    }

    /// A window without a stride past the image: where its size is odd, the last window hangs over.
    static LayerSpec small_max_pool(int stride, Pixels size) {
        LayerSpec pool = image_pool("pool", LayerType::MaxPool, 2, stride);
        pool.padding.bottom = size.height % 2;
        pool.padding.right = size.width % 2;
        return pool;
    }

    LayerSpec large_pool(CellOp op, int stride) const {
        const bool is_max = op == CellOp::Max3 && is_reference_;
        LayerSpec pool =
            image_pool("pool", is_max ? LayerType::MaxPool : LayerType::AvgPool, 3, stride, 1);
        pool.count_padding = is_max;
        return pool;
    }

  private:
    bool is_reference_;
    double drop_path_;
};

/// The layers inside one cell.
class CellLayers {
  public:
    struct Sizes {
        int channels = 0;  ///< of each state
        bool is_reduction = false;
        /// State 1 is the second input as it is, whatever its channels.
        bool keeps_second = false;
    };

    CellLayers(const AmoebaNetLayers& layers, const CellPlan& plan, Sizes sizes)
        : layers_(layers), plan_(plan), sizes_(sizes) {}

    /// `previous` and `before` are called by the names that they have inside the cell.
    std::vector<LayerSpec> all(const CellValue& previous, const CellValue& before) {
        add("state0", layers_.pointwise(sizes_.channels), previous.layer);
        states_.push_back({"state0", sizes_.channels, previous.size});
        states_.push_back(second_state(previous, before));
        for (const CellSum& sum : plan_.sums) {
            const std::string name = fmt::format("state{}", states_.size());
            const std::string left = term(sum.left, name + "_left");
            const std::string right = term(sum.right, name + "_right");
            inner_.push_back(reading(plain_layer(name, LayerType::Add), {left, right}));
            const Pixels size = sizes_.is_reduction ? halved(previous.size) : previous.size;
            states_.push_back({name, sizes_.channels, size});
        }
        LayerSpec joined = plain_layer("concat", LayerType::Concat);
        for (std::size_t state = 0; state < states_.size(); ++state) {
            if (plan_.is_output.at(state)) {
                joined.inputs.push_back(states_[state].layer);
            }
        }
        inner_.push_back(std::move(joined));
        return std::move(inner_);
    }

  private:
    void add(const std::string& name, std::vector<LayerSpec> layers, const std::string& input) {
        inner_.push_back(layers.size() == 1
                             ? reading(std::move(layers.front()), {input})
                             : reading(layer_sequence(name, std::move(layers)), {input}));
        inner_.back().name = name;
    }

    CellValue second_state(const CellValue& previous, const CellValue& before) {
        const CellValue made{"state1", sizes_.channels, previous.size};
        if (sizes_.keeps_second) {
            return before;
        }
        if (before.size != previous.size) {
            add(made.layer, layers_.factorized_reduction(sizes_.channels), before.layer);
        } else if (before.channels != sizes_.channels) {
            add(made.layer, layers_.pointwise(sizes_.channels), before.layer);
        } else {
            return before;
        }
        return made;
    }

    /// Adds the layers of an operation; returns the layer whose output it is. All but "none" may be
    /// dropped; that is not, even where it has a convolution for its stride.
    std::string term(const CellTerm& term, const std::string& name) {
        const CellValue& state = states_[as_index(term.state)];
        const int stride = sizes_.is_reduction && term.state < 2 ? 2 : 1;
        if (term.op == CellOp::None && stride == 1 && state.channels == sizes_.channels) {
            return state.layer;
        }
        add(name, operation(term.op, stride, state), state.layer);
        if (!layers_.drops_paths() || term.op == CellOp::None) {
            return name;
        }
        inner_.push_back(reading(layers_.drop_path(name + "_drop"), {name}));
        return inner_.back().name;
    }

    std::vector<LayerSpec> operation(CellOp op, int stride, const CellValue& state) const {
        const int channels = sizes_.channels;
        switch (op) {
            case CellOp::None:
            case CellOp::Conv1:
                return layers_.pointwise(channels, stride);
            case CellOp::Conv3:
                return layers_.narrow(channels,
                                      {image_convolution("", channels / 4, {3, 3}, stride)});
            case CellOp::Conv7:
                return layers_.narrow(channels, across_and_down(stride));
            case CellOp::Sep3:
                return layers_.separable(state.channels, channels, 3, stride);
            case CellOp::Sep5:
                return layers_.separable(state.channels, channels, 5, stride);
            case CellOp::Max2:
                return pooled(AmoebaNetLayers::small_max_pool(stride, state.size), state);
            case CellOp::Avg3:
            case CellOp::Max3:
                return pooled(layers_.large_pool(op, stride), state);
        }
        PIPETWIN_EXPECT(false, "operation of a cell out of range");
    }

    std::vector<LayerSpec> across_and_down(int stride) const {
        LayerSpec across = image_convolution("", sizes_.channels / 4, {1, 7});
        LayerSpec down = image_convolution("", sizes_.channels / 4, {7, 1});
        across.stride = {1, stride};
        down.stride = {stride, 1};
        return {across, down};
    }

    /// A pool of a state that has other channels than the cell's gets a convolution behind it.
    std::vector<LayerSpec> pooled(LayerSpec pool, const CellValue& state) const {
        std::vector<LayerSpec> layers{std::move(pool)};
        if (state.channels != sizes_.channels) {
            layers.push_back(image_convolution("conv", sizes_.channels, {1, 1}));
            layers.push_back(layers_.norm("norm"));
        }
        return layers;
    }

    const AmoebaNetLayers& layers_;
    const CellPlan& plan_;
    Sizes sizes_;
    std::vector<CellValue> states_;
    std::vector<LayerSpec> inner_;
};

class AmoebaNetUnits {
  public:
    AmoebaNetUnits(AmoebaNetCells cells, const AmoebaNetSizes& sizes)
        : cells_(cells), sizes_(sizes), layers_(sizes) {}

    std::vector<LayerSpec> all(Pixels image) {
        const bool reference = layers_.is_reference();
        stem(image);
        // The reference's stem doubles up to the filters of the first cells, torchgpipe's goes
        // on from a quarter of them.
        int filters = reference ? sizes_.filters / 4 : sizes_.filters / 2;
        cell("stem2", filters, true);
        cell("stem3", filters * 2, true);
        filters = sizes_.filters;
        for (int block = 0; block < 3; ++block) {
            if (block == 2 && sizes_.auxiliary_head) {
                auxiliary();
            }
            if (block > 0) {
                filters *= 2;
                cell(fmt::format("cell{}_reduction", 2 * block), filters, true);
            }
            for (int i = 0; i < sizes_.layers / 3; ++i) {
                cell(fmt::format("cell{}_normal{}", 2 * block + 1, i + 1), filters, false);
            }
        }
        classifier();
        return std::move(units_);
    }

  private:
    void stem(Pixels image) {
        std::vector<LayerSpec> inner;
        const bool reference = layers_.is_reference();
        const int channels = reference ? 32 : sizes_.filters / 4;
        LayerSpec convolution = image_convolution("conv", channels, {3, 3}, 2);
        const int margin = reference ? 0 : 2;
        if (reference) {
            convolution.padding = {};
        } else {
            inner.push_back(plain_layer("relu", LayerType::Relu));
        }
        inner.push_back(std::move(convolution));
        inner.push_back(layers_.norm("norm"));
        units_.push_back(layer_sequence("stem1", std::move(inner)));
        outputs_.push_back({"stem1",
                            channels,
                            {.height = (image.height + margin - 3) / 2 + 1,
                             .width = (image.width + margin - 3) / 2 + 1}});
    }

    /// Reads the two outputs before it; the first cell the only one that there is.
    void cell(std::string name, int channels, bool is_reduction) {
        const bool is_first = outputs_.size() == 1;
        CellValue previous = outputs_.back();
        CellValue before = outputs_[outputs_.size() - (is_first ? 1 : 2)];
        std::vector<std::string> inputs{previous.layer};
        if (!is_first) {
            inputs.push_back(before.layer);
        }
        previous.layer = "input0";
        before.layer = is_first ? "input0" : "input1";
        const CellPlan& plan = cell_plan(cells_, is_reduction);
        CellLayers layers(layers_,
                          plan,
                          {.channels = channels,
                           .is_reduction = is_reduction,
                           .keeps_second = is_first && layers_.is_reference()});
        units_.push_back(reading(layer_sequence(name, layers.all(previous, before)), inputs));
        int joined = 0;
        for (const bool is_output : plan.is_output) {
            joined += is_output ? channels : 0;
        }
        outputs_.push_back(
            {std::move(name), joined, is_reduction ? halved(previous.size) : previous.size});
    }

    /// Reads the last cell that there is: pooled, narrowed, its pixels summed by one convolution of
    /// the size of the image, and classes of that.
    void auxiliary() {
        const CellValue& cell = outputs_.back();
        if (std::min(cell.size.height, cell.size.width) < auxiliary_window) {
            refuse_model_key(
                "image",
                fmt::format("the auxiliary head reads {} x {} pixels, expected at least {} x {}",
                            cell.size.height,
                            cell.size.width,
                            auxiliary_window,
                            auxiliary_window),
                "images of 67 x 67 pixels are large enough; or take auxiliary_head = false");
        }
        // A pool of 5 pixels every third one, without a margin.
        const Pixels pooled{.height = (cell.size.height - auxiliary_window) / 3 + 1,
                            .width = (cell.size.width - auxiliary_window) / 3 + 1};
        // 0.4 of the 128 and the 768 channels that the head of an Inception has.
        LayerSpec narrow = image_convolution("conv1", 51, {1, 1});
        LayerSpec whole = image_convolution("conv2", 307, pooled);
        whole.padding = {};
        units_.push_back(
            reading(layer_sequence(
                        "auxiliary",
                        {plain_layer("relu0", LayerType::Relu),
                         image_pool("pool", LayerType::AvgPool, auxiliary_window, 3),
                         std::move(narrow),
                         layers_.norm("norm1"),
                         plain_layer("relu1", LayerType::Relu),
                         std::move(whole),
                         layers_.norm("norm2"),
                         plain_layer("relu2", LayerType::Relu),
                         plain_layer("flat", LayerType::Flatten),
                         {.name = "linear", .type = LayerType::Linear, .outputs = sizes_.classes}}),
                    {cell.layer}));
    }

    /// The reference has a ReLU, a dropout and smoothed labels, torchgpipe has none of them.
    void classifier() {
        std::vector<LayerSpec> inner{plain_layer("pool", LayerType::GlobalAvgPool),
                                     plain_layer("flat", LayerType::Flatten)};
        if (layers_.is_reference()) {
            inner.insert(inner.begin(), plain_layer("relu", LayerType::Relu));
            inner.push_back({.name = "dropout", .type = LayerType::Dropout, .dropout = 0.5});
        }
        inner.push_back({.name = "linear", .type = LayerType::Linear, .outputs = sizes_.classes});
        inner.push_back({.name = "loss",
                         .type = LayerType::CrossEntropy,
                         .label_smoothing = layers_.is_reference() ? 0.1 : 0});
        LayerSpec unit = layer_sequence("classify", std::move(inner));
        if (sizes_.auxiliary_head) {
            unit.inner.back().inputs = {"linear", "input1"};
            unit.inputs = {outputs_.back().layer, "auxiliary"};
        }
        units_.push_back(std::move(unit));
    }

    AmoebaNetCells cells_;
    AmoebaNetSizes sizes_;
    AmoebaNetLayers layers_;
    std::vector<CellValue> outputs_;  ///< of the units so far
    std::vector<LayerSpec> units_;
};

/// The narrowest convolution has a quarter of the filters of the first cell.
int filters_step(AmoebaNetVariant variant) {
    return variant == AmoebaNetVariant::Reference ? 16 : 8;
}

/// What torchgpipe's benchmark leaves out of the training.
void expect_extras(const AmoebaNetSizes& sizes) {
    if (!(sizes.drop_path >= 0 && sizes.drop_path < 1)) {
        refuse_model_key("drop_path",
                         fmt::format("{}, expected 0 up to, but not, 1", sizes.drop_path),
                         "GPipe's is 0.3");
    }
    if (sizes.variant == AmoebaNetVariant::Reference) {
        return;
    }
    constexpr std::string_view hint = "take variant = \"reference\", or leave the key out";
    if (sizes.auxiliary_head) {
        refuse_model_key("auxiliary_head",
                         "true, expected false: the model of torchgpipe has none",
                         std::string(hint));
    }
    if (sizes.drop_path > 0) {
        refuse_model_key(
            "drop_path",
            fmt::format("{}, expected 0: the model of torchgpipe drops no paths", sizes.drop_path),
            std::string(hint));
    }
}

}  // namespace

std::string_view to_string(AmoebaNetVariant variant) {
    return variant == AmoebaNetVariant::Reference ? "reference" : "torchgpipe";
}

std::vector<LayerSpec> amoebanet_layers(AmoebaNetCells cells,
                                        const AmoebaNetSizes& sizes,
                                        const SampleShape& image) {
    constexpr int most_cells = 1500;  // more have more layers than a model may
    constexpr int most_filters = 1 << 20;
    if (sizes.layers < 3 || sizes.layers > most_cells || sizes.layers % 3 != 0) {
        refuse_model_key(
            "layers",
            fmt::format("{}, expected a multiple of 3, at most {}", sizes.layers, most_cells),
            "the normal cells stand in three equal blocks");
    }
    const int step = filters_step(sizes.variant);
    if (sizes.filters < step || sizes.filters > most_filters || sizes.filters % step != 0) {
        refuse_model_key(
            "filters",
            fmt::format(
                "{}, expected a multiple of {}, at most {}", sizes.filters, step, most_filters),
            fmt::format("the first cell of variant = \"{}\" needs 4 times a whole "
                        "number of channels",
                        to_string(sizes.variant)));
    }
    expect_extras(sizes);
    if (image.image.height < 3 || image.image.width < 3) {
        refuse_model_key(
            "image",
            fmt::format(
                "{} x {} pixels, expected at least 3 x 3", image.image.height, image.image.width),
            "GPipe's are 224 x 224");
    }
    return AmoebaNetUnits(cells, sizes).all(image.image);
}

}  // namespace pipetwin

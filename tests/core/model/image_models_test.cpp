// SPDX-License-Identifier: Apache-2.0
#include "core/model/image_models.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "core/costs/layer_estimate.h"
#include "core/costs/profile.h"
#include "core/model/model.h"
#include "core/plan/routes.h"
#include "core/schedule/generators/generate.h"
#include "tests/support/error_of.h"

/// Parameters, shapes and work of the models of images. Counts of torchgpipe's models are those of
/// its own builders, counts of the reference's AmoebaNet those of tensorflow/tpu's, both run with
/// layers that only count; counts of ResNets are torchvision's.
namespace pipetwin {
namespace image_models_test {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::StartsWith;

const SampleShape large = image_shape({224, 224}, 3);

/// What a layer makes and has, added up over the layers inside it.
struct Sums {
    SampleShape output;
    std::int64_t parameters = 0;
    double multiply_adds = 0;  ///< of a forward of one sample
};

/// Outputs by the names of the layers that make them.
using Outputs = std::map<std::string, SampleShape>;

/// What a layer reads: the outputs that it names, else the one before it.
std::vector<SampleShape> read_by(const LayerSpec& spec,
                                 const Outputs& outputs,
                                 const SampleShape& before) {
    std::vector<SampleShape> read;
    for (const std::string& name : spec.inputs) {
        read.push_back(outputs.at(name));
    }
    return read.empty() ? std::vector{before} : read;
}

Sums sums_of(LayerSpec spec, const std::vector<SampleShape>& inputs);

Sums sums_inside(const LayerSpec& sequence, const std::vector<SampleShape>& inputs) {
    Outputs outputs;
    for (std::size_t input = 0; input < inputs.size(); ++input) {
        outputs[fmt::format("input{}", input)] = inputs[input];
    }
    Sums sums{.output = inputs.front()};
    for (const LayerSpec& inner : sequence.inner) {
        const Sums own = sums_of(inner, read_by(inner, outputs, sums.output));
        EXPECT_TRUE(outputs.emplace(inner.name, own.output).second) << inner.name << " twice";
        sums = {.output = own.output,
                .parameters = sums.parameters + own.parameters,
                .multiply_adds = sums.multiply_adds + own.multiply_adds};
    }
    return sums;
}

/// An addition or a concatenation of images of one size.
Sums joined(const LayerSpec& spec, const std::vector<SampleShape>& inputs) {
    SampleShape output = inputs.front();
    for (std::size_t input = 1; input < inputs.size(); ++input) {
        EXPECT_EQ(inputs[input].image, output.image) << spec.name;
        if (spec.type == LayerType::Concat) {
            output.width += inputs[input].width;
        } else {
            EXPECT_EQ(inputs[input], output) << spec.name;
        }
    }
    return {.output = output};
}

Sums sums_of(LayerSpec spec, const std::vector<SampleShape>& inputs) {
    if (spec.type == LayerType::Sequence) {
        return sums_inside(spec, inputs);
    }
    if (spec.type == LayerType::Add || spec.type == LayerType::Concat) {
        return joined(spec, inputs);
    }
    if (spec.type == LayerType::CrossEntropy && inputs.size() == 2) {
        EXPECT_EQ(inputs[0], inputs[1]) << spec.name;
        return {.output = {.positions = 1, .width = 0}};
    }
    EXPECT_EQ(inputs.size(), 1U) << spec.name;
    spec.inputs.clear();
    const Layer layer = Model::chain(inputs.front(), {spec}).layer(0);
    return {.output = layer.output,
            .parameters = layer.parameter_count,
            .multiply_adds = forward_operations(layer).all / 2};
}

/// A model, and what its units make and have.
struct Built {
    Model model;  ///< names and inputs alone
    std::vector<Sums> units;

    int count() const { return model.layer_count(); }
    std::string name(int unit) const { return model.layer(unit).spec.name; }
    const SampleShape& output(int unit) const { return units.at(as_index(unit)).output; }
    std::int64_t parameters() const {
        std::int64_t sum = 0;
        for (const Sums& unit : units) {
            sum += unit.parameters;
        }
        return sum;
    }
    double multiply_adds() const {
        double sum = 0;
        for (const Sums& unit : units) {
            sum += unit.multiply_adds;
        }
        return sum;
    }
};

Built built(const std::vector<LayerSpec>& layers, const SampleShape& image) {
    std::vector<Model::Named> names;
    Outputs outputs;
    std::vector<Sums> units;
    for (const LayerSpec& layer : layers) {
        names.push_back({layer.name, layer.inputs});
        units.push_back(
            sums_of(layer, read_by(layer, outputs, units.empty() ? image : units.back().output)));
        outputs.emplace(layer.name, units.back().output);
    }
    return {Model::opaque(names), units};
}

Built amoebanet(const AmoebaNetSizes& sizes,
                AmoebaNetCells cells = AmoebaNetCells::D,
                const SampleShape& image = large) {
    return built(amoebanet_layers(cells, sizes, image), image);
}

Built resnet(const ResNetSizes& sizes, const SampleShape& image) {
    return built(resnet_layers(sizes), image);
}

Built unet(const UNetSizes& sizes, const SampleShape& image) {
    return built(unet_layers(sizes, image), image);
}

std::vector<std::int64_t> parameters_of(const Built& model) {
    std::vector<std::int64_t> counts;
    for (const Sums& unit : model.units) {
        counts.push_back(unit.parameters);
    }
    return counts;
}

std::int64_t sum(const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// --- AmoebaNet ---

struct AmoebaNetCount {
    AmoebaNetSizes sizes;
    std::int64_t parameters = 0;
    AmoebaNetCells cells = AmoebaNetCells::D;
};

void PrintTo(const AmoebaNetCount& row, std::ostream* out) {
    *out << row.sizes.layers << ", " << row.sizes.filters << " of " << to_string(row.sizes.variant);
}

class AmoebaNetParameters : public ::testing::TestWithParam<AmoebaNetCount> {};

TEST_P(AmoebaNetParameters, AreThoseOfTheProgramsThatDefineIt) {
    const AmoebaNetCount& row = GetParam();
    const Built model = amoebanet(row.sizes, row.cells);
    EXPECT_EQ(model.parameters(), row.parameters);
    EXPECT_EQ(model.count(), row.sizes.layers + 6);
}

constexpr AmoebaNetVariant torchgpipe = AmoebaNetVariant::Torchgpipe;
constexpr AmoebaNetVariant reference = AmoebaNetVariant::Reference;

INSTANTIATE_TEST_SUITE_P(
    Torchgpipe,
    AmoebaNetParameters,
    ::testing::Values(AmoebaNetCount{{18, 208, 1000, torchgpipe}, 81'505'540},
                      AmoebaNetCount{{18, 416, 1000, torchgpipe}, 319'024'120},
                      AmoebaNetCount{{18, 544, 1000, torchgpipe}, 542'734'840},
                      AmoebaNetCount{{36, 544, 1000, torchgpipe}, 1'055'832'376},
                      AmoebaNetCount{{72, 512, 1000, torchgpipe}, 1'844'858'344},
                      AmoebaNetCount{{18, 256, 1000, torchgpipe}, 122'470'120},
                      AmoebaNetCount{{18, 128, 1000, torchgpipe}, 31'694'440},
                      AmoebaNetCount{{3, 64, 10, torchgpipe}, 1'541'066},
                      AmoebaNetCount{{6, 64, 10, torchgpipe}, 2'686'346},
                      AmoebaNetCount{{9, 64, 10, torchgpipe}, 3'876'682},
                      AmoebaNetCount{{18, 64, 10, torchgpipe}, 7'447'690}));

// Without the auxiliary head.
INSTANTIATE_TEST_SUITE_P(
    Reference,
    AmoebaNetParameters,
    ::testing::Values(AmoebaNetCount{{18, 208, 1001, reference}, 81'140'766},
                      AmoebaNetCount{{18, 416, 1001, reference}, 317'548'353},
                      AmoebaNetCount{{18, 544, 1001, reference}, 540'204'945},
                      AmoebaNetCount{{36, 544, 1001, reference}, 1'053'302'481},
                      AmoebaNetCount{{72, 512, 1001, reference}, 1'842'618'441},
                      AmoebaNetCount{{18, 256, 1001, reference}, 121'915'113},
                      AmoebaNetCount{{18, 128, 1001, reference}, 31'557'433},
                      AmoebaNetCount{{3, 64, 10, reference}, 1'501'682},
                      AmoebaNetCount{{6, 64, 10, reference}, 2'653'106},
                      AmoebaNetCount{{9, 64, 10, reference}, 3'843'442},
                      AmoebaNetCount{{18, 512, 1001, reference}, 557'286'057, AmoebaNetCells::B},
                      AmoebaNetCount{{6, 64, 10, reference}, 3'151'002, AmoebaNetCells::B}));

struct AuxiliaryCount {
    AmoebaNetSizes sizes;
    std::int64_t parameters = 0;  ///< of the auxiliary head
    AmoebaNetCells cells = AmoebaNetCells::D;
};

void PrintTo(const AuxiliaryCount& row, std::ostream* out) {
    *out << row.sizes.layers << ", " << row.sizes.filters;
}

class AuxiliaryHead : public ::testing::TestWithParam<AuxiliaryCount> {};

/// It reads the last cell before the last reduction, 8 D channels of 14 x 14 pixels, of which a
/// pool leaves 4 x 4: 8 D 51 + 51 307 4 4 + 307 k + k, and two norms.
TEST_P(AuxiliaryHead, HasTheParametersOfTheReference) {
    AmoebaNetSizes sizes = GetParam().sizes;
    const std::vector<std::int64_t> without = parameters_of(amoebanet(sizes, GetParam().cells));
    sizes.auxiliary_head = true;
    const Built model = amoebanet(sizes, GetParam().cells);
    const int cell = 2 + 2 * (sizes.layers / 3) + 1;
    ASSERT_EQ(model.count(), sizes.layers + 7);
    EXPECT_EQ(model.name(cell), fmt::format("cell3_normal{}", sizes.layers / 3));
    EXPECT_EQ(model.name(cell + 1), "auxiliary");
    EXPECT_EQ(model.name(cell + 2), "cell4_reduction");
    EXPECT_EQ(model.output(cell), image_shape({14, 14}, 8 * sizes.filters));
    EXPECT_EQ(model.output(cell + 1), (SampleShape{.positions = 1, .width = sizes.classes}));
    EXPECT_THAT(model.model.operands_of(cell + 1), ElementsAre(cell));
    EXPECT_THAT(model.model.operands_of(cell + 2), ElementsAre(cell, cell - 1));
    EXPECT_THAT(model.model.operands_of(model.count() - 1),
                ElementsAre(model.count() - 2, cell + 1));
    std::vector<std::int64_t> with = parameters_of(model);
    EXPECT_EQ(with[as_index(cell + 1)], GetParam().parameters);
    with.erase(with.begin() + cell + 1);
    EXPECT_EQ(with, without);
}

INSTANTIATE_TEST_SUITE_P(
    Reference,
    AuxiliaryHead,
    ::testing::Values(AuxiliaryCount{{18, 208, 1001, reference}, 644'400},
                      AuxiliaryCount{{18, 416, 1001, reference}, 729'264},
                      AuxiliaryCount{{18, 544, 1001, reference}, 781'488},
                      AuxiliaryCount{{36, 544, 1001, reference}, 781'488},
                      AuxiliaryCount{{72, 512, 1001, reference}, 768'432},
                      AuxiliaryCount{{18, 256, 1001, reference}, 663'984},
                      AuxiliaryCount{{18, 128, 1001, reference}, 611'760},
                      AuxiliaryCount{{18, 512, 1001, reference}, 768'432, AmoebaNetCells::B}));

TEST(AuxiliaryHeadOfAmoebaNet, HasALossOfTheWeightThatTheReferenceHas) {
    const std::vector<LayerSpec> layers =
        amoebanet_layers(AmoebaNetCells::D,
                         {.layers = 3, .filters = 64, .classes = 10, .auxiliary_head = true},
                         large);
    const LayerSpec& loss = layers.back().inner.back();
    EXPECT_EQ(loss.type, LayerType::CrossEntropy);
    EXPECT_THAT(loss.inputs, ElementsAre("linear", "input1"));
    EXPECT_EQ(loss.auxiliary_weight, 0.4);
    EXPECT_EQ(loss.label_smoothing, 0.1);
}

/// The layers of a type inside a unit.
std::vector<LayerSpec> of_type(const LayerSpec& unit, LayerType type) {
    std::vector<LayerSpec> found;
    for (const LayerSpec& inner : unit.inner) {
        if (inner.type == type) {
            found.push_back(inner);
        }
    }
    return found;
}

/// Each operation of a cell but "none" is dropped, alike in all cells (drop_connect_version v1),
/// which changes neither shapes nor parameters. D's normal cell has eight, its reduction cell
/// eight.
TEST(DropPathOfAmoebaNet, IsBehindEachOperationThatIsNotNone) {
    AmoebaNetSizes sizes{.layers = 3, .filters = 64, .classes = 10};
    const Built without = amoebanet(sizes);
    sizes.drop_path = 0.3;
    const Built with = amoebanet(sizes);
    EXPECT_EQ(parameters_of(with), parameters_of(without));
    for (const LayerSpec& unit : amoebanet_layers(AmoebaNetCells::D, sizes, large)) {
        const bool is_cell = unit.name != "stem1" && unit.name != "classify";
        const std::vector<LayerSpec> drops = of_type(unit, LayerType::DropPath);
        EXPECT_EQ(drops.size(), is_cell ? 8U : 0U) << unit.name;
        for (const LayerSpec& drop : drops) {
            EXPECT_EQ(drop.dropout, 0.3);
            EXPECT_TRUE(drop.rising);
            EXPECT_THAT(drop.inputs, ElementsAre(drop.name.substr(0, drop.name.size() - 5)));
            const auto sum = std::ranges::find_if(unit.inner, [&](const LayerSpec& layer) {
                return std::ranges::find(layer.inputs, drop.name) != layer.inputs.end();
            });
            ASSERT_NE(sum, unit.inner.end());
            EXPECT_EQ(sum->type, LayerType::Add);
        }
    }
}

Built amoebanet_256() {
    return amoebanet({.layers = 18, .filters = 256, .classes = 1000, .variant = torchgpipe});
}

void repeat(auto& list, int times, const auto& value) {
    list.insert(list.end(), static_cast<std::size_t>(times), value);
}

TEST(AmoebaNet, HasItsParametersUnitByUnit) {
    std::vector<std::int64_t> expected{1'856, 74'304, 343'168, 676'096, 839'936};
    repeat(expected, 4, 905'472);
    expected.insert(expected.end(), {1'956'096, 2'826'752, 3'351'040});
    repeat(expected, 4, 3'613'184);
    expected.insert(expected.end(), {7'811'584, 11'289'600, 13'386'752});
    repeat(expected, 4, 14'435'328);
    expected.push_back(4'097'000);
    EXPECT_EQ(parameters_of(amoebanet_256()), expected);
}

TEST(AmoebaNet, HasItsShapesUnitByUnit) {
    constexpr int d = 256;
    const auto square = [](int size, int channels) { return image_shape({size, size}, channels); };
    std::vector<SampleShape> expected{square(112, d / 4), square(56, 3 * d / 2), square(28, 3 * d)};
    repeat(expected, 6, square(28, 4 * d));
    expected.push_back(square(14, 6 * d));
    repeat(expected, 6, square(14, 8 * d));
    expected.push_back(square(7, 12 * d));
    repeat(expected, 6, square(7, 16 * d));
    expected.push_back({.positions = 1, .width = 0});  // the loss
    std::vector<SampleShape> found;
    const Built model = amoebanet_256();
    for (int unit = 0; unit < model.count(); ++unit) {
        found.push_back(model.output(unit));
    }
    EXPECT_EQ(found, expected);
}

// The reference's stem does not pad, and its reductions begin with a quarter of the filters.
TEST(AmoebaNet, OfTheReferenceHasItsShapes) {
    constexpr int d = 64;
    const Built model = amoebanet({.layers = 3, .filters = d, .classes = 10, .variant = reference});
    EXPECT_EQ(model.output(0), image_shape({111, 111}, 32));
    EXPECT_EQ(model.output(1), image_shape({56, 56}, 3 * d / 4));
    EXPECT_EQ(model.output(2), image_shape({28, 28}, 3 * d / 2));
    EXPECT_EQ(model.output(3), image_shape({28, 28}, 4 * d));
    EXPECT_EQ(model.output(7), image_shape({7, 7}, 16 * d));
}

TEST(AmoebaNet, ACellReadsTheTwoOutputsBeforeIt) {
    const Built model = amoebanet_256();
    EXPECT_THAT(model.model.operands_of(1), ElementsAre(0));
    for (int cell = 2; cell + 1 < model.count(); ++cell) {
        EXPECT_THAT(model.model.operands_of(cell), ElementsAre(cell - 1, cell - 2));
    }
    EXPECT_THAT(model.model.operands_of(23), ElementsAre(22));
}

TEST(AmoebaNet, HasTheWorkOfItsUnits) {
    std::vector<double> expected{0.14, 2.77, 3.79, 3.47, 4.32, 4.66, 4.66, 4.66,
                                 4.66, 6.84, 3.64, 4.32, 4.66, 4.66, 4.66, 4.66,  //
                                 6.84, 3.64, 4.32, 4.66, 4.66, 4.66, 4.66, 0.03};
    const Built model = amoebanet_256();
    const double all = model.multiply_adds();
    EXPECT_EQ(all, 15'170'093'056);
    ASSERT_EQ(model.count(), std::ssize(expected));
    for (int unit = 0; unit < model.count(); ++unit) {
        EXPECT_NEAR(
            100 * model.units[as_index(unit)].multiply_adds / all, expected[as_index(unit)], 0.005)
            << model.name(unit);
    }
}

/// Bytes of each unit's output for one sample in fp32.
LayerSamples output_bytes(const Built& model) {
    LayerSamples samples;
    for (int unit = 0; unit < model.count(); ++unit) {
        const SampleShape& output = model.output(unit);
        samples.push_back({.output = Bytes{4 * std::int64_t{output.positions} * output.width}});
    }
    return samples;
}

/// Bytes of the messages of one sample, by their pair of stages.
std::vector<Bytes> messages(const Built& model, const std::vector<int>& balance) {
    const std::vector<Route> routes = routes_of(model.model, Partition(balance, model.count()));
    Schedule order = generate(ScheduleKind::GPipe,
                              {.ranks = static_cast<int>(balance.size()), .micro_batches = 1});
    order.skips = skips_of(routes, order);
    return message_bytes(routes, order, output_bytes(model));
}

double megabytes(const std::vector<Bytes>& bytes) {
    double all = 0;
    for (const Bytes& message : bytes) {
        all += static_cast<double>(message.count) / 1e6;
    }
    return all;
}

// What crosses a cut is the pair of an output and the output before it.
TEST(AmoebaNet, SendsThePairOfOutputsOverACut) {
    std::vector<double> expected{3.21, 8.03, 7.23, 5.62};
    repeat(expected, 5, 6.42);
    expected.insert(expected.end(), {4.42, 2.81});
    repeat(expected, 5, 3.21);
    expected.insert(expected.end(), {2.21, 1.40});
    repeat(expected, 4, 1.61);
    const Built model = amoebanet_256();
    for (std::size_t behind = 0; behind < expected.size(); ++behind) {
        const int first = static_cast<int>(behind) + 1;
        EXPECT_NEAR(
            megabytes(messages(model, {first, model.count() - first})), expected[behind], 0.006)
            << "behind unit " << behind;
    }
}

// --- ResNet ---

struct ResNetCount {
    ResNetSizes sizes;
    SampleShape image;
    std::int64_t parameters = 0;
    int units = 0;  ///< 0: not counted by torchgpipe
};

void PrintTo(const ResNetCount& row, std::ostream* out) {
    *out << row.sizes.depth << " of " << to_string(row.image);
}

class ResNetParameters : public ::testing::TestWithParam<ResNetCount> {};

TEST_P(ResNetParameters, AreThoseOfTorchvision) {
    const ResNetCount& row = GetParam();
    const Built model = resnet(row.sizes, row.image);
    EXPECT_EQ(model.parameters(), row.parameters);
    if (row.units > 0) {
        EXPECT_EQ(model.count(), row.units);
    }
}

const SampleShape cifar = image_shape({32, 32}, 3);
const SampleShape grey = image_shape({28, 28}, 1);

INSTANTIATE_TEST_SUITE_P(Large,
                         ResNetParameters,
                         ::testing::Values(ResNetCount{{18, 1000}, large, 11'689'512},
                                           ResNetCount{{34, 1000}, large, 21'797'672},
                                           ResNetCount{{50, 1000}, large, 25'557'032, 183},
                                           ResNetCount{{101, 1000}, large, 44'549'160, 370},
                                           ResNetCount{{152, 1000}, large, 60'192'808, 557},
                                           ResNetCount{{101, 10}, large, 42'520'650, 370}));

INSTANTIATE_TEST_SUITE_P(Small,
                         ResNetParameters,
                         ::testing::Values(ResNetCount{{20, 10}, cifar, 272'474},
                                           ResNetCount{{32, 10}, cifar, 466'906},
                                           ResNetCount{{56, 10}, cifar, 855'770},
                                           ResNetCount{{20, 10, false}, cifar, 269'722},
                                           ResNetCount{{32, 10, false}, cifar, 464'154},
                                           ResNetCount{{56, 10, false}, cifar, 853'018},
                                           ResNetCount{{20, 10}, grey, 272'186},
                                           ResNetCount{{32, 10}, grey, 466'618},
                                           ResNetCount{{56, 10}, grey, 855'482}));

// torchgpipe's balances cut inside blocks: [135, 235], [44, 92, 124, 110] and [140, 230].
TEST(ResNet, HasItsUnitsWhereTorchgpipeCutsThem) {
    const Built model = resnet({.depth = 101, .classes = 1000}, large);
    EXPECT_EQ(model.name(134), "layer3.4.residual");
    EXPECT_EQ(model.name(135), "layer3.4.relu3");
    EXPECT_EQ(model.name(43), "layer2.0.relu2");
    EXPECT_THAT(model.name(260), StartsWith("layer3.16."));
    EXPECT_THAT(model.name(140), StartsWith("layer3.5."));
    EXPECT_THAT(messages(model, {135, 235}), ElementsAre(Bytes{4 * 14 * 14 * 1024}));
    EXPECT_THAT(messages(model, {44, 326}),
                ElementsAre(Bytes{4 * 28 * 28 * 128 + 4 * 56 * 56 * 256}));
    const std::vector<int> between{26, 22, 33, 44, 44, 66, 66, 69};
    for (std::size_t stage = 0, first = 0; stage + 1 < between.size(); ++stage) {
        first += static_cast<std::size_t>(between[stage]);
        EXPECT_THAT(model.name(static_cast<int>(first)), ::testing::EndsWith(".identity"));
    }
}

TEST(ResNet, ReadsTheSkipOfABlockNineUnitsLater) {
    const Built model = resnet({.depth = 50, .classes = 1000}, large);
    for (int unit = 0; unit < model.count(); ++unit) {
        if (model.name(unit).ends_with(".identity")) {
            EXPECT_THAT(model.model.readers_of(unit), ElementsAre(unit + 1, unit + 9));
        }
    }
}

// torchvision 0.14's ResNet-50 computes 4.09 * 10^9 multiply-adds (its own documentation prints
// 4.09 GFLOPS), convolutions and the last matrix.
TEST(ResNet, HasTheWorkThatTorchvisionPrints) {
    const Built model = resnet({.depth = 50, .classes = 1000}, large);
    EXPECT_NEAR(model.multiply_adds() / 1e9, 4.09, 0.005);
}

TEST(ResNet, HalvesItsImageInFrontOfEachGroupButTheFirst) {
    const Built model = resnet({.depth = 20, .classes = 10}, grey);
    const auto output = [&](std::string_view name) {
        for (int unit = 0; unit < model.count(); ++unit) {
            if (model.name(unit) == name) {
                return model.output(unit);
            }
        }
        return SampleShape{};
    };
    EXPECT_EQ(output("relu"), image_shape({28, 28}, 16));
    EXPECT_EQ(output("layer1.2.relu2"), image_shape({28, 28}, 16));
    EXPECT_EQ(output("layer2.0.relu1"), image_shape({14, 14}, 32));
    EXPECT_EQ(output("layer3.2.relu2"), image_shape({7, 7}, 64));
    EXPECT_EQ(output("flat"), (SampleShape{.positions = 1, .width = 64}));
}

// --- U-Net ---

struct UNetCount {
    UNetSizes sizes;
    SampleShape image;
    std::int64_t parameters = 0;
    int units = 0;
};

void PrintTo(const UNetCount& row, std::ostream* out) {
    *out << row.sizes.depth << " levels, " << row.sizes.convolutions << ", " << row.sizes.channels;
}

class UNetParameters : public ::testing::TestWithParam<UNetCount> {};

TEST_P(UNetParameters, AreThoseOfTorchgpipe) {
    const UNetCount& row = GetParam();
    const Built model = unet(row.sizes, row.image);
    EXPECT_EQ(model.parameters(), row.parameters);
    EXPECT_EQ(model.count(), row.units);
}

const SampleShape medium = image_shape({192, 192}, 3);

INSTANTIATE_TEST_SUITE_P(Torchgpipe,
                         UNetParameters,
                         ::testing::Values(UNetCount{{5, 5, 64}, medium, 232'687'328, 241},
                                           UNetCount{{5, 6, 72}, medium, 362'157'516, 285},
                                           UNetCount{{5, 11, 128}, medium, 2'213'834'176, 505},
                                           UNetCount{{5, 24, 128}, medium, 4'993'859'008, 1077},
                                           UNetCount{{5, 24, 160}, medium, 7'802'903'600, 1077},
                                           UNetCount{{5, 48, 160}, medium, 15'822'206'000, 2133},
                                           UNetCount{{2, 1, 4}, grey, 1'622, 29},
                                           UNetCount{{3, 2, 8}, grey, 69'916, 69},
                                           UNetCount{{3, 2, 8}, cifar, 70'060, 69},
                                           UNetCount{{4, 2, 16}, cifar, 1'127'672, 89}));

TEST(UNet, HasItsParametersPartByPart) {
    const Built model = unet({.depth = 5, .convolutions = 5, .channels = 64}, medium);
    const std::vector<std::int64_t> counts = parameters_of(model);
    std::vector<std::int64_t> parts;  // five levels down, the bottom, five levels up, the last unit
    std::size_t unit = 0;
    for (const std::size_t units :
         std::vector<std::size_t>{22, 22, 22, 22, 22, 20, 22, 22, 22, 22, 22, 1}) {
        const std::vector<std::int64_t> part(
            counts.begin() + static_cast<std::ptrdiff_t>(unit),
            counts.begin() + static_cast<std::ptrdiff_t>(unit + units));
        parts.push_back(sum(part));
        unit += units;
    }
    EXPECT_THAT(parts,
                ElementsAre(149'184,
                            663'552,
                            2'654'208,
                            10'616'832,
                            42'467'328,
                            150'994'944,
                            18'874'368,
                            4'718'592,
                            1'179'648,
                            294'912,
                            73'728,
                            32));
}

TEST(UNet, StashesAndReadsItsSkipsAtTorchgpipesUnits) {
    const Built model = unet({.depth = 5, .convolutions = 5, .channels = 64}, medium);
    const LayerSamples bytes = output_bytes(model);
    const std::vector<int> stashed{20, 42, 64, 86, 108};
    const std::vector<int> read{219, 197, 175, 153, 131};
    std::int64_t expected = 9'437'184;
    for (std::size_t skip = 0; skip < stashed.size(); ++skip) {
        EXPECT_THAT(model.model.readers_of(stashed[skip]),
                    ElementsAre(stashed[skip] + 1, read[skip]));
        EXPECT_EQ(bytes[as_index(stashed[skip])].output, Bytes{expected});
        expected /= 2;
    }
}

struct UNetBalance {
    std::vector<int> sizes;
    double megabytes = 0;  ///< of boundaries and skips, each sent straight to its reader
};

// Boundaries and skips of torchgpipe's three balances, in MB a sample: 0.6 + 17.7, 6.5 + 17.7 and
// 25.4 + 18.3, each rounded.
TEST(UNet, SendsTheBytesOfTorchgpipesBalances) {
    const Built model = unet({.depth = 5, .convolutions = 5, .channels = 64}, medium);
    for (const UNetBalance& balance : {UNetBalance{{104, 137}, 18.3},
                                       UNetBalance{{30, 66, 84, 61}, 24.2},
                                       UNetBalance{{16, 27, 31, 44, 22, 57, 27, 17}, 43.7}}) {
        EXPECT_NEAR(megabytes(messages(model, balance.sizes)), balance.megabytes, 0.1);
    }
}

// 30 rows become 15, 7 and 3 going down; up again a row is missing at two levels.
TEST(UNet, StandsZerosInForTheRowsThatHalvingLost) {
    const Built model =
        unet({.depth = 3, .convolutions = 1, .channels = 4}, image_shape({30, 24}, 1));
    const SampleShape& last = model.output(model.count() - 2);
    EXPECT_EQ(last, image_shape({30, 24}, 2));
}

// --- The graph of the layers ---

// The model's own shapes, parameters and work against the walk of this file.
TEST(ImageModels, AreGraphsOfTheirUnits) {
    struct Case {
        std::vector<LayerSpec> layers;
        SampleShape image;
    };
    const SampleShape odd = image_shape({61, 50}, 3);
    for (const Case& listed :
         {Case{amoebanet_layers(AmoebaNetCells::D, {3, 64, 10, torchgpipe}, odd), odd},
          Case{amoebanet_layers(AmoebaNetCells::D, {6, 64, 10, reference}, odd), odd},
          Case{amoebanet_layers(AmoebaNetCells::B, {3, 64, 10, reference}, large), large},
          Case{amoebanet_layers(AmoebaNetCells::D, {6, 64, 10, reference, true, 0.3}, large),
               large},
          Case{resnet_layers({50, 1000}), large},
          Case{resnet_layers({20, 10, false}), grey},
          Case{unet_layers({3, 2, 8}, odd), odd}}) {
        const Model model = Model::graph(listed.image, listed.layers);
        const Built expected = built(listed.layers, listed.image);
        ASSERT_EQ(model.layer_count(), expected.count());
        EXPECT_TRUE(ends_with_loss(model.layer(model.layer_count() - 1).spec));
        for (int unit = 0; unit < model.layer_count(); ++unit) {
            const Layer& layer = model.layer(unit);
            EXPECT_EQ(layer.output, expected.output(unit)) << layer.spec.name;
            EXPECT_EQ(layer.parameter_count, expected.units[as_index(unit)].parameters);
            EXPECT_EQ(forward_operations(layer).all,
                      2 * expected.units[as_index(unit)].multiply_adds);
            EXPECT_EQ(model.operands_of(unit), expected.model.operands_of(unit));
        }
    }
}

// --- What does not fit ---

std::string refusal(auto build) {
    return ::pipetwin::testing::error_of(build).what();
}

TEST(ImageModels, RefuseSizesThatNoSuchModelHasNamingTheKey) {
    EXPECT_THAT(refusal([] { amoebanet({.layers = 20, .filters = 64, .classes = 10}); }),
                HasSubstr("model.layers: 20, expected a multiple of 3"));
    EXPECT_THAT(refusal([] { amoebanet({.layers = 3, .filters = 40, .classes = 10}); }),
                HasSubstr("model.filters: 40, expected a multiple of 16"));
    EXPECT_THAT(refusal([] { resnet({.depth = 19, .classes = 10}, large); }),
                HasSubstr("model.depth: 19, expected one of 18, 20, 32, 34"));
    EXPECT_THAT(refusal([] { unet({.depth = 0, .convolutions = 1, .channels = 4}, cifar); }),
                HasSubstr("model.depth: 0, expected 1 to"));
    EXPECT_THAT(refusal([] { unet({.depth = 2, .convolutions = 0, .channels = 4}, cifar); }),
                HasSubstr("model.convolutions: 0, expected 1 to"));
    EXPECT_THAT(refusal([] { unet({.depth = 2, .convolutions = 1, .channels = 5}, cifar); }),
                HasSubstr("model.channels: 5, expected an even number"));
    EXPECT_THAT(refusal([] { unet({.depth = 6, .convolutions = 1, .channels = 4}, cifar); }),
                HasSubstr("model.image: 32 x 32 pixels, expected at least 64 x 64"));
    EXPECT_THAT(refusal([] {
                    amoebanet({.layers = 3, .filters = 64, .classes = 10},
                              AmoebaNetCells::D,
                              image_shape({2, 9}, 3));
                }),
                HasSubstr("model.image: 2 x 9 pixels, expected at least 3 x 3"));
    EXPECT_THAT(
        refusal([] {
            amoebanet({.layers = 3, .filters = 64, .classes = 10, .auxiliary_head = true},
                      AmoebaNetCells::D,
                      image_shape({66, 90}, 3));
        }),
        HasSubstr("model.image: the auxiliary head reads 4 x 6 pixels, expected at least 5 x 5"));
    EXPECT_THAT(
        refusal([] {
            amoebanet({3, 64, 10, torchgpipe, true});
        }),
        HasSubstr("model.auxiliary_head: true, expected false: the model of torchgpipe has none"));
    EXPECT_THAT(refusal([] {
                    amoebanet({3, 64, 10, torchgpipe, false, 0.3});
                }),
                HasSubstr("model.drop_path: 0.3, expected 0: the model of torchgpipe drops no"));
}

}  // namespace image_models_test
}  // namespace pipetwin

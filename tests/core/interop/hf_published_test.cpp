// SPDX-License-Identifier: Apache-2.0
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/costs/estimate.h"
#include "core/interop/hf_config.h"
#include "core/text/json_text.h"
#include "tests/support/mutate.h"
#include "tests/support/places.h"
#include "tests/support/soak.h"

/// Published models. `data/published_models.json` has of each the keys of its config.json that say
/// something about sizes, and its number of parameters. "published": the count that the metadata of
/// the model's safetensors files or its card says, looked up when the row was written. "card": the
/// count of its card as it is known, not looked up again. "by hand": tensor by tensor from the
/// public definition of the architecture. Shared tables count once; blocks that predict further
/// tokens count in "prediction".
namespace pipetwin {
namespace hf_published_test {

using nlohmann::json;
using ::testing::HasSubstr;

json published() {
    const auto file = std::filesystem::path(places::source_folder()) / "tests" / "core" /
                      "interop" / "data" / "published_models.json";
    return json::parse(read_file(file, std::size_t{1} << 20));
}

TEST(HfPublished, EveryModelHasItsNumberOfParameters) {
    std::set<std::string> families;
    std::set<std::string> published_families;
    int published_counts = 0;
    for (const json& row : published()) {
        const std::string name = row.at("model");
        const DecoderModel model = parse_hf_config(row.at("config").dump(), name);
        EXPECT_EQ(parameter_count(model), row.at("parameters").get<std::int64_t>()) << name;
        EXPECT_EQ(model.prediction_blocks > 0 ? prediction_parameters(model) : 0,
                  row.value("prediction", std::int64_t{0}))
            << name;
        for (const std::string& remark : model.remarks) {
            EXPECT_THAT(remark, HasSubstr("left out")) << name;
        }
        families.insert(model.family);
        if (row.at("counted").get<std::string>().starts_with("published")) {
            published_families.insert(model.family);
            ++published_counts;
        }
    }
    EXPECT_GE(families.size(), 50U);
    EXPECT_GE(published_counts, 40);
    EXPECT_GE(published_families.size(), 20U);
}

/// The halves of the blocks add up to the model; what is shared stands in the bytes of both ends.
TEST(HfPublished, LayersOfTheProfileAddUpToTheModel) {
    DeviceProfile device{.name = "some"};
    device.matrix_rates["bf16"].value = 1e15;
    device.memory_rate.value = 3e12;
    for (const json& row : published()) {
        const std::string name = row.at("model");
        const DecoderModel model = parse_hf_config(row.at("config").dump(), name);
        const Profile profile =
            estimated_profile(model, device, {.sequence = 512, .precision = "bf16"});
        std::int64_t count = 0;
        for (const LayerCost& layer : profile.layers) {
            count += layer.parameter_count;
            EXPECT_GT(layer.samples.front().forward, Duration{}) << name << ": " << layer.name;
        }
        EXPECT_EQ(count,
                  parameter_count(model) +
                      model.prediction_blocks *
                          (model.prediction_blocks > 0 ? prediction_parameters(model) : 0))
            << name;
        EXPECT_EQ(profile.tied_bytes, Bytes{2 * shared_embedding_parameters(model)}) << name;
        check_profile(profile, name);
    }
}

/// Files of the three hold their prediction block, too; DeepSeek's and GLM's with a copy of the
/// embedding and of the head's matrix.
TEST(HfPublished, PredictionBlocksMakeUpTheRestOfTheFiles) {
    const auto count = [](const std::string& name, int copies) {
        for (const json& row : published()) {
            if (row.at("model") == name) {
                const DecoderModel model = parse_hf_config(row.at("config").dump(), name);
                return parameter_count(model) + prediction_parameters(model) +
                       copies * std::int64_t{model.vocabulary} * model.width;
            }
        }
        return std::int64_t{0};
    };
    EXPECT_EQ(count("deepseek-ai/DeepSeek-V3", 2), 684'489'845'504);
    EXPECT_EQ(count("deepseek-ai/DeepSeek-V3.2", 2), 685'355'329'792);
    EXPECT_EQ(count("zai-org/GLM-4.5", 2), 358'337'791'296);
    EXPECT_EQ(count("zai-org/GLM-4.5-Air", 2), 110'468'824'832);
    EXPECT_EQ(count("zai-org/GLM-5", 0), 753'864'139'008);
    EXPECT_EQ(count("Qwen/Qwen3-Next-80B-A3B-Instruct", 0), 81'324'862'720);
    EXPECT_EQ(count("zai-org/GLM-5.2", 0), 753'329'940'480);
    EXPECT_EQ(count("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B", 0), 123'611'033'088);
    EXPECT_EQ(count("nvidia/NVIDIA-Nemotron-3.5-Lightning-30B-A3B", 0), 32'913'266'240);
}

/// Megatron-Bridge's Step-3.5-Flash has 199,997,706,240 parameters: three prediction blocks, a gate
/// as wide as the queries in place of a number per head (12 blocks of 64 heads of 128 numbers, and
/// 33 and 3 of 96), and no biases of the 42 routers of 288 experts.
TEST(HfPublished, StepIsWhatMegatronBridgeMakesOfIt) {
    for (const json& row : published()) {
        if (row.at("model") == "stepfun-ai/Step-3.5-Flash") {
            const DecoderModel model = parse_hf_config(row.at("config").dump(), "step");
            const std::int64_t wider = std::int64_t{4096} * 127 * (12 * 64 + 36 * 96);
            EXPECT_EQ(parameter_count(model) + 3 * prediction_parameters(model) + wider - 42 * 288,
                      199'997'706'240);
        }
    }
}

/// MiniMax-M3's files have 854,172,958,720 bytes, two for each number, and four for those of the 57
/// routers, and for the vision tower's patches. That tower has 32 blocks of 1,280 numbers with
/// biases, 5,120 inside, and a norm in front; behind it stand two matrices from a patch's row to
/// the model's, and two from the rows of four patches.
TEST(HfPublished, MiniMaxIsWhatItsFilesHave) {
    const std::int64_t width = 1280;
    const std::int64_t inner = 5120;
    const std::int64_t text_width = 6144;
    const std::int64_t patches = 3 * 2 * 14 * 14 * width;
    const std::int64_t block = 4 * (width * width + width) + (width * inner + inner) +
                               (inner * width + width) + 2 * 2 * width;
    const std::int64_t square = text_width * text_width + text_width;
    const std::int64_t vision = patches + 2 * width + 32 * block + width * text_width + text_width +
                                square + 4 * text_width * text_width + text_width + square;
    for (const json& row : published()) {
        if (row.at("model") == "MiniMaxAI/MiniMax-M3") {
            const std::int64_t text =
                parameter_count(parse_hf_config(row.at("config").dump(), "m3"));
            const std::int64_t wide = 57 * (text_width * 128 + 128) + patches;
            EXPECT_EQ(2 * (text + vision + wide), 854'172'958'720);
        }
    }
}

/// Whatever precision a file says, its sizes are the same.
TEST(HfPublished, PrecisionChangesNoCount) {
    for (json& row : published()) {
        const std::string name = row.at("model");
        json& config = row.at("config");
        for (const json& word :
             {json("auto"), json("float8_e4m3fn"), json("torch.float16"), json(nullptr), json(8)}) {
            config["torch_dtype"] = word;
            config["dtype"] = word;
            EXPECT_EQ(parameter_count(parse_hf_config(config.dump(), name)),
                      row.at("parameters").get<std::int64_t>())
                << name << ": " << word;
        }
    }
}

TEST(HfPublished, DamagedFilesAreReadOrRefusedAndNothingElse) {
    std::mt19937_64 random(tests::seed());
    for (const json& row : published()) {
        const std::string text = row.at("config").dump();
        for (int i = 0; i < tests::soaked(40); ++i) {
            const std::string damaged = testing::mutated(text, random);
            try {
                const DecoderModel model = parse_hf_config(damaged, "x");
                EXPECT_GT(parameter_count(model), 0) << damaged;
                EXPECT_GE(shared_embedding_parameters(model), 0) << damaged;
            } catch (const Error& error) {
                EXPECT_EQ(error.kind(), ErrorKind::BadInput) << damaged;
            }
        }
    }
}

}  // namespace hf_published_test
}  // namespace pipetwin

#include <cmath>
#include <initializer_list>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/cli/support.h"
#include "tests/support/places.h"

/// Published speeds and memory of pipelines of image models, from the scenarios of
/// docs/validation.md. What layers take is estimated from their sizes and what is known of the
/// device; nothing is fitted to these rows.
namespace pipetwin::cli {
namespace image_paper_test {

using Settings = std::vector<std::string>;

std::string scenario(const std::string& name) {
    return places::source_folder() + "/scenarios/papers/" + name + ".toml";
}

Settings joined_settings(Settings settings, const Settings& further) {
    settings.insert(settings.end(), further.begin(), further.end());
    return settings;
}

/// Bytes of these kinds at their peaks, on all devices.
double peak(const nlohmann::json& result, std::initializer_list<const char*> kinds) {
    double sum = 0;
    for (const nlohmann::json& device : result["devices"]) {
        for (const char* kind : kinds) {
            sum += device["peak_bytes"][kind].get<double>();
        }
    }
    return sum;
}

double model_bytes(const nlohmann::json& result) {
    return peak(result, {"weights", "gradients", "optimizer"});
}

double activation_bytes(const nlohmann::json& result) {
    return peak(result, {"stash", "boundary", "workspace"});
}

constexpr double gigabyte = 1e9;
constexpr double gibibyte = 1 << 30;

class ImagePapers : public InFolder {
  protected:
    /// What `simulate` says about a scenario whose layers take what they are estimated to on a
    /// device.
    nlohmann::json simulated(const std::string& name,
                             const std::string& device,
                             const Settings& settings) const {
        const std::string costs = path("costs.profile.json");
        std::vector<std::string> options;
        for (const std::string& setting : settings) {
            options.insert(options.end(), {"--set", setting});
        }
        std::vector<std::string> estimate{
            "model", scenario(name), "--device", device, "--costs-out", costs, "--force"};
        estimate.insert(estimate.end(), options.begin(), options.end());
        EXPECT_EQ(pipetwin(estimate).code, 0);
        std::vector<std::string> simulate{"simulate", scenario(name), "--profile", costs, "--json"};
        simulate.insert(simulate.end(), options.begin(), options.end());
        const Outcome outcome = pipetwin(simulate);
        EXPECT_EQ(outcome.code, 0) << outcome.err;
        return outcome.json();
    }

    double samples_per_second(const std::string& name,
                              const std::string& device,
                              const Settings& settings) const {
        return simulated(name, device, settings)["samples_per_second"].get<double>();
    }
};

// --- torchgpipe 0.0.5 on Tesla P40, samples per second. ---

struct Row {
    std::string name;
    int batch = 0;
    int stages = 0;
    int micro_batches = 0;
    std::string recompute;
    std::string partition;
    double published = 0;
};

Settings settings_of(const Row& run) {
    return {fmt::format("training.batch={}", run.batch),
            fmt::format("pipeline.stages={}", run.stages),
            fmt::format("pipeline.micro_batches={}", run.micro_batches),
            "pipeline.recompute=" + run.recompute,
            "pipeline.partition=" + run.partition};
}

class TorchgpipeSpeed : public ImagePapers {
  protected:
    /// How far the prediction of a run is off, as a share.
    double error(const std::string& model, const Row& run) const {
        return samples_per_second("torchgpipe-" + model, "p40", settings_of(run)) / run.published -
               1;
    }

    /// Speeds are within a share of the published ones, and what each run is faster than the first
    /// one within another.
    struct Bounds {
        double speed = 0;
        double speed_up = 0;
    };
    void expect_within(const Bounds& bounds,
                       const std::string& model,
                       const Row& first,
                       const std::vector<Row>& runs) const {
        const double off = error(model, first);
        EXPECT_LE(std::abs(off), bounds.speed) << first.name;
        for (const Row& run : runs) {
            const double of_run = error(model, run);
            EXPECT_LE(std::abs(of_run), bounds.speed) << run.name;
            EXPECT_NEAR((1 + of_run) / (1 + off), 1, bounds.speed_up) << run.name;
        }
    }
};

TEST_F(TorchgpipeSpeed, ResNet101IsPredictedWithin15PercentAndItsSpeedUpsWithin3) {
    expect_within({.speed = 0.15, .speed_up = 0.03},
                  "resnet101",
                  Row{"baseline", 118, 1, 1, "none", "[370]", 95.862},
                  {Row{"pipeline-1", 220, 1, 2, "except-last", "[370]", 81.796},
                   Row{"pipeline-2", 25000, 2, 1667, "except-last", "[135, 235]", 135.539},
                   Row{"pipeline-4", 5632, 4, 256, "except-last", "[44, 92, 124, 110]", 265.958},
                   Row{"pipeline-8",
                       5400,
                       8,
                       150,
                       "except-last",
                       "[26, 22, 33, 44, 44, 66, 66, 69]",
                       411.662}});
}

// On eight devices its skip connections go through the lanes of the first two, which messages
// share.
TEST_F(TorchgpipeSpeed, UNetIsPredictedWithin25PercentAndItsSpeedUpsWithin8) {
    expect_within(
        {.speed = 0.25, .speed_up = 0.08},
        "unet",
        Row{"baseline", 40, 1, 1, "none", "[241]", 28.500},
        {Row{"pipeline-1", 80, 1, 2, "except-last", "[241]", 24.456},
         Row{"pipeline-2", 512, 2, 32, "except-last", "[104, 137]", 35.502},
         Row{"pipeline-4", 512, 4, 16, "except-last", "[30, 66, 84, 61]", 67.042},
         Row{"pipeline-8", 640, 8, 40, "except-last", "[16, 27, 31, 44, 22, 57, 27, 17]", 88.497},
         Row{"dep-str-ptl", 128, 4, 8, "except-last", "[34, 76, 70, 61]", 58.477}});
}

// n4m4, 44.543, is predicted 37 % too fast: published, four devices are hardly faster than two.
TEST_F(TorchgpipeSpeed, AmoebaNetIsPredictedWithin25PercentAndItsSpeedUpsWithin10ButForOneRow) {
    expect_within({.speed = 0.25, .speed_up = 0.10},
                  "amoebanet",
                  Row{"n2m1", 96, 2, 1, "always", "[7, 17]", 26.733},
                  {Row{"n2m4", 256, 2, 4, "except-last", "[9, 15]", 41.133},
                   Row{"n2m32", 1280, 2, 32, "except-last", "[9, 15]", 47.386},
                   Row{"n4m1", 160, 4, 1, "always", "[3, 4, 5, 12]", 26.827},
                   Row{"n4m32", 1152, 4, 32, "except-last", "[3, 6, 7, 8]", 72.412},
                   Row{"n8m1", 196, 8, 1, "always", "[2, 2, 2, 2, 2, 3, 4, 7]", 24.918},
                   Row{"n8m4", 480, 8, 4, "except-last", "[2, 2, 2, 3, 3, 4, 4, 4]", 70.065},
                   Row{"n8m32", 1280, 8, 32, "except-last", "[2, 2, 2, 3, 3, 4, 4, 4]", 132.413}});
}

// Every other row is simulated above, and fits, too.
TEST_F(TorchgpipeSpeed, ItsRunsFitTheCardsThatTheyRanOn) {
    EXPECT_GT(error("unet",
                    Row{"pipeline-8",
                        640,
                        8,
                        40,
                        "except-last",
                        "[16, 27, 31, 44, 22, 57, 27, 17]",
                        88.497}),
              0);
    EXPECT_GT(error("amoebanet", Row{"n4m4", 360, 4, 4, "except-last", "[3, 6, 7, 8]", 44.543}), 0);
}

// --- torchgpipe: memory on all devices in GiB, the activations as its allocator reserves them. ---

struct LargeAmoebaNet {
    std::string name;
    int layers = 0;
    int filters = 0;
    int stages = 0;
    std::string partition;
    double model = 0;
    double activations = 0;
};

TEST_F(ImagePapers, MemoryOfTorchgpipesAmoebaNetIsExactForTheModelAndNotAboveThatOfItsActivations) {
    for (const LargeAmoebaNet& row :
         {LargeAmoebaNet{"pipeline-1", 18, 416, 1, "[24]", 3.57, 0.91},
          LargeAmoebaNet{"pipeline-2", 18, 544, 2, "[16, 8]", 6.07, 3.39},
          LargeAmoebaNet{"pipeline-4", 36, 544, 4, "[16, 12, 7, 7]", 11.80, 6.91},
          LargeAmoebaNet{"pipeline-8", 72, 512, 8, "[23, 16, 11, 6, 6, 5, 5, 6]", 20.62, 10.83}}) {
        const nlohmann::json result = simulated(
            "torchgpipe-amoebanet",
            "p40",
            joined_settings(
                settings_of({row.name, 128, row.stages, 128, "except-last", row.partition}),
                {fmt::format("model.layers={}", row.layers),
                 fmt::format("model.filters={}", row.filters),
                 "training.optimizer=rmsprop"}));
        // Running values of batch norms are in ours: less than 0.1 %.
        EXPECT_NEAR(model_bytes(result) / gibibyte, row.model, 0.005 + 0.001 * row.model);
        EXPECT_LE(activation_bytes(result) / gibibyte, row.activations) << row.name;
        EXPECT_GE(activation_bytes(result) / gibibyte, 0.45 * row.activations) << row.name;
    }
}

struct LargeUNet {
    std::string name;
    int convolutions = 0;
    int channels = 0;
    int stages = 0;
    std::string recompute;
    std::string partition;
    double all = 0;
};

// A batch of 32 never has 128 micro-batches, so torchgpipe recomputes all of them in the last row.
TEST_F(ImagePapers, MemoryOfTorchgpipesUNetsIsNotAboveWhatItReservesAndThreeQuartersOfThatAtLeast) {
    for (const LargeUNet& row :
         {LargeUNet{"baseline", 6, 72, 1, "none", "[285]", 20.3},
          LargeUNet{"pipeline-1", 11, 128, 1, "except-last", "[505]", 20.5},
          LargeUNet{"pipeline-2", 24, 128, 2, "except-last", "[526, 551]", 43.4},
          LargeUNet{"pipeline-4", 24, 160, 4, "except-last", "[472, 54, 36, 515]", 79.1},
          LargeUNet{
              "pipeline-8", 48, 160, 8, "always", "[800, 140, 62, 36, 36, 36, 36, 987]", 154.1}}) {
        const nlohmann::json result =
            simulated("torchgpipe-unet",
                      "p40",
                      joined_settings(settings_of({row.name,
                                                   32,
                                                   row.stages,
                                                   row.name == "baseline" ? 1 : 32,
                                                   row.recompute,
                                                   row.partition}),
                                      {fmt::format("model.convolutions={}", row.convolutions),
                                       fmt::format("model.channels={}", row.channels)}));
        const double ours = (model_bytes(result) + activation_bytes(result)) / gibibyte;
        EXPECT_LE(ours, row.all) << row.name;
        EXPECT_GE(ours, 0.75 * row.all) << row.name;
    }
}

// --- GPipe, Table 1: AmoebaNet-D. ---

struct Column {
    std::string name;
    int layers = 0;
    int filters = 0;
    int stages = 0;
    std::string partition;  ///< the one that `auto` finds
    std::int64_t parameters = 0;
    double model = 0;  ///< GB, on all devices
    double activations = 0;
};

const Column pipeline_1{"Pipeline-1", 18, 416, 1, "[24]", 317'548'353, 3.8, 3.46};
const Column pipeline_2{"Pipeline-2", 18, 544, 2, "[10, 14]", 540'204'945, 6.45, 8.11};
const Column pipeline_4{"Pipeline-4", 36, 544, 4, "[9, 8, 11, 14]", 1'053'302'481, 12.53, 15.21};
const Column pipeline_8{
    "Pipeline-8", 72, 512, 8, "[9, 7, 7, 8, 10, 10, 13, 14]", 1'842'618'441, 24.62, 26.24};

Settings settings_of(const Column& column) {
    return {fmt::format("model.layers={}", column.layers),
            fmt::format("model.filters={}", column.filters),
            fmt::format("pipeline.stages={}", column.stages),
            "pipeline.partition=" + column.partition,
            "pipeline.micro_batches=8"};
}

class GPipeAmoebaNet : public ImagePapers {};

/// 12 bytes a parameter: the weight, its gradient and RMSProp's slot. What the paper prints for
/// Naive-1 and Pipeline-8 is 7 and 11 % more than that of the parameters that it prints.
TEST_F(GPipeAmoebaNet, HasTheParametersOfTheReferenceAndTheirMemoryInThreeColumns) {
    for (const Column& column : {pipeline_1, pipeline_2, pipeline_4}) {
        const nlohmann::json result = simulated("gpipe-amoebanet", "p100", settings_of(column));
        // The weights of a rank hold the running values of its batch norms, too: below 0.2 %.
        EXPECT_NEAR(peak(result, {"gradients"}), 4.0 * static_cast<double>(column.parameters), 0)
            << column.name;
        EXPECT_NEAR(model_bytes(result) / gigabyte / column.model, 1, 0.011) << column.name;
    }
}

/// Eight micro-batches, and bf16 as on TPUs: the power of two that is nearest to the first column.
TEST_F(GPipeAmoebaNet, ActivationsOfOneDeviceNeedEightMicroBatchesAndThoseOfSeveralAreALowerBound) {
    for (const Column& column : {pipeline_1, pipeline_2, pipeline_4, pipeline_8}) {
        const nlohmann::json result =
            simulated("gpipe-amoebanet",
                      "tpu-v3",
                      joined_settings(settings_of(column),
                                      {"cluster.device=tpu-v3", "training.precision=bf16"}));
        const double share = activation_bytes(result) / gigabyte / column.activations;
        if (column.stages == 1) {
            EXPECT_NEAR(share, 1, 0.01) << column.name;
        } else {
            EXPECT_LE(share, 1) << column.name;
            EXPECT_GE(share, 2.0 / 3) << column.name;
        }
    }
}

// --- GPipe, Tables 2 and 3: throughput at 32 micro-batches beside that of two devices. ---

class GPipeAmoebaNetSpeed : public ImagePapers {
  protected:
    double speed(const std::string& device,
                 const std::string& precision,
                 const std::string& partition,
                 int stages) const {
        return samples_per_second("gpipe-amoebanet",
                                  device,
                                  {"cluster.device=" + device,
                                   "training.precision=" + precision,
                                   fmt::format("pipeline.stages={}", stages),
                                   "pipeline.partition=" + partition});
    }
};

TEST_F(GPipeAmoebaNetSpeed, OnP100IsPredictedWithin15Percent) {
    const double of_2 = speed("p100", "fp32", "[12, 12]", 2);
    EXPECT_NEAR(speed("p100", "fp32", "[7, 5, 5, 7]", 4) / of_2, 1.7, 0.15 * 1.7);
    EXPECT_NEAR(speed("p100", "fp32", "[5, 2, 2, 3, 3, 3, 3, 3]", 8) / of_2, 2.7, 0.15 * 2.7);
}

// Published: 1.84 and 3.48, of 1.21 for two devices; for equal layers 1.912 and 3.517.
TEST_F(GPipeAmoebaNetSpeed, OnTpusGrowsLessThanThatOfEqualLayersAndIsPredictedWithin21Percent) {
    const double of_2 = speed("tpu-v3", "bf16", "[10, 14]", 2);
    const double of_4 = speed("tpu-v3", "bf16", "[6, 4, 6, 8]", 4) / of_2;
    const double of_8 = speed("tpu-v3", "bf16", "[3, 2, 2, 2, 3, 3, 4, 5]", 8) / of_2;
    EXPECT_NEAR(of_4, 1.84 / 1.21, 0.21 * 1.84 / 1.21);
    EXPECT_NEAR(of_8, 3.48 / 1.21, 0.15 * 3.48 / 1.21);
    EXPECT_LT(of_4, 1.912);
    EXPECT_LT(of_8, 3.517);
}

// --- GPipe, section 5: translation. ---

class GPipeTranslation : public ImagePapers {};

/// As many accelerators of 16 GiB as the paper had. It prints that all of them fit, and that a
/// model grows with the accelerators without slowing them down: here by a seventh at most.
TEST_F(GPipeTranslation, EveryModelFitsWhereItWasTrainedAndKeepsItsDevicesBusy) {
    struct Size {
        int layers;
        int feed_forward;
        int heads;
        int stages;
    };
    double alone = 0;
    for (const Size& row : {Size{6, 8192, 16, 1},
                            Size{12, 16384, 32, 2},
                            Size{24, 8192, 16, 4},
                            Size{32, 16384, 32, 8},
                            Size{64, 16384, 32, 16}}) {
        const nlohmann::json result =
            simulated("gpipe-translation",
                      "tpu-v3",
                      {fmt::format("model.layers={}", row.layers),
                       fmt::format("model.feed_forward={}", row.feed_forward),
                       fmt::format("model.heads={}", row.heads),
                       fmt::format("pipeline.stages={}", row.stages)});
        for (const nlohmann::json& device : result["devices"]) {
            EXPECT_LE(device["peak_bytes"]["total"].get<double>(), 16 * gibibyte) << row.layers;
        }
        const double utilisation = result["model_flops_utilisation"].get<double>();
        alone = row.stages == 1 ? utilisation : alone;
        EXPECT_GE(utilisation, alone * 6 / 7) << row.layers;
    }
}

}  // namespace image_paper_test
}  // namespace pipetwin::cli

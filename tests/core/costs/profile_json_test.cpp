// SPDX-License-Identifier: Apache-2.0
#include "core/costs/profile_json.h"

#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/code_blocks.h"
#include "tests/support/error_of.h"
#include "tests/support/mutate.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/soak.h"

namespace pipetwin {
namespace profile_json_test {

using testing::error_of;

/// Every key that there is.
constexpr std::string_view full = R"({
 "schema_version": 1, "source": "measured", "device": "this-machine", "precision": "fp64",
 "tool_version": "0.1.0", "date": "2025-01-01", "dispatch_ns": 900,
 "layers": [
  {"name": "embedding", "kind": "embedding", "parameter_count": 512, "parameter_bytes": 4096,
   "optimizer_ns": 70,
   "samples": [
    {"micro_batch_size": 2, "forward_ns": 10, "backward_input_ns": 0, "backward_weight_ns": 30,
     "input_bytes": 64, "output_bytes": 128, "saved_bytes": 192, "workspace_bytes": 5,
     "spread": 0.25},
    {"micro_batch_size": 4, "forward_ns": 20, "backward_ns": 41, "output_bytes": 256,
     "saved_bytes": 384}]},
  {"name": "head", "inputs": ["embedding"], "parameter_bytes": 0, "source": "estimated",
   "samples": [
    {"micro_batch_size": 2, "forward_ns": 1200.0, "backward_ns": 3, "output_bytes": 0,
     "saved_bytes": 1}]}],
 "links": [{"between": "ranks", "latency_ns": 800, "bytes_per_second": 9e9,
            "half_bandwidth_bytes": 4096}],
 "ranks": [{"device": 0, "interference": 0.075}, {"device": 0, "interference": 0.125}],
 "whole_backwards": true,
 "halves_over_whole": 1.0625,
 "calibration": {"clean_steps": 12, "dropped_steps": 3, "p90_over_p10": 1.02, "interference": 0.05,
                 "ladder": [{"message_bytes": 64, "ns": 300}]}
})";

TEST(ParseProfile, ReadsEveryKey) {
    const Profile expected{
        .source = CostSource::Measured,
        .device = "this-machine",
        .precision = "fp64",
        .tool_version = "0.1.0",
        .date = "2025-01-01",
        .dispatch = Duration{900},
        .layers = {{.name = "embedding",
                    .kind = "embedding",
                    .parameter_count = 512,
                    .parameter_bytes = Bytes{4096},
                    .optimizer = Duration{70},
                    .samples = {{.micro_batch_size = 2,
                                 .forward = Duration{10},
                                 .backward_input = Duration{0},
                                 .backward_weight = Duration{30},
                                 .input = Bytes{64},
                                 .output = Bytes{128},
                                 .saved = Bytes{192},
                                 .workspace = Bytes{5},
                                 .spread = 0.25},
                                {.micro_batch_size = 4,
                                 .forward = Duration{20},
                                 .backward_input = Duration{20},
                                 .backward_weight = Duration{21},
                                 .output = Bytes{256},
                                 .saved = Bytes{384}}}},
                   {.name = "head",
                    .inputs = {"embedding"},
                    .source = CostSource::Estimated,
                    .samples = {{.micro_batch_size = 2,
                                 .forward = Duration{1200},
                                 .backward_input = Duration{1},
                                 .backward_weight = Duration{2},
                                 .saved = Bytes{1}}}}},
        .links = {{.between = "ranks",
                   .latency = Duration{800},
                   .bytes_per_second = 9e9,
                   .half_bandwidth = Bytes{4096}}},
        .ranks = {{.device = 0, .interference = 0.075}, {.device = 0, .interference = 0.125}},
        .whole_backwards = true,
        .halves_over_whole = 1.0625,
        .calibration = CalibrationNote{.clean_steps = 12,
                                       .dropped_steps = 3,
                                       .p90_over_p10 = 1.02,
                                       .interference = 0.05,
                                       .ladder = {{.message = Bytes{64}, .time = Duration{300}}}}};
    EXPECT_EQ(parse_profile(full, "x.json"), expected);
}

TEST(PrintProfile, ParsesBackToTheSame) {
    const Profile profile = parse_profile(full, "x.json");
    EXPECT_EQ(parse_profile(print_profile(profile), "x.json"), profile);
    const Profile smallest{.layers = {{.name = "\"\\\n\xc3\xa4", .samples = {{}}}}};
    EXPECT_EQ(parse_profile(print_profile(smallest), "x.json"), smallest);
}

/// The full profile with the value at `pointer` replaced by the JSON text `value`; removed where
/// that is empty.
std::string changed(const std::string& pointer, const std::string& value) {
    nlohmann::json root = nlohmann::json::parse(full);
    const nlohmann::json::json_pointer at(pointer);
    if (value.empty()) {
        root.at(at.parent_pointer()).erase(at.back());
        return root.dump();
    }
    // As text, so that numbers stand in it which no double holds.
    root[at] = "@";
    std::string text = root.dump();
    return text.replace(text.find("\"@\""), 3, value);
}

TEST(ParseProfile, ReadsTheKernelsOfALayerAndTheTimeOfALaunch) {
    nlohmann::json root = nlohmann::json::parse(full);
    root["launch_ns"] = 4000;
    nlohmann::json& sample = root["layers"][0]["samples"][0];
    sample["forward_kernels"] = 12;
    sample["backward_kernels"] = 25;
    const Profile profile = parse_profile(root.dump(), "x.json");
    EXPECT_EQ(profile.launch, Duration(4000));
    EXPECT_EQ(profile.layers[0].samples[0].forward_kernels, 12);
    EXPECT_EQ(profile.layers[0].samples[0].backward_input_kernels, 12);  // halved, as the time
    EXPECT_EQ(profile.layers[0].samples[0].backward_weight_kernels, 13);
    EXPECT_EQ(parse_profile(print_profile(profile), "x.json"), profile);
    sample["backward_input_kernels"] = 1;
    EXPECT_THROW(parse_profile(root.dump(), "x.json"), Error);
}

/// The full profile with samples of one of two and of four devices, and with parts of them.
nlohmann::json with_shares() {
    nlohmann::json root = nlohmann::json::parse(full);
    nlohmann::json& layer = root["layers"][0];
    layer["tensor_sums"] = 2;
    layer["replicas_update_ns"] = 12;
    root["groups"] = {
        {"devices", 2}, {"sequence_parallel", true}, {"replicas", 3}, {"shard", "gradients"}};
    nlohmann::json sample{
        {"micro_batch_size", 2},        {"forward_ns", 100},        {"backward_input_ns", 90},
        {"backward_weight_ns", 80},     {"output_bytes", 128},      {"saved_bytes", 1000},
        {"input_saved_bytes", 700},     {"core_forward_ns", 40},    {"core_saved_bytes", 600},
        {"whole_forward_ns", 30},       {"whole_backward_ns", 20},  {"whole_saved_bytes", 500},
        {"unread_gradient_bytes", 128}, {"first_forward_ns", 60},   {"first_input_ns", 50},
        {"first_weight_ns", 40},        {"last_forward_ns", 20},    {"last_input_ns", 10},
        {"devices_forward_ns", 7},      {"devices_backward_ns", 8}, {"replicas_forward_ns", 9},
        {"replicas_backward_ns", 11}};
    layer["shared"] = {{{"devices", 2}, {"samples", {sample}}},
                       {{"devices", 4}, {"samples", {sample}}}};
    sample["forward_ns"] = 101;
    layer["samples"] = {sample};
    return root;
}

TEST(ParseProfile, ReadsTheSharesOfALayer) {
    const Profile profile = parse_profile(with_shares().dump(), "x.json");
    const LayerCost& layer = profile.layers[0];
    EXPECT_EQ(layer.tensor_sums, 2);
    EXPECT_EQ(profile.layers[1].tensor_sums, 1);
    LayerSample expected{.micro_batch_size = 2,
                         .forward = Duration(100),
                         .backward_input = Duration(90),
                         .backward_weight = Duration(80),
                         .output = Bytes{128},
                         .saved = Bytes{1000},
                         .input_saved = Bytes{700},
                         .unread_gradient = Bytes{128},
                         .core_forward = Duration(40),
                         .core_saved = Bytes{600},
                         .whole_forward = Duration(30),
                         .whole_backward = Duration(20),
                         .whole_saved = Bytes{500},
                         .first_forward = Duration(60),
                         .first_input = Duration(50),
                         .first_weight = Duration(40),
                         .last_forward = Duration(20),
                         .last_input = Duration(10),
                         .devices_forward = Duration(7),
                         .devices_backward = Duration(8),
                         .replicas_forward = Duration(9),
                         .replicas_backward = Duration(11)};
    EXPECT_EQ(layer.replicas_update, Duration(12));
    EXPECT_EQ(profile.groups,
              (MeasuredGroups{
                  .devices = 2, .sequence_parallel = true, .replicas = 3, .shard = "gradients"}));
    ASSERT_EQ(layer.shared.size(), 2U);
    EXPECT_EQ(layer.shared.at(2), std::vector<LayerSample>{expected});
    EXPECT_EQ(layer.shared.at(4), std::vector<LayerSample>{expected});
    EXPECT_EQ(cost_at(layer, 2, 4), expected);
    expected.forward = Duration(101);
    EXPECT_EQ(cost_at(layer, 2), expected);
    EXPECT_EQ(layer.shared_by(3), nullptr);
    EXPECT_FALSE(knows_shares(profile, 2));  // nothing is known of the head
    EXPECT_EQ(parse_profile(print_profile(profile), "x.json"), profile);
}

TEST(ParseProfile, RefusesGroupsThatNoPipelineHas) {
    for (const auto& [key, value] : {std::pair<std::string, nlohmann::json>("devices", 0),
                                     {"replicas", 5000},
                                     {"shard", "all"}}) {
        nlohmann::json root = with_shares();
        root["groups"][key] = value;
        const Error error = error_of([&] { parse_profile(root.dump(), "x.json"); });
        EXPECT_EQ(error.place(), "x.json: /groups/" + key);
    }
}

TEST(ParseProfile, RefusesPartsThatAreMoreThanTheirWhole) {
    for (const auto& [key, whole] : {std::pair("input_saved_bytes", 1000),
                                     {"core_forward_ns", 100},
                                     {"core_saved_bytes", 1000},
                                     {"whole_forward_ns", 100},
                                     {"whole_backward_ns", 90},
                                     {"whole_saved_bytes", 1000},
                                     {"unread_gradient_bytes", 128},
                                     {"first_forward_ns", 100},
                                     {"first_input_ns", 90},
                                     {"first_weight_ns", 80},
                                     {"last_forward_ns", 100},
                                     {"last_input_ns", 90}}) {
        for (const char* sample : {"/layers/0/shared/1/samples/0/", "/layers/0/samples/0/"}) {
            nlohmann::json root = with_shares();
            nlohmann::json& value = root[nlohmann::json::json_pointer(sample + std::string(key))];
            value = 1 + whole + (std::string(sample).find("shared") == std::string::npos ? 1 : 0);
            const Error error = error_of([&] { parse_profile(root.dump(), "x.json"); });
            EXPECT_EQ(error.kind(), ErrorKind::BadInput);
            EXPECT_EQ(error.place(), fmt::format("x.json: {}{}", sample, key));
            EXPECT_NE(error.text().find("part of"), std::string::npos) << error.what();
            value = whole;
            EXPECT_NO_THROW(parse_profile(root.dump(), "x.json")) << key;
            value = -1;
            EXPECT_THROW(parse_profile(root.dump(), "x.json"), Error) << key;
        }
    }
}

TEST(ParseProfile, RefusesSharesOfOneDeviceAndOfANumberTwice) {
    const auto refusal = [](const char* pointer, const nlohmann::json& value) {
        nlohmann::json root = with_shares();
        root[nlohmann::json::json_pointer(pointer)] = value;
        const Error error = error_of([&] { parse_profile(root.dump(), "x.json"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        return std::string(error.what());
    };
    for (const int devices : {0, 1, 2, 5000}) {
        const std::string text = refusal("/layers/0/shared/1/devices", devices);
        EXPECT_NE(text.find("/layers/0/shared/1/devices"), std::string::npos) << text;
        EXPECT_NE(text.find("ascending, each once"), std::string::npos) << text;
    }
    EXPECT_NE(refusal("/layers/0/shared/0/device", 2).find("unknown key"), std::string::npos);
    EXPECT_NE(refusal("/layers/0/tensor_sums", 17).find("0 to 16"), std::string::npos);
    EXPECT_NE(refusal("/layers/0/tensor_sums", -1).find("tensor_sums"), std::string::npos);
    // Samples of shares keep the rules of all samples, and there is at least one.
    EXPECT_NE(refusal("/layers/0/shared/0/samples", nlohmann::json::array())
                  .find("x.json: /layers/0/shared/0/samples: no sample"),
              std::string::npos);
    EXPECT_NE(refusal("/layers/0/shared/1/samples/0/micro_batch_size", 0)
                  .find("x.json: /layers/0/shared/1/samples/0/micro_batch_size"),
              std::string::npos);
}

struct Breach {
    std::string pointer;
    std::string value;
    std::string text;  ///< part of the error
};

TEST(ParseProfile, RefusesEveryBreachWithItsPointerAndValue) {
    const std::string first = "/layers/0/samples/0";
    std::vector<Breach> breaches{
        {"/schema_version", "2", "2, expected 1"},
        {"/schema_version", "", "missing"},
        {"/source", "\"guess\"", "\"guess\", expected measured, imported, datasheet or estimated"},
        {"/source", "", "missing"},
        {"/device", "3", "3, expected a text"},
        {"/layers", "{}", "expected a list"},
        {"/layers", "", "missing"},
        {"/layers", "[]", "0 layers"},
        {"/layers/0", "3", "3, expected an object"},
        {"/layers/0/name", "", "missing"},
        {"/layers/0/name", "null", "null, expected a text"},
        {"/layers/0/source", "\"x\"", "expected measured"},
        {"/layers/0/parameter_bytes", "", "missing"},
        {"/layers/0/samples", "[]", "no sample"},
        {"/layers/0/samples", "", "no sample"},
        {"/layers/1/name", "\"embedding\"", "names two layers"},
        {"/layers/1/inputs", "\"embedding\"", "expected a list"},
        {"/layers/1/inputs/0", "7", "7, expected a text"},
        {"/layers/1/inputs/0", "\"tail\"", "expected the name of an earlier layer"},
        {"/layers/0/samples/1/micro_batch_size", "2", "2 after 2, expected ascending"},
        {first + "/micro_batch_size", "0", "0, expected a number of samples"},
        {first + "/micro_batch_size", "4294967297", "4294967297, expected a number of samples"},
        {first + "/spread", "-0.5", "-0.5, expected a number that is not negative"},
        {first + "/spread", "\"low\"", "\"low\", expected a number"},
        {first + "/forward_kernels", "-1", "-1, expected a whole number"},
        {first + "/backward_kernels", "1000001", "expected at most 1000000 kernels"},
        {"/launch_ns", "1000000001", "1000000001, expected 0 to 1000000000"},
        {"/halves_over_whole", "0.95", "0.95, expected 1 to 2"},
        {"/halves_over_whole", "5.5", "5.5, expected 1 to 2"},
        {"/halves_over_whole", "\"1.05\"", "\"1.05\", expected a number"},
        {first + "/backward_ns", "7", "either backward_ns or backward_input_ns"},
        {first + "/backward_input_ns", "", "missing"},
        {"/links/0/bytes_per_second", "-1", "-1, expected a number that is not negative"},
        {"/links/0/latency_ns", "true", "true, expected a whole number"},
    };
    for (const char* key :
         {"forward_ns", "backward_weight_ns", "output_bytes", "saved_bytes", "workspace_bytes"}) {
        breaches.push_back({fmt::format("{}/{}", first, key), "-5", "-5, expected a whole number"});
        breaches.push_back(
            {fmt::format("{}/{}", first, key), "1.5", "1.5, expected a whole number"});
        breaches.push_back({fmt::format("{}/{}", first, key), "\"9\"", "\"9\", expected a whole"});
        breaches.push_back({fmt::format("{}/{}", first, key), "1e300", "expected a whole number"});
        breaches.push_back({fmt::format("{}/{}", first, key), "[1]", "[a list], expected a whole"});
    }
    for (const Breach& breach : breaches) {
        const std::string text = changed(breach.pointer, breach.value);
        const Error error = error_of([&] { parse_profile(text, "x.json"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.place(), "x.json: " + breach.pointer) << error.what();
        EXPECT_NE(error.text().find(breach.text), std::string::npos) << error.what();
    }
}

TEST(ParseProfile, RefusesAFactorOfHalvesForCostsOfHalves) {
    const Error error =
        error_of([] { parse_profile(changed("/whole_backwards", "false"), "x.json"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.place(), "x.json: /halves_over_whole");
    EXPECT_NE(error.hint().find("whole_backwards: true"), std::string::npos) << error.hint();
}

TEST(ParseProfile, RefusesNumbersThatNoJsonReaderShouldTake) {
    for (const char* value : {"1e400",
                              "-1e400",
                              "18446744073709551616",
                              "9007199254740993",
                              "NaN",
                              "Infinity",
                              "0x10"}) {
        const std::string text = changed("/layers/0/samples/0/forward_ns", value);
        const Error error = error_of([&] { parse_profile(text, "x.json"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << value;
        EXPECT_TRUE(error.place().starts_with("x.json:1:")) << error.place();
    }
}

TEST(ParseProfile, RefusesUnknownKeysAndNamesTheNearest) {
    const Error error =
        error_of([] { parse_profile(changed("/layers/0/samples/0/foward_ns", "1"), "x.json"); });
    EXPECT_EQ(error.place(), "x.json: /layers/0/samples/0/foward_ns");
    EXPECT_EQ(error.text(), "unknown key");
    EXPECT_EQ(error.hint(), "did you mean 'forward_ns'?");
    EXPECT_THROW(parse_profile(changed("/layer", "[]"), "x.json"), Error);
    EXPECT_EQ(error_of([] { parse_profile("[]", "x.json"); }).text(),
              "[a list], expected an object");
}

TEST(ParseProfile, ReadsTheExampleOfItsDocumentation) {
    const std::vector<std::string> blocks = testing::code_blocks("docs/formats.md", "json");
    ASSERT_EQ(blocks.size(), 1U);
    const Profile profile = parse_profile(blocks[0], "docs/formats.md");
    EXPECT_EQ(profile.layers[0].samples[0].backward(), Duration{2'000'000});
}

/// A profile with these layers, as JSON texts.
std::string with_layers(std::string_view layers) {
    return fmt::format(R"({{"schema_version": 1, "source": "estimated", "layers": [{}]}})", layers);
}

/// A layer named `a` with `more` keys.
std::string layer_a(std::string_view more) {
    return fmt::format(R"({{"name": "a", {} "parameter_bytes": 4, "samples": [
        {{"micro_batch_size": 1, "forward_ns": 2, "backward_ns": 4, "output_bytes": 8,
          "saved_bytes": 16}}]}})",
                       more);
}

TEST(ParseProfile, WritesARepeatedLayerOutWithItsIndexBehindTheName) {
    const std::string text =
        with_layers(layer_a("") + ", " + layer_a(R"("kind": "block", "repeat": 3,)"));
    const Profile profile = parse_profile(text, "x.json");
    ASSERT_EQ(profile.layers.size(), 4U);
    EXPECT_EQ(profile.layers[0].name, "a");
    for (std::size_t copy = 0; copy < 3; ++copy) {
        LayerCost expected = profile.layers[0];
        expected.name = fmt::format("a{}", copy);
        expected.kind = "block";
        EXPECT_EQ(profile.layers[1 + copy], expected);
    }
    EXPECT_EQ(parse_profile(print_profile(profile), "x.json"), profile);
    // As in a scenario, one copy keeps its name.
    EXPECT_EQ(parse_profile(with_layers(layer_a(R"("repeat": 1,)")), "x.json").layers[0].name, "a");
}

TEST(ParseProfile, TakesAsManyRepeatedLayersAsAModelMayHave) {
    const Profile profile = parse_profile(with_layers(layer_a(R"("repeat": 100000,)")), "x.json");
    EXPECT_EQ(profile.layers.size(), 100'000U);
    EXPECT_EQ(profile.layers.back().name, "a99999");
}

TEST(ParseProfile, RefusesRepetitionsThatNoModelHas) {
    const std::string many_kinds(10'000, 'k');
    const std::vector<Breach> breaches{
        {"0", layer_a(R"("repeat": 0,)"), "0, expected 1 to 100000"},
        {"0", layer_a(R"("repeat": -1,)"), "-1, expected a whole number"},
        {"0", layer_a(R"("repeat": 1.5,)"), "1.5, expected a whole number"},
        {"0", layer_a(R"("repeat": "2",)"), "\"2\", expected a whole number"},
        {"0", layer_a(R"("repeat": 100001,)"), "100001, expected 1 to 100000"},
        {"0", layer_a(R"("repeat": 9007199254740992,)"), "expected 1 to 100000"},
        {"1", layer_a("") + "," + layer_a(R"("repeat": 100000,)"), "at most 100000 layers in all"},
        {"1", layer_a("") + "," + layer_a(R"("inputs": ["a"], "repeat": 2,)"), "2, expected 1"},
        {"0",
         layer_a(fmt::format(R"("kind": "{}", "repeat": 100000,)", many_kinds)),
         "at most 256 MiB in all"},
    };
    for (const Breach& breach : breaches) {
        const Error error = error_of([&] { parse_profile(with_layers(breach.value), "x.json"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.place(), fmt::format("x.json: /layers/{}/repeat", breach.pointer));
        EXPECT_NE(error.text().find(breach.text), std::string::npos) << error.what();
    }
}

TEST(ParseProfile, PointsAtTheEntryThatARepeatedLayerCameFrom) {
    std::string taken = layer_a("");
    taken.replace(taken.find("\"a\""), 3, "\"a1\"");
    const Error error = error_of(
        [&] { parse_profile(with_layers(layer_a(R"("repeat": 3,)") + "," + taken), "x.json"); });
    EXPECT_EQ(error.place(), "x.json: /layers/1/name");
    EXPECT_NE(error.text().find("'a1' names two layers"), std::string::npos) << error.what();
}

TEST(ReadProfile, GoesByTheEndingOfTheFile) {
    const tests::ScratchFolder folder;
    folder.write("x.profile.json", full);
    folder.write("x.csv",
                 "name,forward_ms,backward_ms,output_bytes,saved_bytes,parameter_bytes\n"
                 "a,1,2,3,4,5\n");
    EXPECT_EQ(read_profile(folder / "x.profile.json").layers.size(), 2U);
    EXPECT_EQ(read_profile(folder / "x.csv").layers[0].name, "a");
    EXPECT_EQ(error_of([&] { read_profile(folder / "none.json"); }).kind(), ErrorKind::Io);
}

TEST(ParseProfile, ThrowsNothingButErrorForDamagedTexts) {
    const std::uint64_t seed = tests::seed();
    SCOPED_TRACE(fmt::format("PIPETWIN_SEED={}", seed));
    std::mt19937_64 random(seed);
    for (int round = 0; round < tests::soaked(1000); ++round) {
        const std::string text = testing::mutated(std::string(full), random);
        try {
            const Profile profile = parse_profile(text, "x.json");
            ASSERT_EQ(parse_profile(print_profile(profile), "x.json"), profile) << text;
        } catch (const Error& error) {
            ASSERT_FALSE(error.text().empty()) << text;
        } catch (const std::exception& other) {
            FAIL() << other.what() << "\nfor\n" << text;
        }
    }
}

TEST(ParseProfile, RefusesEveryShorterText) {
    for (std::size_t length = 0; length < full.size(); ++length) {
        EXPECT_THROW(parse_profile(full.substr(0, length), "x.json"), Error) << length;
    }
}

/// The text with `from` replaced by `to`, and what reading it says.
Error refusal_with(std::string_view from, std::string_view to) {
    std::string text(full);
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return error_of([&] { parse_profile(text, "p.json"); });
}

TEST(ParseProfile, ASpreadThatNoMeasurementHasIsRefused) {
    const Error error = refusal_with("\"spread\": 0.25", "\"spread\": 2.5e6");
    EXPECT_EQ(error.place(), "p.json: /layers/0/samples/0/spread");
    EXPECT_NE(error.text().find("at most 1000000"), std::string::npos) << error.text();
    EXPECT_FALSE(error.hint().empty());
}

/// A layer of 3 us that waited half a millisecond for a core: the profiler may write that.
TEST(ParseProfile, TheSpreadOfABusyMachineIsRead) {
    std::string text(full);
    text.replace(text.find("\"spread\": 0.25"), 14, "\"spread\": 134.3");
    EXPECT_DOUBLE_EQ(parse_profile(text, "p.json").layers[0].samples[0].spread, 134.3);
}

TEST(ParseProfile, ACountOfParametersThatDisagreesWithTheirBytesIsRefused) {
    for (const char* count : {"51200000", "5"}) {  // 4096 bytes
        const Error error =
            refusal_with("\"parameter_count\": 512", std::string("\"parameter_count\": ") + count);
        EXPECT_EQ(error.place(), "p.json: /layers/0/parameter_bytes");
        EXPECT_NE(error.text().find("which no precision has"), std::string::npos) << error.text();
    }
    for (const char* count : {"0", "512", "1024", "2048", "4096", "8192"}) {  // 8 bytes to 4 bits
        std::string text(full);
        text.replace(text.find("\"parameter_count\": 512"),
                     22,
                     std::string("\"parameter_count\": ") + count);
        EXPECT_NO_THROW(parse_profile(text, "p.json")) << count;
    }
}

TEST(ParseProfile, AnUnknownWordForThePrecisionIsRefusedNamingThoseThatAreKnown) {
    const Error error = refusal_with("\"fp64\"", "\"bfloat\"");
    EXPECT_EQ(error.place(), "p.json: /precision");
    EXPECT_NE(error.text().find("expected one of fp32, bf16, fp16, fp64"), std::string::npos)
        << error.text();
}

}  // namespace profile_json_test
}  // namespace pipetwin

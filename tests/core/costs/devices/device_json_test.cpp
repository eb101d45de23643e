// SPDX-License-Identifier: Apache-2.0
#include "core/costs/devices/device_json.h"

#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/costs/devices/shipped_profiles.h"
#include "tests/support/error_of.h"

namespace pipetwin {
namespace device_json_test {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using testing::error_of;
using ::testing::HasSubstr;

json stated(const json& value) {
    return {{"value", value}, {"kind", "datasheet"}, {"source", "a sheet"}};
}

json device() {
    const json link{{"bytes_per_second", stated(3e11)}, {"latency_ns", stated(3000)}};
    return {{"schema_version", 1},
            {"name", "x-1"},
            {"matrix_flops_per_second", {{"bf16", stated(312e12)}, {"fp32", stated(19.5e12)}}},
            {"memory_bytes", stated(80'000'000'000)},
            {"memory_bytes_per_second", stated(2.039e12)},
            {"device_link", link},
            {"host_link", link},
            {"launch_ns", stated(5000)},
            {"context_bytes", stated(1'000'000'000)}};
}

std::string refusal(const json& value) {
    const Error error = error_of([&] { parse_device_profile(value.dump(), "x.json"); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    return error.what();
}

TEST(DeviceJson, ReadsEveryValueWithItsSource) {
    const DeviceProfile read = parse_device_profile(device().dump(), "x.json");
    EXPECT_EQ(read.name, "x-1");
    EXPECT_EQ(read.matrix_rates.at("bf16").value, 312e12);
    EXPECT_EQ(read.memory.value, Bytes{80'000'000'000});
    EXPECT_EQ(read.memory_rate.value, 2.039e12);
    EXPECT_EQ(read.device_link->latency.value, Duration(3000));
    EXPECT_EQ(read.launch.value, Duration(5000));
    EXPECT_EQ(read.context.kind, CostSource::Datasheet);
    EXPECT_EQ(read.context.source, "a sheet");
}

TEST(DeviceJson, PrintsWhatItReads) {
    const DeviceProfile read = parse_device_profile(device().dump(), "x.json");
    EXPECT_EQ(parse_device_profile(print_device_profile(read), "y.json"), read);
}

TEST(DeviceJson, ReadsWhatPartOfTheContextMessagesAreBufferedIn) {
    json with_buffers = device();
    with_buffers["communication_bytes"] = stated(400'000'000);
    const DeviceProfile read = parse_device_profile(with_buffers.dump(), "x.json");
    EXPECT_EQ(read.communication->value, Bytes{400'000'000});
    EXPECT_EQ(parse_device_profile(print_device_profile(read), "y.json"), read);
    with_buffers["communication_bytes"] = stated(1'000'000'001);
    EXPECT_THAT(refusal(with_buffers),
                AllOf(HasSubstr("/communication_bytes"), HasSubstr("no more than context_bytes")));
}

TEST(DeviceJson, RefusesWhatBreaksARuleWithItsPlace) {
    const auto changed = [](const char* pointer, const json& value) {
        json root = device();
        root[json::json_pointer(pointer)] = value;
        return refusal(root);
    };
    EXPECT_THAT(changed("/memory_byte", 1),
                AllOf(HasSubstr("x.json: /memory_byte"), HasSubstr("did you mean 'memory_bytes'")));
    EXPECT_THAT(changed("/launch_ns/unit", "us"), HasSubstr("/launch_ns/unit: unknown key"));
    EXPECT_THAT(changed("/matrix_flops_per_second/int8", stated(1e12)),
                HasSubstr("/matrix_flops_per_second/int8: unknown key"));
    EXPECT_THAT(changed("/matrix_flops_per_second/bf16/value", 0), HasSubstr("above 0"));
    EXPECT_THAT(changed("/matrix_flops_per_second/bf16/value", -1), HasSubstr("not negative"));
    EXPECT_THAT(changed("/matrix_flops_per_second", json::object()), HasSubstr("at least one"));
    EXPECT_THAT(changed("/memory_bytes/value", 0), HasSubstr("more than 0 bytes"));
    EXPECT_THAT(changed("/memory_bytes/value", -5), HasSubstr("whole number from 0 to 2^53"));
    EXPECT_THAT(changed("/memory_bytes/value", 1.5), HasSubstr("whole number from 0 to 2^53"));
    EXPECT_THAT(changed("/memory_bytes/value", "80 GB"), HasSubstr("\"80 GB\", expected"));
    EXPECT_THAT(changed("/memory_bytes", 80), HasSubstr("expected an object"));
    EXPECT_THAT(changed("/memory_bytes/kind", "guessed"),
                HasSubstr("expected measured, datasheet or estimated"));
    EXPECT_THAT(changed("/memory_bytes/source", ""), HasSubstr("where the value comes from"));
    EXPECT_THAT(changed("/context_bytes/value", 80'000'000'000), HasSubstr("less than memory"));
    EXPECT_THAT(changed("/name", "A 100"), HasSubstr("small letters"));
    EXPECT_THAT(changed("/name", "../x"), HasSubstr("small letters"));
    EXPECT_THAT(changed("/schema_version", 2), HasSubstr("expected 1"));
    json without = device();
    without.erase("launch_ns");
    EXPECT_THAT(refusal(without), HasSubstr("/launch_ns: missing"));
    without = device();
    without["memory_bytes"].erase("source");
    EXPECT_THAT(refusal(without), HasSubstr("/memory_bytes/source: missing"));
}

/// The device with what products and attention reach of its rate.
json efficient() {
    json root = device();
    root["matrix_efficiency"]["bf16"] = {
        {"large", 0.8}, {"half_size", 128}, {"kind", "measured"}, {"source", "a run"}};
    root["attention_efficiency"] = {{"forward", 0.7},
                                    {"backward", 0.6},
                                    {"half_sequence", 512},
                                    {"kind", "measured"},
                                    {"source", "a run"}};
    root["copy_efficiency"] = stated(0.7);
    root["multiprocessors"] = stated(132);
    return root;
}

TEST(DeviceJson, ReadsWhatProductsAndAttentionReach) {
    const DeviceProfile read = parse_device_profile(efficient().dump(), "x.json");
    const MatrixEfficiency products{.large = 0.8, .half_size = 128};
    const AttentionEfficiency attention{.forward = 0.7, .backward = 0.6, .half_sequence = 512};
    EXPECT_EQ(read.matrix_efficiencies.at("bf16").value, products);
    EXPECT_EQ(read.matrix_efficiencies.at("bf16").kind, CostSource::Measured);
    EXPECT_EQ(read.attention_efficiency->value, attention);
    EXPECT_EQ(read.attention_efficiency->source, "a run");
    EXPECT_EQ(matrix_efficiency(read, "bf16"), products);
    EXPECT_EQ(attention_efficiency(read), attention);
    EXPECT_EQ(read.copy_efficiency->value, 0.7);
    EXPECT_EQ(read.multiprocessors->value, 132);
    // Other precisions, and devices that say nothing, have what devices in general reach.
    const DeviceProfile silent = parse_device_profile(device().dump(), "x.json");
    EXPECT_EQ(matrix_efficiency(read, "fp32"), matrix_efficiency(silent, "bf16"));
    EXPECT_EQ(parse_device_profile(print_device_profile(read), "y.json"), read);
}

TEST(DeviceJson, RefusesEfficienciesThatAreNoShares) {
    const auto changed = [](const std::string& pointer, const json& value) {
        json root = efficient();
        root[json::json_pointer(pointer)] = value;
        return refusal(root);
    };
    for (const char* key : {"/matrix_efficiency/bf16/large",
                            "/attention_efficiency/forward",
                            "/attention_efficiency/backward",
                            "/copy_efficiency/value"}) {
        EXPECT_THAT(changed(key, -0.5), AllOf(HasSubstr(key), HasSubstr("not negative")));
        for (const double share : {0.0, 1.0001, 80.0}) {
            EXPECT_THAT(
                changed(key, share),
                AllOf(HasSubstr("x.json: " + std::string(key)), HasSubstr("above 0 and up to 1")));
        }
        json root = efficient();
        root[json::json_pointer(key)] = 1;
        EXPECT_NO_THROW(parse_device_profile(root.dump(), "x.json"));
    }
    for (const char* key :
         {"/matrix_efficiency/bf16/half_size", "/attention_efficiency/half_sequence"}) {
        EXPECT_THAT(changed(key, -1), AllOf(HasSubstr(key), HasSubstr("not negative")));
    }
    EXPECT_THAT(changed("/matrix_efficiency/int8", json::object()),
                HasSubstr("/matrix_efficiency/int8: unknown key"));
    EXPECT_THAT(changed("/matrix_efficiency/bf16/small", 0.1), HasSubstr("unknown key"));
    json without = efficient();
    without["attention_efficiency"].erase("source");
    EXPECT_THAT(refusal(without), HasSubstr("/attention_efficiency/source: missing"));
}

/// The device with measured collectives of two and four members.
json with_collectives() {
    json root = device();
    root["collectives"] = {{"bytes", {1024, 2048, 8192}},
                           {"all_gather_ns", {{"2", {100, 100, 300}}, {"4", {150, 200, 500}}}},
                           {"all_to_all_ns", {{"4", {120, 130, 140}}}},
                           {"kind", "measured"},
                           {"source", "nccl-tests"}};
    return root;
}

TEST(DeviceJson, ReadsMeasuredCollectives) {
    const DeviceProfile read = parse_device_profile(with_collectives().dump(), "x.json");
    const CollectiveTable& table = read.collectives->value;
    EXPECT_EQ(table.sizes, (std::vector{Bytes{1024}, Bytes{2048}, Bytes{8192}}));
    EXPECT_EQ(table.nanoseconds(Collective::AllGather, 2, 8192), 300);
    EXPECT_EQ(table.nanoseconds(Collective::AllGather, 4, 2048), 200);
    EXPECT_EQ(table.nanoseconds(Collective::AllToAll, 4, 8192), 140);
    EXPECT_FALSE(table.has(Collective::AllReduce));
    EXPECT_EQ(read.collectives->kind, CostSource::Measured);
    EXPECT_EQ(read.collectives->source, "nccl-tests");
    EXPECT_EQ(parse_device_profile(print_device_profile(read), "y.json"), read);
    EXPECT_EQ(parse_device_profile(device().dump(), "x.json").collectives, std::nullopt);
}

TEST(DeviceJson, RefusesCollectivesThatAreNoTable) {
    const auto changed = [](const std::string& key, const json& value) {
        json root = with_collectives();
        root["collectives"][json::json_pointer(key)] = value;
        return refusal(root);
    };
    for (const json& sizes :
         {json{1024}, json{1024, 1024, 2048}, json{0, 1024, 2048}, json{4, 2, 8}}) {
        EXPECT_THAT(changed("/bytes", sizes),
                    AllOf(HasSubstr("x.json: /collectives/bytes"),
                          HasSubstr("two sizes or more, each above 0 and above the one before")));
    }
    EXPECT_THAT(changed("/all_gather_ns/2", {100, 200}),
                AllOf(HasSubstr("x.json: /collectives/all_gather_ns/2"),
                      HasSubstr("expected 3 times, one for each of the bytes")));
    EXPECT_THAT(changed("/all_gather_ns/2", {100, 200, 199}),
                AllOf(HasSubstr("x.json: /collectives/all_gather_ns/2"),
                      HasSubstr("none shorter than the one before"),
                      HasSubstr("give a size that took longer")));
    EXPECT_THAT(changed("/all_gather_ns/2", {0, 200, 300}), HasSubstr("times above 0"));
    EXPECT_THAT(changed("/all_gather_ns/2", {1.5, 200, 300}), HasSubstr("whole number"));
    for (const char* members : {"1", "eight", "4x", "-2", "", "2000000"}) {
        EXPECT_THAT(changed(std::string("/all_gather_ns/") + members, {1, 2, 3}),
                    HasSubstr("a number of members as its key, 2 to 1,000,000"))
            << members;
    }
    EXPECT_THAT(changed("/all_gather", json::object()),
                AllOf(HasSubstr("unknown key"), HasSubstr("all_gather_ns")));
    EXPECT_THAT(changed("/source", ""), HasSubstr("where the value comes from"));
    json root = with_collectives();
    root["collectives"].erase("all_gather_ns");
    root["collectives"].erase("all_to_all_ns");
    EXPECT_THAT(refusal(root), HasSubstr("times of at least one collective, by members"));
}

TEST(DeviceJson, RefusesALinkTwice) {
    json link{{"name", "a"},
              {"bytes_per_second", stated(1e9)},
              {"latency_ns", stated(1)},
              {"half_bandwidth_bytes", stated(0)}};
    const json root{{"schema_version", 1}, {"links", {link, link}}};
    const Error error = error_of([&] { parse_link_profiles(root.dump(), "x.json"); });
    EXPECT_THAT(error.what(), AllOf(HasSubstr("/links/1/name"), HasSubstr("each name once")));
}

TEST(LinkProfiles, ArePrintedAsTheyAreRead) {
    const std::vector<LinkProfile> links = all_links();
    EXPECT_EQ(parse_link_profiles(print_link_profiles(links), "y.json"), links);
}

TEST(DeviceProfile, WithoutALinkOfTheirOwnNeighboursUseTheHostLink) {
    json without = device();
    without.erase("device_link");
    without["host_link"]["bytes_per_second"]["value"] = 16e9;
    EXPECT_EQ(neighbour_link(parse_device_profile(without.dump(), "x")).bytes_per_second, 16e9);
    EXPECT_EQ(neighbour_link(parse_device_profile(device().dump(), "x")).bytes_per_second, 3e11);
}

TEST(DeviceProfile, TimesScaleByTheRatioOfTheRates) {
    const DeviceProfile one = parse_device_profile(device().dump(), "x");
    DeviceProfile other = one;
    other.matrix_rates["bf16"].value = 4 * 312e12;
    other.memory_rate.value = 2 * 2.039e12;
    EXPECT_EQ(time_ratio(one, other, "bf16", ScaleCosts::None), 1);
    EXPECT_EQ(time_ratio(one, other, "bf16", ScaleCosts::Compute), 0.25);
    EXPECT_EQ(time_ratio(one, other, "bf16", ScaleCosts::Memory), 0.5);
    EXPECT_EQ(time_ratio(one, other, "bf16", ScaleCosts::Cautious), 0.5);
    EXPECT_EQ(time_ratio(one, other, "fp32", ScaleCosts::Cautious), 1);
    const Error error = error_of([&] { time_ratio(one, other, "fp8", ScaleCosts::Compute); });
    EXPECT_THAT(error.what(), AllOf(HasSubstr("'x-1'"), HasSubstr("fp8"), HasSubstr("bf16, fp32")));
}

// --- What is shipped. ---

/// Dense rates in TFLOP/s at the precision that training uses, GB, and GB/s, as the makers print
/// them.
/// Rates are those of the datasheets. Memory is what nvidia-smi shows, less 520 MiB that the driver
/// keeps; where no source has that figure, it is the datasheet's.
TEST(ShippedProfiles, HaveTheFiguresOfTheDatasheets) {
    constexpr double mib = 1.048576e-3;  // in GB
    struct Figures {
        const char* name;
        const char* precision;
        double teraflops;
        double gigabytes;
        double gigabytes_per_second;
    };
    const std::vector<Figures> all{{"v100-sxm2", "fp16", 125, 32, 900},
                                   {"a100-sxm-80", "bf16", 312, (81'559 - 520) * mib, 2039},
                                   {"h100-sxm", "bf16", 989, (81'559 - 520) * mib, 3350},
                                   {"h100-sxm-96", "bf16", 989, (97'280 - 520) * mib, 2400},
                                   {"h200-sxm", "bf16", 989, (143'771 - 520) * mib, 4800},
                                   {"b200", "bf16", 2250, (183'359 - 520) * mib, 8000},
                                   {"gb200", "bf16", 2500, (189'471 - 520) * mib, 8000},
                                   {"b300", "bf16", 2250, (275'040 - 520) * mib, 8000},
                                   {"gb300", "bf16", 2500, (284'208 - 520) * mib, 8000},
                                   {"h20", "bf16", 148, 96, 4000},
                                   {"l40s", "bf16", 362, 48, 864},
                                   {"mi250x", "bf16", 191.5, 64, 1638.4},
                                   {"mi300x", "bf16", 1307.4, 192, 5300},
                                   {"mi355x", "bf16", 2516.6, 288, 8000},
                                   {"rtx-4090", "bf16", 165.2, 24, 1008},
                                   {"p40", "fp32", 11.76, 24, 346},
                                   {"p100", "fp32", 9.3, 16, 732},
                                   {"tpu-v3", "bf16", 123, 32 * 1.073741824, 900},
                                   {"tpu-v3-core", "bf16", 61.5, 16 * 1.073741824, 450},
                                   {"tpu-v5e", "bf16", 197, 16, 819},
                                   {"tpu-v5p", "bf16", 459, 95 * 1.073741824, 2765}};
    for (const Figures& figures : all) {
        const DeviceProfile device = find_device(figures.name);
        EXPECT_DOUBLE_EQ(device.matrix_rates.at(figures.precision).value, figures.teraflops * 1e12)
            << figures.name;
        EXPECT_NEAR(static_cast<double>(device.memory.value.count), figures.gigabytes * 1e9, 1)
            << figures.name;
        EXPECT_DOUBLE_EQ(device.memory_rate.value, figures.gigabytes_per_second * 1e9)
            << figures.name;
        EXPECT_GE(device.context.value.count, 500'000'000) << figures.name;
        EXPECT_LE(device.context.value.count, 2'000'000'000) << figures.name;
    }
    EXPECT_EQ(device_names().size(), all.size());
}

/// "900 GB/s" counts both directions, of which all-reduces reach 0.81 (nccl-tests).
TEST(ShippedProfiles, CountOneDirectionOfALink) {
    EXPECT_EQ(find_link("nvlink-4").facts.bytes_per_second.value, 365e9);
    EXPECT_EQ(find_device("h100-sxm").device_link->bytes_per_second.value, 365e9);
    EXPECT_EQ(find_link("infiniband-ndr").facts.bytes_per_second.value, 50e9);
    EXPECT_EQ(find_link("ethernet-100").facts.bytes_per_second.value, 12.5e9);
}

TEST(ShippedProfiles, AnUnknownNameListsTheKnown) {
    const Error device = error_of([] { find_device("a100"); });
    EXPECT_EQ(device.kind(), ErrorKind::BadInput);
    EXPECT_THAT(device.what(), AllOf(HasSubstr("'a100'"), HasSubstr("a100-sxm-80, b200")));
    EXPECT_EQ(device.hint(), "did you mean 'a100-sxm-80'?");
    EXPECT_THAT(error_of([] { find_device("../links"); }).what(), HasSubstr("no device profile"));
    const Error link = error_of([] { find_link("nvlnk-4"); });
    EXPECT_THAT(link.what(), AllOf(HasSubstr("nvlink-5"), HasSubstr("did you mean 'nvlink-4'")));
}

}  // namespace device_json_test
}  // namespace pipetwin

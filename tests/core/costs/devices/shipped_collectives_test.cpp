// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <string>

#include <gtest/gtest.h>

#include "core/costs/collectives/collective_time.h"
#include "core/costs/devices/shipped_profiles.h"

/// Collectives of the devices that come with the program, beside what others measured.
namespace pipetwin {
namespace shipped_collectives_test {

using enum Collective;

constexpr double kib = 1 << 10;
constexpr double mib = 1 << 20;

CollectiveTable table_of(const std::string& device) {
    return find_device(device).collectives.value().value;
}

double microseconds(const std::string& device, Collective kind, int members, double bytes) {
    return table_of(device).nanoseconds(kind, members, bytes) / 1e3;
}

/// Bytes that each device sends, as a rate: nccl-tests' bus bandwidth.
double bus_bandwidth(Collective kind, int members, double bytes, double nanoseconds) {
    const double times = kind == AllReduce ? 2 : 1;
    return times * (members - 1) / members * bytes / nanoseconds * 1e9;
}

/// One run of nccl-tests by the same source, in us; the tables have the median of up to four runs.
TEST(ShippedCollectives, AreTheTimesThatWereMeasured) {
    struct Row {
        const char* device;
        Collective kind;
        int members;
        std::array<double, 6> us;  // 2 KiB, 2, 16, 64, 256 and 512 MiB
    };
    const Row rows[] = {{"h100-sxm", AllReduce, 2, {6.4, 28, 81, 253, 881, 1677}},
                        {"h100-sxm", AllReduce, 4, {9.9, 27, 99, 324, 1189, 2305}},
                        {"h100-sxm", AllReduce, 8, {15.8, 39, 122, 322, 1088, 2112}},
                        {"h100-sxm", AllGather, 4, {7.4, 19, 65, 189, 662, 1268}},
                        {"h100-sxm", AllGather, 8, {10.6, 22, 67, 209, 729, 1398}},
                        {"h100-sxm", ReduceScatter, 8, {10.5, 18, 71, 200, 722, 1399}},
                        {"h100-sxm", AllToAll, 4, {6.8, 17, 64, 184, 631, 1213}},
                        {"h100-sxm", AllToAll, 8, {8.0, 19, 73, 217, 764, 1481}},
                        {"a100-sxm-80", AllReduce, 4, {14.2, 46, 184, 544, 1927, 3716}},
                        {"a100-sxm-80", AllReduce, 8, {21.5, 54, 216, 595, 2182, 4226}},
                        {"a100-sxm-80", AllGather, 8, {14.8, 33, 135, 352, 1217, 2288}},
                        {"a100-sxm-80", ReduceScatter, 8, {15.0, 34, 123, 327, 1150, 2207}},
                        {"a100-sxm-80", AllToAll, 8, {12.8, 39, 114, 348, 1198, 2314}}};
    const double sizes[] = {2 * kib, 2 * mib, 16 * mib, 64 * mib, 256 * mib, 512 * mib};
    for (const Row& row : rows) {
        for (std::size_t i = 0; i < row.us.size(); ++i) {
            const double known = microseconds(row.device, row.kind, row.members, sizes[i]);
            const double noise = i == 0 ? 0.1 : 0.08;
            EXPECT_NEAR(known, row.us[i], noise * row.us[i])
                << row.device << ' ' << to_string(row.kind) << ' ' << row.members << ' '
                << sizes[i];
        }
    }
}

/// NVLink carries 300, 450 and 900 GB/s each way (datasheets): no device sends more. A switch that
/// adds (NVLink SHARP, from H100 on) takes each byte once. Of large messages every one carries more
/// than a third of that, two members of B200 the least.
TEST(ShippedCollectives, StayBelowTheLinksOfTheDatasheets) {
    struct Device {
        const char* name;
        double wire;
    };
    for (const auto& [name, wire] : {Device{"a100-sxm-80", 300e9},
                                     Device{"h100-sxm", 450e9},
                                     Device{"h200-sxm", 450e9},
                                     Device{"b200", 900e9}}) {
        const CollectiveTable table = table_of(name);
        for (const Collective kind : {AllGather, ReduceScatter, AllReduce, AllToAll}) {
            for (const int members : {2, 4, 8}) {
                for (const Bytes size : table.sizes) {
                    const auto bytes = static_cast<double>(size.count);
                    const double time = table.nanoseconds(kind, members, bytes);
                    const double rate = kind == AllReduce && members > 2
                                            ? bytes / time * 1e9
                                            : bus_bandwidth(kind, members, bytes, time);
                    EXPECT_LT(rate, wire) << name << ' ' << to_string(kind) << ' ' << members;
                }
                const double large = 512 * mib;
                EXPECT_GT(
                    bus_bandwidth(kind, members, large, table.nanoseconds(kind, members, large)),
                    wire / 3)
                    << name << ' ' << to_string(kind) << ' ' << members;
            }
        }
    }
}

/// NVIDIA/nccl-tests issue 212: about 370 GB/s after the protocol, and up to 480 for an all-reduce
/// with NVLink SHARP. stas00/ml-engineering: 235 GB/s for an all-reduce of 16 GiB on 8 A100. The
/// tables end at 512 MiB: this is how far off they are for 32 times as much.
TEST(ShippedCollectives, ReachWhatOthersMeasuredOfLargeMessages) {
    const auto bandwidth = [](const char* device, Collective kind, double bytes) {
        return bus_bandwidth(kind, 8, bytes, 1e3 * microseconds(device, kind, 8, bytes));
    };
    EXPECT_NEAR(bandwidth("h100-sxm", AllGather, 16 * 1024 * mib), 365e9, 0.06 * 365e9);
    EXPECT_NEAR(bandwidth("h100-sxm", ReduceScatter, 16 * 1024 * mib), 365e9, 0.06 * 365e9);
    EXPECT_NEAR(bandwidth("h100-sxm", AllReduce, 16 * 1024 * mib), 480e9, 0.06 * 480e9);
    EXPECT_NEAR(bandwidth("a100-sxm-80", AllReduce, 16 * 1024 * mib), 235e9, 0.06 * 235e9);
}

/// Latency 10.6 us and 346 GB/s, for an all-gather of 8 H100, are 14, 21 and 28 % too short for 64,
/// 16 and 2 MiB; 13.6 MB more at this rate fit from 64 MiB on, and are 21 % too long for 16 MiB and
/// twice too long for 2.
TEST(ShippedCollectives, AreNotTwoNumbers) {
    const auto error = [](double bytes, double latency_us, double more_bytes) {
        const double two_numbers = latency_us + (bytes * 7 / 8 + more_bytes) / 346e3;
        return two_numbers / microseconds("h100-sxm", AllGather, 8, bytes) - 1;
    };
    EXPECT_NEAR(error(64 * mib, 10.6, 0), -0.14, 0.01);
    EXPECT_NEAR(error(16 * mib, 10.6, 0), -0.21, 0.01);
    EXPECT_NEAR(error(2 * mib, 10.6, 0), -0.28, 0.01);
    for (const double bytes : {64 * mib, 128 * mib, 256 * mib, 512 * mib}) {
        EXPECT_NEAR(error(bytes, 0, 13.6e6), 0, 0.03) << bytes;
    }
    EXPECT_NEAR(error(16 * mib, 0, 13.6e6), 0.21, 0.01);
    EXPECT_NEAR(error(2 * mib, 0, 13.6e6), 1, 0.1);
}

TEST(ShippedCollectives, OfH200AreThoseOfH100) {
    for (const Collective kind : {AllGather, ReduceScatter, AllReduce, AllToAll}) {
        for (const int members : {4, 8}) {
            for (const double bytes : {64 * mib, 256 * mib, 512 * mib}) {
                const double h100 = microseconds("h100-sxm", kind, members, bytes);
                EXPECT_NEAR(microseconds("h200-sxm", kind, members, bytes), h100, 0.04 * h100)
                    << to_string(kind);
            }
        }
    }
}

}  // namespace shipped_collectives_test
}  // namespace pipetwin

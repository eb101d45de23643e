// SPDX-License-Identifier: Apache-2.0
#include "core/base/units.h"

#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/error_of.h"

namespace pipetwin {
namespace units_test {

using namespace std::chrono_literals;
using testing::error_of;

TEST(Duration, TurnsIntoSecondsAndMilliseconds) {
    EXPECT_DOUBLE_EQ(to_seconds(1500ms), 1.5);
    EXPECT_DOUBLE_EQ(to_milliseconds(1500us), 1.5);
}

TEST(FromMilliseconds, RoundsOnceToTheNearestNanosecond) {
    EXPECT_EQ(from_milliseconds(10, "forward"), 10ms);
    EXPECT_EQ(from_milliseconds(0, "forward"), 0ns);
    EXPECT_EQ(from_milliseconds(0.0000014, "forward"), 1ns);
    EXPECT_EQ(from_milliseconds(0.0000015, "forward"), 2ns);
    EXPECT_EQ(from_milliseconds(0.1, "forward"), 100us);  // though 0.1 is no binary fraction
}

TEST(FromMilliseconds, RefusesWhatIsNoDurationAndNamesIt) {
    for (const double value : {-1.0,
                               std::nan(""),
                               std::numeric_limits<double>::infinity(),
                               -std::numeric_limits<double>::infinity(),
                               1e300}) {
        const Error error = error_of([&] { from_milliseconds(value, "forward_ms"); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput);
        EXPECT_EQ(error.place(), "forward_ms");
    }
}

TEST(TransferTime, IsBytesOverRateRoundedUp) {
    EXPECT_EQ(transfer_time(Bytes{1'000}, 1e9), 1us);
    EXPECT_EQ(transfer_time(Bytes{1}, 3e9), 1ns);
    EXPECT_EQ(transfer_time(Bytes{10}, 3e9), 4ns);
    // As a quotient of floating-point numbers it was just above, and so a nanosecond more.
    EXPECT_EQ(transfer_time(Bytes{3'860}, 250e6), 15'440ns);
}

TEST(TransferTime, IsZeroOverAnInfinitelyFastLinkAndForNothing) {
    EXPECT_EQ(transfer_time(Bytes{1 << 30}, 0), 0ns);
    EXPECT_EQ(transfer_time(Bytes{0}, 1), 0ns);
}

TEST(TransferTime, RefusesARateThatMakesItEndless) {
    const Error error = error_of([] { transfer_time(Bytes{1}, 1e-300); });
    EXPECT_EQ(error.kind(), ErrorKind::BadInput);
    EXPECT_EQ(error.hint(), "check the rate of the link");
}

TEST(FormatBytes, ChoosesTheUnitThatFits) {
    EXPECT_EQ(format_bytes(Bytes{0}), "0 B");
    EXPECT_EQ(format_bytes(Bytes{1023}), "1023 B");
    EXPECT_EQ(format_bytes(Bytes{1024}), "1.00 KiB");
    EXPECT_EQ(format_bytes(Bytes{4LL << 30}), "4.00 GiB");
    EXPECT_EQ(format_bytes(Bytes{-1536}), "-1.50 KiB");
}

TEST(FormatDuration, ChoosesTheUnitThatFits) {
    EXPECT_EQ(format_duration(850ns), "850 ns");
    EXPECT_EQ(format_duration(12'345us), "12.345 ms");
    EXPECT_EQ(format_duration(3'210ms), "3.210 s");
    EXPECT_EQ(format_duration(-1500ns), "-1.500 us");
}

TEST(ParseBytes, ReadsBinaryAndDecimalUnits) {
    EXPECT_EQ(parse_bytes("1024"), Bytes{1024});
    EXPECT_EQ(parse_bytes("4 GiB"), Bytes{4LL << 30});
    EXPECT_EQ(parse_bytes("4GiB"), Bytes{4LL << 30});
    EXPECT_EQ(parse_bytes("80 GB"), Bytes{80'000'000'000});
    EXPECT_EQ(parse_bytes("1.5 KiB"), Bytes{1536});
}

TEST(ParseBytes, RefusesAnythingElseAndNamesTheUnits) {
    for (const char* text :
         {"", "GiB", "4 gibi", "-1", "nan", "inf", "1e400", "9e9 GiB", "4 GiB x"}) {
        const Error error = error_of([&] { parse_bytes(text); });
        EXPECT_EQ(error.kind(), ErrorKind::BadInput) << text;
        EXPECT_NE(error.hint().find("GiB"), std::string::npos) << text;
    }
}

}  // namespace units_test
}  // namespace pipetwin

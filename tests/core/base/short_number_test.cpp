// SPDX-License-Identifier: Apache-2.0
#include "core/base/short_number.h"

#include <chrono>
#include <cmath>
#include <random>

#include <gtest/gtest.h>

namespace pipetwin {
namespace short_number_test {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST(ShortNumber, HasThreeSignificantDigits) {
    EXPECT_EQ(short_number(1234567), "1230000");
    EXPECT_EQ(short_number(-4237), "-4240");
    EXPECT_EQ(short_number(203.706), "204");
    EXPECT_EQ(short_number(39.84), "39.8");
    EXPECT_EQ(short_number(1.8449), "1.84");
    EXPECT_EQ(short_number(-0.05213), "-0.0521");
    EXPECT_EQ(short_number(0), "0");
}

TEST(ShortNumber, ThatIsRoundedUpToAPowerOfTenHasThreeDigitsToo) {
    EXPECT_EQ(short_number(9.999), "10.0");
    EXPECT_EQ(short_number(99.97), "100");
    EXPECT_EQ(short_number(999.6), "1000");
    EXPECT_EQ(short_number(99960), "100000");
    EXPECT_EQ(short_number(0.9996), "1.00");
}

TEST(ShortNumber, IsWithinHalfAUnitOfItsThirdDigit) {
    std::mt19937 random(1);
    std::uniform_real_distribution<double> power(-6, 9);
    for (int i = 0; i < 2000; ++i) {
        const double number = std::pow(10, power(random));
        const double shown = std::stod(short_number(number));
        EXPECT_LE(std::abs(shown - number), 0.00501 * number) << short_number(number);
    }
}

TEST(ShortTime, TakesTheUnitThatFits) {
    EXPECT_EQ(short_time(nanoseconds(0)), "0 ns");
    EXPECT_EQ(short_time(nanoseconds(850)), "850 ns");
    EXPECT_EQ(short_time(nanoseconds(204'300)), "204 us");
    EXPECT_EQ(short_time(microseconds(39'812)), "39.8 ms");
    EXPECT_EQ(short_time(milliseconds(3210)), "3.21 s");
    EXPECT_EQ(short_time(seconds(12345)), "12300 s");
    EXPECT_EQ(short_time(microseconds(-1845)), "-1.84 ms");
}

TEST(ShortTime, ThatIsRoundedUpTakesTheNextUnit) {
    EXPECT_EQ(short_time(nanoseconds(999'400)), "999 us");
    EXPECT_EQ(short_time(nanoseconds(999'600)), "1.00 ms");
}

TEST(TimeWithin, HasTheUnitAndTheDecimalsOfTheWhole) {
    const Duration step = microseconds(211'400);
    EXPECT_EQ(time_within(microseconds(203'706), step), "203.7 ms");
    EXPECT_EQ(time_within(microseconds(2'417), step), "2.4 ms");
    EXPECT_EQ(time_within(nanoseconds(0), step), "0.0 ms");
    EXPECT_EQ(time_within(microseconds(2'417), step, 6), "2.417 ms");
    EXPECT_EQ(time_within(milliseconds(6), milliseconds(9)), "6.000 ms");
    EXPECT_EQ(time_within(nanoseconds(17), nanoseconds(400)), "17 ns");
    EXPECT_EQ(time_within(nanoseconds(17), nanoseconds(0)), "17 ns");
}

TEST(ShortPercent, HasAtMostTwoDecimals) {
    EXPECT_EQ(short_percent(1), "100 %");
    EXPECT_EQ(short_percent(0.9996), "100 %");
    EXPECT_EQ(short_percent(0.4286), "42.9 %");
    EXPECT_EQ(short_percent(0.08731), "8.73 %");
    EXPECT_EQ(short_percent(0.00052), "0.05 %");
    EXPECT_EQ(short_percent(-0.00001), "0.00 %");
    EXPECT_EQ(short_percent(0), "0 %");
    EXPECT_EQ(short_percent(1.5784), "158 %");
}

}  // namespace short_number_test
}  // namespace pipetwin

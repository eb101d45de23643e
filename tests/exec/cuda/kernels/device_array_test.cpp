// SPDX-License-Identifier: Apache-2.0
#include "tests/exec/cuda/kernels/device_array.h"

#include <cmath>
#include <cstdint>
#include <vector>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

namespace pipetwin::cuda::test {
namespace device_array_test {

TEST(DeviceArray, HoldsNoNumberUntilOneIsWritten) {
    DeviceArray<float> array(3);
    array.put(1, std::vector<float>{2});
    const std::vector<float> elements = array.elements();
    EXPECT_TRUE(std::isnan(elements[0]));
    EXPECT_EQ(elements[1], 2);
    EXPECT_TRUE(std::isnan(elements[2]));
}

TEST(DeviceArray, NoticesWhatIsWrittenBehindIt) {
    if (guard_bytes() == 0) {
        GTEST_SKIP() << "the address sanitizer does";
    }
    const DeviceArray<std::uint8_t> array(5);
    const std::uint8_t zero = 0;
    const std::uint8_t poison = 0xff;
    write(array.data() + 5, &zero, 1);
    EXPECT_NONFATAL_FAILURE(array.expect_guarded(), "written beyond the end");
    write(array.data() + 5, &poison, 1);
}

}  // namespace device_array_test
}  // namespace pipetwin::cuda::test

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <exception>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/exec/cuda/kernels/machine.h"

namespace pipetwin::cuda::test {

/// Elements on the device. Until they are written they hold 0xff in every byte: no number in fp32,
/// bf16 and fp64. So do the guards behind them, which are looked at when elements are read and when
/// the array goes.
template <class T>
class DeviceArray {
  public:
    explicit DeviceArray(std::size_t size) : size_(size) {
        const std::size_t bytes = size * sizeof(T) + guard_bytes();
        data_ = static_cast<T*>(allocate(std::max<std::size_t>(bytes, 1)));
        poison(data_, bytes);
    }
    explicit DeviceArray(const std::vector<T>& elements) : DeviceArray(elements.size()) {
        put(0, elements);
    }
    DeviceArray(DeviceArray&& other) noexcept
        : size_(other.size_), data_(std::exchange(other.data_, nullptr)) {}
    DeviceArray(const DeviceArray& other) : DeviceArray(other.elements()) {}
    DeviceArray& operator=(DeviceArray&&) = delete;
    DeviceArray& operator=(const DeviceArray&) = delete;
    ~DeviceArray() {
        if (data_ != nullptr) {
            try {
                expect_guarded();
            } catch (const std::exception& error) {
                ADD_FAILURE() << error.what();
            }
            give_back(data_);
        }
    }

    T* data() const { return data_; }
    std::size_t size() const { return size_; }

    std::vector<T> elements() const { return elements(0, size_); }
    std::vector<T> elements(std::size_t first, std::size_t count) const {
        std::vector<T> result(count);
        read(result.data(), data_ + first, count * sizeof(T));
        expect_guarded();
        return result;
    }
    void put(std::size_t first, std::span<const T> elements) {
        write(data_ + first, elements.data(), elements.size() * sizeof(T));
    }

    void expect_guarded() const {
        std::vector<std::byte> guards(guard_bytes());
        read(guards.data(), data_ + size_, guards.size());
        EXPECT_TRUE(std::all_of(guards.begin(), guards.end(), [](std::byte byte) {
            return byte == std::byte{0xff};
        })) << "written beyond the end";
    }

  private:
    std::size_t size_;
    T* data_ = nullptr;
};

/// Calls `compute`, which returns a vector, in every order of threads, and expects the same bytes
/// each time: what a kernel without races gives. Returns them.
template <class Compute>
auto in_every_order(Compute compute) {
    set_order(0);
    auto expected = compute();
    using Value = typename decltype(expected)::value_type;
    for (int order = 1; order < order_count(); ++order) {
        set_order(order);
        const auto found = compute();
        const bool equal =
            found.size() == expected.size() &&
            (found.empty() ||
             std::memcmp(found.data(), expected.data(), found.size() * sizeof(Value)) == 0);
        EXPECT_TRUE(equal) << "the order of threads shows: order " << order;
    }
    set_order(0);
    return expected;
}

}  // namespace pipetwin::cuda::test

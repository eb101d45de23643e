// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

namespace pipetwin::cuda {

/// Calls that wait to be made on a stream, with their arguments, as bytes: two lists with equal
/// bytes make equal calls. That is how a list finds the CUDA graph that was made of the same calls
/// a step ago.
///
///     list.add("gelu_forward", gelu_forward, Real::F32, n, x, y);   // and later
///     list.run(stream);                                             // gelu_forward(..., stream)
class CommandList {
  public:
    /// `function` takes a stream behind these arguments. They are kept by value and must be
    /// trivially copyable without padding; what they point to is used when the list runs.
    template <class... Parameters, class... Arguments>
    void add(const char* name,
             cudaError_t (*function)(Parameters...),
             const Arguments&... arguments) {
        static_assert(sizeof...(Parameters) == sizeof...(Arguments) + 1,
                      "every argument but the stream");
        add_packed(name,
                   function,
                   std::index_sequence_for<Arguments...>{},
                   std::tuple<const Arguments&...>(arguments...));
    }

    bool empty() const { return bytes_.empty(); }
    void clear() { bytes_.clear(); }
    /// Exchanges the calls of two lists.
    void swap(CommandList& other) noexcept { bytes_.swap(other.bytes_); }
    /// The calls as bytes: equal for lists that make equal calls.
    std::string_view bytes() const {
        return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
    }

    /// Makes all calls in order. Throws CudaFailure, naming the call, if one is refused. `made`
    /// counts those that were not.
    void run(cudaStream_t stream, std::size_t& made) const;

    /// Number of calls.
    std::size_t size() const;
    /// Names of the first `calls` calls, each name once, in order.
    std::vector<std::string_view> names(std::size_t calls) const;

  private:
    using Call = cudaError_t (*)(const std::byte* packed, cudaStream_t stream);
    struct Header {
        Call call;
        const char* name;
        std::size_t size;  ///< of the function and its arguments
    };

    /// Offsets of values that each begin at a multiple of 8 bytes; the last one is the end.
    template <class... Values>
    struct Layout {
        static constexpr std::array<std::size_t, sizeof...(Values) + 1> places = [] {
            constexpr std::array sizes{sizeof(Values)...};
            std::array<std::size_t, sizes.size() + 1> result{};
            for (std::size_t i = 0; i < sizes.size(); ++i) {
                result[i + 1] = (result[i] + sizes[i] + 7) / 8 * 8;
            }
            return result;
        }();
    };

    template <class Value>
    static Value read(const std::byte* from) {
        Value value;
        std::memcpy(&value, from, sizeof(Value));
        return value;
    }

    template <class... Parameters, std::size_t... i, class Tuple>
    void add_packed(const char* name,
                    cudaError_t (*function)(Parameters...),
                    std::index_sequence<i...> /*all but the stream*/,
                    const Tuple& arguments) {
        using Function = cudaError_t (*)(Parameters...);
        using Given = std::tuple<std::decay_t<Parameters>...>;
        using Places = Layout<Function, std::tuple_element_t<i, Given>...>;
        static_assert((std::is_trivially_copyable_v<std::tuple_element_t<i, Given>> && ...));
        const Call call = [](const std::byte* packed, cudaStream_t stream) {
            return read<Function>(packed)(
                read<std::tuple_element_t<i, Given>>(packed + Places::places[i + 1])..., stream);
        };
        std::byte* const packed = append({call, name, Places::places.back()});
        std::memcpy(packed, &function, sizeof(function));
        const auto put = [packed](std::size_t place, const auto& value) {
            std::memcpy(packed + place, &value, sizeof(value));
        };
        (put(Places::places[i + 1],
             static_cast<std::tuple_element_t<i, Given>>(std::get<i>(arguments))),
         ...);
    }

    /// f(header, where its function and arguments stand), until that returns false.
    template <class F>
    void for_each(F&& f) const {
        for (std::size_t at = 0; at < bytes_.size();) {
            const auto header = read<Header>(bytes_.data() + at);
            at += sizeof(Header);
            if (!f(header, bytes_.data() + at)) {
                return;
            }
            at += header.size;
        }
    }

    /// Room for `header.size` bytes behind it, all 0.
    std::byte* append(const Header& header);

    std::vector<std::byte> bytes_;
};

}  // namespace pipetwin::cuda

// SPDX-License-Identifier: Apache-2.0
#include "exec/cuda/runtime/command_list.h"

#include <algorithm>

#include "exec/cuda/runtime/check.h"

namespace pipetwin::cuda {

void CommandList::run(cudaStream_t stream, std::size_t& made) const {
    for_each([&](const Header& header, const std::byte* packed) {
        check_runtime(header.name, header.call(packed, stream));
        ++made;
        return true;
    });
}

std::size_t CommandList::size() const {
    std::size_t count = 0;
    for_each([&count](const Header&, const std::byte*) {
        ++count;
        return true;
    });
    return count;
}

std::vector<std::string_view> CommandList::names(std::size_t calls) const {
    std::vector<std::string_view> found;
    std::size_t seen = 0;
    for_each([&](const Header& header, const std::byte*) {
        if (seen++ == calls) {
            return false;
        }
        if (std::ranges::find(found, header.name) == found.end()) {
            found.emplace_back(header.name);
        }
        return true;
    });
    return found;
}

std::byte* CommandList::append(const Header& header) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(Header) + header.size);
    std::memcpy(bytes_.data() + at, &header, sizeof(Header));
    return bytes_.data() + at + sizeof(Header);
}

}  // namespace pipetwin::cuda

#include "exec/cuda/command_list.h"

#include "exec/cuda/check.h"

namespace pipetwin::cuda {

void CommandList::run(cudaStream_t stream) const {
    for (std::size_t at = 0; at < bytes_.size();) {
        const auto header = read<Header>(bytes_.data() + at);
        at += sizeof(Header);
        check_runtime(header.name, header.call(bytes_.data() + at, stream));
        at += header.size;
    }
}

std::byte* CommandList::append(const Header& header) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(Header) + header.size);
    std::memcpy(bytes_.data() + at, &header, sizeof(Header));
    return bytes_.data() + at + sizeof(Header);
}

}  // namespace pipetwin::cuda

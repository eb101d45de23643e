// SPDX-License-Identifier: Apache-2.0
#include "cli/base/memory_left.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>

namespace pipetwin::cli {

namespace {

std::optional<std::int64_t> number_at(std::string_view text) {
    std::int64_t value = 0;
    const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), value);
    return status == std::errc{} && rest != text.data() ? std::optional(value) : std::nullopt;
}

/// The first number of a file of the system; none where there is none, as in "max".
std::optional<std::int64_t> number_in(const std::string& file) {
    std::ifstream stream(file);
    std::string word;
    return stream >> word ? number_at(word) : std::nullopt;
}

/// Kilobytes behind a word of /proc/meminfo or /proc/self/status, in bytes.
std::optional<std::int64_t> bytes_behind(const std::string& file, std::string_view word) {
    std::ifstream stream(file);
    std::string line;
    while (std::getline(stream, line)) {
        if (line.starts_with(word)) {
            const std::string_view rest(line);
            const std::size_t digit = rest.find_first_of("0123456789");
            const auto kilobytes =
                digit == std::string_view::npos ? std::nullopt : number_at(rest.substr(digit));
            return kilobytes ? std::optional(*kilobytes * 1024) : std::nullopt;
        }
    }
    return std::nullopt;
}

/// What the limit of address space leaves.
std::optional<std::int64_t> left_of_limit() {
    rlimit limit{};
    const auto taken = bytes_behind("/proc/self/status", "VmSize:");
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || !taken) {
        return std::nullopt;
    }
    return static_cast<std::int64_t>(limit.rlim_cur) - *taken;
}

/// What the control group leaves, where its limit is visible in the place that containers have.
std::optional<std::int64_t> left_of_group() {
    for (const auto& [limit, taken] :
         {std::pair("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
          std::pair("/sys/fs/cgroup/memory/memory.limit_in_bytes",
                    "/sys/fs/cgroup/memory/memory.usage_in_bytes")}) {
        const auto most = number_in(limit);
        const auto now = number_in(taken);
        if (most && now) {
            return *most - *now;
        }
    }
    return std::nullopt;
}

}  // namespace

std::optional<Bytes> memory_left() {
    std::optional<std::int64_t> least;
    for (const std::optional<std::int64_t>& left :
         {left_of_limit(), left_of_group(), bytes_behind("/proc/meminfo", "MemAvailable:")}) {
        if (left) {
            least = std::min(least.value_or(*left), *left);
        }
    }
    return least ? std::optional(Bytes{std::max<std::int64_t>(*least, 0)}) : std::nullopt;
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "exec/base/divided_work.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <system_error>
#include <vector>

namespace pipetwin::exec {
namespace {

thread_local std::size_t threads_to_use = 1;

}  // namespace

WorkDivision::WorkDivision(std::size_t threads) : before_(threads_to_use) {
    threads_to_use = threads;
}

WorkDivision::~WorkDivision() {
    threads_to_use = before_;
}

void in_pieces(std::int64_t size,
               std::int64_t piece,
               const std::function<void(const ElementRange&)>& work) {
    std::atomic<std::int64_t> next = 0;
    const auto work_on_next = [&] {
        for (std::int64_t begin = next.fetch_add(piece); begin < size;
             begin = next.fetch_add(piece)) {
            work({.begin = begin, .size = std::min(piece, size - begin)});
        }
    };
    const std::int64_t pieces = (size + piece - 1) / piece;
    std::vector<std::future<void>> helpers;
    try {
        while (std::ssize(helpers) + 1 < pieces && helpers.size() + 1 < threads_to_use) {
            helpers.push_back(std::async(std::launch::async, work_on_next));
        }
    } catch (const std::system_error&) {  // NOLINT(bugprone-empty-catch)
        // The system has no thread left: those that there are do it all.
    }
    work_on_next();
    for (std::future<void>& helper : helpers) {
        helper.get();
    }
}

}  // namespace pipetwin::exec

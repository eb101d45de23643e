// SPDX-License-Identifier: Apache-2.0
#include "exec/base/retry.h"

#include <thread>

#include "core/text/open_file.h"

namespace pipetwin::exec {

void keep_trying(std::chrono::milliseconds patience,
                 const std::function<void()>& work,
                 const std::function<void(const Error&)>& tell) {
    constexpr std::chrono::milliseconds between{100};
    const auto end = Retry::Clock::now() + patience;
    for (bool first = true;; first = false) {
        try {
            return work();
        } catch (const LastingIoError&) {
            throw;
        } catch (const Error& error) {
            if (error.kind() != ErrorKind::Io || Retry::Clock::now() >= end) {
                throw;
            }
            if (first) {
                tell(error);
            }
        }
        std::this_thread::sleep_for(between);
    }
}

}  // namespace pipetwin::exec

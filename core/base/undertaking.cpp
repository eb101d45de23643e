#include "core/base/undertaking.h"

#include <exception>
#include <mutex>
#include <utility>

namespace pipetwin {

namespace {

std::mutex mutex;
FailedUndertaking failed;  ///< guarded by the mutex; of all threads

}  // namespace

Undertaking::Undertaking(std::string what, std::string remedy)
    : what_(std::move(what)), remedy_(std::move(remedy)), exceptions_(std::uncaught_exceptions()) {
    const std::lock_guard lock(mutex);
    failed = {};
}

Undertaking::~Undertaking() {
    if (std::uncaught_exceptions() == exceptions_) {
        return;
    }
    const std::lock_guard lock(mutex);
    if (failed.what.empty()) {  // moving takes no memory, of which there may be none
        failed.what = std::move(what_);
        failed.remedy = std::move(remedy_);
    }
}

FailedUndertaking take_failed_undertaking() {
    const std::lock_guard lock(mutex);
    return std::exchange(failed, {});
}

}  // namespace pipetwin

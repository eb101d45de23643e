// SPDX-License-Identifier: Apache-2.0
#include "core/base/undertaking.h"

#include <exception>
#include <utility>

namespace pipetwin {

namespace {

thread_local FailedUndertaking failed;

}  // namespace

Undertaking::Undertaking(std::string what, std::string remedy)
    : what_(std::move(what)), remedy_(std::move(remedy)), exceptions_(std::uncaught_exceptions()) {
    failed = {};
}

Undertaking::~Undertaking() {
    if (std::uncaught_exceptions() == exceptions_) {
        return;
    }
    if (failed.what.empty()) {  // moving takes no memory, of which there may be none
        failed.what = std::move(what_);
        failed.remedy = std::move(remedy_);
    }
}

FailedUndertaking take_failed_undertaking() {
    return std::exchange(failed, {});
}

}  // namespace pipetwin

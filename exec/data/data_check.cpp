// SPDX-License-Identifier: Apache-2.0
#include "exec/data/data_check.h"

#include <pthread.h>
#include <sched.h>

#include "core/scenario/scenario.h"

namespace pipetwin::exec {

DataCheck::DataCheck(const ScenarioParts& scenario, const Model& model) {
    const auto open = [&](DataUse use) {
        std::unique_ptr<DataSource> data = open_data(scenario, model, use);
        if (use == DataUse::Training) {
            notes_ = data->notes();
            text_pieces_ = data->text_pieces();
        }
        if (const std::size_t bytes = data->unchecked_bytes(); bytes > at_once) {
            sources_.push_back(std::move(data));
        } else if (bytes > 0) {
            data->check([] { return true; });
        }
    };
    open(DataUse::Training);
    if (scenario.training.validate_every > 0) {
        open(DataUse::Validation);
    }
}

void DataCheck::begin() {
    if (!sources_.empty() && !has_begun_) {
        thread_ = std::thread([this] { look(); });
    }
    has_begun_ = true;
}

void DataCheck::look() {
    const sched_param none{};
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &none);
    try {
        for (const std::unique_ptr<DataSource>& data : sources_) {
            data->check([this] { return !stops_; });
        }
    } catch (...) {
        const std::lock_guard lock(mutex_);
        found_ = std::current_exception();
    }
}

DataCheck::~DataCheck() {
    stops_ = true;
    if (thread_.joinable()) {
        thread_.join();
    }
}

void DataCheck::refuse_found() const {
    const std::lock_guard lock(mutex_);
    if (found_) {
        std::rethrow_exception(found_);
    }
}

void DataCheck::wait() {
    begin();
    if (thread_.joinable()) {
        thread_.join();
    }
}

}  // namespace pipetwin::exec

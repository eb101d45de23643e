// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <rapidcheck.h>
#include <rapidcheck/detail/TestListenerAdapter.h>

#include <sstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/soak.h"

namespace pipetwin::testing {

/// Has RapidCheck look for a case that breaks the relation; what it finds it makes as small as it
/// can. Unlike its own RC_GTEST_PROP, which listens to RC_PARAMS, this takes seed and number of
/// cases from tests/support/soak.h.
template <class Relation>
void expect_relation(int cases, Relation relation) {
    const ::testing::TestInfo& test = *::testing::UnitTest::GetInstance()->current_test_info();
    rc::detail::TestMetadata name;
    name.id = std::string(test.test_suite_name()) + "/" + test.name();
    rc::detail::TestParams params;
    params.seed = tests::seed();
    params.maxSuccess = tests::soaked(cases);
    rc::detail::TestListenerAdapter silent;
    const auto result = rc::detail::checkProperty(
        rc::detail::toProperty(std::move(relation)), name, params, silent, {});
    if (!result.template is<rc::detail::SuccessResult>()) {
        std::ostringstream text;
        rc::detail::printResultMessage(result, text);
        FAIL() << "seed " << params.seed << "\n" << text.str();
    }
}

}  // namespace pipetwin::testing

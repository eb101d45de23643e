// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace pipetwin {

/// A number that nlohmann's parser read, and as its file has it.
struct JsonNumber {
    double value = 0;
    std::string digits{};
};

/// The number behind what nlohmann's parser hands on as `value` and `token`. The parser reads with
/// the C library, and puts the decimal point of the locale into the token: under a German locale
/// "1.5" arrives as "1,5". The result is the same under every locale.
JsonNumber json_number(double value, const std::string& token);

}  // namespace pipetwin

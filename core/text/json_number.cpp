// SPDX-License-Identifier: Apache-2.0
#include "core/text/json_number.h"

#include <charconv>
#include <string_view>

namespace pipetwin {

JsonNumber json_number(double value, const std::string& token) {
    JsonNumber number{.value = value, .digits = token};
    const std::size_t foreign = number.digits.find_first_not_of("+-0123456789eE.");
    if (foreign == std::string::npos) {
        return number;
    }
    number.digits[foreign] = '.';
    double read = 0;
    const char* const end = number.digits.data() + number.digits.size();
    if (std::from_chars(number.digits.data(), end, read).ec == std::errc{}) {
        number.value = read;
    }
    return number;
}

}  // namespace pipetwin

#include "core/base/number_text.h"

#include <fmt/format.h>

namespace pipetwin {

std::string counted(std::int64_t count, std::string_view word) {
    const std::string_view plural = word.ends_with("ch") ? "es" : "s";
    return fmt::format("{} {}{}", count, word, count == 1 ? "" : plural);
}

std::string rounded_percent(double share) {
    return fmt::format("{:.1f} %", 100 * share);
}

}  // namespace pipetwin

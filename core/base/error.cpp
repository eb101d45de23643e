// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"

#include <fmt/format.h>

#include "core/base/printable.h"

namespace pipetwin {

namespace {

std::string join(const std::string& place, const std::string& text, const std::string& hint) {
    std::string whole = place.empty() ? text : fmt::format("{}: {}", place, text);
    if (!hint.empty()) {
        whole += "\nhint: " + hint;
    }
    return whole;
}

}  // namespace

Error::Error(ErrorKind kind, std::string place, std::string text, std::string hint)
    : std::runtime_error(join(printable(place), printable_lines(text), printable(hint))),
      kind_(kind),
      place_(printable(place)),
      text_(printable_lines(text)),
      hint_(printable(hint)) {}

Error Error::at(std::string_view outer) const {
    std::string place(outer);
    if (!place_.empty()) {
        place += ": " + place_;
    }
    return {kind_, std::move(place), text_, hint_};
}

void contract_broken(const char* condition,
                     std::string_view text,
                     const std::source_location& where) {
    const std::string_view path = where.file_name();
    throw InternalError(fmt::format("{}:{}: {} ({}); this is a bug in pipetwin",
                                    path.substr(path.rfind('/') + 1),
                                    where.line(),
                                    text,
                                    condition));
}

}  // namespace pipetwin

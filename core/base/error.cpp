// SPDX-License-Identifier: Apache-2.0
#include "core/base/error.h"

#include <utility>

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

std::string line_of_table(const KeyValue& setting) {
    return with_its_table({setting.key.substr(setting.key.rfind('.') + 1), setting.value});
}

std::string with_its_table(const KeyValue& setting) {
    return setting.value.empty() ? setting.key : fmt::format("{} = {}", setting.key, setting.value);
}

std::string Hint::text(std::string (*spell)(const KeyValue&)) const {
    std::string text;
    std::string_view rest = form;
    for (const KeyValue& setting : settings) {
        const std::size_t slot = rest.find("{}");
        if (slot == std::string_view::npos) {
            break;
        }
        text += fmt::format("{}{}", rest.substr(0, slot), spell(setting));
        rest.remove_prefix(slot + 2);
    }
    text += rest;
    if (!resume.empty()) {
        text += text.empty() ? resume : fmt::format("; {}", resume);
    }
    return printable(text);
}

Hint did_you_mean(std::string_view word) {
    Hint hint(fmt::format("did you mean '{}'?", word));
    hint.meant = word;
    return hint;
}

Error::Error(ErrorKind kind, std::string place, std::string text, Hint hint)
    : std::runtime_error(join(printable(place), printable_lines(text), hint.text())),
      kind_(kind),
      place_(printable(place)),
      text_(printable_lines(text)),
      hint_(std::move(hint)),
      hint_text_(hint_.text()) {}

Error::Error(ErrorKind kind, const KeyValue& subject, std::string text, Hint hint)
    : Error(kind, with_its_table(subject), std::move(text), std::move(hint)) {
    subject_ = subject;
}

Error Error::anew() const {
    Error error(kind_, place_, text_, hint_);
    error.reason_ = reason_;
    error.subject_ = subject_;
    error.is_placed_ = is_placed_;
    return error;
}

Error Error::at(std::string_view outer) const {
    Error error = *this;
    error.place_ = place_.empty() ? outer : fmt::format("{}: {}", outer, place_);
    return error.anew();
}

Error Error::about(std::string key) const {
    Error error = *this;
    error.subject_ = {std::move(key)};
    error.is_placed_ = false;
    return error;
}

Error Error::placed(std::string place) const {
    Error error = *this;
    error.place_ = std::move(place);
    error.is_placed_ = true;
    return error.anew();
}

Error Error::because(ErrorReason reason) const {
    Error error = *this;
    error.reason_ = reason;
    return error;
}

Error Error::with_kind(ErrorKind kind) const {
    Error error = *this;
    error.kind_ = kind;
    return error;
}

Error Error::with_text(std::string text) const {
    Error error = *this;
    error.text_ = std::move(text);
    return error.anew();
}

Error Error::with_hint(Hint hint) const {
    Error error = *this;
    error.hint_ = std::move(hint);
    return error.anew();
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

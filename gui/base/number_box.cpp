// SPDX-License-Identifier: Apache-2.0
#include "gui/base/number_box.h"

#include <charconv>
#include <optional>
#include <string>
#include <system_error>

#include <QKeyEvent>

namespace pipetwin::gui {

namespace {

/// The number between the prefix and the suffix of a box; none where there is anything else.
std::optional<double> number_between(const QString& prefix, QString text, const QString& suffix) {
    if (text.startsWith(prefix)) {
        text.remove(0, prefix.size());
    }
    if (text.endsWith(suffix)) {
        text.chop(suffix.size());
    }
    const std::string digits = text.trimmed().toStdString();
    const char* const end = digits.data() + digits.size();
    double number = 0;
    const auto [rest, failed] =
        std::from_chars(digits.data(), end, number, std::chars_format::fixed);
    return failed == std::errc() && rest == end ? std::optional(number) : std::nullopt;
}

/// Ctrl+Home, Ctrl+End and Ctrl+K are for texts of several lines.
bool is_for_long_texts(const QKeyEvent& key) {
    return key.modifiers() == Qt::ControlModifier &&
           (key.key() == Qt::Key_Home || key.key() == Qt::Key_End || key.key() == Qt::Key_K);
}

bool is_undo(const QKeyEvent& key) {
    return key.matches(QKeySequence::Undo) || key.matches(QKeySequence::Redo) ||
           (key.modifiers() == Qt::ControlModifier && key.key() == Qt::Key_Y);
}

}  // namespace

template <class Base>
QValidator::State TypedNumber<Base>::validate(QString& text, int& position) const {
    const QValidator::State state = Base::validate(text, position);
    const auto number = number_between(Base::prefix(), text, Base::suffix());
    return state == QValidator::Invalid && number && *number > Base::maximum()
               ? QValidator::Intermediate
               : state;
}

template <class Base>
void TypedNumber<Base>::fixup(QString& text) const {
    Base::fixup(text);
    const auto number = number_between(Base::prefix(), text, Base::suffix());
    if (number && *number > Base::maximum()) {
        text = Base::prefix() + textFromValue(Base::maximum()) + Base::suffix();
    } else if (number && *number < Base::minimum()) {
        text = Base::prefix() + textFromValue(Base::minimum()) + Base::suffix();
    }
}

/// Whether the text differs from that of the value: then it can be undone by itself.
template <class Base>
bool TypedNumber<Base>::is_being_typed() const {
    const bool is_special = Base::value() == Base::minimum() && !Base::specialValueText().isEmpty();
    return Base::text() != (is_special
                                ? Base::specialValueText()
                                : Base::prefix() + textFromValue(Base::value()) + Base::suffix());
}

template <class Base>
bool TypedNumber<Base>::event(QEvent* event) {
    if (event->type() == QEvent::ShortcutOverride) {
        const auto& key = static_cast<const QKeyEvent&>(*event);  // NOLINT: Qt says so by type()
        if (is_for_long_texts(key) || (is_undo(key) && !is_being_typed())) {
            event->ignore();
            return false;
        }
    }
    return Base::event(event);
}

template class TypedNumber<QSpinBox>;
template class TypedNumber<QDoubleSpinBox>;

}  // namespace pipetwin::gui

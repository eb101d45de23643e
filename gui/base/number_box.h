// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <QDoubleSpinBox>
#include <QSpinBox>

namespace pipetwin::gui {

/// A spin box that takes every number that is typed, and then shows the nearest one of its range. A
/// plain spin box refuses the digit with which a number would leave the range, so that 64 typed
/// into a box up to 32 becomes 6. Shortcuts that the line of a spin box would take though they do
/// nothing there, such as Ctrl+Home, reach the window.
template <class Base>
class TypedNumber : public Base {
  public:
    using Base::Base;
    using Base::textFromValue;

    QValidator::State validate(QString& text, int& position) const override;
    void fixup(QString& text) const override;

  protected:
    bool event(QEvent* event) override;

  private:
    bool is_being_typed() const;
};

extern template class TypedNumber<QSpinBox>;
extern template class TypedNumber<QDoubleSpinBox>;

using NumberBox = TypedNumber<QSpinBox>;
using DecimalBox = TypedNumber<QDoubleSpinBox>;

}  // namespace pipetwin::gui

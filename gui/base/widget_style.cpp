// SPDX-License-Identifier: Apache-2.0
#include "gui/base/widget_style.h"

#include <algorithm>

#include <QPainter>
#include <QPalette>
#include <QProxyStyle>
#include <QStyleFactory>
#include <QStyleOption>

#include "gui/base/palette.h"

namespace pipetwin::gui {
namespace {

/// Fusion's edges are `window.darker(140)`; with this window they are what they should be.
QPalette with_edges(const QPalette& colors) {
    constexpr int factor_of_fusion = 140;
    QPalette changed = colors;
    changed.setColor(QPalette::Window, edge_color(colors).lighter(factor_of_fusion));
    return changed;
}

/// Draws with a copy of the option that has other colours; false if the option is of another type.
template <class Option, class Draw>
bool drawn_as(const QStyleOption* option, const Draw& draw) {
    const auto* const own = qstyleoption_cast<const Option*>(option);
    if (own == nullptr) {
        return false;
    }
    Option changed(*own);
    changed.palette = with_edges(own->palette);
    draw(&changed);
    return true;
}

class WidgetStyle final : public QProxyStyle {
  public:
    WidgetStyle() : QProxyStyle(QStyleFactory::create(QStringLiteral("Fusion"))) {}

    void drawPrimitive(PrimitiveElement element,
                       const QStyleOption* option,
                       QPainter* painter,
                       const QWidget* widget) const override {
        const auto draw = [&](const QStyleOption* changed) {
            QProxyStyle::drawPrimitive(element, changed, painter, widget);
        };
        const bool is_button = element == PE_IndicatorCheckBox || element == PE_PanelButtonCommand;
        if (!(is_button && drawn_as<QStyleOptionButton>(option, draw)) &&
            !(element == PE_FrameLineEdit && drawn_as<QStyleOptionFrame>(option, draw))) {
            draw(option);
        }
    }

    /// A menu is as high as a button with the same font, so that it is on one line with the buttons
    /// in the corner of its bar.
    QSize sizeFromContents(ContentsType type,
                           const QStyleOption* option,
                           const QSize& contents,
                           const QWidget* widget) const override {
        QSize size = QProxyStyle::sizeFromContents(type, option, contents, widget);
        if (type == CT_MenuBarItem) {
            const QStyleOptionToolButton button;
            const QSize text(0, option->fontMetrics.height());
            const QSize other =
                QProxyStyle::sizeFromContents(CT_ToolButton, &button, text, nullptr);
            size.setHeight(std::max(size.height(), other.height()));
        }
        return size;
    }

    /// Fusion draws a line below each menu, also above that of a bar which is higher.
    void drawControl(ControlElement element,
                     const QStyleOption* option,
                     QPainter* painter,
                     const QWidget* widget) const override {
        const bool is_menu = element == CE_MenuBarItem && widget != nullptr &&
                             option->rect.bottom() < widget->rect().bottom();
        if (is_menu) {
            painter->save();
            painter->setClipRect(option->rect.adjusted(0, 0, 0, -1), Qt::IntersectClip);
        }
        QProxyStyle::drawControl(element, option, painter, widget);
        if (is_menu) {
            painter->restore();
        }
    }

    void drawComplexControl(ComplexControl control,
                            const QStyleOptionComplex* option,
                            QPainter* painter,
                            const QWidget* widget) const override {
        const auto draw = [&](const QStyleOptionComplex* changed) {
            QProxyStyle::drawComplexControl(control, changed, painter, widget);
        };
        if (!(control == CC_Slider && drawn_as<QStyleOptionSlider>(option, draw)) &&
            !(control == CC_SpinBox && drawn_as<QStyleOptionSpinBox>(option, draw))) {
            draw(option);  // a combo box is a button with an arrow
        }
    }
};

}  // namespace

QStyle* make_widget_style() {
    return new WidgetStyle;  // NOLINT(cppcoreguidelines-owning-memory): Qt's way
}

}  // namespace pipetwin::gui

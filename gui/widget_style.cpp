#include "gui/widget_style.h"

#include <algorithm>

#include <QPalette>
#include <QProxyStyle>
#include <QStyleFactory>
#include <QStyleOption>

#include "gui/palette.h"

namespace pipetwin::gui {
namespace {

/// Fusion's edges are `window.darker(140)`; with this window they are what they should be.
QPalette with_edges(const QPalette& colors) {
    constexpr int factor_of_fusion = 140;
    QPalette changed = colors;
    changed.setColor(QPalette::Window, edge_color(colors).lighter(factor_of_fusion));
    return changed;
}

/// A copy of the option, if it is one of those, with other colours.
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

QColor edge_color(const QPalette& colors) {
    constexpr double wanted = 3.05;  // what is painted is rounded
    constexpr int lighter = 110;     // as Fusion paints those of boxes
    const QColor window = colors.color(QPalette::Window);
    const QColor text = colors.color(QPalette::WindowText);
    const auto stands_out = [&](const QColor& edge) {
        return std::min(contrast_ratio(edge, window),
                        contrast_ratio(edge, colors.color(QPalette::Base))) >= wanted;
    };
    QColor edge = text;
    for (int percent = 100; percent > 0; --percent) {
        const QColor paler = mixed(window, text, percent / 100.0);
        if (!stands_out(paler) || !stands_out(paler.lighter(lighter))) {
            break;
        }
        edge = paler;
    }
    return edge;
}

}  // namespace pipetwin::gui

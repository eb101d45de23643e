// SPDX-License-Identifier: Apache-2.0
#include "gui/timeline/timeline_view.h"

#include <cmath>

#include <QApplication>
#include <QMouseEvent>
#include <QNativeGestureEvent>
#include <QPointingDevice>
#include <QScrollBar>
#include <QSignalSpy>
#include <QTest>
#include <QWheelEvent>
#include <gtest/gtest.h>

#include "tests/gui/canned.h"
#include "tests/gui/planned.h"

namespace pipetwin::gui {
namespace timeline_view_test {

const Action f1_of_0{.op = Op::Forward, .stage = 0, .micro_batch = 1};
const Action b2_of_1{.op = Op::Backward, .stage = 1, .micro_batch = 2};

class TimelineViewTest : public ::testing::Test {
  protected:
    TimelineViewTest() {
        view_.resize(1000, 420);
        view_.show_run(shared_);
        view_.show();
    }

    SpanRef find_span(Side side, const Action& action) const { return find(run_, side, action); }

    void click(QPoint at) { QTest::mouseClick(view_.viewport(), Qt::LeftButton, {}, at); }

    void wheel(QPoint at, int delta, Qt::KeyboardModifiers modifiers = Qt::NoModifier) {
        const QPointF position(at);
        QWheelEvent event(position,
                          view_.viewport()->mapToGlobal(position),
                          QPoint(),
                          QPoint(0, delta),
                          Qt::NoButton,
                          modifiers,
                          Qt::NoScrollPhase,
                          false);
        QApplication::sendEvent(view_.viewport(), &event);
    }

    void drag(QPoint from,
              QPoint to,
              Qt::MouseButton button = Qt::LeftButton,
              Qt::KeyboardModifiers modifiers = Qt::NoModifier) {
        QTest::mousePress(view_.viewport(), button, modifiers, from);
        for (const QPointF at : {QPointF(from + to) / 2, QPointF(to)}) {
            // QTest::mouseMove moves the cursor of the screen, which an off-screen one does not
            // report.
            QMouseEvent move(QEvent::MouseMove,
                             at,
                             view_.viewport()->mapToGlobal(at),
                             Qt::NoButton,
                             button,
                             modifiers);
            QApplication::sendEvent(view_.viewport(), &move);
        }
        QTest::mouseRelease(view_.viewport(), button, modifiers, to);
    }

    QImage picture() { return view_.viewport()->grab().toImage(); }

    static std::shared_ptr<const RunData> shared(RunData run) {
        return std::make_shared<const RunData>(std::move(run));
    }

    std::shared_ptr<const RunData> shared_ =
        shared(canned_run({.ranks = 2, .micro_batches = 3, .jitter = 0.1}));
    const RunData& run_ = *shared_;
    Selection selection_;
    TimelineView view_{&selection_};
};

TEST_F(TimelineViewTest, ShowsTheWholeRunAtFirst) {
    const ViewTransform& shown = view_.transform();
    EXPECT_LT(shown.origin, Duration{0});
    EXPECT_GT(shown.time_at(view_.viewport()->width()), run_.twin.length(0));
}

TEST_F(TimelineViewTest, KeepsShowingTheWholeRunWhenResized) {
    view_.resize(600, 420);
    const QRect last = view_.place_of(find_span(Side::Predicted, {.op = Op::Optimizer}));
    EXPECT_LT(last.right(), view_.viewport()->width());
    view_.zoom(2);
    const double scale = view_.transform().ns_per_pixel;
    view_.resize(900, 420);
    EXPECT_DOUBLE_EQ(view_.transform().ns_per_pixel, scale);
}

TEST_F(TimelineViewTest, PaintsAnActionInTheColourOfItsKindWithItsLetter) {
    const QRect place = view_.place_of(find_span(Side::Predicted, f1_of_0));
    const OpStyle style = palette_of(Theme::Light).style(Op::Forward);
    const QImage image = picture();
    EXPECT_EQ(image.pixelColor(place.left() + 3, place.top() + 3), style.fill);
    bool text = false;
    for (int x = place.left(); x < place.right() - 1; ++x) {
        text = text || image.pixelColor(x, place.center().y()).lightness() > 200;
    }
    EXPECT_TRUE(text);
}

TEST_F(TimelineViewTest, PaintsPredictedAboveMeasured) {
    const QRect predicted = view_.place_of(find_span(Side::Predicted, f1_of_0));
    const QRect measured = view_.place_of(find_span(Side::Measured, f1_of_0));
    EXPECT_LT(predicted.bottom(), measured.top());
    EXPECT_EQ(predicted.height(), measured.height());
}

TEST_F(TimelineViewTest, HatchesWaits) {
    const Action wait{.op = Op::RecvBackward, .stage = 0, .micro_batch = 2};
    const QRect place = view_.place_of(find_span(Side::Predicted, wait));
    const Palette palette = palette_of(Theme::Light);
    const QImage image = picture().copy(place.adjusted(2, 2, -2, -2));
    int fill = 0;
    int hatch = 0;
    for (int x = 0; x < image.width(); ++x) {
        fill += image.pixelColor(x, 1) == palette.idle_fill ? 1 : 0;
        hatch += image.pixelColor(x, 1) == palette.idle_hatch ? 1 : 0;
    }
    EXPECT_GT(fill, 0);
    EXPECT_GT(hatch, 0);
}

TEST_F(TimelineViewTest, AClickSelectsAndAClickBesideClears) {
    const QSignalSpy changed(&selection_, &Selection::span_changed);
    const SpanRef wanted = find_span(Side::Measured, b2_of_1);
    click(view_.place_of(wanted).center());
    EXPECT_EQ(selection_.span(), wanted);
    click(QPoint(view_.place_of(wanted).center().x(), view_.viewport()->height() - 3));
    EXPECT_EQ(selection_.span(), std::nullopt);
    EXPECT_EQ(changed.count(), 2);
}

TEST_F(TimelineViewTest, ControlAndTheWheelZoomAtTheCursor) {
    const SpanRef ref = find_span(Side::Predicted, f1_of_0);
    const QPoint at = view_.place_of(ref).center();
    const double before = view_.transform().ns_per_pixel;
    wheel(at, 240, Qt::ControlModifier);
    EXPECT_NEAR(view_.transform().ns_per_pixel, before / 1.44, before * 1e-6);
    EXPECT_NEAR(view_.place_of(ref).center().x(), at.x(), 1);
    wheel(at, -240, Qt::ControlModifier);
    EXPECT_NEAR(view_.transform().ns_per_pixel, before, before * 1e-6);
}

TEST_F(TimelineViewTest, ShiftAndTheWheelPan) {
    view_.zoom(4);
    const ViewTransform before = view_.transform();
    wheel({600, 100}, -120, Qt::ShiftModifier);
    EXPECT_GT(view_.transform().origin, before.origin);
    EXPECT_EQ(view_.transform().ns_per_pixel, before.ns_per_pixel);
}

TEST_F(TimelineViewTest, PinchingZoomsAtTheMouse) {
    const SpanRef ref = find_span(Side::Predicted, f1_of_0);
    const QPointF at = view_.place_of(ref).center();
    const double before = view_.transform().ns_per_pixel;
    QMouseEvent move(QEvent::MouseMove,
                     at,
                     view_.viewport()->mapToGlobal(at),
                     Qt::NoButton,
                     Qt::NoButton,
                     Qt::NoModifier);
    QApplication::sendEvent(view_.viewport(), &move);
    QNativeGestureEvent pinch(Qt::ZoomNativeGesture,
                              QPointingDevice::primaryPointingDevice(),
                              2,
                              at,
                              at,
                              view_.viewport()->mapToGlobal(at),
                              0.25,
                              {});
    QApplication::sendEvent(view_.viewport(), &pinch);
    EXPECT_NEAR(view_.transform().ns_per_pixel, before / 1.25, before * 1e-6);
    EXPECT_NEAR(view_.place_of(ref).center().x(), at.x(), 1);
}

/// Rank 1 ends its work before rank 0: behind it there is no action to select.
TEST_F(TimelineViewTest, AClickBehindTheLastActionOfARankAsksForItsWait) {
    const SpanRef last = find_span(Side::Predicted, {.op = Op::Optimizer, .stage = 1});
    const QRect end = view_.place_of(find_span(Side::Predicted, {.op = Op::Optimizer}));
    QSignalSpy asked(&view_, &TimelineView::end_of_step_clicked);
    selection_.set_span(last);
    click(QPoint((view_.place_of(last).right() + end.right()) / 2,
                 view_.place_of(last).center().y()));
    EXPECT_FALSE(selection_.span());
    ASSERT_EQ(asked.count(), 1);
    const auto of = asked.front().front().value<SpanRef>();
    EXPECT_EQ(of.rank, 1);
    EXPECT_EQ(of.cell, run_.twin.row(last)->size());
    EXPECT_EQ(view_.scene().overlay.end, of) << "it had no frame";
    const QRect frame = view_.place_of(of);
    EXPECT_EQ(frame.top(), view_.place_of(last).top());
    EXPECT_NEAR(frame.left(), view_.place_of(last).right(), 1);
    EXPECT_NEAR(frame.right(), end.right(), 1);
    click(view_.place_of(last).center());
    EXPECT_EQ(view_.scene().overlay.end, std::nullopt);
}

TEST_F(TimelineViewTest, AClickOnTheNameOfARankFoldsIt) {
    const QRect row = view_.place_of(find_span(Side::Measured, b2_of_1));
    click(QPoint(10, row.center().y()));
    EXPECT_TRUE(view_.tracks()[1].folded);
    EXPECT_FALSE(view_.tracks()[0].folded);
    EXPECT_EQ(selection_.span(), std::nullopt);
    click(QPoint(10, view_.place_of(find_span(Side::Measured, b2_of_1)).center().y()));
    EXPECT_FALSE(view_.tracks()[1].folded);
}

TEST_F(TimelineViewTest, DraggingWithTheMiddleButtonPansAndSelectsNothing) {
    view_.zoom(4);
    view_.pan(0.1);
    const SpanRef ref = find_span(Side::Predicted, {.op = Op::Backward, .micro_batch = 2});
    const int before = view_.place_of(ref).x();
    drag({700, 100}, {640, 100}, Qt::MiddleButton);
    EXPECT_EQ(view_.place_of(ref).x(), before - 60);
    EXPECT_EQ(selection_.span(), std::nullopt);
    EXPECT_EQ(selection_.range(), std::nullopt);
}

TEST_F(TimelineViewTest, DraggingSelectsARangeWhicheverWay) {
    const int left = view_.scene().label_width;
    const auto time_at = [&](int x) { return view_.transform().time_at(x - left); };
    for (const auto& [from, to] : {std::pair{500, 700}, {700, 500}}) {
        drag({from, 100}, {to, 100});
        ASSERT_TRUE(selection_.range());
        EXPECT_EQ(selection_.range()->begin, time_at(500));
        EXPECT_EQ(selection_.range()->end, time_at(700));
    }
    EXPECT_EQ(selection_.span(), std::nullopt);
}

TEST_F(TimelineViewTest, DraggingWithControlMeasures) {
    drag({500, 100}, {700, 100}, Qt::LeftButton, Qt::ControlModifier);
    ASSERT_TRUE(view_.scene().overlay.ruler);
    EXPECT_EQ(selection_.range(), std::nullopt);
    view_.clear();
    EXPECT_FALSE(view_.scene().overlay.ruler);
}

TEST_F(TimelineViewTest, FitSelectionFillsTheWindowWithIt) {
    const SpanRef ref = find_span(Side::Measured, b2_of_1);
    view_.go_to(ref);
    view_.centre_or_fit_selection();
    view_.centre_or_fit_selection();
    EXPECT_GT(view_.place_of(ref).width(), 0.7 * view_.viewport()->width());
    view_.show_whole_run();
    EXPECT_LT(view_.place_of(ref).width(), 0.3 * view_.viewport()->width());
}

TEST_F(TimelineViewTest, FitWithoutASelectionShowsTheWholeRun) {
    const ViewTransform whole = view_.transform();
    view_.zoom(7);
    view_.centre_or_fit_selection();
    EXPECT_EQ(view_.transform(), whole);
}

TEST_F(TimelineViewTest, AnotherRunInTheSamePlaceLeavesWhatIsSeen) {
    const auto run = [](int steps) { return shared(canned_run({.jitter = 0.1, .steps = steps})); };
    view_.show_run(run(4));
    view_.show_step(3);
    view_.update_run(run(5));
    EXPECT_EQ(view_.current_step(), 3);
    view_.update_run(run(1));
    EXPECT_EQ(view_.current_step(), 0);
    view_.update_run(run(5));
    EXPECT_EQ(view_.current_step(), view_.scene().run->main_step());
    view_.show_whole_run();
    view_.update_run(run(6));
    EXPECT_GT(view_.transform().x_of(view_.scene().places.length()),
              0.9 * view_.scene().time_width());
    view_.go_to(find(*view_.scene().run, Side::Measured, b2_of_1));
    view_.centre_or_fit_selection();
    view_.centre_or_fit_selection();
    const ViewTransform fitted = view_.transform();
    view_.update_run(run(6));
    EXPECT_EQ(view_.transform(), fitted);
    view_.show_run(nullptr);
}

TEST_F(TimelineViewTest, NoKeyLosesTheRun) {
    for (int i = 0; i < 60; ++i) {
        view_.zoom(1.5);
        view_.pan(1);
    }
    EXPECT_GE(view_.transform().ns_per_pixel, 1);
    for (int i = 0; i < 60; ++i) {
        view_.zoom(1 / 1.5);
        view_.pan(-1);
    }
    const Duration middle = view_.transform().time_at(view_.viewport()->width() / 2.0);
    EXPECT_LE(middle, run_.twin.length(0));
    picture();
}

TEST_F(TimelineViewTest, SteppingBringsTheSelectionIntoSight) {
    view_.go_to(find_span(Side::Predicted, f1_of_0));
    view_.centre_or_fit_selection();
    for (int i = 0; i < 4; ++i) {
        view_.select_next(+1);
    }
    const QRect place = view_.place_of(*selection_.span());
    EXPECT_GT(place.right(), 0);
    EXPECT_LT(place.left(), view_.viewport()->width());
}

TEST_F(TimelineViewTest, TheFirstStepSelectsTheFirstAction) {
    view_.select_next(+1);
    ASSERT_TRUE(selection_.span());
    EXPECT_EQ(to_string(run_.twin.span(*selection_.span())->action), "0F0");
    view_.select_in_next_row(+1);
    EXPECT_EQ(selection_.span()->side, Side::Measured);
}

TEST_F(TimelineViewTest, SwapGoesToTheTwinAndBack) {
    const SpanRef ref = find_span(Side::Predicted, f1_of_0);
    view_.go_to(ref);
    view_.swap_to_twin();
    EXPECT_EQ(selection_.span(), find_span(Side::Measured, f1_of_0));
    view_.swap_to_twin();
    EXPECT_EQ(selection_.span(), ref);
}

TEST_F(TimelineViewTest, SwapShowsTheSideItGoesTo) {
    view_.go_to(find_span(Side::Predicted, f1_of_0));
    view_.set_mode(Mode::Predicted);
    view_.swap_to_twin();
    EXPECT_EQ(view_.mode(), Mode::Measured);
    EXPECT_EQ(selection_.span(), find_span(Side::Measured, f1_of_0));
}

TEST_F(TimelineViewTest, HidingASideMovesTheSelectionToItsTwin) {
    view_.go_to(find_span(Side::Predicted, f1_of_0));
    view_.set_mode(Mode::Measured);
    EXPECT_EQ(selection_.span(), find_span(Side::Measured, f1_of_0));
    EXPECT_TRUE(view_.place_of(find_span(Side::Predicted, f1_of_0)).isEmpty());
}

TEST_F(TimelineViewTest, ManyRanksScroll) {
    const auto shared_many = shared(canned_run({.ranks = 24, .micro_batches = 4}));
    const RunData& many = *shared_many;
    view_.show_run(shared_many);
    EXPECT_GT(view_.verticalScrollBar()->maximum(), 0);
    const SpanRef last = find(many, Side::Measured, {.op = Op::Forward, .stage = 23});
    EXPECT_GT(view_.place_of(last).top(), view_.viewport()->height());
    view_.go_to(last);
    EXPECT_LE(view_.place_of(last).bottom(), view_.viewport()->height());
    view_.show_run(nullptr);
}

TEST_F(TimelineViewTest, TheWheelScrollsTheRanks) {
    const auto shared_many = shared(canned_run({.ranks = 24, .micro_batches = 4}));
    view_.show_run(shared_many);
    const ViewTransform before = view_.transform();
    wheel({20, 200}, -240);
    EXPECT_GT(view_.verticalScrollBar()->value(), 0);
    EXPECT_EQ(view_.transform(), before);
    view_.show_run(nullptr);
}

TEST_F(TimelineViewTest, WithoutARunEveryKeyIsHarmless) {
    view_.show_run(nullptr);
    view_.zoom(2);
    view_.pan(1);
    view_.select_next(1);
    view_.select_in_next_row(1);
    view_.swap_to_twin();
    view_.centre_or_fit_selection();
    view_.show_whole_run();
    view_.set_mode(Mode::Measured);
    click({200, 100});
    wheel({200, 100}, 120);
    EXPECT_EQ(selection_.span(), std::nullopt);
    EXPECT_FALSE(picture().isNull());
}

TEST_F(TimelineViewTest, ASideThatIsMissingLeavesOnlyTheOther) {
    RunData alone = canned_run();
    alone.twin.measured.clear();
    alone.measured.reset();
    alone.comparison.reset();
    view_.show_run(shared(std::move(alone)));
    view_.select_next(+1);
    view_.swap_to_twin();
    EXPECT_EQ(selection_.span()->side, Side::Predicted);
    EXPECT_FALSE(picture().isNull());
    view_.show_run(nullptr);
}

TEST_F(TimelineViewTest, TellsAScreenReaderWhatIsSelected) {
    EXPECT_TRUE(view_.accessibleName().contains("nothing selected"));
    view_.go_to(find_span(Side::Measured, b2_of_1));
    EXPECT_TRUE(view_.accessibleName().contains("1B2"));
    EXPECT_TRUE(view_.accessibleName().contains("micro-batch 2"));
    EXPECT_TRUE(view_.accessibleName().contains("measured"));
}

TEST_F(TimelineViewTest, TheDarkThemePaintsADarkGround) {
    view_.set_colors(palette_of(Theme::Dark));
    const QImage image = picture();
    const QPoint corner(image.width() - 2, image.height() - 2);
    EXPECT_LT(image.pixelColor(corner).lightness(), 60);
}

TEST_F(TimelineViewTest, AnActionThatIsTooNarrowToBeReadIsShownFromNear) {
    const auto run = std::make_shared<const RunData>(canned_run({.micro_batches = 300}));
    view_.show_run(run);
    const SpanRef b2 = find(*run, Side::Measured, b2_of_1);
    const ViewTransform far = view_.transform();
    ASSERT_LT(view_.place_of(b2).width(), 24);
    view_.go_to(b2);
    EXPECT_EQ(view_.transform(), far) << "steps from action to action leave it";
    view_.show_action(b2);
    const QRect place = view_.place_of(b2);
    EXPECT_GE(place.width(), 24);
    EXPECT_GT(place.left(), view_.scene().label_width);
    EXPECT_LT(place.right(), view_.width());
    const ViewTransform near = view_.transform();
    view_.show_action(b2);
    EXPECT_EQ(view_.transform(), near) << "once it can be read nothing moves";
    view_.go_back();
    EXPECT_EQ(view_.transform(), far);
}

/// How many pixels of a column of the ruler differ between two pictures.
int differences(const QImage& a, const QImage& b, int left, int right, int height) {
    int count = 0;
    for (int x = left; x < right; ++x) {
        for (int y = 0; y < height; ++y) {
            count += a.pixel(x, y) != b.pixel(x, y) ? 1 : 0;
        }
    }
    return count;
}

TEST_F(TimelineViewTest, TimesOfTheAxisGiveWayToTheTimeAtTheMouse) {
    const QImage without = view_.viewport()->grab().toImage();
    const int ruler = view_.scene().ruler_height;
    // Beside every place of the chip the ruler is either as it was, or a time of the axis is gone
    // whole: then some of its pixels lie outside the chip and differ.
    bool any_gave_way = false;
    for (int x = view_.scene().label_width + 60; x < view_.viewport()->width() - 60; x += 7) {
        QMouseEvent move(QEvent::MouseMove,
                         QPointF(x, ruler + 5),
                         view_.viewport()->mapToGlobal(QPointF(x, ruler + 5)),
                         Qt::NoButton,
                         Qt::NoButton,
                         Qt::NoModifier);
        QApplication::sendEvent(view_.viewport(), &move);
        const QImage with = view_.viewport()->grab().toImage();
        any_gave_way = any_gave_way || differences(without, with, x + 52, x + 110, ruler - 9) > 0;
    }
    EXPECT_TRUE(any_gave_way);
}

/// Pixels of a colour within a rectangle.
int pixels_of(const QImage& image, const QRect& within, const QColor& color) {
    int count = 0;
    const QRect seen = within.intersected(image.rect());
    for (int y = seen.top(); y <= seen.bottom(); ++y) {
        for (int x = seen.left(); x <= seen.right(); ++x) {
            count += image.pixelColor(x, y) == color ? 1 : 0;
        }
    }
    return count;
}

TEST_F(TimelineViewTest, DrawsTheArcsOfSkipMessagesUnlessToldNotTo) {
    view_.show_run(run_with_skips(4));
    const std::size_t arcs = view_.scene().overlay.skips.size();
    EXPECT_EQ(arcs, 2U * 4 * 4) << "two outputs and their gradients, four times, on both sides";
    const QImage with = picture();
    view_.set_skips(false);
    EXPECT_TRUE(view_.scene().overlay.skips.empty());
    const QImage without = picture();
    EXPECT_NE(with, without);
    view_.set_skips(true);
    EXPECT_EQ(picture(), with);
    view_.show_run(shared_);
    const QImage canned = picture();
    view_.set_skips(false);
    EXPECT_EQ(picture(), canned) << "a run without them looks alike";
}

TEST_F(TimelineViewTest, FarAwayThereAreNoArcs) {
    view_.show_run(run_with_skips(4));
    const std::size_t all = view_.scene().overlay.skips.size();
    view_.resize(360, 420);
    view_.zoom(0.2);
    EXPECT_TRUE(view_.scene().overlay.skips.empty());
    view_.resize(1000, 420);
    view_.show_whole_run();
    EXPECT_EQ(view_.scene().overlay.skips.size(), all);
}

TEST_F(TimelineViewTest, TheSelectionOfASkipMessageOutlinesItsOtherEnd) {
    view_.show_run(run_with_skips(4));
    view_.set_skips(false);  // the arc of the selection is drawn all the same
    const RunData& run = *view_.scene().run;
    const SpanRef send =
        find(run, Side::Predicted, {.op = Op::SendForward, .stage = 0, .micro_batch = 1, .hop = 2});
    const SpanRef receive =
        find(run, Side::Predicted, {.op = Op::RecvForward, .stage = 3, .micro_batch = 1, .hop = 2});
    const QRect around = view_.place_of(receive).adjusted(-2, -2, 2, 2);
    const QColor color = palette_of(Theme::Light).selection;
    const int before = pixels_of(picture(), around, color);
    for (const auto& [selected, other] : {std::pair{send, receive}, std::pair{receive, send}}) {
        selection_.set_span(selected);
        EXPECT_EQ(view_.scene().other_end, other);
    }
    selection_.set_span(send);
    EXPECT_GT(pixels_of(picture(), around, color), before + 8);
    selection_.set_span(find(run, Side::Predicted, f1_of_0));
    EXPECT_EQ(view_.scene().other_end, std::nullopt);
    selection_.set_span(
        find(run, Side::Predicted, {.op = Op::SendForward, .stage = 0, .micro_batch = 1}));
    EXPECT_EQ(view_.scene().other_end, std::nullopt) << "neighbours have no arcs";
}

TEST_F(TimelineViewTest, MovesToWhereItIsToldSoThatTheEyeCanFollow) {
    view_.zoom(3);
    view_.pan(0.2);
    const ViewTransform there = view_.transform();
    view_.show_whole_run();
    const ViewTransform whole = view_.transform();
    view_.set_animated(true);
    view_.zoom(3);
    EXPECT_EQ(view_.transform(), whole) << "it has just set out";
    view_.pan(0.2);  // on the way: counts from where the first would have come to
    EXPECT_EQ(view_.destination(), there);
    int pictures = 0;
    QObject::connect(&view_, &TimelineView::view_changed, [&] {
        ++pictures;
        EXPECT_LE(view_.transform().ns_per_pixel, whole.ns_per_pixel);
        EXPECT_GE(view_.transform().ns_per_pixel, there.ns_per_pixel);
    });
    ASSERT_TRUE(QTest::qWaitFor([&] { return view_.transform() == there; }));
    EXPECT_GT(pictures, 1);
    view_.show_whole_run();
    EXPECT_EQ(view_.destination(), whole);
    view_.go_back();
    EXPECT_EQ(view_.destination(), there);
    view_.show_exactly({.begin = Duration{0}, .end = view_.scene().places.length()});
    EXPECT_EQ(view_.transform(), view_.destination()) << "what is dragged is there at once";
}

}  // namespace timeline_view_test
}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#include "gui/panels/why_panel.h"

#include <random>
#include <regex>

#include <QAbstractItemModelTester>
#include <QLabel>
#include <QPushButton>
#include <QSignalSpy>
#include <QTest>
#include <QTreeView>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/base/short_number.h"
#include "core/plan/plain_plan.h"
#include "core/schedule/generators/generate.h"
#include "gui/view/analysis/wait_words.h"
#include "sim/simulate/simulate.h"
#include "tests/gui/canned.h"
#include "tests/gui/planned.h"
#include "tests/support/plain_plan.h"

namespace pipetwin::gui {
namespace why_panel_test {

using std::chrono::microseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(Percents, AddUpToTheWhole) {
    using ::testing::ElementsAre;
    const auto of = [](std::vector<int> parts, int whole) {
        std::vector<Duration> times;
        for (const int part : parts) {
            times.emplace_back(part);
        }
        return percents(times, Duration(whole));
    };
    EXPECT_THAT(of({1, 1, 1}, 3), ElementsAre(34, 33, 33));
    EXPECT_THAT(of({665, 165, 170}, 1000), ElementsAre(67, 16, 17));
    EXPECT_THAT(of({5, 995}, 1000), ElementsAre(1, 99));  // each alone would be rounded up
    EXPECT_THAT(of({25, 25}, 100), ElementsAre(25, 25));  // and half is not explained
    EXPECT_THAT(of({0, 0}, 0), ElementsAre(0, 0));
}

/// GPipe on two ranks, three micro-batches: F 1 ms, B 2 ms, a message takes 0.25 ms.
Plan small_plan() {
    PlainCosts costs = pipetwin::testing::plain(ScheduleKind::GPipe, 2, 3);
    costs.link.latency = microseconds(250);
    return make_plan(costs);
}

class WhyPanelTest : public ::testing::Test {
  protected:
    WhyPanelTest() {
        panel_.resize(900, 300);
        panel_.show();
        show_run(planned_run(small_plan(), {jittered_step(small_plan(), random_)}));
    }

    void show_run(const std::shared_ptr<const RunData>& run) {
        run_ = run;
        QSignalSpy settled(&panel_, &WhyPanel::settled);
        panel_.show_run(run);
        wait(settled);
    }

    void select(const std::optional<SpanRef>& ref) {
        if (ref == selection_.span()) {
            return;
        }
        QSignalSpy settled(&panel_, &WhyPanel::settled);
        selection_.set_span(ref);
        wait(settled);
    }

    static void wait(QSignalSpy& spy) {
        if (spy.isEmpty()) {
            ASSERT_TRUE(spy.wait(20'000));
        }
    }

    SpanRef ref(Side side, Op op, int stage, int micro_batch) const {
        return find(*run_, side, {.op = op, .stage = stage, .micro_batch = micro_batch});
    }

    std::string selected() const {
        return selection_.span() ? to_string(run_->twin.span(*selection_.span())->action) : "";
    }

    std::string said() const {
        QStringList texts;
        for (const QLabel* const label : panel_.findChildren<QLabel*>()) {
            texts += label->isVisible() ? label->text().replace(QChar::Nbsp, ' ') : QString();
        }
        return texts.join('\n').toStdString();
    }

    QTreeView* view() const { return panel_.findChild<QTreeView*>(); }
    QString cell(int row, int column) const {
        return view()->model()->index(row, column).data().toString();
    }

    std::mt19937 random_{11};
    std::shared_ptr<const RunData> run_;
    Selection selection_;
    WhyPanel panel_{&selection_};
};

TEST_F(WhyPanelTest, SaysInOneSentenceWhatTheSelectedActionWaitedFor) {
    select(ref(Side::Predicted, Op::Forward, 1, 0));
    EXPECT_THAT(said(),
                HasSubstr("1F0 waited 1.25 ms: 1.00 ms for 0F0 on rank 0 (compute), 250 us "
                          "for the link from rank 0 to rank 1. If 1F0 took longer, so would the "
                          "step."));
    EXPECT_EQ(cell(0, WaitModel::ActionColumn), "0SEND_F0");
    EXPECT_EQ(cell(1, WaitModel::ActionColumn), "0F0");
    EXPECT_EQ(cell(1, WaitModel::WhyColumn), "compute");
}

TEST_F(WhyPanelTest, TheWaitOfAMessageIsThatOfTheActionWhichItKeeps) {
    select(ref(Side::Predicted, Op::Forward, 1, 0));
    const std::string of_action = said();
    select(ref(Side::Predicted, Op::RecvForward, 1, 0));
    EXPECT_EQ(said(), of_action);
    EXPECT_EQ(selection_.span(), ref(Side::Predicted, Op::RecvForward, 1, 0));
}

/// Rank 0 has ended its forwards at 3 ms, and waits until 6.5 ms for the gradient of 1B2. Rank 1
/// computes 1F1 from 2.25 ms to 3.25 ms, 1F2 and then 1B2 until 6.25 ms. The list had 1.00 ms for
/// 1F1, of which 0.25 ms are in the wait.
TEST_F(WhyPanelTest, TheListSaysHowMuchOfTheWaitEachActionFills) {
    select(ref(Side::Predicted, Op::Backward, 0, 2));
    const auto row = [&](int number) {
        return (cell(number, WaitModel::ActionColumn) + ": " + cell(number, WaitModel::TimeColumn) +
                ", " + cell(number, WaitModel::OfWaitColumn))
            .toStdString();
    };
    EXPECT_EQ(row(0), "1SEND_B2: 250 us, 250 us");
    EXPECT_EQ(row(1), "1B2: 2.00 ms, 2.00 ms");
    EXPECT_EQ(row(2), "1F2: 1.00 ms, 1.00 ms");
    EXPECT_EQ(row(3), "1F1: 1.00 ms, 250 us");
    EXPECT_EQ(cell(4, WaitModel::OfWaitColumn), "") << "before the wait";
    EXPECT_FALSE(view()->isColumnHidden(WaitModel::OfWaitColumn));
    select(std::nullopt);
    EXPECT_TRUE(view()->isColumnHidden(WaitModel::OfWaitColumn));
}

TEST_F(WhyPanelTest, OfAnActionThatDidNotWaitSaysWhatItFollowed) {
    select(ref(Side::Predicted, Op::Forward, 0, 1));
    EXPECT_THAT(said(), HasSubstr("0F1 did not wait: it followed 0F0 on rank 0."));
    EXPECT_THAT(cell(0, WaitModel::WhyColumn).toStdString(), HasSubstr("before the wait"));
}

TEST_F(WhyPanelTest, WithoutASelectionListsTheLongestWaits) {
    EXPECT_THAT(said(), HasSubstr("In this measured step each rank waited"));
    const auto analysis = analysis_of(run_, Side::Measured, 0);
    ASSERT_EQ(view()->model()->rowCount(), static_cast<int>(analysis->idle_times().size()));
    const IdleTime& longest = analysis->idle_times().front();
    EXPECT_EQ(cell(0, WaitModel::TimeColumn).toStdString(), short_time(longest.wait));
    QTest::mouseClick(view()->viewport(),
                      Qt::LeftButton,
                      {},
                      view()->visualRect(view()->model()->index(0, 0)).center());
    ASSERT_TRUE(selection_.span());
    EXPECT_EQ(selection_.span()->rank, longest.ref.rank);
}

/// After its last action rank 1 waits for rank 0's last backward, which takes 2 ms. The 0.25 ms
/// before it the gradient is under way, and rank 0 is at work on the one before.
TEST_F(WhyPanelTest, ExplainsTheTimeAfterTheLastActionOfARank) {
    show_run(planned_run(small_plan(), {}));
    int row = 0;
    while (row < view()->model()->rowCount() &&
           cell(row, WaitModel::ActionColumn) != "end of the step") {
        ++row;
    }
    ASSERT_LT(row, view()->model()->rowCount());
    QSignalSpy seen(&panel_, &WhyPanel::look_at);
    QSignalSpy went(&panel_, &WhyPanel::go_to);
    view()->scrollTo(view()->model()->index(row, 0));
    QTest::mouseClick(view()->viewport(),
                      Qt::LeftButton,
                      {},
                      view()->visualRect(view()->model()->index(row, 0)).center());
    EXPECT_FALSE(selection_.span());
    EXPECT_EQ(seen.count(), 1);
    EXPECT_EQ(went.count(), 0);
    EXPECT_THAT(said(),
                HasSubstr("Rank 1 had no work left and waited 2.25 ms: 2.00 ms for 0B0 on rank 0 "
                          "(compute), 250 us for "));
    auto* const all = panel_.findChild<QPushButton*>();
    EXPECT_FALSE(all->isHidden());
    QTest::mouseClick(all, Qt::LeftButton);
    EXPECT_THAT(said(), HasSubstr("In this predicted step each rank waited"));
    EXPECT_TRUE(all->isHidden());
}

TEST_F(WhyPanelTest, ExplainsTheEndOfARankThatTheTimelineAsksFor) {
    show_run(planned_run(small_plan(), {}));
    const SpanRef end{
        .side = Side::Predicted, .rank = 1, .cell = run_->twin.row(Side::Predicted, 0, 1)->size()};
    QSignalSpy settled(&panel_, &WhyPanel::settled);
    panel_.explain_end(end);
    wait(settled);
    EXPECT_THAT(said(), HasSubstr("Rank 1 had no work left and waited 2.25 ms: 2.00 ms for 0B0"));
    select(ref(Side::Predicted, Op::Forward, 1, 0));
    EXPECT_THAT(said(), HasSubstr("1F0 waited"));
    select(std::nullopt);
    EXPECT_THAT(said(), HasSubstr("In this predicted step each rank waited"));
}

TEST_F(WhyPanelTest, LeadsBackFromAnActionToTheWaitsOfTheStep) {
    select(ref(Side::Predicted, Op::Forward, 1, 0));
    auto* const all = panel_.findChild<QPushButton*>();
    ASSERT_FALSE(all->isHidden());
    QSignalSpy settled(&panel_, &WhyPanel::settled);
    QTest::mouseClick(all, Qt::LeftButton);
    wait(settled);
    EXPECT_FALSE(selection_.span());
    EXPECT_THAT(said(), HasSubstr("step each rank waited"));
}

/// Equal stages wait alike, so nobody is named; else whoever waits most is.
TEST_F(WhyPanelTest, NamesTheRanksThatWaitMuchMoreThanOthers) {
    PlainCosts costs = pipetwin::testing::plain(ScheduleKind::GPipe, 2, 3);
    EXPECT_EQ(idle_sentence(*analysis_of(planned_run(make_plan(costs), {}), Side::Predicted, 0))
                  .find("Most idle"),
              std::string::npos);
    costs.forward.back() *= 4;
    // Rank 0 waits for 3 x 4 ms - 2 x 1 ms of forwards, and for the backwards of the other.
    EXPECT_THAT(idle_sentence(*analysis_of(planned_run(make_plan(costs), {}), Side::Predicted, 0)),
                AllOf(HasSubstr("Most idle: rank 0 ("), HasSubstr("Most waited for: rank 1 (")));
}

/// "7.00 ms for 6 smaller causes together" was more than any cause that was named: the first action
/// of the last of eight ranks waits for seven forwards of 1 ms.
TEST_F(WhyPanelTest, SumsCausesByKindWhereTheyAreManyAndAlike) {
    const auto analysis =
        analysis_of(planned_run(make_plan(pipetwin::testing::plain(ScheduleKind::GPipe, 8, 1)), {}),
                    Side::Predicted,
                    0);
    const SpanRef last = find(analysis->run(), Side::Predicted, {.op = Op::Forward, .stage = 7});
    EXPECT_THAT(wait_sentence(*analysis, last),
                HasSubstr("waited 7.00 ms: 7.00 ms for forwards of ranks 0 to 6 (compute)."));
}

/// The first of two equal ranks waits for computing alone.
TEST_F(WhyPanelTest, SaysTheOnlyCauseOfAllWaitsInWords) {
    const auto analysis =
        analysis_of(planned_run(make_plan(pipetwin::testing::plain(ScheduleKind::GPipe, 2, 1)), {}),
                    Side::Predicted,
                    0);
    EXPECT_THAT(
        idle_sentence(*analysis),
        HasSubstr("waited on average 3.00 ms of 6.00 ms, all of it for results of other ranks."));
}

TEST_F(WhyPanelTest, EnterGoesToTheActionOfTheRow) {
    select(ref(Side::Predicted, Op::Forward, 1, 0));
    QSignalSpy went(&panel_, &WhyPanel::go_to);
    view()->setFocus();
    view()->setCurrentIndex(view()->model()->index(1, 0));
    QTest::keyClick(view(), Qt::Key_Return);
    EXPECT_EQ(selected(), "0F0");
    EXPECT_EQ(went.count(), 1);
}

TEST_F(WhyPanelTest, WalksToTheBlockerAndBack) {
    select(ref(Side::Predicted, Op::Forward, 1, 0));
    panel_.go_to_blocker();
    EXPECT_EQ(selected(), "0F0");
    panel_.go_to_unblocked();
    EXPECT_EQ(selected(), "1F0");
    panel_.go_to_blocker();
    panel_.go_to_blocker();  // nothing is before it
    EXPECT_EQ(selected(), "0F0");
}

TEST_F(WhyPanelTest, WalksWhenTheAnalysisHasCome) {
    selection_.set_span(ref(Side::Predicted, Op::Forward, 1, 0));
    QSignalSpy went(&panel_, &WhyPanel::go_to);
    panel_.go_to_blocker();
    wait(went);
    EXPECT_EQ(selected(), "0F0");
}

TEST_F(WhyPanelTest, TellsTheTimelineWhatToDraw) {
    std::vector<SpanRef> chain;
    std::vector<Arrow> arrows;
    QObject::connect(&panel_,
                     &WhyPanel::chain_changed,
                     [&](const std::vector<SpanRef>& c, const std::vector<Arrow>& a) {
                         chain = c;
                         arrows = a;
                     });
    const SpanRef f0_of_0 = ref(Side::Predicted, Op::Forward, 0, 0);
    const SpanRef f0_of_1 = ref(Side::Predicted, Op::Forward, 1, 0);
    select(f0_of_1);
    EXPECT_THAT(chain, ::testing::ElementsAre(f0_of_0));
    EXPECT_THAT(arrows, ::testing::ElementsAre(Arrow{.from = f0_of_0, .to = f0_of_1}));
    select(std::nullopt);
    EXPECT_THAT(chain, ::testing::IsEmpty());
    EXPECT_THAT(arrows, ::testing::IsEmpty());
}

TEST_F(WhyPanelTest, OfARunWithoutAPlanSaysWhatIsMissing) {
    show_run(std::make_shared<const RunData>(canned_run()));
    EXPECT_THAT(said(), HasSubstr("No file says which rank computes which stage"));
    select(find(*run_, Side::Measured, {.op = Op::Backward, .stage = 0, .micro_batch = 2}));
    EXPECT_THAT(said(), HasSubstr("0B2 waited 3.00 ms, last for 1B2 on rank 1."));
    EXPECT_FALSE(view()->isVisible());
}

TEST_F(WhyPanelTest, WithoutARunIsEmptyAndSaysSo) {
    selection_.clear();
    show_run(nullptr);
    EXPECT_THAT(said(), HasSubstr("No run is open"));
    panel_.go_to_blocker();
    panel_.go_to_unblocked();
}

TEST_F(WhyPanelTest, ItsModelKeepsTheRulesOfModels) {
    const QAbstractItemModelTester tester(view()->model(),
                                          QAbstractItemModelTester::FailureReportingMode::Fatal);
    select(ref(Side::Predicted, Op::Backward, 0, 0));
    select(ref(Side::Measured, Op::Forward, 1, 2));
    select(std::nullopt);
}

TEST_F(WhyPanelTest, MayGoWhileAWorkerIsBusy) {
    auto* const panel = new WhyPanel(&selection_);
    panel->show_run(planned_run(small_plan()));
    delete panel;
    QTest::qWait(1);
}

TEST(IdleSentence, NamesTheStepWhereThereAreSeveral) {
    std::mt19937 random(3);
    const Plan plan = small_plan();
    const auto run = planned_run(plan, {jittered_step(plan, random), jittered_step(plan, random)});
    EXPECT_THAT(idle_sentence(StepAnalysis(run, Side::Measured, 1)),
                HasSubstr("In measured step 1 each rank waited"));
    EXPECT_THAT(idle_sentence(StepAnalysis(run, Side::Predicted, 0)),
                HasSubstr("In this predicted step each rank waited"));
}

TEST(IdleSentence, SaysThatNoRankWaited) {
    const Plan plan = make_plan(pipetwin::testing::plain(ScheduleKind::GPipe, 1, 3));
    EXPECT_EQ(idle_sentence(StepAnalysis(planned_run(plan), Side::Predicted, 0)),
              "In this predicted step of 9.00 ms no rank waited.");
}

/// "Causes: compute 63 %, rank busy 3 %, link 55 %". Messages took no time in the measured step, so
/// ranks waited 1, 2 and 3 ms for others to compute; by the plan these waits have one message of
/// 0.25 ms, one and two. 1 / 1.25 + 2 * 2 / 2.25 + 3 * 3 / 3.5 of 6 are compute.
TEST(IdleSentence, HasSharesThatAddUpWhereTheSimulationWaitsLonger) {
    Timeline step = sim::simulate(make_plan(pipetwin::testing::plain(ScheduleKind::GPipe, 2, 3)));
    step.origin = Origin::Measured;
    step.links.clear();
    const std::string text =
        idle_sentence(StepAnalysis(planned_run(small_plan(), {step}), Side::Measured, 0));
    EXPECT_THAT(text, HasSubstr("waited on average 3.00 ms of 12.0 ms. Causes: compute 86 %"));
    const std::regex percent("([0-9]+) %");
    int sum = 0;
    for (std::sregex_iterator at(text.begin(), text.end(), percent), end; at != end; ++at) {
        sum += std::stoi((*at)[1]);
    }
    EXPECT_EQ(sum, 100) << text;
}

TEST(WaitSentence, OfNothingIsEmpty) {
    const auto run = planned_run(small_plan());
    const StepAnalysis analysis(run, Side::Predicted, 0);
    EXPECT_EQ(wait_sentence(analysis, {.rank = 9}), "");
    EXPECT_EQ(wait_sentence(analysis, {.side = Side::Measured}), "");
}

TEST(WaitSentence, NamesWhatIsUnexplained) {
    const Plan plan = small_plan();
    Timeline late = sim::simulate(plan);
    late.origin = Origin::Measured;
    late.links.clear();
    Span& last = late.ranks[0].back();  // rank 0 begins its last work later
    ASSERT_EQ(last.action.op, Op::Backward);
    for (Duration* const time : {&last.begin, &last.ready, &last.end}) {
        *time += microseconds(70);
    }
    const auto run = planned_run(plan, {late});
    const StepAnalysis analysis(run, Side::Measured, 0);
    const SpanRef ref = find(*run, Side::Measured, last.action);
    EXPECT_THAT(wait_sentence(analysis, ref), HasSubstr("waited 70.0 us: 70.0 us unexplained."));
    EXPECT_THAT(idle_sentence(analysis), HasSubstr("unexplained"));
}

}  // namespace why_panel_test
}  // namespace pipetwin::gui

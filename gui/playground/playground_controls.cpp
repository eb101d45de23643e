// SPDX-License-Identifier: Apache-2.0
#include "gui/playground/playground_controls.h"

#include <charconv>
#include <string>

#include <QComboBox>
#include <QDoubleSpinBox>
#include <QFormLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSignalBlocker>
#include <QSpinBox>
#include <QVBoxLayout>

#include "core/schedule/generators/generate.h"
#include "core/schedule/generators/schedule_traits.h"
#include "gui/base/number_box.h"
#include "gui/base/plain_text.h"
#include "gui/view/what_if/what_if_settings.h"

namespace pipetwin::gui {

namespace {

constexpr int most_chunks = 8;
constexpr double longest_time = 1000;  // ms
constexpr double time_step = 0.5;      // ms
constexpr double largest_factor = 100;

QLabel* named(const QString& name, QWidget* of) {
    QLabel* const label = plain_label(nullptr, name);
    label->setBuddy(of);
    of->setAccessibleName(QString(name).remove(QLatin1Char('&')));
    return label;
}

/// The factors of a text such as "1 1 2 1"; none where a part is no number above 0.
std::optional<std::vector<double>> parsed_factors(const QString& text) {
    std::vector<double> factors;
    const QString plain = QString(text).replace(',', ' ');
    for (const QString& part : plain.split(' ', Qt::SkipEmptyParts)) {
        const std::string digits = part.toStdString();
        const char* const end = digits.data() + digits.size();
        double factor = 0;
        const auto [rest, failed] = std::from_chars(digits.data(), end, factor);
        if (failed != std::errc() || rest != end || !(factor > 0) || factor > largest_factor) {
            return std::nullopt;
        }
        factors.push_back(factor);
    }
    return factors;
}

QString factors_text(const std::vector<double>& factors) {
    QStringList parts;
    for (const double factor : factors) {
        parts += QString::number(factor);
    }
    return parts.join(' ');
}

}  // namespace

PlaygroundControls::PlaygroundControls(QWidget* parent)
    : QWidget(parent), note_(plain_label(this)) {
    setAccessibleName(tr("Settings"));
    note_->setWordWrap(true);
    note_->setForegroundRole(QPalette::PlaceholderText);
    auto* const form = new QFormLayout;
    form->setFieldGrowthPolicy(QFormLayout::AllNonFixedFieldsGrow);
    add_schedule(form);
    stages_ = add_number(form,
                         tr("Ran&ks (K)"),
                         tr("Number of devices in the pipeline, each with one or more stages"),
                         most_playground_stages,
                         &PlaygroundSettings::stages);
    micro_batches_ =
        add_number(form,
                   tr("&Micro-batches (M)"),
                   tr("Number of parts of a mini-batch. Each passes through all stages by itself"),
                   most_playground_micro_batches,
                   &PlaygroundSettings::micro_batches);
    chunks_ =
        add_number(form,
                   tr("Ch&unks per rank (v)"),
                   tr("Number of stages on each rank, for schedules with several stages per rank"),
                   most_chunks,
                   &PlaygroundSettings::chunks);
    forward_ = add_time(form,
                        tr("F&orward (F)"),
                        tr("Time of the forwards of all stages of a rank, for one micro-batch"),
                        &PlaygroundSettings::forward_ms);
    backward_input_ = add_time(form,
                               tr("&Input gradient (I)"),
                               tr("The part of a backward that the previous rank waits for"),
                               &PlaygroundSettings::backward_input_ms);
    backward_weight_ = add_time(
        form,
        tr("&Weight gradient (W)"),
        tr("The part of a backward that no other rank waits for. A backward B is I and W together"),
        &PlaygroundSettings::backward_weight_ms);
    add_factors(form);
    latency_ = add_time(
        form,
        tr("Link &latency (c)"),
        tr("Time from the sending of a message to its arrival, in addition to the link time"),
        &PlaygroundSettings::latency_ms);
    transfer_ = add_time(
        form,
        tr("Link &time"),
        tr("Time for which a message occupies its link: its bytes divided by the bandwidth"),
        &PlaygroundSettings::transfer_ms);
    auto* const reset = new QPushButton(tr("Reset"), this);
    connect(reset, &QPushButton::clicked, this, [this] { set_settings({}); });
    auto* const column = new QVBoxLayout(this);
    column->addLayout(form);
    column->addWidget(note_);
    column->addWidget(reset, 0, Qt::AlignLeft);
    column->addStretch(1);
    show_settings();
}

void PlaygroundControls::add_schedule(QFormLayout* form) {
    schedule_ = new QComboBox(this);
    for (const ScheduleName& known : known_schedules()) {
        const std::string name(known.name);
        schedule_->addItem(QString::fromStdString(name));
        set_item_tip(
            *schedule_, schedule_->count() - 1, QString::fromStdString(schedule_words(name)));
    }
    form->addRow(named(tr("S&chedule"), schedule_), schedule_);
    connect(schedule_, &QComboBox::currentTextChanged, this, &PlaygroundControls::choose_schedule);
}

QSpinBox* PlaygroundControls::add_number(QFormLayout* form,
                                         const QString& name,
                                         const QString& tip,
                                         int most,
                                         int PlaygroundSettings::*value) {
    auto* const box = new NumberBox(this);
    box->setRange(1, most);
    box->setKeyboardTracking(false);
    set_tip(*box, tr("%1 (1 to %2)").arg(tip).arg(most));
    form->addRow(named(name, box), box);
    connect(box, &QSpinBox::valueChanged, this, [this, value](int to) {
        PlaygroundSettings settings = typed_;
        settings.*value = to;
        set_settings(settings);
    });
    return box;
}

QDoubleSpinBox* PlaygroundControls::add_time(QFormLayout* form,
                                             const QString& name,
                                             const QString& tip,
                                             double PlaygroundSettings::*value) {
    auto* const box = new DecimalBox(this);
    box->setRange(0, longest_time);
    box->setDecimals(2);
    box->setSingleStep(time_step);
    box->setSuffix(tr(" ms"));
    box->setKeyboardTracking(false);
    set_tip(*box, tr("%1 (0 to %2 ms)").arg(tip).arg(longest_time));
    form->addRow(named(name, box), box);
    connect(box, &QDoubleSpinBox::valueChanged, this, [this, value](double to) {
        PlaygroundSettings settings = typed_;
        settings.*value = to;
        set_settings(settings);
    });
    return box;
}

void PlaygroundControls::add_factors(QFormLayout* form) {
    factors_ = new QLineEdit(this);
    set_tip(*factors_,
            tr("For uneven stages: a factor for the times of each stage, such as 1 1 2 1"));
    form->addRow(named(tr("Stage f&actors"), factors_), factors_);
    connect(factors_, &QLineEdit::editingFinished, this, &PlaygroundControls::take_factors);
}

void PlaygroundControls::take_factors() {
    const std::optional<std::vector<double>> factors = parsed_factors(factors_->text());
    const int wanted = factor_count(settings_);
    const bool fits =
        factors && (factors->empty() || factors->size() == static_cast<std::size_t>(wanted));
    if (!fits) {
        note_->setText(
            tr("Stage factors: '%1' is not understood. Expected %2 numbers above 0 and "
               "up to %3, one for each stage, or nothing. The picture is that of the factors "
               "before.")
                .arg(factors_->text())
                .arg(wanted)
                .arg(largest_factor));
        return;
    }
    PlaygroundSettings settings = typed_;
    settings.factors = *factors;
    set_settings(settings);
}

/// A schedule that takes several chunks begins with two of them, as with one it is another
/// schedule's order.
void PlaygroundControls::choose_schedule(const QString& name) {
    PlaygroundSettings settings = typed_;
    settings.schedule = name.toStdString();
    if (schedule_traits(settings.schedule).chunks == ChunkCounts::Several && settings.chunks < 2) {
        settings.chunks = 2;
    }
    set_settings(settings);
}

void PlaygroundControls::set_settings(const PlaygroundSettings& wanted) {
    const PlaygroundSettings fitting = fitted(wanted);
    const bool differs = fitting != settings_;
    typed_ = wanted;
    typed_.factors = fitting.factors;
    settings_ = fitting;
    show_settings();
    say_what_was_fitted(wanted);
    if (differs) {
        emit changed();
    }
}

void PlaygroundControls::say_what_was_fitted(const PlaygroundSettings& wanted) {
    QStringList sentences;
    const QString schedule = QString::fromStdString(settings_.schedule);
    if (settings_.micro_batches != wanted.micro_batches) {
        sentences += tr("%1 on %2 ranks does not allow %4 micro-batches; the playground shows %3.")
                         .arg(schedule)
                         .arg(settings_.stages)
                         .arg(settings_.micro_batches)
                         .arg(wanted.micro_batches);
    }
    if (settings_.factors != wanted.factors) {
        sentences += tr("The number of stages has changed, so the stage factors were cleared.");
    }
    note_->setText(sentences.join(' '));
}

void PlaygroundControls::show_settings() {
    const auto put = [](auto* box, auto value) {
        const QSignalBlocker quiet(box);
        box->setValue(value);
    };
    {
        const QSignalBlocker quiet(schedule_);
        schedule_->setCurrentText(QString::fromStdString(settings_.schedule));
        set_tip(*schedule_, QString::fromStdString(schedule_words(settings_.schedule)));
    }
    put(stages_, settings_.stages);
    put(micro_batches_, settings_.micro_batches);
    put(chunks_, settings_.chunks);
    put(forward_, settings_.forward_ms);
    put(backward_input_, settings_.backward_input_ms);
    put(backward_weight_, settings_.backward_weight_ms);
    put(latency_, settings_.latency_ms);
    put(transfer_, settings_.transfer_ms);
    chunks_->setEnabled(schedule_traits(settings_.schedule).chunks == ChunkCounts::Several);
    factors_->setText(factors_text(settings_.factors));
    QStringList ones;
    for (int stage = 0; stage < factor_count(settings_); ++stage) {
        ones += QStringLiteral("1");
    }
    factors_->setPlaceholderText(ones.join(' '));
}

}  // namespace pipetwin::gui

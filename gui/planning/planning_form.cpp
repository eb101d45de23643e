// SPDX-License-Identifier: Apache-2.0
#include "gui/planning/planning_form.h"

#include <algorithm>
#include <string>

#include <QComboBox>
#include <QFile>
#include <QFileDialog>
#include <QFormLayout>
#include <QHBoxLayout>
#include <QLabel>
#include <QLineEdit>
#include <QPushButton>
#include <QSpinBox>
#include <QToolButton>
#include <QVBoxLayout>

#include "core/costs/devices/shipped_profiles.h"
#include "gui/base/number_box.h"
#include "gui/base/panel_text.h"
#include "gui/base/plain_text.h"
#include "gui/view/planning/planning.h"

namespace pipetwin::gui {

namespace {

constexpr int most_nodes = 1 << 16;
constexpr int letters_of_field = 18;

/// A list whose width does not follow its longest entry.
QComboBox* list_of(const std::vector<std::string>& names, QWidget* parent) {
    auto* const list = new QComboBox(parent);
    for (const std::string& name : names) {
        list->addItem(text_of(name));
    }
    list->setSizeAdjustPolicy(QComboBox::AdjustToMinimumContentsLengthWithIcon);
    list->setMinimumContentsLength(letters_of_field);
    return list;
}

void add_row(QFormLayout* form, const QString& name, QWidget* field, QWidget* row) {
    QLabel* const label = plain_label(nullptr, name);
    label->setBuddy(field);
    field->setAccessibleName(QString(name).remove(QLatin1Char('&')));
    form->addRow(label, row);
}

}  // namespace

PlanningForm::PlanningForm(QWidget* parent)
    : QWidget(parent),
      model_(list_of(model_names(), this)),
      cluster_(list_of(cluster_names(), this)),
      nodes_(new NumberBox(this)),
      ask_(new QPushButton(tr("&Plan"), this)),
      cancel_(new QPushButton(tr("Cancel"), this)),
      problem_(plain_label(this)) {
    setAccessibleName(tr("Question"));
    auto* const form = new QFormLayout;
    form->setFieldGrowthPolicy(QFormLayout::AllNonFixedFieldsGrow);
    form->setRowWrapPolicy(QFormLayout::WrapAllRows);
    auto* const model_row = new QWidget(this);
    auto* const across = new QHBoxLayout(model_row);
    across->setContentsMargins(0, 0, 0, 0);
    auto* const browse = new QToolButton(model_row);
    browse->setText(QStringLiteral("..."));
    browse->setAccessibleName(tr("Choose a file"));
    set_tip(*browse, tr("Choose a config.json, a profile or a scenario"));
    connect(browse, &QToolButton::clicked, this, &PlanningForm::choose_file);
    model_->setEditable(true);
    model_->setInsertPolicy(QComboBox::NoInsert);
    set_tip(*model_,
            tr("A model by its name, its config.json, costs (*.profile.json), or a scenario "
               "(*.toml)"));
    across->addWidget(model_, 1);
    across->addWidget(browse);
    add_row(form, tr("M&odel, or file"), model_, model_row);
    set_tip(*cluster_, tr("The kind of node that the cluster has"));
    add_row(form, tr("&Cluster"), cluster_, cluster_);
    nodes_->setRange(1, most_nodes);
    nodes_->setValue(1);
    set_tip(*nodes_, tr("Number of nodes"));
    add_row(form, tr("&Nodes"), nodes_, nodes_);
    sequence_ = add_line(
        form, tr("&Tokens per sample"), tr("4096"), tr("Length of a sequence; 8k is 8192"));
    batch_tokens_ = add_line(form,
                             tr("Tokens per &step"),
                             tr("4M"),
                             tr("The mini-batch of all replicas, about; k is 1,000"));
    tokens_ = add_line(form,
                       tr("Tokens of the tr&aining"),
                       tr("such as 15T: adds days"),
                       tr("Adds days and device hours to the answer"));
    price_ = add_line(form,
                      tr("Price of a device ho&ur"),
                      tr("such as 2.50: adds the cost"),
                      tr("In any currency; with the tokens of the training it gives the cost"));
    problem_->setWordWrap(true);
    problem_->hide();
    cancel_->setEnabled(false);
    ask_->setDefault(true);
    connect(ask_, &QPushButton::clicked, this, &PlanningForm::asked);
    connect(cancel_, &QPushButton::clicked, this, &PlanningForm::cancelled);
    connect(model_->lineEdit(), &QLineEdit::returnPressed, ask_, &QPushButton::click);
    connect(model_, &QComboBox::currentTextChanged, this, &PlanningForm::follow_model);
    auto* const buttons = new QHBoxLayout;
    buttons->addWidget(ask_, 1);
    buttons->addWidget(cancel_);
    auto* const column = new QVBoxLayout(this);
    column->addLayout(form);
    column->addWidget(problem_);
    column->addLayout(buttons);
    column->addStretch(1);
    set_model(QStringLiteral("llama-3-8b"));
    set_cluster(QStringLiteral("8x-h100-sxm"));
}

QLineEdit* PlanningForm::add_line(QFormLayout* form,
                                  const QString& name,
                                  const QString& placeholder,
                                  const QString& tip) {
    auto* const line = new QLineEdit(this);
    line->setPlaceholderText(placeholder);
    set_tip(*line, tip);
    connect(line, &QLineEdit::returnPressed, ask_, &QPushButton::click);
    add_row(form, name, line, line);
    return line;
}

void PlanningForm::set_model(const QString& model) {
    model_->setEditText(model);
}

void PlanningForm::set_cluster(const QString& cluster) {
    const int known = cluster_->findText(cluster);
    if (known < 0) {
        cluster_->addItem(cluster);  // a file
    }
    cluster_->setCurrentText(cluster);
}

void PlanningForm::set_nodes(int nodes) {
    nodes_->setValue(nodes);
}

void PlanningForm::set_batch_tokens(const QString& tokens) {
    batch_tokens_->setText(tokens);
}

void PlanningForm::set_busy(bool busy) {
    ask_->setEnabled(!busy);
    cancel_->setEnabled(busy);
}

void PlanningForm::choose_file() {
    const QString chosen =
        QFileDialog::getOpenFileName(this,
                                     tr("Choose a model or a scenario"),
                                     {},
                                     tr("Models and scenarios (*.json *.toml);;All files (*)"));
    if (!chosen.isEmpty()) {
        set_model(chosen);
    }
}

/// A scenario says itself what the other fields ask.
void PlanningForm::follow_model() {
    const bool is_model = !model_->currentText().endsWith(QLatin1String(".toml"));
    cluster_->setEnabled(is_model);
    nodes_->setEnabled(is_model);
    sequence_->setEnabled(is_model);
    batch_tokens_->setEnabled(is_model);
}

template <class Number>
bool PlanningForm::take(const QLineEdit& line,
                        std::optional<Number> (*parse)(std::string_view),
                        const QString& expected,
                        std::optional<Number>& number) {
    const std::string text = line.text().trimmed().toStdString();
    if (text.empty() || !line.isEnabled()) {
        return true;
    }
    number = parse(text);
    if (!number) {
        problem_->setText(
            tr("%1: '%2', expected %3").arg(line.accessibleName(), line.text(), expected));
        problem_->show();
    }
    return number.has_value();
}

std::optional<PlanningQuestion> PlanningForm::question() {
    problem_->hide();
    const QString model = model_->currentText().trimmed();
    if (model.isEmpty()) {
        problem_->setText(
            tr("Model, or file: nothing is named, expected a model of the list, a "
               "config.json or a scenario"));
        problem_->show();
        return std::nullopt;
    }
    PlanningQuestion question{.model = QFile::encodeName(model).toStdString(),
                              .cluster = cluster_->currentText().toStdString(),
                              .nodes = nodes_->value()};
    const QString number = tr("a number above 0, such as 4M");
    const bool are_understood =
        take(*sequence_,
             &written_sequence,
             tr("a whole number above 0, such as 8192 or 8k"),
             question.sequence) &&
        take(*batch_tokens_, &written_number, number, question.batch_tokens) &&
        take(*tokens_, &written_number, number, question.tokens) &&
        take(*price_, &written_number, tr("a number above 0, such as 2.50"), question.price);
    return are_understood ? std::optional(question) : std::nullopt;
}

}  // namespace pipetwin::gui

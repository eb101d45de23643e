// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include <QWidget>

class QComboBox;
class QFormLayout;
class QLabel;
class QLineEdit;
class QPushButton;
class QSpinBox;

namespace pipetwin::gui {

struct PlanningQuestion;

/// The fields that a planning question is asked with.
class PlanningForm : public QWidget {
    Q_OBJECT

  public:
    explicit PlanningForm(QWidget* parent = nullptr);

    /// The question; none where a field is not understood: then a line says which.
    std::optional<PlanningQuestion> question();

    void set_model(const QString& model);
    void set_cluster(const QString& cluster);
    void set_nodes(int nodes);
    void set_batch_tokens(const QString& tokens);

    /// While a question is answered, it can be cancelled and no other can be asked.
    void set_busy(bool busy);

  signals:
    void asked();
    void cancelled();

  private:
    QLineEdit* add_line(QFormLayout* form,
                        const QString& name,
                        const QString& placeholder,
                        const QString& tip);
    void choose_file();
    void follow_model();
    template <class Number>
    bool take(const QLineEdit& line,
              std::optional<Number> (*parse)(std::string_view),
              const QString& expected,
              std::optional<Number>& number);

    QComboBox* model_;
    QComboBox* cluster_;
    QSpinBox* nodes_;
    QLineEdit* sequence_;
    QLineEdit* batch_tokens_;
    QLineEdit* tokens_;
    QLineEdit* price_;
    QPushButton* ask_;
    QPushButton* cancel_;
    QLabel* problem_;
};

}  // namespace pipetwin::gui

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <vector>

#include <QFrame>
#include <QPointer>

class QLabel;
class QLineEdit;
class QListWidget;

namespace pipetwin::gui {

/// A line to type in, over the window, with the entries that fit below it: commands, ranks.
/// Up and Down walk, Enter takes, Esc leaves.
class Finder : public QFrame {
    Q_OBJECT

  public:
    struct Entry {
        QString text;
        QString detail;  ///< at the right: a key, a number
        std::function<void()> take;
    };

    explicit Finder(QWidget* parent);

    /// Shows itself with these entries to choose from; the question stands in the empty line.
    void ask(const QString& question, std::vector<Entry> entries);

    /// Number of entries that fit what was typed.
    int count() const;

  protected:
    bool eventFilter(QObject* watched, QEvent* event) override;

  private:
    void fill();
    void take();
    void leave();

    QLineEdit* line_;
    QListWidget* list_;
    std::vector<Entry> entries_;
    QPointer<QWidget> asked_from_;
};

/// True if the letters of `typed` occur in `text` in this order, words apart; whatever the case.
bool fits(const QString& text, const QString& typed);

/// The line of the search for actions: what was typed, and how many there are. Hidden until it is
/// asked for.
class SearchLine : public QFrame {
    Q_OBJECT

  public:
    explicit SearchLine(QWidget* parent);

    void ask();
    void leave();
    void show_count(const QString& text);
    QString text() const;

  signals:
    void typed(const QString& text);
    void next_wanted(int direction);
    void left();

  protected:
    bool eventFilter(QObject* watched, QEvent* event) override;

  private:
    QLineEdit* line_;
    QLabel* count_;
};

}  // namespace pipetwin::gui

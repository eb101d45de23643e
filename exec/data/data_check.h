// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "exec/data/batch.h"

namespace pipetwin {

class Model;
struct ScenarioParts;

}  // namespace pipetwin

namespace pipetwin::exec {

/// Looks through the data of a training for what the model cannot read: small files at once, larger
/// ones in a thread beside other work, which takes no core that anything else wants. It takes a
/// share of what cores have in common all the same, so that the caller says when it begins.
class DataCheck {
  public:
    /// Opens the data of a training, and of its validation where it has one. Throws Error(BadInput)
    /// or Error(Io) for data that is missing, too short or of another kind, or where a small file
    /// holds what the model cannot read.
    DataCheck(const ScenarioParts& scenario, const Model& model);
    DataCheck(const DataCheck&) = delete;
    DataCheck& operator=(const DataCheck&) = delete;
    ~DataCheck();

    /// What a user should know of the data of the training.
    const std::vector<std::string>& notes() const { return notes_; }

    /// What texts with translations are cut into.
    const TextPieces& text_pieces() const { return text_pieces_; }

    /// Sets out to look at larger files; nothing the second time.
    void begin();

    /// Throws Error(BadInput), naming file, byte and value, if the thread has found something so
    /// far.
    void refuse_found() const;

    /// Begins, and waits until the thread has looked at everything, or has found something.
    void wait();

    static constexpr std::size_t at_once = std::size_t{16} << 20U;  ///< bytes: milliseconds

  private:
    void look();

    std::vector<std::unique_ptr<DataSource>> sources_;  ///< that the thread looks at
    std::vector<std::string> notes_;
    TextPieces text_pieces_;
    std::atomic<bool> stops_{false};
    mutable std::mutex mutex_;
    std::exception_ptr found_;
    bool has_begun_ = false;
    std::thread thread_;
};

}  // namespace pipetwin::exec

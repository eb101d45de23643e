// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/generators/closed_form.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "core/base/short_number.h"

namespace pipetwin {

namespace {

/// The idle time of a rank in symbols, and its value.
struct Idle {
    std::string symbols;
    Duration value{};
};

class Formula {
  public:
    Formula(ScheduleKind kind, const EvenCosts& costs)
        : kind_(kind),
          k_(costs.ranks),
          m_(costs.micro_batches),
          v_(costs.chunks),
          f_(costs.forward),
          i_(costs.backward_input),
          w_(costs.backward_weight),
          b_(costs.backward_input + costs.backward_weight),
          c_(costs.latency),
          transfer_(costs.transfer) {}

    ClosedForm form() const {
        if (transfer_ > Duration{}) {
            return none("messages occupy the link, and the formula covers latency only");
        }
        switch (kind_) {
            case ScheduleKind::Naive:
            case ScheduleKind::GPipe:
            case ScheduleKind::OneFOneB:
                return flush();
            case ScheduleKind::ForwardOnly:
                return of({.symbols = c_ > Duration{} ? "(K - 1)(F + c)" : "(K - 1) F",
                           .value = (k_ - 1) * (f_ + c_)},
                          f_,
                          "M F");
            case ScheduleKind::Interleaved1F1B:
                return interleaved();
            case ScheduleKind::LoopedBfs:
                return looped();
            default:
                return c_ > Duration{} ? none("it holds without latency only") : without_latency();
        }
    }

  private:
    static ClosedForm none(std::string why) {
        ClosedForm form;
        form.why_not = "No formula: " + std::move(why) + ".";
        return form;
    }

    static ClosedForm only_if(const std::string& condition) {
        return none("the known one holds only if " + condition);
    }

    /// A fraction of whole numbers where idle and work are multiples of one time, as (K - 1) of
    /// (M + K - 1) are; else the two times.
    ClosedForm of(const Idle& idle, Duration per_piece, const std::string& work) const {
        ClosedForm form;
        form.work = m_ * v_ * per_piece;
        form.idle = idle.value;
        const std::string pieces = v_ > 1 ? "M v" : "M";
        const bool plain = idle.value == (k_ - 1) * per_piece && c_ == Duration{};
        if (plain) {
            form.symbols = fmt::format("(K - 1) / ({} + K - 1)", pieces);
            form.numbers = fmt::format("{} / {}", k_ - 1, m_ * v_ + k_ - 1);
            return form;
        }
        form.symbols = "idle / (work + idle)";
        form.where = fmt::format("work = {}, idle = {}", work, idle.symbols);
        form.numbers = fmt::format(
            "{} / ({} + {})", short_time(form.idle), short_time(form.work), short_time(form.idle));
        return form;
    }

    std::string work_text(const char* of_piece) const {
        return fmt::format("{} {}", v_ > 1 ? "M v" : "M", of_piece);
    }

    /// naive, gpipe and 1f1b: fill and drain, and the round trips that wait for a latency.
    ClosedForm flush() const {
        const Duration fill = (k_ - 1) * (f_ + b_);
        const std::string work = work_text("(F + B)");
        if (c_ == Duration{}) {
            return of({.symbols = "(K - 1)(F + B)", .value = fill}, f_ + b_, work);
        }
        if (kind_ != ScheduleKind::OneFOneB) {
            return of({.symbols = "(K - 1)(F + B + 2 c)", .value = fill + 2 * (k_ - 1) * c_},
                      f_ + b_,
                      work);
        }
        if (m_ < 2 || k_ < 2) {
            return only_if("K ≥ 2 and M ≥ 2, where links have a latency");
        }
        const int crossings = (k_ - 1) + (m_ - 2) - (m_ - 2) / k_;
        return of({.symbols = "(K - 1)(F + B) + 2 c [(K - 1) + (M - 2) - floor((M - 2) / K)]",
                   .value = fill + 2 * crossings * c_},
                  f_ + b_,
                  work);
    }

    ClosedForm interleaved() const {
        if (m_ % k_ != 0) {
            return only_if("M is a multiple of K");
        }
        if (c_ > std::min(f_, b_)) {
            return only_if("the latency is at most min(F, B)");
        }
        if (c_ > Duration{} && v_ < 2) {
            return only_if("v ≥ 2, where links have a latency");
        }
        const Duration fill = (k_ - 1) * (f_ + b_);
        const int crossings = k_ > 1 ? 2 * (k_ - 1) + 2 * k_ * (v_ - 1) : 0;
        return of({.symbols = "(K - 1)(F + B) + c [2 (K - 1) + 2 K (v - 1)]",
                   .value = fill + crossings * c_},
                  f_ + b_,
                  work_text("(F + B)"));
    }

    ClosedForm looped() const {
        if (k_ < 2) {
            return only_if("K ≥ 2");
        }
        const auto stall = [this](Duration one) {
            return std::max(Duration{}, k_ * (one + c_) - m_ * one);
        };
        const Duration stalls = (v_ - 1) * (stall(f_) + stall(b_));
        return of({.symbols = c_ > Duration{} || stalls > Duration{}
                                  ? "(K - 1)(F + B + 2 c) + (v - 1)[max(0, K (F + c) - M F) + "
                                    "max(0, K (B + c) - M B)]"
                                  : "(K - 1)(F + B)",
                   .value = (k_ - 1) * (f_ + b_ + 2 * c_) + stalls},
                  f_ + b_,
                  work_text("(F + B)"));
    }

    ClosedForm without_latency() const {
        switch (kind_) {
            case ScheduleKind::ZbH1:
                return m_ >= k_ ? split() : only_if("M ≥ K");
            case ScheduleKind::InterleavedZb:
                return m_ % k_ == 0 ? split() : only_if("M is a multiple of K");
            case ScheduleKind::ZbH2:
                return none(
                    "none is known for a whole step. If F = I = W and M ≥ 2 K - 1, a rank never "
                    "waits between its first and its last action");
            case ScheduleKind::ZbV:
                return zb_v();
            case ScheduleKind::DualPipeV:
                return dualpipe_v();
            case ScheduleKind::Chimera:
                return chimera();
            case ScheduleKind::Hanayo:
                return hanayo();
            case ScheduleKind::ZbAuto:
                return none("the order is searched for");
            case ScheduleKind::PipeDream:
            case ScheduleKind::PipeDream2Bw:
                return none("the pipeline does not drain between steps");
            default:
                return none("none is known for this schedule");
        }
    }

    ClosedForm split() const {
        return of({.symbols = "(K - 1) max(F, I, F + I - W)",
                   .value = (k_ - 1) * std::max({f_, i_, f_ + i_ - w_})},
                  f_ + b_,
                  work_text("(F + I + W)"));
    }

    ClosedForm zb_v() const {
        if (f_ != i_ || f_ != w_) {
            return only_if("F = I = W");
        }
        return of({.symbols = "max(K - 1, 2 (2 K - 1 - M)) F",
                   .value = std::max(k_ - 1, 2 * (2 * k_ - 1 - m_)) * f_},
                  3 * f_,
                  "M v 3 F");
    }

    ClosedForm dualpipe_v() const {
        if (f_ != i_ || w_ > i_) {
            return only_if("F = I and W ≤ F");
        }
        return of({.symbols = "(K - 1)(F + 2 B - 3 W)", .value = (k_ - 1) * (f_ + 2 * b_ - 3 * w_)},
                  f_ + b_,
                  work_text("(F + B)"));
    }

    ClosedForm chimera() const {
        if (b_ != f_ && b_ != 2 * f_) {
            return only_if("B = F or B = 2 F");
        }
        return of({.symbols = "(K - 2) B", .value = (k_ - 2) * b_}, f_ + b_, "M (F + B)");
    }

    ClosedForm hanayo() const {
        if (b_ != 2 * f_) {
            return only_if("B = 2 F");
        }
        return of({.symbols = "4 (K - 1) F", .value = 4 * (k_ - 1) * f_}, 3 * f_, "M v 3 F");
    }

    ScheduleKind kind_;
    int k_;
    int m_;
    int v_;
    Duration f_, i_, w_, b_, c_, transfer_;
};

}  // namespace

double ClosedForm::bubble() const {
    const Duration whole = work + idle;
    return whole > Duration{}
               ? static_cast<double>(idle.count()) / static_cast<double>(whole.count())
               : 0;
}

ClosedForm closed_form(ScheduleKind kind, const EvenCosts& costs) {
    return Formula(kind, costs).form();
}

}  // namespace pipetwin

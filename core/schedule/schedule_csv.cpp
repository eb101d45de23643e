// SPDX-License-Identifier: Apache-2.0
#include "core/schedule/schedule_csv.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "core/base/as_index.h"
#include "core/base/ascii.h"
#include "core/base/error.h"
#include "core/base/suggest.h"
#include "core/schedule/edge.h"
#include "core/text/csv_lines.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

constexpr int largest_stage = 4096 * 64 - 1;
constexpr int largest_micro_batch = 65535;

// --- Words. ---

/// In the old dialect `B` is the input gradient alone and `BW` the full backward; which one a file
/// speaks is known only at its end, so `BW` is read as a word of its own.
struct Word {
    std::string_view text;
    Op op;
    bool old_full_backward = false;
};

constexpr std::array words{
    Word{"F", Op::Forward},
    Word{"B", Op::Backward},
    Word{"BW", Op::Backward, true},
    Word{"I", Op::BackwardInput},
    Word{"W", Op::BackwardWeight},
    Word{"R", Op::Recompute},
    Word{"SEND_F", Op::SendForward},
    Word{"RECV_F", Op::RecvForward},
    Word{"SEND_B", Op::SendBackward},
    Word{"RECV_B", Op::RecvBackward},
    Word{"REDUCE_GRAD", Op::ReduceGradient},
    Word{"UNSHARD", Op::Unshard},
    Word{"RESHARD", Op::Reshard},
    Word{"NORM", Op::GradientNorm},
    Word{"OPT", Op::Optimizer},
};

constexpr std::string_view overlap = "OVERLAP_F_B";

/// F, B, I and W: all that a compute-only file may hold.
bool is_plain_compute(Op op) {
    return is_compute(op) && op != Op::Recompute;
}

/// Place of a cell, for error texts; lines and columns count from 1.
struct Place {
    std::string_view file;
    int line = 1;
    std::size_t column = 1;
};

/// A stranger's file may hold a cell of megabytes; an error text may not.
std::string_view clipped(std::string_view text) {
    return text.substr(0, 40);
}

[[noreturn]] void refuse(
    const Place& place,
    std::size_t offset,
    std::string_view cell,
    std::string_view why,
    std::string hint = "a cell is <stage><TYPE>[<micro-batch>], as in 2F0, 0SEND_F3 or 1OPT") {
    throw Error(ErrorKind::BadInput,
                fmt::format("{}:{}:{}", place.file, place.line, place.column + offset),
                cell.empty() ? std::string(why) : fmt::format("'{}': {}", clipped(cell), why),
                std::move(hint));
}

// --- One cell. ---

/// A cell in its three parts: "2", "F", "0".
struct CellParts {
    std::string_view stage;
    std::string_view type;
    std::string_view micro_batch;

    std::string text() const { return fmt::format("{}{}{}", stage, type, micro_batch); }
};

/// None where the text is not digits, letters and digits.
std::optional<CellParts> parts_of(std::string_view text) {
    constexpr std::string_view digits = "0123456789";
    const std::size_t type = std::min(text.find_first_not_of(digits), text.size());
    const std::size_t micro_batch = std::min(text.find_first_of(digits, type), text.size());
    if (type == 0 || type == micro_batch ||
        text.find_first_not_of(digits, micro_batch) != std::string_view::npos) {
        return std::nullopt;
    }
    return CellParts{
        text.substr(0, type), text.substr(type, micro_batch - type), text.substr(micro_batch)};
}

/// A cell of a known type, with a micro-batch where the type has one.
bool is_well_formed(const CellParts& parts) {
    const auto found = std::ranges::find(words, parts.type, &Word::text);
    return found != words.end() && has_micro_batch(found->op) != parts.micro_batch.empty();
}

/// "did you mean 2I4?", of a cell in small letters, with blanks inside or with a slip in its type,
/// or of two cells without a comma between them; empty where nothing is near.
std::string likely_meant(std::string_view cell) {
    std::string text;
    for (const char c : clipped(cell)) {
        if (c != ' ') {
            text += ascii::upper(c);
        }
    }
    for (std::size_t end = 1; end < text.size(); ++end) {
        const auto first = parts_of(std::string_view(text).substr(0, end));
        const auto second = parts_of(std::string_view(text).substr(end));
        if (first && second && is_well_formed(*first) && is_well_formed(*second) &&
            first->stage == second->stage) {
            return fmt::format("did you mean two cells, {},{}?", first->text(), second->text());
        }
    }
    std::optional<CellParts> parts = parts_of(text);
    if (!parts) {
        return {};
    }
    constexpr std::size_t letters_to_go_by = 3;  // one letter more or less names another action
    if (parts->type.size() >= letters_to_go_by) {
        std::array<std::string_view, words.size()> known{};
        std::ranges::transform(words, known.begin(), &Word::text);
        parts->type = nearest_word(parts->type, known);
    }
    const bool is_another = is_well_formed(*parts) && parts->text() != cell;
    return is_another ? fmt::format("did you mean {}?", parts->text()) : "";
}

struct Cell {
    Action action;
    bool old_full_backward = false;
};

/// Reads "2F0" from `text`, a part of `whole` at `offset`.
class CellReader {
  public:
    CellReader(const Place& place,
               std::string_view whole,
               std::size_t offset,
               std::string_view text)
        : place_(place), whole_(whole), offset_(offset), text_(text) {}

    Cell read() {
        Cell cell;
        cell.action.stage = number("a stage", largest_stage);
        const Word& type = word();
        cell.action.op = type.op;
        cell.old_full_backward = type.old_full_backward;
        if (has_micro_batch(type.op)) {
            cell.action.micro_batch = number("a micro-batch", largest_micro_batch);
        }
        if (is_message(type.op)) {
            read_other_end(cell.action);
        }
        if (position_ < text_.size()) {
            const std::string_view rest = text_.substr(position_);
            const std::string what = fmt::format("unexpected '{}' after the action", clipped(rest));
            if (rest.starts_with(';') || rest.starts_with('\t') || rest.starts_with(',')) {
                refuse(
                    place_,
                    offset_ + position_,
                    whole_,
                    what,
                    "the first line separates its cells otherwise: use one separator throughout");
            }
            if (rest.starts_with(' ')) {
                refuse(place_,
                       offset_ + position_,
                       whole_,
                       what,
                       "separate cells by commas, as in 0F0,0F1,0B0,0B1");
            }
            fail(what);
        }
        return cell;
    }

  private:
    [[noreturn]] void fail(std::string_view why) const {
        if (const std::string meant = likely_meant(text_); !meant.empty()) {
            refuse(place_, offset_ + position_, whole_, why, meant);
        }
        refuse(place_, offset_ + position_, whole_, why);
    }

    /// Reads ">3" behind a send or "<0" behind a receive: the stage at the other end, where the two
    /// are no neighbours.
    void read_other_end(Action& message) {
        const char sign = is_send(message.op) ? '>' : '<';
        if (!text_.substr(position_).starts_with(sign)) {
            return;
        }
        const std::size_t begin = position_++;
        const int peer = number("a stage", largest_stage);
        const int apart =
            leads_to_later_stage(message.op) ? peer - message.stage : message.stage - peer;
        if (apart < 2 || apart > largest_hop + 1) {
            position_ = begin;
            fail(
                fmt::format("expected a stage that lies 2 to {} {} stage {} here: a message to the "
                            "next stage is written without it",
                            largest_hop + 1,
                            leads_to_later_stage(message.op) ? "behind" : "before",
                            message.stage));
        }
        message.hop = static_cast<std::int16_t>(apart - 1);
    }

    std::string_view take(std::string_view characters) {
        const std::size_t end =
            std::min(text_.find_first_not_of(characters, position_), text_.size());
        const std::string_view taken = text_.substr(position_, end - position_);
        position_ = end;
        return taken;
    }

    int number(std::string_view what, int largest) {
        const std::size_t begin = position_;
        const std::string_view digits = take("0123456789");
        int value = 0;
        const auto status = std::from_chars(digits.data(), digits.data() + digits.size(), value).ec;
        const bool leading_zero = digits.size() > 1 && digits.front() == '0';
        if (!digits.empty() && !leading_zero && status == std::errc{} && value <= largest) {
            return value;
        }
        position_ = begin;
        if (digits.empty()) {
            fail(fmt::format("expected {} (a whole number) here", what));
        }
        if (leading_zero) {
            fail(fmt::format("'{}' has a leading zero", digits));
        }
        refuse(place_,
               offset_ + position_,
               whole_,
               fmt::format("'{}' is too large for {}: at most {}", clipped(digits), what, largest),
               "stages and micro-batches count from 0; is a comma between two cells missing?");
    }

    const Word& word() {
        const std::size_t begin = position_;
        const std::string_view type = take("ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
        const auto found = std::ranges::find(words, type, &Word::text);
        if (found != words.end()) {
            return *found;
        }
        position_ = begin;
        fail(type.empty()
                 ? std::string("expected a type (F, B, I, W, R, SEND_F, RECV_F, SEND_B, RECV_B, "
                               "REDUCE_GRAD, UNSHARD, RESHARD, NORM or OPT) here")
                 : fmt::format("'{}' is not a type: expected F, B, I, W, R, SEND_F, RECV_F, "
                               "SEND_B, RECV_B, REDUCE_GRAD, UNSHARD, RESHARD, NORM or OPT",
                               clipped(type)));
    }

    const Place& place_;
    std::string_view whole_;
    std::size_t offset_;
    std::string_view text_;
    std::size_t position_ = 0;
};

// --- The lines of a file. ---

std::string_view without_blanks(std::string_view text) {
    constexpr std::string_view blanks = " \t";
    const std::size_t begin = std::min(text.find_first_not_of(blanks), text.size());
    const std::size_t end = text.find_last_not_of(blanks);
    return end == std::string_view::npos ? std::string_view() : text.substr(begin, end + 1 - begin);
}

/// Where the cell that begins at `begin` ends: at the separator behind it, which inside quotes and
/// inside the parentheses of a pair is none, or at the end of the line.
std::size_t end_of_cell(std::string_view line, std::size_t begin, char separator) {
    bool in_quotes = false;
    bool in_pair = false;
    for (std::size_t i = begin; i < line.size(); ++i) {
        const char c = line[i];
        in_quotes = in_quotes != (c == '"');
        in_pair = c == '(' || (in_pair && c != ')');
        if (c == separator && !in_quotes && !(in_pair && c == ';')) {
            return i;
        }
    }
    return line.size();
}

/// What stands between the cells: a comma, or, in a file that has none in its first line, what
/// spreadsheets of some countries write instead.
char separator_of(std::string_view first_line) {
    for (const char separator : {',', ';', '\t'}) {
        if (end_of_cell(first_line, 0, separator) < first_line.size()) {
            return separator;
        }
    }
    return ',';
}

// --- The file. ---

/// Rows as they were read, with what decides about dialect and content once the end is reached.
class FileReader {
  public:
    explicit FileReader(std::string_view place) { at_.file = place; }

    Schedule read(std::string_view text) {
        CsvLines lines(text, at_.file, "a schedule as CSV");
        separator_ = lines.separator().value_or(separator_of(lines.peek()));
        while (const std::optional<CsvLine> line = lines.next()) {
            next_line_ = lines.peek();
            read_line(*line);
        }
        if (last_stage_ < 0) {
            refuse({.file = at_.file},
                   0,
                   "",
                   "the file holds no action",
                   "write one line per rank, such as 0F0,0F1,0B0,0B1");
        }
        check_size();
        check_idle_slots();
        settle_dialect();
        place_stages();
        find_skips();
        return std::move(schedule_);
    }

  private:
    void read_line(const CsvLine& whole) {
        const std::string_view line = whole.text;
        at_.line = whole.number;
        at_.column = 1;
        first_column_ = whole.first_column;
        if (!whole.has_content()) {
            refuse(at_,
                   0,
                   "",
                   without_blanks(line).empty() ? "the line is empty"
                                                : "the line has empty cells alone",
                   "every line is one rank: remove this one");
        }
        schedule_.ranks.emplace_back();
        std::optional<Place> idle;
        for (std::size_t begin = 0; begin <= line.size();) {
            const std::size_t end = end_of_cell(line, begin, separator_);
            const std::string_view cell = content(line, begin, end);
            if (cell.empty()) {
                idle = idle ? idle : at_;
            } else {
                // Empty cells behind the last action only fill the line up to the longest one.
                first_idle_ = first_idle_ ? first_idle_ : idle;
                read_cell(cell);
            }
            begin = end + 1;
        }
    }

    /// The cell from `begin` to `end` without the blanks around it and without its quotes; sets the
    /// column to its first character.
    std::string_view content(std::string_view line, std::size_t begin, std::size_t end) {
        const auto set_column = [&](std::string_view cell) {
            at_.column =
                first_column_ +
                (cell.empty() ? begin : static_cast<std::size_t>(cell.data() - line.data()));
            return cell;
        };
        std::string_view cell = set_column(without_blanks(line.substr(begin, end - begin)));
        if (!cell.starts_with('"')) {
            return cell;
        }
        if (cell.size() < 2 || !cell.ends_with('"')) {
            refuse(at_,
                   0,
                   cell,
                   "the quote is not closed, or text follows it",
                   "quotes around a cell may be left out");
        }
        cell = set_column(without_blanks(cell.substr(1, cell.size() - 2)));
        if (end_of_cell(cell, 0, separator_of(cell)) < cell.size()) {
            refuse(at_,
                   0,
                   cell,
                   "there is more than one cell between the quotes",
                   "take the quotes away: no cell of a schedule needs them");
        }
        return cell;
    }

    /// A word in front of a row of actions is a header.
    void refuse_header(std::string_view cell) const {
        const bool is_first = schedule_.ranks.size() == 1 && schedule_.ranks.front().empty();
        const std::size_t action = next_line_.find_first_not_of(" \t\"(,;");
        const bool before_row =
            action != std::string_view::npos && ascii::is_digit(next_line_[action]);
        if (is_first && before_row && ascii::is_letter(cell.front()) &&
            cell.find_first_of("0123456789") == std::string_view::npos) {
            refuse(at_,
                   0,
                   cell,
                   "expected a stage (a whole number) here; this line looks like a header",
                   "remove it: the first line of a schedule is rank 0, as in 0F0,0F1,0B0,0B1");
        }
    }

    void read_cell(std::string_view cell) {
        refuse_header(cell);
        if (cell.front() == '(') {
            read_pair(cell);
            return;
        }
        add(CellReader(at_, cell, 0, cell).read(), false);
    }

    /// The action of a pair that stands between `begin` and `end`.
    Cell read_member(std::string_view cell, std::size_t begin, std::size_t end) const {
        const std::string_view member = without_blanks(cell.substr(begin, end - begin));
        const std::size_t offset =
            member.empty() ? begin : static_cast<std::size_t>(member.data() - cell.data());
        return CellReader(at_, cell, offset, member).read();
    }

    /// "(0F7;7B3)OVERLAP_F_B"
    void read_pair(std::string_view cell) {
        const std::size_t middle = cell.find(';');
        const std::size_t close = cell.find(')');
        const bool has_form = middle != std::string_view::npos && close != std::string_view::npos &&
                              middle < close && cell.substr(close + 1) == overlap;
        if (!has_form) {
            refuse(at_,
                   0,
                   cell,
                   "expected (<cell>;<cell>)OVERLAP_F_B",
                   "for example (0F7;7B3)OVERLAP_F_B");
        }
        const Cell first = read_member(cell, 1, middle);
        const Cell second = read_member(cell, middle + 1, close);
        if (!is_plain_compute(first.action.op) || !is_plain_compute(second.action.op)) {
            refuse(
                at_, 1, cell, "only F, B, I and W can overlap", "for example (0F7;7B3)OVERLAP_F_B");
        }
        add(first, true);
        add(second, false);
    }

    void add(Cell cell, bool with_next) {
        cell.action.with_next = with_next;
        const Action& action = cell.action;
        last_stage_ = std::max(last_stage_, action.stage);
        schedule_.micro_batches = std::max(schedule_.micro_batches, action.micro_batch + 1);
        if (!is_plain_compute(action.op) && !first_beyond_compute_) {
            first_beyond_compute_ = fmt::format("{} in line {}", to_string(action), at_.line);
        }
        if (cell.old_full_backward) {
            if (!first_old_) {
                first_old_ = at_;
            }
            const auto rank = schedule_.ranks.size() - 1;
            old_full_backwards_.push_back({rank, schedule_.ranks[rank].size()});
        }
        has_input_gradient_ = has_input_gradient_ || action.op == Op::BackwardInput;
        schedule_.ranks.back().push_back(action);
    }

    /// A file of two cells can name a stage and a micro-batch between which lie millions.
    void check_size() const {
        const std::int64_t pairs = (std::int64_t{last_stage_} + 1) * schedule_.micro_batches;
        if (2 * pairs > largest_schedule) {
            throw Error(ErrorKind::BadInput,
                        std::string(at_.file),
                        fmt::format("it names stage {} and micro-batch {}: with all between them "
                                    "that is more than {} actions",
                                    last_stage_,
                                    schedule_.micro_batches - 1,
                                    largest_schedule),
                        "stages and micro-batches count from 0 without gaps");
        }
    }

    void check_idle_slots() const {
        if (first_idle_ && first_beyond_compute_) {
            refuse(
                *first_idle_,
                0,
                "",
                fmt::format("an empty cell (idle slot) belongs into a file of F, B, I and W only, "
                            "but this one has {}",
                            *first_beyond_compute_),
                "remove the empty cell: with communication the order alone counts");
        }
    }

    /// Old if any BW occurs, or B and W of one stage and micro-batch; `I` is a word of the current
    /// dialect only.
    void settle_dialect() {
        if (first_old_ && has_input_gradient_) {
            refuse(*first_old_,
                   0,
                   "BW",
                   "the old word for a full backward is in a file that uses I, a new word",
                   "current files say B for the full backward and I for the input gradient");
        }
        if (has_input_gradient_ || !(first_old_ || has_backward_beside_weight())) {
            return;
        }
        for (auto& row : schedule_.ranks) {
            for (Action& action : row) {
                action.op = action.op == Op::Backward ? Op::BackwardInput : action.op;
            }
        }
        for (const auto& [rank, position] : old_full_backwards_) {
            schedule_.ranks[rank][position].op = Op::Backward;
        }
    }

    bool has_backward_beside_weight() const {
        const std::size_t micro_batches = as_index(schedule_.micro_batches);
        std::vector<bool> seen_backward;
        std::vector<bool> seen_weight;
        const auto index = [micro_batches](const Action& action) {
            return as_index(action.stage) * micro_batches +
                   static_cast<std::size_t>(action.micro_batch);
        };
        const std::size_t pairs = (as_index(last_stage_) + 1) * micro_batches;
        seen_backward.resize(pairs);
        seen_weight.resize(pairs);
        for (const auto& row : schedule_.ranks) {
            for (const Action& action : row) {
                if (action.op == Op::Backward) {
                    seen_backward[index(action)] = true;
                } else if (action.op == Op::BackwardWeight) {
                    seen_weight[index(action)] = true;
                }
            }
        }
        for (std::size_t i = 0; i < pairs; ++i) {
            if (seen_backward[i] && seen_weight[i]) {
                return true;
            }
        }
        return false;
    }

    /// Two pipelines of one model: of the S stages, s and s + S/2 share out the micro-batches.
    ///
    ///     stage 0   F0 F1            stage 2         F2 F3
    ///     stage 1   F0 F1            stage 3         F2 F3
    ///
    /// Nothing else looks like that: in one pipeline every stage has the forward of every
    /// micro-batch.
    bool is_two_pipelines() const {
        const int stages = last_stage_ + 1;
        if (stages % 2 != 0) {
            return false;
        }
        const std::size_t micro_batches = as_index(schedule_.micro_batches);
        const std::vector<bool> forward = forwards();
        const std::size_t half = as_index(stages / 2);
        for (std::size_t stage = 0; stage < half; ++stage) {
            std::size_t in_first = 0;
            for (std::size_t k = 0; k < micro_batches; ++k) {
                const bool first = forward[stage * micro_batches + k];
                const bool second = forward[(stage + half) * micro_batches + k];
                if (first == second) {
                    return false;
                }
                in_first += first ? 1 : 0;
            }
            if (in_first == 0 || in_first == micro_batches) {
                return false;
            }
        }
        return true;
    }

    /// Which stages run the forward of which micro-batches: [stage * micro_batches + micro-batch].
    std::vector<bool> forwards() const {
        const std::size_t micro_batches = as_index(schedule_.micro_batches);
        std::vector<bool> seen((as_index(last_stage_) + 1) * micro_batches);
        for (const auto& row : schedule_.ranks) {
            for (const Action& action : row) {
                if (action.op == Op::Forward) {
                    seen[as_index(action.stage) * micro_batches + as_index(action.micro_batch)] =
                        true;
                }
            }
        }
        return seen;
    }

    /// A stage is on the rank that has most of its actions (Boyer and Moore's vote). If another
    /// rank has some too, `validate` says so.
    void place_stages() {
        schedule_.rank_of_stage.assign(as_index(last_stage_) + 1, -1);
        const int pieces = is_two_pipelines() ? (last_stage_ + 1) / 2 : last_stage_ + 1;
        for (int stage = 0; stage <= last_stage_; ++stage) {
            schedule_.weights_of_stage.push_back(stage % pieces);
        }
        std::vector<int> votes(schedule_.rank_of_stage.size(), 0);
        for (int rank = 0; rank < schedule_.rank_count(); ++rank) {
            for (const Action& action : schedule_.ranks[as_index(rank)]) {
                int& home = schedule_.rank_of_stage[as_index(action.stage)];
                int& lead = votes[as_index(action.stage)];
                if (home < 0 || (lead == 0 && home != rank)) {
                    home = rank;
                }
                lead += home == rank ? 1 : -1;
            }
        }
    }

    void find_skips() {
        std::set<StagePair> skips;
        for (const auto& row : schedule_.ranks) {
            for (const Action& action : row) {
                if (action.hop != 0) {
                    skips.insert(stages_of(action));
                }
            }
        }
        schedule_.skips.assign(skips.begin(), skips.end());
    }

    struct Position {
        std::size_t rank = 0;
        std::size_t cell = 0;
    };

    Place at_;
    std::size_t first_column_ = 1;  ///< of the line in the file
    std::string_view next_line_;
    char separator_ = ',';
    Schedule schedule_;
    int last_stage_ = -1;
    bool has_input_gradient_ = false;
    std::optional<Place> first_idle_;
    std::optional<Place> first_old_;
    std::optional<std::string> first_beyond_compute_;
    std::vector<Position> old_full_backwards_;
};

bool belongs(Op op, CsvContent content) {
    switch (content) {
        case CsvContent::Ours:
            return true;
        case CsvContent::ComputeComms:
            return op != Op::Recompute && op != Op::GradientNorm && op != Op::Optimizer;
        case CsvContent::ComputeOnly:
            return is_plain_compute(op);
    }
    PIPETWIN_EXPECT(false, "content out of range");
}

std::string print_row(const std::vector<Action>& row) {
    std::string text;
    for (std::size_t i = 0; i < row.size(); ++i) {
        text += i == 0 ? "" : ",";
        if (row[i].with_next && i + 1 < row.size()) {
            text += fmt::format("({};{}){}", to_string(row[i]), to_string(row[i + 1]), overlap);
            ++i;
        } else {
            text += to_string(row[i]);
        }
    }
    return text + "\r\n";
}

}  // namespace

void CellCounter::count(std::string_view part) {
    for (const char c : part) {
        ++column_;
        const bool ends_line = c == '\r' || c == '\n';
        const bool is_rest_of_end = c == '\n' && behind_return_;
        behind_return_ = c == '\r';
        if (is_rest_of_end) {
            column_ = 1;
            continue;
        }
        if (c != ',' && c != ';' && c != '\t' && !ends_line) {
            continue;
        }
        if (ends_line) {
            ++line_;
            column_ = 1;
        }
        if (++cells_ > largest_schedule) {
            refuse({.file = place_, .line = line_, .column = column_},
                   0,
                   "",
                   fmt::format("the file has more than {} cells", largest_schedule),
                   "no schedule is this large: look at how the file was written");
        }
    }
}

Schedule parse_schedule_csv(std::string_view text, std::string_view place) {
    CellCounter(place).count(text);
    return FileReader(place).read(text);
}

Schedule read_schedule_csv(const std::filesystem::path& file) {
    CellCounter counter(file.string());
    return parse_schedule_csv(read_file(file,
                                        largest_schedule_file,
                                        [&counter](std::string_view part) { counter.count(part); }),
                              file.string());
}

bool is_schedule_file(std::string_view name) {
    return name.ends_with(".csv");
}

std::string print_schedule_csv(const Schedule& schedule, CsvContent content) {
    if (content == CsvContent::ComputeComms && !schedule.skips.empty()) {
        const StagePair& skip = schedule.skips.front();
        throw Error(ErrorKind::BadInput,
                    "",
                    fmt::format("stage {} sends to stage {}, which is not the next one, and "
                                "PyTorch's files have no word for such a message",
                                skip.from,
                                skip.to),
                    "write the compute actions alone (--compute-only)");
    }
    std::string text;
    for (std::vector<Action> row : schedule.ranks) {
        std::erase_if(row,
                      [content](const Action& action) { return !belongs(action.op, content); });
        text += print_row(row);
    }
    return text;
}

}  // namespace pipetwin

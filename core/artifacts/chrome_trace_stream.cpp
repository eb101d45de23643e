// SPDX-License-Identifier: Apache-2.0
#include "core/artifacts/chrome_trace_stream.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/artifacts/chrome_trace_event.h"
#include "core/artifacts/chrome_trace_metadata.h"
#include "core/artifacts/chrome_trace_words.h"
#include "core/base/as_index.h"
#include "core/schedule/edge.h"
#include "core/text/json_text.h"

namespace pipetwin {

namespace {

using namespace chrome_trace;
using simdjson::dom::element;
using std::string_view;

constexpr string_view blanks = " \t\r\n";

/// Puts events into the rows that the metadata lay out, step after step.
class Rows {
  public:
    explicit Rows(Metadata metadata)
        : trace_(std::move(metadata.trace)),
          origin_(metadata.origin),
          begins_(std::move(metadata.begins)),
          replicas_(metadata.replicas),
          memory_(trace_.schedule.ranks.size()) {
        for (std::size_t replica = 0; replica < replicas_; ++replica) {
            for (const auto& row : trace_.schedule.ranks) {
                first_cell_.push_back(actions_);
                actions_ += row.size();
            }
        }
        seen_.resize(actions_);
    }

    std::size_t step_count() const { return begins_.size(); }

    bool complete() const { return steps().size() == begins_.size() && missing_ == 0; }

    /// Whether the event is one of ours and in its place; if not, nothing has changed but that a
    /// step may have begun.
    bool take(const Event& event) {
        constexpr unsigned slice = Phase | Name | Process | Thread | Time | Length | Arguments;
        constexpr unsigned counter = Phase | Name | Process | Time | Arguments;
        if (event.phase == "X") {
            return (event.seen & ~unsigned{Category}) == slice && take_slice(event);
        }
        if (event.phase == "C") {
            return event.seen == counter && take_counter(event);
        }
        // Names and arrows follow from the rows.
        const bool has_arguments = (event.seen & Arguments) != 0;
        return ((event.phase == "s" || event.phase == "f") && !has_arguments) ||
               (event.phase == "M" && has_arguments && is_label(event));
    }

    /// `whole`: nothing is missing behind the events.
    Trace finish(bool whole) {
        auto& all = trace_.timelines.steps;
        if (!all.empty() && missing_ != 0) {
            all.pop_back();
        }
        if (whole) {
            const auto is_empty = [](const auto& points) { return points.empty(); };
            if (!std::ranges::all_of(memory_, is_empty)) {
                trace_.memory = std::move(memory_);
            }
        } else if (!all.empty()) {
            // The link's spans stand behind the actions of their step.
            all.back().links.clear();
            all.back().host_copies.clear();
        }
        return std::move(trace_);
    }

  private:
    const std::vector<Timeline>& steps() const { return trace_.timelines.steps; }

    /// A name of a rank or a lane.
    static bool is_label(const Event& event) {
        std::size_t count = 0;
        for (const auto& [key, value] : event.arguments) {
            std::int64_t number = 0;
            string_view text;
            ++count;
            if (!(key == "name" ? read_text(value, text)
                                : key == "sort_index" && read_whole(value, number))) {
                return false;
            }
        }
        return count == 1;
    }

    /// Whether spans of this step may come now.
    bool go_to(std::int64_t step) {
        if (std::cmp_equal(step + 1, steps().size())) {
            return true;
        }
        if (missing_ != 0 || std::cmp_not_equal(step, steps().size()) ||
            std::cmp_greater_equal(step, begins_.size())) {
            return false;
        }
        trace_.timelines.steps.push_back(empty_step(trace_.schedule, origin_, replicas_));
        seen_.assign(actions_, false);
        missing_ = actions_;
        return true;
    }

    bool take_slice(const Event& event) {
        Place place;
        if (!read_place(event.arguments, place) || !go_to(place.step)) {
            return false;
        }
        Span span;
        span.begin = event.time - begins_[as_index(place.step)];
        span.end = span.begin + event.length;
        span.ready = span.begin + std::max(place.wait, Duration{0});
        Timeline& timeline = trace_.timelines.steps.back();
        if (event.thread == LinkLane) {
            return take_link(event, place, span, timeline);
        }
        if (std::cmp_greater_equal(event.process, first_cell_.size())) {
            return false;
        }
        const std::size_t place_of_row = as_index(event.process);
        const std::size_t rank = place_of_row % trace_.schedule.ranks.size();
        const std::vector<Action>& row = trace_.schedule.ranks[rank];
        if (place.cell < 0 || place.edge >= 0 || std::cmp_greater_equal(place.cell, row.size())) {
            return false;
        }
        const std::size_t cell = as_index(place.cell);
        span.action = row[cell];
        if (!is_name_of(event.name, span.action)) {
            return false;
        }
        if (event.thread == CopyOutLane || event.thread == CopyInLane) {
            if (place_of_row != rank) {
                return false;
            }
            timeline.host_copies.resize(2 * trace_.schedule.ranks.size());
            timeline.host_copies[2 * rank + (event.thread == CopyOutLane ? 0 : 1)].push_back(span);
            return true;
        }
        if (event.thread != lane_of(span.action.op) || seen_[first_cell_[place_of_row] + cell]) {
            return false;
        }
        seen_[first_cell_[place_of_row] + cell] = true;
        --missing_;
        timeline.row_at(place_of_row)[cell] = span;
        if (place.in_groups >= Duration{0}) {
            if (place_of_row != rank) {
                return false;
            }
            note_in_groups(timeline, rank, cell, place.in_groups);
        }
        return true;
    }

    bool take_link(const Event& event, const Place& place, Span span, Timeline& timeline) {
        const std::size_t edges = edge_count(trace_.schedule);
        if (place.edge < 0 || place.cell >= 0 || std::cmp_greater_equal(place.edge, edges)) {
            return false;
        }
        if (sends_.empty()) {
            sends_ = sends_by_edge(trace_.schedule);
        }
        timeline.links.resize(edges);
        const std::size_t edge = as_index(place.edge);
        std::vector<Span>& link = timeline.links[edge];
        if (link.size() >= sends_[edge].size()) {
            return false;
        }
        span.action = sends_[edge][link.size()];
        if (!is_name_of(event.name, span.action)) {
            return false;
        }
        link.push_back(span);
        return true;
    }

    bool take_counter(const Event& event) {
        if (std::cmp_greater_equal(event.process, memory_.size())) {
            return false;
        }
        MemoryPoint point{.time = event.time, .use = {}};
        unsigned found = 0;
        for (const auto& [key, value] : event.arguments) {
            int kind = 0;
            while (kind < memory_kind_count && to_string(static_cast<MemoryKind>(kind)) != key) {
                ++kind;
            }
            std::int64_t bytes = 0;
            if (kind == memory_kind_count || (found >> static_cast<unsigned>(kind) & 1U) != 0 ||
                !read_whole(value, bytes)) {
                return false;
            }
            found |= 1U << static_cast<unsigned>(kind);
            point.use[static_cast<MemoryKind>(kind)] = Bytes{bytes};
        }
        if (found != (1U << static_cast<unsigned>(memory_kind_count)) - 1) {
            return false;
        }
        memory_[as_index(event.process)].push_back(point);
        return true;
    }

    Trace trace_;
    Origin origin_;
    std::vector<Duration> begins_;
    std::size_t replicas_;
    std::vector<MemoryCurve> memory_;
    std::size_t actions_ = 0;              ///< in a step
    std::vector<std::size_t> first_cell_;  ///< [Timeline::row_at], among those of all
    std::vector<bool> seen_;               ///< of the current step
    std::size_t missing_ = 0;              ///< of the current step
    std::vector<std::vector<Action>> sends_;
};

// --- Bytes. ---

/// End of the next object of a list, which begins at `at` after blanks and, unless it is the first
/// one, a comma; none if it does not end here. `at` goes to its beginning.
std::optional<std::size_t> end_of_event(string_view text, std::size_t& at, bool first) {
    at = std::min(text.find_first_not_of(blanks, at), text.size());
    if (!first) {
        if (at == text.size() || text[at] != ',') {
            return std::nullopt;
        }
        at = std::min(text.find_first_not_of(blanks, at + 1), text.size());
    }
    if (at == text.size() || text[at] != '{') {
        return std::nullopt;
    }
    int depth = 0;
    for (std::size_t i = at; i < text.size();) {
        i = text.find_first_of("\"{}", i);
        if (i == string_view::npos) {
            return std::nullopt;
        }
        if (text[i] == '"') {
            i = text.find_first_of("\"\\", i + 1);
            while (i != string_view::npos && text[i] == '\\') {
                i = text.find_first_of("\"\\", i + 2);
            }
            if (i == string_view::npos) {
                return std::nullopt;
            }
        } else {
            depth += text[i] == '{' ? 1 : -1;
        }
        ++i;
        if (depth == 0) {
            return i;
        }
    }
    return std::nullopt;
}

}  // namespace

class TraceStream::Impl {
  public:
    Impl(std::string place, std::uint64_t size) : place_(std::move(place)), size_(size) {}

    void feed(string_view block) {
        bytes_ += block.size();
        if (problem_) {
            return;
        }
        pending_ += block;
        if (!rows_) {
            read_head();
        }
        while (rows_ && !problem_ && pending_.size() >= next_cut_ && cut()) {
        }
    }

    void finish() {
        if (problem_) {
            return;
        }
        if (!rows_) {
            refuse(bytes_, "the list \"traceEvents\" does not begin");
            return;
        }
        // All that is left is events and "]}".
        string_view rest = pending_;
        const bool has_tail = drop_last(rest, '}') && drop_last(rest, ']');
        read_events(has_tail ? rest : string_view(pending_));
        if (!problem_ && !has_tail) {
            refuse(bytes_, "the file is cut short");
        }
        if (!problem_ && !rows_->complete()) {
            refuse(bytes_, "actions are missing");
        }
    }

    bool complete() const { return rows_ && !problem_ && rows_->complete(); }
    bool has_metadata() const { return rows_.has_value(); }
    std::uint64_t bytes() const { return bytes_; }
    std::uint64_t stop() const { return problem_ ? stop_ : bytes_; }
    std::size_t step_count() const {
        PIPETWIN_EXPECT(rows_.has_value(), "metadata that were read");
        return rows_->step_count();
    }
    Error error() const {
        PIPETWIN_EXPECT(problem_.has_value(), "a trace that is not complete");
        return *problem_;
    }
    Trace take() { return rows_->finish(complete()); }

  private:
    static constexpr std::size_t largest_head = std::size_t{256} << 20;
    static constexpr std::size_t window = std::size_t{1} << 20;
    static constexpr std::size_t largest_event = std::size_t{64} << 20;

    static bool drop_last(string_view& text, char last) {
        const std::size_t end = text.find_last_not_of(blanks);
        if (end == string_view::npos || text[end] != last) {
            return false;
        }
        text = text.substr(0, end);
        return true;
    }

    void refuse(std::uint64_t byte, std::string what) {
        stop_ = byte;
        problem_ = Error(ErrorKind::BadInput,
                         fmt::format("{}: byte {}", place_, byte),
                         std::move(what),
                         "the file was cut short or edited; write it anew");
    }

    /// Everything up to the list of events, which the strict readers take as a small document.
    void read_head() {
        constexpr string_view key = "\"traceEvents\"";
        const string_view text = pending_;
        while (true) {
            const std::size_t found = text.find(key, searched_);
            if (found == string_view::npos) {
                searched_ = text.size() - std::min(text.size(), key.size());
                if (text.size() > largest_head) {
                    refuse(0, "more than 256 MiB before the list \"traceEvents\"");
                }
                return;
            }
            std::size_t at = text.find_first_not_of(blanks, found + key.size());
            if (at != string_view::npos && text[at] == ':') {
                at = text.find_first_not_of(blanks, at + 1);
            }
            if (at == string_view::npos) {
                searched_ = found;
                return;  // the rest of it is still to come
            }
            if (text[at] == '[') {
                begin_events(at + 1);
                return;
            }
            searched_ = found + key.size();
        }
    }

    void begin_events(std::size_t head_size) {
        try {
            const nlohmann::json head = parse_json(
                pending_.substr(0, head_size) + "]}", place_, {.max_bytes = head_size + 2});
            Metadata metadata = read_metadata(JsonObject(head, place_, ""), place_);
            expect_room(metadata, size_, place_);
            rows_.emplace(std::move(metadata));
        } catch (const Error& error) {
            problem_ = error;
            return;
        }
        drop(head_size);
        next_cut_ = window;
    }

    void drop(std::size_t count) {
        pending_.erase(0, count);
        offset_ += count;
    }

    /// Reads the events that are whole. False if more bytes are needed.
    bool cut() {
        constexpr string_view between = "},\n{";
        const std::size_t found = pending_.rfind(between);
        std::size_t end = found == std::string::npos ? 0 : found + 1;
        if (end == 0) {  // another layout
            std::size_t at = 0;
            while (const auto next = end_of_event(pending_, at, events_ + (end > 0) == 0)) {
                at = end = *next;
            }
        }
        if (end == 0) {
            next_cut_ = 2 * pending_.size();
            if (pending_.size() > largest_event) {
                refuse(offset_, "no event, or one longer than 64 MiB");
            }
            return false;
        }
        read_events(string_view(pending_).substr(0, end));
        drop(end);
        next_cut_ = window;
        return true;
    }

    /// At once if they are as they should be, else one by one up to the first that is not.
    void read_events(string_view text) {
        const std::size_t begin = text.find_first_not_of(blanks);
        if (begin == string_view::npos) {
            return;
        }
        const bool follows = events_ > 0 && text[begin] == ',';
        std::size_t taken = 0;
        if (follows || events_ == 0) {
            const std::optional<element> list =
                parse("[", text.substr(begin + (follows ? 1 : 0)), "]");
            simdjson::dom::array events;
            if (list && list->get(events) == simdjson::SUCCESS && events.size() > 0) {
                while_taken(events, taken);
                if (taken == events.size()) {
                    return;
                }
            }
        }
        read_one_by_one(text, taken);
    }

    void while_taken(const simdjson::dom::array& events, std::size_t& taken) {
        for (const element& value : events) {
            Event event;
            if (!read_event(value, event) || !rows_->take(event)) {
                return;
            }
            ++taken;
            ++events_;
        }
    }

    /// `taken`: how many of them have been.
    void read_one_by_one(string_view text, std::size_t taken) {
        const std::size_t before = events_ - taken;
        std::size_t at = 0;
        for (std::size_t number = 0;; ++number) {
            const auto end = end_of_event(text, at, before + number == 0);
            const string_view one = text.substr(at, end ? *end - at : string_view::npos);
            if (!end) {
                if (one.find_first_not_of(blanks) != string_view::npos || number < taken) {
                    refuse(offset_ + at, "the file is cut short or damaged within an event");
                }
                return;
            }
            if (number >= taken) {
                const std::optional<element> value = parse("", one, "");
                Event event;
                if (!value || !read_event(*value, event) || !rows_->take(event)) {
                    refuse(offset_ + at,
                           fmt::format("an event that is not as expected: {}", excerpt(one)));
                    return;
                }
                ++events_;
            }
            at = *end;
        }
    }

    static std::string excerpt(string_view event) {
        constexpr std::size_t longest = 80;
        std::string text(event.substr(0, longest));
        for (char& c : text) {
            c = c < ' ' || c > '~' ? '?' : c;
        }
        return event.size() > longest ? text + "..." : text;
    }

    std::optional<element> parse(string_view open, string_view text, string_view close) {
        text_.clear();
        text_.reserve(open.size() + text.size() + close.size() + simdjson::SIMDJSON_PADDING);
        text_.append(open).append(text).append(close);
        const std::size_t size = text_.size();
        text_.append(simdjson::SIMDJSON_PADDING, ' ');
        element value;
        if (parser_.parse(text_.data(), size, false).get(value) != simdjson::SUCCESS) {
            return std::nullopt;
        }
        return value;
    }

    std::string place_;
    std::uint64_t size_;
    std::optional<Error> problem_;
    std::optional<Rows> rows_;
    std::string pending_;       ///< came, but is not read yet
    std::uint64_t offset_ = 0;  ///< of its first byte in the file
    std::uint64_t bytes_ = 0;
    std::uint64_t stop_ = 0;
    std::size_t searched_ = 0;  ///< of the head
    std::size_t next_cut_ = 0;  ///< bytes that have to be pending
    std::size_t events_ = 0;
    std::string text_;  ///< what is being parsed, with room behind it
    simdjson::dom::parser parser_;
};

TraceStream::TraceStream(std::string place, std::uint64_t size)
    : impl_(std::make_unique<Impl>(std::move(place), size)) {}
TraceStream::~TraceStream() = default;
TraceStream::TraceStream(TraceStream&& other) noexcept = default;
TraceStream& TraceStream::operator=(TraceStream&& other) noexcept = default;

void TraceStream::feed(string_view block) {
    impl_->feed(block);
}
void TraceStream::finish() {
    impl_->finish();
}
bool TraceStream::complete() const {
    return impl_->complete();
}
bool TraceStream::has_metadata() const {
    return impl_->has_metadata();
}
std::uint64_t TraceStream::bytes() const {
    return impl_->bytes();
}
std::uint64_t TraceStream::stop() const {
    return impl_->stop();
}
std::size_t TraceStream::step_count() const {
    return impl_->step_count();
}
Error TraceStream::error() const {
    return impl_->error();
}
Trace TraceStream::take() {
    return impl_->take();
}

}  // namespace pipetwin

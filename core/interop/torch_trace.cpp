#include "core/interop/torch_trace.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "core/text/input_iterator.h"

namespace pipetwin {

namespace {

using nlohmann::json;
using std::string_view;

constexpr string_view range_prefix = "PP:";
constexpr string_view how_to_record =
    "the schedules of torch.distributed.pipelining that hold several stages per rank record them "
    "where torch.profiler runs; in a loop of your own put each action into 'with "
    "torch.profiler.record_function(\"PP:0F3\")' (stage, F, B, I or W, micro-batch)";
/// Largest number of a stage or a rank, as a schedule file may have at most.
constexpr int largest_stage = 262'143;

// --- Bytes. ---

/// The bytes of a text or file, a block at a time.
class Source {
  public:
    /// Fills the block and returns how much of it; 0 at the end.
    using Read = std::function<std::size_t(std::span<char>)>;

    Source(string_view place, Read read)
        : place_(place), read_(std::move(read)), block_(std::size_t{1} << 16) {
        refill();
    }

    bool at_end() const { return size_ == 0; }
    const char& current() const { return block_[at_]; }
    void next() {
        if (++at_ == size_) {
            refill();
        }
    }

    /// Place of the byte that was read last: "file:line:column".
    std::string position() const {
        const auto end = block_.begin() + static_cast<std::ptrdiff_t>(at_);
        const auto lines = std::count(block_.begin(), end, '\n');
        const auto line_begin = std::find(std::reverse_iterator(end), block_.rend(), '\n').base();
        const std::int64_t column = end - line_begin + (lines == 0 ? columns_before_ : 0);
        return fmt::format(
            "{}:{}:{}", place_, 1 + lines_before_ + lines, std::max(column, std::int64_t{1}));
    }

  private:
    void refill() {
        for (std::size_t i = 0; i < size_; ++i) {
            columns_before_ = block_[i] == '\n' ? 0 : columns_before_ + 1;
            lines_before_ += block_[i] == '\n' ? 1 : 0;
        }
        at_ = 0;
        size_ = 0;
        size_ = read_(block_);
    }

    string_view place_;
    Read read_;
    std::vector<char> block_;
    std::size_t size_ = 0;
    std::size_t at_ = 0;
    std::int64_t lines_before_ = 0;    ///< in blocks that are gone
    std::int64_t columns_before_ = 0;  ///< of a line that began in one of them
};

/// Iterator over the characters of a source, for the JSON parser.
class SourceIterator : public InputIterator<SourceIterator> {
  public:
    SourceIterator() = default;
    explicit SourceIterator(Source* source) : source_(source) {}

    const char& current() const { return source_->current(); }
    void next() { source_->next(); }
    /// Only ever compared with the end.
    bool operator==(const SourceIterator& other) const {
        const auto is_end = [](const Source* source) {
            return source == nullptr || source->at_end();
        };
        return is_end(source_) == is_end(other.source_);
    }

  private:
    Source* source_ = nullptr;
};

// --- Events. ---

enum class Kind { Forward, Backward, BackwardInput, BackwardWeight, OldWholeBackward, Other };

struct Range {
    int stage = 0;
    Kind kind = Kind::Other;
    Op op{};
    int micro_batch = 0;
};

Op op_named(string_view word) {
    for (int i = 0; i < op_count; ++i) {
        if (op_text(static_cast<Op>(i)) == word) {
            return static_cast<Op>(i);
        }
    }
    return Op::Backward;  // BW
}

constexpr std::array<std::pair<string_view, Kind>, 15> kinds{{
    {"F", Kind::Forward},
    {"B", Kind::Backward},
    {"I", Kind::BackwardInput},
    {"W", Kind::BackwardWeight},
    {"BW", Kind::OldWholeBackward},
    {"R", Kind::Other},
    {"NORM", Kind::Other},
    {"OPT", Kind::Other},
    {"SEND_F", Kind::Other},
    {"RECV_F", Kind::Other},
    {"SEND_B", Kind::Other},
    {"RECV_B", Kind::Other},
    {"UNSHARD", Kind::Other},
    {"RESHARD", Kind::Other},
    {"REDUCE_GRAD", Kind::Other},
}};

/// "2F0"; none for what is no action.
std::optional<Range> parse_range(string_view text) {
    Range range;
    const char* const end = text.data() + text.size();
    const auto [word_begin, status] = std::from_chars(text.data(), end, range.stage);
    if (status != std::errc{} || range.stage < 0 || range.stage > largest_stage) {
        return std::nullopt;
    }
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const char* const word_end = std::find_if(word_begin, end, is_digit);
    if (!std::all_of(word_end, end, is_digit)) {
        return std::nullopt;
    }
    const string_view word(word_begin, static_cast<std::size_t>(word_end - word_begin));
    const auto* const known = std::ranges::find(kinds, word, &std::pair<string_view, Kind>::first);
    if (known == kinds.end()) {
        return std::nullopt;
    }
    range.kind = known->second;
    range.op = op_named(word);
    const bool has_number = word_end != end;
    if (has_number && std::from_chars(word_end, end, range.micro_batch).ec != std::errc{}) {
        return std::nullopt;
    }
    return range;
}

/// The ranges of one thread or stream.
struct Lane {
    StageTimes stages;
    Duration total{};
    bool has_old_dialect = false;
    std::vector<Span> spans;             ///< only where they are wanted
    std::vector<std::size_t> old_spans;  ///< those of BW

    void add(const Range& range, Duration begin, Duration duration) {
        if (range.kind == Kind::OldWholeBackward) {
            old_spans.push_back(spans.size());
        }
        spans.push_back(
            {.action = {.op = range.op, .stage = range.stage, .micro_batch = range.micro_batch},
             .begin = begin,
             .ready = begin,
             .end = begin + duration});
    }

    std::vector<Span> take_spans() {
        if (has_old_dialect) {
            for (Span& span : spans) {
                const bool is_input = span.action.op == Op::Backward;
                span.action.op = is_input ? Op::BackwardInput : span.action.op;
            }
            for (const std::size_t old : old_spans) {
                spans[old].action.op = Op::Backward;
            }
        }
        std::ranges::stable_sort(spans, {}, &Span::begin);
        return std::move(spans);
    }

    void add(const Range& range, Duration duration) {
        StageDurations& stage = stages[range.stage];
        total += duration;
        switch (range.kind) {
            case Kind::Forward:
                stage.forward.push_back(duration);
                return;
            case Kind::Backward:
                stage.backward.push_back(duration);
                return;
            case Kind::BackwardInput:
                stage.backward_input.push_back(duration);
                return;
            case Kind::BackwardWeight:
                stage.backward_weight.push_back(duration);
                return;
            case Kind::OldWholeBackward:
                old_whole[range.stage].push_back(duration);
                has_old_dialect = true;
                return;
            case Kind::Other:
                return;
        }
    }

    StageTimes take() {
        if (has_old_dialect) {
            for (auto& [stage, durations] : stages) {
                durations.backward_input = std::move(durations.backward);
                durations.backward = std::move(old_whole[stage]);
            }
        }
        return std::move(stages);
    }

    std::map<int, std::vector<Duration>> old_whole;
};

/// The fields of the event that is being read.
struct Event {
    std::string name;
    std::string category;
    std::string phase;
    std::string lane;
    std::optional<double> begin;  ///< microseconds, as the next
    std::optional<double> microseconds;
};

/// Sees the JSON event by event and keeps the durations of the ranges.
class TraceReader final : public nlohmann::json_sax<json> {
  public:
    TraceReader(const Source& source, string_view place, bool with_spans)
        : source_(source), place_(place), with_spans_(with_spans) {}

    TorchSpans take_spans() {
        const TorchTrace trace = take();
        return {.rank = trace.rank,
                .spans = std::move(spans_),
                .overlapped_pairs = trace.overlapped_pairs};
    }

    TorchTrace take() {
        if (!has_events_) {
            throw Error(
                ErrorKind::BadInput,
                std::string(place_),
                "no \"traceEvents\", expected Chrome trace JSON as torch.profiler writes it",
                "in Python: profile.export_chrome_trace(\"rank0.json.gz\")");
        }
        const auto longest =
            std::ranges::max_element(gpu_, {}, [](const auto& lane) { return lane.second.total; });
        trace_.on_gpu = longest != gpu_.end();
        trace_.only_launches = !trace_.on_gpu && has_kernels_;
        Lane& lane = trace_.on_gpu ? longest->second : cpu_;
        trace_.stages = lane.take();
        spans_ = lane.take_spans();
        const bool has_forward = std::ranges::any_of(
            trace_.stages, [](const auto& stage) { return !stage.second.forward.empty(); });
        if (!has_forward) {
            refuse_without_ranges();
        }
        return std::move(trace_);
    }

    bool null() override { return true; }
    bool boolean(bool) override { return true; }
    bool binary(json::binary_t&) override { return true; }
    bool number_integer(std::int64_t value) override { return number(static_cast<double>(value)); }
    bool number_unsigned(std::uint64_t value) override {
        return number(static_cast<double>(value));
    }
    bool number_float(double value, const std::string&) override { return number(value); }

    bool string(std::string& text) override {
        if (std::cmp_not_equal(depth_, event_depth_)) {
            return true;
        }
        if (key_ == "name") {
            event_.name = std::move(text);
        } else if (key_ == "cat") {
            event_.category = std::move(text);
        } else if (key_ == "ph") {
            event_.phase = std::move(text);
        } else if (key_ == "pid" || key_ == "tid") {
            event_.lane += text + ' ';
        }
        return true;
    }

    bool start_object(std::size_t) override {
        open();
        if (depth_ == event_depth_) {
            event_ = {};
        }
        return true;
    }

    bool end_object() override {
        if (depth_ == event_depth_) {
            take_event();
        }
        close();
        return true;
    }

    bool start_array(std::size_t) override {
        const bool is_whole_file = depth_ == 0;
        const bool is_events = is_whole_file || (depth_ == 1 && top_key_ == "traceEvents");
        open();
        if (is_events) {
            event_depth_ = depth_ + 1;
            has_events_ = true;
        }
        return true;
    }

    bool end_array() override {
        if (depth_ + 1 == event_depth_) {
            event_depth_ = none;
        }
        close();
        return true;
    }

    bool key(std::string& name) override {
        if (depth_ == 1) {
            top_key_ = name;
        }
        if (depth_ == 2 || depth_ == event_depth_) {
            key_ = std::move(name);
        }
        return true;
    }

    bool parse_error(std::size_t,
                     const std::string&,
                     const nlohmann::detail::exception& error) override {
        string_view reason = error.what();
        for (const string_view lead : {"] ", " - "}) {
            const std::size_t found = reason.find(lead);
            if (found != string_view::npos) {
                reason.remove_prefix(found + lead.size());
            }
        }
        throw Error(ErrorKind::BadInput,
                    source_.position(),
                    std::string(reason.substr(0, 200)),
                    "the file is cut short or no JSON: export the trace again");
    }

  private:
    static constexpr int none = -1;
    static constexpr int deepest = 512;

    void open() {
        if (++depth_ > deepest) {
            throw Error(ErrorKind::BadInput,
                        source_.position(),
                        fmt::format("nested deeper than {}", deepest));
        }
    }
    void close() { --depth_; }

    bool number(double value) {
        if (depth_ == event_depth_) {
            if (key_ == "dur") {
                event_.microseconds = value;
            } else if (key_ == "ts") {
                event_.begin = value;
            } else if (key_ == "pid" || key_ == "tid") {
                event_.lane += fmt::format("{} ", value);
            }
        } else if (depth_ == 2 && top_key_ == "distributedInfo") {
            const bool is_count =
                value >= 0 && value <= largest_stage && value == std::floor(value);
            if (is_count && key_ == "rank") {
                trace_.rank = static_cast<int>(value);
            } else if (is_count && key_ == "world_size") {
                trace_.world_size = static_cast<int>(value);
            }
        }
        return true;
    }

    void take_event() {
        has_kernels_ = has_kernels_ || event_.category == "kernel";
        string_view name = event_.name;
        if (event_.phase != "X" || !name.starts_with(range_prefix)) {
            return;
        }
        name.remove_prefix(range_prefix.size());
        if (name.starts_with('(')) {
            ++trace_.overlapped_pairs;
            return;
        }
        const std::optional<Range> range = parse_range(name);
        if (!range) {
            throw Error(ErrorKind::BadInput,
                        source_.position(),
                        fmt::format("range '{}', expected PP: and an action",
                                    string_view(event_.name).substr(0, 60)),
                        "an action is stage, word and micro-batch, as in PP:2F0");
        }
        constexpr double longest = 9e12;  // microseconds; 2^53 nanoseconds
        const double duration = event_.microseconds.value_or(-1);
        if (!(duration >= 0 && duration <= longest)) {
            throw Error(
                ErrorKind::BadInput,
                source_.position(),
                fmt::format("range '{}' has no \"dur\", expected microseconds", event_.name),
                R"(only complete events ("ph": "X") say how long they took)");
        }
        Lane& lane = event_.category == "gpu_user_annotation" ? gpu_[event_.lane] : cpu_;
        const Duration length{std::llround(duration * 1000)};
        lane.add(*range, length);
        if (with_spans_) {
            const double begin = event_.begin.value_or(-1);
            if (!(begin >= 0 && begin <= longest)) {
                throw Error(
                    ErrorKind::BadInput,
                    source_.position(),
                    fmt::format("range '{}' has no \"ts\", expected microseconds", event_.name));
            }
            lane.add(*range, Duration{std::llround(begin * 1000)}, length);
        }
    }

    [[noreturn]] void refuse_without_ranges() const {
        throw Error(
            ErrorKind::BadInput,
            std::string(place_),
            trace_.overlapped_pairs > 0
                ? "only ranges of pairs (OVERLAP_F_B), which do not say what each of the two "
                  "took, expected ranges of a forward, named PP:0F3"
                : "no ranges of a forward, named PP:0F3 (stage 0, micro-batch 3)",
            std::string(how_to_record));
    }

    const Source& source_;
    string_view place_;
    bool with_spans_;
    TorchTrace trace_;
    std::vector<Span> spans_;
    Lane cpu_;
    std::map<std::string, Lane> gpu_;  ///< by stream
    bool has_events_ = false;
    bool has_kernels_ = false;
    int depth_ = 0;
    int event_depth_ = none;  ///< of an event's own keys, inside the list of events
    std::string top_key_;
    std::string key_;
    Event event_;
};

/// Feeds all of it to a reader, and gives what `take` takes from that.
template <class Take>
auto read_source(string_view place, Source::Read read, bool with_spans, Take take) {
    Source source(place, std::move(read));
    TraceReader reader(source, place, with_spans);
    json::sax_parse(SourceIterator(&source), SourceIterator(), &reader);
    return take(reader);
}

TorchTrace durations_of(string_view place, Source::Read read) {
    return read_source(place, std::move(read), false, [](auto& reader) { return reader.take(); });
}

TorchSpans spans_of(string_view place, Source::Read read) {
    return read_source(
        place, std::move(read), true, [](auto& reader) { return reader.take_spans(); });
}

Source::Read blocks_of(string_view text) {
    return [text](std::span<char> block) mutable {
        const std::size_t size = text.copy(block.data(), block.size());
        text.remove_prefix(size);
        return size;
    };
}

/// Reads a file, plain or gzip; returns the result that `read` makes of its blocks.
template <class Result>
Result read_packed(const std::filesystem::path& file,
                   Result (*read)(string_view place, Source::Read blocks)) {
    const std::string place = file.string();
    const auto refuse_io = [&place] {
        const int code = errno;
        throw Error(ErrorKind::Io,
                    place,
                    fmt::format("cannot read: {}", std::generic_category().message(code)));
    };
    const std::unique_ptr<gzFile_s, int (*)(gzFile)> open(::gzopen(place.c_str(), "rb"),
                                                          &::gzclose);
    if (open == nullptr) {
        refuse_io();
    }
    return read(place, [&](std::span<char> block) {
        const int size = ::gzread(open.get(), block.data(), static_cast<unsigned>(block.size()));
        int code = Z_OK;
        const char* const text = ::gzerror(open.get(), &code);
        if (code == Z_ERRNO) {
            refuse_io();
        }
        if (size < 0 || code != Z_OK) {  // Z_BUF_ERROR: the compressed stream ends too early
            throw Error(ErrorKind::BadInput,
                        place,
                        fmt::format("the compressed file is damaged or cut short: {}", text),
                        "copy or export it again");
        }
        return static_cast<std::size_t>(size);
    });
}

}  // namespace

TorchTrace parse_torch_trace(string_view text, string_view place) {
    return durations_of(place, blocks_of(text));
}

TorchTrace read_torch_trace(const std::filesystem::path& file) {
    return read_packed(file, &durations_of);
}

TorchSpans read_torch_spans(const std::filesystem::path& file) {
    return read_packed(file, &spans_of);
}

}  // namespace pipetwin

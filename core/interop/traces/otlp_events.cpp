// SPDX-License-Identifier: Apache-2.0
#include "core/interop/traces/otlp_events.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/artifacts/file_kinds.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/printable.h"
#include "core/base/undertaking.h"

namespace pipetwin {

namespace {

using nlohmann::json;
using std::string_view;

/// The most that one document may take; a collector's batch has some MB.
constexpr std::size_t most_of_document = std::size_t{256} << 20;
constexpr std::size_t deepest = 64;
constexpr std::int64_t most_of_rank = 262'143;
/// Nanoseconds since 1970 until the year 2096.
constexpr std::int64_t last_moment = 4'000'000'000'000'000'000;

constexpr string_view micro_batch_hint =
    "record them: Megatron's --otel-span-groups per_step,microbatch (or all); spans of another "
    "program are named by --forward and --backward";

/// A whole number that JSON has as a number or as a string; none where it is neither.
std::optional<std::int64_t> whole(const json& value) {
    if (value.is_number_integer()) {
        const bool fits = !value.is_number_unsigned() ||
                          value.get<std::uint64_t>() <= static_cast<std::uint64_t>(last_moment);
        return fits ? std::optional(value.get<std::int64_t>()) : std::nullopt;
    }
    if (!value.is_string()) {
        return std::nullopt;
    }
    const auto& text = value.get_ref<const std::string&>();
    std::int64_t number = 0;
    const auto [rest, status] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool good = status == std::errc{} && rest == text.data() + text.size() && !text.empty();
    return good ? std::optional(number) : std::nullopt;
}

/// The value of a key of an object; null where it has no such key.
const json& member(const json& object, const char* key) {
    static const json nothing;
    const auto found = object.is_object() ? object.find(key) : object.end();
    return object.is_object() && found != object.end() ? *found : nothing;
}

/// The value of an attribute; null where there is none: {"key": ..., "value": {"intValue": "3"}}.
const json& attribute(const json& owner, string_view name) {
    static const json nothing;
    for (const json& one : member(owner, "attributes")) {
        const json& key = member(one, "key");
        const json& value = member(one, "value");
        if (key.is_string() && key.get_ref<const std::string&>() == name && value.is_object() &&
            !value.empty()) {
            return value.begin().value();
        }
    }
    return nothing;
}

std::optional<int> count_attribute(const json& owner, string_view name) {
    const std::optional<std::int64_t> value = whole(attribute(owner, name));
    return value && *value >= 0 && *value <= most_of_rank ? std::optional(static_cast<int>(*value))
                                                          : std::nullopt;
}

/// What a span of Megatron is, by its name.
enum class SpanRole { Other, Action, Iteration, TrainStep, Evaluation, Optimizer };

/// What is kept of a span.
struct KeptSpan {
    SpanRole role{};
    NamedAction action{};
    bool is_megatron = false;
    std::optional<int> number{};  ///< of an iteration
    Duration begin{};
    Duration end{};
};

/// Spans of one rank.
struct RankSpans {
    std::optional<int> rank{};
    std::optional<int> world_size{};
    std::optional<int> pipeline_size{};
    std::optional<int> pipeline_rank{};
    std::optional<int> micro_batch_size{};
    std::optional<int> micro_batches{};
    std::vector<KeptSpan> spans{};
    std::set<std::string> ids{};  ///< of the spans
};

/// The stage's place in the pipeline of a rank whose spans do not say it, as Megatron numbers
/// ranks: those of one stage follow each other.
std::optional<int> place_in_pipeline(const RankSpans& of) {
    if (of.pipeline_rank || !of.rank || !of.world_size || of.pipeline_size.value_or(0) < 1) {
        return of.pipeline_rank;
    }
    const int per_stage = *of.world_size / *of.pipeline_size;
    return per_stage > 0 && *of.rank < *of.world_size ? std::optional(*of.rank / per_stage)
                                                      : std::nullopt;
}

/// Micro-batches of an iteration: the batch over the samples of a micro-batch in all replicas.
std::optional<int> micro_batches_of(const json& resource) {
    const std::optional<int> batch = count_attribute(resource, "dl.batch_size");
    const std::optional<int> samples = count_attribute(resource, "megatron.micro_batch_size");
    const std::optional<int> replicas = count_attribute(resource, "dl.data_parallel.size");
    const std::int64_t together = std::int64_t{samples.value_or(0)} * replicas.value_or(0);
    return batch && together > 0 && *batch % together == 0
               ? std::optional(static_cast<int>(*batch / together))
               : std::nullopt;
}

/// Makes events of the spans of a rank.
class RankMaker {
  public:
    RankMaker(RankSpans spans, string_view place) : spans_(std::move(spans)), place_(place) {}

    TraceEvents make() {
        events_.rank = spans_.rank;
        events_.world_size = spans_.world_size;
        events_.pipeline_rank = place_in_pipeline(spans_);
        events_.pipeline_size = spans_.pipeline_size;
        events_.micro_batch_size = spans_.micro_batch_size;
        events_.lanes.push_back({.name = "of the host", .on_device = false});
        std::ranges::stable_sort(spans_.spans, {}, &KeptSpan::begin);
        // An iteration holds its step, which counts only where iterations were not recorded.
        const bool has_iterations = std::ranges::any_of(spans_.spans, [](const KeptSpan& span) {
            return span.role == SpanRole::Iteration && span.number;
        });
        const SpanRole of_steps = has_iterations ? SpanRole::Iteration : SpanRole::TrainStep;
        for (const KeptSpan& span : spans_.spans) {
            const TraceStep step{.number = span.number.value_or(0),
                                 .lane = 0,
                                 .begin = span.begin,
                                 .length = span.end - span.begin};
            if (span.role == of_steps && span.number) {
                events_.steps.push_back(step);
            } else if (span.role == SpanRole::Optimizer) {
                events_.optimizer_steps.push_back(step);
            } else if (span.role == SpanRole::Evaluation) {
                const Duration before =
                    evaluations_.empty() ? span.end : evaluations_.back().second;
                evaluations_.emplace_back(span.begin, std::max(before, span.end));
            }
        }
        take_actions();
        return std::move(events_);
    }

  private:
    /// Actions of an evaluation are none of a training step.
    void take_actions() {
        std::map<std::pair<int, Op>, int> counts;  // [iteration, op]
        for (const KeptSpan& span : spans_.spans) {
            if (span.role != SpanRole::Action || is_of_evaluation(span)) {
                continue;
            }
            const std::optional<int> iteration = iteration_of(span);
            if (span.is_megatron && !events_.steps.empty() && !iteration) {
                continue;
            }
            NamedAction action = span.action;
            if (iteration && span.is_megatron) {
                const int number = counts[{*iteration, action.op}]++;
                action.micro_batch = action.micro_batch.value_or(number);
                expect_one_stage(action.op, number);
            }
            events_.ranges.push_back({.action = action,
                                      .lane = 0,
                                      .begin = span.begin,
                                      .length = span.end - span.begin});
        }
    }

    void expect_one_stage(Op op, int number) const {
        if (spans_.micro_batches && number >= *spans_.micro_batches) {
            throw Error(
                ErrorKind::BadInput,
                std::string(place_),
                fmt::format(
                    "rank {} has more than {} of an iteration, its number of micro-batches: "
                    "it has several stages, and Megatron's spans do not say which of them "
                    "one is of",
                    spans_.rank.value_or(0),
                    counted(*spans_.micro_batches, op == Op::Forward ? "forward" : "backward")),
                "record these ranks with torch.profiler, and ranges named PP:0F3 (stage, F or B, "
                "micro-batch)");
        }
    }

    bool is_of_evaluation(const KeptSpan& one) const {
        const auto after = std::ranges::upper_bound(
            evaluations_, one.begin, {}, &std::pair<Duration, Duration>::first);
        return after != evaluations_.begin() && one.begin < std::prev(after)->second;
    }

    std::optional<int> iteration_of(const KeptSpan& one) const {
        const auto after =
            std::ranges::upper_bound(events_.steps, one.begin, {}, &TraceStep::begin);
        if (after == events_.steps.begin()) {
            return std::nullopt;
        }
        const TraceStep& step = *std::prev(after);
        return one.begin < step.begin + step.length ? std::optional(step.number) : std::nullopt;
    }

    RankSpans spans_;
    string_view place_;
    TraceEvents events_;
    std::vector<std::pair<Duration, Duration>> evaluations_;  ///< begin, latest end until then
};

/// Reads documents one after the other.
class OtlpReader {
  public:
    OtlpReader(ByteSource& source,
               string_view place,
               const RangeNames& names,
               const TraceLimits& limits)
        : source_(source), place_(place), names_(names), kept_(limits) {}

    std::vector<TraceEvents> read() {
        for (skip_blanks(); !source_.at_end(); skip_blanks()) {
            const std::string begins_at = source_.position();
            const std::optional<std::string> text = next_document(begins_at);
            if (!text) {
                break;
            }
            take_document(*text, begins_at);
        }
        if (cut_.empty() && source_.is_cut()) {
            note_cut();
        }
        return finished();
    }

  private:
    void skip_blanks() {
        while (!source_.at_end() &&
               string_view(" \t\r\n").find(source_.current()) != string_view::npos) {
            source_.next();
        }
        source_.token_ended();
    }

    /// The text of one object; none where the file ends before it is whole.
    std::optional<std::string> next_document(const std::string& begins_at) {
        if (source_.current() != '{') {
            refuse(begins_at, "expected a JSON object with \"resourceSpans\", as OTLP has them");
        }
        std::string text;
        std::string open;  // brackets
        bool in_quotes = false;
        bool is_escaped = false;
        while (!source_.at_end()) {
            const char c = source_.current();
            text += c;
            source_.next();
            if (in_quotes) {
                in_quotes = is_escaped || c != '"';
                is_escaped = !is_escaped && c == '\\';
            } else if (c == '"') {
                in_quotes = true;
            } else {
                source_.token_ended();
                count_bracket(c, open);
            }
            if (text.size() > most_of_document) {
                refuse(begins_at,
                       "a document of more than 256 MiB begins here",
                       "let the collector write smaller batches, a line each");
            }
            if (open.empty()) {
                return text;
            }
        }
        if (documents_ == 0) {
            refuse(source_.position(), "the file ends here, before its first document is whole");
        }
        note_cut();
        return std::nullopt;
    }

    void note_cut() {
        cut_ = fmt::format("the file ends too early, at {}: {} before that {}",
                           source_.position(),
                           counted(documents_, "whole document"),
                           verb_for(documents_, "counts", "count"));
    }

    void count_bracket(char c, std::string& open) const {
        if (c == '{' || c == '[') {
            open += c;
        } else if (c == '}' || c == ']') {
            if (open.back() != (c == '}' ? '{' : '[')) {
                refuse(source_.position(), fmt::format("'{}' closes what is not open", c));
            }
            open.pop_back();
        }
        if (open.size() > deepest) {
            refuse(source_.position(), fmt::format("nested deeper than {}", deepest));
        }
    }

    [[noreturn]] static void refuse(const std::string& at,
                                    std::string what,
                                    std::string hint =
                                        "export the spans again: a collector's file "
                                        "exporter writes them with format: json") {
        throw Error(ErrorKind::BadInput, at, std::move(what), std::move(hint));
    }

    void take_document(const std::string& text, const std::string& begins_at) {
        const json document = json::parse(text, nullptr, false);
        if (document.is_discarded()) {
            refuse(begins_at, "the object that begins here is no JSON");
        }
        ++documents_;
        for (const char* const key : {"resourceSpans", "batches"}) {  // batches: of Tempo
            for (const json& of_resource : member(document, key)) {
                take_resource(of_resource, begins_at);
            }
        }
    }

    void take_resource(const json& of_resource, const std::string& begins_at) {
        RankSpans& rank = rank_of(member(of_resource, "resource"));
        for (const char* const key : {"scopeSpans", "instrumentationLibrarySpans"}) {
            for (const json& scope : member(of_resource, key)) {
                for (const json& span : member(scope, "spans")) {
                    take_span(span, rank, begins_at);
                }
            }
        }
    }

    RankSpans& rank_of(const json& resource) {
        const std::optional<int> number = count_attribute(resource, "dl.rank");
        const std::string key = number ? fmt::format("{:06}", *number) : resource.dump();
        const auto [found, is_new] = ranks_.emplace(key, RankSpans{});
        if (is_new) {
            keep(key.size() + sizeof(RankSpans));
            found->second.rank = number;
            found->second.world_size = count_attribute(resource, "dl.world_size");
            found->second.pipeline_size = count_attribute(resource, "dl.pipeline_parallel.size");
            found->second.pipeline_rank = count_attribute(resource, "dl.pipeline_parallel.rank");
            found->second.micro_batch_size = count_attribute(resource, "megatron.micro_batch_size");
            found->second.micro_batches = micro_batches_of(resource);
        }
        return found->second;
    }

    void keep(std::size_t bytes) {
        kept_.add(bytes, [this] { return source_.position(); });
    }

    /// A span may come twice where an exporter tried again.
    bool is_again(const json& span, RankSpans& rank) {
        const json& id = member(span, "spanId");
        const json& trace = member(span, "traceId");
        if (!id.is_string() || id.get_ref<const std::string&>().empty()) {
            return false;
        }
        std::string key =
            id.get<std::string>() + (trace.is_string() ? trace.get<std::string>() : "");
        const std::size_t bytes = key.size() + sizeof(std::string);
        const bool is_new = rank.ids.insert(std::move(key)).second;
        if (is_new) {
            keep(bytes);
        }
        return !is_new;
    }

    void take_span(const json& span, RankSpans& rank, const std::string& begins_at) {
        const json& name_value = member(span, "name");
        if (!name_value.is_string()) {
            return;
        }
        const std::string name = printable(name_value.get<std::string>());
        ++spans_;
        first_name_ = first_name_.empty() ? name.substr(0, 60) : first_name_;
        KeptSpan kept = role_of(name, span, begins_at);
        if (kept.role == SpanRole::Other || is_again(span, rank)) {
            return;
        }
        const std::optional<std::int64_t> begin = whole(member(span, "startTimeUnixNano"));
        const std::optional<std::int64_t> end = whole(member(span, "endTimeUnixNano"));
        if (!begin || !end || *begin < 0 || *end < *begin || *end > last_moment) {
            refuse(
                begins_at,
                fmt::format("span '{}' has no startTimeUnixNano and endTimeUnixNano in this order, "
                            "expected nanoseconds since 1970",
                            name.substr(0, 60)));
        }
        kept.begin = Duration{*begin};
        kept.end = Duration{*end};
        keep(sizeof(KeptSpan));
        rank.spans.push_back(kept);
        if (const auto place = count_attribute(span, "dl.pipeline_parallel.rank")) {
            rank.pipeline_rank = place;
        }
    }

    KeptSpan role_of(const std::string& name, const json& span, const std::string& begins_at) {
        KeptSpan kept;
        try {
            if (const std::optional<NamedAction> action = names_.find(name)) {
                kept.role = action->is_pair ? SpanRole::Other : SpanRole::Action;
                kept.action = *action;
                return kept;
            }
        } catch (const Error& error) {
            throw error.at(begins_at);
        }
        const bool is_forward = name == "megatron.microbatch.forward";
        if ((is_forward || name == "megatron.microbatch.backward") && !names_.are_patterns()) {
            kept.role = SpanRole::Action;
            kept.is_megatron = true;
            kept.action = {.op = is_forward ? Op::Forward : Op::Backward,
                           .micro_batch = count_attribute(span, "megatron.microbatch_id"),
                           .is_short = true};
        } else if (name == "megatron.train.iteration" || name == "megatron.train_step") {
            kept.role = name == "megatron.train_step" ? SpanRole::TrainStep : SpanRole::Iteration;
            kept.number = count_attribute(span, "megatron.iteration");
        } else if (name == "megatron.evaluate" || name == "megatron.evaluate.step") {
            kept.role = SpanRole::Evaluation;
        } else if (name == "megatron.optimizer_step") {
            kept.role = SpanRole::Optimizer;
        }
        return kept;
    }

    std::vector<TraceEvents> finished() {
        std::vector<TraceEvents> all;
        for (auto& [key, spans] : ranks_) {
            TraceEvents events = RankMaker(std::move(spans), place_).make();
            if (!events.ranges.empty()) {
                events.cut = cut_;
                events.is_of_spans = true;
                all.push_back(std::move(events));
            }
        }
        if (all.empty()) {
            throw Error(ErrorKind::BadInput,
                        std::string(place_),
                        spans_ == 0 ? "there is no span, expected \"resourceSpans\" with spans"
                                    : fmt::format("{}, none of a micro-batch; the first is '{}'",
                                                  counted(spans_, "span"),
                                                  first_name_),
                        std::string(micro_batch_hint));
        }
        return all;
    }

    ByteSource& source_;
    string_view place_;
    const RangeNames& names_;
    KeptMemory kept_;
    std::map<std::string, RankSpans> ranks_;
    std::string cut_;
    std::string first_name_;
    std::int64_t documents_ = 0;
    std::int64_t spans_ = 0;
};

std::vector<TraceEvents> otlp_events_of(string_view place,
                                        ByteSource::Blocks blocks,
                                        const RangeNames& names,
                                        const TraceLimits& limits) {
    const Undertaking undertaking(fmt::format("the spans of {}", place),
                                  "a file of fewer iterations does, or a higher limit of memory");
    ByteSource source(place, std::move(blocks), limits);
    return OtlpReader(source, place, names, limits).read();
}

}  // namespace

bool is_otlp_file(const std::filesystem::path& file) {
    return kind_of_file(file) == FileKind::Otlp;
}

std::vector<TraceEvents> parse_otlp_events(string_view text,
                                           string_view place,
                                           const RangeNames& names) {
    return otlp_events_of(place, blocks_of_text(text), names, {});
}

std::vector<TraceEvents> read_otlp_events(const std::filesystem::path& file,
                                          const RangeNames& names,
                                          const TraceLimits& limits) {
    return otlp_events_of(file.string(), blocks_of_file(file, limits), names, limits);
}

}  // namespace pipetwin

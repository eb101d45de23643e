// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/interop/import/importers.h"
#include "core/artifacts/chrome_trace.h"
#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/number_text.h"
#include "core/costs/profile_json.h"
#include "core/interop/traces/message_times.h"
#include "core/interop/traces/torch_trace.h"

namespace pipetwin::cli {

namespace {

constexpr const char* why_size =
    "costs are for a number of samples per micro-batch, which a trace does not give";

Imported imported_stages(Profile profile) {
    Imported imported{.content = print_profile(profile), .result = {}};
    imported.result.layers = static_cast<int>(profile.layers.size());
    imported.result.stages = imported.result.layers.value();
    imported.notes.emplace_back(
        "a trace has times but no sizes: in the profile messages and memory are 0 bytes until "
        "they are filled in");
    return imported;
}

/// The names of ranges that the options say; PyTorch's own where they say none.
RangeNames range_names(const RangeNameOptions& options) {
    if (options.given().empty()) {
        return {};
    }
    const bool whole = !options.backward.empty();
    const bool parts = !options.backward_input.empty() && !options.backward_weight.empty();
    if (options.forward.empty() || (!whole && !parts)) {
        throw Error(ErrorKind::Usage,
                    std::string(options.given()),
                    "patterns name the forward and the backward, and one of them is missing",
                    "give --forward and --backward, or --forward, --backward-input and "
                    "--backward-weight");
    }
    std::vector<RangeNames::Pattern> patterns;
    const std::array<std::pair<Op, const std::string*>, 4> given{
        {{Op::Forward, &options.forward},
         {Op::Backward, &options.backward},
         {Op::BackwardInput, &options.backward_input},
         {Op::BackwardWeight, &options.backward_weight}}};
    for (const auto& [op, text] : given) {
        if (!text->empty()) {
            patterns.push_back({.op = op, .text = *text});
        }
    }
    return RangeNames(std::move(patterns));
}

void append(std::vector<Duration>& to, const std::vector<Duration>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

/// The traces of all ranks, and what the user should know about them.
class Ranks {
  public:
    void add(const std::filesystem::path& file, TorchTrace trace) {
        if (trace.rank) {
            const auto [seen, is_new] = files_.emplace(*trace.rank, file.string());
            if (!is_new) {
                throw Error(
                    ErrorKind::BadInput,
                    file.string(),
                    fmt::format(
                        "it is the trace of rank {}, and so is {}", *trace.rank, seen->second),
                    "give one trace per rank");
            }
        }
        world_size_ = std::max(world_size_, trace.world_size.value_or(0));
        pairs_ += trace.overlapped_pairs;
        on_gpu_ = on_gpu_ || trace.on_gpu;
        only_launches_ = only_launches_ || trace.only_launches;
        traces_.push_back(std::move(trace));
    }

    /// To be called once all are there: numbers stages that the traces do not name.
    void finish() {
        const bool all_ranks = std::ranges::all_of(
            traces_, [](const TorchTrace& trace) { return trace.rank.has_value(); });
        if (all_ranks) {
            std::ranges::stable_sort(traces_, {}, [](const TorchTrace& t) { return *t.rank; });
        }
        for (TorchTrace& trace : traces_) {
            has_own_stages_ = has_own_stages_ || trace.stages.contains(own_stage);
        }
        for (std::size_t place = 0; place < traces_.size(); ++place) {
            TorchTrace& trace = traces_[place];
            set_own_stage(trace, static_cast<int>(place));
            for (const auto& [stage, durations] : trace.stages) {
                StageDurations& all = stages_[stage];
                append(all.forward, durations.forward);
                append(all.backward, durations.backward);
                append(all.backward_input, durations.backward_input);
                append(all.backward_weight, durations.backward_weight);
            }
        }
        transfers_ = measured_transfers(traces_, clock_notes_);
    }

    const StageTimes& stages() const { return stages_; }
    int count() const { return static_cast<int>(traces_.size()); }

    /// The link between ranks that the messages tell; none where no receive was waited for.
    std::optional<LinkCost> link() const {
        return transfers_.empty()
                   ? std::nullopt
                   : std::optional(LinkCost{.between = "ranks", .latency = median(transfers_)});
    }

    std::vector<std::string> notes() const {
        std::vector<std::string> notes;
        if (count() < world_size_) {
            notes.push_back(fmt::format(
                "{} of {} ranks given: stages beyond those found are not in the profile",
                count(),
                world_size_));
        }
        if (has_own_stages_ && count() > 1) {
            notes.emplace_back(
                "the ranges do not name a stage: the ranks are taken as stage 0, 1, ... in the "
                "order of their numbers (of the files, where they have none)");
        }
        if (only_launches_) {
            notes.emplace_back(
                "the traces hold GPU kernels, but ranges only of the CPU: the times are those of "
                "launching the work, not of the work (a later torch records ranges of the GPU, "
                "too)");
        } else if (!on_gpu_) {
            notes.emplace_back(
                "the ranges are those of the CPU: where a range waits for its message, the wait is "
                "in its time");
        }
        if (pairs_ > 0) {
            notes.push_back(
                fmt::format("left out: {} of a pair (OVERLAP_F_B), because the pair does not show "
                            "how long each of the two took",
                            counted(pairs_, "range")));
        }
        add_notes_of_ranks(notes);
        notes.insert(notes.end(), clock_notes_.begin(), clock_notes_.end());
        if (!transfers_.empty()) {
            notes.push_back(fmt::format(
                "messages take {}: the median of {} whose receives were pending, without the wait "
                "for their computation; the profile's link has it as its latency, as their sizes "
                "are not known",
                format_duration(median(transfers_)),
                transfers_.size()));
        }
        return notes;
    }

  private:
    void add_notes_of_ranks(std::vector<std::string>& notes) const {
        for (std::size_t place = 0; place < traces_.size(); ++place) {
            for (const std::string& note : traces_[place].notes) {
                notes.push_back(traces_.size() == 1 ? note
                                                    : fmt::format("rank {}: {}",
                                                                  traces_[place].rank.value_or(
                                                                      static_cast<int>(place)),
                                                                  note));
            }
        }
    }

    std::map<int, std::string> files_;
    std::vector<TorchTrace> traces_;
    StageTimes stages_;
    std::vector<Duration> transfers_;
    std::vector<std::string> clock_notes_;
    int world_size_ = 0;
    int pairs_ = 0;
    bool on_gpu_ = false;
    bool only_launches_ = false;
    bool has_own_stages_ = false;
};

}  // namespace

std::string_view RangeNameOptions::given() const {
    return !forward.empty()           ? "--forward"
           : !backward.empty()        ? "--backward"
           : !backward_input.empty()  ? "--backward-input"
           : !backward_weight.empty() ? "--backward-weight"
                                      : "";
}

Imported import_torch_trace(const ImportOptions& options) {
    const int size = required_micro_batch_size(options, why_size);
    const RangeNames names = range_names(options.ranges);
    Ranks ranks;
    const auto add = [&](const std::filesystem::path& file, const std::filesystem::path& source) {
        for (TorchTrace& trace : read_torch_traces(source, names)) {
            ranks.add(file, std::move(trace));
        }
    };
    add(options.file, options.file == "-" ? "/dev/stdin" : options.file);
    for (const std::filesystem::path& file : options.more_files) {
        add(file, file);
    }
    ranks.finish();
    Profile profile = stage_profile(ranks.stages(), size, options.file.string());
    if (const std::optional<LinkCost> link = ranks.link()) {
        profile.links.push_back(*link);
    }
    Imported imported = imported_stages(std::move(profile));
    imported.result.ranks = ranks.count();
    for (std::string& note : ranks.notes()) {
        imported.notes.push_back(std::move(note));
    }
    return imported;
}

Imported import_chrome_trace(const ImportOptions& options) {
    const int size = required_micro_batch_size(options, why_size);
    const Trace trace = read_chrome_trace(options.file);
    Imported imported =
        imported_stages(stage_profile(stage_times(trace), size, options.file.string()));
    imported.result.ranks = trace.schedule.rank_count();
    return imported;
}

}  // namespace pipetwin::cli

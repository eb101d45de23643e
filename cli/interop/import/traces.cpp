#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/interop/import/importers.h"
#include "core/artifacts/chrome_trace.h"
#include "core/base/error.h"
#include "core/costs/profile_json.h"
#include "core/interop/torch_trace.h"

namespace pipetwin::cli {

namespace {

constexpr const char* why_size =
    "a trace does not say how many samples a micro-batch had, and costs are for a number of them";

Imported imported_stages(const StageTimes& stages, int micro_batch_size, const std::string& place) {
    const Profile profile = stage_profile(stages, micro_batch_size, place);
    Imported imported{.content = print_profile(profile), .result = {}};
    imported.result.layers = static_cast<int>(profile.layers.size());
    imported.result.stages = imported.result.layers.value();
    imported.notes.emplace_back(
        "a trace holds times and no sizes: in the profile messages and memory are 0 bytes until "
        "they are filled in");
    return imported;
}

void append(std::vector<Duration>& to, const std::vector<Duration>& from) {
    to.insert(to.end(), from.begin(), from.end());
}

/// The traces of all ranks, and what the user should know about them.
class Ranks {
  public:
    void add(const std::filesystem::path& file, const TorchTrace& trace) {
        if (trace.rank) {
            const auto [seen, is_new] = files_.emplace(*trace.rank, file.string());
            if (!is_new) {
                throw Error(ErrorKind::BadInput,
                            file.string(),
                            fmt::format("is of rank {}, and so is {}", *trace.rank, seen->second),
                            "give one trace per rank");
            }
        }
        world_size_ = std::max(world_size_, trace.world_size.value_or(0));
        pairs_ += trace.overlapped_pairs;
        on_gpu_ = on_gpu_ || trace.on_gpu;
        only_launches_ = only_launches_ || trace.only_launches;
        ++count_;
        for (const auto& [stage, durations] : trace.stages) {
            StageDurations& all = stages_[stage];
            append(all.forward, durations.forward);
            append(all.backward, durations.backward);
            append(all.backward_input, durations.backward_input);
            append(all.backward_weight, durations.backward_weight);
        }
    }

    const StageTimes& stages() const { return stages_; }
    int count() const { return count_; }

    std::vector<std::string> notes() const {
        std::vector<std::string> notes;
        if (count_ < world_size_) {
            notes.push_back(fmt::format(
                "{} of {} ranks given: stages beyond those found are not in the profile",
                count_,
                world_size_));
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
            notes.push_back(fmt::format(
                "{} ranges of pairs (OVERLAP_F_B) left out: they do not say what each of the two "
                "took",
                pairs_));
        }
        return notes;
    }

  private:
    std::map<int, std::string> files_;
    StageTimes stages_;
    int count_ = 0;
    int world_size_ = 0;
    int pairs_ = 0;
    bool on_gpu_ = false;
    bool only_launches_ = false;
};

}  // namespace

Imported import_torch_trace(const ImportOptions& options) {
    const int size = required_micro_batch_size(options, why_size);
    Ranks ranks;
    ranks.add(options.file, read_torch_trace(options.file == "-" ? "/dev/stdin" : options.file));
    for (const std::filesystem::path& file : options.more_files) {
        ranks.add(file, read_torch_trace(file));
    }
    Imported imported = imported_stages(ranks.stages(), size, options.file.string());
    imported.result.ranks = ranks.count();
    for (std::string& note : ranks.notes()) {
        imported.notes.push_back(std::move(note));
    }
    return imported;
}

Imported import_chrome_trace(const ImportOptions& options) {
    const int size = required_micro_batch_size(options, why_size);
    const Trace trace = read_chrome_trace(options.file);
    Imported imported = imported_stages(stage_times(trace), size, options.file.string());
    imported.result.ranks = trace.schedule.rank_count();
    return imported;
}

}  // namespace pipetwin::cli

// SPDX-License-Identifier: Apache-2.0
#include "core/plan/stage_values.h"

#include <algorithm>

#include "core/base/as_index.h"
#include "core/model/inner_layers.h"
#include "core/model/model.h"

namespace pipetwin {

StageValues::StageValues(const Model& model, int first, int end)
    : model_(model), first_(first), end_(end), reads_output_(as_index(end - first), false) {
    roots_.reserve(as_index(end - first));
    for (int layer = first; layer < end; ++layer) {
        roots_.push_back(pipetwin::hands_on(model, layer) ? root(model.operands_of(layer).front())
                                                          : layer);
    }
    std::vector<Reader> readers;
    for (int layer = end - 1; layer >= first; --layer) {
        if (pipetwin::reads_output(model, layer)) {
            readers.clear();
            add_readers(layer, readers);
            reads_output_[index(layer)] = std::ranges::any_of(readers, &Reader::keeps);
        }
    }
}

/// What a rectifier would read of its output it reads of its input where no layer of its own stage
/// keeps the output.
bool StageValues::keeps(int layer, std::size_t operand) const {
    const Layer& own = model_.layer(layer);
    return own.keeps_input.empty() || own.keeps_input[operand] ||
           (pipetwin::reads_output(model_, layer) && !reads_output(layer) &&
            !ends_with_rectifier(own.spec));
}

bool StageValues::copies_output(int layer) const {
    return pipetwin::reads_output(model_, layer) && !reads_output(layer) &&
           ends_with_rectifier(model_.layer(layer).spec);
}

bool StageValues::keeps_model_input() const {
    return keeps(0, 0);
}

/// The readers of a layer's output and, where one hands it on, of its output in turn.
void StageValues::add_readers(int source, std::vector<Reader>& readers) const {
    for (const int reader : model_.readers_of(source)) {
        if (reader < first_ || reader >= end_) {
            continue;
        }
        if (hands_on(reader)) {
            add_readers(reader, readers);
            continue;
        }
        const std::vector<int>& operands = model_.operands_of(reader);
        const auto operand = std::ranges::find(operands, source) - operands.begin();
        readers.push_back({.layer = reader, .keeps = keeps(reader, as_index(operand))});
    }
}

const std::vector<StageValues::Reader>& StageValues::readers(int root) {
    readers_.clear();
    add_readers(root, readers_);
    return readers_;
}

std::optional<int> StageValues::last_reader(int root) const {
    const std::vector<int>& readers = model_.readers_of(root);
    if (readers.empty()) {
        return std::nullopt;
    }
    const int last = readers.back();
    // One that hands on is the only reader.
    return last >= first_ && last < end_ && hands_on(last) ? last_reader(last) : last;
}

}  // namespace pipetwin

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace pipetwin::exec {

/// Rules of a search for the best translation.
struct BeamSettings {
    int beam = 1;  ///< hypotheses that are followed at the same time; 1: greedy
    /// alpha of Wu et al. 2016 (arXiv 1609.08144, equation 14, without the coverage penalty):
    /// hypotheses of n tokens compare by log P / ((5 + n) / 6)^alpha.
    double length_penalty = 0.6;
    std::int32_t end = 0;  ///< the token that ends a translation
    int longest = 0;       ///< tokens of a translation, its end among them
};

/// The first tokens of a translation, and which source they translate.
struct Prefix {
    std::size_t source = 0;
    std::vector<std::int32_t> tokens;
};

/// Gives the logits of the token behind each prefix: [prefix * classes + token].
using NextLogits = std::function<std::vector<double>(std::span<const Prefix>)>;

/// The best translation that was found.
struct Decoded {
    std::vector<std::int32_t> tokens;  ///< without the end
    bool has_ended = false;            ///< false: it is as long as a translation may be
    double log_probability = 0;        ///< of all its tokens, the end among them

    bool operator==(const Decoded&) const = default;
};

/// Translates every source. A round extends all hypotheses of all sources by a token: of the
/// candidates of a source, as many stay as the beam is wide, less the hypotheses that have ended.
/// The search for a source stops when so many have ended, or at the longest translation; one that
/// has ended is better than one that has not. Of equal candidates that of the earlier hypothesis
/// stays, then that of the smaller token. Throws Error(NotFinite) where no logit of a prefix is a
/// finite number.
std::vector<Decoded> beam_search(std::size_t sources,
                                 const BeamSettings& settings,
                                 const NextLogits& next_logits);

}  // namespace pipetwin::exec

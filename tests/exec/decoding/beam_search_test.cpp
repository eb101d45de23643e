// SPDX-License-Identifier: Apache-2.0
#include "exec/decoding/beam_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <gmock/gmock.h>

#include "core/base/as_index.h"
#include "core/base/error.h"
#include "exec/base/random.h"

namespace pipetwin::exec {
namespace beam_search_test {

using testing::ElementsAre;
using Tokens = std::vector<std::int32_t>;

/// Probabilities of the next token behind what has been written; what is not listed never comes.
using Table = std::map<Tokens, std::vector<double>>;

NextLogits logits_from(const Table& table) {
    return [&table](std::span<const Prefix> prefixes) {
        std::vector<double> logits;
        for (const Prefix& prefix : prefixes) {
            for (const double probability : table.at(prefix.tokens)) {
                logits.push_back(std::log(probability) + 3);  // a softmax knows no constant
            }
        }
        return logits;
    };
}

/// Three tokens, of which 2 ends, with probabilities drawn for every prefix.
NextLogits random_logits(std::uint64_t seed) {
    return [seed](std::span<const Prefix> prefixes) {
        std::vector<double> logits;
        for (const Prefix& prefix : prefixes) {
            RandomStream random = RandomStream(seed).of(prefix.source);
            for (const std::int32_t token : prefix.tokens) {
                random = random.of(static_cast<std::uint64_t>(token) + 1);
            }
            for (std::uint64_t token = 0; token < 3; ++token) {
                logits.push_back(3 * random.uniform(token));
            }
        }
        return logits;
    };
}

std::vector<double> log_softmax_of(std::vector<double> logits) {
    double sum = 0;
    for (const double logit : logits) {
        sum += std::exp(logit);
    }
    for (double& logit : logits) {
        logit -= std::log(sum);
    }
    return logits;
}

/// Puts every translation of at most `settings.longest` tokens that ends into `all`.
void enumerate(const NextLogits& next,
               const BeamSettings& settings,
               std::size_t source,
               const Decoded& before,
               std::vector<Decoded>& all) {
    const std::vector<Prefix> prefix{{.source = source, .tokens = before.tokens}};
    const std::vector<double> steps = log_softmax_of(next(prefix));
    for (std::int32_t token = 0; token < std::ssize(steps); ++token) {
        Decoded after = before;
        after.log_probability += steps[as_index(token)];
        if (token == settings.end) {
            after.has_ended = true;
            all.push_back(after);
        } else if (std::ssize(after.tokens) + 1 < settings.longest) {
            after.tokens.push_back(token);
            enumerate(next, settings, source, after, all);
        }
    }
}

TEST(BeamSearch, WithABeamOfAllHypothesesIsExhaustive) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const NextLogits next = random_logits(seed);
        const BeamSettings settings{.beam = 81, .length_penalty = 0.6, .end = 2, .longest = 4};
        const std::vector<Decoded> found = beam_search(3, settings, next);
        ASSERT_EQ(found.size(), 3U);
        for (std::size_t source = 0; source < found.size(); ++source) {
            std::vector<Decoded> all;
            enumerate(next, settings, source, {}, all);
            ASSERT_EQ(all.size(), 1U + 2 + 4 + 8);
            const auto best = std::ranges::max_element(all, {}, [](const Decoded& one) {
                const auto length = static_cast<double>(one.tokens.size() + 1);
                return one.log_probability / std::pow((5 + length) / 6, 0.6);
            });
            EXPECT_EQ(found[source].tokens, best->tokens) << "seed " << seed;
            EXPECT_TRUE(found[source].has_ended);
            EXPECT_NEAR(found[source].log_probability, best->log_probability, 1e-12);  // rounding
        }
    }
}

TEST(BeamSearch, OfABeamOfOneTakesTheLikeliestTokenEachTime) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        const NextLogits next = random_logits(seed);
        const std::vector<Decoded> found =
            beam_search(4, {.beam = 1, .end = 2, .longest = 6}, next);
        for (std::size_t source = 0; source < found.size(); ++source) {
            Tokens greedy;
            bool has_ended = false;
            while (!has_ended && greedy.size() < 6) {
                const std::vector<Prefix> prefix{{.source = source, .tokens = greedy}};
                const std::vector<double> logits = next(prefix);
                const auto token =
                    static_cast<std::int32_t>(std::ranges::max_element(logits) - logits.begin());
                has_ended = token == 2;
                if (!has_ended) {
                    greedy.push_back(token);
                }
            }
            EXPECT_EQ(found[source].tokens, greedy) << "seed " << seed;
            EXPECT_EQ(found[source].has_ended, has_ended);
        }
    }
}

// Greedy takes 0 (0.6) and ends with 0.6 * 0.4; the beam keeps 1 (0.4) and ends with 0.4 * 0.9.
TEST(BeamSearch, FindsWhatTheLikeliestFirstTokenHides) {
    const Table table{{{}, {0.6, 0.4, 0}}, {{0}, {0.3, 0.3, 0.4}}, {{1}, {0.05, 0.05, 0.9}}};
    const BeamSettings greedy{.beam = 1, .end = 2, .longest = 2};
    const BeamSettings wide{.beam = 2, .end = 2, .longest = 2};
    const Decoded narrow = beam_search(1, greedy, logits_from(table)).front();
    const Decoded best = beam_search(1, wide, logits_from(table)).front();
    EXPECT_THAT(narrow.tokens, ElementsAre(0));
    EXPECT_THAT(best.tokens, ElementsAre(1));
    EXPECT_NEAR(narrow.log_probability, std::log(0.24), 1e-12);  // rounding
    EXPECT_NEAR(best.log_probability, std::log(0.36), 1e-12);
}

// Nothing at all has the logarithm -1 in one token; "0 1" has -1.2 in three. By equation 14 of Wu
// et al. the second is better from alpha = ln 1.2 / ln(8 / 6) = 0.634 on.
TEST(BeamSearch, WeighsLengthsAsWuEtAlDo) {
    const double nothing = std::exp(-1.0);
    const double one = std::exp(-1.2) / (1 - nothing);
    const Table table{{{}, {1 - nothing, 0, nothing}},
                      {{0}, {1 - one, one, 0}},
                      {{0, 1}, {0, 0, 1}},
                      {{0, 0}, {0, 1, 0}},
                      {{1}, {0, 1, 0}},
                      {{1, 1}, {0, 1, 0}}};
    const auto best = [&](double alpha) {
        return beam_search(1,
                           {.beam = 4, .length_penalty = alpha, .end = 2, .longest = 3},
                           logits_from(table))
            .front()
            .tokens;
    };
    EXPECT_THAT(best(0), ElementsAre());
    EXPECT_THAT(best(0.63), ElementsAre());
    EXPECT_THAT(best(0.64), ElementsAre(0, 1));
    EXPECT_THAT(best(1), ElementsAre(0, 1));
}

TEST(BeamSearch, StopsAtTheLongestTranslation) {
    const NextLogits always_zero = [](std::span<const Prefix> prefixes) {
        EXPECT_LT(prefixes.front().tokens.size(), 3U);
        std::vector<double> logits;
        for (std::size_t i = 0; i < prefixes.size(); ++i) {
            logits.insert(logits.end(), {5, 0, -5});
        }
        return logits;
    };
    const Decoded found = beam_search(1, {.beam = 1, .end = 2, .longest = 3}, always_zero).front();
    EXPECT_THAT(found.tokens, ElementsAre(0, 0, 0));
    EXPECT_FALSE(found.has_ended);
    EXPECT_TRUE(beam_search(0, {.beam = 1, .end = 2, .longest = 3}, always_zero).empty());
}

TEST(BeamSearch, TakesTheSmallerOfEquallyLikelyTokens) {
    const Table even{{{}, {0.4, 0.4, 0.2}}};
    EXPECT_THAT(
        beam_search(1, {.beam = 1, .end = 5, .longest = 1}, logits_from(even)).front().tokens,
        ElementsAre(0));
}

TEST(BeamSearch, RefusesLogitsThatAreNotFinite) {
    const NextLogits broken = [](std::span<const Prefix>) {
        return std::vector<double>{0, std::numeric_limits<double>::quiet_NaN(), 1};
    };
    try {
        beam_search(1, {.beam = 1, .end = 2, .longest = 3}, broken);
        FAIL() << "nothing is likely";
    } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::NotFinite);
        EXPECT_EQ(error.place(), "source 0");
    }
}

}  // namespace beam_search_test
}  // namespace pipetwin::exec

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>

/// The formulas of the optimizers for one number of a parameter, each once for all devices, with C
/// = float or double. What their factors are made of: exec/layers/optimizer.cpp.
namespace pipetwin::exec {

#ifdef __CUDACC__
#define PIPETWIN_RULE __host__ __device__ __forceinline__ static void
#else
#define PIPETWIN_RULE [[gnu::always_inline]] static inline void
#endif

/// Factors of one step's update. Each rule reads those that its formula names.
template <class C>
struct UpdateFactors {
    C rate = 0;         ///< learning rate; of Adam divided by 1 - beta1^step
    C keep_first = 0;   ///< Momentum's mu, the decay of both RmsProps, Adam's beta1
    C take_first = 0;   ///< 1 - the decay, 1 - beta1
    C keep_second = 0;  ///< beta2, RmsPropMomentum's momentum
    C take_second = 0;  ///< 1 - beta2
    C epsilon = 0;
    C root_scale = 1;      ///< 1 / sqrt(1 - beta2^step)
    C decay_factor = 1;    ///< 1 - learning rate * weight decay, of AdamW
    C gradient_scale = 1;  ///< of the summed gradient
    C weight_decay = 0;    ///< times the weight is added to the scaled gradient

    /// The factors rounded to another type.
    template <class D>
    UpdateFactors<D> rounded() const {
        return {static_cast<D>(rate),
                static_cast<D>(keep_first),
                static_cast<D>(take_first),
                static_cast<D>(keep_second),
                static_cast<D>(take_second),
                static_cast<D>(epsilon),
                static_cast<D>(root_scale),
                static_cast<D>(decay_factor),
                static_cast<D>(gradient_scale),
                static_cast<D>(weight_decay)};
    }
};

/// One number of a weight with its optimizer state.
template <class C>
struct UpdatedNumber {
    C value;
    C first;
    C second;
};

/// Which numbers of a gradient count in its sum of squares: those in the first columns of a matrix
/// whose rows lie one behind the other.
struct CountedNumbers {
    std::int64_t columns = 0;  ///< that count; 0: all do
    std::int64_t of = 1;       ///< columns of a row
    std::int64_t first = 0;    ///< number of the first one in its matrix

    bool operator==(const CountedNumbers&) const = default;
};

/// Formula of an update. AdamW is Adam with a decay factor.
enum class UpdateRule : std::uint8_t { Sgd, Momentum, RmsProp, Adam, RmsPropMomentum };

/// w -= rate g
struct SgdRule {
    static constexpr int slots = 0;  ///< numbers of state: none, the first, or both
    template <class C>
    PIPETWIN_RULE apply(const UpdateFactors<C>& f, C g, UpdatedNumber<C>& w) {
        w.value -= f.rate * g;
    }
};
/// v = mu v + g;  w -= rate v
struct MomentumRule {
    static constexpr int slots = 1;
    template <class C>
    PIPETWIN_RULE apply(const UpdateFactors<C>& f, C g, UpdatedNumber<C>& w) {
        w.first = f.keep_first * w.first + g;
        w.value -= f.rate * w.first;
    }
};
/// v = decay v + (1 - decay) g^2;  w -= rate g / (sqrt(v) + epsilon)
struct RmsPropRule {
    static constexpr int slots = 1;
    template <class C>
    PIPETWIN_RULE apply(const UpdateFactors<C>& f, C g, UpdatedNumber<C>& w) {
        w.first = f.keep_first * w.first + f.take_first * (g * g);
        w.value -= f.rate * (g / (std::sqrt(w.first) + f.epsilon));
    }
};
/// m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2;  w = decay w - rate m / (sqrt(v) s
/// + epsilon)
struct AdamRule {
    static constexpr int slots = 2;
    template <class C>
    PIPETWIN_RULE apply(const UpdateFactors<C>& f, C g, UpdatedNumber<C>& w) {
        w.first = f.keep_first * w.first + f.take_first * g;
        w.second = f.keep_second * w.second + f.take_second * (g * g);
        const C root = std::sqrt(w.second) * f.root_scale + f.epsilon;
        w.value = f.decay_factor * w.value - f.rate * (w.first / root);
    }
};
/// v = decay v + (1 - decay) g^2;  m = momentum m + rate g / sqrt(v + epsilon);  w -= m
struct RmsPropMomentumRule {
    static constexpr int slots = 2;
    template <class C>
    PIPETWIN_RULE apply(const UpdateFactors<C>& f, C g, UpdatedNumber<C>& w) {
        w.first = f.keep_first * w.first + f.take_first * (g * g);
        w.second = f.keep_second * w.second + f.rate * (g / std::sqrt(w.first + f.epsilon));
        w.value -= w.second;
    }
};

/// Calls f(Rule{}) with the type of the rule's formula.
template <class F>
auto with_rule(UpdateRule rule, F&& f) {
    switch (rule) {
        case UpdateRule::Sgd:
            return f(SgdRule{});
        case UpdateRule::Momentum:
            return f(MomentumRule{});
        case UpdateRule::RmsProp:
            return f(RmsPropRule{});
        case UpdateRule::Adam:
            return f(AdamRule{});
        case UpdateRule::RmsPropMomentum:
            return f(RmsPropMomentumRule{});
    }
    throw std::logic_error("a rule of an update");
}

#undef PIPETWIN_RULE

}  // namespace pipetwin::exec

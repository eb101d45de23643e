// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "exec/device/window_kernels.h"

/// Windows over images by their definition, in plain loops and double precision, with nothing
/// shared with the code they check. Gradients are written as scatters: what the definition says of
/// y, read backwards.
namespace pipetwin::testing {

using WindowNumbers = std::vector<double>;

/// One image pixel or one place outside of it.
struct NaivePixel {
    int y = 0;
    int x = 0;
};

/// Number of channel `c` of pixel (y, x) of image `s`.
inline double& pixel(
    WindowNumbers& images, Pixels size, int channels, int s, NaivePixel at, int c) {
    const std::int64_t row = (std::int64_t{s} * size.height + at.y) * size.width + at.x;
    return images[static_cast<std::size_t>(row * channels + c)];
}
inline double pixel(
    const WindowNumbers& images, Pixels size, int channels, int s, NaivePixel at, int c) {
    return pixel(const_cast<WindowNumbers&>(images), size, channels, s, at, c);
}

/// Calls f(sample, output pixel, ky, kx, input pixel) for every place of every window that lies on
/// its image, in row order.
inline void for_window_places(const exec::WindowShape& s,
                              int samples,
                              const std::function<void(int, NaivePixel, int, int, NaivePixel)>& f) {
    for (int n = 0; n < samples; ++n) {
        for (int oy = 0; oy < s.out.height; ++oy) {
            for (int ox = 0; ox < s.out.width; ++ox) {
                for (int ky = 0; ky < s.kernel.height; ++ky) {
                    for (int kx = 0; kx < s.kernel.width; ++kx) {
                        const int iy =
                            oy * s.stride.height - s.padding.top + ky * s.dilation.height;
                        const int ix = ox * s.stride.width - s.padding.left + kx * s.dilation.width;
                        if (iy >= 0 && iy < s.in.height && ix >= 0 && ix < s.in.width) {
                            f(n, {oy, ox}, ky, kx, {iy, ix});
                        }
                    }
                }
            }
        }
    }
}

/// Index of the weight of (ky, kx, channel of the group, output).
inline std::size_t weight_at(const exec::WindowShape& s, int ky, int kx, int channel, int output) {
    const int row = (ky * s.kernel.width + kx) * (s.channels / s.groups) + channel;
    return static_cast<std::size_t>(row) * static_cast<std::size_t>(s.outputs) +
           static_cast<std::size_t>(output);
}

/// Calls f(channel of x, channel of the group, output) for every pair that a weight joins.
inline void for_weights(const exec::WindowShape& s, const std::function<void(int, int, int)>& f) {
    const int channels = s.channels / s.groups;
    const int outputs = s.outputs / s.groups;
    for (int output = 0; output < s.outputs; ++output) {
        for (int c = 0; c < channels; ++c) {
            f(output / outputs * channels + c, c, output);
        }
    }
}

inline WindowNumbers zeros(Pixels size, int channels, int samples) {
    return WindowNumbers(
        static_cast<std::size_t>(std::int64_t{samples} * size.height * size.width * channels));
}

/// x * w + b; b may be empty.
inline WindowNumbers naive_convolution(const exec::WindowShape& s,
                                       int samples,
                                       const WindowNumbers& x,
                                       const WindowNumbers& w,
                                       const WindowNumbers& b) {
    WindowNumbers y = zeros(s.out, s.outputs, samples);
    for (std::size_t i = 0; i < y.size() && !b.empty(); ++i) {
        y[i] = b[i % b.size()];
    }
    for_window_places(s, samples, [&](int n, NaivePixel to, int ky, int kx, NaivePixel from) {
        for_weights(s, [&](int c, int in_group, int o) {
            pixel(y, s.out, s.outputs, n, to, o) +=
                pixel(x, s.in, s.channels, n, from, c) * w[weight_at(s, ky, kx, in_group, o)];
        });
    });
    return y;
}

inline WindowNumbers naive_convolution_input(const exec::WindowShape& s,
                                             int samples,
                                             const WindowNumbers& dy,
                                             const WindowNumbers& w) {
    WindowNumbers dx = zeros(s.in, s.channels, samples);
    for_window_places(s, samples, [&](int n, NaivePixel to, int ky, int kx, NaivePixel from) {
        for_weights(s, [&](int c, int in_group, int o) {
            pixel(dx, s.in, s.channels, n, from, c) +=
                pixel(dy, s.out, s.outputs, n, to, o) * w[weight_at(s, ky, kx, in_group, o)];
        });
    });
    return dx;
}

inline WindowNumbers naive_convolution_weight(const exec::WindowShape& s,
                                              int samples,
                                              const WindowNumbers& x,
                                              const WindowNumbers& dy) {
    WindowNumbers dw(static_cast<std::size_t>(s.depth()) * static_cast<std::size_t>(s.outputs));
    for_window_places(s, samples, [&](int n, NaivePixel to, int ky, int kx, NaivePixel from) {
        for_weights(s, [&](int c, int in_group, int o) {
            dw[weight_at(s, ky, kx, in_group, o)] +=
                pixel(x, s.in, s.channels, n, from, c) * pixel(dy, s.out, s.outputs, n, to, o);
        });
    });
    return dw;
}

/// Largest numbers of windows, and where they are.
struct NaiveMaxima {
    WindowNumbers values;
    std::vector<int> places;
};

inline NaiveMaxima naive_max_pool(const exec::WindowShape& s, int samples, const WindowNumbers& x) {
    NaiveMaxima found{.values = zeros(s.out, s.channels, samples), .places = {}};
    std::ranges::fill(found.values, -std::numeric_limits<double>::infinity());
    found.places.resize(found.values.size());
    for_window_places(s, samples, [&](int n, NaivePixel to, int ky, int kx, NaivePixel from) {
        for (int c = 0; c < s.channels; ++c) {
            double& largest = pixel(found.values, s.out, s.channels, n, to, c);
            const double value = pixel(x, s.in, s.channels, n, from, c);
            if (value > largest) {
                largest = value;
                found.places[static_cast<std::size_t>(&largest - found.values.data())] =
                    ky * s.kernel.width + kx;
            }
        }
    });
    return found;
}

inline WindowNumbers naive_max_pool_input(const exec::WindowShape& s,
                                          int samples,
                                          const std::vector<int>& places,
                                          const WindowNumbers& dy) {
    WindowNumbers dx = zeros(s.in, s.channels, samples);
    for_window_places(s, samples, [&](int n, NaivePixel to, int ky, int kx, NaivePixel from) {
        for (int c = 0; c < s.channels; ++c) {
            const double& gradient =
                pixel(const_cast<WindowNumbers&>(dy), s.out, s.channels, n, to, c);
            if (places[static_cast<std::size_t>(&gradient - dy.data())] ==
                ky * s.kernel.width + kx) {
                pixel(dx, s.in, s.channels, n, from, c) += gradient;
            }
        }
    });
    return dx;
}

/// [output pixel of a sample]: what the sum of its window is divided by.
inline std::vector<double> naive_divisors(const exec::WindowShape& s) {
    std::vector<double> pixels(static_cast<std::size_t>(s.out.height * s.out.width));
    for_window_places(s, 1, [&](int, NaivePixel to, int, int, NaivePixel) {
        pixels[static_cast<std::size_t>(to.y * s.out.width + to.x)] += 1;
    });
    if (s.count_padding) {
        std::ranges::fill(pixels, s.kernel.height * s.kernel.width);
    }
    return pixels;
}

inline WindowNumbers naive_average_pool(const exec::WindowShape& s,
                                        int samples,
                                        const WindowNumbers& x) {
    WindowNumbers y = zeros(s.out, s.channels, samples);
    const std::vector<double> divisors = naive_divisors(s);
    for_window_places(s, samples, [&](int n, NaivePixel to, int, int, NaivePixel from) {
        for (int c = 0; c < s.channels; ++c) {
            pixel(y, s.out, s.channels, n, to, c) +=
                pixel(x, s.in, s.channels, n, from, c) /
                divisors[static_cast<std::size_t>(to.y * s.out.width + to.x)];
        }
    });
    return y;
}

inline WindowNumbers naive_average_pool_input(const exec::WindowShape& s,
                                              int samples,
                                              const WindowNumbers& dy) {
    WindowNumbers dx = zeros(s.in, s.channels, samples);
    const std::vector<double> divisors = naive_divisors(s);
    for_window_places(s, samples, [&](int n, NaivePixel to, int, int, NaivePixel from) {
        for (int c = 0; c < s.channels; ++c) {
            pixel(dx, s.in, s.channels, n, from, c) +=
                pixel(dy, s.out, s.channels, n, to, c) /
                divisors[static_cast<std::size_t>(to.y * s.out.width + to.x)];
        }
    });
    return dx;
}

/// Calls f(sample, output pixel, input pixel, share) for everything that an upsampled image takes.
inline void for_upsampled(const exec::UpsampleShape& s,
                          int samples,
                          const std::function<void(int, NaivePixel, NaivePixel, double)>& f) {
    // The share of pixel i in output o: 1 - the distance of their centres, the edges repeated.
    const auto share = [&](int o, int i, int size) {
        if (!s.bilinear) {
            return o / s.factor == i ? 1.0 : 0.0;
        }
        const double centre = std::clamp((o + 0.5) / s.factor - 0.5, 0.0, size - 1.0);
        return std::max(1 - std::fabs(centre - i), 0.0);
    };
    for (int n = 0; n < samples; ++n) {
        for (int oy = 0; oy < s.in.height * s.factor; ++oy) {
            for (int ox = 0; ox < s.in.width * s.factor; ++ox) {
                for (int iy = 0; iy < s.in.height; ++iy) {
                    for (int ix = 0; ix < s.in.width; ++ix) {
                        f(n,
                          {oy, ox},
                          {iy, ix},
                          share(oy, iy, s.in.height) * share(ox, ix, s.in.width));
                    }
                }
            }
        }
    }
}

inline Pixels upsampled(const exec::UpsampleShape& s) {
    return {.height = s.in.height * s.factor, .width = s.in.width * s.factor};
}

inline WindowNumbers naive_upsample(const exec::UpsampleShape& s,
                                    int samples,
                                    int channels,
                                    const WindowNumbers& x) {
    WindowNumbers y = zeros(upsampled(s), channels, samples);
    for_upsampled(s, samples, [&](int n, NaivePixel to, NaivePixel from, double share) {
        for (int c = 0; c < channels; ++c) {
            pixel(y, upsampled(s), channels, n, to, c) +=
                share * pixel(x, s.in, channels, n, from, c);
        }
    });
    return y;
}

inline WindowNumbers naive_upsample_input(const exec::UpsampleShape& s,
                                          int samples,
                                          int channels,
                                          const WindowNumbers& dy) {
    WindowNumbers dx = zeros(s.in, channels, samples);
    for_upsampled(s, samples, [&](int n, NaivePixel to, NaivePixel from, double share) {
        for (int c = 0; c < channels; ++c) {
            pixel(dx, s.in, channels, n, from, c) +=
                share * pixel(dy, upsampled(s), channels, n, to, c);
        }
    });
    return dx;
}

/// The window with the size of its output, as a convolution or a pool has it.
inline exec::WindowShape with_output(exec::WindowShape s) {
    const auto size = [](int in, int margins, int kernel, int dilation, int stride) {
        return (in + margins - dilation * (kernel - 1) - 1) / stride + 1;
    };
    s.out = {.height = size(s.in.height,
                            s.padding.top + s.padding.bottom,
                            s.kernel.height,
                            s.dilation.height,
                            s.stride.height),
             .width = size(s.in.width,
                           s.padding.left + s.padding.right,
                           s.kernel.width,
                           s.dilation.width,
                           s.stride.width)};
    return s;
}

}  // namespace pipetwin::testing

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "core/model/layer_placement.h"
#include "core/model/layer_spec.h"

/// What layers of images make of what they read, and how many parameters they have. They fill in
/// what the user left out, and throw Error(BadInput) where sizes do not fit. Not for use outside
/// this folder.
namespace pipetwin {

/// w (kernel height * kernel width * channels / groups, outputs), and a bias.
Placed place_conv2d(LayerPlacement& placement,
                    LayerSpec& spec,
                    const std::string& name,
                    const SampleShape& input);
/// MaxPool, AvgPool.
Placed place_pool(LayerPlacement& placement,
                  LayerSpec& spec,
                  const std::string& name,
                  const SampleShape& input);
Placed place_global_avg_pool(LayerPlacement& placement,
                             LayerSpec& spec,
                             const std::string& name,
                             const SampleShape& input);
Placed place_upsample(LayerPlacement& placement,
                      LayerSpec& spec,
                      const std::string& name,
                      const SampleShape& input);
Placed place_pad(LayerPlacement& placement,
                 LayerSpec& spec,
                 const std::string& name,
                 const SampleShape& input);
Placed place_pad_channels(LayerPlacement& placement,
                          LayerSpec& spec,
                          const std::string& name,
                          const SampleShape& input);
/// Gain and bias of each channel.
Placed place_batch_norm(LayerPlacement& placement,
                        LayerSpec& spec,
                        const std::string& name,
                        const SampleShape& input);
Placed place_instance_norm(LayerPlacement& placement,
                           LayerSpec& spec,
                           const std::string& name,
                           const SampleShape& input);
/// Gain and bias of each channel.
Placed place_group_norm(LayerPlacement& placement,
                        LayerSpec& spec,
                        const std::string& name,
                        const SampleShape& input);
Placed place_flatten(LayerPlacement& placement,
                     LayerSpec& spec,
                     const std::string& name,
                     const SampleShape& input);
/// Reads one number for each position.
Placed place_binary_cross_entropy(LayerPlacement& placement,
                                  LayerSpec& spec,
                                  const std::string& name,
                                  const SampleShape& input);

}  // namespace pipetwin

#include "experiments/ch15_moe_inference/mxfp4_layers.h"

#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "kernels/moe/pack_experts.h"

namespace fathom::lab::mxfp4 {

// Generated and packed on the GPU, by the op that packs a model.
void fill_matrices(uint8_t* buffer, const Places& at, kernels::RowOrder order, uint64_t seed) {
  if (at.bytes == 0) return;
  static_assert(kernels::output_exponent(kBeyondScales - 1) == 0);
  Device& device = *find_device({0});
  const DeviceBuffer<uint8_t> memory(device, at.bytes);
  uint8_t* const blocks = memory.data();
  uint8_t* const scales = blocks + at.scales;
  device.fill_uniform(blocks, at.scales, DType::uint8, seed, 0, 256);
  device.fill_uniform(scales, at.scales / 16, DType::uint8, ~seed, kSmallestScale, kBeyondScales);
  const int64_t groups = at.inputs / 32;
  kernels::pack_experts({blocks, {at.experts, at.outputs, groups, 16}},
                        {scales, {at.experts, at.outputs, groups}}, order, 0, blocks + at.tiles,
                        blocks + at.packed_scales, device.stream());
  device.to_host(buffer, blocks, at.bytes);
}

}  // namespace fathom::lab::mxfp4

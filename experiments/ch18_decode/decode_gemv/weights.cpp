#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "kernels/gemm/pack_weights.h"
#include "projection.h"

namespace fathom::lab::decode_gemv {

// Generated and packed on the GPU, by the op that packs a model.
void fill_weights(bf16* to, const Weights& of, uint64_t seed) {
  if (of.plain() == 0) return;
  Device& device = *find_device({0});
  const DeviceBuffer<bf16> memory(device, of.plain() + of.packed());
  bf16* const plain  = memory.data();
  bf16* const packed = plain + of.plain();
  device.fill_uniform(plain, of.plain(), DType::bf16, seed, -1, 1);
  for (int64_t m = 0; m < of.matrices; ++m)
    kernels::pack_matrix({plain + m * of.outputs * of.inputs, {of.outputs, of.inputs}},
                         kernels::RowOrder::plain, 0, 0, packed + m * (of.packed() / of.matrices),
                         device.stream());
  device.to_host(to, plain, memory.bytes());
}

}  // namespace fathom::lab::decode_gemv

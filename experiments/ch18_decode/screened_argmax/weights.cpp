#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "kernels/gemm/pack_weights.h"
#include "unembedding.h"

namespace fathom::lab::screened_argmax {

// By the ops that pack a model, on the GPU.
void pack(uint8_t* memory, const bf16* plain, const Weights& of) {
  Device& device = *find_device({0});
  const DeviceBuffer<bf16> from(device, of.vocabulary * of.inputs);
  const DeviceBuffer<uint8_t> to(device, of.bytes());
  device.to_device(from.data(), plain, from.bytes());
  kernels::pack_matrix({from.data(), {of.vocabulary, of.inputs}}, kernels::RowOrder::plain, 0, 0,
                       reinterpret_cast<bf16*>(to.data()), device.stream());
  auto* scales = reinterpret_cast<float*>(to.data() + of.scales_at());
  kernels::pack_screening_weights(of.packed(to.data()), to.data() + of.copy_at(), scales, scales + of.rows(),
                                  device.stream());
  device.to_host(memory, to.data(), of.bytes());
}

}  // namespace fathom::lab::screened_argmax

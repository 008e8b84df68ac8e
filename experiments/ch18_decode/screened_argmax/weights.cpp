#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "kernels/gemm/pack_weights.h"
#include "unembedding.h"

namespace fathom::lab::screened_argmax {

// By the ops that pack a model, on the GPU.
void pack(uint8_t* memory, const Weights& of) {
  Device& device = *find_device({0});
  const DeviceBuffer<uint8_t> there(device, of.bytes());
  device.to_device(there.data(), memory, of.packed_at());
  kernels::pack_matrix(of.plain(there.data()), kernels::RowOrder::plain, 0, 0,
                       reinterpret_cast<bf16*>(there.data() + of.packed_at()), device.stream());
  auto* scales = reinterpret_cast<float*>(there.data() + of.scales_at());
  kernels::pack_screening_weights(of.packed(there.data()), there.data() + of.copy_at(), scales,
                                  scales + of.rows(), device.stream());
  device.to_host(memory + of.packed_at(), there.data() + of.packed_at(), of.bytes() - of.packed_at());
}

}  // namespace fathom::lab::screened_argmax

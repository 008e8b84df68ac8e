#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "projection.h"

namespace fathom::lab::int4_gemv_gpu {

// By the op that packs a model, on the GPU.
void pack(uint8_t* memory, const Weights& of) {
  if (of.rows() == 0) return;
  Device& device = *find_device({0});
  const DeviceBuffer<uint8_t> there(device, of.bytes());
  device.to_device(there.data(), memory, of.bf16_at());
  kernels::pack_int4(of.int4(there.data()), of.packed(there.data()), device.stream());
  device.to_host(memory + of.packed_codes_at(), there.data() + of.packed_codes_at(),
                 of.bytes() - of.packed_codes_at());
}

}  // namespace fathom::lab::int4_gemv_gpu

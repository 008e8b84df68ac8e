// ids(t) = argmax_v score((W x)(t, v)), without all of W
//
// bytes   V K of the int8 copy; of W the rows that may win
// flops   2 T V K
// limit   memory bandwidth
// idea    the engine's op: the copy bounds every score; what cannot reach the best lower bound is not
// computed
#include <memory>

#include "cuda/device.h"
#include "cuda/device_buffer.h"
#include "unembedding.h"

namespace fathom::lab::screened_argmax {

Call screened(const Unembedding& p, StreamRef) {
  if (p.rows == 0) return [](const Unembedding&, StreamRef) {};
  Device& device   = *find_device({0});
  const auto state = std::make_shared<DeviceBuffer<kernels::ScreenedArgmaxState>>(device, 1);
  device.set_words(state->data(), state->bytes(), 0);
  return [state](const Unembedding& q, StreamRef stream) {
    const uint8_t* memory = q.memory.data();
    kernels::screened_argmax(q.x, q.weights.packed(memory), q.weights.screening(memory), q.rules, q.logits,
                             state->data(), q.ids, stream);
  };
}

}  // namespace fathom::lab::screened_argmax

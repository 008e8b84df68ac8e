// out(l, i) = in(l, i)^2 + in(l, n - 1 - i)^2        8 layers, fp32, the squares in memory of their own
//
// bytes   8 n a layer, and 8 n more for the squares, which L2 holds if n is small
// limit   memory bandwidth; of small n the kernels, some 2 us each
// idea    allocation and release are work of the stream, out of the device's pool: nobody waits, and a
//         layer gets the memory of the one before. Whenever somebody waits for the GPU, the pool gives all
//         of it back
#include <memory>

#include "layer.cuh"

namespace fathom::lab::stream_ordered_allocation {

void default_pool(const Layers& p, StreamRef stream) {
  run_layers(p, stream, [stream](size_t bytes) {
    void* memory = nullptr;
    FATHOM_CUDA(cudaMallocAsync(&memory, bytes, stream));
    return std::unique_ptr<float, FreeInStream>(static_cast<float*>(memory), FreeInStream{stream});
  });
}

}  // namespace fathom::lab::stream_ordered_allocation

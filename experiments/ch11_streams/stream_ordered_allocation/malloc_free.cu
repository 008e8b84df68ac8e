// out(l, i) = in(l, i)^2 + in(l, n - 1 - i)^2        8 layers, fp32, the squares in memory of their own
//
// bytes   8 n a layer, and 8 n more for the squares, which L2 holds if n is small
// limit   memory bandwidth; of small n the kernels, some 2 us each
// idea    baseline: each layer allocates and frees. cudaFree waits until the GPU is idle, and both change
//         the page tables of the GPU
#include <memory>

#include "layer.cuh"

namespace fathom::lab::stream_ordered_allocation {
namespace {

struct Free {
  void operator()(float* memory) const { (void)cudaFree(memory); }
};

}  // namespace

void malloc_free(const Layers& p, StreamRef stream) {
  run_layers(p, stream, [](size_t bytes) {
    void* memory = nullptr;
    FATHOM_CUDA(cudaMalloc(&memory, bytes));
    return std::unique_ptr<float, Free>(static_cast<float*>(memory));
  });
}

}  // namespace fathom::lab::stream_ordered_allocation

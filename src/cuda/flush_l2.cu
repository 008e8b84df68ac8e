#include "cuda/flush_l2.h"

#include "cuda/check.h"
#include "cuda/fill.h"
#include "cuda/per_device.h"

namespace fathom {
namespace {

constexpr int kBlocks = 1024, kBlock = 256;

__global__ void flush_l2_kernel(const uint4* data, int64_t vectors, uint32_t* sink) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  uint32_t all       = 0;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < vectors; i += step) {
    const uint4 v = __ldcg(data + i);
    all ^= v.x ^ v.y ^ v.z ^ v.w;
  }
  // Never true of the buffer's pattern; keeps the compiler from dropping the loads.
  if (all == 0x5EED5EEDu) *sink = all;
}

}  // namespace

L2Flush::L2Flush(StreamRef stream) {
  int l2_bytes = 0;
  FATHOM_CUDA(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, current_gpu()));
  bytes_ = 3 * int64_t{l2_bytes};
  FATHOM_CUDA(cudaMalloc(&buffer_, static_cast<size_t>(bytes_)));
  FATHOM_CUDA(cudaMalloc(&sink_, sizeof *sink_));
  enqueue_set_words(buffer_, bytes_, 0x01010101u, stream);
}

L2Flush::~L2Flush() {
  (void)cudaFree(buffer_);
  (void)cudaFree(sink_);
}

void L2Flush::enqueue(StreamRef stream) const {
  FATHOM_CUDA(cudaCtxResetPersistingL2Cache());
  flush_l2_kernel<<<kBlocks, kBlock, 0, stream>>>(static_cast<const uint4*>(buffer_), bytes_ / 16, sink_);
  FATHOM_LAUNCHED();
}

}  // namespace fathom

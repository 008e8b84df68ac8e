// out = in                       n floats, from the host to the device
//
// link    4 n
// flops   0
// limit   the link. H200: PCIe, some 55 GB/s; 64 MiB take 1.2 ms
// idea    pageable data through page-locked memory of our own, in chunks on two streams: while the copy
//         engine takes one chunk, the host's threads stage the next. What the driver does for `pageable`,
//         with as many threads as we like
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/cuda.h"
#include "core/thread_pool.h"
#include "upload.h"

namespace fathom::lab::host_device_copy {
namespace {

constexpr int64_t kGrain = 1 << 14;  // floats: 64 KiB, the least that a thread is asked to copy

// Two lanes, each with a stream and a half of the staging memory.
class Lanes {
 public:
  static constexpr int kCount = 2;

  Lanes() {
    FATHOM_CUDA(cudaEventCreateWithFlags(&begin_, cudaEventDisableTiming));
    for (int l = 0; l < kCount; ++l) {
      FATHOM_CUDA(cudaStreamCreateWithFlags(&streams_[l], cudaStreamNonBlocking));
      FATHOM_CUDA(cudaEventCreateWithFlags(&copied_[l], cudaEventDisableTiming));
    }
  }
  ~Lanes() {  // a destructor has nobody to tell
    for (int l = 0; l < kCount; ++l) {
      (void)cudaEventDestroy(copied_[l]);
      (void)cudaStreamDestroy(streams_[l]);
    }
    (void)cudaEventDestroy(begin_);
  }
  Lanes(const Lanes&)            = delete;
  Lanes& operator=(const Lanes&) = delete;

  // What follows on the lanes comes after what is on `stream`.
  void fork(StreamRef stream) const {
    FATHOM_CUDA(cudaEventRecord(begin_, stream));
    for (int l = 0; l < kCount; ++l) FATHOM_CUDA(cudaStreamWaitEvent(streams_[l], begin_));
  }
  // The lane's staging memory may be written: its last copy has read it.
  void await_free(int lane) const { FATHOM_CUDA(cudaEventSynchronize(copied_[lane])); }
  void copy(int lane, float* to, const float* from, int64_t n) const {
    FATHOM_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(n) * sizeof(float), cudaMemcpyHostToDevice,
                                streams_[lane]));
    FATHOM_CUDA(cudaEventRecord(copied_[lane], streams_[lane]));
  }
  // What follows on `stream` comes after all copies.
  void join(StreamRef stream) const {
    for (int l = 0; l < kCount; ++l) FATHOM_CUDA(cudaStreamWaitEvent(stream, copied_[l]));
  }

 private:
  cudaEvent_t begin_            = nullptr;
  cudaStream_t streams_[kCount] = {};
  cudaEvent_t copied_[kCount]   = {};
};

}  // namespace

Staged prepare_chunked() {
  return [lanes = std::make_shared<const Lanes>()](const Upload& p, StreamRef stream, ThreadPool& pool) {
    const int64_t n = p.out.extent(0);
    if (n == 0) return;
    lanes->fork(stream);
    for (int64_t first = 0, chunk = 0; first < n; first += kChunk, ++chunk) {
      const int lane      = static_cast<int>(chunk % Lanes::kCount);
      const int64_t count = std::min(kChunk, n - first);
      const float* from   = p.pageable_in.data() + first;
      float* staged       = p.staging.data() + lane * kChunk;
      lanes->await_free(lane);
      pool.parallel_for(count, kGrain, [&](int64_t begin, int64_t end) {
        std::memcpy(staged + begin, from + begin, static_cast<size_t>(end - begin) * sizeof(float));
      });
      lanes->copy(lane, p.out.data() + first, staged, count);
    }
    lanes->join(stream);
  };
}

}  // namespace fathom::lab::host_device_copy

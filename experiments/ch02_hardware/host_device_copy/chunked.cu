// out = in                       n floats, from the host to the device
//
// link    4 n
// flops   0
// limit   the link. H200: PCIe, some 55 GB/s; 64 MiB take 1.2 ms
// idea    pageable data through page-locked memory of our own, in chunks on two streams: while the copy
//         engine takes one chunk, the host's threads stage the next. The driver does the same for `pageable`,
//         on one thread
#include <algorithm>
#include <cstring>
#include <memory>

#include "core/thread_pool.h"
#include "cuda/check.h"
#include "cuda/event.h"
#include "upload.h"

namespace fathom::lab::host_device_copy {
namespace {

constexpr int64_t kGrain = 1 << 14;  // floats: 64 KiB, the smallest piece for a thread

// Two lanes, each with a stream and a half of the staging memory.
class Lanes {
 public:
  static constexpr int kCount = 2;

  Lanes() {
    for (cudaStream_t& stream : streams_)
      FATHOM_CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  }
  ~Lanes() {
    for (const cudaStream_t stream : streams_) (void)cudaStreamDestroy(stream);
  }
  Lanes(const Lanes&)            = delete;
  Lanes& operator=(const Lanes&) = delete;

  // Later work on the lanes waits for earlier work on `stream`.
  void fork(StreamRef stream) const {
    begin_.record(stream);
    for (const cudaStream_t lane : streams_) begin_.wait_on(lane);
  }
  // Waits until the lane's last copy has read its staging memory.
  void await_free(int lane) const { copied_[lane].synchronize(); }
  void copy(int lane, float* to, const float* from, int64_t n) const {
    FATHOM_CUDA(cudaMemcpyAsync(to, from, static_cast<size_t>(n) * sizeof(float), cudaMemcpyHostToDevice,
                                streams_[lane]));
    copied_[lane].record(streams_[lane]);
  }
  // Later work on `stream` waits for all copies.
  void join(StreamRef stream) const {
    for (const Event& copied : copied_) copied.wait_on(stream);
  }

 private:
  Event begin_{Event::Timing::off};
  cudaStream_t streams_[kCount] = {};
  Event copied_[kCount]         = {Event(Event::Timing::off), Event(Event::Timing::off)};
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

#include "machine/gpu_peers.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "core/cuda.h"
#include "machine/ceilings_measure.h"
#include "machine/gpu.h"

namespace fathom::machine {
namespace {

constexpr int64_t kBytes         = 256 << 20;
constexpr int kTrials            = 10;
constexpr double kTrialS         = 0.010;
constexpr int kMostCopiesOfTrial = 64;

// One GPU's buffers and stream. The current device is this one after making it.
class Peer {
 public:
  explicit Peer(int device) : device_(device) {
    use();
    FATHOM_CUDA(cudaMalloc(&source_, kBytes));
    FATHOM_CUDA(cudaMalloc(&target_, kBytes));
    FATHOM_CUDA(cudaMemset(source_, 1, kBytes));
    FATHOM_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    FATHOM_CUDA(cudaEventCreate(&start_));
    FATHOM_CUDA(cudaEventCreate(&end_));
  }
  ~Peer() {
    (void)cudaSetDevice(device_);
    (void)cudaEventDestroy(start_);
    (void)cudaEventDestroy(end_);
    (void)cudaStreamDestroy(stream_);
    (void)cudaFree(source_);
    (void)cudaFree(target_);
  }
  Peer(const Peer&)            = delete;
  Peer& operator=(const Peer&) = delete;

  void use() const { FATHOM_CUDA(cudaSetDevice(device_)); }

  void enable(const Peer& other) const {
    use();
    const cudaError_t error = cudaDeviceEnablePeerAccess(other.device_, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
      (void)cudaGetLastError();
    else
      FATHOM_CUDA(error);
  }

  double seconds(const Peer& to, int copies) const {
    use();
    FATHOM_CUDA(cudaEventRecord(start_, stream_));
    for (int i = 0; i < copies; ++i)
      FATHOM_CUDA(cudaMemcpyPeerAsync(to.target_, to.device_, source_, device_, kBytes, stream_));
    FATHOM_CUDA(cudaEventRecord(end_, stream_));
    FATHOM_CUDA(cudaEventSynchronize(end_));
    float ms = 0;
    FATHOM_CUDA(cudaEventElapsedTime(&ms, start_, end_));
    return 1e-3 * static_cast<double>(ms);
  }

 private:
  int device_;
  void *source_ = nullptr, *target_ = nullptr;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t start_ = nullptr, end_ = nullptr;
};

class CurrentDeviceAsBefore {
 public:
  CurrentDeviceAsBefore() { FATHOM_CUDA(cudaGetDevice(&device_)); }
  ~CurrentDeviceAsBefore() { (void)cudaSetDevice(device_); }

 private:
  int device_ = 0;
};

PeerRate measure_pair(const Peer& from, const Peer& to) {
  from.seconds(to, 1);
  const double once = from.seconds(to, 2) / 2;
  const int copies  = std::clamp(static_cast<int>(std::ceil(kTrialS / once)), 1, kMostCopiesOfTrial);
  std::vector<double> rates;
  for (int trial = 0; trial < kTrials; ++trial)
    rates.push_back(static_cast<double>(kBytes) * copies / from.seconds(to, copies));
  return {.bytes_per_s = summarise(rates, Better::higher)};
}

}  // namespace

std::vector<PeerRate> measure_peer_copies() {
  const CurrentDeviceAsBefore restored;
  const GpuFacts& facts = *gpu();
  std::vector<std::unique_ptr<Peer>> peers;
  for (int device = 0; device < facts.count; ++device) peers.push_back(std::make_unique<Peer>(device));
  std::vector<PeerRate> rates;
  for (int from = 0; from < facts.count; ++from)
    for (int to = 0; to < facts.count; ++to) {
      if (from == to) continue;
      if (facts.peer_access[from][to]) peers[from]->enable(*peers[to]);
      PeerRate rate = measure_pair(*peers[from], *peers[to]);
      rate.from     = from;
      rate.to       = to;
      rate.direct   = facts.peer_access[from][to];
      rates.push_back(rate);
    }
  return rates;
}

}  // namespace fathom::machine

#include "machine/gpu_peer_copy.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/event.h"
#include "machine/ceilings_measure.h"

namespace fathom::machine {
namespace {

constexpr int64_t kBytes   = 256 << 20;
constexpr int kTrials      = 10;
constexpr double kTrialS   = 0.010;
constexpr int kMaxCopies   = 64;
constexpr int64_t kSizes[] = {4 << 10, 64 << 10, 1 << 20, 16 << 20};

// One GPU's buffers, stream and events. Made while that GPU is current.
class Peer {
 public:
  explicit Peer(int device) : device_(device) {
    FATHOM_CUDA(cudaMalloc(&source_, kBytes));
    FATHOM_CUDA(cudaMalloc(&target_, kBytes));
    FATHOM_CUDA(cudaMemset(source_, 1, kBytes));
    FATHOM_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  }
  ~Peer() {
    (void)cudaStreamDestroy(stream_);
    (void)cudaFree(source_);
    (void)cudaFree(target_);
  }
  Peer(const Peer&)            = delete;
  Peer& operator=(const Peer&) = delete;

  void enable(const Peer& other) const {
    const DeviceGuard current(DeviceId{device_});
    const cudaError_t error = cudaDeviceEnablePeerAccess(other.device_, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
      (void)cudaGetLastError();
    else
      FATHOM_CUDA(error);
  }

  double seconds(const Peer& to, int copies, int64_t bytes = kBytes) const {
    const DeviceGuard current(DeviceId{device_});
    start_.record(stream_);
    for (int i = 0; i < copies; ++i) copy(to, bytes);
    end_.record(stream_);
    end_.synchronize();
    return 1e-3 * elapsed_ms(start_, end_);
  }
  // As many copies in each direction: both begin at this GPU's start, and its end is the later one's.
  double seconds_both_ways(const Peer& other, int copies) const {
    const DeviceGuard current(DeviceId{device_});
    start_.record(stream_);
    start_.wait_on(other.stream_);
    for (int i = 0; i < copies; ++i) {
      copy(other, kBytes);
      other.copy(*this, kBytes);
    }
    other.end_.record(other.stream_);
    other.end_.wait_on(stream_);
    end_.record(stream_);
    end_.synchronize();
    return 1e-3 * elapsed_ms(start_, end_);
  }

 private:
  void copy(const Peer& to, int64_t bytes) const {
    FATHOM_CUDA(
        cudaMemcpyPeerAsync(to.target_, to.device_, source_, device_, static_cast<size_t>(bytes), stream_));
  }

  const int device_;
  void *source_ = nullptr, *target_ = nullptr;
  cudaStream_t stream_ = nullptr;
  Event start_, end_;
};

PeerRate measure_pair(const Peer& from, const Peer& to, bool both_ways) {
  from.seconds(to, 1);
  const double once = from.seconds(to, 2) / 2;
  const int copies  = std::clamp(static_cast<int>(std::ceil(kTrialS / once)), 1, kMaxCopies);
  std::vector<double> rates, rates_of_both;
  for (int trial = 0; trial < kTrials; ++trial) {
    rates.push_back(static_cast<double>(kBytes) * copies / from.seconds(to, copies));
    if (both_ways)
      rates_of_both.push_back(2 * static_cast<double>(kBytes) * copies / from.seconds_both_ways(to, copies));
  }
  PeerRate rate{.bytes_per_s = summarise(rates, Better::higher)};
  if (both_ways) rate.both_bytes_per_s = summarise(rates_of_both, Better::higher);
  for (const int64_t bytes : kSizes) {
    std::vector<double> times;
    for (int trial = 0; trial < kTrials; ++trial)
      times.push_back(1e9 * from.seconds(to, kMaxCopies, bytes) / kMaxCopies);
    rate.copies.push_back({.bytes = bytes, .ns = summarise(times, Better::lower)});
  }
  return rate;
}

}  // namespace

std::vector<PeerRate> measure_peer_copies(const GpuFacts& facts) {
  std::vector<std::unique_ptr<Peer>> peers;
  for (int device = 0; device < facts.count; ++device) {
    const DeviceGuard current(DeviceId{device});
    peers.push_back(std::make_unique<Peer>(device));
  }
  std::vector<PeerRate> rates;
  for (int from = 0; from < facts.count; ++from)
    for (int to = 0; to < facts.count; ++to) {
      if (from == to) continue;
      if (facts.peer_access[from][to]) peers[from]->enable(*peers[to]);
      if (facts.peer_access[to][from]) peers[to]->enable(*peers[from]);
      PeerRate rate = measure_pair(*peers[from], *peers[to], from < to);
      rate.from     = from;
      rate.to       = to;
      rate.direct   = facts.peer_access[from][to];
      rates.push_back(rate);
    }
  return rates;
}

}  // namespace fathom::machine

// Ranks that are devices of one process and write into each other's memory: where it is, and signals between
// their streams. Only builds with CUDA have it.
#pragma once

#include <cstdint>
#include <vector>

#include "cuda/device_buffer.h"
#include "cuda/stream.h"
#include "lab/rank.h"

namespace fathom::lab {

class PeerRanks {
 public:
  // By all ranks at the same time, in prepare(). `memory`: addresses of this rank that the others write to,
  // as many on every rank, for which the group's shared memory has room. `signals`: of each rank to each
  // other one. Throws Unavailable where the GPUs cannot.
  PeerRanks(const Rank& me, const std::vector<void*>& memory, int signals);

  // What rank `of` gave as memory[i].
  template <class T>
  T* address(int of, size_t i) const {
    return static_cast<T*>(memory_[static_cast<size_t>(of)][i]);
  }
  // Signal i to rank `to`, after the work that `stream` got before, and the wait for it (cuda/stream_signal.h
  // has the conditions). Values grow from call to call.
  void signal(int to, int i, uint32_t value, StreamRef stream) const;
  void wait(int from, int i, uint32_t value, StreamRef stream) const;

 private:
  int rank_, signals_;
  DeviceBuffer<uint32_t> own_;  // not of the arena, which is overwritten between samples
  std::vector<std::vector<void*>> memory_;
  std::vector<uint32_t*> of_;
};

}  // namespace fathom::lab

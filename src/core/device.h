// Device: where an arena's buffers lie when that is not the host, and who works on them there. The CUDA one
// lives in core/cuda_device.cu; a build without CUDA has none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "core/stream.h"

namespace fathom {

// Every call returns when its work is done, and throws SystemError where the device failed.
class Device {
 public:
  virtual ~Device() = default;

  // Plain device memory, aligned to 256 bytes; throws NotEnoughMemory (core/arena.h). Freed by release().
  virtual void* allocate(int64_t bytes)       = 0;
  virtual void release(void* memory) noexcept = 0;
  // Host memory that was mapped elsewhere: page-locked, so that copies run at the link's rate and kernels can
  // read it.
  virtual void pin(void* memory, int64_t bytes) = 0;
  virtual void unpin(void* memory) noexcept     = 0;

  virtual void to_device(void* to, const void* from, int64_t bytes) = 0;
  virtual void to_host(void* to, const void* from, int64_t bytes)   = 0;
  virtual void set_words(void* to, int64_t bytes, uint32_t word)    = 0;  // the last may be cut short

  // The distributions of core/rng.h; the numbers are others than the host's under the same seed. Integers:
  // [lo, hi).
  virtual void fill_uniform(void* out, int64_t n, DType type, uint64_t seed, double lo, double hi) = 0;
  virtual void fill_normal(void* out, int64_t n, DType type, uint64_t seed, double mean,
                           double deviation)                                                       = 0;
  virtual uint64_t checksum(const void* data, int64_t bytes) = 0;  // changes with any byte and its place

  // Reads three times the L2 cache, so that nothing of what lay there is left, and leaves no dirty lines.
  virtual void flush_caches() = 0;

  // From page-locked memory, on the stream; returns at once.
  virtual void enqueue_to_device(void* to, const void* from, int64_t bytes) = 0;

  // Sets so much of L2 aside for lines that are marked to persist, 0 for none. More than the device can is an
  // error.
  virtual void set_aside_l2(int64_t bytes) = 0;
  // What a call left behind for whoever runs next, in words, and clears it: another part of L2 set aside than
  // the above, or a policy window on the stream. Persisting lines lose their mark in any case.
  virtual std::optional<std::string> left_behind() = 0;

  virtual StreamRef stream() = 0;  // the harness's, on which variants launch
  virtual void synchronize() = 0;
};

// This process's GPU, chosen and opened at the first call; null where there is none, and then
// why_no_cuda_device() says why in a sentence.
Device* cuda_device();
std::string why_no_cuda_device();

}  // namespace fathom

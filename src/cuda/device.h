// A GPU of this process: its memory, its stream, and what the measuring harness asks of it. A build without
// CUDA has the interface and no GPU.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/dtype.h"
#include "cuda/device_id.h"
#include "cuda/stream.h"

namespace fathom {

// Calls work from any thread, whichever GPU is current there, but not from two threads at once. They return
// when their work is done unless they say otherwise, and throw SystemError where the GPU failed.
class Device {
 public:
  virtual ~Device() = default;

  virtual DeviceId id() const = 0;
  // For the calling thread, until it makes another GPU current. A thread that launches kernels on stream()
  // calls it first.
  virtual void make_current() = 0;

  // ---- memory

  // Aligned to 256 bytes, not initialised; throws NotEnoughMemory (core/expect.h). Freed by release().
  virtual void* allocate(int64_t bytes)       = 0;
  virtual void release(void* memory) noexcept = 0;
  // With which another process of this host opens the memory (cudaIpcOpenMemHandle): 64 bytes. `allocation`:
  // as allocate() returned it. SystemError where the system does not share.
  virtual std::string ipc_handle(const void* allocation) = 0;
  // Page-locks host memory that was allocated elsewhere: copies run at the link's rate, and kernels can read
  // it.
  virtual void pin(void* memory, int64_t bytes) = 0;
  virtual void unpin(void* memory) noexcept     = 0;

  virtual void to_device(void* to, const void* from, int64_t bytes) = 0;
  virtual void to_host(void* to, const void* from, int64_t bytes)   = 0;
  // From page-locked memory, on stream(); returns at once.
  virtual void enqueue_to_device(void* to, const void* from, int64_t bytes) = 0;

  // ---- the stream

  virtual StreamRef stream() = 0;  // the harness's and the engine's; variants launch on it
  virtual void synchronize() = 0;  // with all work of this GPU

  // ---- for the harness

  virtual void set_words(void* to, int64_t bytes, uint32_t word) = 0;  // the last word may be cut short

  // The distributions of core/rng.h, with other numbers than the host's under the same seed. Integers:
  // [lo, hi).
  virtual void fill_uniform(void* out, int64_t n, DType type, uint64_t seed, double lo, double hi) = 0;
  virtual void fill_normal(void* out, int64_t n, DType type, uint64_t seed, double mean,
                           double deviation)                                                       = 0;
  virtual uint64_t checksum(const void* data, int64_t bytes) = 0;  // depends on every byte and its position

  // Evicts everything from L2 by reading three times its size; leaves no dirty lines. Returns at once.
  virtual void flush_l2() = 0;

  // Reserves `bytes` of L2 for persisting lines, or as many as the GPU can, 0 for none.
  virtual void set_aside_l2(int64_t bytes) = 0;
  // Undoes the L2 state that a call left for later ones: a different set-aside than set_aside_l2() asked for,
  // or an access policy window on stream(). Returns that in words; nothing where the call left none.
  // Persisting lines become normal in any case.
  virtual std::optional<std::string> restore_l2() = 0;
};

// How many GPUs this process sees; 0 without CUDA or a driver.
int device_count();

// One object for each GPU, opened at the first call and never closed. Null where there is none, and then
// why_no_device() says why in a sentence.
Device* find_device(DeviceId id);
std::string why_no_device(DeviceId id);

// Throws SystemError with that sentence.
Device& device(DeviceId id);

}  // namespace fathom

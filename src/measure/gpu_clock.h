// Times work on a GPU by events on its stream. A spinning kernel holds the stream back until all the work is
// enqueued, so the time excludes the host's launches.
#pragma once

#include <functional>
#include <memory>

#include "cuda/device.h"

namespace fathom::measure {

class GpuClock {
 public:
  virtual ~GpuClock() = default;

  struct Sample {
    double ns       = 0;      // between the events
    double host_ns  = 0;      // from the first launch until the device was idle
    double late_ns  = 0;      // work after the end event, which must be on another stream; 0 or a little
    double clock_hz = 0;      // SM clock over the sample; 0 where it could not be read
    bool waited     = false;  // the calls waited for the held GPU: this sample has no meaning
  };
  // `held`: hold the stream while `enqueue` runs. Not for work that waits for the GPU, nor for a kernel's
  // first launch in a process, as loading a kernel may wait for the GPU.
  virtual Sample time(const std::function<void()>& enqueue, bool held) = 0;
};

// For work on the device's stream; null in a build without CUDA.
std::unique_ptr<GpuClock> gpu_clock(Device& device);

}  // namespace fathom::measure

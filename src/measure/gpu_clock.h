// The time of work on a GPU: events around it on its stream, with the GPU held back by a spinning kernel
// until all of it is enqueued, so that the host's launches are not in the time.
#pragma once

#include <functional>
#include <memory>

#include "core/stream.h"

namespace fathom::measure {

class GpuClock {
 public:
  virtual ~GpuClock() = default;

  struct Sample {
    double ns       = 0;  // between the events
    double host_ns  = 0;  // from the first launch until the device was idle
    double late_ns  = 0;  // the device went on working for so long after the end event: on another stream
    double clock_hz = 0;  // of the multiprocessors over the sample; 0 where it could not be read
    bool waited = false;  // the calls waited for the GPU that was held for them: this sample means nothing
  };
  // `held`: keep the GPU back while `enqueue` runs. Never for work that waits for the GPU, nor for a kernel's
  // first call in a process, whose loading may wait.
  virtual Sample time(const std::function<void()>& enqueue, bool held) = 0;
};

// For a stream of cuda_device(); null in a build without CUDA.
std::unique_ptr<GpuClock> gpu_clock(StreamRef stream);

}  // namespace fathom::measure

// The problem: the allocations of some serving steps, and something to do with each so that memory which is
// in use twice shows. When allocation a is made, up to 256 words all over it become tag(a) + 0, 1, 2, ...;
// before it is freed, out(a) = the sum of these words.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/view.h"
#include "cuda/stream.h"
#include "experiments/ch13_training/caching_allocator/serving_trace.h"
#include "lab/problem_fwd.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::caching_allocator {

inline constexpr int64_t kMostWords = 256;  // of an allocation

struct Replay {
  std::shared_ptr<const Trace> trace;
  View<const int32_t, 1> tag;  // of each allocation
  View<int32_t, 1> out;        // of each allocation
  View<double, 1> reserved;    // on the host, written by each call: the most bytes taken from the GPU

  Replay(const Point& at, Arena& arena);
  Cost cost() const;
  int64_t expected(int64_t allocation) const;
  void metrics(CallMetrics& metrics) const;
};

// At the begin of an allocation's life and at its end.
void write_words(const Replay& p, int32_t allocation, void* memory, StreamRef stream);
void sum_words(const Replay& p, int32_t allocation, const void* memory, StreamRef stream);

// `allocator` has allocate(bytes), free(memory) and reserved(). `where`: where each allocation lies, made
// before all calls.
template <class Allocator>
void replay(const Replay& p, Allocator& allocator, std::vector<void*>& where, StreamRef stream) {
  for (const Trace::Event& event : p.trace->events) {
    void*& memory = where[static_cast<size_t>(event.allocation)];
    if (event.frees) {
      sum_words(p, event.allocation, memory, stream);
      allocator.free(memory);
    } else {
      memory = allocator.allocate(p.trace->bytes[static_cast<size_t>(event.allocation)]);
      write_words(p, event.allocation, memory, stream);
    }
  }
  p.reserved(0) = static_cast<double>(allocator.reserved());
}

// Make the allocator; the returned call is timed.
using Call = std::function<void(const Replay&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call cuda_malloc(const Replay& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call stream_ordered_pool(const Replay& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call size_classes(const Replay& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call vmm_arena(const Replay& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call planned(const Replay& p, StreamRef);

}  // namespace fathom::lab::caching_allocator

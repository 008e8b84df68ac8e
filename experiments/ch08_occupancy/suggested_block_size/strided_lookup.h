// The problem: the lookup of ch08/occupancy, out(i) = table(code(i)), with a table of 64 KiB in each block's
// shared memory. Each thread has `loads` codes of 4 bytes in flight before it uses the first.
#pragma once

#include <functional>

#include "experiments/ch08_occupancy/occupancy/lookup.h"

namespace fathom::lab {
struct CallMetrics;
}

namespace fathom::lab::suggested_block_size {

struct StridedLookup : occupancy::Lookup {
  int64_t loads;           // 1, 2, 4 or 8
  View<double, 1> launch;  // on the host, written by each call: threads of a block, blocks

  StridedLookup(const Point& at, Arena& arena);
  void metrics(CallMetrics& metrics) const;
};

struct LaunchShape {
  int threads, blocks;
};
// As many blocks of so many threads as the GPU holds at once.
LaunchShape resident(int64_t loads, int threads);
// What cudaOccupancyMaxPotentialBlockSize answers.
LaunchShape suggested(int64_t loads);
void look_up(const StridedLookup& p, LaunchShape shape, StreamRef stream);

// Ask for the shape; the returned call is timed.
using Call = std::function<void(const StridedLookup&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call threads_256(const StridedLookup& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call threads_512(const StridedLookup& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call suggested_threads(const StridedLookup& p, StreamRef);

}  // namespace fathom::lab::suggested_block_size

// The problem: n floats of the host's memory, copied to the device's. The host holds the same numbers twice,
// in pageable memory from malloc and in page-locked memory; each variant reads one of them.
#pragma once

#include <functional>

#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
class ThreadPool;
}  // namespace fathom
namespace fathom::lab {
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::host_device_copy {

inline constexpr int64_t kChunk = 1 << 19;  // floats: 2 MiB, so that what was just staged is still in a cache

struct Upload {
  View<const float, 1> pageable_in;
  View<const float, 1> pinned_in;
  View<float, 1> staging;  // workspace: page-locked, two chunks
  View<float, 1> out;      // on the device

  Upload(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void pageable(const Upload& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void pinned(const Upload& p, StreamRef stream);

// Opens the two streams; what it returns stages with the threads of the pool.
using Staged = std::function<void(const Upload& p, StreamRef stream, ThreadPool& pool)>;
FATHOM_CUDA_LAUNCHER Staged prepare_chunked();

}  // namespace fathom::lab::host_device_copy

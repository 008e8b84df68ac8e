// The problem: x, c and y are arrays of pages of 4 KiB that host and GPU take turns with. In each call
//   the host writes a number into each page of x:   x(p, w) = stamp(p)              w = p mod 1024
//   the GPU passes over everything:                 y(p, i) = x(p, i) + c(p, i) * sum over j of x(p, j)
//   the host reads numbers of y and of c:           out(p) = y(p, w) + c(p, w)
// c is never written, and the rest of x stays what content_of() gives. The host touches one number of each
// page only, which stands for code that works on all of x and y: every page has to be where the host is,
// while the host's own work takes little of the time.
#pragma once

#include <cstdint>
#include <functional>

#include "core/splitmix64.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::unified_memory {

inline constexpr int kWords     = 1024;  // of a page, fp32
inline constexpr int kPageBytes = 4096;
// What the host touches: another line of each page, as equal ones would meet in one set of its caches.
constexpr int64_t word_of(int64_t page) { return page % kWords; }

// In [-1, 1), exact in fp32. Element i of x and of c.
FATHOM_HD constexpr float content_of(char array, int64_t i) {
  const uint64_t bits = splitmix64(static_cast<uint64_t>(i) * kSplitmix64Increment + array) >> 40;
  return static_cast<float>(static_cast<int64_t>(bits) - (1 << 23)) * (1.0f / (1 << 23));
}

struct Turns {
  View<const float, 1> stamp;  // on the host, of each page
  View<float, 1> out;          // on the host, of each page

  Turns(const Point& at, Arena& arena);
  int64_t pages() const { return out.size(); }
  Cost cost() const;
  Sum expected(int64_t page) const;
};

// The GPU's pass over `pages` of each array.
void pass(const float* x, const float* c, float* y, int64_t pages, StreamRef stream);

// Make the arrays; the returned call is timed.
using Call = std::function<void(const Turns&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call explicit_copies(const Turns& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call on_demand(const Turns& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call prefetched(const Turns& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call read_mostly(const Turns& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call preferred_location(const Turns& p, StreamRef);

}  // namespace fathom::lab::unified_memory

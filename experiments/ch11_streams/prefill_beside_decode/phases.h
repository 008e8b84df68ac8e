// A prefill and a decode step of two groups of requests, which do not depend on each other:
//   prefill(t, n) = sum_k x(t, k) w(n, k)      many rows: bound by the tensor cores
//   decode(r) = sum_k v(k) u(r, k)             one row: bound by memory
// x, w, v, u and prefill are bf16, decode is fp32.
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::prefill_beside_decode {

struct Phases {
  View<const bf16, 2> x, w;
  View<const bf16, 1> v;
  View<const bf16, 2> u;
  View<bf16, 2> prefill;
  View<float, 1> decode;
  View<uint8_t, 1> scratch;  // workspace of the library

  Phases(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

// `blocks` of 1024 threads take the rows in turn; 0: a block for each 32 rows.
FATHOM_CUDA_LAUNCHER void decode_rows(const Phases& p, int blocks, StreamRef stream);

// Plan the product and make the streams; the returned call is timed.
using Call = std::function<void(const Phases&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call one_stream(const Phases& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call two_streams(const Phases& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call decode_first(const Phases& p, StreamRef);
FATHOM_CUDA_LAUNCHER Call confined_decode(const Phases& p, StreamRef);

}  // namespace fathom::lab::prefill_beside_decode

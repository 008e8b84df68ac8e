// The problem: the rows of T tokens, each copied to the places of its four experts, as before an MoE layer:
// out(r, c) = in(token(r), c) for 4 T places, ordered by expert. bf16.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"

namespace fathom {
class Arena;
}
namespace fathom::lab {
class Point;
struct Cost;
}  // namespace fathom::lab

namespace fathom::lab::gather_gpu {

constexpr int kTopK    = 4;   // experts of a token
constexpr int kExperts = 32;  // gpt-oss-20b's numbers

struct Dispatch {
  View<const bf16, 2> in;          // (token, column)
  View<const int32_t, 1> routing;  // storage of the next two views
  View<const int32_t, 1> token;    // of each place; ascending within an expert
  View<const int32_t, 2> place;    // the same map the other way: (token, k)
  View<bf16, 2> out;               // (place, column)

  Dispatch(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t r, int64_t c) const;
};

FATHOM_CUDA_LAUNCHER void element(const Dispatch& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void row_vectors(const Dispatch& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void read_once(const Dispatch& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void bulk_rows(const Dispatch& p, StreamRef stream);

}  // namespace fathom::lab::gather_gpu

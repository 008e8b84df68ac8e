// scores(t, h, j) = functor(scale scores(t, h, j), h, context - 1 - j)
//
// bytes   8 a score: read and written
// limit   DRAM bandwidth; 64 sequences with 32 heads and 4096 positions have 34 MB of scores, which stay in
// L2 idea    a thread for each position, a row of the grid for each row of scores
#include "score_pass.h"

#include <cmath>

#include "cuda/check.h"
#include "kernels/attention/attention_scores.h"

namespace fathom::lab::flexdecoding {
namespace {

constexpr int kThreads = 256;

// Grid: (rows, blocks of positions).
template <class Functor>
__global__ void __launch_bounds__(kThreads)
    score_kernel(View<float, 2> scores, int heads, int context, int window, float scale, Functor functor) {
  const int j = static_cast<int>(blockIdx.y * kThreads + threadIdx.x), head = blockIdx.x % heads;
  if (j >= context) return;
  float& score = scores(static_cast<int64_t>(blockIdx.x), j);
  score        = j < context - window ? -INFINITY : functor(score * scale, head, context - 1 - j);
}

}  // namespace

template <class Functor>
void score_pass(View<float, 2> scores, int64_t heads, int64_t context, int window, float scale,
                const Functor& functor, StreamRef stream) {
  if (context == 0 || scores.extent(0) == 0) return;
  const dim3 grid(static_cast<unsigned>(scores.extent(0)), blocks_for(context, kThreads));
  score_kernel<<<grid, kThreads, 0, stream>>>(scores, static_cast<int>(heads), static_cast<int>(context),
                                              window, scale, functor);
  FATHOM_LAUNCHED();
}

template void score_pass(View<float, 2>, int64_t, int64_t, int, float, const kernels::PlainScore&, StreamRef);
template void score_pass(View<float, 2>, int64_t, int64_t, int, float, const kernels::Alibi&, StreamRef);
template void score_pass(View<float, 2>, int64_t, int64_t, int, float, const kernels::RelativeBias&,
                         StreamRef);
template void score_pass(View<float, 2>, int64_t, int64_t, int, float, const kernels::SoftCap&, StreamRef);

}  // namespace fathom::lab::flexdecoding

// One layer of gpt-oss-20b's 32 experts in MXFP4 (kernels/moe/experts.h has the formulas), on rows that are
// sorted by expert. Sorted row i belongs to slot(i) and to the expert e with first(e) <= i < first(e + 1).
//   layer 1   a(i, .)           = gated units of W[e] x(i, .) + b[e]           in bf16
//   layer 2   slots(slot(i), .) = weight(slot(i)) (W[e] x(i, .) + b[e])
#pragma once

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "experiments/ch15_moe_inference/mxfp4_layers.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::expert_tiles_gpu {

inline constexpr int64_t kExperts = 32;

struct ExpertTiles {
  int64_t layer;
  View<const bf16, 2> x;               // T kTopK x width, a multiple of 64
  View<const int32_t, 1> first, slot;  // kExperts + 1, T kTopK
  View<const float, 1> weights;        // T kTopK
  View<const float, 2> bias;
  mxfp4::Matrices w;     // 2 width or width rows
  View<bf16, 2> a;       // T kTopK x width, or empty
  View<float, 2> slots;  // T kTopK x width, or empty

  ExpertTiles(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;

 private:
  ExpertTiles(int64_t layer, int64_t rows, int64_t width, Arena& arena);
};

FATHOM_CUDA_LAUNCHER void equal_tiles(const ExpertTiles& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void operands_early(const ExpertTiles& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void balanced(const ExpertTiles& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void narrow_tiles(const ExpertTiles& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void one_tile_stages(const ExpertTiles& p, StreamRef stream);

}  // namespace fathom::lab::expert_tiles_gpu

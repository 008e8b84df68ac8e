// ids(t) = argmax_v score(y(t, v)) of y = W x: y itself, or y / temperature + a Gumbel number (core/gumbel.h)
//
// W [V, K] exists twice, packed for the tensor cores: in bf16 (kernels/gemm/packed_weights.h), and as the
// int8 copy with its scales and errors (kernels/sampling/screened_argmax.h).
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/gemm/packed_weights.h"
#include "kernels/sampling/sampling_row.h"
#include "kernels/sampling/screened_argmax.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::screened_argmax {

// Where the forms of the weights lie in one array of bytes. `plain` is the checkpoint's layout, for the
// check.
struct Weights {
  int64_t vocabulary, inputs;

  bool operator==(const Weights&) const = default;
  int64_t rows() const { return kernels::padded(vocabulary); }
  int64_t plain_bytes() const { return 2 * vocabulary * inputs; }  // in the checkpoint's layout
  int64_t copy_at() const { return 2 * rows() * inputs; }
  int64_t scales_at() const { return copy_at() + rows() * inputs; }
  int64_t bytes() const { return scales_at() + 8 * rows(); }

  kernels::PackedMatrix packed(const uint8_t* memory) const {
    return {.tiles = reinterpret_cast<const bf16*>(memory), .bias = nullptr, .rows = rows(), .depth = inputs};
  }
  kernels::ScreeningWeights screening(const uint8_t* memory) const {
    const auto* scales = reinterpret_cast<const float*>(memory + scales_at());
    return {.tiles  = memory + copy_at(),
            .scales = scales,
            .errors = scales + rows(),
            .rows   = rows(),
            .depth  = inputs};
  }
};

struct Unembedding {
  Weights weights;
  int64_t rows;
  View<const bf16, 2> x;          // [T, K]
  View<const uint8_t, 1> memory;  // of the weights
  View<const kernels::SamplingRow, 1> rules;
  View<int32_t, 1> ids;
  View<float, 2> logits;  // working memory

  Unembedding(const Point& at, Arena& arena);
  Cost cost() const;
  void check(Checker& checker) const;
};

// Packs weights in the checkpoint's layout [V, K] into `memory`, all on the host.
FATHOM_CUDA_LAUNCHER void pack(uint8_t* memory, const bf16* plain, const Weights& of);

FATHOM_CUDA_LAUNCHER void all_logits(const Unembedding& p, StreamRef stream);

// Makes the state; the returned call is timed.
using Call = std::function<void(const Unembedding&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call screened(const Unembedding&, StreamRef);

}  // namespace fathom::lab::screened_argmax

// out(m, t, n) = sum_k x(m, t, k) scale(m, n, k / G) (code(m, n, k) - zero(m, n, k / G))
//
// M matrices [N, K] with T rows each, one after the other, like a model's layers. Their weights exist three
// times, with the same numbers: as 4-bit codes in a checkpoint's layout, as bf16, and packed for the tensor
// cores (kernels/quant/int4_gemv.h). Scales have 4 significant bits, so that bf16 has each weight exactly.
#pragma once

#include <functional>

#include "core/dtype.h"
#include "core/view.h"
#include "cuda/stream.h"
#include "kernels/quant/int4_gemv.h"
#include "lab/problem_fwd.h"

namespace fathom::lab::int4_gemv_gpu {

// Where the three forms of the weights lie in one array of bytes, each aligned to 256.
struct Weights {
  int64_t matrices, outputs, inputs, group;

  bool operator==(const Weights&) const = default;
  int64_t rows() const { return matrices * outputs; }
  int64_t groups() const { return (inputs + group - 1) / group; }
  kernels::PackedInt4 shape() const {
    return {.matrices = matrices, .rows = outputs, .depth = inputs, .group = group};
  }

  int64_t scales_at() const { return aligned(rows() * inputs / 2); }  // behind the codes
  int64_t zeros_at() const { return scales_at() + aligned(2 * rows() * groups()); }
  int64_t bf16_at() const { return zeros_at() + aligned(rows() * groups()); }
  int64_t packed_codes_at() const { return bf16_at() + aligned(2 * rows() * inputs); }
  int64_t packed_scales_at() const { return packed_codes_at() + aligned(shape().code_bytes()); }
  int64_t packed_zeros_at() const { return packed_scales_at() + aligned(4 * shape().scale_words()); }
  int64_t bytes() const { return packed_zeros_at() + aligned(shape().zero_bytes()); }

  // The forms in the array at `memory`.
  kernels::Int4Matrices int4(const uint8_t* memory) const {
    return {{memory, {matrices, outputs, inputs / 2}},
            {reinterpret_cast<const fp16*>(memory + scales_at()), {matrices, outputs, groups()}},
            {memory + zeros_at(), {matrices, outputs, groups()}}};
  }
  View<const bf16, 3> in_bf16(const uint8_t* memory) const {
    return {reinterpret_cast<const bf16*>(memory + bf16_at()), {matrices, outputs, inputs}};
  }
  kernels::PackedInt4 packed(const uint8_t* memory) const {
    kernels::PackedInt4 w = shape();
    w.codes               = memory + packed_codes_at();
    w.scales              = reinterpret_cast<const uint32_t*>(memory + packed_scales_at());
    w.zeros               = memory + packed_zeros_at();
    return w;
  }

 private:
  static int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }
};

struct Projection {
  Weights weights;
  int64_t rows;
  View<const bf16, 3> x;          // [M, T, K]
  View<const uint8_t, 1> memory;  // of the weights
  View<float, 3> out;             // [M, T, N]
  View<uint8_t, 1> scratch;       // workspace of the library

  Projection(const Point& at, Arena& arena);
  Cost cost() const;
  Sum expected(int64_t m, int64_t t, int64_t n) const;
};

// Packs the weights in the checkpoint's layout at `memory`, on the host, into their place behind.
FATHOM_CUDA_LAUNCHER void pack(uint8_t* memory, const Weights& of);

FATHOM_CUDA_LAUNCHER void bf16_weights(const Projection& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void int4_weights(const Projection& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void tensor_cores(const Projection& p, StreamRef stream);

// Plans the product; the returned call is timed.
using Call = std::function<void(const Projection&, StreamRef)>;
FATHOM_CUDA_LAUNCHER Call cublaslt(const Projection&, StreamRef);

}  // namespace fathom::lab::int4_gemv_gpu

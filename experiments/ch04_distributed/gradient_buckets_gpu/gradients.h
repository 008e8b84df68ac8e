// The weight gradients of a data-parallel training step. Each rank has a batch of its own, and all end with
// the sum over ranks.
//   out_r(l, o, i) = sum_q sum_t dy_q(l, o, t) x_q(l, i, t)      fp32 [layers, width, width], for every rank
//   r
// Layers are done from the last to the first, as a backward pass does them. The gradients of the layers'
// inputs, which such a pass computes too, are inputs here.
#pragma once

#include <cmath>
#include <cstdint>
#include <functional>

#include "core/dtype.h"
#include "lab/problem.h"
#include "lab/rank.h"

namespace fathom::lab::gradient_buckets_gpu {

struct Gradients {
  View<const bf16, 3> dy, x;  // [layers, width, tokens]: transposed, so that tokens are contiguous
  View<float, 3> out;
  // Eight numbers that are the bytes of the rank's nonce, and their sums: what a training step does with its
  // loss.
  View<float, 1> nonce, nonces;
  View<std::byte, 1> scratch;  // of cuBLASLt
  Rank rank;

  Gradients(const Point& at, Arena& arena, const Rank& me)
      : dy(arena.input<bf16>({at["layers"], at["width"], at["tokens"]}, Normal{})),
        x(arena.input<bf16>({at["layers"], at["width"], at["tokens"]}, Normal{})),
        out(arena.output<float>({at["layers"], at["width"], at["width"]})),
        nonce(arena.workspace<float>({8})),
        nonces(arena.workspace<float>({8})),
        scratch(arena.workspace<std::byte>({int64_t{32} << 20})),
        rank(me) {}

  int64_t layers() const { return out.extent(0); }
  int64_t layer_size() const { return out.extent(1) * out.extent(2); }  // numbers

  Cost cost() const {
    return {.read      = dy.bytes() + x.bytes(),
            .written   = out.bytes(),
            .flops     = 2 * static_cast<double>(out.size()) * static_cast<double>(x.extent(2)),
            .flop_type = DType::bf16};
  }
  Sum expected(const AllRanks<Gradients>& ranks, int64_t l, int64_t o, int64_t i) const {
    Sum sum{.length = x.extent(2) * ranks.size()};
    for (int q = 0; q < ranks.size(); ++q)
      for (int64_t t = 0; t < x.extent(2); ++t) {
        const double term = static_cast<double>(static_cast<float>(ranks[q].dy(l, o, t))) *
                            static_cast<float>(ranks[q].x(l, i, t));
        sum.value += term;
        sum.magnitude += std::abs(term);
      }
    return sum;
  }
  void put_nonce(Context& context) const;
  uint64_t nonce_sum(Context& context) const;
};

// Each joins the ranks' communicator when it is prepared.
using Call = std::function<void(const Gradients&, Context&)>;
FATHOM_CUDA_LAUNCHER Call after_backward(const Gradients& p, Context& context);
FATHOM_CUDA_LAUNCHER Call one_bucket(const Gradients& p, Context& context);
FATHOM_CUDA_LAUNCHER Call as_ready(const Gradients& p, Context& context);
FATHOM_CUDA_LAUNCHER Call buckets_4mib(const Gradients& p, Context& context);
FATHOM_CUDA_LAUNCHER Call buckets_25mib(const Gradients& p, Context& context);

}  // namespace fathom::lab::gradient_buckets_gpu

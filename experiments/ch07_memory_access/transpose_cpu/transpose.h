// The problem: out(j, i) = in(i, j), fp32, n x n, both row-major.
#pragma once

#include "lab/problem.h"

namespace fathom::lab::transpose_cpu {

struct Transpose {
  static constexpr int64_t kBuffer = 512 * 144;  // floats: a tile on its way

  View<const float, 2> in;
  View<float, 2> out;
  View<float, 1> buffer;

  Transpose(const Point& at, Arena& arena)
      : in(arena.input<float>({at["n"], at["n"]}, Uniform{-1, 1})),
        out(arena.output<float>({at["n"], at["n"]})),
        buffer(arena.workspace<float>({kBuffer})) {}

  Cost cost() const { return {.read = in.bytes(), .written = out.bytes()}; }
  double expected(int64_t i, int64_t j) const { return in(j, i); }
};

void baseline(const Transpose& p, Context& context);
void tiled(const Transpose& p, Context& context);
void vectorized(const Transpose& p, Context& context);
void streamed(const Transpose& p, Context& context);
void padded(const Transpose& p, Context& context);
void long_runs(const Transpose& p, Context& context);
Launch<Transpose> prepare_openblas(const Transpose& p, Context& context);

}  // namespace fathom::lab::transpose_cpu

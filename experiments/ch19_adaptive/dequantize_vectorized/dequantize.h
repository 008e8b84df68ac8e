// The problem: n numbers in an MX format become bf16:
//   out(i) = code(i) 2^(scale(i / 32) - 127)
// with codes in E4M3 (a byte each) or E2M1 (two in a byte, the first in the low half), and a scale in E8M0
// for each 32. Both have so few significant bits that bf16 holds every product exactly.
#pragma once

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

namespace fathom::lab::dequantize_vectorized {

inline constexpr int kBlock = 32;  // numbers with one scale

struct Dequantize {
  bool fp4;
  View<const fp8_e4m3, 1> eights;  // the codes of E4M3; empty if fp4
  View<const uint8_t, 1> pairs;    // of E2M1; empty otherwise
  View<const uint8_t, 1> scales;
  View<bf16, 1> out;

  Dequantize(const Point& at, Arena& arena);
  Cost cost() const;
  double expected(int64_t i) const;
};

FATHOM_CUDA_LAUNCHER void bytes_1(const Dequantize& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void bytes_4(const Dequantize& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void bytes_16(const Dequantize& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void bytes_16_shuffled(const Dequantize& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void codes_8(const Dequantize& p, StreamRef stream);

}  // namespace fathom::lab::dequantize_vectorized

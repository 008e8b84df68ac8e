// The problem: one decode step of sequences whose contexts differ by `mix`.
#pragma once

#include "experiments/ch18_decode/ragged_decode.h"

namespace fathom::lab::decode_tail {

struct DecodeTail : ragged_decode::RaggedDecode {
  DecodeTail(const Point& at, Arena& arena);
  Cost cost() const { return cost_of(positions); }
  void check(Checker& checker) const;
};

FATHOM_CUDA_LAUNCHER void whole_rows(const DecodeTail& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void equal_length(const DecodeTail& p, StreamRef stream);
FATHOM_CUDA_LAUNCHER void equal_payload(const DecodeTail& p, StreamRef stream);

}  // namespace fathom::lab::decode_tail

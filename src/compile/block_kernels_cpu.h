// What a CPU executes of a tape: one op over a block of numbers that stays in L1.
#pragma once

#include <cstdint>

#include "compile/ops.h"

namespace fathom::compile {

struct BlockOperand {
  const float* data  = nullptr;
  int64_t row_stride = 0;
  bool scalar        = false;  // one number for each row of the block
};

struct BlockStep {
  Op op = Op::cast;  // pointwise, sum or reduce_max; cast: a copy
  BlockOperand a, b;
  float* out             = nullptr;  // of a reduction: one number for each row
  int64_t out_row_stride = 0;
  bool to_bf16           = false;  // results are rounded to bf16
  bool accumulate        = false;  // a reduction goes on from what out holds
};

// rows x columns, rows contiguous. out may be an operand. On the widest vectors that the machine has.
void run_block_step(const BlockStep& step, int64_t rows, int64_t columns);

}  // namespace fathom::compile

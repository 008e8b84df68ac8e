// What a CPU executes of a tape: a chain of ops over a block of numbers. The block stays in L1, and between
// the ops of a chain numbers stay in registers.
#pragma once

#include <array>
#include <cstdint>

#include "compile/ops.h"

namespace fathom::compile {

// Without values to begin with: chains are written at every block.
struct BlockOperand {
  const float* data;
  int64_t row_stride;
  int64_t column_stride;  // 1, or 0: one number for each row

  bool scalar() const { return column_stride == 0; }
};

// v = op(v, other) of the chain's value v, then rounded and stored where asked.
struct BlockOp {
  Op op;               // pointwise; cast: v stays
  BlockOperand other;  // no data: v itself
  bool swapped;        // op(other, v)
  bool to_bf16;
  float* out;  // null: v is not stored
  int64_t out_row_stride;
};

struct BlockChain {
  static constexpr int kLength = 12;

  BlockOperand first;  // v at the beginning
  std::array<BlockOp, kLength> ops;
  int count = 0;
  // What becomes of v at the end, unless cast: sum or reduce_max of each row, rounded if asked.
  Op reduce                  = Op::cast;
  float* reduced             = nullptr;
  int64_t reduced_row_stride = 0;
  bool accumulate            = false;  // goes on from what `reduced` holds
  bool reduced_to_bf16       = false;
};

// rows x columns, rows contiguous. What is stored may lie over an operand of the chain, element over element.
void run_block_chain(const BlockChain& chain, int64_t rows, int64_t columns);

}  // namespace fathom::compile

// The ops of the IR, one row each: how it is written, what it takes, its result's type, what it costs.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "compile/extent.h"
#include "core/dtype.h"
#include "core/result.h"

namespace fathom::compile {

enum class Op : uint8_t {
  // Sources.
  input,
  constant,  // a scalar, of shape []
  iota,      // its position along axes[0]
  // Pointwise: operands and result have one shape and one dtype; each result is rounded to its dtype.
  neg,
  abs,
  exp,
  sqrt,
  rsqrt,
  sigmoid,
  tanh,
  add,
  sub,
  mul,
  div,
  min,      // a < b ? a : b
  max,      // a > b ? a : b
  greater,  // a > b ? 1 : 0
  cast,
  // Reductions, over `axes` (ascending), which the result lacks. Summed in fp32, then rounded.
  sum,
  reduce_max,  // of nothing: -inf
  // Movement: data goes elsewhere, no number changes.
  reshape,
  permute,    // axis i of the result is axis axes[i] of the operand
  broadcast,  // axis i of the operand is axis axes[i] of the result (ascending); others repeat it
  slice,      // starts and steps, one an axis; the result's shape says how many
  // Zeros, among which the operand lies where a slice with these starts and steps finds it. A launch of its
  // own.
  pad,
  // y(m, n) = sum_k x(m, k) w(n, k), in fp32: x [M, K] in fp32 or bf16, w [N, K] in bf16, as checkpoints
  // store it.
  matmul,
};

enum class OpKind : uint8_t { source, pointwise, reduction, movement, pad, matmul };

struct OpRow {
  std::string_view name;
  OpKind kind;
  int operands;
  double flops;  // for each element of the result; of a reduction, of the operand
};

const OpRow& row(Op op);
const Op* find_op(std::string_view name);  // null where there is none

inline bool is_pointwise(Op op) { return row(op).kind == OpKind::pointwise; }
inline bool is_reduction(Op op) { return row(op).kind == OpKind::reduction; }
inline bool is_movement(Op op) { return row(op).kind == OpKind::movement; }

struct Type {
  DType dtype = DType::fp32;  // fp32 or bf16
  Shape shape;

  bool operator==(const Type&) const = default;
};

// What an op is told beside its operands.
struct Attributes {
  std::vector<int64_t> axes = {}, starts = {}, steps = {};
  double value = 0;  // of a constant

  bool operator==(const Attributes&) const = default;
};

// Whether `type` is what the op makes of these operands; an error says what does not fit, and the cure.
// Of sources, casts, reshapes, broadcasts and slices the type says what the operands cannot.
Status check_type(Op op, const std::vector<Type>& operands, const Attributes& attributes, const Type& type,
                  std::span<const Symbol> symbols);

// One element of a pointwise op that computes in T (float or double), before it is rounded to its dtype.
template <class T>
T pointwise_value(Op op, T a, T b);

double bytes_of(const Type& type, std::span<const int64_t> symbols);
double flops_of(Op op, const std::vector<Type>& operands, const Type& type, std::span<const int64_t> symbols);

}  // namespace fathom::compile

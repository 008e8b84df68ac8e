#include "compile/tape_cpu.h"

#include <algorithm>

#include "core/thread_pool.h"

namespace fathom::compile {
namespace {

using Kind = Instruction::Kind;

float number(float value) { return value; }
float number(bf16 value) { return static_cast<float>(value); }
void put(float value, float& to) { to = value; }
// The tape has rounded it.
void put(float value, bf16& to) {
  to.bits = static_cast<uint16_t>(__builtin_bit_cast(uint32_t, value) >> 16);
}

template <class T, class Column>
void load_row(const std::byte* from, int64_t n, const Column& column, float* __restrict__ to) {
  const T* numbers = reinterpret_cast<const T*>(from);
  for (int64_t c = 0; c < n; ++c) to[c] = number(numbers[column(c)]);
}

template <class T, class Column>
void store_row(const float* __restrict__ from, bool scalar, int64_t n, const Column& column, std::byte* to) {
  T* numbers = reinterpret_cast<T*>(to);
  if (scalar)
    for (int64_t c = 0; c < n; ++c) put(*from, numbers[column(c)]);
  else
    for (int64_t c = 0; c < n; ++c) put(from[c], numbers[column(c)]);
}

// Calls f with the column's offset as a function: loops of their own for the strides that matter.
template <class F>
void with_stride(int64_t stride, F&& f) {
  if (stride == 1) return f([](int64_t c) { return c; });
  if (stride == 2) return f([](int64_t c) { return 2 * c; });
  f([stride](int64_t c) { return c * stride; });
}

}  // namespace

int64_t TapeCpu::BoundLeaf::column(int64_t c, const std::vector<int64_t>& inner_extents) const {
  int64_t offset = 0;
  for (size_t axis = inner.size(); axis-- > 0;) {
    offset += c % inner_extents[axis] * inner[axis];
    c /= inner_extents[axis];
  }
  return offset;
}

// The first number of a value in the columns at work.
float* TapeCpu::place(const Location& at, const Cell& cell) const {
  switch (at.where) {
    case Location::Where::leaf: {
      const auto l = static_cast<size_t>(at.index);
      return reinterpret_cast<float*>(cell.leaves[l]) + cell.column * leaves_[l].inner_stride();
    }
    case Location::Where::whole_row:
    case Location::Where::shared_row:
      return cell.scratch + at.offset + cell.column;
    default:
      return cell.scratch + at.offset;
  }
}

int64_t TapeCpu::row_stride(const Bound& value, const Cell& cell) const {
  switch (value.at.where) {
    case Location::Where::leaf:
      return leaves_[static_cast<size_t>(value.at.index)].row;
    case Location::Where::whole_row:
      return columns_;
    case Location::Where::shared_row:
      return 0;
    case Location::Where::per_row:
      return 1;
    default:
      return cell.columns;
  }
}

// A value as an operand of an instruction that makes one number for each row (per_row) or for each element.
// Written in place, field by field: a copy would wait for its stores.
void TapeCpu::write_operand(int value, bool per_row, const Cell& cell, BlockOperand& operand) const {
  const Bound& bound    = code_[static_cast<size_t>(value)];
  const bool constant   = bound.kind == Kind::constant;
  operand.data          = constant ? &constants_[static_cast<size_t>(value)] : place(bound.at, cell);
  operand.row_stride    = constant || (bound.per_row && per_row) ? 0 : row_stride(bound, cell);
  operand.column_stride = constant ? 0 : !bound.per_row || per_row;
}

void TapeCpu::load(const Bound& bound, const Cell& cell) const {
  const auto l          = static_cast<size_t>(bound.leaf);
  const BoundLeaf& leaf = leaves_[l];
  float* to             = place(bound.at, cell);
  const auto rows       = [&](auto type) {
    using T = decltype(type);
    if (bound.per_row)
      return with_stride(leaf.row,
                               [&](const auto& column) { load_row<T>(cell.leaves[l], cell.rows, column, to); });
    const int64_t count = bound.at.where == Location::Where::shared_row ? 1 : cell.rows;
    for (int64_t r = 0; r < count; ++r) {
      const std::byte* row = cell.leaves[l] + r * leaf.row * leaf.bytes();
      float* out           = to + r * row_stride(bound, cell);
      if (leaf.inner.size() > 1)
        load_row<T>(
            row, cell.columns, [&](int64_t c) { return leaf.column(cell.column + c, inner_extents_); }, out);
      else
        with_stride(leaf.inner_stride(), [&](const auto& column) {
          load_row<T>(row + cell.column * leaf.inner_stride() * leaf.bytes(), cell.columns, column, out);
        });
    }
  };
  leaf.dtype == DType::bf16 ? rows(bf16{}) : rows(float{});
}

void TapeCpu::store(const Bound& bound, const Cell& cell) const {
  const auto l          = static_cast<size_t>(bound.leaf);
  const BoundLeaf& leaf = leaves_[l];
  BlockOperand value;
  write_operand(bound.a, bound.per_row, cell, value);
  const auto rows = [&](auto type) {
    using T = decltype(type);
    if (bound.per_row)
      return with_stride(leaf.row, [&](const auto& column) {
        store_row<T>(value.data, value.scalar(), cell.rows, column, cell.leaves[l]);
      });
    for (int64_t r = 0; r < cell.rows; ++r) {
      const float* from = value.data + r * value.row_stride;
      std::byte* row    = cell.leaves[l] + r * leaf.row * leaf.bytes();
      if (leaf.inner.size() > 1)
        store_row<T>(
            from, value.scalar(), cell.columns,
            [&](int64_t c) { return leaf.column(cell.column + c, inner_extents_); }, row);
      else
        with_stride(leaf.inner_stride(), [&](const auto& column) {
          store_row<T>(from, value.scalar(), cell.columns, column,
                       row + cell.column * leaf.inner_stride() * leaf.bytes());
        });
    }
  };
  leaf.dtype == DType::bf16 ? rows(bf16{}) : rows(float{});
}

// before: the instruction whose value the chain has, -1 at its beginning, where it has the first operand.
void TapeCpu::write_op(const Bound& bound, int before, const Cell& cell, BlockOp& op) const {
  const int chained = before < 0 ? bound.a : before;
  const int other   = bound.a == chained ? bound.b : bound.a;
  op.op             = bound.op;
  op.to_bf16        = bound.to_bf16;
  op.swapped        = bound.a != chained;
  op.other.data     = nullptr;
  if (other >= 0 && other != chained) write_operand(other, bound.per_row, cell, op.other);
  op.out = nullptr;
  if (bound.at.where == Location::Where::nowhere) return;
  op.out            = place(bound.at, cell);
  op.out_row_stride = row_stride(bound, cell);
}

// The instruction and those that take its value out of registers. Returns the position after them.
size_t TapeCpu::execute(size_t i, const Cell& cell) const {
  const bool per_row = code_[i].per_row && code_[i].kind != Kind::reduce;
  BlockChain chain;
  write_operand(code_[i].a, per_row, cell, chain.first);
  for (int before = -1;;) {
    const Bound& bound = code_[i];
    if (bound.kind == Kind::reduce) {
      chain.reduce             = bound.op;
      chain.reduced            = place(bound.at, cell);
      chain.reduced_row_stride = row_stride(bound, cell);
      chain.accumulate         = cell.column > cell.first_column;
      chain.reduced_to_bf16 =
          bound.to_bf16 && cell.column + cell.columns == cell.first_column + cell.all_columns;
      break;
    }
    write_op(bound, before, cell, chain.ops[static_cast<size_t>(chain.count++)]);
    if (!bound.continued) break;
    before = static_cast<int>(i);
    do ++i;
    while (code_[i].no_step);
  }
  per_row ? run_block_chain(chain, 1, cell.rows) : run_block_chain(chain, cell.rows, cell.columns);
  return i + 1;
}

void TapeCpu::run_cell(Cell& cell, bool first) const {
  const auto step = [&](size_t i) {
    const Bound& bound = code_[i];
    if (bound.kind == Kind::compute || bound.kind == Kind::reduce) return execute(i, cell);
    if (bound.kind == Kind::load && !bound.no_step) load(bound, cell);
    if (bound.kind == Kind::store && !bound.no_step) store(bound, cell);
    return i + 1;
  };
  const auto is_once = [](const Bound& bound) {
    return bound.per_row && bound.kind != Kind::reduce && bound.kind != Kind::store;
  };
  const auto is_shared = [](const Bound& bound) { return bound.at.where == Location::Where::shared_row; };
  size_t begin         = 0;
  for (int walk = 0; walk < walks_; ++walk) {
    cell.column  = cell.first_column;
    cell.columns = cell.all_columns;
    while (begin < code_.size() && code_[begin].walk == walk && is_once(code_[begin])) begin = step(begin);
    size_t end = begin;
    while (end < code_.size() && code_[end].walk == walk) ++end;
    // What all rows share is loaded by a thread's first cell.
    for (size_t i = begin; first && i < end; ++i)
      if (is_shared(code_[i])) step(i);
    const int64_t columns_end = cell.first_column + cell.all_columns;
    const int64_t block       = cell.rows == 1 ? block_ : cell.all_columns;
    do {
      cell.columns = std::min(block, columns_end - cell.column);
      for (size_t i = begin; i < end;) i = is_shared(code_[i]) ? i + 1 : step(i);
      cell.column += cell.columns;
    } while (cell.column < columns_end);
    begin = end;
  }
}

void TapeCpu::run(std::span<void* const> leaves, float* scratch, ThreadPool& pool) const {
  const int64_t prefixes = count(prefix_extents_);
  const int64_t in_rows  = (rows_ + cell_rows_ - 1) / cell_rows_;
  // A row of nothing still has a sum.
  const int64_t in_columns = columns_ == 0 ? reduces_ : (columns_ + cell_columns_ - 1) / cell_columns_;
  const int64_t cells      = prefixes * in_rows * in_columns;
  const int64_t threads    = std::min<int64_t>(pool.threads(), cells);
  if (cells == 0) return;
  const auto share = [&](int64_t worker) {
    if (worker >= threads) return;
    Cell cell{.scratch = scratch + worker * scratch_};
    const int64_t begin = cells * worker / threads, end = cells * (worker + 1) / threads;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i / in_columns % in_rows * cell_rows_;
      cell.first_column = i % in_columns * cell_columns_;
      cell.all_columns  = std::min(cell_columns_, columns_ - cell.first_column);
      cell.rows         = std::min(cell_rows_, rows_ - row);
      for (size_t l = 0; l < leaves.size(); ++l) {
        const BoundLeaf& leaf = leaves_[l];
        int64_t offset = leaf.offset + row * leaf.row, prefix = i / in_columns / in_rows;
        for (size_t axis = prefix_extents_.size(); axis-- > 0; prefix /= prefix_extents_[axis])
          offset += prefix % prefix_extents_[axis] * leaf.prefix[axis];
        cell.leaves[l] = static_cast<std::byte*>(leaves[l]) + offset * leaf.bytes();
      }
      run_cell(cell, i == begin);
    }
  };
  threads == 1 ? share(0) : pool.run_shares(share);
}

}  // namespace fathom::compile

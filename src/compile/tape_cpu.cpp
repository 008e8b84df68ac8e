#include "compile/tape_cpu.h"

#include <algorithm>

#include "core/thread_pool.h"

namespace fathom::compile {
namespace {

using Kind = Instruction::Kind;

struct Axis {
  int64_t extent;
  bool inner;
  std::vector<int64_t> strides;  // of each leaf
};

bool continues(const Axis& axis, const Axis& next) {
  if (axis.inner != next.inner) return false;
  for (size_t leaf = 0; leaf < axis.strides.size(); ++leaf)
    if (axis.strides[leaf] != next.strides[leaf] * next.extent) return false;
  return true;
}

// Neighbours that every leaf walks through as through one axis become one.
std::vector<Axis> merged(const std::vector<Axis>& axes) {
  std::vector<Axis> result;
  for (const Axis& axis : axes) {
    if (axis.extent == 1) continue;
    if (!result.empty() && continues(result.back(), axis)) {
      const int64_t extent = result.back().extent * axis.extent;
      result.back()        = axis;
      result.back().extent = extent;
    } else {
      result.push_back(axis);
    }
  }
  return result;
}

template <class T, class Column>
void load_row(const std::byte* from, int64_t n, const Column& column, float* to) {
  const T* numbers = reinterpret_cast<const T*>(from);
  for (int64_t c = 0; c < n; ++c) to[c] = static_cast<float>(numbers[column(c)]);
}

template <class T, class Column>
void store_row(const float* from, bool scalar, int64_t n, const Column& column, std::byte* to) {
  T* numbers = reinterpret_cast<T*>(to);
  for (int64_t c = 0; c < n; ++c) numbers[column(c)] = T(from[scalar ? 0 : c]);
}

// Calls f with the column's offset as a function: of the few kinds that matter, each in a loop of its own.
template <class F>
void with_stride(int64_t stride, F&& f) {
  if (stride == 1) return f([](int64_t c) { return c; });
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

TapeCpu::TapeCpu(const Graph& graph, const Tape& tape, std::span<const int64_t> symbols, int64_t first_extent)
    : code_(tape.code), reduces_(tape.reduces) {
  collapse(graph, tape, symbols, first_extent);
  block_columns_ = reduces_ ? columns_ : std::min(columns_, kBlock);
  block_rows_    = columns_ <= kBlock ? std::clamp<int64_t>(kBlock / std::max<int64_t>(columns_, 1), 1,
                                                         std::max<int64_t>(rows_, 1))
                                      : 1;
  locate_values();
  scratch_ = slots_ * block_rows_ * block_columns_ + row_slots_ * block_rows_;
  scratch_ = (scratch_ + 15) / 16 * 16;
}

void TapeCpu::collapse(const Graph& graph, const Tape& tape, std::span<const int64_t> symbols,
                       int64_t first_extent) {
  // Without a value for each row, rows are no more than a way to walk.
  const bool has_rows =
      reduces_ || std::any_of(code_.begin(), code_.end(), [](const Instruction& instruction) {
        return instruction.per_row && instruction.kind != Kind::constant;
      });
  std::vector<int64_t> extents = values(tape.space(), symbols);
  if (first_extent >= 0) extents[0] = first_extent;
  std::vector<Axis> axes;
  for (size_t axis = 0; axis < extents.size(); ++axis)
    axes.push_back(
        {extents[axis], !has_rows || axis >= tape.outer.size(), std::vector<int64_t>(tape.leaves.size())});

  for (size_t l = 0; l < tape.leaves.size(); ++l) {
    const Leaf& leaf = tape.leaves[l];
    const Type& type = graph[leaf.node].type;
    BoundLeaf bound{.dtype = type.dtype};
    int64_t stride = 1;
    for (size_t i = leaf.map.size(); i-- > 0;) {
      bound.offset += leaf.map[i].start * stride;
      if (leaf.map[i].step != 0)
        axes[static_cast<size_t>(leaf.map[i].axis)].strides[l] += leaf.map[i].step * stride;
      stride *= type.shape[i].value(symbols);
    }
    if (!axes.empty()) bound.first_axis_bytes = axes[0].strides[l] * traits(type.dtype).bits / 8;
    leaves_.push_back(std::move(bound));
  }

  axes = merged(axes);
  if (!has_rows)
    for (size_t axis = 0; axis + 1 < axes.size(); ++axis) axes[axis].inner = false;
  const auto first_inner =
      std::find_if(axes.begin(), axes.end(), [](const Axis& axis) { return axis.inner; });
  for (auto axis = axes.begin(); axis != axes.end(); ++axis) {
    const bool last_outer = axis + 1 == first_inner;
    if (axis->inner) {
      inner_extents_.push_back(axis->extent);
      columns_ *= axis->extent;
    } else if (last_outer) {
      rows_ = axis->extent;
    } else {
      prefix_extents_.push_back(axis->extent);
    }
    for (size_t l = 0; l < leaves_.size(); ++l)
      if (axis->inner)
        leaves_[l].inner.push_back(axis->strides[l]);
      else if (last_outer)
        leaves_[l].row = axis->strides[l];
      else
        leaves_[l].prefix.push_back(axis->strides[l]);
  }
}

// Whether a block of the leaf can be an operand or a result as it lies in memory.
bool TapeCpu::holds(const BoundLeaf& leaf, bool per_row) const {
  if (leaf.dtype != DType::fp32) return false;
  if (per_row) return leaf.row == 1 || block_rows_ == 1;
  return leaf.inner.empty() || (leaf.inner.size() == 1 && leaf.inner[0] == 1);
}

// Values live in the leaf that they come from or go to where that is possible, else in a slot, which is free
// again after their last use.
void TapeCpu::locate_values() {
  const size_t n = code_.size();
  at_.resize(n);
  done_in_place_.resize(n);
  constants_.resize(n);
  std::vector<size_t> last_use(n);
  for (size_t i = 0; i < n; ++i) {
    for (const int value : {code_[i].a, code_[i].b})
      if (value >= 0) last_use[static_cast<size_t>(value)] = i;
    const Instruction& instruction = code_[i];
    if (instruction.kind == Kind::constant) {
      constants_[i] = static_cast<float>(instruction.constant);
      at_[i]        = {Location::Where::constant, static_cast<int>(i)};
    } else if (instruction.kind == Kind::load &&
               holds(leaves_[static_cast<size_t>(instruction.leaf)], instruction.per_row)) {
      at_[i]            = {Location::Where::leaf, instruction.leaf};
      done_in_place_[i] = true;
    } else if (instruction.kind == Kind::store) {
      const auto value = static_cast<size_t>(instruction.a);
      const bool made  = code_[value].kind == Kind::compute || code_[value].kind == Kind::reduce;
      if (made && at_[value].where == Location::Where::nowhere &&
          code_[value].per_row == instruction.per_row &&
          holds(leaves_[static_cast<size_t>(instruction.leaf)], instruction.per_row)) {
        at_[value]        = {Location::Where::leaf, instruction.leaf};
        done_in_place_[i] = true;
      }
    }
  }

  std::vector<int> free_slots, free_row_slots;
  for (size_t i = 0; i < n; ++i) {
    for (const int value : {code_[i].a, code_[i].b}) {
      if (value < 0 || last_use[static_cast<size_t>(value)] != i) continue;
      Location& at = at_[static_cast<size_t>(value)];
      auto& free   = at.where == Location::Where::slot ? free_slots : free_row_slots;
      if ((at.where == Location::Where::slot || at.where == Location::Where::row_slot) &&
          std::find(free.begin(), free.end(), at.index) == free.end())
        free.push_back(at.index);
    }
    if (code_[i].kind == Kind::store || at_[i].where != Location::Where::nowhere) continue;
    auto& free     = code_[i].per_row ? free_row_slots : free_slots;
    int64_t& count = code_[i].per_row ? row_slots_ : slots_;
    int slot       = static_cast<int>(count);
    if (free.empty()) {
      ++count;
    } else {
      slot = free.back();
      free.pop_back();
    }
    at_[i] = {code_[i].per_row ? Location::Where::row_slot : Location::Where::slot, slot};
  }
}

float* TapeCpu::place(const Location& at, const Block& block) const {
  switch (at.where) {
    case Location::Where::slot:
      return block.scratch + at.index * block_rows_ * block_columns_;
    case Location::Where::row_slot:
      return block.scratch + slots_ * block_rows_ * block_columns_ + at.index * block_rows_;
    case Location::Where::leaf:
      return reinterpret_cast<float*>(block.leaves[static_cast<size_t>(at.index)]);
    default:
      return nullptr;
  }
}

// A value as an operand of an instruction that makes one number for each row (per_row) or for each element.
BlockOperand TapeCpu::operand(int value, bool per_row, const Block& block) const {
  const auto i       = static_cast<size_t>(value);
  const Location& at = at_[i];
  if (at.where == Location::Where::constant) return {&constants_[i], 0, true};
  const int64_t row = at.where == Location::Where::leaf ? leaves_[static_cast<size_t>(at.index)].row
                      : code_[i].per_row                ? 1
                                                        : block.columns;
  if (code_[i].per_row) return {place(at, block), per_row ? 0 : row, !per_row};
  return {place(at, block), row, false};
}

void TapeCpu::load(const Instruction& instruction, const Location& at, const Block& block) const {
  const auto l           = static_cast<size_t>(instruction.leaf);
  const BoundLeaf& leaf  = leaves_[l];
  const int64_t bytes    = traits(leaf.dtype).bits / 8;
  const std::byte* first = block.leaves[l];
  float* to              = place(at, block);
  const auto rows        = [&](auto type) {
    using T = decltype(type);
    if (instruction.per_row)
      return with_stride(leaf.row, [&](const auto& column) { load_row<T>(first, block.rows, column, to); });
    for (int64_t r = 0; r < block.rows; ++r) {
      const std::byte* row = first + r * leaf.row * bytes;
      float* out           = to + r * block.columns;
      if (leaf.inner.size() > 1)
        load_row<T>(
            row, block.columns, [&](int64_t c) { return leaf.column(c, inner_extents_); }, out);
      else
        with_stride(leaf.inner.empty() ? 0 : leaf.inner[0],
                    [&](const auto& column) { load_row<T>(row, block.columns, column, out); });
    }
  };
  leaf.dtype == DType::bf16 ? rows(bf16{}) : rows(float{});
}

void TapeCpu::store(const Instruction& instruction, const Block& block) const {
  const auto l             = static_cast<size_t>(instruction.leaf);
  const BoundLeaf& leaf    = leaves_[l];
  const int64_t bytes      = traits(leaf.dtype).bits / 8;
  const BlockOperand value = operand(instruction.a, instruction.per_row, block);
  const auto rows          = [&](auto type) {
    using T = decltype(type);
    if (instruction.per_row)
      return with_stride(leaf.row, [&](const auto& column) {
        store_row<T>(value.data, value.scalar, block.rows, column, block.leaves[l]);
      });
    for (int64_t r = 0; r < block.rows; ++r) {
      const float* from = value.data + r * value.row_stride;
      std::byte* row    = block.leaves[l] + r * leaf.row * bytes;
      if (leaf.inner.size() > 1)
        store_row<T>(
            from, value.scalar, block.columns, [&](int64_t c) { return leaf.column(c, inner_extents_); },
            row);
      else
        with_stride(leaf.inner.empty() ? 0 : leaf.inner[0], [&](const auto& column) {
          store_row<T>(from, value.scalar, block.columns, column, row);
        });
    }
  };
  leaf.dtype == DType::bf16 ? rows(bf16{}) : rows(float{});
}

void TapeCpu::execute(const Instruction& instruction, const Location& at, const Block& block) const {
  const bool per_row = instruction.per_row;
  BlockStep step{.op = instruction.op, .out = place(at, block), .to_bf16 = instruction.to_bf16};
  const int64_t row =
      at.where == Location::Where::leaf ? leaves_[static_cast<size_t>(at.index)].row : block.columns;
  if (instruction.kind == Kind::reduce) {
    step.out_row_stride = at.where == Location::Where::leaf ? row : 1;
    step.a              = operand(instruction.a, false, block);
    run_block_step(step, block.rows, block.columns);
    return;
  }
  step.out_row_stride = row;
  step.a              = operand(instruction.a, per_row, block);
  if (instruction.b >= 0) step.b = operand(instruction.b, per_row, block);
  if (per_row)
    run_block_step(step, 1, block.rows);
  else
    run_block_step(step, block.rows, block.columns);
}

void TapeCpu::run(std::span<void* const> leaves, float* scratch, ThreadPool& pool) const {
  const int64_t prefixes = count(prefix_extents_);
  const int64_t in_rows  = (rows_ + block_rows_ - 1) / block_rows_;
  // A row of nothing still has a sum.
  const int64_t in_columns = columns_ == 0 ? reduces_ : (columns_ + block_columns_ - 1) / block_columns_;
  const int64_t blocks     = prefixes * in_rows * in_columns;
  const int64_t threads    = std::min<int64_t>(pool.threads(), blocks);
  if (blocks == 0) return;
  const auto share = [&](int64_t worker) {
    if (worker >= threads) return;
    Block block{.scratch = scratch + worker * scratch_};
    for (int64_t b = blocks * worker / threads; b < blocks * (worker + 1) / threads; ++b) {
      const int64_t column = b % in_columns * block_columns_, row = b / in_columns % in_rows * block_rows_;
      block.rows    = std::min(block_rows_, rows_ - row);
      block.columns = std::min(block_columns_, columns_ - column);
      for (size_t l = 0; l < leaves.size(); ++l) {
        const BoundLeaf& leaf = leaves_[l];
        int64_t offset = leaf.offset + row * leaf.row + (leaf.inner.empty() ? 0 : column * leaf.inner.back());
        int64_t prefix = b / in_columns / in_rows;
        for (size_t axis = prefix_extents_.size(); axis-- > 0; prefix /= prefix_extents_[axis])
          offset += prefix % prefix_extents_[axis] * leaf.prefix[axis];
        block.leaves[l] = static_cast<std::byte*>(leaves[l]) + offset * traits(leaf.dtype).bits / 8;
      }
      for (size_t i = 0; i < code_.size(); ++i) {
        if (code_[i].kind == Kind::constant || done_in_place_[i]) continue;
        if (code_[i].kind == Kind::load)
          load(code_[i], at_[i], block);
        else if (code_[i].kind == Kind::store)
          store(code_[i], block);
        else
          execute(code_[i], at_[i], block);
      }
    }
  };
  threads == 1 ? share(0) : pool.run_shares(share);
}

}  // namespace fathom::compile

// TapeCpu's constructor: a tape at extents.
#include <algorithm>
#include <numeric>

#include "compile/tape_cpu.h"

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

bool is_source(const Instruction& instruction) {
  return instruction.kind == Kind::load || instruction.kind == Kind::constant;
}

// How many reductions, one after another, each instruction waits for.
std::vector<int> walks_of(const std::vector<Instruction>& code) {
  const auto after = [&](int value, const std::vector<int>& walks) {
    if (value < 0) return 0;
    const auto i = static_cast<size_t>(value);
    return walks[i] + (code[i].kind == Kind::reduce);
  };
  std::vector<int> walks(code.size());
  for (size_t i = 0; i < code.size(); ++i)
    walks[i] = std::max(after(code[i].a, walks), after(code[i].b, walks));
  // What only later walks need is made there, so that it is not kept for them.
  std::vector<int> needed(code.size(), -1);
  for (size_t i = code.size(); i-- > 0;) {
    if (needed[i] >= 0 && code[i].kind != Kind::reduce) walks[i] = std::max(walks[i], needed[i]);
    for (const int value : {code[i].a, code[i].b})
      if (value >= 0) {
        int& by = needed[static_cast<size_t>(value)];
        by      = by < 0 ? walks[i] : std::min(by, walks[i]);
      }
  }
  return walks;
}

}  // namespace

TapeCpu::TapeCpu(const Graph& graph, const Tape& tape, std::span<const int64_t> symbols, int64_t block,
                 int64_t first_extent)
    : block_(tape.reduces ? kSummed : block), reduces_(tape.reduces) {
  order_by_walk(tape.code);
  bind_leaves(graph, tape, symbols, first_extent);
  cell_columns_ = reduces_ ? columns_ : std::min(columns_, block_);
  cell_rows_    = columns_ > block_ ? 1
                                    : std::clamp<int64_t>(block / std::max<int64_t>(columns_, 1), 1,
                                                       std::max<int64_t>(rows_, 1));
  locate_in_leaves();
  find_chains();
  locate_values();
}

void TapeCpu::order_by_walk(const std::vector<Instruction>& code) {
  const std::vector<int> walks = walks_of(code);
  std::vector<size_t> order(code.size());
  std::iota(order.begin(), order.end(), size_t{0});
  // In a walk: what is done once for each row, loads, and the rest.
  const auto key = [&](size_t i) {
    const bool once = code[i].per_row && code[i].kind != Kind::reduce && code[i].kind != Kind::store;
    return std::pair(walks[i], once ? 0 : is_source(code[i]) ? 1 : 2);
  };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  std::vector<int> now(code.size(), -1);
  for (const size_t i : order) {
    Bound bound{code[i], walks[i]};
    for (int* value : {&bound.a, &bound.b})
      if (*value >= 0) *value = now[static_cast<size_t>(*value)];
    now[i] = static_cast<int>(code_.size());
    walks_ = std::max(walks_, walks[i] + 1);
    code_.push_back(bound);
  }
}

void TapeCpu::bind_leaves(const Graph& graph, const Tape& tape, std::span<const int64_t> symbols,
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
    if (!axes.empty()) bound.first_axis_bytes = axes[0].strides[l] * bound.bytes();
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

// Whether the leaf's numbers can be operands or results where they lie in memory.
bool TapeCpu::holds(const BoundLeaf& leaf, bool per_row) const {
  if (leaf.dtype != DType::fp32) return false;
  if (per_row) return leaf.row == 1 || cell_rows_ == 1;
  return leaf.inner.empty() || (leaf.inner.size() == 1 && leaf.inner[0] == 1);
}

void TapeCpu::locate_in_leaves() {
  constants_.resize(code_.size());
  for (size_t i = 0; i < code_.size(); ++i) {
    Bound& bound = code_[i];
    if (bound.kind == Kind::constant) {
      constants_[i] = static_cast<float>(bound.constant);
      bound.at      = {Location::Where::constant, static_cast<int>(i)};
      bound.no_step = true;
      continue;
    }
    if (bound.leaf < 0) continue;
    const BoundLeaf& leaf = leaves_[static_cast<size_t>(bound.leaf)];
    if (bound.kind == Kind::load) {
      bound.no_step = holds(leaf, bound.per_row);
      if (bound.no_step) bound.at = {Location::Where::leaf, bound.leaf};
      continue;
    }
    Bound& value = code_[static_cast<size_t>(bound.a)];
    if (is_source(value) || value.at.where != Location::Where::nowhere || value.per_row != bound.per_row ||
        !holds(leaf, bound.per_row))
      continue;
    value.at      = {Location::Where::leaf, bound.leaf};
    bound.no_step = true;
  }
}

// An instruction whose value the next one takes passes it on in registers.
void TapeCpu::find_chains() {
  int length = 1;
  for (size_t i = 0; i < code_.size(); ++i) {
    if (code_[i].no_step) continue;
    size_t next = i + 1;
    while (next < code_.size() && code_[next].no_step) ++next;
    const int value = static_cast<int>(i);
    const bool takes =
        next < code_.size() && code_[next].walk == code_[i].walk &&
        (code_[next].a == value || code_[next].b == value) &&
        (code_[next].kind == Kind::reduce || (code_[next].kind == Kind::compute && !code_[next].per_row));
    code_[i].continued =
        code_[i].kind == Kind::compute && !code_[i].per_row && takes && length < BlockChain::kLength;
    length = code_[i].continued ? length + 1 : 1;
  }
}

void TapeCpu::locate_values() {
  std::vector<size_t> last_use(code_.size());
  std::vector<int> readers(code_.size());
  for (size_t i = 0; i < code_.size(); ++i)
    for (const int value : {code_[i].a, code_[i].b == code_[i].a ? -1 : code_[i].b})
      if (value >= 0) {
        last_use[static_cast<size_t>(value)] = i;
        ++readers[static_cast<size_t>(value)];
      }
  const auto take = [&](int64_t floats) {
    const int64_t offset = scratch_;
    scratch_ += (floats + 15) / 16 * 16;
    return offset;
  };
  const int64_t of_block = cell_rows_ * std::min(columns_, block_);
  std::vector<int64_t> free_blocks;
  for (size_t i = 0; i < code_.size(); ++i) {
    Bound& bound = code_[i];
    // The result may take an operand's place.
    for (const int value : {bound.a, bound.b == bound.a ? -1 : bound.b}) {
      if (value < 0 || last_use[static_cast<size_t>(value)] != i) continue;
      const Location& at = code_[static_cast<size_t>(value)].at;
      if (at.where == Location::Where::block) free_blocks.push_back(at.offset);
    }
    if (bound.kind == Kind::store || bound.at.where != Location::Where::nowhere) continue;
    if (bound.continued && readers[i] == 1) continue;  // it lives in registers
    if (bound.per_row) {
      bound.at = {Location::Where::per_row, -1, take(cell_rows_)};
      continue;
    }
    if (bound.kind == Kind::load && cell_columns_ == columns_) {
      const BoundLeaf& leaf = leaves_[static_cast<size_t>(bound.leaf)];
      if (leaf.row == 0 &&
          std::all_of(leaf.prefix.begin(), leaf.prefix.end(), [](int64_t s) { return s == 0; })) {
        bound.at = {Location::Where::shared_row, -1, take(columns_)};
        continue;
      }
    }
    if (code_[last_use[i]].walk > bound.walk) {
      bound.at = {Location::Where::whole_row, -1, take(cell_rows_ * columns_)};
    } else if (free_blocks.empty()) {
      bound.at = {Location::Where::block, -1, take(of_block)};
    } else {
      bound.at = {Location::Where::block, -1, free_blocks.back()};
      free_blocks.pop_back();
    }
  }
}

}  // namespace fathom::compile

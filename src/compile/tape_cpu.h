// A tape on the CPU: block after block of 1 to 16 KiB, each chain of instructions over a whole block, so that
// what passes between instructions stays in registers or in L1. Threads share the rows.
//
// A row that is reduced is walked once before the reduction and once after it, each time in blocks: walk w
// has the instructions that need the results of w reductions, one after another. A value that is needed in a
// later walk is kept for the whole row; others exist for a block.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compile/block_kernels_cpu.h"
#include "compile/tape.h"

namespace fathom {
class ThreadPool;
}

namespace fathom::compile {

// A tape at extents: strides, blocks and where each value lies are settled; memory comes with a run.
class TapeCpu {
 public:
  // Numbers of a row that are summed at once, whatever the block: the order of a sum is always the same.
  static constexpr int64_t kSummed = 1024;

  // block: numbers, in one row or several. first_extent: of the space's first axis in place of the tape's
  // own, for some of its rows; -1: all of them.
  TapeCpu(const Graph& graph, const Tape& tape, std::span<const int64_t> symbols, int64_t block,
          int64_t first_extent = -1);

  int64_t scratch_floats(int threads) const { return threads * scratch_; }
  // Bytes between the leaf's elements at neighbours along the space's first axis.
  int64_t first_axis_bytes(size_t leaf) const { return leaves_[leaf].first_axis_bytes; }

  // leaves: the first byte of each leaf's tensor.
  void run(std::span<void* const> leaves, float* scratch, ThreadPool& pool) const;

 private:
  struct BoundLeaf {
    DType dtype;
    int64_t offset = 0;           // of the space's first element, in elements like the strides
    std::vector<int64_t> prefix;  // of all outer axes but the last
    int64_t row = 0;              // of the last outer axis
    std::vector<int64_t> inner;
    int64_t first_axis_bytes = 0;

    int64_t bytes() const { return traits(dtype).bits / 8; }
    int64_t inner_stride() const { return inner.empty() ? 0 : inner.back(); }
    int64_t column(int64_t c, const std::vector<int64_t>& inner_extents) const;
  };

  struct Location {
    enum class Where {
      nowhere,
      leaf,  // in the memory that it comes from or goes to
      constant,
      block,       // a block of numbers, free again after its last use
      whole_row,   // all columns, for a later walk
      shared_row,  // one row that all rows read, loaded once
      per_row,     // a number for each row
    } where        = Where::nowhere;
    int index      = -1;  // of the leaf
    int64_t offset = 0;   // in scratch
  };

  struct Bound : Instruction {
    int walk       = 0;
    Location at    = {};     // of its value
    bool no_step   = false;  // its value is where it has to be already
    bool continued = false;  // the next step takes its value out of registers
  };

  // Some rows, of which columns [column, column + columns) are at work.
  struct Cell {
    int64_t rows, first_column, all_columns, column, columns;
    std::array<std::byte*, kTapeLeaves> leaves;  // at the first row and column 0 of the tape
    float* scratch;
  };

  void bind_leaves(const Graph& graph, const Tape& tape, std::span<const int64_t> symbols,
                   int64_t first_extent);
  void order_by_walk(const std::vector<Instruction>& code);
  void locate_values();
  void locate_in_leaves();
  void find_chains();
  bool holds(const BoundLeaf& leaf, bool per_row) const;

  void run_cell(Cell& cell, bool first) const;
  size_t execute(size_t begin, const Cell& cell) const;
  void write_op(const Bound& bound, int before, const Cell& cell, BlockOp& op) const;
  void load(const Bound& instruction, const Cell& cell) const;
  void store(const Bound& instruction, const Cell& cell) const;
  float* place(const Location& at, const Cell& cell) const;
  int64_t row_stride(const Bound& value, const Cell& cell) const;
  void write_operand(int value, bool per_row, const Cell& cell, BlockOperand& operand) const;

  const int64_t block_;      // numbers of a row that are worked on at once
  std::vector<Bound> code_;  // by walk; in a walk what is once for each row comes first
  int walks_ = 1;
  std::vector<float> constants_;  // by instruction
  std::vector<BoundLeaf> leaves_;
  bool reduces_;
  std::vector<int64_t> prefix_extents_, inner_extents_;
  int64_t rows_ = 1, columns_ = 1;            // of the last outer axis; of a row
  int64_t cell_rows_ = 1, cell_columns_ = 1;  // at most
  int64_t scratch_ = 0;
};

}  // namespace fathom::compile

// A tape on the CPU: block after block of 4 KiB, each instruction over a whole block, so that what passes
// between instructions stays in L1. Threads share the blocks.
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
  static constexpr int64_t kBlock = 1024;  // numbers

  // first_extent: of the space's first axis in place of the tape's own, for some of its rows; -1: all of
  // them.
  TapeCpu(const Graph& graph, const Tape& tape, std::span<const int64_t> symbols, int64_t first_extent = -1);

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

    int64_t column(int64_t c, const std::vector<int64_t>& inner_extents) const;
  };
  struct Location {
    enum class Where { nowhere, slot, row_slot, leaf, constant } where = Where::nowhere;
    int index                                                          = -1;
  };
  struct Block {
    int64_t rows, columns;
    std::array<std::byte*, kTapeLeaves> leaves;  // their first elements in the block
    float* scratch;
  };

  void collapse(const Graph& graph, const Tape& tape, std::span<const int64_t> symbols, int64_t first_extent);
  void locate_values();
  bool holds(const BoundLeaf& leaf, bool per_row) const;
  BlockOperand operand(int value, bool per_row, const Block& block) const;
  void execute(const Instruction& instruction, const Location& at, const Block& block) const;
  void load(const Instruction& instruction, const Location& at, const Block& block) const;
  void store(const Instruction& instruction, const Block& block) const;
  float* place(const Location& at, const Block& block) const;

  std::vector<Instruction> code_;
  std::vector<Location> at_;         // of each instruction's value
  std::vector<bool> done_in_place_;  // loads and stores that take no step
  std::vector<float> constants_;     // by instruction
  std::vector<BoundLeaf> leaves_;
  bool reduces_;
  std::vector<int64_t> prefix_extents_, inner_extents_;
  int64_t rows_ = 1, columns_ = 1;              // of the last outer axis; of a row
  int64_t block_rows_ = 1, block_columns_ = 1;  // at most
  int64_t slots_ = 0, row_slots_ = 0, scratch_ = 0;
};

}  // namespace fathom::compile

// A fused kernel without its back end: straight-line code over an iteration space, whose movement ops have
// become index maps of the memory it reads. Back ends bind it to extents and pointers.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compile/graph.h"
#include "compile/index_map.h"
#include "core/result.h"

namespace fathom::compile {

inline constexpr size_t kTapeLength   = 64;     // instructions
inline constexpr size_t kTapeLeaves   = 24;     // tensors read and written
inline constexpr int64_t kLongestRow  = 16384;  // elements that a reduction may be fused with others over
inline constexpr double kRecomputable = 8;      // flops that may be done twice to save a trip to memory

struct Leaf {
  int node = 0;
  IndexMap map;
  bool written = false;
};

struct Instruction {
  enum class Kind { load, constant, compute, reduce, store };

  Kind kind    = Kind::load;
  Op op        = Op::input;  // of compute and reduce
  bool per_row = false;      // one value for each row of the space, not for each element
  int a = -1, b = -1;        // instructions whose values it takes
  int leaf        = -1;      // of load and store
  double constant = 0;
  bool to_bf16    = false;  // its value is rounded to bf16; all values are held in fp32
};

// The space: rows of `inner` elements each, a row for each index of `outer`. A reduction is over a row.
struct Tape {
  Shape outer, inner;
  bool reduces = false;
  std::vector<Leaf> leaves;
  std::vector<Instruction> code;

  Shape space() const;
};

// What becomes of a node.
enum class Role {
  stored_elsewhere,  // an input or a constant
  kernel,            // computed by a launch
  view,              // an index map within its readers
  alias,             // its operand's memory under another shape
};
std::vector<Role> roles_of(const Graph& graph);

// The tape that computes `nodes` (kernels, ascending) and stores those for which `stored` says so. An error
// says why they cannot be one kernel.
Result<Tape> make_tape(const Graph& graph, const std::vector<Role>& roles, std::span<const int> nodes,
                       const std::vector<bool>& stored);

// Bytes that a launch of the tape reads and writes, each element of a tensor once.
double bytes_of(const Graph& graph, const Tape& tape, std::span<const int64_t> symbols);

}  // namespace fathom::compile

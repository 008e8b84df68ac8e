// Graphs of operations on arrays, and what it costs to run them as kernels: arrays read and written, values
// held, operations done again, and why two operations cannot share a kernel. The model of the book's fusion
// graph; freestanding, for it is compiled to WebAssembly too.
#pragma once

#include <stdint.h>

namespace fathom::book {

inline constexpr int32_t kMostNodes = 10;

enum class Kind : int32_t {
  input,    // an array in memory
  map,      // an array; each element from the same element of its inputs and from row values
  stencil,  // an array; each element from three neighbours of its input
  reduce,   // a value for each row, from all its elements
  scalar,   // a value for each row, from other row values
};

struct Node {
  Kind kind        = Kind::input;
  int32_t inputs   = 0;
  int32_t input[3] = {};     // nodes before this one
  bool output      = false;  // the caller wants it: it is written in any case
};

struct Graph {
  int32_t nodes = 0;
  Node node[kMostNodes];
};

enum class Shape : int32_t {
  chain,           // x, then `ops` unary maps
  centre,          // f, its mean, f minus the mean, g
  softmax,         // maximum, exponential, sum, division
  online_softmax,  // one fold for maximum and sum, then a map
  rmsnorm,         // residual addition (an output too), sum of squares, 1/root, scaling
  variance,        // sum and sum of squares, both of x, then mean and 1/root, then a map
  diamond,         // a; b and c of a; d of b and c
  blurs,           // two stencils
};
Graph make_graph(Shape shape, int32_t ops);

// Which kernel computes a node. A node `kAgain` is computed anew in every kernel that uses it, and never
// stored.
inline constexpr int32_t kAgain = -1;
struct Plan {
  int32_t kernel[kMostNodes] = {};  // 0 to kMostNodes - 1; of an input without meaning
};
Plan one_kernel_each(const Graph& graph);

struct Chip {
  bool holds_row = false;  // a kernel may keep rows on the chip and walk over them again
  int32_t tile   = 64;     // results of a stencil that are computed together
};

enum class Refusal : int32_t {
  none,
  needs_whole_row,    // `node` needs the complete `blocker`, which is computed in the same walk
  waits_for_itself,   // `node` needs `blocker` of another kernel, which needs a result of this kernel
  again_is_a_fold,    // a row value that is computed anew would need a walk of its own
  again_is_an_output  // an output is stored in any case
};

struct Cost {
  Refusal refusal        = Refusal::none;
  int32_t node           = -1;  // of the refusal
  int32_t blocker        = -1;
  int32_t kernels        = 0;
  int32_t arrays_read    = 0;
  int32_t arrays_written = 0;
  int32_t live       = 0;  // values of an element that the neediest kernel holds at once, with its row values
  int32_t rows_held  = 0;  // rows that the neediest kernel keeps from one walk to the next
  double evaluations = 0;  // of operations on whole arrays, each counted once a kernel, halos included
  int32_t operations = 0;  // those of the graph: evaluations when nothing is computed twice
};

// In each kernel nodes are computed in the graph's order; an array that it reads is read once.
Cost cost_of(const Graph& graph, const Plan& plan, const Chip& chip);

// The nodes that a kernel computes, its own and those it computes again, and the values that it reads; one
// bit each.
uint32_t computed_by(const Graph& graph, const Plan& plan, int32_t kernel);
uint32_t read_by(const Graph& graph, const Plan& plan, int32_t kernel);

// Nodes that may be offered for fusion: one uses the other, or both use an array and neither needs the other.
bool neighbours(const Graph& graph, int32_t a, int32_t b);

}  // namespace fathom::book

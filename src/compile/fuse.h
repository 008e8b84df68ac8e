// Which kernels become one. A group is a launch: a tape, a matmul with a tape for its result, a pad
// or an iota.
//
//   R1  pointwise ops into their reader, where the indices agree or the ops are cheap to repeat
//   R2  what comes before and after a reduction over rows, with it
//   R3  what comes after a matmul (bias, residual, paired columns, cast, a row norm), with it
//
// Pairs are tried in the order of the bytes they save. No fusion here moves more bytes or repeats more than
// kRecomputable flops, so each that is possible is taken. What is refused keeps its reason.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compile/graph.h"
#include "compile/tape.h"

namespace fathom::compile {

struct Group {
  std::vector<int> nodes;     // kernels, ascending
  int matmul        = -1;     // one of them, whose result the tape reads a few rows at a time
  bool keeps_matmul = false;  // others read that result too, so it is stored as well
  std::optional<Tape> tape;   // none: a matmul, a pad or an iota alone
  const char* rule = "";      // by which it grew

  // The node that takes its operands from memory, not through a tape: a matmul, a pad or an iota; or -1.
  int direct() const { return tape ? matmul : nodes[0]; }

  // Nodes whose memory it reads or writes at the launch, and how much.
  double bytes(const Graph& graph, std::span<const int64_t> symbols) const;
};

struct Refusal {
  int producer = 0, reader = 0;
  double bytes = 0;  // that it would have saved
  std::string reason;
};

struct Plan {
  std::vector<Role> roles;
  std::vector<bool> stored;   // kernels that have memory of their own
  std::vector<Group> groups;  // in an order that can run
  std::vector<Refusal> refusals;
};

Plan fuse(const Graph& graph);
// Fuses among the nodes before `end` alone; a launch for each kernel after it.
Plan fuse_before(const Graph& graph, int end);
// A launch for each kernel, from the same templates: what eager execution does.
Plan unfused(const Graph& graph);

// Follows views and aliases down to the kernel, input or constant whose numbers they show.
int base_of(const Graph& graph, const std::vector<Role>& roles, int node);

}  // namespace fathom::compile

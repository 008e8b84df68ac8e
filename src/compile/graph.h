// The IR: a program as a list of pure operations in SSA form. A node reads nodes before it; nothing is
// changed in place. Passes map graphs to graphs, and verify() holds before and after each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compile/extent.h"
#include "compile/ops.h"
#include "core/result.h"

namespace fathom::compile {

// The line of the program that made a node. No file: unknown.
struct Place {
  std::string file;
  int line = 0;

  std::string text() const { return file + ":" + std::to_string(line); }
};

struct Node {
  Op op = Op::input;
  Type type;
  std::vector<int> operands;  // positions of nodes before this one
  Attributes attributes;
  std::string name;  // of an input
  Place place;
};

struct Output {
  std::string name;
  int node = 0;
};

// Nodes [begin, end) that are compiled apart: a block of a model (compile/piece.h).
struct Region {
  int begin = 0, end = 0;

  bool operator==(const Region&) const = default;
};

struct Graph {
  std::string name;
  std::vector<Symbol> symbols;
  std::vector<Node> nodes;
  std::vector<Output> outputs;
  std::vector<Region> regions;  // ascending; passes that number nodes anew drop them

  const Node& operator[](int node) const { return nodes[static_cast<size_t>(node)]; }
  int size() const { return static_cast<int>(nodes.size()); }
  std::vector<Type> operand_types(const Node& node) const;
  std::vector<int> inputs() const;               // nodes, in order
  std::vector<int64_t> typical_symbols() const;  // values for estimates

  // Appends and returns its position; the caller verifies.
  int add(Node node);
};

// "%5 matmul (text_test.cpp:14)": how messages name a node.
std::string describe(const Graph& graph, int node);

// Types fit, operands come first, names are unique. An error names the node, its place and the cure.
Status verify(const Graph& graph);
// Throws ContractError with verify's error: for what a pass made.
void expect_verified(const Graph& graph, const char* pass);

// The graph for one value of a symbol, which stays in the table, unused.
Graph with_symbol(const Graph& graph, int symbol, int64_t value);

}  // namespace fathom::compile

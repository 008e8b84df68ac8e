#include "compile/piece.h"

#include <fmt/format.h>

#include <algorithm>

#include "compile/text.h"
#include "core/expect.h"

namespace fathom::compile {
namespace {

class Cutter {
 public:
  explicit Cutter(const Graph& graph)
      : graph_(graph), now_(graph.nodes.size(), -1), symbol_now_(graph.symbols.size(), -1) {}

  Piece piece(int begin, int end, const std::vector<int>& outputs) {
    std::vector<bool> needed(graph_.nodes.size());
    for (const int output : outputs) needed[static_cast<size_t>(output)] = true;
    for (int id = end; id-- > begin;)
      if (needed[static_cast<size_t>(id)])
        for (const int operand : graph_[id].operands) needed[static_cast<size_t>(operand)] = true;
    for (int id = begin; id < end; ++id)
      if (needed[static_cast<size_t>(id)] && graph_[id].op != Op::input) copy(id);
    for (const int output : outputs) {
      piece_.graph.outputs.push_back({fmt::format("out{}", piece_.outputs.size()), now(output)});
      piece_.outputs.push_back(output);
    }
    piece_.graph.name = "piece";
    expect_verified(piece_.graph, "cutting");
    return std::move(piece_);
  }

 private:
  int& now(int id) { return now_[static_cast<size_t>(id)]; }

  void copy(int id) {
    Node node = graph_[id];
    for (int& operand : node.operands) operand = local(operand);
    node.type = local(node.type);
    now(id)   = piece_.graph.add(std::move(node));
  }

  int local(int id) {
    if (now(id) >= 0) return now(id);
    if (graph_[id].op == Op::constant) {
      copy(id);
      return now(id);
    }
    const Node& node = graph_[id];
    now(id)          = piece_.graph.add({.op    = Op::input,
                                         .type  = local(node.type),
                                         .name  = fmt::format("in{}", piece_.inputs.size()),
                                         .place = node.place});
    piece_.inputs.push_back(id);
    return now(id);
  }

  Type local(Type type) {
    for (Extent& extent : type.shape) {
      Extent here = extent.coefficient();
      for (const int symbol : extent.symbols()) here = here * Extent::of_symbol(local_symbol(symbol));
      extent = here;
    }
    return type;
  }

  int local_symbol(int symbol) {
    int& now = symbol_now_[static_cast<size_t>(symbol)];
    if (now >= 0) return now;
    now         = static_cast<int>(piece_.symbols.size());
    Symbol here = graph_.symbols[static_cast<size_t>(symbol)];
    here.name   = fmt::format("s{}", now);
    piece_.graph.symbols.push_back(std::move(here));
    piece_.symbols.push_back(symbol);
    return now;
  }

  const Graph& graph_;
  Piece piece_;
  std::vector<int> now_, symbol_now_;  // where nodes and symbols are in the piece
};

// Regions, and what lies between them.
std::vector<Region> ranges_of(const Graph& graph) {
  std::vector<Region> ranges;
  int end = 0;
  for (const Region& region : graph.regions) {
    if (region.begin > end) ranges.push_back({end, region.begin});
    ranges.push_back(region);
    end = region.end;
  }
  if (end < graph.size()) ranges.push_back({end, graph.size()});
  return ranges;
}

}  // namespace

Piece piece_of(const Graph& graph, int begin, int end, const std::vector<int>& outputs) {
  return Cutter(graph).piece(begin, end, outputs);
}

std::vector<Piece> pieces_of(const Graph& graph) {
  const std::vector<Region> ranges = ranges_of(graph);
  // Backwards: a node is wanted where a piece after it, which is itself wanted, reads it.
  std::vector<bool> wanted(graph.nodes.size());
  for (const Output& output : graph.outputs) wanted[static_cast<size_t>(output.node)] = true;
  std::vector<Piece> pieces;
  for (size_t r = ranges.size(); r-- > 0;) {
    const auto [begin, end] = ranges[r];
    std::vector<int> outputs;
    for (int id = begin; id < end; ++id)
      if (wanted[static_cast<size_t>(id)] && graph[id].op != Op::input) outputs.push_back(id);
    if (outputs.empty()) continue;
    pieces.push_back(piece_of(graph, begin, end, outputs));
    for (const int id : pieces.back().inputs) wanted[static_cast<size_t>(id)] = true;
  }
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

std::string content_of(const Graph& graph) {
  Graph nameless = graph;
  nameless.name.clear();
  nameless.regions.clear();
  for (size_t s = 0; s < nameless.symbols.size(); ++s) nameless.symbols[s].name = fmt::format("s{}", s);
  int inputs = 0;
  for (Node& node : nameless.nodes) {
    node.place = {};
    if (node.op == Op::input) node.name = fmt::format("in{}", inputs++);
  }
  for (size_t o = 0; o < nameless.outputs.size(); ++o) nameless.outputs[o].name = fmt::format("out{}", o);
  return print(nameless);
}

}  // namespace fathom::compile

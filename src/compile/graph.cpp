#include "compile/graph.h"

#include <fmt/format.h>

#include <set>

#include "core/expect.h"

namespace fathom::compile {
namespace {

Status verify_symbols(const Graph& graph) {
  std::set<std::string> names;
  for (const Symbol& symbol : graph.symbols) {
    if (symbol.name.empty() || !names.insert(symbol.name).second)
      return Error{fmt::format("{}: two symbols are called '{}'; rename one", graph.name, symbol.name)};
    if (symbol.min < 0 || symbol.max > kMostElements || symbol.multiple < 1 ||
        !symbol.admits(symbol.typical()))
      return Error{fmt::format("{}: no value of {} lies in {}..{} and is a multiple of {}", graph.name,
                               symbol.name, symbol.min, symbol.max, symbol.multiple)};
  }
  return Ok{};
}

Status verify_extents(const Graph& graph, const Node& node) {
  for (const Extent& extent : node.type.shape) {
    if (extent.coefficient() < 0) return Error{"an extent is negative"};
    for (const int symbol : extent.symbols())
      if (symbol < 0 || symbol >= static_cast<int>(graph.symbols.size()))
        return Error{fmt::format("symbol {} is not in the program's table; declare it", symbol)};
  }
  double elements = 1;
  for (const Extent& extent : node.type.shape) {
    elements *= static_cast<double>(extent.coefficient());
    for (const int symbol : extent.symbols())
      elements *= static_cast<double>(graph.symbols[static_cast<size_t>(symbol)].typical());
  }
  if (elements > static_cast<double>(kMostElements))
    return Error{"it has more than 2^50 elements; are extents right?"};
  return Ok{};
}

Status verify_node(const Graph& graph, int id) {
  const Node& node = graph[id];
  for (const int operand : node.operands)
    if (operand < 0 || operand >= id)
      return Error{fmt::format("operand %{} does not come before it", operand)};
  if (Status status = verify_extents(graph, node); !status) return status;
  return check_type(node.op, graph.operand_types(node), node.attributes, node.type, graph.symbols);
}

}  // namespace

std::vector<Type> Graph::operand_types(const Node& node) const {
  std::vector<Type> types;
  for (const int operand : node.operands) types.push_back((*this)[operand].type);
  return types;
}

std::vector<int> Graph::inputs() const {
  std::vector<int> inputs;
  for (int id = 0; id < size(); ++id)
    if ((*this)[id].op == Op::input) inputs.push_back(id);
  return inputs;
}

std::vector<int64_t> Graph::typical_symbols() const {
  std::vector<int64_t> values;
  for (const Symbol& symbol : symbols) values.push_back(symbol.typical());
  return values;
}

int Graph::add(Node node) {
  nodes.push_back(std::move(node));
  return size() - 1;
}

std::string describe(const Graph& graph, int id) {
  const Node& node = graph[id];
  return fmt::format("%{} {}{}", id, row(node.op).name,
                     node.place.file.empty() ? "" : " (" + node.place.text() + ")");
}

Status verify(const Graph& graph) {
  if (Status status = verify_symbols(graph); !status) return status;
  std::set<std::string> names;
  for (int id = 0; id < graph.size(); ++id) {
    if (Status status = verify_node(graph, id); !status)
      return Error{fmt::format("{}: {}", describe(graph, id), status.error().message)};
    if (graph[id].op == Op::input && (graph[id].name.empty() || !names.insert(graph[id].name).second))
      return Error{
          fmt::format("{}: two inputs are called '{}'; rename one", describe(graph, id), graph[id].name)};
  }
  for (const Output& output : graph.outputs) {
    if (output.node < 0 || output.node >= graph.size())
      return Error{fmt::format("output '{}' is %{}, which the program lacks", output.name, output.node)};
    if (output.name.empty() || !names.insert(output.name).second)
      return Error{fmt::format("two inputs or outputs are called '{}'; rename one", output.name)};
  }
  int end = 0;
  for (const Region& region : graph.regions) {
    if (region.begin < end || region.end <= region.begin || region.end > graph.size())
      return Error{fmt::format("region %{}..%{} is empty, lies over the one before it, or beyond the program",
                               region.begin, region.end - 1)};
    end = region.end;
  }
  return Ok{};
}

void expect_verified(const Graph& graph, const char* pass) {
  const Status status = verify(graph);
  FATHOM_EXPECT(status, fmt::format("{} made a program that is wrong: {}", pass, status.error().message));
}

Graph with_symbol(const Graph& graph, int symbol, int64_t value) {
  Graph result = graph;
  for (Node& node : result.nodes)
    for (Extent& extent : node.type.shape) extent = extent.with(symbol, value);
  return result;
}

}  // namespace fathom::compile

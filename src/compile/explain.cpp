#include "compile/explain.h"

#include <fmt/format.h>

#include <algorithm>

namespace fathom::compile {
namespace {

std::string in_units(double value, const char* unit) {
  if (value >= 1e9) return fmt::format("{:.2f} G{}", value / 1e9, unit);
  if (value >= 1e6) return fmt::format("{:.2f} M{}", value / 1e6, unit);
  return value >= 1e3 ? fmt::format("{:.2f} k{}", value / 1e3, unit) : fmt::format("{:.0f} {}", value, unit);
}

// "%3..%9 mul add rsqrt": ops in order, each once in a row.
std::string nodes_text(const Graph& graph, const Group& group) {
  std::string ops;
  int times = 0;
  for (size_t i = 0; i < group.nodes.size(); ++i) {
    const Op op = graph[group.nodes[i]].op;
    ++times;
    if (i + 1 < group.nodes.size() && graph[group.nodes[i + 1]].op == op) continue;
    ops += fmt::format(" {}{}", row(op).name, times > 1 ? fmt::format(" x{}", times) : "");
    times = 0;
  }
  return fmt::format("%{}..%{}{}", group.nodes.front(), group.nodes.back(), ops);
}

double flops(const Graph& graph, const Group& group, std::span<const int64_t> symbols) {
  double flops = 0;
  for (const int id : group.nodes)
    flops += flops_of(graph[id].op, graph.operand_types(graph[id]), graph[id].type, symbols);
  return flops;
}

}  // namespace

std::string explain(const Graph& graph, const Plan& plan, std::span<const int64_t> symbols) {
  std::vector<double> alone(graph.nodes.size());
  double before = 0, after = 0;
  size_t kernels = 0;
  for (const Group& group : unfused(graph).groups) {
    before += alone[static_cast<size_t>(group.nodes[0])] = group.bytes(graph, symbols);
    ++kernels;
  }
  for (const Group& group : plan.groups) after += group.bytes(graph, symbols);

  std::string text = fmt::format("{}: {} nodes, {} kernels in {} launch{}\n", graph.name, graph.size(),
                                 kernels, plan.groups.size(), plan.groups.size() == 1 ? "" : "es");
  for (size_t s = 0; s < symbols.size(); ++s)
    text += fmt::format("{}{} = {}", s ? ", " : "at ", graph.symbols[s].name, symbols[s]) +
            (s + 1 == symbols.size() ? ": " : "");
  text += fmt::format("{} of memory instead of {}\n\n", in_units(after, "B"), in_units(before, "B"));
  text += "  launch  rule      before       after  share        flops  nodes\n";
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const Group& group = plan.groups[g];
    double of_nodes    = 0;
    for (const int id : group.nodes) of_nodes += alone[static_cast<size_t>(id)];
    const double bytes = group.bytes(graph, symbols);
    text += fmt::format("  {:>6}  {:<4}  {:>10}  {:>10}  {:>4.0f}%  {:>11}  {}\n", g + 1,
                        *group.rule ? group.rule : "-", in_units(of_nodes, "B"), in_units(bytes, "B"),
                        after > 0 ? 100 * bytes / after : 0, in_units(flops(graph, group, symbols), "FLOP"),
                        nodes_text(graph, group));
  }
  if (!plan.refusals.empty()) text += "\nNot fused\n";
  for (const Refusal& refusal : plan.refusals)
    text += fmt::format("  {} into {}: {}\n", describe(graph, refusal.producer),
                        describe(graph, refusal.reader), refusal.reason);
  return text;
}

std::string explain(const Function& function) {
  std::string text =
      fmt::format("{}: {} calls, {} entries\n", function.name(), function.calls(), function.entries().size());
  for (size_t e = 0; e < function.entries().size(); ++e) {
    const Function::Entry& entry = function.entries()[e];
    const Piecewise& program     = *entry.executable;
    text += fmt::format(
        "  entry {}: {} launches{}, {} later calls; compiled because of {}\n", e + 1, program.launches(),
        program.parts().size() == 1 ? ""
                                    : fmt::format(" of {} pieces, {} of them different",
                                                  program.parts().size(), program.executables()),
        entry.hits, entry.because);
    for (const std::string& guard : guards(entry)) text += "    " + guard + "\n";
  }
  for (size_t s = 0; s < function.segments().size(); ++s) {
    const Function::Segment& segment = function.segments()[s];
    text += fmt::format("  graph {} of the last call: {} launches; {}\n", s + 1,
                        segment.executable->plan().groups.size(),
                        segment.because.empty() ? "the end of the trace" : "a break at " + segment.because);
  }
  return text;
}

}  // namespace fathom::compile

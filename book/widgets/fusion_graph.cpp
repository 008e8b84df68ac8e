// What fusion_graph.js calls: one graph, one plan, and a plan that is tried.
#include "book/fusion_model.h"

#define WASM_EXPORT(name) extern "C" __attribute__((export_name(#name)))

using namespace fathom::book;

namespace {

Graph graph;
Plan plan;
Cost cost;

}  // namespace

// Makes the graph, with a kernel for each operation; its number of nodes.
WASM_EXPORT(choose)
int32_t choose(int32_t shape, int32_t ops) {
  graph = make_graph(static_cast<Shape>(shape), ops);
  plan  = one_kernel_each(graph);
  return graph.nodes;
}

WASM_EXPORT(kind_of) int32_t kind_of(int32_t node) { return static_cast<int32_t>(graph.node[node].kind); }
WASM_EXPORT(is_output) int32_t is_output(int32_t node) { return graph.node[node].output; }
WASM_EXPORT(input_count) int32_t input_count(int32_t node) { return graph.node[node].inputs; }
WASM_EXPORT(input_of) int32_t input_of(int32_t node, int32_t i) { return graph.node[node].input[i]; }
WASM_EXPORT(are_neighbours) int32_t are_neighbours(int32_t a, int32_t b) { return neighbours(graph, a, b); }

// -1: computed again where it is used.
WASM_EXPORT(set_kernel)
void set_kernel(int32_t node, int32_t kernel) {
  if (kernel < kMostNodes) plan.kernel[node] = kernel;
}

// Why the plan cannot run (0: it can); the getters below tell of it.
WASM_EXPORT(evaluate)
int32_t evaluate(int32_t holds_row, int32_t tile) {
  cost = cost_of(graph, plan, {.holds_row = holds_row != 0, .tile = tile});
  return static_cast<int32_t>(cost.refusal);
}

WASM_EXPORT(refused_node) int32_t refused_node() { return cost.node; }
WASM_EXPORT(refused_blocker) int32_t refused_blocker() { return cost.blocker; }
WASM_EXPORT(kernels) int32_t kernels() { return cost.kernels; }
WASM_EXPORT(arrays_read) int32_t arrays_read() { return cost.arrays_read; }
WASM_EXPORT(arrays_written) int32_t arrays_written() { return cost.arrays_written; }
WASM_EXPORT(live) int32_t live() { return cost.live; }
WASM_EXPORT(rows_held) int32_t rows_held() { return cost.rows_held; }
WASM_EXPORT(evaluations) double evaluations() { return cost.evaluations; }
WASM_EXPORT(operations) int32_t operations() { return cost.operations; }
WASM_EXPORT(computed) uint32_t computed(int32_t kernel) { return computed_by(graph, plan, kernel); }
WASM_EXPORT(reads) uint32_t reads(int32_t kernel) { return read_by(graph, plan, kernel); }

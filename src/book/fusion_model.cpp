#include "book/fusion_model.h"

namespace fathom::book {
namespace {

using NodeSet = uint32_t;  // one bit a node

bool has(NodeSet set, int32_t node) { return set >> node & 1; }
NodeSet only(int32_t node) { return NodeSet{1} << node; }
int32_t larger(int32_t a, int32_t b) { return a > b ? a : b; }
bool is_array(Kind kind) { return kind <= Kind::stencil; }

NodeSet inputs_of(const Graph& graph, int32_t node) {
  NodeSet set = 0;
  for (int32_t i = 0; i < graph.node[node].inputs; ++i) set |= only(graph.node[node].input[i]);
  return set;
}

// All that a node needs, directly or not.
NodeSet needs(const Graph& graph, int32_t node) {
  NodeSet set = inputs_of(graph, node);
  for (int32_t before = node - 1; before >= 0; --before)
    if (has(set, before)) set |= inputs_of(graph, before);
  return set;
}

void add(Graph& graph, Kind kind, int32_t first = -1, int32_t second = -1, bool output = false) {
  Node& node = graph.node[graph.nodes++];
  node.kind  = kind;
  if (first >= 0) node.input[node.inputs++] = first;
  if (second >= 0) node.input[node.inputs++] = second;
  node.output = output;
}

// Values that the computed nodes use and that come from elsewhere.
NodeSet used_by(const Graph& graph, NodeSet computed) {
  NodeSet used = 0;
  for (int32_t node = 0; node < graph.nodes; ++node)
    if (has(computed, node)) used |= inputs_of(graph, node);
  return used & ~computed;
}

struct Kernels {
  NodeSet computed[kMostNodes];
  NodeSet read[kMostNodes];
  NodeSet stored = 0;  // of all kernels
};

Kernels kernels_of(const Graph& graph, const Plan& plan) {
  Kernels kernels;
  for (int32_t k = 0; k < kMostNodes; ++k) {
    kernels.computed[k] = computed_by(graph, plan, k);
    kernels.read[k]     = used_by(graph, kernels.computed[k]);
    kernels.stored |= kernels.read[k];
  }
  for (int32_t node = 0; node < graph.nodes; ++node)
    if (graph.node[node].output) kernels.stored |= only(node);
  return kernels;
}

// The reductions that must be complete within the kernel before a node can begin: the walk, from 0, that it
// is in. An input counts with its first user.
int32_t walk_of(const Graph& graph, NodeSet computed, int32_t node) {
  int32_t walk = 0;
  for (int32_t i = 0; i < graph.node[node].inputs; ++i) {
    const int32_t input = graph.node[node].input[i];
    if (has(computed, input))
      walk = larger(walk, walk_of(graph, computed, input) + (graph.node[input].kind == Kind::reduce));
  }
  return walk;
}

// The reduction of this kernel that a node, or what it needs of this kernel, waits for.
int32_t awaited(const Graph& graph, NodeSet computed, int32_t node) {
  for (int32_t i = 0; i < graph.node[node].inputs; ++i) {
    const int32_t input = graph.node[node].input[i];
    if (!has(computed, input)) continue;
    if (graph.node[input].kind == Kind::reduce) return input;
    const int32_t found = awaited(graph, computed, input);
    if (found >= 0) return found;
  }
  return -1;
}

bool refuse(Cost& cost, Refusal refusal, int32_t node, int32_t blocker) {
  cost.refusal = refusal;
  cost.node    = node;
  cost.blocker = blocker;
  return true;
}

bool refused_again(const Graph& graph, const Plan& plan, Cost& cost) {
  for (int32_t node = 0; node < graph.nodes; ++node) {
    const Node& what = graph.node[node];
    if (what.kind == Kind::input || plan.kernel[node] != kAgain) continue;
    if (what.output) return refuse(cost, Refusal::again_is_an_output, node, -1);
    if (!is_array(what.kind)) return refuse(cost, Refusal::again_is_a_fold, node, -1);
  }
  return false;
}

bool refused_walk(const Graph& graph, const Kernels& kernels, Cost& cost) {
  for (NodeSet computed : kernels.computed)
    for (int32_t node = 0; node < graph.nodes; ++node)
      if (has(computed, node) && graph.node[node].kind != Kind::scalar && walk_of(graph, computed, node) > 0)
        return refuse(cost, Refusal::needs_whole_row, node, awaited(graph, computed, node));
  return false;
}

// Runs every kernel whose inputs are there until none is left.
bool refused_order(const Graph& graph, const Plan& plan, const Kernels& kernels, Cost& cost) {
  NodeSet there = 0;
  for (int32_t node = 0; node < graph.nodes; ++node)
    if (graph.node[node].kind == Kind::input) there |= only(node);
  NodeSet ran = 0;
  for (bool progress = true; progress;) {
    progress = false;
    for (int32_t k = 0; k < kMostNodes; ++k)
      if (!has(ran, k) && (kernels.read[k] & ~there) == 0) {
        ran |= only(k);
        there |= kernels.computed[k];
        progress = true;
      }
  }
  // Of the values that a kernel waits for, best one that needs a result of its own; a longer cycle has none.
  for (int32_t k = 0; k < kMostNodes; ++k)
    for (int32_t node = 0; node < graph.nodes && !has(ran, k); ++node)
      for (int32_t blocker = 0; blocker < graph.nodes && has(kernels.computed[k], node); ++blocker) {
        if (!has(inputs_of(graph, node) & kernels.read[k] & ~there, blocker)) continue;
        refuse(cost, Refusal::waits_for_itself, node, blocker);
        for (int32_t own = 0; own < graph.nodes; ++own)
          if (plan.kernel[own] == k && has(needs(graph, blocker), own)) return true;
      }
  return cost.refusal != Refusal::none;
}

int32_t count_arrays(const Graph& graph, NodeSet set) {
  int32_t count = 0;
  for (int32_t node = 0; node < graph.nodes; ++node)
    count += has(set, node) && is_array(graph.node[node].kind);
  return count;
}

// The last node of the kernel that uses a value, or -1.
int32_t last_use(const Graph& graph, NodeSet computed, int32_t value) {
  for (int32_t node = graph.nodes - 1; node > value; --node)
    if (has(computed, node) && has(inputs_of(graph, node), value)) return node;
  return -1;
}

// Sums, and row values that the kernel reads, occupy a place throughout; a row value that it computes takes
// the place of its sums. An array's value lives from its load, just before its first use, or its computation,
// to its last use; a result may take the place of an operand that ends. A stencil's input are three values.
int32_t live_values(const Graph& graph, NodeSet computed) {
  const NodeSet read = used_by(graph, computed);
  int32_t throughout = 0;
  for (int32_t value = 0; value < graph.nodes; ++value) {
    const Kind kind = graph.node[value].kind;
    throughout += (has(computed, value) && kind == Kind::reduce) || (has(read, value) && !is_array(kind));
  }
  int32_t most = 0;
  NodeSet live = 0;
  for (int32_t node = 0; node < graph.nodes; ++node) {
    if (!has(computed, node)) continue;
    const auto places = [&] {
      const int32_t window = graph.node[node].kind == Kind::stencil ? 2 : 0;
      return count_arrays(graph, live) + window + throughout;
    };
    live |= inputs_of(graph, node);
    most = larger(most, places());
    for (int32_t value = 0; value < graph.nodes; ++value)
      if (has(live, value) && last_use(graph, computed, value) <= node) live &= ~only(value);
    live |= only(node);
    most = larger(most, count_arrays(graph, live) + throughout);
    if (last_use(graph, computed, node) < 0) live &= ~only(node);
  }
  return most;
}

// Arrays that one walk of the kernel has seen or made and a later one uses.
int32_t rows_held(const Graph& graph, NodeSet computed) {
  int32_t most = 0;
  for (int32_t walk = 0; walk < kMostNodes; ++walk) {
    int32_t held = 0;
    for (int32_t value = 0; value < graph.nodes; ++value) {
      if (!is_array(graph.node[value].kind)) continue;
      bool before = has(computed, value) && walk_of(graph, computed, value) <= walk, after = false;
      for (int32_t user = value + 1; user < graph.nodes; ++user)
        if (has(computed, user) && has(inputs_of(graph, user), value))
          (walk_of(graph, computed, user) <= walk ? before : after) = true;
      held += before && after;
    }
    most = larger(most, held);
  }
  return most;
}

// How far beyond its own results a tile needs a node's, to each side.
int32_t reach(const Graph& graph, NodeSet computed, int32_t node) {
  int32_t most = 0;
  for (int32_t user = node + 1; user < graph.nodes; ++user)
    if (has(computed, user) && has(inputs_of(graph, user), node))
      most = larger(most, reach(graph, computed, user) + (graph.node[user].kind == Kind::stencil));
  return most;
}

bool is_operation(Kind kind) { return kind == Kind::map || kind == Kind::stencil || kind == Kind::reduce; }

}  // namespace

Graph make_graph(Shape shape, int32_t ops) {
  Graph graph;
  add(graph, Kind::input);
  switch (shape) {
    case Shape::chain:
      for (int32_t i = 0; i < ops && i < kMostNodes - 1; ++i)
        add(graph, Kind::map, i, -1, i + 1 == ops || i + 1 == kMostNodes - 1);
      break;
    case Shape::centre:
      add(graph, Kind::map, 0);
      add(graph, Kind::reduce, 1);
      add(graph, Kind::map, 1, 2);
      add(graph, Kind::map, 3, -1, true);
      break;
    case Shape::softmax:
      add(graph, Kind::reduce, 0);
      add(graph, Kind::map, 0, 1);
      add(graph, Kind::reduce, 2);
      add(graph, Kind::map, 2, 3, true);
      break;
    case Shape::online_softmax:
      add(graph, Kind::reduce, 0);
      add(graph, Kind::map, 0, 1, true);
      break;
    case Shape::rmsnorm:
      add(graph, Kind::input);
      add(graph, Kind::map, 0, 1, true);
      add(graph, Kind::reduce, 2);
      add(graph, Kind::scalar, 3);
      add(graph, Kind::map, 2, 4, true);
      break;
    case Shape::variance:
      add(graph, Kind::reduce, 0);
      add(graph, Kind::reduce, 0);
      add(graph, Kind::scalar, 1, 2);
      add(graph, Kind::map, 0, 3, true);
      break;
    case Shape::diamond:
      add(graph, Kind::map, 0);
      add(graph, Kind::map, 1);
      add(graph, Kind::map, 1);
      add(graph, Kind::map, 2, 3, true);
      break;
    case Shape::blurs:
      add(graph, Kind::stencil, 0);
      add(graph, Kind::stencil, 1, -1, true);
      break;
  }
  return graph;
}

uint32_t computed_by(const Graph& graph, const Plan& plan, int32_t kernel) {
  NodeSet set = 0;
  for (int32_t node = graph.nodes - 1; node >= 0; --node) {
    if (graph.node[node].kind == Kind::input) continue;
    bool wanted = plan.kernel[node] == kernel;
    if (plan.kernel[node] == kAgain)
      for (int32_t user = node + 1; user < graph.nodes; ++user)
        wanted = wanted || (has(set, user) && has(inputs_of(graph, user), node));
    if (wanted) set |= only(node);
  }
  return set;
}

uint32_t read_by(const Graph& graph, const Plan& plan, int32_t kernel) {
  return used_by(graph, computed_by(graph, plan, kernel));
}

Plan one_kernel_each(const Graph& graph) {
  Plan plan;
  for (int32_t node = 0; node < graph.nodes; ++node) plan.kernel[node] = node;
  return plan;
}

Cost cost_of(const Graph& graph, const Plan& plan, const Chip& chip) {
  Cost cost;
  const Kernels kernels = kernels_of(graph, plan);
  if (refused_again(graph, plan, cost) || (!chip.holds_row && refused_walk(graph, kernels, cost)) ||
      refused_order(graph, plan, kernels, cost))
    return cost;
  for (NodeSet computed : kernels.computed) {
    if (computed == 0) continue;
    ++cost.kernels;
    cost.arrays_read += count_arrays(graph, used_by(graph, computed));
    cost.live      = larger(cost.live, live_values(graph, computed));
    cost.rows_held = larger(cost.rows_held, rows_held(graph, computed));
    for (int32_t node = 0; node < graph.nodes; ++node)
      if (has(computed, node) && is_operation(graph.node[node].kind))
        cost.evaluations += 1 + 2.0 * reach(graph, computed, node) / chip.tile;
  }
  for (int32_t node = 0; node < graph.nodes; ++node) {
    const Kind kind = graph.node[node].kind;
    cost.operations += is_operation(kind);
    cost.arrays_written += has(kernels.stored, node) && kind != Kind::input && is_array(kind);
  }
  return cost;
}

bool neighbours(const Graph& graph, int32_t a, int32_t b) {
  if (a == b || graph.node[a].kind == Kind::input || graph.node[b].kind == Kind::input) return false;
  if (has(inputs_of(graph, a), b) || has(inputs_of(graph, b), a)) return true;
  if (has(needs(graph, a), b) || has(needs(graph, b), a)) return false;
  return count_arrays(graph, inputs_of(graph, a) & inputs_of(graph, b)) > 0;
}

}  // namespace fathom::book

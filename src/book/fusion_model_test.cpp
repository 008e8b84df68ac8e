#include "book/fusion_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace fathom::book {
namespace {

constexpr Shape kShapes[] = {Shape::chain,   Shape::centre,   Shape::softmax, Shape::online_softmax,
                             Shape::rmsnorm, Shape::variance, Shape::diamond, Shape::blurs};

// A plan by letters, one for each operation: "aab"; '-' is computed again.
Plan plan_of(const Graph& graph, const char* letters) {
  Plan plan;
  for (int node = 0; node < graph.nodes; ++node)
    if (graph.node[node].kind != Kind::input) {
      EXPECT_NE(*letters, '\0');
      plan.kernel[node] = *letters == '-' ? kAgain : *letters - 'a';
      ++letters;
    }
  EXPECT_EQ(*letters, '\0');
  return plan;
}

Cost cost(Shape shape, const char* letters, const Chip& chip = {}, int ops = 5) {
  const Graph graph = make_graph(shape, ops);
  return cost_of(graph, plan_of(graph, letters), chip);
}

int traffic(Shape shape, const char* letters, const Chip& chip = {}) {
  const Cost found = cost(shape, letters, chip);
  EXPECT_EQ(found.refusal, Refusal::none) << letters;
  return found.arrays_read + found.arrays_written;
}

// A machine that runs a plan on one row of numbers: a kernel is one walk, in which its own row values are not
// complete.
class Machine {
 public:
  struct NotYet {};   // an array is not in memory
  struct Illegal {};  // a row value is asked for before the walk's end

  Machine(const Graph& graph, const Plan& plan, bool holds_row)
      : graph_(graph), plan_(plan), holds_row_(holds_row) {
    for (int node = 0; node < graph.nodes; ++node)
      if (graph.node[node].kind == Kind::input)
        for (int i = 0; i < kLength; ++i) memory_[node].push_back(0.25 * node + 0.5 * i);
  }

  bool run() {
    std::set<int> left;
    for (int node = 0; node < graph_.nodes; ++node)
      if (graph_.node[node].kind != Kind::input && plan_.kernel[node] != kAgain)
        left.insert(plan_.kernel[node]);
    while (!left.empty()) {
      const size_t before = left.size();
      for (int kernel : std::vector<int>(left.begin(), left.end())) try {
          run(kernel);
          left.erase(kernel);
        } catch (NotYet) {
        } catch (Illegal) {
          return false;
        }
      if (left.size() == before) return false;
    }
    return true;
  }

  // What the graph means, without kernels.
  double meaning(int node, int i) const {
    const Node& what = graph_.node[node];
    if (what.kind == Kind::input) return memory_.at(node)[i];
    const auto of = [&](int input, int at) { return meaning(input, at); };
    return apply(node, i, of);
  }

  std::map<int, std::vector<double>> memory_;
  std::set<std::pair<int, int>> reads_;  // of a kernel, an array
  std::set<std::pair<int, int>> evaluated_;

 private:
  static constexpr int kLength = 4;

  template <typename Of>
  double apply(int node, int i, const Of& of) const {
    const Node& what = graph_.node[node];
    double sum       = node;
    for (int k = 0; k < what.inputs; ++k) {
      const int input = what.input[k];
      if (what.kind == Kind::reduce)
        for (int at = 0; at < kLength; ++at) sum += of(input, at);
      else if (what.kind == Kind::stencil)
        for (int at : {i - 1, i, i + 1}) sum += of(input, std::clamp(at, 0, kLength - 1));
      else
        sum += (k + 2) * of(input, i);
    }
    return sum / 3;
  }

  void run(int kernel) {
    std::map<int, std::vector<double>> made;
    for (int node = 0; node < graph_.nodes; ++node) {
      if (graph_.node[node].kind == Kind::input || plan_.kernel[node] != kernel) continue;
      for (int i = 0; i < kLength; ++i) made[node].push_back(evaluate(kernel, node, i, made));
    }
    for (auto& [node, values] : made) memory_[node] = values;
  }

  double evaluate(int kernel, int node, int i, const std::map<int, std::vector<double>>& made) {
    evaluated_.insert({kernel, node});
    const auto of = [&](int input, int at) {
      const bool mine = graph_.node[input].kind != Kind::input &&
                        (plan_.kernel[input] == kernel || plan_.kernel[input] == kAgain);
      if (!mine) {
        if (!memory_.count(input)) throw NotYet{};
        reads_.insert({kernel, input});
        return memory_[input][at];
      }
      const bool complete_later = graph_.node[input].kind == Kind::reduce || waits_in(kernel, input);
      if (complete_later && graph_.node[node].kind != Kind::scalar && !holds_row_) throw Illegal{};
      return evaluate(kernel, input, at, made);
    };
    return apply(node, i, of);
  }

  bool waits_in(int kernel, int node) const {
    for (int k = 0; k < graph_.node[node].inputs; ++k) {
      const int input = graph_.node[node].input[k];
      if (graph_.node[input].kind == Kind::input) continue;
      if (plan_.kernel[input] != kernel && plan_.kernel[input] != kAgain) continue;
      if (graph_.node[input].kind == Kind::reduce || waits_in(kernel, input)) return true;
    }
    return false;
  }

  const Graph& graph_;
  const Plan& plan_;
  bool holds_row_;
};

bool is_row_value(const Graph& graph, int node) {
  return graph.node[node].kind == Kind::reduce || graph.node[node].kind == Kind::scalar;
}

// Every plan of every graph: legal where the machine runs it, the same arrays read and written, the same
// results.
TEST(FusionModel, EveryPlanAgreesWithAMachineThatRunsIt) {
  int legal = 0, refused = 0;
  for (Shape shape : kShapes) {
    const Graph graph = make_graph(shape, 4);
    std::vector<int> ops;
    for (int node = 0; node < graph.nodes; ++node)
      if (graph.node[node].kind != Kind::input) ops.push_back(node);
    Plan plan;
    const auto check = [&] {
      for (bool holds_row : {false, true}) {
        const Cost found = cost_of(graph, plan, {.holds_row = holds_row});
        if (found.refusal == Refusal::again_is_a_fold || found.refusal == Refusal::again_is_an_output)
          continue;
        Machine machine(graph, plan, holds_row);
        ASSERT_EQ(machine.run(), found.refusal == Refusal::none);
        ++(found.refusal == Refusal::none ? legal : refused);
        if (found.refusal != Refusal::none) continue;
        int reads = 0, writes = 0, evaluated = 0;
        for (const auto& [kernel, node] : machine.reads_) reads += !is_row_value(graph, node);
        for (int node : ops) {
          const bool used = std::any_of(machine.reads_.begin(), machine.reads_.end(),
                                        [node = node](const auto& read) { return read.second == node; });
          writes += !is_row_value(graph, node) && (used || graph.node[node].output);
          for (int i = 0; i < 4 && graph.node[node].output; ++i)
            ASSERT_EQ(machine.memory_[node][i], machine.meaning(node, i));
        }
        for (const auto& [kernel, node] : machine.evaluated_)
          evaluated += graph.node[node].kind != Kind::scalar;
        EXPECT_EQ(found.arrays_read, reads);
        EXPECT_EQ(found.arrays_written, writes);
        if (shape != Shape::blurs) {  // whose halos the machine does not count
          EXPECT_EQ(found.evaluations, evaluated);
        }
      }
    };
    const auto enumerate = [&](const auto& self, size_t at, int used) -> void {
      if (at == ops.size()) return check();
      for (int kernel = kAgain; kernel <= used; ++kernel) {
        plan.kernel[ops[at]] = kernel;
        self(self, at + 1, std::max(used, kernel + 1));
      }
    };
    enumerate(enumerate, 0, 0);
  }
  EXPECT_GT(legal, 150);
  EXPECT_GT(refused, 50);
}

// The golden values of the book: a chain moves 2 arrays for each kernel.
TEST(FusionModel, AChainOfTheBook) {
  EXPECT_EQ(traffic(Shape::chain, "abcde"), 10);
  EXPECT_EQ(traffic(Shape::chain, "aaaaa"), 2);
  EXPECT_EQ(traffic(Shape::chain, "aabbb"), 4);
  EXPECT_EQ(cost(Shape::chain, "aaaaa").live, 1);
  EXPECT_EQ(cost(Shape::chain, "", {}, 0).kernels, 0);
  EXPECT_EQ(cost(Shape::chain, "a", {}, 1).arrays_written, 1);
  EXPECT_EQ(make_graph(Shape::chain, 100).nodes, kMostNodes);
}

// Chapter 9: a softmax in three walks, two and one.
TEST(FusionModel, SoftmaxOfTheBook) {
  EXPECT_EQ(traffic(Shape::softmax, "abcd"), 6);
  EXPECT_EQ(traffic(Shape::softmax, "abbc"), 5);
  EXPECT_EQ(traffic(Shape::softmax, "a-bc"), 4);
  EXPECT_EQ(cost(Shape::softmax, "a-bc").evaluations, 5);
  EXPECT_EQ(cost(Shape::softmax, "a-bc").operations, 4);
  EXPECT_EQ(traffic(Shape::online_softmax, "ab"), 3);
  EXPECT_EQ(traffic(Shape::softmax, "aaaa", {.holds_row = true}), 2);
  EXPECT_EQ(cost(Shape::softmax, "aaaa", {.holds_row = true}).rows_held, 1);
  EXPECT_EQ(cost(Shape::softmax, "abbc").rows_held, 0);
  const Cost refused = cost(Shape::softmax, "aaaa");
  EXPECT_EQ(refused.refusal, Refusal::needs_whole_row);
  EXPECT_EQ(refused.node, 2);
  EXPECT_EQ(refused.blocker, 1);
}

// A row that is made in the first walk and used in the second only: a = f(x), s = sum of x, b = a s.
TEST(FusionModel, ARowThatIsMadeEarlyIsHeld) {
  const Graph graph{.nodes = 4,
                    .node  = {{},
                              {.kind = Kind::map, .inputs = 1, .input = {0}},
                              {.kind = Kind::reduce, .inputs = 1, .input = {0}},
                              {.kind = Kind::map, .inputs = 2, .input = {1, 2}, .output = true}}};
  EXPECT_EQ(cost_of(graph, plan_of(graph, "aaa"), {.holds_row = true}).rows_held, 1);
  EXPECT_EQ(cost_of(graph, plan_of(graph, "aab"), {.holds_row = true}).rows_held, 0);
}

// Residual addition and RMSNorm: 10 and 8 bytes an element of bf16, as the chapter's table says.
TEST(FusionModel, NormOfTheBook) {
  const Chip holds{.holds_row = true};
  EXPECT_EQ(2 * traffic(Shape::rmsnorm, "abbb", holds), 10);
  EXPECT_EQ(2 * traffic(Shape::rmsnorm, "aaaa", holds), 8);
  EXPECT_EQ(2 * traffic(Shape::rmsnorm, "abcd"), 12);
  EXPECT_EQ(2 * traffic(Shape::rmsnorm, "aaab"), 10);  // rows too long to hold: two walks
  const Cost refused = cost(Shape::rmsnorm, "abba");
  EXPECT_EQ(refused.refusal, Refusal::waits_for_itself);
  EXPECT_EQ(refused.node, 5);
  EXPECT_EQ(refused.blocker, 4);
}

TEST(FusionModel, FoldsOfOneArrayShareAWalk) {
  EXPECT_EQ(traffic(Shape::variance, "abcd"), 4);
  EXPECT_EQ(traffic(Shape::variance, "aaab"), 3);
  EXPECT_EQ(cost(Shape::variance, "aaaa").refusal, Refusal::needs_whole_row);
}

// One value at hand, and the sums and row values of the walk.
TEST(FusionModel, LiveValuesOfSmallKernels) {
  EXPECT_EQ(cost(Shape::chain, "abcde").live, 1);
  EXPECT_EQ(cost(Shape::variance, "aaab").live, 3);
  EXPECT_EQ(cost(Shape::softmax, "a-bc").live, 3);  // x, the maximum and a sum; or x, the maximum and the sum
  EXPECT_EQ(cost(Shape::rmsnorm, "abcd").live, 2);
  EXPECT_EQ(cost(Shape::rmsnorm, "aaab").live, 3);
  EXPECT_EQ(cost(Shape::blurs, "ab").live, 3);
}

TEST(FusionModel, ADiamondHoldsBothSides) {
  EXPECT_EQ(traffic(Shape::diamond, "abcd"), 9);
  EXPECT_EQ(traffic(Shape::diamond, "aaaa"), 2);
  EXPECT_EQ(cost(Shape::diamond, "aaaa").live, 2);
  EXPECT_EQ(cost(Shape::diamond, "aaba").refusal, Refusal::waits_for_itself);
  EXPECT_EQ(traffic(Shape::diamond, "-abb"), 5);  // b reads x; c and d read x and b
}

// Exercise 9.9: two stencils of three points, tiles of 64.
TEST(FusionModel, AHaloIsComputedTwice) {
  EXPECT_DOUBLE_EQ(cost(Shape::blurs, "aa", {.tile = 64}).evaluations, (66.0 + 64) / 64);
  EXPECT_DOUBLE_EQ(cost(Shape::blurs, "aa", {.tile = 1}).evaluations, 4);
  EXPECT_EQ(cost(Shape::blurs, "ab").evaluations, 2);
  EXPECT_EQ(traffic(Shape::blurs, "ab"), 4);
  EXPECT_EQ(traffic(Shape::blurs, "aa"), 2);
}

TEST(FusionModel, RefusesToComputeFoldsAndOutputsAgain) {
  EXPECT_EQ(cost(Shape::softmax, "-abc").refusal, Refusal::again_is_a_fold);
  EXPECT_EQ(cost(Shape::softmax, "abc-").refusal, Refusal::again_is_an_output);
  EXPECT_EQ(cost(Shape::rmsnorm, "-abc").refusal, Refusal::again_is_an_output);
}

TEST(FusionModel, TellsWhatAKernelReadsAndComputes) {
  const Graph graph = make_graph(Shape::softmax, 0);
  const Plan plan   = plan_of(graph, "a-bc");
  EXPECT_EQ(computed_by(graph, plan, 1), 0b01100u);  // exponential and sum
  EXPECT_EQ(read_by(graph, plan, 1), 0b00011u);      // x and the maximum
  EXPECT_EQ(computed_by(graph, plan, 5), 0u);
  EXPECT_EQ(read_by(graph, plan, 5), 0u);
}

TEST(FusionModel, NeighboursShareAnEdgeOrAnInput) {
  const Graph softmax = make_graph(Shape::softmax, 0), variance = make_graph(Shape::variance, 0);
  EXPECT_TRUE(neighbours(softmax, 1, 2));
  EXPECT_TRUE(neighbours(softmax, 2, 1));
  EXPECT_FALSE(neighbours(softmax, 1, 3));
  EXPECT_FALSE(neighbours(softmax, 0, 1));
  EXPECT_TRUE(neighbours(variance, 1, 2));
  EXPECT_FALSE(neighbours(variance, 1, 4));
}

}  // namespace
}  // namespace fathom::book

#include "compile/fuse.h"

#include <gtest/gtest.h>

#include <functional>

#include "compile/canonical.h"
#include "compile/explain.h"
#include "compile/gradient.h"
#include "compile/programs.h"
#include "compile/random_graph.h"
#include "compile/text.h"

namespace fathom::compile {
namespace {

std::string rules(const Plan& plan) {
  std::string rules;
  for (const Group& group : plan.groups)
    rules += (rules.empty() ? "" : " ") + std::string(*group.rule ? group.rule : "-");
  return rules;
}

Graph graph_of(const std::string& name) {
  for (const NamedProgram& program : programs())
    if (program.name == name) return canonical(program.graph());
  ADD_FAILURE() << name;
  return {};
}

TEST(Fuse, ThePrograms) {
  EXPECT_EQ(rules(fuse(graph_of("mlp"))), "R2 R3 R3");
  EXPECT_EQ(rules(fuse(graph_of("rmsnorm_residual"))), "R2");
  EXPECT_EQ(rules(fuse(graph_of("gated_norm"))), "R2");
  EXPECT_EQ(rules(fuse(graph_of("softmax"))), "R2");
}

// All but the weight's gradient, whose sum is over the other axis, in one launch. Before dy: the forward half
// alone.
TEST(Fuse, AJointGraph) {
  const Graph joint = canonical(gradient(graph_of("gated_norm"), "y", {"x", "z", "weight"}));
  EXPECT_EQ(rules(fuse(joint)), "R2 -");
  int dy = 0;
  while (joint[dy].name != "dy") ++dy;
  const Plan plan = fuse_before(joint, dy);
  EXPECT_STREQ(plan.groups[0].rule, "R2");
  EXPECT_LT(plan.groups[0].nodes.back(), dy);
  for (size_t g = 1; g < plan.groups.size(); ++g) {
    EXPECT_EQ(plan.groups[g].nodes.size(), 1u);
    EXPECT_GT(plan.groups[g].nodes[0], dy);
  }
}

// By hand: x and residual in, sum and y out, and the weight.
TEST(Fuse, BytesAreThoseThatMustMove) {
  const Graph graph                  = graph_of("rmsnorm_residual");
  const Plan plan                    = fuse(graph);
  const std::vector<int64_t> symbols = {7};
  EXPECT_EQ(plan.groups[0].bytes(graph, symbols), (4.0 * 7 + 1) * 2880 * 4);
  const Graph mlp   = graph_of("mlp");
  const Plan of_mlp = fuse(mlp);
  EXPECT_EQ(of_mlp.groups[1].bytes(mlp, symbols), 7 * 256 * 2 + 448 * 256 * 2 + 448 * 2 + 7 * 224 * 2);
}

std::string refused(const std::function<void(Program&, const Tensor&)>& write) {
  Program p("g");
  const Extent T = p.symbol({.name = "T"});
  write(p, p.input("x", {T, 6}));
  const Graph graph = canonical(p.graph());
  const Plan plan   = fuse(graph);
  std::string reasons;
  for (const Refusal& refusal : plan.refusals) reasons += refusal.reason + "\n";
  EXPECT_NE(explain(graph, plan, graph.typical_symbols()).find(reasons.substr(0, reasons.find('\n'))),
            std::string::npos);
  return reasons;
}

TEST(Fuse, RefusalsKeepTheirReason) {
  const auto expect = [](const char* reason, const std::function<void(Program&, const Tensor&)>& write) {
    const std::string reasons = refused(write);
    EXPECT_NE(reasons.find(reason), std::string::npos) << reasons;
  };
  expect("a launch has one matmul", [](Program& p, const Tensor& x) {
    const Tensor w = p.input("w", {6, 6}, DType::bf16);
    p.output("y", matmul(x, w) + matmul(-x, w));
  });
  expect("R4, a prologue, is not built", [](Program& p, const Tensor& x) {
    p.output("y", matmul(-x, p.input("w", {6, 6}, DType::bf16)));
  });
  expect("reductions have different axes", [](Program& p, const Tensor& x) {
    p.output("y", x - sum(x, {0}, Keep::yes) * sum(x, {1}, Keep::yes));
  });
  expect("a row may have more than 16384", [](Program& p, const Tensor& x) { p.output("y", sum(-x, {0})); });
  expect("stays in memory",
         [](Program& p, const Tensor& x) { p.output("y", -reshape(-x, {p.graph()[0].type.shape[0] * 6})); });
  expect("an iota is written once",
         [](Program& p, const Tensor& x) { p.output("y", x + p.iota(x.shape(), 0)); });
  expect("would be computed twice", [](Program& p, const Tensor& x) {
    const Tensor e = exp(x);
    p.output("y", slice(e, 1, 0, 3) + slice(e, 1, 1, 3));
  });
  expect("read at other indices", [](Program& p, const Tensor&) {
    const Tensor e = -p.input("square", {6, 6});
    p.output("e", e);
    p.output("y", e + permute(e, {1, 0}));
  });
}

// A third launch between two keeps them apart.
TEST(Fuse, LaunchesCanRunInTheirOrder) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = canonical(random_graph(seed, 30, Values::any));
    const Plan plan   = fuse(graph);
    std::vector<int> made(graph.nodes.size(), -1);
    size_t kernels = 0;
    for (size_t g = 0; g < plan.groups.size(); ++g)
      for (const int id : plan.groups[g].nodes) {
        EXPECT_EQ(made[static_cast<size_t>(id)], -1) << "seed " << seed << ": in two launches";
        made[static_cast<size_t>(id)] = static_cast<int>(g);
        ++kernels;
      }
    EXPECT_EQ(kernels, unfused(graph).groups.size()) << "seed " << seed;
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      if (!plan.groups[g].tape) continue;
      for (const Leaf& leaf : plan.groups[g].tape->leaves) {
        const int base = base_of(graph, plan.roles, leaf.node);
        if (leaf.written || plan.roles[static_cast<size_t>(base)] != Role::kernel ||
            base == plan.groups[g].matmul)
          continue;
        EXPECT_LT(made[static_cast<size_t>(base)], static_cast<int>(g)) << "seed " << seed;
      }
    }
  }
}

// Fusing both 2 with 9 and 3 with 5 would make each wait for the other: by 4, and by 6 to 8.
TEST(Fuse, NoLaunchesWaitForEachOther) {
  const auto graph = parse(R"(program "cycle"
%0 = input "a" fp32[4, 6]
%1 = input "b" fp32[6, 4]
%2 = exp %0 fp32[4, 6]
%3 = exp %1 fp32[6, 4]
%4 = reshape %2 fp32[6, 4]
%5 = add %4 %3 fp32[6, 4]
%6 = reshape %3 fp32[8, 3]
%7 = neg %6 fp32[8, 3]
%8 = reshape %7 fp32[4, 6]
%9 = mul %2 %8 fp32[4, 6]
output "y" %5
output "z" %9
)",
                           "cycle.ir");
  ASSERT_TRUE(graph) << graph.error().message;
  size_t kernels = 0;
  for (const Group& group : fuse(*graph).groups) kernels += group.nodes.size();
  EXPECT_EQ(kernels, unfused(*graph).groups.size());
}

}  // namespace
}  // namespace fathom::compile

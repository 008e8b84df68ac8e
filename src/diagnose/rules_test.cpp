// Every rule at its thresholds, with the numbers written out: a rule that is deleted or moved fails here.
#include "diagnose/rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "diagnose/diagnosis.h"

namespace fathom::diagnose {
namespace {

using Values = std::vector<std::pair<const char*, double>>;

struct AtThreshold {
  const char* cause;
  bool on_gpu;
  Values others;  // what else the rule has to see
  const char* quantity;
  double fires, does_not;
};

const std::vector<AtThreshold> kCases = {
    {"launch_bound", true, {}, "idle_share", 0.2, 0.199},
    {"block_start", true, {}, "block_start_share", 0.6, 0.599},
    {"small_grid", true, {}, "grid_share", 0.9, 0.901},
    {"tail", true, {}, "tail_factor", 1.15, 1.149},
    {"imbalance", true, {}, "sm_active_share", 0.87, 0.871},
    {"bank_conflicts", true, {{"shared_share", 0.9}}, "conflict_share", 0.1, 0.099},
    {"uncoalesced_loads", true, {{"memory_share", 0.9}}, "load_sector_bytes", 24, 24.1},
    {"uncoalesced_stores", true, {{"memory_share", 0.9}}, "store_sector_bytes", 24, 24.1},
    {"excess_traffic", true, {{"dram_share", 0.9}}, "traffic_ratio", 1.2, 1.199},
    {"spills", true, {{"memory_share", 1}}, "local_share", 0.05, 0.049},
    {"divergence", true, {{"issue_share", 0.7}}, "threads_per_instruction", 24, 24.1},
    {"dram", true, {}, "dram_share", 0.8, 0.799},
    {"shared_bandwidth", true, {}, "shared_share", 0.6, 0.599},
    {"cache_bandwidth", true, {{"dram_share", 0.6}}, "memory_share", 0.6, 0.599},
    {"cache_bandwidth", true, {{"memory_share", 0.7}}, "dram_share", 0.6, 0.601},
    {"tensor_pipe", true, {}, "tensor_share", 0.8, 0.799},
    {"issue", true, {}, "issue_share", 0.8, 0.799},
    {"at_compute_limit", true, {{"compute_limit", 1}}, "limit_share", 0.8, 0.799},
    {"at_compute_limit", true, {{"limit_share", 0.9}}, "compute_limit", 1, 0},
    {"at_compute_limit", false, {{"compute_limit", 1}}, "limit_share", 0.8, 0.799},
    {"at_compute_limit", false, {{"limit_share", 0.9}}, "compute_limit", 1, 0},
    {"at_shared_limit", true, {{"shared_limit", 1}}, "limit_share", 0.8, 0.799},
    {"at_shared_limit", true, {{"limit_share", 0.9}}, "shared_limit", 1, 0},
    {"at_link_limit", true, {{"link_limit", 1}}, "limit_share", 0.8, 0.799},
    {"at_link_limit", true, {{"limit_share", 0.9}}, "link_limit", 1, 0},
    {"at_memory_limit", true, {{"memory_limit", 1}}, "limit_share", 0.8, 0.799},
    {"at_memory_limit", true, {{"limit_share", 0.9}}, "memory_limit", 1, 0},
    {"at_memory_limit", false, {{"memory_limit", 1}}, "limit_share", 0.8, 0.799},
    {"at_memory_limit", false, {{"limit_share", 0.9}}, "memory_limit", 1, 0},
    {"low_occupancy",
     true,
     {{"warps_active_share", 0.4}, {"dram_share", 0.2}},
     "stall_long_scoreboard",
     0.3,
     0.299},
    {"low_occupancy",
     true,
     {{"stall_long_scoreboard", 0.6}, {"dram_share", 0.2}},
     "warps_active_share",
     0.5,
     0.501},
    {"low_occupancy",
     true,
     {{"stall_long_scoreboard", 0.6}, {"warps_active_share", 0.4}},
     "dram_share",
     0.6,
     0.601},
    {"memory_latency", true, {{"dram_share", 0.7}}, "stall_long_scoreboard", 0.3, 0.299},
    {"memory_latency", true, {{"stall_long_scoreboard", 0.6}}, "dram_share", 0.8, 0.801},
    {"dependency_chain", true, {{"issue_share", 0.5}}, "stall_wait", 0.3, 0.299},
    {"dependency_chain", true, {{"stall_wait", 0.5}}, "issue_share", 0.6, 0.601},
    {"register_banks", true, {{"issue_share", 0.5}}, "stall_dispatch", 0.1, 0.099},
    {"barrier", true, {{"issue_share", 0.5}}, "stall_barrier", 0.3, 0.299},
    {"global_queue", true, {{"issue_share", 0.5}}, "stall_lg_throttle", 0.3, 0.299},
    {"shared_queue", true, {{"issue_share", 0.5}}, "stall_mio_throttle", 0.3, 0.299},
    {"math_pipe", true, {{"issue_share", 0.5}}, "stall_math_pipe", 0.3, 0.299},
    {"tensor_wait", true, {{"tensor_share", 0.5}}, "stall_gmma", 0.3, 0.299},
    {"tensor_wait", true, {{"stall_gmma", 0.5}}, "tensor_share", 0.6, 0.601},
    {"no_tensor_cores",
     true,
     {{"memory_share", 0.4}, {"tensor_share", 0}, {"flops_per_byte", 100}},
     "sm_share",
     0.8,
     0.799},
    {"no_tensor_cores",
     true,
     {{"sm_share", 0.9}, {"tensor_share", 0}, {"flops_per_byte", 100}},
     "memory_share",
     0.5,
     0.501},
    {"no_tensor_cores",
     true,
     {{"sm_share", 0.9}, {"memory_share", 0.4}, {"flops_per_byte", 100}},
     "tensor_share",
     0.05,
     0.051},
    {"no_tensor_cores",
     true,
     {{"sm_share", 0.9}, {"memory_share", 0.4}, {"tensor_share", 0}},
     "flops_per_byte",
     10,
     9.9},
    {"low_intensity", true, {{"memory_limit", 1}, {"limit_share", 0.6}}, "ridge_share", 1, 1.01},
    {"low_intensity", true, {{"memory_limit", 1}, {"ridge_share", 0.5}}, "limit_share", 0.5, 0.499},
    {"low_intensity", true, {{"ridge_share", 0.5}, {"limit_share", 0.6}}, "memory_limit", 1, 0},
    {"low_intensity", false, {{"memory_limit", 1}, {"limit_share", 0.6}}, "ridge_share", 1, 1.01},
    {"low_intensity", false, {{"memory_limit", 1}, {"ridge_share", 0.5}}, "limit_share", 0.51, 0.499},
    {"low_intensity", false, {{"ridge_share", 0.5}, {"limit_share", 0.6}}, "memory_limit", 1, 0},
    {"low_intensity_by_rule", true, {{"memory_limit", 1}}, "flops_per_byte", 10, 10.1},
    {"low_intensity_by_rule", true, {{"flops_per_byte", 3}}, "memory_limit", 1, 0},
    {"low_intensity_by_rule", false, {{"memory_limit", 1}}, "flops_per_byte", 10, 10.1},
    {"low_intensity_by_rule", false, {{"flops_per_byte", 3}}, "memory_limit", 1, 0},
    {"waiting", false, {}, "busy_share", 0.7, 0.701},
    {"page_faults", false, {}, "faulted_share", 0.1, 0.099},
    {"disk", false, {}, "major_faults", 1, 0.5},
    {"cache_misses", false, {{"instructions_per_cycle", 0.5}}, "misses_per_1000", 5, 4.9},
    {"cache_misses", false, {{"misses_per_1000", 20}}, "instructions_per_cycle", 1, 1.01},
    {"branch_misses", false, {}, "branch_miss_share", 0.05, 0.049},
    {"few_instructions", false, {}, "instructions_per_cycle", 1, 1.01},
    {"slow_memory", false, {{"limit_share", 0.3}, {"memory_limit", 1}}, "ridge_share", 1, 1.01},
    {"slow_memory", false, {{"limit_share", 0.3}, {"ridge_share", 0.1}}, "memory_limit", 1, 0},
    {"slow_memory", false, {{"ridge_share", 0.1}, {"memory_limit", 1}}, "limit_share", 0.5, 0.501},
    {"slow_arithmetic", false, {{"limit_share", 0.3}}, "ridge_share", 1, 0.99},
    {"slow_arithmetic", false, {{"ridge_share", 9}}, "limit_share", 0.5, 0.501},
};

Facts facts_with(const AtThreshold& c, double value) {
  Facts facts;
  for (const auto& [quantity, other] : c.others) facts.set(quantity, other);
  facts.set(c.quantity, value);
  return facts;
}

bool finds(const Diagnosis& diagnosis, std::string_view cause) {
  return std::any_of(diagnosis.findings.begin(), diagnosis.findings.end(),
                     [&](const Finding& finding) { return finding.rule->cause == cause; });
}

TEST(Rules, FireAtTheirThresholdsAndNotBeyond) {
  for (const AtThreshold& c : kCases) {
    EXPECT_TRUE(finds(diagnose(facts_with(c, c.fires), c.on_gpu), c.cause))
        << c.cause << " at " << c.quantity;
    EXPECT_FALSE(finds(diagnose(facts_with(c, c.does_not), c.on_gpu), c.cause))
        << c.cause << " beyond " << c.quantity;
  }
}

// A rule that lacks a quantity says which parts, and never fires.
TEST(Rules, SayWhatTheyLack) {
  for (const AtThreshold& c : kCases) {
    Facts facts = facts_with(c, c.fires);
    facts.forget(c.quantity, {"counted_this", "counted_that"});
    const Diagnosis diagnosis = diagnose(facts, c.on_gpu);
    EXPECT_FALSE(finds(diagnosis, c.cause)) << c.cause << " without " << c.quantity;
    const auto untried = std::find_if(diagnosis.untried.begin(), diagnosis.untried.end(),
                                      [&](const Untried& u) { return u.rule->cause == c.cause; });
    ASSERT_NE(untried, diagnosis.untried.end()) << c.cause << " without " << c.quantity;
    EXPECT_EQ(untried->lacks, (std::vector<std::string>{"counted_this", "counted_that"})) << c.cause;
  }
}

TEST(Rules, EachCriterionHasACase) {
  std::multiset<std::pair<std::string_view, std::string_view>> cased;
  for (const AtThreshold& c : kCases) cased.insert({c.cause, c.quantity});
  std::set<std::string_view> causes;
  for (const Rule& rule : rules()) {
    EXPECT_TRUE(causes.insert(rule.cause).second) << rule.cause << " twice";
    EXPECT_TRUE(rule.gpu || rule.cpu) << rule.cause;
    EXPECT_FALSE(rule.cures.empty()) << rule.cause << " has no cure";
    EXPECT_FALSE(rule.shown.empty()) << rule.cause << " shows no cure";
    for (const Criterion& criterion : rule.when) {
      EXPECT_TRUE(is_quantity(criterion.quantity)) << rule.cause << ": " << criterion.quantity;
      EXPECT_FALSE(criterion.source.empty()) << rule.cause << ": " << criterion.quantity;
      const size_t wanted = rule.gpu && rule.cpu ? 2 : 1;
      EXPECT_EQ(cased.count({rule.cause, criterion.quantity}), wanted)
          << rule.cause << ": " << criterion.quantity;
    }
    if (!rule.unit.empty()) {
      EXPECT_TRUE(is_quantity(rule.unit)) << rule.unit;
    }
  }
  for (const Rule& rule : rules())
    for (const std::string_view other : rule.instead_of)
      EXPECT_TRUE(causes.contains(other)) << rule.cause << " explains " << other << ", which is no rule";
}

// Two rules that say the same of one kernel: the one that knows more stays.
TEST(Rules, TheCauseStandsForItsSymptoms) {
  Facts facts;
  facts.set("shared_share", 0.98);
  facts.set("conflict_share", 0.94);
  facts.set("stall_mio_throttle", 0.6);
  facts.set("issue_share", 0.04);
  const Diagnosis conflicts = diagnose(facts, true);
  EXPECT_EQ(conflicts.cause(), "bank_conflicts");
  EXPECT_EQ(conflicts.findings.size(), 1U);
  facts.set("conflict_share", 0.01);
  EXPECT_EQ(diagnose(facts, true).cause(), "shared_bandwidth");

  Facts measured;
  measured.set("ridge_share", 0.5);
  measured.set("flops_per_byte", 5);
  measured.set("memory_limit", 1);
  measured.set("limit_share", 0.6);
  EXPECT_TRUE(finds(diagnose(measured, true), "low_intensity"));
  EXPECT_FALSE(finds(diagnose(measured, true), "low_intensity_by_rule")) << "the measured ridge knows better";
  measured.set("dram_share", 0.3);
  EXPECT_TRUE(diagnose(measured, true).findings.empty()) << "counted bytes know better than declared ones";
}

}  // namespace
}  // namespace fathom::diagnose

#include "diagnose/diagnosis.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace fathom::diagnose {
namespace {

Facts facts_of(std::initializer_list<std::pair<const char*, double>> values) {
  Facts facts;
  for (const auto& [quantity, value] : values) facts.set(quantity, value);
  return facts;
}

const Gain& gain_of_first(const Diagnosis& diagnosis) { return *diagnosis.findings.at(0).gain; }

TEST(Diagnosis, GainsAreTheArithmeticOfItsHeader) {
  // 0.98 of the time in shared memory, 0.94 of that for conflicts: 1 / (1 - 0.9212) to 1 / (1 - 0.94).
  const Diagnosis conflicts = diagnose(facts_of({{"shared_share", 0.98}, {"conflict_share", 0.94}}), true);
  EXPECT_NEAR(gain_of_first(conflicts).lo, 12.69, 0.01);
  EXPECT_NEAR(gain_of_first(conflicts).hi, 16.67, 0.01);
  EXPECT_EQ(gain_of_first(conflicts).next, "shared_share");
  EXPECT_EQ(conflicts.findings[0].certainty, Certainty::sure);
  // The next unit takes half of the time, whatever becomes of the conflicts.
  const Diagnosis bounded =
      diagnose(facts_of({{"shared_share", 0.98}, {"conflict_share", 0.94}, {"issue_share", 0.5}}), true);
  EXPECT_DOUBLE_EQ(gain_of_first(bounded).hi, 2);
  EXPECT_EQ(gain_of_first(bounded).next, "issue_share");
  // memory_share is that of the busiest unit, and shared memory is one of those.
  const Diagnosis same =
      diagnose(facts_of({{"shared_share", 0.98}, {"conflict_share", 0.94}, {"memory_share", 0.98}}), true);
  EXPECT_NEAR(gain_of_first(same).hi, 16.67, 0.01);
  // A unit that is half busy: its waste is no more than its share of the time.
  EXPECT_DOUBLE_EQ(
      gain_of_first(diagnose(facts_of({{"shared_share", 0.5}, {"conflict_share", 0.8}}), true)).hi, 1 / 0.6);
  // A wait of 60 % of the time: 2.5 times, or what the busiest unit lets through.
  const Diagnosis wait = diagnose(facts_of({{"stall_barrier", 0.6}, {"issue_share", 0.25}}), true);
  EXPECT_DOUBLE_EQ(gain_of_first(wait).lo, 2.5);
  EXPECT_DOUBLE_EQ(gain_of_first(wait).hi, 4);
  // Half of the call without a kernel.
  EXPECT_DOUBLE_EQ(gain_of_first(diagnose(facts_of({{"idle_share", 0.5}}), true)).hi, 2);
}

// Over all shares of a unit, of its waste and of another unit.
TEST(Diagnosis, GainsStayWithinTheirBounds) {
  for (double u = 0.05; u <= 1; u += 0.05) {
    for (double other = 0; other <= 1; other += 0.1) {
      double before = 0;
      for (double waste = 0.1; waste <= 0.95; waste += 0.05) {
        const Diagnosis d = diagnose(
            facts_of({{"shared_share", u}, {"conflict_share", waste}, {"issue_share", other}}), true);
        const auto conflicts = std::find_if(d.findings.begin(), d.findings.end(), [](const Finding& f) {
          return f.rule->cause == "bank_conflicts";
        });
        if (conflicts == d.findings.end()) continue;  // it gains less than 5 %
        const Gain& gain = *conflicts->gain;
        EXPECT_LE(1, gain.lo);
        EXPECT_LE(gain.lo, gain.hi);
        EXPECT_GE(gain.hi, before) << "more waste, less gain";
        EXPECT_LE(gain.hi, 1 / (1 - (u < 0.8 ? u : 1) * waste) + 1e-9);
        if (other > 0) {
          EXPECT_LE(gain.hi, 1 / other + 1e-9);
        }
        before = gain.hi;
      }
    }
  }
}

TEST(Diagnosis, TheLargestGainComesFirst) {
  const Diagnosis d = diagnose(
      facts_of({{"issue_share", 0.2}, {"stall_barrier", 0.35}, {"stall_wait", 0.55}, {"memory_share", 0.3}}),
      true);
  ASSERT_EQ(d.findings.size(), 2U);
  EXPECT_EQ(d.cause(), "dependency_chain");
  EXPECT_EQ(d.findings[1].rule->cause, "barrier");
  EXPECT_EQ(d.findings[0].certainty, Certainty::likely);
  EXPECT_EQ(d.findings[1].certainty, Certainty::possible);
}

TEST(Diagnosis, WhatIsKnownComesBeforeHints) {
  // How busy memory is was not counted: half-used sectors may cost up to eight times, or nothing.
  const Diagnosis d = diagnose(facts_of({{"issue_share", 0.81}, {"load_sector_bytes", 4}}), true);
  ASSERT_EQ(d.findings.size(), 2U);
  EXPECT_EQ(d.cause(), "issue");
  EXPECT_EQ(d.findings[1].certainty, Certainty::possible);
}

TEST(Diagnosis, SmallGainsAreNotTold) {
  // A tenth of a unit that works a fifth of the time.
  const Diagnosis d = diagnose(facts_of({{"shared_share", 0.2}, {"conflict_share", 0.1}}), true);
  EXPECT_TRUE(d.findings.empty());
  EXPECT_TRUE(std::any_of(d.not_it.begin(), d.not_it.end(),
                          [](const Rule* rule) { return rule->cause == "bank_conflicts"; }));
}

TEST(Diagnosis, SpeaksInSentences) {
  const Diagnosis d = diagnose(facts_of({{"dram_share", 0.94}, {"issue_share", 0.1}}), true);
  EXPECT_EQ(
      sentence(d),
      "DRAM is at its rate: only less traffic helps (sure): DRAM moves 94.0 % of the highest rate that was "
      "measured here");
  EXPECT_EQ(bound_text(d), "DRAM: DRAM moves 94.0 % of the highest rate that was measured here");
  EXPECT_EQ(d.findings[0].evidence[0].text(),
            "DRAM moves 94.0 % of the highest rate that was measured here (rule: at least 80.0 %)");
  EXPECT_EQ(sentence(diagnose(Facts{}, true)), "not known: the record has no counters");
  EXPECT_EQ(bound_text(diagnose(facts_of({{"issue_share", 0.3}}), true)),
            "latency, for no unit is busy: schedulers issue in 30.0 % of the cycles");
  EXPECT_EQ(bound_text(diagnose(facts_of({{"limit_share", 0.3}}), true)),
            "30.0 % of the measured limit; without counters nobody knows what takes the rest");
  EXPECT_EQ(gain_text({.lo = 2.5, .hi = 4, .next = "issue_share"}),
            "2.50× to 4.00×, then instruction issue binds");
  EXPECT_EQ(gain_text({.lo = 1, .hi = 1.5}), "up to 1.50×");
}

TEST(Diagnosis, AClockThatDiffersIsRemarkedOn) {
  EXPECT_TRUE(diagnose(facts_of({{"clock_ratio", 1.019}}), true).remarks.empty());
  EXPECT_EQ(diagnose(facts_of({{"clock_ratio", 0.979}}), true).remarks.size(), 1U);
}

TEST(Diagnosis, JsonHasEvidenceAndWhatIsMissing) {
  Facts facts = facts_of({{"dram_share", 0.94}});
  facts.forget("conflict_share", {"counted_shared_wavefronts"});
  const nlohmann::json json = to_json(diagnose(facts, true));
  EXPECT_EQ(json.at("findings").at(0).at("cause"), "dram");
  EXPECT_EQ(json.at("findings").at(0).at("evidence").at(0).at("at_least"), 0.8);
  EXPECT_EQ(json.at("findings").at(0).at("shown_by").at(0), "ch09/fused_elementwise_gpu/fused");
  const auto& untried = json.at("not_tried");
  EXPECT_TRUE(std::any_of(untried.begin(), untried.end(), [](const nlohmann::json& u) {
    return u.at("cause") == "bank_conflicts" && u.at("lacks").at(0) == "counted_shared_wavefronts";
  }));
}

// The parts of a record become quantities; each by hand.
TEST(Facts, AreTheArithmeticOfTheirNames) {
  lab::VariantRecord v;
  v.time_ns.emplace().median = 1000;
  v.bytes_read               = 600;
  v.bytes_written            = 200;
  v.flops                    = 1600;
  v.share_of_limit           = 0.5;
  const auto metric          = [&](const char* name, double value) { v.metrics[name] = {value, "lower"}; };
  metric("kernel_time_ns", 600);
  metric("copy_time_ns", 100);
  metric("counted_dram_bytes_read", 700);
  metric("counted_dram_bytes_written", 300);
  metric("counted_time_ns", 500);
  metric("counted_cycles", 1000);
  metric("counted_shared_wavefronts", 33000);
  metric("counted_shared_bank_conflicts", 3300);
  metric("counted_warps_active_pct", 50);
  metric("counted_issue_active_pct", 20);
  metric("counted_stall_barrier", 10);
  metric("counted_bytes_per_sector_load", 0);
  metric("counted_bytes_per_sector_store", 8);
  metric("counted_local_load_sectors", 10);
  metric("counted_l1_bytes", 640);
  metric("grid_size", 66);
  metric("waves_per_multiprocessor", 1.25);
  const MachineRates machine{
      .dram_bytes_per_s = 4e9, .flops_per_s = 8e9, .multiprocessors = 132, .compute_capability = 90};
  const Facts facts = diagnose::facts_of(v, "read bandwidth of DRAM", true, machine);
  EXPECT_TRUE(facts.has_counters());
  EXPECT_DOUBLE_EQ(facts.at("flops_per_byte"), 2);
  EXPECT_DOUBLE_EQ(facts.at("ridge_share"), 1);  // 2 FLOP/byte, and 8e9 / 4e9
  EXPECT_EQ(facts.at("memory_limit"), 1);
  EXPECT_EQ(facts.at("compute_limit"), 0);
  EXPECT_NEAR(facts.at("idle_share"), 0.3, 1e-12);
  EXPECT_DOUBLE_EQ(facts.at("dram_share"), 0.5);  // 1000 bytes in 500 ns are 2e9
  EXPECT_DOUBLE_EQ(facts.at("shared_share"), 0.25);
  EXPECT_DOUBLE_EQ(facts.at("conflict_share"), 0.1);
  EXPECT_DOUBLE_EQ(facts.at("stall_barrier"), 0.25);  // 16 x 0.5 / 0.2 = 40 cycles an instruction
  EXPECT_DOUBLE_EQ(facts.at("load_sector_bytes"), 32) << "no load wastes nothing";
  EXPECT_DOUBLE_EQ(facts.at("store_sector_bytes"), 8);
  EXPECT_DOUBLE_EQ(facts.at("local_share"), 0.5);
  EXPECT_DOUBLE_EQ(facts.at("grid_share"), 0.5);
  EXPECT_DOUBLE_EQ(facts.at("tail_factor"), 1.6);
  EXPECT_DOUBLE_EQ(facts.at("block_start_share"), 66 * 0.6 / 1000);
  EXPECT_FALSE(facts.find("issue_share_of_nothing"));
  EXPECT_EQ(facts.lacks("memory_share"), std::vector<std::string>{"counted_memory_throughput_pct"});
  EXPECT_FALSE(facts.find("busy_share")) << "of CPUs alone";

  // The same record on a machine of which nothing is known.
  const Facts unknown = diagnose::facts_of(v, "fp32 FMA peak", true, {});
  EXPECT_EQ(unknown.lacks("dram_share"), std::vector<std::string>{"machine_dram_bytes_per_s"});
  EXPECT_EQ(unknown.at("memory_limit"), 0);
  EXPECT_EQ(unknown.at("compute_limit"), 1);
  EXPECT_FALSE(unknown.find("stall_barrier"));
  EXPECT_FALSE(unknown.find("block_start_share")) << "its rate of block starts was not measured";
}

TEST(Facts, OfACpu) {
  lab::VariantRecord v;
  v.threads                 = 4;
  v.bytes_read              = 8192;
  v.metrics["cpus_busy"]    = {2, "higher"};
  v.metrics["minor_faults"] = {1, "lower"};
  const Facts facts         = diagnose::facts_of(v, "", false, {});
  EXPECT_DOUBLE_EQ(facts.at("busy_share"), 0.5);
  EXPECT_DOUBLE_EQ(facts.at("faulted_share"), 0.5);
  EXPECT_FALSE(facts.has_counters());
}

lab::ExperimentRecord with_limit(const char* backend, const char* limit, double rate) {
  lab::ExperimentRecord experiment;
  experiment.backend                                      = backend;
  experiment.points.emplace_back().limit                  = limit;
  experiment.points[0].variants.emplace_back().limit_rate = rate;
  return experiment;
}

TEST(Facts, RatesOfAMachineAreItsRecords) {
  lab::RunRecord run;
  run.manifest = R"({"machine": {"gpu": {"multiprocessors": 132, "capability": 90}}})";
  const std::vector<lab::ExperimentRecord> records = {
      with_limit("cuda", "copy bandwidth of DRAM", 3), with_limit("cuda", "read bandwidth of DRAM", 4),
      with_limit("cuda", "read bandwidth of L2 and DRAM", 9),
      with_limit("cuda", "bf16 tensor peak (our mma loop)", 900), with_limit("cuda", "fp32 FMA peak", 60)};
  const MachineRates gpu = machine_rates(run, records);
  EXPECT_EQ(gpu.dram_bytes_per_s, 4);
  EXPECT_EQ(gpu.flops_per_s, 60);
  EXPECT_EQ(gpu.multiprocessors, 132);
  EXPECT_EQ(gpu.compute_capability, 90);

  run.manifest    = "{}";
  run.experiments = {with_limit("cpu", "read bandwidth of DRAM, 1 thread", 2),
                     with_limit("cpu", "read bandwidth of DRAM, 2 threads", 3),
                     with_limit("cpu", "fp32 peak of avx2+fma, 2 threads", 8),
                     with_limit("cpu", "fp32 peak of avx2+fma, 2 threads, on each of 2 ranks", 99)};
  EXPECT_EQ(machine_rates(run, {}, 1).dram_bytes_per_s, 2);
  EXPECT_EQ(machine_rates(run, {}, 1).flops_per_s, 0);
  EXPECT_EQ(machine_rates(run, {}, 2).dram_bytes_per_s, 3);
  EXPECT_EQ(machine_rates(run, {}, 2).flops_per_s, 8);
}

}  // namespace
}  // namespace fathom::diagnose

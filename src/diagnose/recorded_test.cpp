// The diagnoses of kernels that were measured: those whose counters are in committed records, those whose
// counters their notes cite, and the records without counters.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

#include "diagnose/diagnosis.h"
#include "lab/counter_binding.h"
#include "lab/expectation.h"
#include "lab/target.h"

namespace fathom::diagnose {
namespace {

const std::string kResults = std::string(FATHOM_SOURCE_TREE) + "/results";

struct Recorded {
  std::string id, limit;
  Diagnosis diagnosis;
};

// Every timed variant of a machine's records.
std::vector<Recorded> recorded(const std::string& machine) {
  std::vector<Recorded> all;
  const auto records = lab::read_expectations(kResults, machine);
  EXPECT_TRUE(records) << records.error().message;
  if (!records) return all;
  std::vector<lab::ExperimentRecord> experiments;
  for (const lab::Expectation& record : *records)
    for (const lab::ExperimentRecord& experiment : record.record.experiments)
      experiments.push_back(experiment);
  for (const lab::Expectation& record : *records)
    for (const lab::ExperimentRecord& experiment : record.record.experiments)
      for (const lab::PointRecord& point : experiment.points)
        for (const lab::VariantRecord& variant : point.variants) {
          if (!variant.time_ns) continue;
          const bool on_gpu        = experiment.backend == "cuda";
          const MachineRates rates = machine_rates(record.record, experiments, variant.threads);
          all.push_back({lab::result_id(experiment.id, variant.id, point.at), point.limit,
                         diagnose(facts_of(variant, point.limit, on_gpu, rates), on_gpu)});
        }
  return all;
}

std::map<std::string, std::string> causes_of(const std::vector<Recorded>& all) {
  std::map<std::string, std::string> causes;
  for (const Recorded& one : all) causes[one.id] = one.diagnosis.cause();
  return causes;
}

// ch07/l2_persistence, notes.md: without a hint DRAM moves 2.96 TB/s, of which a quarter are look-ups that
// missed, so DRAM binds and traffic is the cure; evict_first moves a tenth too much and gains what it saves.
// With the window the rate falls to half and "warps wait twice as long for a load".
TEST(RecordedCounters, OfTheH100) {
  const auto all                                    = recorded("h100-80gb-hbm3");
  const auto causes                                 = causes_of(all);
  const std::map<std::string, std::string> expected = {
      {"ch07/l2_persistence/unmanaged?n=2097152&table_mib=16", "excess_traffic"},
      {"ch07/l2_persistence/evict_first?n=2097152&table_mib=16", "dram"},
      {"ch07/l2_persistence/window?n=2097152&table_mib=16", "memory_latency"},
  };
  for (const auto& [id, cause] : expected) {
    ASSERT_TRUE(causes.contains(id)) << id;
    EXPECT_EQ(causes.at(id), cause) << id;
  }
  // A record that gets counters gets an expectation here.
  for (const Recorded& one : all) {
    EXPECT_EQ(one.diagnosis.counters, expected.contains(one.id)) << one.id << ": " << one.diagnosis.cause();
  }
}

// ch19/dequantize_vectorized, notes.md: bytes_1 starts a block each 0.70 ns (its grid was not recorded then),
// the others move what they declare; what keeps bytes_4 at 0.75 has no counter in the record, so no rule may
// say.
TEST(RecordedCounters, OfTheH200) {
  const auto causes                                 = causes_of(recorded("h200"));
  const std::map<std::string, std::string> expected = {
      {"ch19/dequantize_vectorized/bytes_1?format=mxfp8&n=268435456", ""},
      {"ch19/dequantize_vectorized/bytes_4?format=mxfp8&n=268435456", ""},
      {"ch19/dequantize_vectorized/bytes_16?format=mxfp8&n=268435456", "at_memory_limit"},
      {"ch19/dequantize_vectorized/bytes_16_shuffled?format=mxfp8&n=268435456", "dram"},
      {"ch19/dequantize_vectorized/codes_8?format=mxfp8&n=268435456", "dram"},
  };
  for (const auto& [id, cause] : expected) {
    ASSERT_TRUE(causes.contains(id)) << id;
    EXPECT_EQ(causes.at(id), cause) << id;
  }
}

// Without counters only the measured limit and the declared work speak: at the limit, or a hint, or nothing.
TEST(RecordedTimes, SayNoMoreThanTheyKnow) {
  const std::map<std::string, std::vector<std::string>> allowed = {
      {"h100-80gb-hbm3",
       {"", "at_compute_limit", "at_shared_limit", "at_link_limit", "at_memory_limit", "low_intensity"}},
      {"h200",
       {"", "at_compute_limit", "at_shared_limit", "at_link_limit", "at_memory_limit", "low_intensity"}},
      {"epyc-zen4-2c",
       {"", "at_compute_limit", "at_shared_limit", "at_link_limit", "at_memory_limit", "low_intensity",
        "low_intensity_by_rule", "slow_memory", "slow_arithmetic"}}};
  for (const auto& [machine, causes] : allowed) {
    int diagnosed = 0, not_known = 0;
    for (const Recorded& one : recorded(machine)) {
      if (one.diagnosis.counters) continue;
      ++diagnosed;
      not_known += one.diagnosis.findings.empty();
      EXPECT_NE(std::find(causes.begin(), causes.end(), one.diagnosis.cause()), causes.end())
          << one.id << ": " << one.diagnosis.cause();
    }
    EXPECT_GT(diagnosed, 400) << machine;
    EXPECT_GT(not_known, 0) << machine;
    RecordProperty(machine, fmt::format("{} diagnosed, of {} nothing is known", diagnosed, not_known));
  }
}

// What notes say of these, from times alone.
TEST(RecordedTimes, FindTheBoundThatTheNotesName) {
  const std::map<std::string, std::string> expected = {
      // A copy's rate: notes of ch07/transpose_gpu.
      {"ch07/transpose_gpu/square_order?n=16384", "at_memory_limit"},
      // A quarter of the rate, for no reason that times show.
      {"ch07/transpose_gpu/naive?n=16384", ""},
      // Decoding reads the cache once: bound by DRAM's rate.
      {"ch18/decode_attention_gpu/tensor_cores?context=4096&sequences=64&window=0", "at_memory_limit"},
      {"ch09/fused_elementwise_gpu/fused?n=134217728", "at_memory_limit"},
      {"ch06/bank_conflicts/padded?tiles=16384", "at_shared_limit"},
      {"ch06/bank_conflicts/plain?tiles=16384", ""},
  };
  const auto causes = causes_of(recorded("h100-80gb-hbm3"));
  for (const auto& [id, cause] : expected) {
    ASSERT_TRUE(causes.contains(id)) << id;
    EXPECT_EQ(causes.at(id), cause) << id;
  }
}

// Counters that notes.md of these experiments cite, of profiled runs on one H200 (132 multiprocessors at 1.98
// GHz, 4.3 TB/s); what is arithmetic on them is marked. The expected cause is the notes' own.
struct Cited {
  const char* id;
  double time_us, share;
  std::map<std::string, double> counters;  // without "counted_"
  const char* cause;
};

const std::vector<Cited>& cited() {
  static const std::vector<Cited> all = {
      // "Shared memory runs at its limit"; 16384 tiles x 32 steps x (32 x 32 reads + 32 stores): arithmetic.
      {"ch06/bank_conflicts/plain",
       2182,
       0.061,
       {{"shared_bank_conflicts", 520.26e6},
        {"shared_wavefronts", 553.6e6},
        {"cycles", 2182 * 1980.0},
        {"memory_throughput_pct", 98},
        {"issue_active_pct", 3.6},
        {"warps_active_pct", 100},
        {"stall_mio_throttle", 259},
        {"stall_barrier", 80}},
       "bank_conflicts"},
      // "The last 14 %": no conflicts are left, and shared memory is still the fullest unit.
      {"ch06/bank_conflicts/padded",
       155.7,
       0.858,
       {{"shared_bank_conflicts", 90e3},
        {"shared_wavefronts", 33.55e6},
        {"cycles", 304570},
        {"issue_active_pct", 51.9},
        {"warps_active_pct", 100},
        {"stall_mio_throttle", 11.5},
        {"stall_barrier", 5.5},
        {"over_declared_bytes", 1.017}},
       "shared_bandwidth"},
      // "Both are bound by issue"; table does the same work without a branch in 337 million instructions, so
      // of 32
      // lanes 337 / 1283 work: arithmetic.
      {"ch06/divergence/branch",
       1263,
       0.215,
       {{"issue_active_pct", 97.8}, {"threads_per_instruction", 32 * 337.0 / 1283}},
       "divergence"},
      {"ch06/divergence/regrouped",
       376.3,
       0.720,
       {{"issue_active_pct", 95.2},
        {"threads_per_instruction", 32},
        {"bytes_per_sector_load", 10},
        {"over_declared_bytes", 1.03}},
       "issue"},
      // "40 % of the cycles issue nothing": not conflicts, not DRAM, not spills, and no counted stall.
      // Register banks
      // were not counted then.
      {"ch06/divergence/table",
       538.8,
       0.503,
       {{"issue_active_pct", 60.5},
        {"threads_per_instruction", 32},
        {"over_declared_bytes", 1.03},
        {"local_load_sectors", 0},
        {"l1_bytes", 1}},
       ""},
      // "The latency of 4 cycles": a warp a scheduler, which is 6.25 % (arithmetic: 1 / 0.242 cycles, one
      // warp).
      {"ch06/ilp/one_chain",
       282.7,
       0.247,
       {{"issue_active_pct", 24.2},
        {"warps_active_pct", 6.25},
        {"stall_wait", 2.85},
        {"memory_throughput_pct", 1.4}},
       "dependency_chain"},
      {"ch06/ilp/two_chains",
       144.5,
       0.483,
       {{"issue_active_pct", 46.8},
        {"warps_active_pct", 6.25},
        {"stall_wait", 0.98},
        {"memory_throughput_pct", 1.4}},
       "dependency_chain"},
      // "It is not latency, not memory": no rule may name what has no counter here.
      {"ch06/ilp/eight_chains",
       108,
       0.645,
       {{"issue_active_pct", 62.9},
        {"warps_active_pct", 6.25},
        {"stall_wait", 0.02},
        {"memory_throughput_pct", 1.4}},
       ""},
      // "Warps wait for loads (long scoreboard 10.0 of 26 cycles)"; DRAM by its share of a copy.
      {"ch06/shared_tile/global_column",
       180.7,
       0.697,
       {{"issue_active_pct", 52.7},
        {"warps_active_pct", 26 * 0.527 / 16 * 100},
        {"stall_long_scoreboard", 10},
        {"stall_lg_throttle", 3.5},
        {"dram_bytes_read", 0.697 * 4.3e12 * 180.7e-6},
        {"dram_bytes_written", 0},
        {"time_ns", 180.7e3}},
       "memory_latency"},
      // A block starts each 0.60 ns: 2,097,152 blocks of 32 threads take the whole time.
      {"ch06/block_size/threads_32",
       1263,
       0.149,
       {{"warps_active_pct", 9.9}, {"grid_size", 2097152}},
       "block_start"},
      // "The slow variants are not slow at moving bytes": 4.38 TB/s, 3.44 times what is declared.
      {"ch07/aos_soa_gpu/aos",
       444.2,
       0.30,
       {{"over_declared_bytes", 3.44},
        {"dram_bytes_read", 4.38e12 * 444.2e-6},
        {"dram_bytes_written", 0},
        {"time_ns", 444.2e3}},
       "excess_traffic"},
      // "The shares below 80 % are rows fetched again, not a slow kernel": 0.63 GB read and 1.07 written.
      {"ch07/cache_hints/plain",
       422,
       0.60,
       {{"over_declared_bytes", 1.56},
        {"dram_bytes_read", 630e6},
        {"dram_bytes_written", 1070e6},
        {"time_ns", 422e3}},
       "excess_traffic"},
      // 4 of a sector's 32 bytes, and DRAM at 0.95 TB/s.
      {"ch07/copy_coalesced/strided",
       5278,
       0.09,
       {{"bytes_per_sector_load", 4},
        {"bytes_per_sector_store", 4},
        {"over_declared_bytes", 2.33},
        {"dram_bytes_read", 2.86e9},
        {"dram_bytes_written", 2.13e9},
        {"time_ns", 5278e3}},
       "uncoalesced_loads"},
      // "The 74 % that the counters show for the busiest unit" is L1; three matrices in 22 ms leave DRAM
      // idle.
      {"ch07/matmul_tiled/naive",
       22160,
       0.097,
       {{"memory_throughput_pct", 74},
        {"dram_bytes_read", 134e6},
        {"dram_bytes_written", 67e6},
        {"time_ns", 22160e3}},
       "cache_bandwidth"},
      // "The banks are the limit": shared memory 96 % busy (0.96 x cycles x 132 wavefronts: arithmetic).
      {"ch08/histogram/vectorized",
       126,
       0.507,
       {{"shared_bank_conflicts", 19e6},
        {"shared_wavefronts", 0.96 * 126 * 1980.0 * 132},
        {"cycles", 126 * 1980.0}},
       "bank_conflicts"},
      // "No stall that has a name is above 0.03 cycles an instruction".
      {"ch08/extreme_ilp/sixteen_chains",
       100,
       0.6,
       {{"issue_active_pct", 60}, {"warps_active_pct", 6.25}, {"stall_wait", 0.03}, {"stall_dispatch", 0.03}},
       ""},
  };
  return all;
}

Diagnosis diagnose_cited(const Cited& one) {
  lab::VariantRecord variant;
  variant.time_ns.emplace().median = one.time_us * 1e3;
  variant.share_of_limit           = one.share;
  for (const auto& [name, value] : one.counters)
    variant.metrics[name == "grid_size" ? name : "counted_" + name] = {value, "lower"};
  const MachineRates h200{
      .dram_bytes_per_s = 4.3e12, .flops_per_s = 63.5e12, .multiprocessors = 132, .compute_capability = 90};
  return diagnose(facts_of(variant, "", true, h200), true);
}

TEST(CitedCounters, LeadToTheCauseOfTheNotes) {
  for (const Cited& one : cited()) {
    const Diagnosis diagnosis = diagnose_cited(one);
    EXPECT_EQ(diagnosis.cause(), one.cause) << one.id << ": " << sentence(diagnosis);
    EXPECT_TRUE(one.counters.contains("grid_size") || !diagnosis.untried.empty()) << one.id;
  }
}

// The recorded gain of the cure that the finding names lies below what the rule allows, and not far.
TEST(CitedCounters, AllowTheGainThatTheCureHad) {
  const std::map<std::string, double> gained = {{"ch06/bank_conflicts/plain", 14.02},
                                                {"ch06/divergence/branch", 3.354},
                                                {"ch06/ilp/one_chain", 2.608},
                                                {"ch07/aos_soa_gpu/aos", 3.17}};
  for (const Cited& one : cited()) {
    const auto cured = gained.find(one.id);
    if (cured == gained.end()) continue;
    const Diagnosis diagnosis = diagnose_cited(one);
    ASSERT_TRUE(diagnosis.findings.at(0).gain) << one.id;
    EXPECT_LT(cured->second, diagnosis.findings[0].gain->hi) << one.id;
    EXPECT_GT(cured->second, 0.6 * diagnosis.findings[0].gain->hi) << one.id;
  }
}

}  // namespace
}  // namespace fathom::diagnose

// Tries every known way to cheat. The defence built for each must catch it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "adversarial/cheats.h"
#include "adversarial/gpu_cheats.h"
#include "adversarial/python_variants.h"
#include "lab/check.h"
#include "lab/child_main.h"
#include "lab/counter_binding.h"
#include "lab/experiment.h"
#include "lab/run_experiments.h"
#include "machine/ceilings.h"

namespace fathom::lab {
namespace {

RunRecord run(const RunOptions& options, const ProgressSink& sink) {
  if (needs_cpu_ceilings(options)) machine::ceilings();  // not inside the first experiment
  RunRecord record;
  run_experiments(options, [&](const Progress& progress) {
    sink(progress);
    if (progress.finished) record.experiments.push_back(*progress.finished);
  });
  return record;
}

RunRecord run_one(const std::string& experiment, RunOptions options = {}) {
  options.targets = {{experiment, {}}};
  options.quick   = true;
  if (options.repeat == 0) options.repeat = 20;
  if (options.seed == 0) options.seed = 20261121;
  return run(options, [](const Progress&) {});
}

const VariantRecord& variant(const RunRecord& run, const std::string& id) {
  for (const auto& point : run.experiments.at(0).points)
    for (const auto& variant : point.variants)
      if (variant.id == id) return variant;
  ADD_FAILURE() << "no variant " << id << "; " << run.experiments.at(0).detail;
  static const VariantRecord none;
  return none;
}

struct Cheat {
  const char* name;
  const char* defence;
  Outcome outcome;
};

class Cheats : public testing::TestWithParam<Cheat> {};

TEST_P(Cheats, IsCaughtByItsDefence) {
  const Cheat& cheat     = GetParam();
  const RunRecord run    = run_one(std::string("cheats/") + cheat.name);
  const VariantRecord& v = variant(run, cheat.name);
  EXPECT_EQ(v.caught_by.value_or("(nothing)"), cheat.defence) << v.detail;
  EXPECT_EQ(to_string(v.status), to_string(cheat.outcome)) << v.detail;
  EXPECT_EQ(v.verdict.value_or(""), "INVALID");
  const PointRecord& point = run.experiments[0].points.at(0);
  EXPECT_FALSE(v.time_ns.has_value())
      << "what was caught has no time, but it took " << v.time_ns->median << " ns in samples of "
      << point.calls_per_sample << " calls, with a floor of " << point.floor_ns.value_or(0) << " ns";
  EXPECT_FALSE(v.detail.empty());
  EXPECT_EQ(exit_code(run), cheat.outcome == Outcome::invalid ? 3 : 2);
  if (std::string(cheat.name) != "aliases_input") {
    EXPECT_EQ(to_string(variant(run, "baseline").status), "ok") << variant(run, "baseline").detail;
  }
}

INSTANTIATE_TEST_SUITE_P(All, Cheats,
                         testing::Values(Cheat{"skipped_work", "floor", Outcome::invalid},
                                         Cheat{"cached_output_by_pointer", "fresh_inputs", Outcome::wrong},
                                         Cheat{"memo_by_value", "fresh_inputs", Outcome::invalid},
                                         Cheat{"stale_output", "poison", Outcome::wrong},
                                         Cheat{"output_not_written", "poison", Outcome::wrong},
                                         Cheat{"detached_thread", "thread_audit", Outcome::invalid},
                                         Cheat{"precompute_in_prepare", "fresh_inputs", Outcome::wrong},
                                         Cheat{"input_mutated", "input_checksum", Outcome::wrong},
                                         Cheat{"out_of_bounds_write", "guard_band", Outcome::wrong},
                                         Cheat{"aliases_input", "overlap", Outcome::wrong},
                                         Cheat{"lower_precision", "tolerance", Outcome::wrong},
                                         Cheat{"nan_output", "nan", Outcome::wrong},
                                         Cheat{"constant_output", "reference", Outcome::wrong},
                                         Cheat{"truncated_work", "reference", Outcome::wrong},
                                         Cheat{"warm_up_only", "timed_check", Outcome::wrong},
                                         Cheat{"compiler_removed_work", "floor", Outcome::invalid},
                                         Cheat{"wrong_shape", "contract", Outcome::wrong},
                                         Cheat{"whole_output_tile", "whole_output", Outcome::wrong},
                                         Cheat{"session_empty", "unanswered", Outcome::wrong},
                                         Cheat{"fp_mode_left", "thread_state", Outcome::invalid},
                                         Cheat{"environment_left", "thread_state", Outcome::invalid},
                                         Cheat{"affinity_left", "thread_state", Outcome::invalid},
                                         Cheat{"input_restored", "read_only_inputs", Outcome::wrong},
                                         Cheat{"undeclared_thread", "thread_audit", Outcome::invalid},
                                         Cheat{"helper_process", "thread_audit", Outcome::invalid},
                                         Cheat{"reads_anothers_answer", "fresh_inputs", Outcome::invalid}),
                         [](const auto& info) { return info.param.name; });

// 17. No declaration takes a tolerance: neither an experiment, nor a variant, nor a reference.
template <class T>
concept TakesATolerance = requires {
  T{.tolerance = 1e-2};
};
struct AnyProblem {
  AnyProblem(const Point&, Arena&) {}
};
static_assert(!TakesATolerance<Experiment<AnyProblem>>);
static_assert(!TakesATolerance<Variant<AnyProblem>>);
static_assert(!TakesATolerance<Sum>);
static_assert(!TakesATolerance<Checker::Options>);
template <class T>
concept TakesAnId = requires {
  T{.id = "x"};
};
static_assert(TakesAnId<Variant<AnyProblem>>, "the question above can be answered with yes");

TEST(HandTypedTolerance, IsRefusedByTheInterface) {
  SUCCEED() << "proved by the static_asserts above when this file compiles";
}

// Its check points have 0 to 37 rows, its timed point 64.
TEST(Honest, AVariantIsNotCheckedBeyondItsUpTo) {
  const RunRecord run = run_one("cheats/few_rows", {.repeat = 3});
  const auto& v       = variant(run, "few_rows");
  EXPECT_EQ(to_string(v.status), "skipped") << v.detail;
  ASSERT_TRUE(v.skip);
  EXPECT_EQ(v.skip->reason, "beyond_up_to");
  EXPECT_EQ(to_string(variant(run, "baseline").status), "ok") << variant(run, "baseline").detail;
}

TEST(Honest, TwinOfTheBaselineIsNotAccused) {
  // On a busy machine rounds are correlated and carry less information: run enough of them for an interval.
  const RunRecord run = run_one("cheats/honest_twin", {.repeat = 200});
  const auto& v       = variant(run, "honest_twin");
  EXPECT_EQ(to_string(v.status), "ok") << v.detail;
  EXPECT_EQ(to_string(variant(run, "baseline").status), "ok") << variant(run, "baseline").detail;
  EXPECT_TRUE(v.time_ns && v.ratio && v.verdict) << "it has a time, a ratio and a verdict";
  ASSERT_TRUE(v.checked);
  EXPECT_GE(v.checked->timed_calls, 7);
  EXPECT_EQ(exit_code(run), 0);
  const Metric& written = v.metrics.at("rows_written");  // that the problem reports of a call
  EXPECT_EQ(written.value, static_cast<double>(run.experiments[0].points.at(0).at["rows"]));
  EXPECT_EQ(written.better, "higher");
}

// Each does what a cheat does, and undoes it or says so.
class HonestTwins : public testing::TestWithParam<const char*> {};
TEST_P(HonestTwins, AreNotAccused) {
  const RunRecord run = run_one(std::string("cheats/") + GetParam(), {.repeat = 60});
  const auto& v       = variant(run, GetParam());
  EXPECT_EQ(to_string(v.status), "ok") << v.caught_by.value_or("") << ": " << v.detail;
  EXPECT_TRUE(v.time_ns.has_value());
  EXPECT_EQ(exit_code(run), 0);
}
INSTANTIATE_TEST_SUITE_P(All, HonestTwins,
                         testing::Values("fp_mode_restored", "environment_restored",
                                         "environment_of_a_library", "affinity_restored", "declared_threads",
                                         "beside_a_memo"),
                         [](const auto& info) { return std::string(info.param); });

// A record whose counters were taken elsewhere than its times. Who reads the record finds out.
class StaleCounter : public testing::Test {
 protected:
  RunRecord counted() {
    static const RunRecord measured = run_one("cheats/honest_twin");
    RunRecord run                   = measured;
    run.machine                     = "this machine";
    run.experiments[0].source_hash  = "0123456789abcdef";
    double bytes                    = 262144;
    for (VariantRecord& v : run.experiments[0].points[0].variants)
      v.metrics["counted_dram_bytes_read"] = {bytes += 4096, "lower"};
    bind_counters(run.machine, run.experiments[0]);
    return run;
  }
  static VariantRecord& twin(RunRecord& run) { return run.experiments[0].points[0].variants[1]; }
  static RunRecord read(const RunRecord& run) { return *run_from_json(to_json(run)); }
  static void expect_caught(const RunRecord& run, const char* what) {
    RunRecord seen         = read(run);
    const VariantRecord& v = twin(seen);
    EXPECT_EQ(v.caught_by.value_or("(nothing)"), "counter_binding") << what;
    EXPECT_EQ(v.verdict.value_or(""), "INVALID") << what;
    EXPECT_EQ(v.metrics.count("counted_dram_bytes_read"), 0u) << what;
    EXPECT_EQ(exit_code(seen), 3) << what;
  }
};

TEST_F(StaleCounter, IsCaughtByItsBinding) {
  RunRecord run                  = counted();
  run.experiments[0].source_hash = "fedcba9876543210";
  expect_caught(run, "another build");
  run         = counted();
  run.machine = "another machine";
  expect_caught(run, "another machine");
  run                             = counted();
  run.experiments[0].points[0].at = Point({{"rows", int64_t{128}}, {"cols", int64_t{1024}}});
  expect_caught(run, "another point");
  run = counted();
  twin(run).time_ns->median *= 1.01;
  expect_caught(run, "the time of another run");
  run                         = counted();
  const VariantRecord& other  = run.experiments[0].points[0].variants[0];
  twin(run).metrics           = other.metrics;
  twin(run).counters_bound_to = other.counters_bound_to;
  expect_caught(run, "another variant");
  run = counted();
  twin(run).metrics["counted_dram_bytes_read"].value /= 2;
  expect_caught(run, "another value");
  run                         = counted();
  twin(run).counters_bound_to = "";
  expect_caught(run, "taken from nowhere");
}

TEST_F(StaleCounter, CountersOfTheSameRunAreNotAccused) {
  RunRecord run = counted();
  EXPECT_EQ(to_json(read(run)), to_json(run));
  run.experiments[0] = committed(run.experiments[0]);
  RunRecord record   = read(run);
  EXPECT_EQ(to_string(twin(record).status), "ok") << twin(record).detail;
  EXPECT_EQ(twin(record).metrics.count("counted_dram_bytes_read"), 1u) << "in the committed record too";
}

TEST(LimitOfOtherIsa, IsCaughtByThePeakOfItsInstructions) {
  if (const auto missing = machine::missing(machine::Feature::avx512f)) GTEST_SKIP() << "needs " << *missing;
  const RunRecord run  = run_one("cheats/limit_of_other_isa", {.repeat = 60});
  const auto& cheat    = variant(run, "limit_of_other_isa");
  const auto& declares = variant(run, "declared_isa");
  const auto& baseline = variant(run, "baseline");
  // Zen 4 executes 512 bits in two halves: then there is nothing to gain, and nothing to catch.
  ASSERT_TRUE(declares.limit_rate && baseline.limit_rate);
  if (*declares.limit_rate < 1.1 * *baseline.limit_rate)
    GTEST_SKIP() << "AVX-512 is no faster than AVX2 here: " << *declares.limit_rate << " and "
                 << *baseline.limit_rate << " flops a second";
  EXPECT_EQ(cheat.caught_by.value_or("(nothing)"), "peak") << cheat.share_of_limit.value_or(0);
  EXPECT_FALSE(cheat.time_ns.has_value()) << "what was caught has no time";
  EXPECT_EQ(to_string(baseline.status), "ok") << baseline.detail;
  EXPECT_EQ(to_string(declares.status), "ok") << declares.detail;
  EXPECT_LE(declares.share_of_limit.value_or(9), 1.02) << "the same code, measured by the peak of AVX-512";
}

// Every sample of every variant came from a process of its own.
void expect_process_rounds(const RunRecord& run, const std::string& id, size_t rounds) {
  ASSERT_EQ(run.experiments.at(0).points.size(), 1u) << run.experiments.at(0).detail;
  EXPECT_EQ(run.experiments.at(0).points[0].cache, "cold_process");
  for (const std::string& each : {std::string("baseline"), id}) {
    const VariantRecord& v = variant(run, each);
    EXPECT_EQ(to_string(v.status), "ok") << v.detail;
    EXPECT_EQ(v.samples_ns.size(), rounds);
  }
  EXPECT_TRUE(variant(run, id).verdict.has_value());
}

TEST(ProcessRounds, AVariantThatDeclaresThem) {
  const RunRecord run = run_one("processes/first_calls", {.repeat = 3});
  expect_process_rounds(run, "own_process", 3);
  const VariantRecord& wrong = variant(run, "nan_output");
  EXPECT_EQ(to_string(wrong.status), "wrong") << "the check points come first";
  EXPECT_EQ(wrong.caught_by.value_or("(nothing)"), "nan");
  EXPECT_FALSE(wrong.time_ns.has_value());
}

TEST(ProcessRounds, WhatTheFirstUseCostsIsToldApart) {
  const RunRecord run         = run_one("processes/first_calls", {.cold_start = true, .repeat = 3});
  const VariantRecord& honest = variant(run, "baseline");
  const VariantRecord& table  = variant(run, "table_at_first_call");
  ASSERT_TRUE(honest.time_ns && table.time_ns) << honest.detail << table.detail;
  for (const VariantRecord* v : {&honest, &table})
    for (const char* part : {"process_start_ns", "inputs_ns", "later_call_ns"}) {
      ASSERT_EQ(v->metrics.count(part), 1u) << v->id << " " << part;
      EXPECT_GT(v->metrics.at(part).value, 0) << v->id << " " << part;
    }
  EXPECT_EQ(honest.metrics.count("device_start_ns"), 0u) << "there is no GPU in it";
  // Four million sines against a few thousand products.
  EXPECT_GT(table.time_ns->median, 10 * table.metrics.at("later_call_ns").value);
  EXPECT_LT(table.metrics.at("later_call_ns").value, 10e6) << "the table was built once";
  // A new process takes longer than the work of one of its calls.
  EXPECT_GT(honest.metrics.at("process_start_ns").value, honest.metrics.at("later_call_ns").value);
}

TEST(ProcessRounds, ColdStart) {
  expect_process_rounds(run_one("cheats/honest_twin", {.cold_start = true, .repeat = 3}), "honest_twin", 3);
}

void expect_death(const std::string& name, Outcome outcome, RunOptions options) {
  const RunRecord run = run_one("deaths/" + name, options);
  EXPECT_EQ(to_string(variant(run, name).status), to_string(outcome)) << variant(run, name).detail;
  EXPECT_EQ(to_string(variant(run, "bystander").status), "ok") << variant(run, "bystander").detail;
  EXPECT_TRUE(variant(run, "bystander").time_ns.has_value()) << "the rest of the experiment completes";
  EXPECT_EQ(exit_code(run), 6);
}

TEST(Deaths, SegmentationFault) { expect_death("segfault", Outcome::crashed, {}); }
TEST(Deaths, SleepForEver) {
  expect_death("sleeps_for_ever", Outcome::timeout, {.timeout_multiplier = 0.03});
}
TEST(Deaths, AllocationWithoutEnd) {
  expect_death("allocates_without_end", Outcome::oom, {.memory_limit_bytes = int64_t{400} << 20});
}

TEST(Deaths, TheRestOfTheSuiteCompletes) {
  RunOptions options{.targets = {{"deaths/segfault", {}}, {"cheats/honest_twin", {}}},
                     .quick   = true,
                     .repeat  = 20,
                     .seed    = 5};
  int finished        = 0;
  const RunRecord all = run(options, [&](const Progress& p) { finished += p.finished != nullptr; });
  EXPECT_EQ(finished, 2);
  EXPECT_EQ(to_string(all.experiments.at(1).status), "ok");
}

class GpuCheats : public testing::TestWithParam<Cheat> {};

// This process must not touch CUDA: it only knows what its children report.
bool without_gpu(const RunRecord& run) {
  const auto& points = run.experiments.at(0).points;
  return !points.empty() &&
         std::all_of(points[0].variants.begin(), points[0].variants.end(), [](const auto& v) {
           return v.status == Outcome::skipped && v.skip && v.skip->reason == "needs_cuda";
         });
}

TEST_P(GpuCheats, IsCaughtByItsDefence) {
  const Cheat& cheat  = GetParam();
  const RunRecord run = run_one(std::string("cheats/gpu_") + cheat.name);
  if (without_gpu(run)) GTEST_SKIP() << "needs a CUDA build and a GPU";
  const VariantRecord& v = variant(run, cheat.name);
  EXPECT_EQ(v.caught_by.value_or("(nothing)"), cheat.defence) << v.detail;
  EXPECT_EQ(to_string(v.status), to_string(cheat.outcome)) << v.detail;
  EXPECT_FALSE(v.time_ns.has_value()) << "what was caught has no time";
  EXPECT_EQ(to_string(variant(run, "baseline").status), "ok") << variant(run, "baseline").detail;
}

INSTANTIATE_TEST_SUITE_P(All, GpuCheats,
                         testing::Values(Cheat{"other_stream", "all_streams", Outcome::invalid},
                                         Cheat{"unfinished_at_end", "all_streams", Outcome::invalid},
                                         Cheat{"fewer_graph_nodes", "poison", Outcome::wrong},
                                         Cheat{"memo_on_device", "fresh_inputs", Outcome::wrong},
                                         Cheat{"never_written", "poison", Outcome::wrong},
                                         Cheat{"persistence_left_on", "l2_persistence", Outcome::invalid},
                                         Cheat{"waits_undeclared", "declared_sync", Outcome::invalid}),
                         [](const auto& info) { return info.param.name; });

TEST(GpuHonest, TwinOfTheBaselineIsNotAccused) {
  const RunRecord run = run_one("cheats/gpu_honest_twin");
  if (without_gpu(run)) GTEST_SKIP() << "needs a CUDA build and a GPU";
  const auto& v = variant(run, "honest_twin");
  EXPECT_EQ(to_string(v.status), "ok") << v.detail;
  EXPECT_TRUE(v.time_ns.has_value()) << v.detail;
  EXPECT_TRUE(v.ratio.has_value()) << v.detail;
  EXPECT_TRUE(v.share_of_limit.has_value()) << v.detail;
  EXPECT_EQ(exit_code(run), 0);
}

// A lost device fails the variant that lost it and no other.
TEST(GpuDeaths, LostDevice) {
  const RunRecord run = run_one("deaths/loses_the_device");
  if (without_gpu(run)) GTEST_SKIP() << "needs a CUDA build and a GPU";
  EXPECT_EQ(to_string(variant(run, "loses_the_device").status), "crashed");
  EXPECT_NE(variant(run, "loses_the_device").detail.find("cudaError"), std::string::npos)
      << variant(run, "loses_the_device").detail;
  EXPECT_EQ(to_string(variant(run, "bystander").status), "ok") << variant(run, "bystander").detail;
}

// When the parent is killed, its children die too.
TEST(Deaths, KilledParent) {
  const pid_t parent = fork();
  if (parent == 0) {
    run_one("deaths/sleeps_for_ever", {.timeout_multiplier = 10});
    _exit(0);
  }
  pid_t child = 0;
  for (int i = 0; i < 300 && child == 0; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::ifstream children("/proc/" + std::to_string(parent) + "/task/" + std::to_string(parent) +
                           "/children");
    children >> child;
  }
  ASSERT_GT(child, 0) << "the run started no process";
  ASSERT_EQ(kill(parent, SIGKILL), 0);
  waitpid(parent, nullptr, 0);
  bool gone = false;
  for (int i = 0; i < 100 && !gone; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::ifstream stat("/proc/" + std::to_string(child) + "/stat");
    std::string pid, name, state;
    gone = !(stat >> pid >> name >> state) || state == "Z";
  }
  EXPECT_TRUE(gone);
}

// ---- variants in a Python process

TEST(PythonVariant, IsTimedAndVerifiedLikeAnyOther) {
  const RunRecord run    = run_one("python/plain");
  const VariantRecord& v = variant(run, "plain");
  EXPECT_EQ(to_string(v.status), "ok") << v.detail;
  ASSERT_TRUE(v.time_ns.has_value());
  EXPECT_GT(v.time_ns->median, variant(run, "baseline").time_ns.value_or(Spread{}).median) << "interpreted";
  EXPECT_GE(v.samples_ns.size(), 12u);
  EXPECT_GE(v.checked.value_or(Checked{}).timed_calls, 7);
  EXPECT_GT(v.prepare_ns.value_or(0), 0) << "the script's own preparation";
  EXPECT_EQ(v.library, "row_sums 1.0, how=plain");
  EXPECT_EQ(exit_code(run), 0);
}

class PythonFaults : public testing::TestWithParam<Cheat> {};

TEST_P(PythonFaults, AreTypedAndHarmNobodyElse) {
  const Cheat& fault     = GetParam();
  const auto began       = std::chrono::steady_clock::now();
  const RunRecord run    = run_one(std::string("python/") + fault.name);
  const VariantRecord& v = variant(run, fault.name);
  EXPECT_EQ(v.caught_by.value_or("(nothing)"), fault.defence) << v.detail;
  EXPECT_EQ(to_string(v.status), to_string(fault.outcome)) << v.detail;
  EXPECT_FALSE(v.time_ns.has_value());
  EXPECT_FALSE(v.detail.empty());
  for (const char* other : {"baseline", "bystander"}) {
    EXPECT_EQ(to_string(variant(run, other).status), "ok") << variant(run, other).detail;
    EXPECT_TRUE(variant(run, other).time_ns.has_value());
  }
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(40));
}

INSTANTIATE_TEST_SUITE_P(All, PythonFaults,
                         testing::Values(Cheat{"wrong", "reference", Outcome::wrong},
                                         Cheat{"unwritten", "poison", Outcome::wrong},
                                         Cheat{"false_time", "parent_clock", Outcome::invalid},
                                         Cheat{"raises", "exception", Outcome::crashed},
                                         Cheat{"dies", "exception", Outcome::crashed},
                                         Cheat{"hangs", "deadline", Outcome::timeout}),
                         [](const auto& info) { return info.param.name; });

TEST(PythonVariant, WhatItLacksIsASkip) {
  const RunRecord run    = run_one("python/missing_module");
  const VariantRecord& v = variant(run, "missing_module");
  EXPECT_EQ(to_string(v.status), "skipped") << v.detail;
  EXPECT_EQ(v.skip.value_or(Skip{}).reason, "needs_library");
  EXPECT_NE(v.skip.value_or(Skip{}).need.find("no_module_of_this_name"), std::string::npos) << v.skip->need;
  EXPECT_EQ(to_string(variant(run, "bystander").status), "ok");
  EXPECT_EQ(exit_code(run), 0);
}

TEST(PythonVariant, WithoutPythonItIsASkip) {
  const std::string path = std::getenv("PATH");
  setenv("PATH", "/nowhere", 1);
  const RunRecord run = run_one("python/plain");
  setenv("PATH", path.c_str(), 1);
  EXPECT_EQ(to_string(variant(run, "plain").status), "skipped");
  EXPECT_EQ(variant(run, "plain").skip.value_or(Skip{}).need.substr(0, 7), "python3");
}

}  // namespace
}  // namespace fathom::lab

int main(int argc, char** argv) {
  fathom::lab::register_cheats();
  fathom::lab::register_gpu_cheats();
  fathom::lab::register_python_variants();
  if (argc > 1 && std::string(argv[1]) == "__experiment") return fathom::lab::child_main(argc, argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

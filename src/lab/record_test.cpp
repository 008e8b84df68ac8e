#include "lab/record.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/atomic_file.h"
#include "lab/counter_binding.h"
#include "lab/json_text.h"

namespace fathom::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "fathom_record_XXXXXX").string();
    path_            = mkdtemp(name.data());
  }
  ~Folder() { fs::remove_all(path_); }
  fs::path operator/(const char* name) const { return path_ / name; }
  std::string string() const { return path_.string(); }

 private:
  fs::path path_;
};

RunRecord full_run() {
  VariantRecord baseline{.id = "naive", .kind = "baseline", .time_ns = Spread{1.3e5, 1.29e5, 1.31e5, 1.28e5}};
  VariantRecord tiled{.id             = "tiled",
                      .kind           = "optimized",
                      .idea           = "blocks that fit L1",
                      .techniques     = {"tiling"},
                      .threads        = 2,
                      .caught_by      = "floor",
                      .invalid_reason = "below the floor",
                      .time_ns        = Spread{6.5e4, 6.4e4, 6.6e4, 6.3e4, 6.35e4, 6.9e4, 120, 0.25},
                      .wall_ns        = 6.6e4,
                      .prepare_ns     = 1e3,
                      .ratio          = Ratio{2.0, 1.95, 2.05},
                      .verdict        = "FASTER",
                      .share_of_limit = 0.8,
                      .limit_rate     = 2.1e10,
                      .bytes_read     = 67108864,
                      .bytes_written  = 67108864,
                      .flops          = 12,
                      .checked        = Checked{7, 7168, 1e-7, 2e-7},
                      .prediction     = PredictionScore{"share >= 0.8", true},
                      .metrics        = {{"bytes_per_s", {2e10, "higher"}}},
                      .samples_ns     = {6.5e4, 6.4e4, 65000.5}};
  VariantRecord skipped{.id      = "cuda",
                        .kind    = "library",
                        .library = "a library 1.0, its flags",
                        .status  = Outcome::skipped,
                        .skip    = Skip{"needs_cuda", ""},
                        .detail  = "no GPU"};
  PointRecord point{.at               = Point({{"dtype", "f32"}, {"n", int64_t{4096}}, {"theta", 0.5}}),
                    .cache            = "rotated",
                    .clock            = "cpu",
                    .limit            = "copy bandwidth, DRAM",
                    .floor_ns         = 4e4,
                    .baseline         = "naive",
                    .rounds           = 120,
                    .calls_per_sample = 3,
                    .stopped          = "precision",
                    .aa               = AaControl{0.998, 1.003, false},
                    .noise            = {{"steal_ms", 1.5}},
                    .variants         = {baseline, tiled, skipped}};
  ExperimentRecord experiment{.id          = "ch07/transpose_cpu",
                              .question    = "why \"tile\"?",
                              .source_hash = "0123456789abcdef",
                              .catalog     = {"memory-002"},
                              .group       = "transpose",
                              .seconds     = 2.5,
                              .points      = {point}};
  return {.label       = "ch07",
          .started     = "2026-01-02T03:04:05Z",
          .machine     = "box",
          .manifest    = R"({"argv":["fathom","run"]})",
          .experiments = {experiment}};
}

TEST(Record, EveryFieldSurvivesWritingAndReading) {
  const json written = to_json(full_run());
  const auto read    = run_from_json(json::parse(json_text(written)));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(*read), written);

  const VariantRecord& tiled = read->experiments.at(0).points.at(0).variants.at(1);
  EXPECT_EQ(tiled.techniques, std::vector<std::string>{"tiling"});
  EXPECT_EQ(read->experiments[0].points[0].variants.at(2).library, "a library 1.0, its flags");
  EXPECT_EQ(tiled.time_ns->autocorrelation, 0.25);
  EXPECT_EQ(tiled.checked->elements, 7168);
  EXPECT_EQ(tiled.prediction->held, true);
  EXPECT_EQ(tiled.metrics.at("bytes_per_s").better, "higher");
  EXPECT_EQ(tiled.samples_ns, (std::vector<double>{6.5e4, 6.4e4, 65000.5}));
  const PointRecord& point = read->experiments[0].points[0];
  EXPECT_EQ(point.at["n"], 4096);
  EXPECT_EQ(point.at.text("dtype"), "f32");
  EXPECT_EQ(point.at.real("theta"), 0.5);
  EXPECT_EQ(point.variants[2].skip->reason, "needs_cuda");
  EXPECT_EQ(read->experiments[0].group, "transpose");
  EXPECT_EQ(json::parse(read->manifest)["argv"][1], "run");
}

TEST(Record, HoldsTheFieldsOfTheStableCore) {
  const json run    = to_json(full_run());
  const json& point = run["experiments"][0]["points"][0];
  const json& naive = point["variants"][0];
  EXPECT_EQ(run["schema"], "fathom.results/1");
  EXPECT_EQ(run["machine"]["id"], "box");
  for (const char* name : {"at", "cache", "limit", "floor_ns", "rounds", "stopped", "aa", "variants"})
    EXPECT_TRUE(point.contains(name)) << name;
  for (const char* name :
       {"id", "kind", "status", "skip", "time_ns", "ratio", "verdict", "invalid_reason", "caught_by",
        "share_of_limit", "bytes_read", "bytes_written", "flops", "checked", "prediction", "metrics"})
    EXPECT_TRUE(naive.contains(name)) << name;
  EXPECT_TRUE(naive["ratio"].is_null());  // absent is null, not 0 and not missing
}

TEST(Record, WhatIsNotANumberIsAbsent) {
  RunRecord run                       = full_run();
  VariantRecord& tiled                = run.experiments[0].points[0].variants[1];
  tiled.time_ns->median               = kNan;
  tiled.ratio->hi                     = std::numeric_limits<double>::infinity();
  tiled.share_of_limit                = kNan;
  tiled.samples_ns                    = {1, kNan, 3};
  run.experiments[0].points[0].aa->lo = kNan;
  const std::string text              = json_text(to_json(run));
  EXPECT_EQ(text.find("nan"), std::string::npos);
  EXPECT_EQ(text.find("inf"), std::string::npos);
  const auto read = run_from_json(json::parse(text));
  ASSERT_TRUE(read) << read.error().message;
  const VariantRecord& back = read->experiments[0].points[0].variants[1];
  EXPECT_FALSE(back.time_ns);
  EXPECT_FALSE(back.ratio);
  EXPECT_FALSE(back.share_of_limit);
  EXPECT_FALSE(read->experiments[0].points[0].aa);
  ASSERT_EQ(back.samples_ns.size(), 3u);  // rounds keep their places
  EXPECT_TRUE(std::isnan(back.samples_ns[1]));
}

TEST(Record, ReadersIgnoreUnknownFieldsAndAcceptMissingOnes) {
  const auto run = run_from_json(json::parse(
      R"({"schema": "fathom.results/1", "colour": "blue", "experiments": [{"id": "ch07/x", "mood": {},
          "points": [{"variants": [{"id": "a", "smell": [1], "bytes_read": 6.7e7}]}]}]})"));
  ASSERT_TRUE(run) << run.error().message;
  EXPECT_EQ(run->experiments[0].points[0].variants[0].bytes_read, 67000000);
  EXPECT_FALSE(run->experiments[0].points[0].variants[0].time_ns);
}

TEST(Record, BrokenFilesNameThePlace) {
  const auto message = [](const char* text) {
    const auto run = run_from_json(json::parse(text));
    return run ? "it was read" : run.error().message;
  };
  EXPECT_NE(message("[]").find("the file: expected an object, found array"), std::string::npos);
  EXPECT_NE(message("{}").find("schema"), std::string::npos);
  EXPECT_NE(message(R"({"schema": "fathom.results/2"})").find("newer"), std::string::npos);
  EXPECT_NE(
      message(R"({"schema": "fathom.results/1", "experiments": 3})").find("experiments: expected a list"),
      std::string::npos);
  EXPECT_NE(message(R"({"schema": "fathom.results/1", "experiments": [{}]})").find("experiments[0].id"),
            std::string::npos);
  const std::string status = message(
      R"({"schema": "fathom.results/1", "experiments": [{"id": "x", "points": [{"variants":
          [{"id": "a", "status": "great"}]}]}]})");
  EXPECT_NE(status.find("experiments[0].points[0].variants[0].status: 'great'"), std::string::npos) << status;
  EXPECT_NE(status.find("timeout"), std::string::npos) << "it lists what there is";
}

TEST(Record, ReadsAFileOrItsFolderAndSaysWhatIsWrongWithOthers) {
  const Folder folder;
  write_file_atomically((folder / "results.json").string(), json_text(to_json(full_run())));
  EXPECT_TRUE(read_run(folder.string()));
  EXPECT_TRUE(read_run((folder / "results.json").string()));

  const auto missing = read_run((folder / "absent.json").string());
  ASSERT_FALSE(missing);
  EXPECT_NE(missing.error().message.find("absent.json"), std::string::npos);
  for (const char* broken : {"", "{\"schema\": \"fathom.res", "\0\0\0", "results"}) {
    write_file_atomically((folder / "broken.json").string(), broken);
    const auto run = read_run((folder / "broken.json").string());
    ASSERT_FALSE(run) << broken;
    EXPECT_NE(run.error().message.find("broken.json is not JSON"), std::string::npos) << run.error().message;
  }
}

TEST(Committed, HoldsQuantilesInPlaceOfSamples) {
  RunRecord run = full_run();
  auto& samples = run.experiments[0].points[0].variants[1].samples_ns;
  samples.clear();
  for (int i = 400; i > 0; --i) samples.push_back(1000 + i);  // 1001..1400
  const VariantRecord summary = committed(run.experiments[0]).points[0].variants[1];
  EXPECT_TRUE(summary.samples_ns.empty());
  ASSERT_EQ(summary.quantiles_ns.size(), 64u);
  EXPECT_TRUE(std::is_sorted(summary.quantiles_ns.begin(), summary.quantiles_ns.end()));
  EXPECT_EQ(summary.quantiles_ns.front(), 1001);
  EXPECT_EQ(summary.quantiles_ns.back(), 1400);
  for (size_t i = 0; i < 64; ++i) EXPECT_NEAR(summary.quantiles_ns[i], 1001 + 399 * i / 63., 0.51) << i;
  EXPECT_EQ(committed(committed(run.experiments[0])).points[0].variants[1].quantiles_ns.size(), 64u);
}

// Points of `variants` variants, each with all there is to say.
ExperimentRecord large(int points, int variants) {
  ExperimentRecord experiment = full_run().experiments[0];
  PointRecord point           = experiment.points[0];
  const VariantRecord told    = point.variants[1];
  point.variants.clear();
  for (int v = 0; v < variants; ++v) {
    VariantRecord variant = told;
    variant.id            = "register_blocked_" + std::to_string(v);
    variant.caught_by.reset();
    variant.invalid_reason.reset();
    variant.samples_ns.clear();
    for (int i = 0; i < 400; ++i) variant.samples_ns.push_back(1.23456789e6 * (v + 1) + i * 317.77);
    point.variants.push_back(variant);
  }
  experiment.points.assign(static_cast<size_t>(points), point);
  return experiment;
}

TEST(Committed, StaysNear16KilobytesByTellingLessOfEach) {
  const auto size = [](const ExperimentRecord& experiment) {
    return record_text(to_json(experiment)).size();
  };
  const ExperimentRecord small = committed(large(1, 8)), ladder = committed(large(3, 10));
  EXPECT_LE(size(small), 16u * 1024);
  EXPECT_EQ(small.points[0].variants[7].quantiles_ns.size(), 64u);
  EXPECT_LE(size(ladder), 18u * 1024);  // what was checked is not left out
  EXPECT_TRUE(ladder.points[0].variants[0].quantiles_ns.empty());
  EXPECT_TRUE(ladder.points[0].variants[0].time_ns);
  EXPECT_TRUE(ladder.points[0].variants[0].ratio);
  const ExperimentRecord middle = committed(large(1, 14));
  EXPECT_LE(size(middle), 16u * 1024);
  EXPECT_FALSE(middle.points[0].variants[0].quantiles_ns.empty());
  EXPECT_LT(middle.points[0].variants[0].quantiles_ns.size(), 64u);
}

TEST(Committed, LeavesOutWhatIsBeyondAVariantWhereSpaceIsShort) {
  for (const int variants : {4, 20}) {
    ExperimentRecord experiment = large(4, variants);
    VariantRecord& beyond       = experiment.points[3].variants[1];
    beyond.status               = Outcome::skipped;
    beyond.skip                 = Skip{"beyond_up_to", "n <= 4096"};
    const bool is_short         = variants == 20;
    EXPECT_EQ(committed(experiment).points[3].variants.size(),
              static_cast<size_t>(is_short ? variants - 1 : variants));
  }
}

// A record without evidence that it was checked says nothing.
TEST(Committed, KeepsWhatWasCheckedWhateverTheSize) {
  const ExperimentRecord huge = committed(large(6, 20));
  EXPECT_GT(record_text(to_json(huge)).size(), 16u * 1024);
  for (const PointRecord& point : huge.points)
    for (const VariantRecord& variant : point.variants) {
      ASSERT_TRUE(variant.checked);
      EXPECT_EQ(variant.checked->elements, 7168);
      EXPECT_EQ(variant.time_ns->mad, 0);
    }
}

TEST(Committed, KeepsTheCountersOfTheFirstPointWhereSpaceIsShort) {
  RunRecord run{.machine = "box", .experiments = {large(2, 8)}};
  ExperimentRecord& experiment = run.experiments[0];
  double value                 = 1;
  for (PointRecord& point : experiment.points) {
    point.at = Point({{"n", static_cast<int64_t>(value)}});
    for (VariantRecord& variant : point.variants)
      for (const char* name : {"kernels", "kernel_time_ns", "registers_per_thread", "counted_dram_bytes_read",
                               "counted_dram_bytes_written", "counted_over_declared_bytes"})
        variant.metrics[name] = {value += 1.37, "lower"};
  }
  bind_counters(run.machine, experiment);
  experiment = committed(experiment);
  EXPECT_LE(record_text(to_json(experiment)).size(), 16u * 1024);
  const VariantRecord &first = experiment.points[0].variants[0], &last = experiment.points[1].variants[0];
  EXPECT_EQ(first.metrics.count("counted_dram_bytes_read"), 1u);
  EXPECT_EQ(first.metrics.count("kernels"), 1u);
  EXPECT_EQ(last.metrics.count("counted_dram_bytes_read"), 0u);
  EXPECT_EQ(last.metrics.count("kernels"), 0u);
  EXPECT_EQ(last.counters_bound_to, "");
  const auto read = run_from_json(to_json(run));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(run)) << "what was rounded is still bound";
}

TEST(Committed, KeepsADeepSetOfTheFirstPointUpTo40Kilobytes) {
  for (const int variants : {6, 20}) {
    ExperimentRecord experiment = large(2, variants);
    for (PointRecord& point : experiment.points)
      for (VariantRecord& variant : point.variants)
        for (int i = 0; i < 45; ++i)
          variant.metrics["counted_metric_of_some_length_" + std::to_string(i)] = {1.234, "lower"};
    experiment = committed(experiment);
    EXPECT_LE(record_text(to_json(experiment)).size(), 38u * 1024);
    EXPECT_EQ(experiment.points[0].variants[0].metrics.count("counted_metric_of_some_length_44"),
              variants == 6 ? 1u : 0u);
    EXPECT_EQ(experiment.points[1].variants[0].metrics.count("counted_metric_of_some_length_44"), 0u);
  }
}

TEST(WithoutAbsent, ReadsBackAsTheSameRecord) {
  const auto whole = to_json(full_run());
  const auto read  = run_from_json(without_absent(whole));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(*read), whole);
  EXPECT_EQ(without_absent(
                json::parse(R"({"a": null, "b": [], "c": {"d": ""}, "e": 0, "f": [null, 1], "g": false})")),
            json::parse(R"({"e": 0, "f": [null, 1], "g": false})"));
}

TEST(ExitCode, TheWorstWins) {
  const auto code = [](std::initializer_list<Outcome> outcomes) {
    RunRecord run;
    run.experiments.push_back({.id = "ch07/x", .points = {PointRecord{}}});
    for (const Outcome outcome : outcomes)
      run.experiments[0].points[0].variants.push_back({.id = "v", .status = outcome});
    return exit_code(run);
  };
  EXPECT_EQ(code({Outcome::ok}), 0);
  EXPECT_EQ(code({Outcome::ok, Outcome::skipped}), 0);
  EXPECT_EQ(code({Outcome::skipped}), 4);
  EXPECT_EQ(code({}), 4);
  EXPECT_EQ(code({Outcome::ok, Outcome::invalid}), 3);
  EXPECT_EQ(code({Outcome::invalid, Outcome::timeout}), 6);
  EXPECT_EQ(code({Outcome::crashed}), 6);
  EXPECT_EQ(code({Outcome::oom}), 6);
  EXPECT_EQ(code({Outcome::crashed, Outcome::wrong, Outcome::invalid}), 2);

  RunRecord died;  // before it had any variant to report
  died.experiments.push_back({.id = "ch07/x", .status = Outcome::crashed});
  EXPECT_EQ(exit_code(died), 6);
}

TEST(JsonText, IsTheSameValueOnFewerLines) {
  const json value       = {{"list", std::vector<int>(200, 7)},
                            {"nested", {{"a", {1, {2, 3}}}, {"b", "ä\n\"q\""}}},
                            {"empty", json::object()},
                            {"none", json::array()}};
  const std::string text = json_text(value);
  EXPECT_EQ(json::parse(text), value);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 7);
}

}  // namespace
}  // namespace fathom::lab

#include "lab/coverage.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lab/source_hash.h"

namespace fathom::lab {
namespace {

const std::vector<Chapter> kChapters = {
    {6, "cuda_basics", "", {"shared_memory"}, {"bank_conflict_avoidance"}},
    {7, "memory_access", "", {"coalescing", "bank_conflict_avoidance"}, {}},
    {9, "arithmetic_intensity", "", {"kernel_fusion"}, {}},
};

VariantInfo variant(std::string id, std::vector<std::string> techniques, Kind kind = Kind::optimized) {
  VariantInfo info;
  info.id         = std::move(id);
  info.kind       = kind;
  info.techniques = std::move(techniques);
  return info;
}

ExperimentInfo experiment(std::string id, std::vector<VariantInfo> variants,
                          std::vector<std::string> catalog = {}) {
  ExperimentInfo info;
  info.id       = std::move(id);
  info.variants = std::move(variants);
  info.catalog  = std::move(catalog);
  return info;
}

Expectation record_of(const char* machine, const char* id, const char* variant, bool timed) {
  VariantRecord v{.id = variant};
  if (timed) v.time_ns = Spread{1, 1, 1};
  return {
      .path       = {},
      .experiment = id,
      .provenance = {},
      .record = {.machine = machine, .experiments = {{.id = id, .points = {{.at = {}, .variants = {v}}}}}}};
}

TEST(Coverage, FollowsTechniquesToExperimentsAndMachines) {
  const std::vector<ExperimentInfo> experiments = {
      experiment("ch07/x", {variant("baseline", {}), variant("wide", {"coalescing"})},
                 {"memory-001", "memory-002", "memory-003"}),
      experiment("ch07/y", {variant("padded", {"bank_conflict_avoidance", "tilling"})}, {"memory-002"}),
  };
  const Coverage coverage =
      coverage_of(kChapters,
                  {{"memory-001", "ch07", "", "", "works", "ch07/x"},
                   {"memory-002", "ch07", "", "", "partial", "ch07/x"},
                   {"pipe-001", "ch10", "", "", "none", "nothing"}},
                  experiments,
                  {record_of("box", "ch07/x", "wide", true), record_of("h200", "ch07/x", "baseline", true),
                   record_of("box", "ch07/y", "padded", false)});
  ASSERT_EQ(coverage.techniques.size(), 4u);
  EXPECT_EQ(coverage.techniques[0].name, "shared_memory");
  EXPECT_EQ(coverage.techniques[0].status(), "not built");
  EXPECT_EQ(coverage.techniques[1].status(), "measured");
  EXPECT_EQ(coverage.techniques[1].chapter, "ch07");
  EXPECT_EQ(coverage.techniques[1].shown.by, std::vector<std::string>{"ch07/x/wide"});
  EXPECT_EQ(coverage.techniques[1].shown.machines, std::set<std::string>{"box"});
  EXPECT_EQ(coverage.techniques[2].status(), "declared");  // its record has no time
  ASSERT_EQ(coverage.catalog.size(), 3u);                  // the whole catalog, named by an experiment or not
  EXPECT_EQ(coverage.catalog[0].shown.machines, (std::set<std::string>{"box", "h200"}));
  EXPECT_EQ(coverage.catalog[1].shown.by, (std::vector<std::string>{"ch07/x", "ch07/y"}));
  EXPECT_TRUE(coverage.catalog[2].shown.by.empty());
  ASSERT_EQ(coverage.unknown.size(), 2u);
  EXPECT_NE(coverage.unknown[0].find("'memory-003'"), std::string::npos);
  EXPECT_NE(coverage.unknown[1].find("'tilling'"), std::string::npos);
  EXPECT_EQ(to_json(coverage)["techniques"][1]["status"], "measured");
  EXPECT_EQ(to_json(coverage)["catalog"][1]["status"], "partial");
}

TEST(Scope, AVariantMayUseItsOwnAndEarlierChapters) {
  const auto breaches = [](const char* id, std::vector<std::string> techniques, Kind kind = Kind::optimized) {
    return scope_breaches(kChapters, {experiment(id, {variant("v", std::move(techniques), kind)})}).size();
  };
  EXPECT_EQ(breaches("ch07/x", {"coalescing", "shared_memory"}), 0u);
  EXPECT_EQ(breaches("ch07/x", {"kernel_fusion"}), 1u);
  EXPECT_EQ(breaches("ch07/x", {"kernel_fusion"}, Kind::library), 0u);
  EXPECT_EQ(breaches("ch07/x", {"kernel_fusion"}, Kind::engine), 0u);
  EXPECT_EQ(breaches("labs/l/x", {"kernel_fusion"}), 0u);
  EXPECT_EQ(breaches("ch06/x", {"bank_conflict_avoidance"}), 0u);  // a named exception
  EXPECT_EQ(breaches("ch06/x", {"coalescing"}), 1u);
  EXPECT_EQ(breaches("ch07/x", {"tilling"}), 1u);
}

TEST(Chapters, TheTableIsWhole) {
  const auto chapters = parse_chapters(chapters_toml());
  ASSERT_TRUE(chapters) << chapters.error().message;
  ASSERT_EQ(chapters->size(), 20u);
  std::set<std::string> seen;
  for (size_t i = 0; i < chapters->size(); ++i) {
    EXPECT_EQ(chapters->at(i).number, static_cast<int>(i) + 1);
    for (const std::string& technique : chapters->at(i).techniques)
      EXPECT_TRUE(seen.insert(technique).second) << technique << " is introduced twice";
  }
  for (const Chapter& chapter : *chapters)
    for (const std::string& technique : chapter.also)
      EXPECT_TRUE(seen.contains(technique)) << technique << " of ch" << chapter.number << " exists nowhere";
  EXPECT_FALSE(parse_chapters("[[chapter]]\ntitle = \"no number\"\n"));
  EXPECT_FALSE(parse_chapters("x"));
}

}  // namespace
}  // namespace fathom::lab

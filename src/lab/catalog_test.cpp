#include "lab/catalog.h"

#include <gtest/gtest.h>

#include "lab/source_hash.h"

namespace fathom::lab {
namespace {

constexpr const char* kHead = "id,chapter,name,what,status,where\n";

std::string error_of(const std::string& lines) {
  const auto rows = parse_catalog(kHead + lines);
  return rows ? "" : rows.error().message;
}

TEST(Catalog, ReadsQuotedCells) {
  const auto rows = parse_catalog(std::string(kHead) +
                                  "tiling-007,ch09,\"Fusion, by hand\",\"say \"\"fused\"\"\",works,ch09/x\n"
                                  "mesh-of-two-001,plan,Mesh,two GPUs,none,nothing yet\n");
  ASSERT_TRUE(rows) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0].name, "Fusion, by hand");
  EXPECT_EQ((*rows)[0].what, "say \"fused\"");
  EXPECT_EQ((*rows)[0].area(), "tiling");
  EXPECT_EQ((*rows)[1].area(), "mesh-of-two");
}

TEST(Catalog, BrokenLinesAreNamed) {
  EXPECT_NE(parse_catalog("id,name\n").error().message.find("line 1"), std::string::npos);
  EXPECT_NE(error_of("a-1,ch01,n,w,works\n").find("line 2: 5 cells"), std::string::npos);
  EXPECT_NE(error_of("a-1,ch01,n,w,works,x\na-2,ch01,n,w,done,x\n").find("line 3: 'done'"),
            std::string::npos);
  EXPECT_NE(error_of("a-1,ch01,n,w,none,\n").find("what is there or missing"), std::string::npos);
  EXPECT_NE(error_of("a-1,ch01,n,w,none,x\na-1,ch01,n,w,none,x\n").find("twice"), std::string::npos);
  EXPECT_NE(error_of("a-1,ch01,\"n,w,none,x\n").find("quote"), std::string::npos);
}

TEST(Catalog, ARowNamesPathsAndExperiments) {
  const Named named =
      named_in("src/lab/a.cpp, (tests/b_test.py); `results/h200/*.json`. ch12/replay/eager: ch7:x y/src/z");
  EXPECT_EQ(named.paths,
            (std::vector<std::string>{"src/lab/a.cpp", "tests/b_test.py", "results/h200/*.json"}));
  EXPECT_EQ(named.experiments, std::vector<std::string>{"ch12/replay"});
}

std::vector<std::string> breaches_of(const std::string& status, const std::string& where) {
  ExperimentInfo experiment;
  experiment.id      = "ch07/x";
  experiment.catalog = {"tiling-001"};
  return catalog_breaches({{"tiling-001", "ch07", "Tiles", "tiles", status, where}}, {experiment},
                          FATHOM_SOURCE_TREE);
}

TEST(Catalog, ARowThatWorksNamesItsProof) {
  EXPECT_TRUE(breaches_of("works", "ch07/x tiled").empty());
  EXPECT_TRUE(breaches_of("works", "src/lab/catalog_test.cpp").empty());
  EXPECT_TRUE(breaches_of("partial", "src/lab/catalog.cpp only").empty());
  EXPECT_EQ(breaches_of("works", "src/lab/catalog.cpp").size(), 1u);
  EXPECT_EQ(breaches_of("works", "believe me").size(), 1u);
}

TEST(Catalog, WhatARowNamesExists) {
  EXPECT_EQ(breaches_of("works", "ch07/y").size(), 1u);
  EXPECT_EQ(breaches_of("works", "ch07/x, src/lab/gone_test.cpp").size(), 1u);
  EXPECT_EQ(breaches_of("partial", "src/lab/gone*.cpp").size(), 1u);
  EXPECT_TRUE(breaches_of("partial", "src/lab/catalog*.cpp").empty());
}

TEST(Catalog, WhatAnExperimentNamesIsNotNothing) { EXPECT_EQ(breaches_of("none", "nothing").size(), 1u); }

TEST(Catalog, TheCommittedOneIsWhole) {
  const auto rows = parse_catalog(catalog_csv());
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(rows->size(), 428u);
}

}  // namespace
}  // namespace fathom::lab

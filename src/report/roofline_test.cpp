#include "report/roofline.h"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "report/report_fixture.h"

namespace fathom::report {

using namespace lab;

namespace {

const Roofs kRoofs{.memory   = {{"L1", 100e9}, {"DRAM", 10e9}},
                   .compute  = {{"FMA", 50e9}, {"scalar", 5e9}},
                   .measured = "here"};

VariantRecord variant(const std::string& id, const std::string& kind, double ns, double flops,
                      int64_t bytes) {
  VariantRecord v;
  v.id         = id;
  v.kind       = kind;
  v.flops      = flops;
  v.bytes_read = bytes;
  v.time_ns    = Spread{.median = ns, .lo = ns * 0.9, .hi = ns * 1.1};
  return v;
}

RunRecord run_of(std::vector<VariantRecord> variants) {
  PointRecord point;
  point.baseline = variants.front().id;
  point.variants = std::move(variants);
  ExperimentRecord experiment;
  experiment.id     = "ch00/x";
  experiment.points = {point};
  RunRecord run;
  run.experiments = {experiment};
  return run;
}

TEST(Attainable, IsTheLowerOfTheTopRoofs) {
  EXPECT_DOUBLE_EQ(*attainable(kRoofs, 0.1), 10e9) << "left of the ridge: 100 GB/s times 0.1";
  EXPECT_DOUBLE_EQ(*attainable(kRoofs, 0.5), 50e9) << "at the ridge";
  EXPECT_DOUBLE_EQ(*attainable(kRoofs, 1000), 50e9) << "right of it";
  EXPECT_FALSE(attainable({}, 1));
  EXPECT_FALSE(attainable({.memory = {{"L1", 1e9}}, .compute = {}, .measured = ""}, 1));
  EXPECT_FALSE(attainable(kRoofs, 0));
}

TEST(RooflinePoints, AreFlopsPerByteAndPerSecondWithTheIntervalTurnedRound) {
  auto run =
      run_of({variant("base", "baseline", 1000, 4000, 1000), variant("best", "optimized", 100, 4000, 1000),
              variant("lib", "library", 90, 4000, 1000), variant("op", "engine", 95, 4000, 1000)});
  run.experiments[0].points[0].variants[1].ratio = Ratio{10, 9, 11};
  const auto points                              = roofline_points(run, kRoofs);
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].role, RooflinePoint::Role::baseline);
  EXPECT_EQ(points[1].role, RooflinePoint::Role::best);
  EXPECT_EQ(points[2].role, RooflinePoint::Role::library);
  EXPECT_EQ(points[3].role, RooflinePoint::Role::engine);
  EXPECT_DOUBLE_EQ(points[1].flops_per_byte, 4);
  EXPECT_DOUBLE_EQ(points[1].flops_per_s, 40e9);
  EXPECT_DOUBLE_EQ(points[1].lo, 4000 / 110e-9);
  EXPECT_DOUBLE_EQ(points[1].hi, 4000 / 90e-9);
  EXPECT_FALSE(points[1].invalid);
}

TEST(RooflinePoints, AboveEveryRoofAreInvalidWhateverTheRecordSays) {
  const auto points = roofline_points(
      run_of({variant("base", "baseline", 1000, 4000, 1000), variant("magic", "optimized", 79, 4000, 1000)}),
      kRoofs);
  EXPECT_FALSE(points[0].invalid);
  EXPECT_TRUE(points[1].invalid) << "50.6 GFLOP/s under a roof of 50";
  const std::string svg = roofline_svg(kRoofs, points, SvgFor::page);
  EXPECT_NE(svg.find("INVALID x/magic"), std::string::npos);
  EXPECT_TRUE(roofline_json(kRoofs, points)["points"][1]["invalid"].get<bool>());
}

TEST(RooflinePoints, LeaveOutWhatHasNoIntensityOrNoTime) {
  auto no_time    = variant("no_time", "optimized", 1, 1, 1);
  no_time.time_ns = std::nullopt;
  auto wrong      = variant("wrong", "optimized", 1, 1, 1);
  wrong.status    = Outcome::wrong;
  auto zero       = variant("zero", "optimized", 0, 1, 1);
  auto nan        = variant("nan", "optimized", std::numeric_limits<double>::quiet_NaN(), 1, 1);
  EXPECT_TRUE(
      roofline_points(run_of({variant("moves", "baseline", 10, 0, 100),
                              variant("computes", "optimized", 10, 100, 0), no_time, wrong, zero, nan}),
                      kRoofs)
          .empty());
}

TEST(RooflineSvg, DrawsEveryRoofAndOneArrowAPoint) {
  const auto run        = fixture_run();
  const auto roofs      = fixture_roofs();
  const auto points     = roofline_points(run, roofs);
  const std::string svg = roofline_svg(roofs, points, SvgFor::file);
  const auto count      = [&](const std::string& what) {
    int found = 0;
    for (size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_EQ(count("<title>memory roof:"), 5);
  EXPECT_EQ(count("<title>compute roof:"), 3);
  EXPECT_EQ(count("class=\"leap\""), 3) << "matmul twice, attention once";
  EXPECT_EQ(svg.find("nan"), std::string::npos);
}

TEST(RooflineSvg, StandsWithoutRoofsAndWithoutPoints) {
  for (const Roofs& roofs : {Roofs{}, kRoofs, Roofs{.memory = {{"bad", 0}}, .compute = {}, .measured = ""}})
    for (const auto& points : {std::vector<RooflinePoint>{}, roofline_points(fixture_run(), roofs)}) {
      const std::string svg = roofline_svg(roofs, points, SvgFor::page);
      EXPECT_NE(svg.find("</svg>"), std::string::npos);
      EXPECT_EQ(svg.find("nan"), std::string::npos);
      EXPECT_EQ(svg.find("inf"), std::string::npos);
    }
}

TEST(RooflineJson, NamesItsUnitsAndHasNullForWhatIsUnknown) {
  const auto json = roofline_json(kRoofs, roofline_points(fixture_run(), {}));
  EXPECT_EQ(json["schema"], "fathom.roofline/1");
  EXPECT_EQ(json["memory"][0]["name"], "L1") << "highest first";
  EXPECT_DOUBLE_EQ(json["compute"][1]["flops_per_s"].get<double>(), 5e9);
  ASSERT_FALSE(json["points"].empty());
  EXPECT_TRUE(json["points"][0]["attainable_flops_per_s"].is_null());
}

}  // namespace
}  // namespace fathom::report

#include "lab/point.h"

#include <gtest/gtest.h>

#include "core/expect.h"

namespace fathom::lab {
namespace {

std::vector<int64_t> integers(const Axis& axis) {
  std::vector<int64_t> values;
  for (const Value& value : axis.values) values.push_back(std::get<int64_t>(value));
  return values;
}

TEST(ParseAxis, Grammar) {
  const auto values = [](std::string_view text) { return integers(*parse_axis(text)); };
  EXPECT_EQ(values("n=4096"), (std::vector<int64_t>{4096}));
  EXPECT_EQ(values("n=-3"), (std::vector<int64_t>{-3}));
  EXPECT_EQ(values("n=[1024,4096]"), (std::vector<int64_t>{1024, 4096}));
  EXPECT_EQ(values("n=[2:10:4]"), (std::vector<int64_t>{2, 6, 10}));
  EXPECT_EQ(values("n=[2:9:4]"), (std::vector<int64_t>{2, 6}));
  EXPECT_EQ(values("n=[2:4]"), (std::vector<int64_t>{2, 3, 4}));
  EXPECT_EQ(values("n[pow2]=[10:14:2]"), (std::vector<int64_t>{1024, 4096, 16384}));
  EXPECT_EQ(values("bytes=[64K,128M]"), (std::vector<int64_t>{65536, 134217728}));
  EXPECT_EQ(values("n=[1,3:5]"), (std::vector<int64_t>{1, 3, 4, 5}));
  EXPECT_EQ(parse_axis("n[pow2]=[10:14:2]")->name, "n");
}

TEST(ParseAxis, TypesFollowTheText) {
  EXPECT_EQ(std::get<std::string>(parse_axis("compression=lz4")->values[0]), "lz4");
  EXPECT_EQ(std::get<std::string>(parse_axis("mesh=tp2_ep2")->values[0]), "tp2_ep2");
  EXPECT_EQ(std::get<double>(parse_axis("load=0.8")->values[0]), 0.8);
  EXPECT_EQ(std::get<int64_t>(parse_axis("n=7")->values[0]), 7);
}

TEST(ParseAxis, ErrorsNameTheTextAndTheRemedy) {
  for (const char* bad :
       {"", "n", "=3", "n=", "n=[", "n=[]", "n=[1,,2]", "n=[5:2]", "n=[1:9:0]", "n=[1:2:3:4]",
        "n=[1:99999999]", "n[pow2]=[63]", "n[pow2]=[x]", "a b=1", "n=[1:9223372036854775807]"}) {
    const auto axis = parse_axis(bad);
    ASSERT_FALSE(axis.has_value()) << bad;
    EXPECT_NE(axis.error().message.find(std::string("'") + bad + "'"), std::string::npos);
    EXPECT_NE(axis.error().message.find("n=[1024,4096]"), std::string::npos);
  }
}

TEST(ParseAxis, RangeEndingAtTheLargestIntegerTerminates) {
  EXPECT_EQ(integers(*parse_axis("n=[9223372036854775806:9223372036854775807]")).size(), 2u);
}

TEST(CrossProduct, LastAxisFastest) {
  const auto points =
      cross_product({{"a", {int64_t{1}, int64_t{2}}}, {"b", {std::string("x"), std::string("y")}}});
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[1].to_string(), "a=1&b=y");
  EXPECT_EQ(cross_product({}).size(), 1u);
  EXPECT_EQ(cross_product({{"a", {}}}).size(), 0u);
}

TEST(Point, MistakesAreNamed) {
  const Point point({{"n", int64_t{3}}, {"codec", std::string("lz4")}});
  EXPECT_EQ(point["n"], 3);
  EXPECT_EQ(point.real("n"), 3.0);
  EXPECT_EQ(point.text("codec"), "lz4");
  EXPECT_THROW(point["m"], ContractError);
  EXPECT_THROW(point["codec"], ContractError);
  EXPECT_THROW(point.text("n"), ContractError);
}

TEST(OverrideAxes, ReplacesAndRefuses) {
  const std::vector<Axis> axes = {{"n", {int64_t{1}}}, {"codec", {std::string("zstd")}}};
  EXPECT_EQ(integers((*override_axes(axes, {{"n", {int64_t{5}, int64_t{6}}}}))[0]),
            (std::vector<int64_t>{5, 6}));
  const auto unknown = override_axes(axes, {{"m", {int64_t{5}}}});
  ASSERT_FALSE(unknown.has_value());
  EXPECT_NE(unknown.error().message.find("it has n, codec"), std::string::npos);
  EXPECT_FALSE(override_axes(axes, {{"n", {std::string("big")}}}).has_value());
}

// What the problem of an axis cannot take is refused before any process starts.
TEST(OverrideAxes, RefusesValuesBySayingWhatTheAxisTakes) {
  const std::vector<Axis> axes     = {{"n", {int64_t{64}}},
                                      {"window", {int64_t{0}, int64_t{128}}},
                                      {"shift", {int64_t{-1}}},
                                      {"top_p", {0.9}},
                                      {"codec", {std::string("zstd"), std::string("lz4")}}};
  const std::vector<Axis> check_at = {{"n", {int64_t{0}, int64_t{1}}}, {"codec", {std::string("raw")}}};
  const auto with                  = [&](const char* text, const std::vector<Axis>& also) -> std::string {
    const auto taken = override_axes(axes, {*parse_axis(text)}, also);
    return taken ? "" : taken.error().message;
  };
  EXPECT_EQ(with("n=-5", check_at), "axis 'n' takes a whole number of at least 0, not '-5'");
  EXPECT_EQ(with("n=0", {}), "axis 'n' takes a whole number of at least 1, not '0'");
  EXPECT_EQ(with("n=0", check_at), "");
  EXPECT_EQ(with("n=[4,2.5]", check_at), "axis 'n' takes a whole number of at least 0, not '2.5'");
  EXPECT_EQ(with("n=big", check_at), "axis 'n' takes a whole number of at least 0, not 'big'");
  EXPECT_EQ(with("window=-1", {}), "axis 'window' takes a whole number of at least 0, not '-1'");
  EXPECT_EQ(with("shift=-700", {}), "");
  EXPECT_EQ(with("shift=left", {}), "axis 'shift' takes a whole number, not 'left'");
  EXPECT_EQ(with("top_p=-0.1", {}), "axis 'top_p' takes a number of at least 0, not '-0.1'");
  EXPECT_EQ(with("codec=lzma", check_at), "axis 'codec' takes zstd or lz4 or raw, not 'lzma'");
  EXPECT_EQ(with("codec=7", {}), "axis 'codec' takes zstd or lz4, not '7'");
  EXPECT_EQ(with("codec=raw", check_at), "");
  // 1 is a number too.
  EXPECT_EQ((*override_axes(axes, {*parse_axis("top_p=1")}))[3].values, std::vector<Value>{1.0});
}

}  // namespace
}  // namespace fathom::lab

#include "report/svg.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "lab/quantity.h"

namespace fathom::report {

using namespace lab;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Quantity, HasThreeSignificantDigitsAndAUnit) {
  EXPECT_EQ(digits_text(0), "0");
  EXPECT_EQ(digits_text(0.0123456), "0.0123");
  EXPECT_EQ(digits_text(1.3), "1.30");
  EXPECT_EQ(digits_text(9.996), "10.0");
  EXPECT_EQ(digits_text(-782.4), "-782");
  EXPECT_EQ(digits_text(123456), "123000");
  EXPECT_EQ(time_text(0.51), "0.510 ns");
  EXPECT_EQ(time_text(999.4), "999 ns");
  EXPECT_EQ(time_text(999.6), "1.00 µs");
  EXPECT_EQ(time_text(1.3e6), "1.30 ms");
  EXPECT_EQ(time_text(4.2e10), "42.0 s");
  EXPECT_EQ(bytes_per_s_text(1.234e10), "12.3 GB/s");
  EXPECT_EQ(flops_per_s_text(7.82e14), "782 TFLOP/s");
  EXPECT_EQ(share_text(0.913), "91.3 %");
}

TEST(Quantity, ShowsRatiosFinelyNearOne) {
  EXPECT_EQ(ratio_text(2.4136), "2.41×");
  EXPECT_EQ(ratio_text(47.13), "47.1×");
  EXPECT_EQ(ratio_text(1.0042), "1.004×");
  EXPECT_EQ(ratio_text(0.0213), "0.0213×");
  EXPECT_EQ(ratio_interval_text(1.0042, 0.9978, 1.0102), "[0.998, 1.010]");
}

TEST(Quantity, TellsTheEndsOfAnIntervalApart) {
  EXPECT_EQ(time_interval_text(1.3e6, 1.29e6, 1.31e6), "[1.29, 1.31]");
  EXPECT_EQ(time_interval_text(1.8e8, 1.798e8, 1.804e8), "[179.8, 180.4]");
  EXPECT_EQ(time_interval_text(1.3e6, 1.3e6, 1.3e6), "[1.30, 1.30]");
}

TEST(Quantity, HasADashForWhatIsNoNumber) {
  for (const double bad : {kNan, kInf, -kInf})
    for (const std::string& text : {digits_text(bad), time_text(bad), ratio_text(bad), share_text(bad),
                                    bytes_per_s_text(bad), error_text(bad), time_interval_text(bad, 1, 2),
                                    time_interval_text(1, bad, 2), ratio_interval_text(1, 1, bad)})
      EXPECT_EQ(text, kAbsent);
}

TEST(Quantity, GroupsCountsByThousands) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1048576), "1,048,576");
  EXPECT_EQ(count_text(-1000), "-1,000");
  EXPECT_EQ(error_text(3.14e-6), "3.1e-6");
  EXPECT_EQ(error_text(0), "0");
}

TEST(Escape, CoversEveryCharacterThatHtmlAndXmlReserve) {
  EXPECT_EQ(escape("<b a=\"x\" b='y'> & </b>"), "&lt;b a=&quot;x&quot; b=&#39;y&#39;&gt; &amp; &lt;/b&gt;");
  EXPECT_EQ(escape("±2 % µs\n"), "±2 % µs\n");
  EXPECT_EQ(escape(std::string_view("a\0b\x1b", 4)),
            "a\xEF\xBF\xBD"
            "b\xEF\xBF\xBD");
}

TEST(Range, CoversTheFiniteValuesAndIsNeverEmpty) {
  for (const bool log : {false, true})
    for (const std::vector<double>& values :
         {std::vector<double>{}, {5}, {0}, {-3, 4}, {kNan, kInf}, {1e-30, 1e30}, {2, 2, 2}}) {
      const Range range = range_of(values, log);
      EXPECT_TRUE(std::isfinite(range.lo) && std::isfinite(range.hi));
      EXPECT_LT(range.lo, range.hi);
      if (log) {
        EXPECT_GT(range.lo, 0);
      }
      for (const double value : values)
        if (std::isfinite(value) && (!log || value > 0)) {
          EXPECT_LE(range.lo, value);
          EXPECT_GE(range.hi, value);
        }
    }
}

TEST(Scale, StaysOnThePageWhateverTheValue) {
  for (const bool log : {false, true}) {
    const Scale scale{{1, 100}, 10, 210, log};
    EXPECT_DOUBLE_EQ(scale.at(1), 10);
    EXPECT_DOUBLE_EQ(scale.at(100), 210);
    EXPECT_DOUBLE_EQ(scale.at(1e9), 210);
    for (const double low : {0.5, 0.0, -7.0}) EXPECT_DOUBLE_EQ(scale.at(low), 10);
    EXPECT_DOUBLE_EQ(scale.at(kNan), 10);
  }
  EXPECT_DOUBLE_EQ((Scale{{1, 100}, 0, 200, true}.at(10)), 100);
  EXPECT_DOUBLE_EQ((Scale{{0, 10}, 200, 0, false}.at(2.5)), 150) << "a y axis points up";
}

// A round value has at most three significant digits.
bool is_round(double value) {
  if (value == 0) return true;
  const double unit = std::pow(10.0, std::floor(std::log10(std::abs(value)) + 1e-9) - 2);
  return std::abs(value / unit - std::round(value / unit)) < 1e-6;
}

TEST(Ticks, AreRoundAscendingInsideAndFewOnLogAxes) {
  for (const int most : {5, 7, 9})
    for (double lo : {1e-6, 0.3, 0.97, 1.0, 2.3, 47.0, 1e9})
      for (double span : {1.02, 1.3, 2.0, 3.2, 7.0, 10.0, 55.0, 1e3, 1e7, 1e15}) {
        const Scale scale{{lo, lo * span}, 0, 100, true};
        const auto found = ticks(scale, most);
        SCOPED_TRACE(testing::Message() << lo << " to " << lo * span << ", " << most);
        EXPECT_GE(found.size(), 2u);
        EXPECT_LE(static_cast<int>(found.size()), most + 1);
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_GE(found[i], lo * (1 - 1e-6));
          EXPECT_LE(found[i], lo * span * (1 + 1e-6));
          if (i > 0) {
            EXPECT_GT(found[i], found[i - 1]);
          }
          if (span >= 1.3) {
            EXPECT_TRUE(is_round(found[i])) << found[i];
          }
        }
      }
}

TEST(Ticks, ChooseTheStepThatSuitsTheSpan) {
  EXPECT_EQ(ticks({{0.5, 120}, 0, 1, true}, 9), (std::vector<double>{0.5, 1, 2, 5, 10, 20, 50, 100}));
  EXPECT_EQ(ticks({{1e3, 1e9}, 0, 1, true}, 9).size(), 7u) << "one a decade";
  const auto even = ticks({{0.95, 1.1}, 0, 1, true}, 5);
  ASSERT_EQ(even.size(), 4u);
  EXPECT_NEAR(even[1], 1.0, 1e-12);
  EXPECT_EQ(ticks({{0, 1}, 0, 1, false}, 6), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(tick_text(0.6000000000000001), "0.6");
  EXPECT_EQ(tick_text(2e9), "2G");
  EXPECT_EQ(tick_text(0), "0");
}

TEST(Wrap, KeepsEveryLetterAndTheWidth) {
  const std::string words = "register_blocked/with_a_very_long_identifier and some words & more";
  for (const double width : {1.0, 40.0, 90.0, 1e4}) {
    std::string joined;
    for (const std::string& line : wrap(words, width, 11)) {
      EXPECT_TRUE(line.size() == 1 || text_width(line, 11) <= width + 1e-9) << line;
      EXPECT_FALSE(line.empty());
      joined += line;
    }
    std::string expected = words;
    std::erase(expected, ' ');
    std::erase(joined, ' ');
    EXPECT_EQ(joined, expected) << width;
  }
  EXPECT_TRUE(wrap("", 100, 11).empty());
  EXPECT_EQ(wrap("µµ µµ", 2 * 0.58 * 11 + 0.1, 11), (std::vector<std::string>{"µµ", "µµ"}))
      << "letters, not bytes";
}

TEST(Drawing, ShowsAnIntervalThatLeavesTheScaleAsAnArrowHead) {
  const Scale x{{1, 10}, 0, 100, true};
  const auto drawn = [&](double lo, double hi) {
    Drawing drawing("d", 100, 20, "t", "d");
    drawing.interval(x, 10, lo, hi, {"best", ""});
    return drawing.embedded();
  };
  EXPECT_NE(drawn(2, 5).find("H69.9M30.1 6v8M69.9 6v8"), std::string::npos) << drawn(2, 5);
  EXPECT_NE(drawn(2, 500).find("L100 10L"), std::string::npos) << "a head at the right edge";
  EXPECT_NE(drawn(0.1, 5).find("L0 10L"), std::string::npos) << "a head at the left edge";
}

TEST(Drawing, EscapesWordsAndNeverWritesNan) {
  Drawing drawing("d", 100, 50, "<title>", "a & b");
  drawing.circle({kNan, kInf}, 3, {"best", "<hover>"});
  drawing.text({1, 2}, "x < \"y\"");
  drawing.line({-kInf, 0}, {1, kNan}, {"grid", ""});
  const std::string svg = drawing.standalone();
  EXPECT_EQ(svg.find("nan"), std::string::npos);
  EXPECT_EQ(svg.find("inf\""), std::string::npos);
  EXPECT_NE(svg.find("&lt;hover&gt;"), std::string::npos);
  EXPECT_NE(svg.find("x &lt; &quot;y&quot;"), std::string::npos);
  EXPECT_NE(svg.find("role=\"img\" aria-labelledby=\"d-title d-desc\""), std::string::npos);
  EXPECT_NE(svg.find("xmlns="), std::string::npos);
  EXPECT_EQ(drawing.embedded().find("<style>"), std::string::npos) << "a page brings the style once";
}

}  // namespace
}  // namespace fathom::report

#include "cli/table.h"

#include <gtest/gtest.h>

#include "core/expect.h"

namespace fathom::cli {
namespace {

const Table kTable{.columns = {{"id", false, false}, {"time", true}},
                   .rows    = {{"a", "1 µs"}, {"a", "12 µs"}, {"long|er", "say \"3, 4\""}}};

TEST(Table, TextIsAlignedByWhatOneSees) {
  EXPECT_EQ(to_text(kTable, 80),
            "id             time\n"
            "a              1 µs\n"
            "              12 µs\n"
            "long|er  say \"3, 4\"\n");
  EXPECT_EQ(to_text({.columns = {{"a"}}, .rows = {}}), "");
  EXPECT_EQ(display_width("2.41× – µ"), 9);
  EXPECT_EQ(display_width(""), 0);
}

TEST(Table, WideCellsAreBrokenUntilTheTableFits) {
  const Table wide{.columns = {{"result"}, {"time", true}, {"why"}},
                   .rows    = {{"ch10/flash_attention_gpu/warpgroups?tokens=2048&window=0", "88.3 µs",
                                "the control moved by more than the margin of two percent"},
                               {"ch01/x", "1.00 µs", "fine"}}};
  const std::string text = to_text(wide, 60);
  size_t lines           = 0;
  for (size_t begin = 0; begin < text.size(); begin = text.find('\n', begin) + 1, ++lines)
    EXPECT_LE(display_width(text.substr(begin, text.find('\n', begin) - begin)), 60);
  EXPECT_EQ(lines, 5u) << text;  // the names, three of the first row, one of the second
  EXPECT_NE(text.find("window=0"), std::string::npos);
  EXPECT_NE(text.find("ch01/x"), std::string::npos);
}

TEST(Table, AHeadingIsALineAboveItsRows) {
  EXPECT_EQ(
      to_text({.columns = {{.name = "experiment", .heading = true}, {"variant"}, {"time", true}},
               .rows = {{"ch07/x", "naive", "2 µs"}, {"ch07/x", "tiled", "1 µs"}, {"ch08/y", "a", "9 µs"}}},
              80),
      "  variant  time\n"
      "ch07/x\n"
      "  naive    2 µs\n"
      "  tiled    1 µs\n"
      "ch08/y\n"
      "  a        9 µs\n");
}

TEST(Wrapped, BreaksAtBlanksAndLongWordsAfterPunctuation) {
  EXPECT_EQ(wrapped("one two three", 12, "  - "), "  - one two\n    three\n");
  EXPECT_EQ(wrapped("one two three", 6, "  - "), "  - one two\n    three\n");  // a line keeps 8 columns
  EXPECT_EQ(wrapped("µµµµ µµµµ µµ", 9), "µµµµ µµµµ\nµµ\n");
  EXPECT_EQ(wrapped("ch07/transpose_cpu?n=1024", 20), "ch07/transpose_cpu?\nn=1024\n");
  EXPECT_EQ(wrapped("abcdefghijkl", 8), "abcdefgh\nijkl\n");
  EXPECT_EQ(wrapped("", 20, "- "), "-\n");
}

TEST(Table, Markdown) {
  EXPECT_EQ(to_markdown(kTable),
            "| id | time |\n| --- | ---: |\n| a | 1 µs |\n| a | 12 µs |\n| long\\|er | say \"3, 4\" |\n");
}

TEST(Table, CsvQuotesWhatMustBeQuoted) {
  EXPECT_EQ(to_csv(kTable), "id,time\na,1 µs\na,12 µs\nlong|er,\"say \"\"3, 4\"\"\"\n");
  EXPECT_EQ(to_csv({.columns = {{"a"}, {"b"}}, .rows = {{"x\ny", ""}}}), "a,b\n\"x\ny\",\n");
}

TEST(Table, ARaggedTableIsAMistake) {
  const Table ragged{.columns = {{"a"}, {"b"}}, .rows = {{"1"}}};
  EXPECT_THROW(to_text(ragged), ContractError);
  EXPECT_THROW(to_csv(ragged), ContractError);
  EXPECT_THROW(to_markdown(ragged), ContractError);
}

}  // namespace
}  // namespace fathom::cli

#include "cli/table.h"

#include <gtest/gtest.h>

#include "core/expect.h"

namespace fathom::cli {
namespace {

const Table kTable{.columns = {{"id", false, false}, {"time", true}},
                   .rows    = {{"a", "1 µs"}, {"a", "12 µs"}, {"long|er", "say \"3, 4\""}}};

TEST(Table, TextIsAlignedByWhatOneSees) {
  EXPECT_EQ(to_text(kTable),
            "id             time\n"
            "a              1 µs\n"
            "              12 µs\n"
            "long|er  say \"3, 4\"\n");
  EXPECT_EQ(to_text({.columns = {{"a"}}, .rows = {}}), "");
  EXPECT_EQ(display_width("2.41× – µ"), 9);
  EXPECT_EQ(display_width(""), 0);
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

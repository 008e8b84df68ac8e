#include "cli/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "cli/table.h"

namespace fathom::cli {
namespace {

lab::Progress at(int done, double left) {
  return {.experiment   = "ch07/transpose_cpu",
          .variant      = "tiled",
          .phase        = "measure",
          .done         = done,
          .total        = 12,
          .seconds_left = left,
          .finished     = nullptr};
}

std::string shown(int columns, std::initializer_list<lab::Progress> steps) {
  char* text     = nullptr;
  size_t size    = 0;
  std::FILE* out = open_memstream(&text, &size);
  {
    ProgressDisplay display(out, columns);
    for (const lab::Progress& step : steps) display.show(step);
  }
  std::fclose(out);
  std::string result(text, size);
  std::free(text);
  return result;
}

TEST(Duration, ReadsAsPeopleSayIt) {
  EXPECT_EQ(duration_text(0), "0.0 s");
  EXPECT_EQ(duration_text(0.44), "0.4 s");
  EXPECT_EQ(duration_text(9.96), "10 s");
  EXPECT_EQ(duration_text(59.6), "1 min 0 s");
  EXPECT_EQ(duration_text(80), "1 min 20 s");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
  EXPECT_EQ(duration_text(-1), "0 s");
}

TEST(ProgressBar, FitsTheTerminal) {
  const std::string bar = progress_bar(at(6, 80), 200);
  EXPECT_EQ(bar, "[##########----------] 6/12 ch07/transpose_cpu tiled: measure, 1 min 20 s left");
  for (const int columns : {1, 2, 37, 80, 500})
    EXPECT_LT(display_width(progress_bar(at(6, 80), columns)), columns);
  EXPECT_EQ(progress_bar({}, 80).substr(0, 26), "[--------------------] 0/0");
}

TEST(Progress, ATerminalIsRewrittenAndLeftClean) {
  const std::string text = shown(80, {at(0, 0)});
  EXPECT_EQ(text.find('\n'), std::string::npos);
  EXPECT_NE(text.find("0/12"), std::string::npos);
  EXPECT_TRUE(text.ends_with("\r\x1b[K"));
}

TEST(Progress, APipeGetsPlainLines) {
  lab::ExperimentRecord record{.id = "ch07/transpose_cpu"};
  record.seconds         = 2.1;
  lab::Progress finished = at(3, 80);
  finished.finished      = &record;
  const std::string text = shown(0, {finished, at(3, 80), finished});
  EXPECT_EQ(text,
            "3/12 ch07/transpose_cpu: ok in 2.1 s, 1 min 20 s left\n"
            "3/12 ch07/transpose_cpu: ok in 2.1 s, 1 min 20 s left\n");
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace fathom::cli

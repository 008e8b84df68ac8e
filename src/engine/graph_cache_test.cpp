#include "engine/graph_cache.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace fathom::engine {
namespace {

// Stands in for the GPU: what was run, and by whom.
struct Log {
  std::vector<std::string> lines;
  std::function<void()> fault = [] {};  // of a capture
};
Log* log_of_test = nullptr;

struct FakeGraph {
  std::string work;
  FakeGraph(StreamRef, const std::function<void()>& enqueue) {
    std::vector<std::string> before;
    before.swap(log_of_test->lines);
    enqueue();
    work = log_of_test->lines.at(0);  // recorded, not run
    log_of_test->lines.swap(before);
    log_of_test->fault();
  }
  void launch(StreamRef) const { log_of_test->lines.push_back("graph of " + work); }
};

class GraphCacheTest : public testing::Test {
 protected:
  void SetUp() override { log_of_test = &log; }
  void run(int key) {
    cache.run(key, nullptr, [&] { log.lines.push_back("rows " + std::to_string(key)); });
  }

  Log log;
  std::vector<std::string> warnings;
  GraphCache<int, FakeGraph> cache{[this](const std::string& why) { warnings.push_back(why); }};
};

using Lines = std::vector<std::string>;

TEST_F(GraphCacheTest, CapturesOnceAndReplays) {
  for (const int key : {1, 2, 1, 1}) run(key);
  EXPECT_EQ(log.lines, (Lines{"graph of rows 1", "graph of rows 2", "graph of rows 1", "graph of rows 1"}));
  EXPECT_EQ(cache.captured(), 2);
  EXPECT_EQ(cache.fallbacks(), 0);
  EXPECT_TRUE(warnings.empty());
}

TEST_F(GraphCacheTest, RunsEagerlyWhereTheCaptureFailed) {
  run(1);
  log.fault = [] { throw SystemError("cudaMalloc() in a capture"); };
  run(2);
  run(3);
  run(1);
  log.fault = [] {};
  run(2);  // not tried again
  run(4);
  EXPECT_EQ(log.lines,
            (Lines{"graph of rows 1", "rows 2", "rows 3", "graph of rows 1", "rows 2", "graph of rows 4"}));
  EXPECT_EQ(cache.captured(), 2);
  EXPECT_EQ(cache.fallbacks(), 3);
  EXPECT_EQ(warnings, (Lines{"cudaMalloc() in a capture"})) << "one warning, with the reason of the first";
}

// Eager launches would fail too, or hide a mistake of ours.
TEST_F(GraphCacheTest, DoesNotHideALostDeviceOrABrokenContract) {
  log.fault = [] { throw DeviceLost("gone"); };
  EXPECT_THROW(run(1), DeviceLost);
  log.fault = [] { throw ContractError("rows"); };
  EXPECT_THROW(run(1), ContractError);
  EXPECT_TRUE(log.lines.empty());
  EXPECT_EQ(cache.fallbacks(), 0);
  log.fault = [] {};
  run(1);
  EXPECT_EQ(log.lines, (Lines{"graph of rows 1"}));
}

TEST_F(GraphCacheTest, AnErrorOfTheEagerRunIsTheStepsError) {
  log.fault          = [] { throw SystemError("no capture"); };
  int calls          = 0;
  const auto enqueue = [&] {
    log.lines.push_back("rows");
    if (++calls > 1) throw SystemError("no launch");
  };
  EXPECT_THROW(cache.run(1, nullptr, enqueue), SystemError);
  EXPECT_EQ(calls, 2) << "once recorded, once run";
}

}  // namespace
}  // namespace fathom::engine

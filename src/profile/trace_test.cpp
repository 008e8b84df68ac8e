#include "profile/trace.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "core/expect.h"

namespace fathom::profile {
namespace {

using nlohmann::json;
using Overlap = Trace::Overlap;

std::vector<json> events(const Trace& trace, const std::string& phase) {
  const json read = json::parse(trace.json());
  std::vector<json> found;
  for (const json& event : read.at("traceEvents"))
    if (event.at("ph") == phase) found.push_back(event);
  return found;
}

TEST(Trace, EmptyIsATraceToo) {
  const json read = json::parse(Trace().json());
  EXPECT_EQ(read.at("traceEvents").size(), 0U);
}

// A double cannot hold 13 digits before the point and three after it.
TEST(Trace, TimesAreExactMicrosecondsSinceTheFirst) {
  Trace trace;
  const int track = trace.track(trace.process("host"), "thread 1", Overlap::nested);
  trace.slice(track, "first", 1'764'000'000'123'456'789, 1'764'000'000'123'456'790);
  trace.slice(track, "second", 1'764'000'000'124'458'007, 1'764'000'000'124'458'007 + 2'000'001);
  const std::string text = trace.json();
  EXPECT_NE(text.find(R"("ts":0.000,"dur":0.001)"), std::string::npos) << text;
  EXPECT_NE(text.find(R"("ts":1001.218,"dur":2000.001)"), std::string::npos) << text;
}

TEST(Trace, AnEndBeforeTheStartIsNoTime) {
  Trace trace;
  const int track = trace.track(trace.process("host"), "thread 1", Overlap::nested);
  trace.slice(track, "backwards", 500, 400);
  EXPECT_EQ(events(trace, "X").at(0).at("dur"), 0);
}

TEST(Trace, NamesAndOrdersProcessesAndTracks) {
  Trace trace;
  const int host = trace.process("host");
  const int gpu  = trace.process("GPU 0");
  trace.slice(trace.track(gpu, "stream 7", Overlap::apart), "kernel", 10, 20);
  trace.slice(trace.track(host, "thread 42", Overlap::nested), "launch", 0, 5);
  std::map<int, std::string> processes, threads;
  for (const json& event : events(trace, "M")) {
    if (event.at("name") == "process_name") processes[event.at("pid")] = event.at("args").at("name");
    if (event.at("name") == "thread_name") threads[event.at("tid")] = event.at("args").at("name");
    if (event.at("name") == "process_sort_index") {
      EXPECT_EQ(event.at("args").at("sort_index"), event.at("pid").get<int>() - 1);
    }
  }
  EXPECT_EQ(processes, (std::map<int, std::string>{{1, "host"}, {2, "GPU 0"}}));
  EXPECT_EQ(threads, (std::map<int, std::string>{{1, "stream 7"}, {2, "thread 42"}}));
}

// Slices of a thread must not cross, or the viewer draws them wrongly.
void expect_nested(const Trace& trace) {
  struct Interval {
    double start, end;
  };
  std::map<int, std::vector<Interval>> threads;
  for (const json& event : events(trace, "X")) {
    const double start = event.at("ts");
    threads[event.at("tid")].push_back({start, start + event.at("dur").get<double>()});
  }
  ASSERT_FALSE(threads.empty());
  for (const auto& [thread, slices] : threads)
    for (const Interval& a : slices)
      for (const Interval& b : slices)
        EXPECT_FALSE(a.start < b.start && b.start < a.end && a.end < b.end)
            << "thread " << thread << ": [" << a.start << ", " << a.end << ") and [" << b.start << ", "
            << b.end << ")";
}

TEST(Trace, CallsNestAndCrossingOnesMoveBelow) {
  Trace trace;
  const int track = trace.track(trace.process("host"), "thread 1", Overlap::nested);
  trace.slice(track, "inner", 2000, 3000);  // any order
  trace.slice(track, "outer", 1000, 9000);
  trace.slice(track, "same start", 1000, 2000);
  trace.slice(track, "crossing", 8000, 12000);
  trace.slice(track, "after", 9000, 10000);
  expect_nested(trace);
  std::map<std::string, int> thread;
  for (const json& event : events(trace, "X")) thread[event.at("name")] = event.at("tid");
  EXPECT_EQ(thread["inner"], thread["outer"]);
  EXPECT_EQ(thread["same start"], thread["outer"]);
  EXPECT_EQ(thread["after"], thread["outer"]);
  EXPECT_NE(thread["crossing"], thread["outer"]);
  std::set<std::string> names;
  for (const json& event : events(trace, "M"))
    if (event.at("name") == "thread_name") names.insert(event.at("args").at("name"));
  EXPECT_EQ(names, (std::set<std::string>{"thread 1", "thread 1 (2)"}));
}

// A kernel that starts before the previous one ends is not nested in it.
TEST(Trace, KernelsThatOverlapAreDrawnApart) {
  Trace trace;
  const int stream = trace.track(trace.process("GPU 0"), "stream 7", Overlap::apart);
  trace.slice(stream, "long", 0, 10000);
  trace.slice(stream, "within", 2000, 3000);
  trace.slice(stream, "also within", 2500, 4000);
  trace.slice(stream, "next", 10000, 11000);
  std::map<std::string, int> thread;
  for (const json& event : events(trace, "X")) thread[event.at("name")] = event.at("tid");
  EXPECT_EQ((std::set<int>{thread["long"], thread["within"], thread["also within"]}.size()), 3U);
  EXPECT_EQ(thread["next"], thread["long"]);
}

TEST(Trace, ManyRandomSlicesNest) {
  Trace trace;
  const int track = trace.track(trace.process("host"), "thread 1", Overlap::nested);
  uint32_t state  = 1;
  for (int i = 0; i < 300; ++i) {
    state               = state * 1664525u + 1013904223u;
    const int64_t start = state >> 16 & 0x3ff, length = state >> 8 & 0x3f;
    trace.slice(track, std::to_string(i), start * 1000, (start + length) * 1000);
  }
  expect_nested(trace);
}

TEST(Trace, AFlowJoinsTheStartsOfItsSlices) {
  Trace trace;
  const int launch =
      trace.slice(trace.track(trace.process("host"), "thread 1", Overlap::nested), "launch", 0, 5000);
  const int stream = trace.track(trace.process("GPU 0"), "stream 7", Overlap::apart);
  trace.slice(stream, "other", 3000, 9000);
  const int kernel = trace.slice(stream, "kernel", 7000, 12000);  // on the track below
  trace.flow(launch, kernel, "launch");
  const json from = events(trace, "s").at(0), to = events(trace, "f").at(0);
  EXPECT_EQ(from.at("id"), to.at("id"));
  EXPECT_EQ(from.at("name"), to.at("name"));
  EXPECT_EQ(from.at("cat"), to.at("cat"));
  EXPECT_EQ(to.at("bp"), "e");
  EXPECT_EQ(from.at("ts"), 0.0);
  EXPECT_EQ(to.at("ts"), 7.0);
  EXPECT_EQ(from.at("tid"), events(trace, "X").at(0).at("tid"));
  EXPECT_EQ(to.at("tid"), events(trace, "X").at(2).at("tid"));
  EXPECT_THROW(trace.flow(launch, 99, "nowhere"), ContractError);
}

TEST(Trace, CarriesArgumentsAndCounters) {
  Trace trace;
  const int gpu = trace.process("GPU \"0\"\n");
  trace.slice(trace.track(gpu, "stream 7", Overlap::apart), "k<\"a\">\xff", 100, 200,
              {{"bytes", int64_t{1} << 60}, {"occupancy", 0.5}, {"limiter", std::string("registers")}});
  trace.counter(gpu, "SM clock", 50, 1980e6);
  trace.counter(gpu, "SM clock", 150, std::nan(""));
  const json slice = events(trace, "X").at(0);
  EXPECT_EQ(slice.at("ts"), 0.05);
  EXPECT_EQ(slice.at("args").at("bytes"), int64_t{1} << 60);
  EXPECT_EQ(slice.at("args").at("occupancy"), 0.5);
  EXPECT_EQ(slice.at("args").at("limiter"), "registers");
  const std::vector<json> counters = events(trace, "C");
  EXPECT_EQ(counters.at(0).at("args").at("value"), 1980e6);
  EXPECT_TRUE(counters.at(1).at("args").at("value").is_null());
}

TEST(Trace, IsWrittenWholeOrNotAtAll) {
  namespace fs          = std::filesystem;
  const fs::path folder = fs::temp_directory_path() / ("fathom_trace_test_" + std::to_string(getpid()));
  Trace trace;
  trace.slice(trace.track(trace.process("host"), "thread 1", Overlap::nested), "call", 0, 1);
  trace.write((folder / "a" / "trace.json").string());
  std::ifstream file(folder / "a" / "trace.json");
  std::stringstream contents;
  contents << file.rdbuf();
  EXPECT_EQ(contents.str(), trace.json());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder / "a"), fs::directory_iterator()), 1);
  EXPECT_THROW(trace.write((folder / "a" / "trace.json" / "below_a_file").string()), SystemError);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace fathom::profile

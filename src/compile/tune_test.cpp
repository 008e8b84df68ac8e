#include "compile/tune.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "compile/canonical.h"
#include "compile/function.h"
#include "compile/programs.h"
#include "compile/random_graph.h"
#include "compile/run_numbers.h"
#include "compile/text.h"
#include "compile/tune_cache.h"
#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"

namespace fathom::compile {
namespace {

namespace fs = std::filesystem;

std::vector<Schedule> every_schedule() {
  std::vector<Schedule> all;
  for (const int64_t block : kBlocks)
    for (const int64_t chunk : kChunks)
      for (const bool threads : {false, true}) all.push_back({block, chunk, threads});
  return all;
}

// NaNs too.
bool same_bits(const std::map<std::string, Numbers>& a, const std::map<std::string, Numbers>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.size() == y.second.size() &&
           std::memcmp(x.second.data(), y.second.data(), x.second.size() * sizeof(double)) == 0;
  });
}

TEST(Schedule, NoChoiceChangesABitOfRandomPrograms) {
  ThreadPool pool(2);
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Graph graph = canonical(random_graph(seed, 20, Values::any));
    Executable plain(graph, fuse(graph)), scheduled(graph, fuse(graph));
    const std::vector<int64_t> symbols = {seed % 2 ? 257 : 900};
    const auto inputs                  = random_inputs(graph, symbols, seed, Values::any);
    const auto expected                = run(plain, symbols, inputs, pool);
    for (const Schedule& schedule : every_schedule()) {
      if (schedule.chunk != kChunks[seed % 3]) continue;
      scheduled.set_schedules(Schedules(scheduled.plan().groups.size(), schedule));
      ASSERT_TRUE(same_bits(run(scheduled, symbols, inputs, pool), expected))
          << "block " << schedule.block << ", threads " << schedule.threads << "\n"
          << print(graph);
    }
  }
}

// Rows shorter and longer than any block, sums of them, and a product that is finished in chunks.
TEST(Schedule, NoChoiceChangesABitOfRowsAndProducts) {
  ThreadPool pool(2);
  for (const int64_t width : {1, 100, 1024, 1025, 5000}) {
    Program p("rows");
    const Extent T = p.symbol({.name = "T"});
    const Tensor x = p.input("x", {T, width}), w = p.input("w", {width});
    p.output("norm", rms_norm(x, w, 1e-5));
    p.output("exp", exp(x * 0.1) + x);
    const Tensor u = p.input("u", {40, width}, DType::bf16);
    p.output("product", max(matmul(x.to(DType::bf16), u), 0) * 3);
    const Graph graph = canonical(p.graph());
    const Plan plan   = fuse(graph);
    for (const int64_t rows : {50}) {
      const std::vector<int64_t> symbols = {rows};
      const auto inputs                  = random_inputs(graph, symbols, 7, Values::any);
      kernels::for_each_simd_target([&] {
        Executable plain(graph, plan), scheduled(graph, plan);
        const auto expected = run(plain, symbols, inputs, pool);
        for (const Schedule& schedule : every_schedule()) {
          if (schedule.threads != (schedule.block != 512)) continue;
          scheduled.set_schedules(Schedules(plan.groups.size(), schedule));
          ASSERT_TRUE(same_bits(run(scheduled, symbols, inputs, pool), expected))
              << rows << " x " << width << ", block " << schedule.block << ", chunk " << schedule.chunk;
        }
      });
    }
  }
}

struct Planned {
  Graph graph;
  Plan plan;
};
Planned planned(const Graph& graph) {
  Graph form = canonical(graph);
  Plan plan  = fuse(form);
  return {std::move(form), std::move(plan)};
}
Planned program(std::string_view name) {
  for (const NamedProgram& program : programs())
    if (program.name == name) return planned(program.graph());
  throw std::runtime_error("no such program");
}

TEST(Tune, TriesEveryCandidateWithinItsTime) {
  ThreadPool one(1), two(2);
  const auto [graph, plan]           = program("mlp");
  const std::vector<int64_t> symbols = {8};
  const Tuned alone = tune(graph, plan, symbols, one, {.seconds = 3600});  // at most 100 rounds
  EXPECT_EQ(alone.of, 15);
  EXPECT_EQ(alone.tried, 15);
  EXPECT_EQ(alone.schedules.size(), plan.groups.size());
  EXPECT_EQ(tuning_space(graph, plan, 2).axes.size(), 3u);
  const Tuned hurried = tune(graph, plan, symbols, two, {.seconds = 0, .strategy = search::Strategy::random});
  EXPECT_EQ(hurried.of, 30);
  EXPECT_EQ(hurried.tried, 1);
  if (!hurried.faster) {
    EXPECT_EQ(hurried.schedules, Schedules(plan.groups.size()));
  }
}

TEST(Tune, WhatHasNoChoiceIsLeftAsItIs) {
  Program p("iota");
  p.output("y", p.iota({5, 3}, 1));
  ThreadPool pool(1);
  const auto [graph, plan] = planned(p.graph());
  const Tuned tuned        = tune(graph, plan, {}, pool);
  EXPECT_EQ(tuned.of, 1);
  EXPECT_EQ(tuned.tried, 0);
  EXPECT_FALSE(tuned.faster);
  EXPECT_EQ(tuned.schedules, Schedules(1));
}

TEST(Schedule, TheRuleSharesOnlyWorkThatIsWorthIt) {
  ThreadPool one(1), two(2);
  const auto [graph, plan] = program("mlp");
  for (const Schedule& schedule : schedules_by_rule(graph, plan, std::vector<int64_t>{1}, two))
    EXPECT_FALSE(schedule.threads);
  for (const Schedule& schedule : schedules_by_rule(graph, plan, std::vector<int64_t>{4096}, two))
    EXPECT_TRUE(schedule.threads);
  for (const Schedule& schedule : schedules_by_rule(graph, plan, std::vector<int64_t>{4096}, one))
    EXPECT_FALSE(schedule.threads);
}

// Files of its own, and this machine's.
class TuneCacheFiles : public testing::Test {
 protected:
  TuneCacheFiles()
      : folder_(fs::path(testing::TempDir()) / ("tune_cache_" + std::to_string(getpid()))), cache_(folder_) {
    fs::remove_all(folder_);
  }
  ~TuneCacheFiles() override { fs::remove_all(folder_); }

  static Tuned tuned(size_t launches, int64_t block) {
    return {.schedules  = Schedules(launches, {.block = block, .threads = false}),
            .default_ns = 2.5,
            .best_ns    = 1.25,
            .faster     = true,
            .tried      = 7,
            .of         = 30};
  }
  static std::string text_of(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    return text.str();
  }
  static void write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
  }
  // What find() says on stderr.
  std::string warning(const Planned& p, const std::vector<int64_t>& symbols, bool found) {
    testing::internal::CaptureStderr();
    EXPECT_EQ(cache_.find(p.graph, p.plan, symbols, 1).has_value(), found);
    return testing::internal::GetCapturedStderr();
  }

  const fs::path folder_;
  const TuneCache cache_;
  const std::vector<int64_t> symbols_ = {48};
};

TEST_F(TuneCacheFiles, WhatWasStoredIsFoundForTheSameBucketAndThreads) {
  const Planned mlp = program("mlp");
  EXPECT_EQ(warning(mlp, symbols_, false), "");  // no folder
  EXPECT_TRUE(cache_.files().empty());
  const Tuned kept = tuned(mlp.plan.groups.size(), 512);
  cache_.store(mlp.graph, symbols_, 1, kept);
  EXPECT_EQ(cache_.find(mlp.graph, mlp.plan, symbols_, 1), kept);
  for (const int64_t T : {33, 64}) EXPECT_EQ(cache_.find(mlp.graph, mlp.plan, std::vector{T}, 1), kept);
  for (const int64_t T : {32, 65})
    EXPECT_EQ(cache_.find(mlp.graph, mlp.plan, std::vector{T}, 1), std::nullopt);
  EXPECT_EQ(cache_.find(mlp.graph, mlp.plan, symbols_, 2), std::nullopt);
  ASSERT_EQ(cache_.files().size(), 1u);
  EXPECT_EQ(cache_.files()[0].entry->program, "mlp");
  EXPECT_EQ(cache_.files()[0].entry->buckets, std::vector<int64_t>{64});

  // Others in the folder stay.
  write(folder_ / "mine.json", "{}");
  EXPECT_EQ(cache_.files().size(), 1u);
  EXPECT_EQ(cache_.clear(), 1);
  EXPECT_TRUE(fs::exists(folder_ / "mine.json"));
  EXPECT_EQ(cache_.clear(), 0);
}

TEST_F(TuneCacheFiles, ADamagedFileIsIgnoredWithAWarningThatNamesIt) {
  const Planned norm = program("gated_norm");
  cache_.store(norm.graph, symbols_, 1, tuned(norm.plan.groups.size(), 512));
  const fs::path path    = cache_.path_of(norm.graph, symbols_, 1);
  const std::string text = text_of(path);
  for (size_t length = 0; length + 2 < text.size(); length += 97) {
    write(path, text.substr(0, length));
    const std::string said = warning(norm, symbols_, false);
    EXPECT_NE(said.find("warning: " + path.string() + " is ignored: it is damaged"), said.npos) << said;
  }
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const size_t at   = other.find(from);
    EXPECT_NE(at, other.npos) << from;
    write(path, other.replace(at, from.size(), to));
    return warning(norm, symbols_, false);
  };
  const auto says = [](const std::string& said, const char* part) {
    EXPECT_NE(said.find(part), said.npos) << said << " lacks " << part;
  };
  says(replaced("512", "513"), "none of the tuner's");
  says(replaced("512", "\"512\""), "damaged");
  says(replaced("\"identity\": \"", "\"identity\": \"x"), "another machine or version");
  says(replaced("fathom.tuned/1", "fathom.tuned/2"), "another machine or version");
  says(replaced("symbol s0 1", "symbol s0 2"), "its name is not that of the program in it");
  says(replaced("\"schedules\": [", "\"schedules\": [{\"block\": 256, \"chunk\": 65536, \"threads\": true},"),
       "2 schedules for 1 launches");
  // One byte of it, anywhere: ignored, or still a choice that the tuner has.
  for (size_t at = 0; at < text.size(); at += 11) {
    std::string other = text;
    other[at]         = static_cast<char>(other[at] ^ 1);
    write(path, other);
    testing::internal::CaptureStderr();
    const auto found       = cache_.find(norm.graph, norm.plan, symbols_, 1);
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_EQ(found.has_value(), said.empty());
    if (found) {
      EXPECT_EQ(found->schedules.size(), norm.plan.groups.size());
    }
  }
  ASSERT_EQ(cache_.files().size(), 1u);
  write(path, "");
  EXPECT_FALSE(cache_.files()[0].entry);
  EXPECT_EQ(cache_.clear(), 1);
}

TEST_F(TuneCacheFiles, AnotherProgramsFileUnderThisNameIsIgnored) {
  const Planned mlp = program("mlp"), norm = program("gated_norm");
  cache_.store(mlp.graph, symbols_, 1, tuned(mlp.plan.groups.size(), 256));
  fs::copy(cache_.path_of(mlp.graph, symbols_, 1), cache_.path_of(norm.graph, symbols_, 1));
  const std::string said = warning(norm, symbols_, false);
  EXPECT_NE(said.find("its name is not that of the program in it"), said.npos) << said;
}

TEST_F(TuneCacheFiles, DifferentProgramsHaveDifferentFiles) {
  std::map<fs::path, std::string> content_at;
  std::set<std::string> contents;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph         = canonical(random_graph(seed, 1 + static_cast<int>(seed % 4), Values::any));
    const std::string content = content_of(graph);
    contents.insert(content);
    const auto [at, added] = content_at.emplace(cache_.path_of(graph, symbols_, 1), content);
    if (!added) {
      EXPECT_EQ(at->second, content);
    }
  }
  EXPECT_EQ(content_at.size(), contents.size());
  EXPECT_GT(contents.size(), 150u);
}

TEST_F(TuneCacheFiles, ProcessesThatWriteOneFileLeaveOneOfTheirs) {
  const Planned mlp = program("mlp");
  const size_t n    = mlp.plan.groups.size();
  (void)cache_.path_of(mlp.graph, symbols_, 1);  // reads this machine's topology before any fork
  std::vector<pid_t> writers;
  for (const int64_t block : {256, 512, 2048, 4096}) {
    writers.push_back(fork());
    if (writers.back() != 0) continue;
    for (int i = 0; i < 25; ++i) cache_.store(mlp.graph, symbols_, 1, tuned(n, block));
    _exit(0);
  }
  testing::internal::CaptureStderr();
  std::set<int64_t> seen;
  for (size_t left = writers.size(); left > 0;) {
    if (const auto found = cache_.find(mlp.graph, mlp.plan, symbols_, 1)) {
      ASSERT_EQ(found->schedules, Schedules(n, found->schedules[0]));
      seen.insert(found->schedules[0].block);
    }
    int status = 0;
    if (waitpid(-1, &status, WNOHANG) > 0) {
      EXPECT_EQ(status, 0);
      --left;
    }
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_TRUE(cache_.find(mlp.graph, mlp.plan, symbols_, 1).has_value());
  EXPECT_FALSE(seen.empty());
  EXPECT_FALSE(seen.count(1024));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);  // no half of one
}

TEST_F(TuneCacheFiles, AFolderThatCannotBeWrittenIsAWarning) {
  write(folder_, "a file");
  testing::internal::CaptureStderr();
  const Planned norm = program("gated_norm");
  cache_.store(norm.graph, symbols_, 1, tuned(1, 512));
  EXPECT_NE(testing::internal::GetCapturedStderr().find("warning: tuned schedules are not kept"),
            std::string::npos);
}

TEST_F(TuneCacheFiles, FunctionsTuneOnceAndThenReadWhatWasFound) {
  ThreadPool pool(1);
  std::vector<float> x(64 * 96, 0.5f), w(96, 1), y(x.size()), plain(x.size());
  const Trace trace = [](Program& p, const std::vector<Tensor>& in) {
    p.output("y", rms_norm(in[0], in[1], 1e-5));
  };
  const auto call = [&](Function& f, int64_t rows, std::vector<float>& out) {
    f.run({{DType::fp32, x.data(), {rows, 96}}, {DType::fp32, w.data(), {96}}},
          {{DType::fp32, out.data(), {rows, 96}}}, pool);
  };
  Function untuned("norm", trace);
  call(untuned, 64, plain);

  Function f("norm", trace,
             {.cache = std::make_shared<CompileCache>(autotuned_schedules(cache_, {.seconds = 0.02}))});
  call(f, 64, y);
  EXPECT_EQ(y, plain);
  EXPECT_EQ(cache_.files().size(), 1u);
  call(f, 40, y);  // a symbol: another program
  EXPECT_EQ(cache_.files().size(), 2u);
  for (const int64_t rows : {33, 64, 50}) call(f, rows, y);
  EXPECT_EQ(cache_.files().size(), 2u);
  EXPECT_EQ(y, plain);

  // What a file says is what runs.
  const Executable& constant = *f.entries()[0].executable->parts()[0].executable;
  cache_.store(constant.graph(), {}, 1, tuned(1, 4096));
  Function cached("norm", trace, {.cache = std::make_shared<CompileCache>(cached_schedules(cache_))});
  call(cached, 64, y);
  EXPECT_EQ(y, plain);
  EXPECT_EQ(cached.entries()[0].executable->parts()[0].executable->schedules(),
            Schedules(1, {.block = 4096, .threads = false}));
}

}  // namespace
}  // namespace fathom::compile

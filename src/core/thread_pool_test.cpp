#include "core/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace fathom {
namespace {

constexpr int kThreads[] = {1, 2, 3, 8};

TEST(ThreadPool, RunsEachWorkerOnce) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::vector<int> calls(threads);  // plain ints: run() orders them
    std::vector<std::thread::id> ids(threads);
    for (int section = 1; section <= 200; ++section) {
      pool.run([&](int worker) {
        ++calls[worker];
        ids[worker] = std::this_thread::get_id();
      });
      ASSERT_EQ(calls, std::vector<int>(threads, section));
    }
    EXPECT_EQ(ids[0], std::this_thread::get_id());
    for (int a = 0; a < threads; ++a)
      for (int b = 0; b < a; ++b) EXPECT_NE(ids[a], ids[b]);
  }
}

TEST(ThreadPool, CallsTheFunctionItselfNotACopy) {
  ThreadPool pool(2);
  std::vector<const void*> seen(2);
  struct Mutable {
    std::vector<const void*>& seen;
    void operator()(int worker) { seen[worker] = this; }
  } function{seen};
  pool.run(function);
  EXPECT_EQ(seen, std::vector<const void*>(2, &function));
  std::atomic<int> sum{0};
  const auto constant = [&](int worker) { sum += worker + 1; };
  pool.run(constant);
  EXPECT_EQ(sum, 3);
}

TEST(ThreadPool, ParallelForCoversTheRangeOnceInPiecesOfTheGrain) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads);
    for (const int64_t grain : {1, 7, 64})
      for (const int64_t n :
           {int64_t{0}, int64_t{1}, grain - 1, grain, grain + 1, 3 * grain - 1, int64_t{997}}) {
        std::vector<int> touched(n);
        std::atomic<int> pieces{0};
        pool.parallel_for(n, grain, [&](int64_t begin, int64_t end) {
          ++pieces;
          EXPECT_LT(begin, end);
          EXPECT_EQ(begin % grain, 0);
          EXPECT_TRUE(end % grain == 0 || end == n);
          for (int64_t i = begin; i < end; ++i) ++touched[i];
        });
        EXPECT_EQ(touched, std::vector<int>(n, 1)) << threads << " threads, " << n << " by " << grain;
        EXPECT_EQ(pieces, std::min<int64_t>(threads, (n + grain - 1) / grain));
      }
  }
}

TEST(ThreadPool, RethrowsAndStaysUsable) {
  ThreadPool pool(3);
  for (int thrower = 0; thrower < 3; ++thrower) {
    std::vector<int> finished(3);
    EXPECT_THROW(pool.run([&](int worker) {
      if (worker == thrower) throw std::out_of_range("worker " + std::to_string(worker));
      finished[worker] = 1;
    }),
                 std::out_of_range);
    EXPECT_EQ(std::accumulate(finished.begin(), finished.end(), 0), 2);
  }
  EXPECT_THROW(pool.run([](int) { throw std::length_error("all"); }), std::length_error);
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });
  EXPECT_EQ(calls, 3);
}

TEST(ThreadPool, EveryShareIsTakenOnce) {
  for (const int threads : kThreads) {
    ThreadPool pool(threads);
    std::vector<int> calls(threads);  // plain ints: run_shares() orders them, whichever thread takes a share
    for (int section = 1; section <= 2000; ++section) {
      if (section % 3 == 0)
        pool.run([&](int worker) { ++calls[worker]; });
      else
        pool.run_shares([&](int share) { ++calls[share]; });
      ASSERT_EQ(calls, std::vector<int>(threads, section)) << threads << " threads, section " << section;
    }
  }
}

std::atomic<int> held{0};
std::atomic<bool> hold{false};

// Keeps threads out of a pool as a busy system does: each sits in a signal handler until the end.
class HeldThreads {
 public:
  explicit HeldThreads(const std::vector<pthread_t>& threads) {
    hold = true;
    struct sigaction action {};
    action.sa_handler = [](int) {
      ++held;
      while (hold) {
        const timespec millisecond{0, 1'000'000};
        nanosleep(&millisecond, nullptr);
      }
      --held;
    };
    sigaction(SIGUSR1, &action, nullptr);  // stays: a second signal may still be on its way at the end
    while (held < static_cast<int>(threads.size())) {
      // Again and again, because ThreadSanitizer keeps a signal back until the thread's next system call.
      for (const pthread_t thread : threads) pthread_kill(thread, SIGUSR1);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ~HeldThreads() {
    hold = false;
    while (held > 0) std::this_thread::yield();
  }
};

TEST(ThreadPool, TheCallerTakesTheSharesOfWorkersThatDoNotCome) {
  ThreadPool pool(4);
  std::vector<pthread_t> threads(4);
  pool.run([&](int worker) { threads[worker] = pthread_self(); });
  std::vector<int> calls(4);
  const auto count = [&](int share) {
    EXPECT_EQ(pthread_self(), threads[0]);
    ++calls[share];
  };
  {
    const HeldThreads held_threads({threads.begin() + 1, threads.end()});
    for (int section = 0; section < 100; ++section) pool.run_shares(count);
    EXPECT_EQ(calls, std::vector<int>(4, 100));
    int64_t covered = 0;
    pool.parallel_for(997, 7, [&](int64_t begin, int64_t end) { covered += end - begin; });
    EXPECT_EQ(covered, 997);
    EXPECT_THROW(pool.run_shares([](int share) {
      if (share == 3) throw std::out_of_range("share 3");
    }),
                 std::out_of_range);
  }
  // They come back to a later section, not to one that the caller has finished.
  std::vector<int> finished(4);
  pool.run([&](int worker) { ++finished[worker]; });
  EXPECT_EQ(finished, std::vector<int>(4, 1));
  EXPECT_EQ(calls, std::vector<int>(4, 100));
}

TEST(ThreadPool, RefusesNestingAndNonsense) {
  ThreadPool pool(2);
  EXPECT_THROW(pool.run([&](int) { pool.run([](int) {}); }), ContractError);
  EXPECT_THROW(pool.parallel_for(-1, 1, [](int64_t, int64_t) {}), ContractError);
  EXPECT_THROW(pool.parallel_for(1, 0, [](int64_t, int64_t) {}), ContractError);
  EXPECT_THROW(ThreadPool(0), ContractError);
}

TEST(ThreadPool, PinsItsWorkersAndGivesTheCallerItsMaskBack) {
  const std::vector<int> before = allowed_cpus();
  {
    ThreadPool pool({.threads = 3, .cpus = before});
    std::vector<std::vector<int>> seen(3);
    pool.run([&](int worker) { seen[worker] = allowed_cpus(); });
    for (size_t worker = 0; worker < 3; ++worker)
      EXPECT_EQ(seen[worker], std::vector<int>{before[worker % before.size()]});
  }
  EXPECT_EQ(allowed_cpus(), before);
  EXPECT_THROW(ThreadPool({.threads = 2, .cpus = {before[0], 1 << 20}}), SystemError);
  EXPECT_EQ(allowed_cpus(), before);
}

// State letters of all threads of this process but the calling one: S is asleep.
std::string states_of_other_threads() {
  std::string states;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(gettid())) continue;
    std::stringstream text;
    text << std::ifstream(task.path() / "stat").rdbuf();
    const size_t name_end = text.str().rfind(')');
    if (name_end != std::string::npos) states += text.str()[name_end + 2];
  }
  return states;
}

TEST(ThreadPool, SleepsWhenIdle) {
  ThreadPool pool(host_threads());
  pool.run([](int) {});  // every worker has started
  // Workers stop spinning by themselves; the deadline catches those that do not.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  const auto asleep   = [&] {
    const std::string states = states_of_other_threads();
    // More threads than the workers: a sanitizer may start one of its own, at any time.
    return std::ssize(states) >= pool.threads() - 1 && states.find_first_not_of('S') == std::string::npos;
  };
  while (!asleep()) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline) << states_of_other_threads();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::atomic<int> calls{0};
  pool.run([&](int) { ++calls; });  // workers wake up
  EXPECT_EQ(calls, pool.threads());
}

TEST(ThreadPool, SurvivesManySectionsAcrossSleepAndSpin) {
  ThreadPool pool(4);
  int64_t total = 0;
  for (int section = 0; section < 3000; ++section) {
    int64_t part[4] = {};
    pool.run([&](int worker) { part[worker] = section; });
    total += part[0] + part[1] + part[2] + part[3];
    if (section % 100 == 0) std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  EXPECT_EQ(total, int64_t{4} * 3000 * 2999 / 2);
}

}  // namespace
}  // namespace fathom

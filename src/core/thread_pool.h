// A pool of pinned threads for short parallel sections. The caller is worker 0.
//
// An idle worker spins for about 20 us, so that back-to-back sections start within a cache miss or two. Then
// it sleeps in the kernel, so that an idle pool costs nothing. A pool with more workers than CPUs never
// spins.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "core/cpus.h"
#include "core/expect.h"

namespace fathom {

class ThreadPool {
 public:
  struct Options {
    int threads           = 1;   // the caller included
    std::vector<int> cpus = {};  // worker w runs on cpus[w % size]; empty: not pinned
  };

  // With cpus, the constructing thread is pinned too; the destructor restores its mask.
  explicit ThreadPool(const Options& options);
  explicit ThreadPool(int threads) : ThreadPool(Options{.threads = threads}) {}
  ~ThreadPool();
  ThreadPool(const ThreadPool&)            = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(worker) once on each worker, 0 .. threads() - 1, and returns when all are done; their writes are
  // then visible to the caller. If calls throw, the others still finish and one of the exceptions is
  // rethrown. One section at a time: neither f nor another thread may use the pool meanwhile.
  template <class F>
  void run(F&& f) {
    using Function = std::remove_reference_t<F>;
    run_section([](void* function, int worker) { (*static_cast<Function*>(function))(worker); },
                const_cast<void*>(static_cast<const void*>(std::addressof(f))));
  }

  // Calls f(begin, end) on contiguous pieces of [0, n), at most one for each worker, cut at multiples of
  // grain. Each worker gets the same piece every time.
  template <class F>
  void parallel_for(int64_t n, int64_t grain, F&& f) {
    FATHOM_EXPECT(n >= 0 && grain >= 1, "parallel_for needs a count of at least 0 and a grain of at least 1");
    const int64_t grains = n / grain + (n % grain != 0);
    const int64_t pieces = std::min<int64_t>(grains, threads());
    if (pieces == 0) return;
    if (pieces == 1) return f(int64_t{0}, n);
    run([&](int worker) {
      if (worker >= pieces) return;
      const int64_t begin = grains * worker / pieces * grain;
      const int64_t end   = std::min(grains * (worker + 1) / pieces * grain, n);
      f(begin, end);
    });
  }

 private:
  using Section = void (*)(void* function, int worker);

  void run_section(Section section, void* function);
  void work(int worker) noexcept;
  void serve(int worker);
  void end();

  // The caller writes these before it increments epoch_; workers read them after they see the new epoch_.
  Section section_ = nullptr;
  void* function_  = nullptr;
  bool ending_     = false;
  int spins_       = 0;
  std::exception_ptr error_;  // of the worker that set failed_
  std::vector<int> caller_cpus_;
  int caller_ = 0;  // thread id of the constructing thread, whose mask caller_cpus_ is

  alignas(64) std::atomic<int> epoch_{0};    // incremented for each section
  alignas(64) std::atomic<int> pending_{0};  // workers that have not finished it
  std::atomic<bool> failed_{false};
  std::atomic<bool> busy_{false};
  std::vector<std::thread> workers_;
};

}  // namespace fathom

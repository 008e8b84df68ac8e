// A pool of pinned threads for short parallel sections. The caller is worker 0.
//
// A section has a share for each worker. Where any thread may take any share (run_shares, parallel_for), the
// caller takes those of workers that have not begun, so that it never waits for a thread to which the system
// gives no CPU: it waits only for shares that are under way. Work that is cut finer than shares belongs in a
// queue that all shares drain; then the caller finishes it alone if nobody else comes.
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
    run_section(f, Takes::own_share);
  }

  // The same, but f(share) may run on any thread, and several on one: no share may wait for another.
  template <class F>
  void run_shares(F&& f) {
    run_section(f, Takes::any_share);
  }

  // Calls f(begin, end) on contiguous pieces of [0, n), at most one for each worker, cut at multiples of
  // grain. A worker that comes in time gets the same piece every time.
  template <class F>
  void parallel_for(int64_t n, int64_t grain, F&& f) {
    FATHOM_EXPECT(n >= 0 && grain >= 1, "parallel_for needs a count of at least 0 and a grain of at least 1");
    const int64_t grains = n / grain + (n % grain != 0);
    const int64_t pieces = std::min<int64_t>(grains, threads());
    if (pieces == 0) return;
    if (pieces == 1) return f(int64_t{0}, n);
    run_shares([&](int64_t share) {
      if (share >= pieces) return;
      const int64_t begin = grains * share / pieces * grain;
      const int64_t end   = std::min(grains * (share + 1) / pieces * grain, n);
      f(begin, end);
    });
  }

 private:
  using Section = void (*)(void* function, int share);
  enum class Takes { own_share, any_share };

  // Which section's share was taken last, for each worker. A share is taken by whoever advances it from the
  // section before to the current one.
  struct alignas(64) Share {
    std::atomic<uint32_t> taken{0};
  };

  template <class F>
  void run_section(F& f, Takes takes) {
    run_section([](void* function, int share) { (*static_cast<F*>(function))(share); },
                const_cast<void*>(static_cast<const void*>(std::addressof(f))), takes);
  }
  void run_section(Section section, void* function, Takes takes);
  void take_what_is_left(uint32_t epoch);
  bool take(int share, uint32_t epoch);
  void work(int share) noexcept;
  void serve(int worker);
  void end();

  // The caller writes these before it increments epoch_; a worker reads them after it took a share of epoch_,
  // and the caller waits for every share that was taken.
  Section section_ = nullptr;
  void* function_  = nullptr;
  int spins_       = 0;
  std::exception_ptr error_;  // of the share that set failed_
  std::vector<int> caller_cpus_;
  int caller_ = 0;  // thread id of the constructing thread, whose mask caller_cpus_ is

  alignas(64) std::atomic<uint32_t> epoch_{0};  // counts the sections
  std::atomic<bool> ending_{false};
  alignas(64) std::atomic<uint32_t> pending_{0};  // shares that are not done
  std::atomic<bool> failed_{false};
  std::atomic<bool> busy_{false};
  std::vector<Share> shares_;
  std::vector<std::thread> workers_;
};

}  // namespace fathom

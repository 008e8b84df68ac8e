#include "core/thread_pool.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <utility>

namespace fathom {
namespace {

// About 20 us: a pause takes 40 to 140 cycles, depending on the processor.
constexpr int kSpins = 1000;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns the first value of `word` that differs from `old`: spins at most `spins` times, then sleeps.
uint32_t await_change(const std::atomic<uint32_t>& word, uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (const uint32_t value = word.load(std::memory_order_acquire); value != old) return value;
    relax();
  }
  word.wait(old, std::memory_order_acquire);
  return word.load(std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(const Options& options) : shares_(static_cast<size_t>(std::max(options.threads, 0))) {
  const auto& [threads, cpus] = options;
  FATHOM_EXPECT(threads >= 1, fmt::format("a pool of {} threads: the caller alone makes 1", threads));
  // Workers spin only if each has a CPU: of the given CPUs or of the caller's mask.
  spins_ = threads <= (cpus.empty() ? host_threads() : static_cast<int>(cpus.size())) ? kSpins : 0;
  try {
    if (!cpus.empty()) {
      caller_      = gettid();
      caller_cpus_ = allowed_cpus();
      for (int worker = std::min<int>(threads, cpus.size()) - 1; worker >= 0; --worker)
        pin_this_thread(cpus[worker]);
    }
    for (int worker = 1; worker < threads; ++worker)
      workers_.emplace_back([this, worker, cpu = cpus.empty() ? -1 : cpus[worker % cpus.size()]] {
        if (cpu >= 0) pin_this_thread(cpu);  // cannot fail: the caller did the same
        serve(worker);
      });
  } catch (...) {
    end();
    throw;
  }
}

ThreadPool::~ThreadPool() { end(); }

void ThreadPool::end() {
  ending_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (std::thread& worker : workers_) worker.join();
  if (caller_cpus_.empty()) return;
  std::vector<cpu_set_t> mask(caller_cpus_.back() / CPU_SETSIZE + 1);
  const size_t bytes = mask.size() * sizeof(cpu_set_t);
  for (const int cpu : caller_cpus_) CPU_SET_S(cpu, bytes, mask.data());
  (void)sched_setaffinity(caller_, bytes, mask.data());  // fails if the thread has ended
}

void ThreadPool::run_section(Section section, void* function, Takes takes) {
  FATHOM_EXPECT(!busy_.exchange(true),
                "the pool is running a section already: sections neither nest nor overlap");
  section_             = section;
  function_            = function;
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  if (!workers_.empty()) {
    pending_.store(static_cast<uint32_t>(workers_.size()), std::memory_order_relaxed);
    shares_[0].taken.store(epoch, std::memory_order_relaxed);
    epoch_.store(epoch);
    epoch_.notify_all();
  }
  work(0);
  if (takes == Takes::any_share) take_what_is_left(epoch);
  for (uint32_t left = pending_.load(std::memory_order_acquire); left != 0;)
    left = await_change(pending_, left, spins_);

  const std::exception_ptr error = std::exchange(error_, nullptr);
  failed_.store(false, std::memory_order_relaxed);
  busy_.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

void ThreadPool::take_what_is_left(uint32_t epoch) {
  // To look at a share costs a cache miss, so wait about as long for the workers first.
  for (int spin = 1; spin < threads() && spins_ > 0; ++spin) {
    if (pending_.load(std::memory_order_relaxed) == 0) return;
    relax();
  }
  for (int share = 1; share < threads(); ++share)
    if (take(share, epoch)) {
      work(share);
      pending_.fetch_sub(1, std::memory_order_relaxed);
    }
}

bool ThreadPool::take(int share, uint32_t epoch) {
  // Every share is taken in every section, so it is at the section before, or taken.
  uint32_t before = epoch - 1;
  return shares_[static_cast<size_t>(share)].taken.compare_exchange_strong(before, epoch,
                                                                           std::memory_order_relaxed);
}

void ThreadPool::work(int share) noexcept {
  try {
    section_(function_, share);
  } catch (...) {
    if (!failed_.exchange(true)) error_ = std::current_exception();
  }
}

void ThreadPool::serve(int worker) {
  for (uint32_t seen = 0;;) {
    seen = await_change(epoch_, seen, spins_);
    if (ending_.load(std::memory_order_relaxed)) return;
    if (!take(worker, seen)) continue;  // the caller did, and may be in a later section by now
    work(worker);
    if (pending_.fetch_sub(1) == 1) pending_.notify_one();
  }
}

}  // namespace fathom

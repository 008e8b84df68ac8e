#include "machine/ceilings_measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <memory>
#include <thread>
#include <tuple>

#include "core/expect.h"
#include "core/rng.h"
#include "core/thread_pool.h"
#include "core/utc_time.h"
#include "machine/features.h"
#include "machine/fma_kernels.h"
#include "machine/huge_page_buffer.h"
#include "machine/isolation.h"
#include "machine/machine_id.h"
#include "measure/clock.h"
#include "measure/interval.h"
#include "measure/noise.h"
#include "measure/statistics.h"

namespace fathom::machine {
namespace {

constexpr double kConfidence = 0.95;
constexpr int64_t kLine      = 64;
// 4K aliasing: loads and stores whose addresses agree modulo this may wait for each other.
constexpr int64_t kAlias = 4096;

double now_s() { return 1e-9 * static_cast<double>(measure::now_ns(measure::Clock::wall)); }

// Pinned workers that start a section together. Each has a buffer that it touched first.
class Workers {
 public:
  Workers(int threads, int64_t bytes_each)
      : pool_({.threads = threads,
               .cpus    = {topology().allowed_cpus.begin(), topology().allowed_cpus.begin() + threads}}),
        spans_(threads) {
    // A source and a target, which run() shifts by up to 2 kAlias.
    for (int w = 0; w < threads; ++w) buffers_.emplace_back(bytes_each + 2 * kAlias);
    pool_.run(
        [&](int worker) { std::memset(buffers_[worker].data(), worker + 1, buffers_[worker].bytes()); });
  }

  int threads() const { return pool_.threads(); }
  ThreadPool& pool() { return pool_; }
  const HugePageBuffer& buffer(int worker) const { return buffers_[worker]; }

  // Seconds from the first start to the last end.
  template <class F>
  double seconds(F f) {
    std::atomic<int> arrived{0};
    pool_.run([&](int worker) {
      arrived.fetch_add(1);
      while (arrived.load() < threads()) std::this_thread::yield();
      const double start = now_s();
      f(worker);
      spans_[worker] = {start, now_s()};
    });
    double first = spans_[0].start, last = spans_[0].end;
    for (const Span& span : spans_) first = std::min(first, span.start), last = std::max(last, span.end);
    return last - first;
  }

 private:
  struct alignas(64) Span {
    double start = 0, end = 0;
  };
  ThreadPool pool_;
  std::vector<HugePageBuffer> buffers_;
  std::vector<Span> spans_;
};

// Kernels' results go here, so that the compiler cannot drop the kernels.
std::atomic<uint64_t> consumed{0};

// How often to repeat f so that it takes at least `seconds`. Doubles until three runs take a tenth of that:
// one long run may only mean that another process ran.
template <class F>
int64_t repeats_for(double seconds, F timed) {
  for (int64_t repeats = 1;; repeats *= 2) {
    double took = timed(repeats);
    for (int again = 0; again < 2 && took >= seconds / 10; ++again) took = std::min(took, timed(repeats));
    if (took >= seconds / 10)
      return std::max<int64_t>(1, std::llround(std::ceil(static_cast<double>(repeats) * seconds / took)));
  }
}

// ---- bandwidth

bool is_copy(Traffic traffic) { return traffic == Traffic::copy || traffic == Traffic::copy_nontemporal; }

class BandwidthTrial {
 public:
  BandwidthTrial(Workers& workers, Level level, Traffic traffic, const Effort& effort)
      : workers_(workers), traffic_(traffic) {
    const int threads   = workers.threads();
    const int64_t total = working_set_bytes(level, threads, topology(), effort.dram_bytes);
    const int64_t parts = is_copy(traffic) ? 2 : 1;
    part_bytes_         = total / threads / parts / kStreamStep * kStreamStep;
    warm_               = level != Level::dram;
    result_             = {
                    .level = level, .traffic = traffic, .threads = threads, .bytes = part_bytes_ * parts * threads};
  }

  // Selects the fastest kernel, by two trials each. False: this machine lacks the instruction.
  bool choose(double trial_s) {
    double best = 0;
    for (const StreamKernels* candidate : runnable_stream_kernels()) {
      const StreamKernel kernel = candidate->of[static_cast<int>(traffic_)];
      if (!kernel) continue;
      const int64_t passes = repeats_for(trial_s, [&](int64_t n) { return run(kernel, n); });
      for (int trial = 0; trial < 2; ++trial) {
        const double rate = bytes_moved(passes) / run(kernel, passes);
        best_             = std::max(best_, rate);
        if (rate <= best) continue;
        best           = rate;
        kernel_        = kernel;
        passes_        = passes;
        result_.kernel = candidate->name;
      }
    }
    return kernel_ != nullptr;
  }

  void trial() {
    if (warm_) run(kernel_, 1);
    samples_.push_back(bytes_moved(passes_) / run(kernel_, passes_));
  }

  Bandwidth result() const {
    Bandwidth result        = result_;
    result.bytes_per_s      = summarise(samples_, Better::higher);
    result.bytes_per_s.best = std::max(result.bytes_per_s.best, best_);
    return result;
  }

 private:
  double bytes_moved(int64_t passes) const {
    return static_cast<double>(part_bytes_) * static_cast<double>(passes) * workers_.threads() *
           (is_copy(traffic_) ? 2 : 1);
  }
  double run(StreamKernel kernel, int64_t passes) {
    return workers_.seconds([&](int worker) {
      std::byte* source = workers_.buffer(worker).data();
      // Behind the source, at 256 bytes before the same offset in a page: see kAlias.
      std::byte* target =
          is_copy(traffic_) ? source + (part_bytes_ + kAlias - 1) / kAlias * kAlias + kAlias - 256 : source;
      consumed += kernel(target, source, part_bytes_, passes);
    });
  }

  Workers& workers_;
  Traffic traffic_;
  Bandwidth result_;
  int64_t part_bytes_  = 0;
  bool warm_           = true;
  StreamKernel kernel_ = nullptr;
  int64_t passes_      = 1;
  double best_         = 0;
  std::vector<double> samples_;
};

std::vector<Level> levels_of(const Topology& machine) {
  std::vector<Level> levels;
  for (const Level level : kLevels)
    if (level == Level::dram || data_cache(machine, static_cast<int>(level) + 1)) levels.push_back(level);
  return levels;
}

std::vector<Bandwidth> measure_bandwidths(Workers& workers, const Effort& effort) {
  std::vector<BandwidthTrial> entries;
  for (const Level level : levels_of(topology()))
    for (int traffic = 0; traffic < kTraffics; ++traffic) {
      BandwidthTrial entry(workers, level, static_cast<Traffic>(traffic), effort);
      if (entry.choose(effort.trial_s)) entries.push_back(std::move(entry));
    }
  // The trials of all entries are interleaved, so that a second of interference affects one trial of each
  // entry, not all trials of one.
  for (int trial = 0; trial < effort.trials; ++trial)
    for (BandwidthTrial& entry : entries) entry.trial();
  std::vector<Bandwidth> results;
  for (const BandwidthTrial& entry : entries) results.push_back(entry.result());
  return results;
}

// ---- arithmetic

bool runnable(const FmaKernel& kernel) {
  return std::none_of(kernel.needs.begin(), kernel.needs.end(),
                      [](Feature f) { return missing(f).has_value(); });
}

ArithmeticPeak measure_kernel(Workers& workers, const FmaKernel& kernel, const Effort& effort) {
  const auto timed = [&](int64_t steps) {
    return workers.seconds([&](int) { consumed += static_cast<uint64_t>(std::abs(kernel.run(steps))) & 1; });
  };
  const int64_t steps = repeats_for(effort.trial_s, timed);
  std::vector<double> samples;
  for (int trial = 0; trial < effort.trials; ++trial)
    samples.push_back(kernel.flops_per_step * static_cast<double>(steps) * workers.threads() / timed(steps));
  return {.isa         = kernel.isa,
          .dtype       = kernel.dtype,
          .threads     = workers.threads(),
          .flops_per_s = summarise(samples, Better::higher)};
}

// ---- load latency

// One pointer in each line, in a random cycle through all lines, which no prefetcher can predict.
void* const* make_cycle(const HugePageBuffer& buffer, int64_t bytes) {
  const int64_t lines = bytes / kLine;
  std::vector<int32_t> order(lines);
  fill_permutation<int32_t>(order.data(), lines, 1, lines);
  const auto slot = [&](int64_t i) { return reinterpret_cast<void**>(buffer.data() + order[i] * kLine); };
  for (int64_t i = 0; i < lines; ++i) *slot(i) = slot((i + 1) % lines);
  return slot(0);
}

LoadLatency measure_latency(Workers& workers, Level level, const Effort& effort) {
  const int64_t bytes = working_set_bytes(level, 1, topology(), effort.dram_bytes);
  void* const* at     = make_cycle(workers.buffer(0), bytes);
  const auto timed    = [&](int64_t loads) {  // continues where the last call stopped
    return workers.seconds([&](int) { at = chase(at, loads); });
  };
  const int64_t loads = repeats_for(effort.trial_s, timed);
  std::vector<double> samples;
  for (int trial = 0; trial < effort.trials; ++trial)
    samples.push_back(1e9 * timed(loads) / static_cast<double>(loads));
  consumed += reinterpret_cast<uintptr_t>(at);
  return {.level = level, .bytes = bytes, .ns = summarise(samples, Better::lower)};
}

// ---- threads and noise

Measured measure_wake_up(ThreadPool& pool, const Effort& effort, bool asleep) {
  if (pool.threads() < 2) return {};
  const int sections = asleep ? 10 : 500;
  std::vector<double> samples;
  for (int trial = 0; trial < effort.trials; ++trial) {
    double ns = 0;
    for (int s = 0; s < sections; ++s) {
      if (asleep)
        std::this_thread::sleep_for(std::chrono::microseconds(500));  // far longer than the pool spins
      const int64_t start = measure::now_ns(measure::Clock::wall);
      pool.run([](int) {});
      ns += static_cast<double>(measure::now_ns(measure::Clock::wall) - start);
    }
    samples.push_back(ns / sections);
  }
  return summarise(samples, Better::lower);
}

// Compares pairs of identical epochs as an experiment compares its variants.
template <class F>
double noise_floor(F timed) {
  constexpr int kPairs      = 40;
  constexpr double kEpoch_s = 1e-3;
  const int64_t repeats     = repeats_for(kEpoch_s, timed);
  std::vector<double> log_ratios;
  for (int pair = 0; pair < kPairs; ++pair) {
    const double first = timed(repeats), second = timed(repeats);
    log_ratios.push_back(pair % 2 ? std::log(first / second) : std::log(second / first));
  }
  if (const auto interval = measure::ratio_interval(log_ratios, kConfidence))
    return (interval->hi - interval->lo) / 2;
  return measure::quantile(log_ratios, 1) -
         measure::quantile(log_ratios, 0);  // too correlated for an interval
}

double compute_noise(Workers& workers) {
  const FmaKernel& kernel = fma_kernels_portable().front();
  return noise_floor([&](int64_t steps) {
    return workers.seconds([&](int) { consumed += static_cast<uint64_t>(kernel.run(steps)) & 1; });
  });
}

double memory_noise(Workers& workers) {
  const int64_t bytes = std::min<int64_t>(workers.buffer(0).bytes(), 16 << 20) / kStreamStep * kStreamStep;
  const StreamKernel kernel = kStreamPortable.of[static_cast<int>(Traffic::read)];
  return noise_floor([&](int64_t passes) {
    return workers.seconds(
        [&](int) { consumed += kernel(nullptr, workers.buffer(0).data(), bytes, passes); });
  });
}

int64_t largest_set(int threads, const Effort& effort) {  // of one worker
  int64_t largest = 0;
  for (const Level level : levels_of(topology()))
    largest = std::max(largest, working_set_bytes(level, threads, topology(), effort.dram_bytes));
  return largest / threads;
}

}  // namespace

Measured summarise(const std::vector<double>& samples, Better better) {
  const auto [lowest, highest] = std::minmax_element(samples.begin(), samples.end());
  Measured measured{.median = measure::median(samples),
                    .lo     = *lowest,
                    .hi     = *highest,
                    .best   = better == Better::higher ? *highest : *lowest,
                    .trials = static_cast<int>(samples.size())};
  // Where trials are too correlated for an interval, report the whole range.
  if (const auto interval = measure::median_interval(samples, kConfidence)) {
    measured.lo = interval->lo;
    measured.hi = interval->hi;
  }
  return measured;
}

int64_t working_set_bytes(Level level, int threads, const Topology& machine, int64_t dram_bytes) {
  const auto held = [&](int cache_level) -> int64_t {  // of the caches that `threads` cores can use
    const CpuCache* cache = data_cache(machine, cache_level);
    return cache ? cache->bytes * std::min(cache->instances, threads) : 0;
  };
  switch (level) {
    case Level::l1:
      return held(1) / 4 * 3;
    case Level::l2:
      return held(2) / 2;
    // A quarter, as other VMs of the host may use the rest, but more than L2 could hold.
    case Level::l3:
      return held(3) == 0 ? 0 : std::max(held(3) / 4, 2 * held(2));
    case Level::dram:
      break;
  }
  if (dram_bytes > 0) return dram_bytes;
  constexpr int64_t kLeast = 256 << 20;
  int64_t last             = 0;
  for (const CpuCache& cache : machine.caches) last = std::max(last, cache.bytes * cache.instances);
  return std::min(std::max(kLeast, 4 * last), memory_available_bytes() / 4);
}

Bandwidth measure_bandwidth(Level level, Traffic traffic, int threads, const Effort& effort) {
  Workers workers(threads, working_set_bytes(level, threads, topology(), effort.dram_bytes) / threads);
  BandwidthTrial entry(workers, level, traffic, effort);
  FATHOM_EXPECT(entry.choose(effort.trial_s),
                fmt::format("this processor has no instruction for {}", to_string(traffic)));
  for (int trial = 0; trial < effort.trials; ++trial) entry.trial();
  return entry.result();
}

ArithmeticPeak measure_peak(DType dtype, int threads, const Effort& effort) {
  Workers workers(threads, kAlias);
  ArithmeticPeak best;
  for (const FmaKernel& kernel : fma_kernels()) {
    if (kernel.dtype != dtype || !runnable(kernel)) continue;
    const ArithmeticPeak peak = measure_kernel(workers, kernel, effort);
    if (peak.flops_per_s.median > best.flops_per_s.median) best = peak;
  }
  FATHOM_EXPECT(best.flops_per_s.trials > 0, "no arithmetic kernel of this type runs on this processor");
  return best;
}

Ceilings measure_ceilings(const Effort& effort, const ProgressLine& progress) {
  const double start               = now_s();
  const CpuTimes cpu_start         = cpu_times();
  const measure::Noise noise_start = measure::read_noise();
  Ceilings ceilings;
  ceilings.machine_id = machine_id();
  ceilings.identity   = machine_identity(topology(), isolation(), kCeilingsVersion);
  ceilings.threads    = usable_threads();

  std::vector<int> thread_counts{1};
  if (ceilings.threads > 1) thread_counts.push_back(ceilings.threads);
  ceilings.huge_pages = true;
  for (const int threads : thread_counts) {
    const std::string who = threads == 1 ? "1 thread" : fmt::format("{} threads", threads);
    Workers workers(threads, largest_set(threads, effort));
    for (int w = 0; w < threads; ++w) ceilings.huge_pages = ceilings.huge_pages && workers.buffer(w).huge();

    progress(fmt::format("cache and memory bandwidth, {}", who));
    for (Bandwidth& bandwidth : measure_bandwidths(workers, effort))
      ceilings.bandwidths.push_back(std::move(bandwidth));
    progress(fmt::format("arithmetic peaks, {}", who));
    for (const FmaKernel& kernel : fma_kernels())
      if (runnable(kernel)) ceilings.peaks.push_back(measure_kernel(workers, kernel, effort));

    if (threads == 1) {
      progress("load latency and noise floor");
      ceilings.noise_floor_compute = compute_noise(workers);
      ceilings.noise_floor_memory  = memory_noise(workers);
      for (const Level level : levels_of(topology()))
        ceilings.load_latencies.push_back(measure_latency(workers, level, effort));
    }
    if (threads == ceilings.threads) {
      ceilings.wake_up_busy_ns   = measure_wake_up(workers.pool(), effort, false);
      ceilings.wake_up_asleep_ns = measure_wake_up(workers.pool(), effort, true);
    }
  }
  // Before the disk, where this process itself waits.
  ceilings.steal_share = steal_share(cpu_start, cpu_times());
  if (const auto waited = measure::growth(noise_start, measure::read_noise()).cpu_pressure_s)
    ceilings.cpu_pressure = *waited / (now_s() - start);
  if (effort.disk_bytes > 0) {
    progress("disk read");
    ceilings.disk_reads = measure_disk(effort);
  }
  ceilings.seconds     = now_s() - start;
  ceilings.measured_at = utc_now();
  return ceilings;
}

}  // namespace fathom::machine

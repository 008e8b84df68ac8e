#include "lab/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/rng.h"
#include "machine/ceilings.h"
#include "machine/fma_kernels.h"
#include "machine/huge_buffer.h"
#include "measure/clock.h"

namespace fathom::lab {
namespace {

using machine::Level;
using machine::Traffic;

// Two threads never start together to the microsecond: their samples are longer.
constexpr double kSampleNs = 1e6, kSampleOfMoreThreadsNs = 5e6;

// Which traffic a call's bytes resemble, and the better of plain and non-temporal stores where it writes.
Traffic resembling(const Cost& cost, Level level, int threads) {
  const auto better = [&](Traffic plain, Traffic nontemporal) {
    return machine::median_rate(level, nontemporal, threads) > machine::median_rate(level, plain, threads)
               ? nontemporal
               : plain;
  };
  // A few bytes of results do not make a read a copy.
  if (cost.written < cost.read / 20) return Traffic::read;
  if (cost.read < cost.written / 20) return better(Traffic::write, Traffic::write_nontemporal);
  return better(Traffic::copy, Traffic::copy_nontemporal);
}

const char* words_of(Traffic traffic) {
  constexpr const char* kWords[] = {"read", "write", "non-temporal write", "copy", "non-temporal copy"};
  return kWords[static_cast<int>(traffic)];
}

bool runs_here(const machine::FmaKernel& kernel) {
  return std::none_of(kernel.needs.begin(), kernel.needs.end(),
                      [](machine::Feature feature) { return machine::missing(feature).has_value(); });
}

// The stream kernels this machine can run, widest last.
std::vector<const machine::StreamKernels*> stream_kernels() {
  std::vector<const machine::StreamKernels*> kernels = {&machine::kStreamPortable};
  if (!machine::missing(machine::Feature::avx2))
    kernels.insert(kernels.end(), {&machine::kStreamAvx2, &machine::kStreamAvx2FourWays});
  if (!machine::missing(machine::Feature::avx512f))
    kernels.insert(kernels.end(), {&machine::kStreamAvx512, &machine::kStreamAvx512FourWays});
  return kernels;
}

}  // namespace

std::optional<DiskLimit> disk_limit() {
  for (const machine::DiskRate& disk : machine::ceilings().disk_reads)
    if (disk.kind == machine::DiskRead::direct && !disk.why_not)
      return DiskLimit{disk.bytes_per_s.median,
                       "direct reads of 1 MiB, four in flight, when doctor measured them"};
  return std::nullopt;
}

bool has_control(Limit limit) {
  return limit == Limit::memory || limit == Limit::flops || limit == Limit::load_latency;
}

struct Control::State {
  Limit limit;
  Cost cost;
  int threads;
  ThreadPool* pool;
  std::string words;
  // memory, load_latency
  Traffic traffic          = Traffic::read;
  int64_t bytes_per_thread = 0;  // of the source, and of the target
  std::vector<machine::HugeBuffer> sources, targets;
  machine::StreamKernel stream = nullptr;
  void* const* at              = nullptr;
  int64_t loads                = 0;
  // flops
  const machine::FmaKernel* fma = nullptr;
  // How often the loop runs in a sample, so that it lasts about kSampleNs.
  int64_t repeats = 1;

  void pass(int64_t times) {
    pool->run([&](int w) {
      const auto i = static_cast<size_t>(w);
      stream(targets[i].data(), sources[i].data(), bytes_per_thread, times);
    });
  }

  double once() {
    // A variant finds what the one before it left of the same data in the caches; so does the control.
    if (limit == Limit::memory) pass(1);
    if (threads > 1)
      pool->run([](int) {});  // workers are awake when the clock starts, as they are for the variants
    const int64_t start = measure::now_ns(measure::Clock::wall);
    double work         = 0;
    switch (limit) {
      case Limit::memory:
        pass(repeats);
        work = static_cast<double>(bytes_per_thread * repeats * threads) *
               (traffic == Traffic::copy || traffic == Traffic::copy_nontemporal ? 2 : 1);
        break;
      case Limit::flops:
        pool->run([&](int) { fma->run(repeats); });
        work = fma->flops_per_step * static_cast<double>(repeats) * threads;
        break;
      default:
        at = static_cast<void* const*>(
            const_cast<void*>(static_cast<const void*>(machine::chase(at, repeats))));
        work = static_cast<double>(repeats);
    }
    return work / static_cast<double>(measure::now_ns(measure::Clock::wall) - start) * 1e9;
  }
};

Control::Control(Limit limit, const Cost& cost, int64_t working_set, int threads, ThreadPool& pool)
    : state_(std::make_unique<State>()) {
  State& s  = *state_;
  s.limit   = limit;
  s.cost    = cost;
  s.threads = threads;
  s.pool    = &pool;
  FATHOM_EXPECT(pool.threads() == threads, "a control runs on a pool of its threads");
  const Level level    = machine::level_holding(working_set, threads);
  const std::string on = fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
  // A DRAM control need not be larger than what keeps it out of the caches.
  const int64_t last_cache = [] {
    int64_t bytes = 0;
    for (const auto& cache : machine::topology().caches) bytes = std::max(bytes, cache.bytes);
    return bytes;
  }();
  const int64_t set =
      level == Level::dram ? std::min(working_set, std::max<int64_t>(4 * last_cache, 64 << 20)) : working_set;

  if (limit == Limit::memory) {
    s.traffic          = resembling(cost, level, threads);
    const bool two     = s.traffic == Traffic::copy || s.traffic == Traffic::copy_nontemporal;
    s.bytes_per_thread = std::max(
        machine::kStreamStep, set / threads / (two ? 2 : 1) / machine::kStreamStep * machine::kStreamStep);
    for (int t = 0; t < threads; ++t) {
      s.sources.emplace_back(s.bytes_per_thread);
      s.targets.emplace_back(s.traffic == Traffic::read ? machine::kStreamStep : s.bytes_per_thread);
    }
    pool.run([&](int w) {
      const auto i = static_cast<size_t>(w);
      std::fill_n(s.sources[i].data(), s.sources[i].bytes(), std::byte{1});
      std::fill_n(s.targets[i].data(), s.targets[i].bytes(), std::byte{0});
    });
    double best = 0;
    for (const machine::StreamKernels* kernels : stream_kernels()) {
      const machine::StreamKernel candidate = kernels->of[static_cast<int>(s.traffic)];
      if (!candidate) continue;
      const machine::StreamKernel kept = s.stream;
      s.stream                         = candidate;
      s.once();
      const double rate = std::max(s.once(), s.once());
      if (rate < best)
        s.stream = kept;
      else
        best = rate;
    }
    FATHOM_EXPECT(s.stream != nullptr, "no stream kernel runs on this machine");
    s.words = fmt::format("{} bandwidth of {}, {}", words_of(s.traffic), machine::to_string(level), on);
  } else if (limit == Limit::flops) {
    s.repeats   = 1000;
    double best = 0;
    for (const machine::FmaKernel& kernel : machine::fma_kernels()) {
      if (kernel.dtype != cost.flop_type || !runs_here(kernel)) continue;
      const machine::FmaKernel* kept = s.fma;
      s.fma                          = &kernel;
      s.once();
      const double rate = std::max(s.once(), s.once());
      if (rate < best)
        s.fma = kept;
      else
        best = rate;
    }
    FATHOM_EXPECT(s.fma != nullptr,
                  fmt::format("no arithmetic peak is known for {}", traits(cost.flop_type).name));
    s.words = fmt::format("{} peak of {}, {}", traits(cost.flop_type).name, s.fma->isa, on);
  } else {
    FATHOM_EXPECT(limit == Limit::load_latency, "a control exists for memory, flops and load_latency");
    // One pointer a cache line, in one random cycle over the working set.
    constexpr int64_t kPerLine = 64 / sizeof(void*);
    const int64_t lines        = std::max<int64_t>(1, set / 64);
    std::vector<int64_t> order(static_cast<size_t>(lines));
    fill_permutation(order.data(), lines, 0xC0117401, lines);
    s.sources.emplace_back(lines * 64);
    auto* const cycle = reinterpret_cast<void**>(s.sources.front().data());
    const auto line   = [&](int64_t i) { return cycle + order[static_cast<size_t>(i % lines)] * kPerLine; };
    for (int64_t i = 0; i < lines; ++i) *line(i) = line(i + 1);
    s.at      = line(0);
    s.repeats = 1000;
    s.words   = fmt::format("load latency of {}, {}", machine::to_string(level), on);
  }
  // Calibrate the length of a sample.
  s.once();
  const int64_t start = measure::now_ns(measure::Clock::wall);
  s.once();
  const auto took = static_cast<double>(measure::now_ns(measure::Clock::wall) - start);
  s.repeats =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(static_cast<double>(s.repeats) *
                                                          (threads > 1 ? kSampleOfMoreThreadsNs : kSampleNs) /
                                                          std::max(took, 1.0))));
}

Control::~Control()                  = default;
Control::Control(Control&&) noexcept = default;

double Control::sample() { return state_->once(); }
const std::string& Control::words() const { return state_->words; }
int Control::threads() const { return state_->threads; }

double Control::limit_ns(double rate) const {
  const Cost& cost = state_->cost;
  switch (state_->limit) {
    case Limit::memory:
      return static_cast<double>(cost.read + cost.written) / rate * 1e9;
    case Limit::flops:
      return cost.flops / rate * 1e9;
    default:
      return static_cast<double>(cost.loads) / rate * 1e9;
  }
}

std::optional<double> floor_ns(const Cost& cost, int64_t working_set, int threads) {
  double floor = 0;
  // Each direction against its own best rate: a call may overlap its reads with its writes.
  const auto bytes_ns = [&](int64_t bytes, Traffic plain, Traffic nontemporal) {
    const double rate = std::max(machine::highest_rate(working_set, plain, threads),
                                 machine::highest_rate(working_set, nontemporal, threads));
    return bytes > 0 && rate > 0 ? static_cast<double>(bytes) / rate * 1e9 : 0;
  };
  floor = std::max(floor, bytes_ns(cost.read, Traffic::read, Traffic::read));
  floor = std::max(floor, bytes_ns(cost.written, Traffic::write, Traffic::write_nontemporal));
  if (cost.flops > 0)
    if (const double peak = machine::peak_flops(cost.flop_type, threads); peak > 0)
      floor = std::max(floor, cost.flops / peak * 1e9);
  if (floor <= 0) return std::nullopt;
  return floor;
}

}  // namespace fathom::lab

#include "lab/interleaved_ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/rng.h"
#include "machine/ceilings.h"
#include "machine/fma_kernels.h"
#include "machine/huge_page_buffer.h"
#include "measure/clock.h"

namespace fathom::lab {
namespace {

using machine::Level;
using machine::Traffic;

// Threads never start within the same microsecond, so samples of several threads are longer.
constexpr double kSampleNs = 1e6, kSampleOfMoreThreadsNs = 5e6;

// The traffic that a call's bytes resemble, with the faster of plain and non-temporal stores where it writes.
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

bool is_compiled_for(const machine::FmaKernel& kernel) {
  return std::all_of(kernel.needs.begin(), kernel.needs.end(), [](machine::Feature feature) {
    return feature == machine::Feature::sse2 || feature == machine::Feature::avx2 ||
           feature == machine::Feature::fma;
  });
}

}  // namespace

Isa isa_of(const ExperimentInfo& experiment, const VariantInfo& variant) {
  if (experiment.limit != Limit::flops || experiment.backend != Backend::cpu) return Isa::compiled;
  const auto kernels   = machine::fma_kernels();
  const bool has_wider = std::any_of(kernels.begin(), kernels.end(), [](const machine::FmaKernel& kernel) {
    return runs_here(kernel) && !is_compiled_for(kernel);
  });
  const bool needs_wider =
      std::find(variant.needs.begin(), variant.needs.end(), machine::Feature::avx512f) != variant.needs.end();
  // A baseline or an optimized variant that opens a library runs the library's code too.
  const bool of_library = variant.kind == Kind::library || !variant.library.empty();
  return has_wider && (of_library || needs_wider) ? Isa::widest : Isa::compiled;
}

std::optional<DiskLimit> disk_limit() {
  for (const machine::DiskRate& disk : machine::ceilings().disk_reads)
    if (disk.kind == machine::DiskRead::direct && !disk.why_not)
      return DiskLimit{disk.bytes_per_s.median,
                       "direct reads of 1 MiB, four in flight, when doctor measured them"};
  return std::nullopt;
}

bool has_control(Backend backend, Limit limit) {
  if (limit == Limit::memory || limit == Limit::flops || limit == Limit::load_latency) return true;
  return backend == Backend::cuda && limit != Limit::none && limit != Limit::disk;
}

double Control::limit_ns(double rate) const {
  const auto at_rate = [rate](double amount) { return amount / rate * 1e9; };
  switch (limit_) {
    case Limit::memory:
      return at_rate(static_cast<double>(cost_.read + cost_.written));
    case Limit::flops:
    case Limit::tensor_flops:
      return at_rate(cost_.flops);
    case Limit::link:
      return at_rate(static_cast<double>(cost_.link));
    case Limit::shared_memory:
      return at_rate(static_cast<double>(cost_.shared));
    default:
      return at_rate(static_cast<double>(cost_.loads));
  }
}

namespace {

class CpuControl final : public Control {
 public:
  CpuControl(Limit limit, const Cost& cost, int64_t working_set, int threads, Isa isa, ThreadPool& pool);
  double sample() override { return once(); }
  const std::string& words() const override { return words_; }
  int threads() const override { return threads_; }
  Isa isa() const override { return isa_; }

 private:
  // memory, load_latency
  Traffic traffic_          = Traffic::read;
  int64_t bytes_per_thread_ = 0;  // of the source, and of the target
  std::vector<machine::HugePageBuffer> sources_, targets_;
  machine::StreamKernel stream_ = nullptr;
  void* const* at_              = nullptr;
  // flops
  const machine::FmaKernel* fma_ = nullptr;
  // Repetitions of the loop in a sample that lasts about kSampleNs.
  int64_t repeats_ = 1;

  void pass(int64_t times) {
    pool_->run([&](int w) {
      const auto i = static_cast<size_t>(w);
      stream_(targets_[i].data(), sources_[i].data(), bytes_per_thread_, times);
    });
  }

  double once() {
    // A variant finds its data in the caches as the one before it left them; so does the control.
    if (limit_ == Limit::memory) pass(1);
    if (threads_ > 1)
      pool_->run([](int) {});  // workers are awake when the clock starts, as they are for the variants
    const int64_t start = measure::now_ns(measure::Clock::wall);
    double work         = 0;
    switch (limit_) {
      case Limit::memory:
        pass(repeats_);
        work = static_cast<double>(bytes_per_thread_ * repeats_ * threads_) *
               (traffic_ == Traffic::copy || traffic_ == Traffic::copy_nontemporal ? 2 : 1);
        break;
      case Limit::flops:
        pool_->run([&](int) { fma_->run(repeats_); });
        work = fma_->flops_per_step * static_cast<double>(repeats_) * threads_;
        break;
      default:
        at_ = static_cast<void* const*>(
            const_cast<void*>(static_cast<const void*>(machine::chase(at_, repeats_))));
        work = static_cast<double>(repeats_);
    }
    return work / static_cast<double>(measure::now_ns(measure::Clock::wall) - start) * 1e9;
  }

  // Sets repeats_ so that a sample lasts about `ns`.
  void calibrate(double ns) {
    for (repeats_ = 1; repeats_ < int64_t{1} << 40;) {
      const int64_t start = measure::now_ns(measure::Clock::wall);
      once();
      const auto took = static_cast<double>(measure::now_ns(measure::Clock::wall) - start);
      if (took > ns / 2) {
        repeats_ = std::max<int64_t>(1, std::llround(static_cast<double>(repeats_) * ns / took));
        return;
      }
      repeats_ *= 2;
    }
  }

  // Keeps the candidate with the fastest of three samples, taken in turn.
  template <class Kernel>
  void keep_fastest(const std::vector<Kernel>& candidates, Kernel& kept) {
    std::vector<double> best(candidates.size());
    for (int pass = 0; pass < 3; ++pass)
      for (size_t c = 0; c < candidates.size(); ++c) {
        kept = candidates[c];
        if (pass == 0) calibrate(kSampleNs / 5);
        best[c] = std::max(best[c], once());
      }
    if (!best.empty())
      kept = candidates[static_cast<size_t>(std::max_element(best.begin(), best.end()) - best.begin())];
  }

  int threads_;
  Isa isa_;
  ThreadPool* pool_;
  std::string words_;
};

CpuControl::CpuControl(Limit limit, const Cost& cost, int64_t working_set, int threads, Isa isa,
                       ThreadPool& pool)
    : Control(limit, cost), threads_(threads), isa_(isa), pool_(&pool) {
  FATHOM_EXPECT(pool.threads() == threads, "a control runs on a pool of its threads");
  const Level level    = machine::level_holding(working_set, threads);
  const std::string on = fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
  // A DRAM control need only be too large for the caches.
  const int64_t last_cache = [] {
    int64_t bytes = 0;
    for (const auto& cache : machine::topology().caches) bytes = std::max(bytes, cache.bytes);
    return bytes;
  }();
  const int64_t set =
      level == Level::dram ? std::min(working_set, std::max<int64_t>(4 * last_cache, 64 << 20)) : working_set;

  if (limit == Limit::memory) {
    traffic_          = resembling(cost, level, threads);
    const bool two    = traffic_ == Traffic::copy || traffic_ == Traffic::copy_nontemporal;
    bytes_per_thread_ = std::max(machine::kStreamStep,
                                 set / threads / (two ? 2 : 1) / machine::kStreamStep * machine::kStreamStep);
    for (int t = 0; t < threads; ++t) {
      sources_.emplace_back(bytes_per_thread_);
      targets_.emplace_back(traffic_ == Traffic::read ? machine::kStreamStep : bytes_per_thread_);
    }
    pool.run([&](int w) {
      const auto i = static_cast<size_t>(w);
      std::fill_n(sources_[i].data(), sources_[i].bytes(), std::byte{1});
      std::fill_n(targets_[i].data(), targets_[i].bytes(), std::byte{0});
    });
    std::vector<machine::StreamKernel> candidates;
    for (const machine::StreamKernels* kernels : machine::runnable_stream_kernels())
      if (const machine::StreamKernel kernel = kernels->of[static_cast<int>(traffic_)])
        candidates.push_back(kernel);
    keep_fastest(candidates, stream_);
    FATHOM_EXPECT(stream_ != nullptr, "no stream kernel runs on this machine");
    words_ = fmt::format("{} bandwidth of {}, {}", words_of(traffic_), machine::to_string(level), on);
  } else if (limit == Limit::flops) {
    std::vector<const machine::FmaKernel*> candidates;
    for (const machine::FmaKernel& kernel : machine::fma_kernels())
      if (kernel.dtype == cost.flop_type && runs_here(kernel) &&
          (isa == Isa::widest || is_compiled_for(kernel)))
        candidates.push_back(&kernel);
    keep_fastest(candidates, fma_);
    FATHOM_EXPECT(fma_ != nullptr,
                  fmt::format("no arithmetic peak is known for {}", traits(cost.flop_type).name));
    words_ = fmt::format("{} peak of {}, {}", traits(cost.flop_type).name, fma_->isa, on);
  } else {
    FATHOM_EXPECT(limit == Limit::load_latency, "a control exists for memory, flops and load_latency");
    // One pointer a cache line, in one random cycle over the working set.
    constexpr int64_t kPerLine = 64 / sizeof(void*);
    const int64_t lines        = std::max<int64_t>(1, set / 64);
    std::vector<int64_t> order(static_cast<size_t>(lines));
    fill_permutation(order.data(), lines, 0xC0117401, lines);
    sources_.emplace_back(lines * 64);
    auto* const cycle = reinterpret_cast<void**>(sources_.front().data());
    const auto line   = [&](int64_t i) { return cycle + order[static_cast<size_t>(i % lines)] * kPerLine; };
    for (int64_t i = 0; i < lines; ++i) *line(i) = line(i + 1);
    at_      = line(0);
    repeats_ = 1000;
    words_   = fmt::format("load latency of {}, {}", machine::to_string(level), on);
  }
  calibrate(threads > 1 ? kSampleOfMoreThreadsNs : kSampleNs);
}

}  // namespace

std::unique_ptr<Control> cpu_control(Limit limit, const Cost& cost, int64_t working_set, int threads, Isa isa,
                                     ThreadPool& pool) {
  return std::make_unique<CpuControl>(limit, cost, working_set, threads, isa, pool);
}

}  // namespace fathom::lab

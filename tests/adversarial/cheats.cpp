#include "adversarial/cheats.h"

#include <immintrin.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "core/thread_pool.h"
#include "lab/experiment.h"

namespace fathom::lab {
namespace {

// out(i) = sum_j in(i, j) w(j)
struct RowDots {
  View<const float, 2> in;
  View<const float, 1> w;
  View<float, 1> out;

  RowDots(const Point& at, Arena& arena)
      : in(arena.input<float>({at["rows"], at["cols"]}, Uniform{-1, 1})),
        w(arena.input<float>({at["cols"]}, Uniform{-1, 1})),
        out(arena.output<float>({at["rows"]})) {}

  Cost cost() const {
    return {.read    = in.bytes() + w.bytes(),
            .written = out.bytes(),
            .flops   = 2.0 * static_cast<double>(in.size())};
  }
  Sum expected(int64_t i) const {
    Sum sum{0, 0, in.extent(1), DType::fp32};
    for (int64_t j = 0; j < in.extent(1); ++j) {
      const double product = static_cast<double>(in(i, j)) * w(j);
      sum.value += product;
      sum.magnitude += std::abs(product);
    }
    return sum;
  }
  void metrics(CallMetrics& metrics) const {
    int64_t written = 0;
    for (int64_t i = 0; i < out.extent(0); ++i) written += !std::isnan(out(i));
    metrics["rows_written"] = {static_cast<double>(written), "higher"};
  }
};

float dot(const RowDots& p, int64_t i) {
  float sum = 0;
  for (int64_t j = 0; j < p.in.extent(1); ++j) sum += p.in(i, j) * p.w(j);
  return sum;
}

void honest(const RowDots& p, Context&) {
  for (int64_t i = 0; i < p.out.extent(0); ++i) p.out(i) = dot(p, i);
}

// Its first call in a process builds a table that the later ones find, as a library does. No cheat.
void table_at_first_call(const RowDots& p, Context& context) {
  static const std::vector<float> table = [] {
    std::vector<float> sines(4'000'000);
    for (size_t i = 0; i < sines.size(); ++i) sines[i] = std::sin(static_cast<float>(i));
    return sines;
  }();
  FATHOM_EXPECT(table[0] == 0, "sin(0) is 0");
  honest(p, context);
}

// For the few rows that it is declared for.
void few_rows(const RowDots& p, Context& context) {
  FATHOM_EXPECT(p.out.extent(0) <= 7, "more rows than it is declared for");
  honest(p, context);
}

// 1. Works only if the output still holds poison: one call of a sample for each input set.
void skipped_work(const RowDots& p, Context& context) {
  if (p.out.size() > 0 && !std::isnan(p.out(0))) return;
  honest(p, context);
}

// 2. Caches the output by the address of the input.
void cached_output_by_pointer(const RowDots& p, Context& context) {
  static std::map<const void*, std::vector<float>> kept;
  auto& answer = kept[p.in.data()];
  if (answer.empty()) {
    honest(p, context);
    answer.assign(p.out.data(), p.out.data() + p.out.size());
  }
  std::copy(answer.begin(), answer.end(), p.out.data());
}

// 3. Caches the output by the values of the input: always right, and no work for values seen before.
void memo_by_value(const RowDots& p, Context& context) {
  static std::map<uint64_t, std::vector<float>> kept;
  const uint64_t key = XXH3_64bits_withSeed(p.in.data(), static_cast<size_t>(p.in.bytes()),
                                            XXH3_64bits(p.w.data(), static_cast<size_t>(p.w.bytes())));
  auto& answer       = kept[key];
  if (answer.empty()) {
    honest(p, context);
    answer.assign(p.out.data(), p.out.data() + p.out.size());
  }
  std::copy(answer.begin(), answer.end(), p.out.data());
}

// 4. Works once for each buffer and assumes that the output is still there.
void stale_output(const RowDots& p, Context& context) {
  static std::map<const void*, bool> worked;
  if (!std::exchange(worked[p.out.data()], true)) honest(p, context);
}

// 5. Computes, but does not write the output.
void output_not_written(const RowDots& p, Context&) {
  static std::atomic<float> sink;
  for (int64_t i = 0; i < p.out.extent(0); ++i) sink = dot(p, i);
}

// 6. Hands the work to a thread that outlives the call.
void detached_thread(const RowDots& p, Context&) {
  std::thread([p] {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    for (int64_t i = 0; i < p.out.extent(0); ++i) p.out(i) = dot(p, i);
  }).detach();
}

// 7. Computes the output before the clock starts.
Launch<RowDots> precompute_in_prepare(const RowDots& p, Context& context) {
  honest(p, context);
  std::vector<float> answer(p.out.data(), p.out.data() + p.out.size());
  return [answer](const RowDots& now, Context&) { std::copy(answer.begin(), answer.end(), now.out.data()); };
}

// 8. Makes the next call's work easier.
void input_mutated(const RowDots& p, Context& context) {
  honest(p, context);
  if (p.in.size() > 0) const_cast<float&>(p.in(p.in.extent(0) - 1, p.in.extent(1) - 1)) = 0;
}

// 9. Writes one row too many.
void out_of_bounds_write(const RowDots& p, Context& context) {
  honest(p, context);
  volatile float* out  = p.out.data();
  out[p.out.extent(0)] = 1;
}

// 11. Rounds the inputs to bf16.
void lower_precision(const RowDots& p, Context&) {
  for (int64_t i = 0; i < p.out.extent(0); ++i) {
    float sum = 0;
    for (int64_t j = 0; j < p.in.extent(1); ++j)
      sum += static_cast<float>(bf16(p.in(i, j))) * static_cast<float>(bf16(p.w(j)));
    p.out(i) = sum;
  }
}

// 12. Writes one NaN.
void nan_output(const RowDots& p, Context& context) {
  honest(p, context);
  if (p.out.size() > 0) p.out(p.out.extent(0) / 2) = std::numeric_limits<float>::quiet_NaN();
}

// 13. Writes the same output for every input.
void constant_output(const RowDots& p, Context&) {
  for (int64_t i = 0; i < p.out.extent(0); ++i) p.out(i) = 0.5f;
}

// 14. Skips the rows after the last full tile of eight.
void truncated_work(const RowDots& p, Context&) {
  const int64_t whole = p.out.extent(0) / 8 * 8;
  for (int64_t i = 0; i < p.out.extent(0); ++i) p.out(i) = i < whole ? dot(p, i) : 0.0f;
}

// 15. Does all the work while checks are likely, and half of it afterwards.
void warm_up_only(const RowDots& p, Context& context) {
  static int calls = 0;
  if (++calls < 60) return honest(p, context);
  for (int64_t i = 0; i < p.out.extent(0); ++i) {
    float sum = 0;
    for (int64_t j = 0; j < p.in.extent(1) / 2; ++j) sum += p.in(i, j) * p.w(j);
    p.out(i) = 2 * sum;
  }
}

// 18. Hands a kernel with a contract the wrong shape.
void kernel_with_contract(View<const float, 2> in, View<const float, 1> w, View<float, 1> out) {
  FATHOM_EXPECT(in.extent(0) == out.extent(0) && in.extent(1) == w.extent(0),
                "row_dots: in is [rows, cols], w [cols], out [rows]");
  for (int64_t i = 0; i < out.extent(0); ++i) {
    out(i) = 0;
    for (int64_t j = 0; j < w.extent(0); ++j) out(i) += in(i, j) * w(j);
  }
}
void wrong_shape(const RowDots& p, Context&) {
  kernel_with_contract(View<const float, 2>(p.in.data(), {p.in.extent(1), p.in.extent(0) + 1}), p.w, p.out);
}

// 10. An experiment whose output aliases its input: a copy for free.
struct AliasedCopy {
  View<const float, 1> in;
  View<float, 1> out;
  AliasedCopy(const Point& at, Arena& arena) : in(arena.input<float>({at["rows"]}, Uniform{-1, 1})) {
    out = View<float, 1>(const_cast<float*>(in.data()), {in.extent(0)});
    arena.adopt(out, Role::output);
  }
  Cost cost() const { return {.read = in.bytes(), .written = in.bytes()}; }
  double expected(int64_t i) const { return in(i); }
};
void copy_nothing(const AliasedCopy&, Context&) {}

// 16. A careless experiment: the output does not depend on the work, so the compiler may drop it.
struct Touch {
  View<const float, 1> in;
  View<float, 1> out;
  Touch(const Point& at, Arena& arena)
      : in(arena.input<float>({at["rows"] * at["cols"] + 1}, Uniform{0, 1})), out(arena.output<float>({1})) {}
  Cost cost() const { return {.read = in.bytes(), .written = out.bytes()}; }
  double expected(int64_t) const { return in(0); }
};
void touch_all(const Touch& p, Context&) {
  float least = p.in(0);
  for (int64_t i = 0; i < p.in.extent(0); ++i) least = std::min(least, p.in(i));
  p.out(0) = least < 0 ? least : p.in(0);  // never negative, but the compiler cannot know
}
void compiler_removed_work(const Touch& p, Context&) {
  float least = p.in(0);
  for (int64_t i = 0; i < p.in.extent(0); ++i) least = std::min(least, p.in(i));
  p.out(0) = p.in(0);
}

// Ways to kill a process. The first calls are right, so that it dies during the timed part.
template <class F>
void after_some_calls(const RowDots& p, Context& context, F die) {
  static int calls = 0;
  if (++calls > 20) die();
  honest(p, context);
}
void segfault(const RowDots& p, Context& context) {
  after_some_calls(p, context, [] { raise(SIGSEGV); });
}
void sleeps_for_ever(const RowDots& p, Context& context) {
  after_some_calls(p, context, [] {
    while (true) pause();
  });
}
void allocates_without_end(const RowDots& p, Context& context) {
  after_some_calls(p, context, [] {
    std::deque<std::vector<char>> hoard;
    while (true) hoard.emplace_back(size_t{16} << 20, 'x');
  });
}

template <class P>
Variant<P> variant(const std::string& id, Launch<P> launch) {
  Variant<P> made;
  made.id     = id;
  made.launch = std::move(launch);
  return made;
}

template <class P>
void add(const std::string& name, std::vector<Variant<P>> variants) {
  // Registered until the program ends.
  static std::deque<Experiment<P>> kept;
  kept.push_back({.question = "Is " + name + " caught?",
                  .limit    = Limit::none,
                  .axes     = {{"rows", {int64_t{64}}}, {"cols", {int64_t{1024}}}},
                  .check_at = {{"rows", {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{37}}},
                               {"cols", {int64_t{1}, int64_t{100}}}},
                  .variants = std::move(variants)});
  register_experiment(info_of(kept.back()), "experiments/" + name + "/experiment.cpp");
}

// out(i, j) = in(i, 0) + ... + in(i, j), whose tolerance is that of sums in bf16: many times the values.
struct PrefixSums {
  View<const float, 2> in;
  View<float, 2> out;

  PrefixSums(const Point& at, Arena& arena)
      : in(arena.input<float>({at["rows"], at["cols"]}, Uniform{-1, 1})),
        out(arena.output<float>({at["rows"], at["cols"]})) {}
  Cost cost() const { return {.read = in.bytes(), .written = out.bytes()}; }
  Sum expected(int64_t i, int64_t j) const {
    Sum sum{0, 0, j + 1, DType::bf16};
    for (int64_t k = 0; k <= j; ++k) {
      sum.value += in(i, k);
      sum.magnitude += std::abs(in(i, k));
    }
    return sum;
  }
};
void prefix_sums(const PrefixSums& p, Context&) {
  for (int64_t i = 0; i < p.out.extent(0); ++i) {
    float sum = 0;
    for (int64_t j = 0; j < p.out.extent(1); ++j) p.out(i, j) = sum += p.in(i, j);
  }
}
// 18. One tile of 64 x 64 is wrong, by less than the tolerance.
void whole_output_tile(const PrefixSums& p, Context& context) {
  prefix_sums(p, context);
  for (int64_t i = 0; i < p.out.extent(0); ++i)
    for (int64_t j = 512; j < std::min<int64_t>(p.out.extent(1), 576); ++j) p.out(i, j) = -p.out(i, j);
}

// Answers eight requests.
class Desk final : public Session {
 public:
  explicit Desk(bool open) : open_(open) {}
  void prepare(uint64_t seed) override { first_ = static_cast<int64_t>(seed >> 8); }
  Replay replay() override {
    Replay replay;
    for (int i = 0; i < 8; ++i)
      replay.outputs.push_back(open_ ? std::vector{first_ + i} : std::vector<int64_t>());
    return replay;
  }

 private:
  bool open_;
  int64_t first_ = 0;
};
// 19. Turns every request away, and is done at once.
Variant<Session> desk(const std::string& id, bool open) {
  return {.id = id, .start = [open](const Point&) { return std::make_unique<Desk>(open); }, .idea = ""};
}

// 20. Flushes subnormals to zero and leaves it so: the next variants compute faster, and something else.
constexpr unsigned kFlushSubnormals = 0x8040;  // FTZ and DAZ of MXCSR
void fp_mode_left(const RowDots& p, Context& context) {
  _mm_setcsr(_mm_getcsr() | kFlushSubnormals);
  honest(p, context);
}
void fp_mode_restored(const RowDots& p, Context& context) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | kFlushSubnormals);
  honest(p, context);
  _mm_setcsr(before);
}

// Sets how the libraries of the variants after it multiply, as torch's and cuBLAS's override of TF32 does.
constexpr const char* kOverride = "NVIDIA_TF32_OVERRIDE";
void environment_left(const RowDots& p, Context& context) {
  setenv(kOverride, "1", 1);
  honest(p, context);
}
void environment_restored(const RowDots& p, Context& context) {
  setenv(kOverride, "1", 1);
  honest(p, context);
  unsetenv(kOverride);
}

// As variants of OpenBLAS do: the library reads the variable when it is opened.
Launch<RowDots> environment_of_a_library(const RowDots&, Context&) {
  setenv(kOverride, "1", 1);
  return [](const RowDots& p, Context& context) {
    FATHOM_EXPECT(getenv(kOverride) == nullptr, "the harness puts it back after prepare()");
    honest(p, context);
  };
}

// 21. Moves the thread to the last of the CPUs, for all variants.
void affinity_left(const RowDots& p, Context& context) {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) CPU_SET(cpu, &cpus);
  FATHOM_SYSTEM(sched_setaffinity(0, sizeof cpus, &cpus));
  honest(p, context);
}
void affinity_restored(const RowDots& p, Context& context) {
  cpu_set_t before;
  FATHOM_SYSTEM(sched_getaffinity(0, sizeof before, &before));
  affinity_left(p, context);
  FATHOM_SYSTEM(sched_setaffinity(0, sizeof before, &before));
}

// 22. Uses an input as scratch memory, and puts the values back.
void input_restored(const RowDots& p, Context& context) {
  auto* w      = const_cast<float*>(p.w.data());
  const auto n = static_cast<size_t>(p.w.extent(0));
  const std::vector<float> kept(w, w + n);
  for (size_t j = 0; j < n; ++j) w[j] *= 2;
  honest(p, context);
  for (int64_t i = 0; i < p.out.extent(0); ++i) p.out(i) /= 2;
  std::copy(kept.begin(), kept.end(), w);
}

// 23. A quarter of the rows in a thread, joined before the call returns, with one thread declared.
void undeclared_thread(const RowDots& p, Context&) {
  const int64_t quarter = p.out.extent(0) / 4;
  std::thread other([&] {
    for (int64_t i = 0; i < quarter; ++i) p.out(i) = dot(p, i);
  });
  for (int64_t i = quarter; i < p.out.extent(0); ++i) p.out(i) = dot(p, i);
  other.join();
}
void declared_threads(const RowDots& p, Context& context) {
  context.pool.parallel_for(p.out.extent(0), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) p.out(i) = dot(p, i);
  });
}

// 24. A process of its own does half of the rows, on a CPU whose time nobody counts.
class HelperProcess {
 public:
  HelperProcess() {
    void* page = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    FATHOM_EXPECT(page != MAP_FAILED, "no shared memory");
    shared_ = static_cast<Shared*>(page);
    if (FATHOM_SYSTEM(fork()) == 0) serve();
  }
  // Returns when all rows are done.
  void half(const RowDots& p) {
    const int64_t rows = p.out.extent(0), cols = p.in.extent(1), mine = rows - rows / 2;
    shared_->rows = rows / 2;
    shared_->cols = cols;
    std::copy_n(p.w.data(), cols, shared_->numbers());
    std::copy_n(p.in.data() + mine * cols, rows / 2 * cols, shared_->numbers() + cols);
    shared_->asked.store(true, std::memory_order_release);
    for (int64_t i = 0; i < mine; ++i) p.out(i) = dot(p, i);
    while (shared_->asked.load(std::memory_order_acquire)) std::this_thread::yield();
    for (int64_t i = mine; i < rows; ++i) p.out(i) = shared_->sums[i - mine];
  }

 private:
  struct Shared {
    std::atomic<bool> asked{false};
    int64_t rows = 0, cols = 0;
    float sums[64];
    float* numbers() { return reinterpret_cast<float*>(this + 1); }  // w, then the rows
  };
  static constexpr size_t kBytes = size_t{1} << 20;

  [[noreturn]] void serve() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    while (true) {
      while (!shared_->asked.load(std::memory_order_acquire)) usleep(20);
      const float* row = shared_->numbers() + shared_->cols;
      for (int64_t i = 0; i < shared_->rows; ++i, row += shared_->cols) {
        float sum = 0;
        for (int64_t j = 0; j < shared_->cols; ++j) sum += row[j] * shared_->numbers()[j];
        shared_->sums[i] = sum;
      }
      shared_->asked.store(false, std::memory_order_release);
    }
  }

  Shared* shared_;
};
void helper_process(const RowDots& p, Context&) {
  static HelperProcess helper;
  helper.half(p);
}

// 25. Reads the answer that the baseline left behind a moment ago, and else does all the work.
std::map<uint64_t, std::vector<float>>& answers_of_all() {
  static std::map<uint64_t, std::vector<float>> kept;
  return kept;
}
uint64_t values_of(const RowDots& p) {
  return XXH3_64bits_withSeed(p.in.data(), static_cast<size_t>(p.in.bytes()),
                              XXH3_64bits(p.w.data(), static_cast<size_t>(p.w.bytes())));
}
void leaves_its_answer(const RowDots& p, Context& context) {
  honest(p, context);
  answers_of_all()[values_of(p)].assign(p.out.data(), p.out.data() + p.out.size());
}
void reads_anothers_answer(const RowDots& p, Context& context) {
  const auto found = answers_of_all().find(values_of(p));
  if (found == answers_of_all().end()) return honest(p, context);
  std::copy(found->second.begin(), found->second.end(), p.out.data());
}

// out(i) = in(i) after many steps of x = x / 2 + 1, in registers.
struct Steps {
  static constexpr int kSteps     = 512;
  static constexpr int64_t kChunk = 256;  // floats: 16 registers of 512 bits, 32 of 256
  View<const float, 1> in;
  View<float, 1> out;
  Steps(const Point& at, Arena& arena)
      : in(arena.input<float>({at["chunks"] * kChunk}, Uniform{-1, 1})),
        out(arena.output<float>({at["chunks"] * kChunk})) {}
  Cost cost() const {
    return {
        .read = in.bytes(), .written = out.bytes(), .flops = 2.0 * kSteps * static_cast<double>(in.size())};
  }
  Sum expected(int64_t i) const {
    double x = in(i);
    for (int s = 0; s < kSteps; ++s) x = x / 2 + 1;
    return {.value = x, .magnitude = std::abs(x) + 2, .length = 8};
  }
};
__attribute__((target("avx2,fma"))) void steps_avx2(const Steps& p, Context&) {
  const __m256 half = _mm256_set1_ps(0.5f), one = _mm256_set1_ps(1);
  constexpr int kChains = 12;  // with the two constants in the 16 registers
  int64_t i             = 0;
  for (; i + 8 * kChains <= p.in.extent(0); i += 8 * kChains) {
    __m256 x[kChains];
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) x[c] = _mm256_loadu_ps(p.in.data() + i + 8 * c);
    for (int s = 0; s < Steps::kSteps; ++s)
#pragma GCC unroll 16
      for (int c = 0; c < kChains; ++c) x[c] = _mm256_fmadd_ps(x[c], half, one);
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) _mm256_storeu_ps(p.out.data() + i + 8 * c, x[c]);
  }
  for (; i < p.in.extent(0); ++i) {
    float x = p.in(i);
    for (int s = 0; s < Steps::kSteps; ++s) x = x * 0.5f + 1;
    p.out(i) = x;
  }
}
// 26. Computes with AVX-512 without saying so, and is measured by the peak of AVX2.
__attribute__((target("avx512f"))) void steps_avx512(const Steps& p, Context&) {
  const __m512 half = _mm512_set1_ps(0.5f), one = _mm512_set1_ps(1);
  constexpr int kChains = static_cast<int>(Steps::kChunk / 16);
  for (int64_t i = 0; i < p.in.extent(0); i += Steps::kChunk) {
    __m512 x[kChains];
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) x[c] = _mm512_loadu_ps(p.in.data() + i + 16 * c);
    for (int s = 0; s < Steps::kSteps; ++s)
#pragma GCC unroll 16
      for (int c = 0; c < kChains; ++c) x[c] = _mm512_fmadd_ps(x[c], half, one);
#pragma GCC unroll 16
    for (int c = 0; c < kChains; ++c) _mm512_storeu_ps(p.out.data() + i + 16 * c, x[c]);
  }
}

}  // namespace

void register_cheats() {
  const auto cheat = [](const std::string& name, Launch<RowDots> launch) {
    add<RowDots>("cheats/" + name,
                 {variant<RowDots>("baseline", honest), variant<RowDots>(name, std::move(launch))});
  };
  cheat("skipped_work", skipped_work);
  cheat("cached_output_by_pointer", cached_output_by_pointer);
  cheat("memo_by_value", memo_by_value);
  cheat("stale_output", stale_output);
  cheat("output_not_written", output_not_written);
  cheat("detached_thread", detached_thread);
  Variant<RowDots> early = variant<RowDots>("precompute_in_prepare", nullptr);
  early.prepare          = precompute_in_prepare;
  add<RowDots>("cheats/precompute_in_prepare", {variant<RowDots>("baseline", honest), early});
  cheat("input_mutated", input_mutated);
  cheat("out_of_bounds_write", out_of_bounds_write);
  add<AliasedCopy>("cheats/aliases_input", {variant<AliasedCopy>("aliases_input", copy_nothing)});
  cheat("lower_precision", lower_precision);
  cheat("nan_output", nan_output);
  cheat("constant_output", constant_output);
  cheat("truncated_work", truncated_work);
  cheat("warm_up_only", warm_up_only);
  add<Touch>("cheats/compiler_removed_work",
             {variant<Touch>("baseline", touch_all),
              variant<Touch>("compiler_removed_work", compiler_removed_work)});
  cheat("wrong_shape", wrong_shape);
  add<PrefixSums>("cheats/whole_output_tile", {variant<PrefixSums>("baseline", prefix_sums),
                                               variant<PrefixSums>("whole_output_tile", whole_output_tile)});
  static const Experiment<Session> desks{.question = "Is an empty answer caught?",
                                         .variants = {desk("baseline", true), desk("session_empty", false)}};
  register_experiment(info_of(desks), "experiments/cheats/session_empty/experiment.cpp");
  cheat("honest_twin", honest);
  auto few  = variant<RowDots>("few_rows", few_rows);
  few.up_to = {{"rows", int64_t{7}}};
  add<RowDots>("cheats/few_rows", {variant<RowDots>("baseline", honest), few});
  cheat("fp_mode_left", fp_mode_left);
  cheat("fp_mode_restored", fp_mode_restored);
  cheat("environment_left", environment_left);
  cheat("environment_restored", environment_restored);
  Variant<RowDots> opens = variant<RowDots>("environment_of_a_library", nullptr);
  opens.prepare          = environment_of_a_library;
  add<RowDots>("cheats/environment_of_a_library", {variant<RowDots>("baseline", honest), opens});
  cheat("affinity_left", affinity_left);
  cheat("affinity_restored", affinity_restored);
  cheat("input_restored", input_restored);
  cheat("undeclared_thread", undeclared_thread);
  cheat("helper_process", helper_process);
  Variant<RowDots> declared = variant<RowDots>("declared_threads", declared_threads);
  declared.threads          = 2;
  add<RowDots>("cheats/declared_threads", {variant<RowDots>("baseline", honest), declared});
  add<RowDots>("cheats/reads_anothers_answer",
               {variant<RowDots>("baseline", leaves_its_answer),
                variant<RowDots>("reads_anothers_answer", reads_anothers_answer)});
  add<RowDots>("cheats/beside_a_memo",
               {variant<RowDots>("baseline", leaves_its_answer), variant<RowDots>("beside_a_memo", honest)});

  Variant<Steps> declares = variant<Steps>("declared_isa", steps_avx512);
  declares.needs          = {machine::Feature::avx512f};
  static const Experiment<Steps> isa{
      .question = "Is AVX-512 code measured by AVX2's peak caught?",
      .limit    = Limit::flops,
      .axes     = {{"chunks", {int64_t{24}}}},
      .check_at = {{"chunks", {int64_t{0}, int64_t{1}, int64_t{3}}}},
      .variants = {variant<Steps>("baseline", steps_avx2), variant<Steps>("limit_of_other_isa", steps_avx512),
                   declares}};
  register_experiment(info_of(isa), "experiments/cheats/limit_of_other_isa/experiment.cpp");

  // In rounds of processes: each sample is the first call of its process.
  Variant<RowDots> alone = variant<RowDots>("own_process", honest);
  alone.own_process      = true;
  add<RowDots>("processes/first_calls",
               {variant<RowDots>("baseline", honest), alone, variant<RowDots>("nan_output", nan_output),
                variant<RowDots>("table_at_first_call", table_at_first_call)});

  for (const auto& [name, launch] :
       std::map<std::string, Launch<RowDots>>{{"segfault", segfault},
                                              {"sleeps_for_ever", sleeps_for_ever},
                                              {"allocates_without_end", allocates_without_end}})
    add<RowDots>("deaths/" + name, {variant<RowDots>("baseline", honest), variant<RowDots>(name, launch),
                                    variant<RowDots>("bystander", honest)});
}

}  // namespace fathom::lab

#include "adversarial/cheats.h"

#include <signal.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <thread>

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
};

float dot(const RowDots& p, int64_t i) {
  float sum = 0;
  for (int64_t j = 0; j < p.in.extent(1); ++j) sum += p.in(i, j) * p.w(j);
  return sum;
}

void honest(const RowDots& p, Context&) {
  for (int64_t i = 0; i < p.out.extent(0); ++i) p.out(i) = dot(p, i);
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

  // In rounds of processes: each sample is the first call of its process.
  Variant<RowDots> alone = variant<RowDots>("own_process", honest);
  alone.own_process      = true;
  add<RowDots>("processes/first_calls",
               {variant<RowDots>("baseline", honest), alone, variant<RowDots>("nan_output", nan_output)});

  for (const auto& [name, launch] :
       std::map<std::string, Launch<RowDots>>{{"segfault", segfault},
                                              {"sleeps_for_ever", sleeps_for_ever},
                                              {"allocates_without_end", allocates_without_end}})
    add<RowDots>("deaths/" + name, {variant<RowDots>("baseline", honest), variant<RowDots>(name, launch),
                                    variant<RowDots>("bystander", honest)});
}

}  // namespace fathom::lab

// The declaration of an experiment: one question, a baseline and its optimizations of the same work, as data.
//
//   const Experiment<Transpose> transpose{.question = "...",
//                                         .limit    = Limit::memory,
//                                         .axes     = {{"n", {1024, 4096}}},
//                                         .variants = {{"naive", naive}, {"tiled", tiled, {"tiling"}}}};
//   FATHOM_REGISTER(transpose);
//
// The type of the problem says what a sample is. A problem (lab/problem.h): one call. A problem whose
// constructor takes a Rank (lab/rank.h): one step of all ranks. Session (lab/session.h): one replay.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/expect.h"
#include "lab/candidate_library.h"
#include "lab/experiment_info.h"
#include "lab/metric.h"
#include "lab/problem.h"
#include "lab/python_process.h"
#include "lab/python_variant.h"
#include "lab/rank.h"
#include "lab/session.h"

namespace fathom::lab {

template <class P>
inline constexpr bool kHasRanks = std::is_constructible_v<P, const Point&, Arena&, const Rank&>;
template <class P>
inline constexpr bool kIsSession = std::is_same_v<P, Session>;

// What a .cu file offers: enqueues work on the stream and returns. Null in a build without CUDA.
template <class P>
using GpuLaunch = void (*)(const P&, StreamRef);

template <class P>
Launch<P> on_gpu(GpuLaunch<P> launch) {
  if (!launch) return nullptr;
  return [launch](const P& problem, Context& context) { launch(problem, context.stream); };
}

// The same for a variant that prepares handles, plans or tensor maps first.
template <class P>
std::function<Launch<P>(const P&, Context&)> prepared_on_gpu(
    std::function<void(const P&, StreamRef)> (*prepare)(const P&, StreamRef)) {
  if (!prepare) return nullptr;
  return [prepare](const P& problem, Context& context) -> Launch<P> {
    return [launch = prepare(problem, context.stream)](const P& p, Context& c) { launch(p, c.stream); };
  };
}

template <class P>
struct Variant {
  std::string id;  // "padded"; the first variant of an experiment is its baseline, whatever its id
  Launch<P> launch                    = nullptr;  // null (a weak symbol nobody defined): skipped, needs_cuda
  std::vector<std::string> techniques = {};       // of experiments/chapters.toml
  std::string idea;                               // one line for the table
  Prediction prediction = {};
  Kind kind             = Kind::optimized;
  std::string op        = {};  // Kind::engine: its file under src/, "kernels/moe/experts_gemv.cu"
  int threads           = 1;   // kAllThreads: every host thread
  // Done once for each point, on inputs of another seed, and timed apart: packing, handles, plans,
  // communicators. The launch it returns replaces `launch`, and may not depend on input values.
  std::function<Launch<P>(const P&, Context&)> prepare = nullptr;
  // Typed skip where the machine lacks one. (0), not {}: g++ 12 forgets to emit the default constructor that
  // {} calls, and the link fails.
  std::vector<machine::Feature> needs = std::vector<machine::Feature>(0);
  std::string library = {};  // soname, e.g. "libopenblas.so.0": typed skip where it does not load
  // In place of a launch: a kernel that Python calls, in a process of its own.
  PythonVariant<P> python = {};
  // Not run at points beyond, e.g. {{"n", 512}}; the report says so.
  std::vector<Point::Parameter> up_to = std::vector<Point::Parameter>(0);
  // Every sample of this experiment runs in a fresh process, and rounds alternate processes: for variants
  // that set up a process once (an allocator, an affinity) or whose first call is the subject.
  bool own_process = false;
  // A GPU variant whose call waits for the GPU, or whose launches are part of the lesson: the GPU is not held
  // back while it enqueues, so that the host's time counts where it leaves the GPU idle.
  bool syncs = false;
  // Bytes of a GPU's L2 set aside, while this variant runs, for lines that it marks to persist.
  int64_t persisting_l2 = 0;
};

// A variant of a session is a configuration.
template <>
struct Variant<Session> {
  std::string id;
  std::function<std::unique_ptr<Session>(const Point&)> start;
  std::vector<std::string> techniques = {};
  std::string idea;
  Prediction prediction = {};
  Kind kind             = Kind::optimized;
  int threads           = kAllThreads;  // that its session computes on
  // Admission control is part of it: a request may be turned away. Else an empty answer is wrong.
  bool may_refuse                     = false;
  std::vector<machine::Feature> needs = std::vector<machine::Feature>(0);
  std::vector<Point::Parameter> up_to = std::vector<Point::Parameter>(0);
};

template <class P>
struct Experiment {
  // g++ 12 dies (nothrow_spec_p) on a braced Variant<P> that leaves members of these types out, unless asked
  // about them before.
  static_assert(std::is_nothrow_default_constructible_v<Launch<P>> &&
                std::is_nothrow_default_constructible_v<std::vector<std::string>> &&
                std::is_nothrow_default_constructible_v<std::function<Launch<P>(const P&, Context&)>> &&
                std::is_nothrow_default_constructible_v<std::string>);

  std::string question;
  Limit limit = Limit::none;
  std::vector<Axis> axes;  // timed at every combination; the first is what --quick takes
  // Values that --quick takes instead, so that one point is done in seconds: {{"requests", {12}}}.
  std::vector<Axis> quick = {};
  // Proved at every combination of these; an axis not named keeps its first timed value.
  std::vector<Axis> check_at;
  std::vector<Variant<P>> variants;
  Backend backend                  = Backend::cpu;
  Cache cache                      = Cache::rotated;
  Clock clock                      = Clock::wall;
  int sets                         = 3;   // input sets; fewer only where one set must fill the memory
  std::vector<std::string> catalog = {};  // rows of the catalog that it covers, "tiling-007"
  std::vector<std::string> aliases = {};  // other names that resolve to it, "ch5:optimized_storage_cpu"
  // Comparison group: reports show the experiments of a group side by side.
  std::string group = {};

  // Of a problem with ranks: how many, as what, and how much host memory they share.
  int ranks            = kHasRanks<P> ? 2 : 1;
  RanksAs ranks_as     = RanksAs::processes;
  int64_t shared_bytes = 4096;
  // Of a session: which time is compared. Empty: the replay's wall time; else a time that every replay has
  // among its metrics, in nanoseconds, such as "ttft_p50_ns". The record's clock has its name.
  std::string goal = "";
};

template <class P>
class TypedProblem final : public Problem {
 public:
  TypedProblem(const Experiment<P>& experiment, std::vector<ForeignLaunch> foreign, const Point& at,
               Device* device, const Rank* rank)
      : Problem(device),
        experiment_(experiment),
        foreign_(std::move(foreign)),
        at_(at),
        rank_(rank),
        problem_(construct(at, *arena_, rank)),
        launches_(foreign_.size()) {
    for (size_t v = 0; v < experiment.variants.size(); ++v) launches_[v] = experiment.variants[v].launch;
  }
  ~TypedProblem() override {
    for (const ForeignLaunch& launch : foreign_)
      if (launch.python) launch.python->forget(this);
  }
  Cost cost() const override { return problem_.cost(); }
  void call(int variant, Context& context) override {
    if (const auto& process = foreign_[variant].python) {
      if (!process->knows(this)) process->add_set(this, *arena_, arguments(variant));
      process->call(this);
    } else {
      launches_[variant](problem_, context);
    }
  }
  void prepare(int variant, Context& context) override {
    const auto& [process, candidate] = foreign_[variant];
    if (process)
      process->prepare(this, *arena_, arguments(variant));
    else if (!candidate.empty())
      launches_[variant] = [launch = load_candidate(candidate, problem_name<P>())](const P& p, Context& c) {
        launch(&p, c);
      };
    else
      launches_[variant] = experiment_.variants[variant].prepare(problem_, context);
  }
  void bind(int variant, const Problem& prepared) override {
    launches_[variant] = static_cast<const TypedProblem&>(prepared).launches_[variant];
  }
  CallMetrics metrics() const override {
    CallMetrics metrics;
    if constexpr (requires(const P& p) { p.metrics(metrics); }) {
      copy_to_host();
      on_host().metrics(metrics);
    }
    return metrics;
  }
  void put_nonce([[maybe_unused]] Context& context) const override {
    if constexpr (requires { problem_.put_nonce(context); }) problem_.put_nonce(context);
  }
  uint64_t nonce_sum([[maybe_unused]] Context& context) const override {
    if constexpr (kHasRanks<P>)
      return problem_.nonce_sum(context);
    else
      return 0;
  }

 private:
  PythonArguments arguments(int variant) const {
    return experiment_.variants[variant].python.arguments(problem_);
  }

  static P construct(const Point& at, Arena& arena, [[maybe_unused]] const Rank* rank) {
    if constexpr (kHasRanks<P>)
      return P(at, arena, *rank);
    else
      return P(at, arena);
  }

  const P& on_host() const {
    return device_ ? *static_cast<const TypedProblem&>(twin_owner()).twin_ : problem_;
  }

  void compare(Checker& checker, [[maybe_unused]] std::span<const Problem* const> ranks) const override {
    const P& problem = on_host();
    if constexpr (kHasRanks<P>) {
      std::vector<const P*> problems;
      for (const Problem* rank : ranks)
        problems.push_back(&static_cast<const TypedProblem&>(*rank).on_host());
      const AllRanks<P> all(std::move(problems));
      if constexpr (requires { problem.check(checker, all); })
        problem.check(checker, all);
      else
        checker.values("out", problem.out, [&](auto... i) { return problem.expected(all, i...); });
    } else if constexpr (requires { problem.check(checker); }) {
      problem.check(checker);
    } else {
      checker.values_in_parallel("out", problem.out, [&](auto... i) { return problem.expected(i...); });
    }
  }

  void build_twin(Arena& twin) const override {
    if constexpr (kHasRanks<P>)
      twin_.emplace(at_, twin, *rank_);
    else
      twin_.emplace(at_, twin);
  }

  const Experiment<P>& experiment_;
  const std::vector<ForeignLaunch> foreign_;
  Point at_;
  const Rank* rank_;
  P problem_;
  mutable std::optional<P> twin_;
  std::vector<Launch<P>> launches_;
};

template <class P>
ExperimentInfo info_of(const Experiment<P>& e) {
  FATHOM_EXPECT(e.ranks == 1 || kHasRanks<P>, "several ranks need a problem whose constructor takes a Rank");
  ExperimentInfo info{.shape        = kIsSession<P>  ? Shape::session
                                      : kHasRanks<P> ? Shape::ranked
                                                     : Shape::call,
                      .question     = e.question,
                      .limit        = e.limit,
                      .axes         = e.axes,
                      .check_at     = e.check_at,
                      .quick        = e.quick,
                      .backend      = e.backend,
                      .cache        = e.cache,
                      .clock        = e.clock,
                      .sets         = e.sets,
                      .catalog      = e.catalog,
                      .aliases      = e.aliases,
                      .group        = e.group,
                      .ranks        = e.ranks,
                      .ranks_as     = e.ranks_as,
                      .shared_bytes = e.shared_bytes,
                      .goal         = e.goal};
  for (const Variant<P>& v : e.variants) {
    VariantInfo variant{.id         = v.id,
                        .kind       = info.variants.empty() ? Kind::baseline : v.kind,
                        .techniques = v.techniques,
                        .idea       = v.idea,
                        .prediction = v.prediction,
                        .threads    = v.threads,
                        .needs      = v.needs,
                        .up_to      = v.up_to};
    if constexpr (kIsSession<P>) {
      variant.has_launch = v.start != nullptr;
      variant.start      = v.start;
      variant.may_refuse = v.may_refuse;
    } else {
      variant.has_launch    = v.launch != nullptr;
      variant.has_prepare   = v.prepare != nullptr;
      variant.own_process   = v.own_process;
      variant.syncs         = v.syncs;
      variant.persisting_l2 = v.persisting_l2;
      variant.op            = v.op;
      variant.library       = v.library;
      if (v.python.script) {
        FATHOM_EXPECT(v.kind == Kind::library && e.ranks == 1,
                      v.id + ": Python calls a library, in one rank");
        variant.has_launch = variant.has_prepare = true;
        variant.python =
            std::make_shared<PythonProcess>(v.python.script, v.python.longest_s, e.backend == Backend::cuda);
      }
    }
    info.variants.push_back(std::move(variant));
  }
  if constexpr (kIsSession<P>) {
    FATHOM_EXPECT(e.limit == Limit::none && e.check_at.empty(),
                  "a session is checked by its answers, and no single resource bounds it");
  } else {
    const auto foreign = std::make_shared<std::vector<ForeignLaunch>>();
    for (const VariantInfo& variant : info.variants) foreign->push_back({.python = variant.python});
    info.foreign = foreign;
    info.make    = [&e, foreign](const Point& at, Device* device, const Rank* rank) {
      return std::make_unique<TypedProblem<P>>(e, *foreign, at, device, rank);
    };
  }
  return info;
}

struct Registration {
  template <class P>
  Registration(const Experiment<P>& experiment, std::string_view file) {
    register_experiment(info_of(experiment), file);
  }
};

#define FATHOM_REGISTER(experiment) \
  const ::fathom::lab::Registration experiment##_registration { experiment, __FILE__ }

}  // namespace fathom::lab

// What an experiment is: one question, a baseline and its optimizations of the same work, declared as data.
//
//   struct Transpose {                                  // the problem: its memory, cost and reference
//     View<const float, 2> in;
//     View<float, 2> out;
//     Transpose(const Point& at, Arena& arena)
//         : in(arena.input<float>({at["n"], at["n"]}, Uniform{-1, 1})), out(arena.output<float>({at["n"],
//         at["n"]})) {}
//     Cost cost() const { return {.read = in.bytes(), .written = out.bytes()}; }
//     double expected(int64_t i, int64_t j) const { return in(j, i); }
//   };
//   void transpose_naive(const Transpose&, Context&);   // a variant only launches; one file each
//
//   const Experiment<Transpose> transpose{.question = "...", .limit = Limit::memory, .axes = {{"n", {1024,
//   4096}}}, ...}; FATHOM_REGISTER(transpose);
//
// The harness builds several problems of each point (the input sets), fills them from fresh seeds, and calls
// variants on them in turn. A problem with one output names it `out` and gives `expected(i, j, ...)`; one
// with several outputs gives `void check(Checker&) const` instead (lab/check.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/arena.h"
#include "core/device.h"
#include "core/stream.h"
#include "core/thread_pool.h"
#include "lab/check.h"
#include "lab/point.h"
#include "machine/features.h"

namespace fathom::lab {

// Thrown by a problem's constructor, or by prepare(), where this machine cannot do it at all: becomes a typed
// skip.
class Unavailable : public std::runtime_error {
 public:
  Unavailable(std::string reason, const std::string& need)
      : std::runtime_error(need), reason_(std::move(reason)) {}
  const std::string& reason() const {
    return reason_;
  }  // needs_feature, needs_permission, ... (lab/record.h)

 private:
  std::string reason_;
};

// The work of one call, whatever the variant: the least it must move and compute. Bytes are what must cross
// from the level that holds the working set; a line read for one useful word counts as the word.
struct Cost {
  int64_t read      = 0;  // bytes
  int64_t written   = 0;  // bytes
  double flops      = 0;
  DType flop_type   = DType::fp32;
  int64_t loads     = 0;  // dependent loads, for Limit::load_latency
  int64_t disk_read = 0;  // bytes from storage or the page cache
  int64_t link      = 0;  // bytes across the link between host and GPU
  int64_t shared    = 0;  // bytes through a GPU's shared memory
  int64_t working_set =
      0;  // bytes a call touches, where that is neither all the arena holds nor what it must move
};

// What bounds the best possible variant on this machine; a share of it is reported for every variant.
enum class Limit {
  memory,         // bandwidth of the cache level or DRAM that holds the working set
  flops,          // FMA peak of cost().flop_type
  tensor_flops,   // tensor-core peak of cost().flop_type; fp32 means tf32
  load_latency,   // cost().loads times the load latency of that level
  disk,           // sequential read rate of storage
  link,           // pinned copy rate between host and GPU
  shared_memory,  // of all multiprocessors of a GPU
  none,           // nothing physical is close (a scheduling or a branch-prediction lesson): no share
};
std::string_view to_string(Limit limit);

// Where the data is when a timed call starts.
enum class Cache {
  rotated,  // calls take the input sets in turn (the default): as hot as several working sets allow
  hot,      // the same set again and again
  cold,     // flushed from every cache before each call, one call a sample
};
std::string_view to_string(Cache cache);

enum class Clock {
  wall,
  cpu
};  // cpu: thread time, only for single-threaded pure compute; a GPU's variants are timed by its events

enum class Backend { cpu, cuda };  // whose memory the arena's buffers are, and whose clock counts
std::string_view to_string(Backend backend);

enum class Kind { baseline, optimized, library };
std::string_view to_string(Kind kind);

// Written down before the run, scored after it: held within 10 % or beyond "at least".
struct Prediction {
  enum class Of { nothing, share, ratio } of = Of::nothing;
  bool at_least                              = false;
  double value                               = 0;
  std::string to_string() const;  // "share >= 0.8", "ratio 2.7", ""
  bool held(double measured) const;
};
namespace predict {
inline Prediction nothing() { return {}; }
inline Prediction share(double s) { return {Prediction::Of::share, false, s}; }  // of the limit
inline Prediction share_at_least(double s) { return {Prediction::Of::share, true, s}; }
inline Prediction ratio(double r) { return {Prediction::Of::ratio, false, r}; }  // baseline time / this time
inline Prediction ratio_at_least(double r) { return {Prediction::Of::ratio, true, r}; }
}  // namespace predict

// What a launcher gets beside the problem. `pool` has as many workers as the variant declared threads.
struct Context {
  StreamRef stream = nullptr;
  ThreadPool& pool;
};

inline constexpr int kAllThreads = 0;

template <class P>
using Launch = std::function<void(const P&, Context&)>;

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
  int threads           = 1;  // kAllThreads: every host thread
  // Done once for each point, on inputs of another seed, and timed apart: packing, handles, plans. What it
  // returns is launched instead of `launch`, and may not depend on input values.
  std::function<Launch<P>(const P&, Context&)> prepare = nullptr;
  // (0), not {}: g++ 12 forgets to emit the default constructor that {} calls, and the link fails.
  std::vector<machine::Feature> needs =
      std::vector<machine::Feature>(0);  // typed skip where the machine lacks one
  std::string library = {};              // soname, e.g. "libopenblas.so.0": typed skip where it does not load
  std::vector<Point::Parameter> up_to =
      std::vector<Point::Parameter>(0);  // not run at points beyond, e.g. {{"n", 512}}; says so in the report
  bool own_process = false;              // a fresh process for every sample; rounds alternate processes
  // A GPU variant whose call waits for the GPU, or whose launches are part of the lesson: the GPU is not held
  // back while it enqueues, so that the host's time counts where it leaves the GPU idle.
  bool syncs = false;
  int64_t persisting_l2 =
      0;  // bytes of a GPU's L2 set aside, while this variant runs, for lines that it marks to persist
};

template <class P>
struct Experiment {
  // g++ 12 dies (nothrow_spec_p) on a braced Variant<P> that leaves these out, unless asked about them
  // before.
  static_assert(std::is_nothrow_default_constructible_v<decltype(Variant<P>::launch)> &&
                std::is_nothrow_default_constructible_v<decltype(Variant<P>::techniques)> &&
                std::is_nothrow_default_constructible_v<decltype(Variant<P>::prepare)> &&
                std::is_nothrow_default_constructible_v<decltype(Variant<P>::library)>);

  std::string question;
  Limit limit = Limit::none;
  std::vector<Axis> axes;  // timed at every combination; the first is what --quick takes
  std::vector<Axis>
      check_at;  // and proved at every combination of these; an axis not named keeps its first value
  std::vector<Variant<P>> variants;
  Backend backend                  = Backend::cpu;
  Cache cache                      = Cache::rotated;
  Clock clock                      = Clock::wall;
  int sets                         = 3;   // input sets; fewer only where one set must fill the memory
  std::vector<std::string> catalog = {};  // rows of the catalog that it covers, "tiling-007"
  std::vector<std::string> aliases = {};  // other names that resolve to it, "ch5:optimized_storage_cpu"
  std::string group                = {};  // comparison group across experiments
};

// One input set of one point, with the type of the problem forgotten. Of a GPU experiment there is also a
// twin on the host, built when it is first needed, which references and checks read after the device's
// buffers were copied there.
class Problem {
 public:
  explicit Problem(Device* device) : device_(device), arena_(std::make_unique<Arena>(device)) {}
  virtual ~Problem()                               = default;
  virtual Cost cost() const                        = 0;
  virtual void call(int variant, Context& context) = 0;  // what bind() or the declaration said
  virtual void bind(int variant,
                    const Problem& prepared) = 0;  // take over the launch that another set's prepare() made
  virtual void prepare(int variant, Context& context) = 0;
  void check(Checker& checker) const {
    if (!device_) return compare(checker);
    arena_->copy_to(host_twin());
    reader().compare(checker);
  }
  Arena& arena() { return *arena_; }
  const Arena& arena() const { return *arena_; }
  const Arena& checked_arena() const {
    return device_ ? host_twin() : *arena_;
  }  // whose addresses a check sees
  // Another set of the same point, whose twin serves this one too: it is as large as the device's buffers.
  void read_through(const Problem& other) { reader_ = &other; }

 protected:
  virtual void compare(Checker& checker) const = 0;
  virtual void build_twin(Arena& twin) const   = 0;
  const Problem& reader() const { return reader_ ? *reader_ : *this; }

  Device* device_;
  std::unique_ptr<Arena> arena_;

 private:
  Arena& host_twin() const {
    const Problem& owner = reader();
    if (!owner.twin_) {
      owner.twin_ = std::make_unique<Arena>(Arena::pinned(*device_));
      owner.build_twin(*owner.twin_);
    }
    return *owner.twin_;
  }
  const Problem* reader_ = nullptr;
  mutable std::unique_ptr<Arena> twin_;
};

// A variant as the runner and every report see it.
struct VariantInfo {
  std::string id;
  Kind kind = Kind::optimized;
  std::vector<std::string> techniques;
  std::string idea;
  Prediction prediction;
  int threads     = 1;
  bool has_launch = false, has_prepare = false, own_process = false, syncs = false;
  int64_t persisting_l2 = 0;
  std::vector<machine::Feature> needs;
  std::string library;
  std::vector<Point::Parameter> up_to;
};

enum class Shape { call, ranked, session };

struct ExperimentInfo {
  std::string id;      // "ch07/transpose_cpu"
  std::string folder;  // "experiments/ch07_memory_access/transpose_cpu"
  Shape shape = Shape::call;
  std::string question;
  Limit limit = Limit::none;
  std::vector<Axis> axes, check_at;
  Backend backend = Backend::cpu;
  Cache cache     = Cache::rotated;
  Clock clock     = Clock::wall;
  int sets        = 3;
  std::vector<std::string> catalog, aliases;
  std::string group;
  std::vector<VariantInfo> variants;
  std::function<std::unique_ptr<Problem>(const Point&)> make;  // shape call
  const void* declaration = nullptr;                           // shapes ranked and session: see their headers
};

// Called by FATHOM_REGISTER at start-up; `file` is the declaration's __FILE__ and gives the id.
void register_experiment(ExperimentInfo info, std::string_view file);

template <class P>
class TypedProblem final : public Problem {
 public:
  TypedProblem(const Experiment<P>& experiment, const Point& at)
      : Problem(experiment.backend == Backend::cuda ? cuda_device() : nullptr),
        experiment_(experiment),
        at_(at),
        problem_(at, *arena_),
        launches_(experiment.variants.size()) {
    for (size_t v = 0; v < launches_.size(); ++v) launches_[v] = experiment.variants[v].launch;
  }
  Cost cost() const override { return problem_.cost(); }
  void call(int variant, Context& context) override { launches_[variant](problem_, context); }
  void prepare(int variant, Context& context) override {
    launches_[variant] = experiment_.variants[variant].prepare(problem_, context);
  }
  void bind(int variant, const Problem& prepared) override {
    launches_[variant] = static_cast<const TypedProblem&>(prepared).launches_[variant];
  }

 private:
  void compare(Checker& checker) const override {
    const P& problem = on_host_ ? *on_host_ : problem_;
    if constexpr (requires { problem.check(checker); })
      problem.check(checker);
    else
      checker.values("out", problem.out, [&](auto... i) { return problem.expected(i...); });
  }

  void build_twin(Arena& twin) const override { on_host_.emplace(at_, twin); }

  const Experiment<P>& experiment_;
  Point at_;
  P problem_;
  mutable std::optional<P> on_host_;
  std::vector<Launch<P>> launches_;
};

template <class P>
ExperimentInfo info_of(const Experiment<P>& e) {
  ExperimentInfo info{.question = e.question,
                      .limit    = e.limit,
                      .axes     = e.axes,
                      .check_at = e.check_at,
                      .backend  = e.backend,
                      .cache    = e.cache,
                      .clock    = e.clock,
                      .sets     = e.sets,
                      .catalog  = e.catalog,
                      .aliases  = e.aliases,
                      .group    = e.group,
                      .make     = [&e](const Point& at) { return std::make_unique<TypedProblem<P>>(e, at); }};
  for (const Variant<P>& v : e.variants)
    info.variants.push_back({.id            = v.id,
                             .kind          = info.variants.empty() ? Kind::baseline : v.kind,
                             .techniques    = v.techniques,
                             .idea          = v.idea,
                             .prediction    = v.prediction,
                             .threads       = v.threads,
                             .has_launch    = v.launch != nullptr,
                             .has_prepare   = v.prepare != nullptr,
                             .own_process   = v.own_process,
                             .syncs         = v.syncs,
                             .persisting_l2 = v.persisting_l2,
                             .needs         = v.needs,
                             .library       = v.library,
                             .up_to         = v.up_to});
  return info;
}

struct Registration {
  template <class AnyExperiment>
  Registration(const AnyExperiment& experiment, std::string_view file) {
    register_experiment(info_of(experiment), file);
  }
};

#define FATHOM_REGISTER(experiment) \
  const ::fathom::lab::Registration experiment##_registration { experiment, __FILE__ }

}  // namespace fathom::lab

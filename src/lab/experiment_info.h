// An experiment with the type of its problem forgotten: what the registry holds and runners, lists and
// reports see. lab/experiment.h makes one from a declaration.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device.h"
#include "lab/arena.h"
#include "lab/check.h"
#include "lab/metric.h"
#include "lab/point.h"
#include "lab/problem.h"
#include "lab/session.h"
#include "machine/features.h"

namespace fathom::lab {

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
  cpu,  // thread time, only for single-threaded pure compute; GPU variants are timed by events
};

enum class Backend { cpu, cuda };  // whose memory the arena's buffers are in, and whose clock counts
std::string_view to_string(Backend backend);

// An `engine` variant is a call of one of the engine's ops (src/kernels): ours, and a yardstick like a
// library.
enum class Kind { baseline, optimized, library, engine };
std::string_view to_string(Kind kind);

// Written down before the run, scored after it: "at least" means at least, a value means within 10 %.
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

// How ranks run. On a GPU each rank has a device of its own, in the order CUDA lists them.
enum class RanksAs {
  processes,  // of this host
  devices,    // a thread for each, in one process
};

inline constexpr int kAllThreads = 0;

class PythonProcess;

// One input set of one point, with the type of the problem forgotten. A problem on a GPU has a twin in host
// memory, built when it is first needed; references and checks read the twin after the device's buffers were
// copied there.
class Problem {
 public:
  explicit Problem(Device* device) : device_(device), arena_(std::make_unique<Arena>(device)) {}
  virtual ~Problem()                               = default;
  virtual Cost cost() const                        = 0;
  virtual void call(int variant, Context& context) = 0;  // the launch that bind() or the declaration gave
  // Takes over the launch that another set's prepare() made.
  virtual void bind(int variant, const Problem& prepared) = 0;
  virtual void prepare(int variant, Context& context)     = 0;
  virtual CallMetrics metrics() const                     = 0;  // of the last call
  virtual void put_nonce(Context& context) const          = 0;  // these two: of a problem with ranks
  virtual uint64_t nonce_sum(Context& context) const      = 0;

  // Compares the outputs with the reference. `ranks`: the problems of all ranks, for a problem with ranks;
  // those of others are read as copy_to_host() left them.
  void check(Checker& checker, std::span<const Problem* const> ranks = {}) const {
    copy_to_host();
    compare(checker, ranks);
  }
  void copy_to_host() const {
    if (device_) arena_->copy_to(host_twin());
  }
  Arena& arena() { return *arena_; }
  const Arena& arena() const { return *arena_; }
  // The arena whose addresses a check sees.
  const Arena& checked_arena() const { return device_ ? host_twin() : *arena_; }
  // Uses the twin of `other`, another set of the same point: a twin is as large as the device's buffers.
  void share_twin_of(const Problem& other) { twin_owner_ = &other; }

 protected:
  virtual void compare(Checker& checker, std::span<const Problem* const> ranks) const = 0;
  virtual void build_twin(Arena& twin) const                                          = 0;
  const Problem& twin_owner() const { return twin_owner_ ? *twin_owner_ : *this; }

  Device* device_;
  std::unique_ptr<Arena> arena_;

 private:
  Arena& host_twin() const {
    const Problem& owner = twin_owner();
    if (!owner.twin_) {
      owner.twin_ = std::make_unique<Arena>(Arena::pinned(*device_));
      owner.build_twin(*owner.twin_);
    }
    return *owner.twin_;
  }
  const Problem* twin_owner_ = nullptr;
  mutable std::unique_ptr<Arena> twin_;
};

// How the calls of a variant are made that are no calls of this program; both empty: they are.
struct ForeignLaunch {
  std::shared_ptr<PythonProcess> python = nullptr;  // by Python, in a process of its own
  std::string candidate                 = {};       // by a shared library (lab/candidate_library.h)
};

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
  std::string op, library;
  std::shared_ptr<PythonProcess> python;  // that makes its calls; null: they are made here
  std::vector<Point::Parameter> up_to;
  std::function<std::unique_ptr<Session>(const Point&)> start;  // of a session
  bool may_refuse = false;                                      // a session may turn requests away
};

enum class Shape {
  call,     // one process; a call is a sample
  ranked,   // several ranks; a step of all of them is a sample
  session,  // something long-lived; a replay is a sample
};

struct ExperimentInfo {
  std::string id;      // "ch07/transpose_cpu"
  std::string folder;  // "experiments/ch07_memory_access/transpose_cpu"
  Shape shape = Shape::call;
  std::string question;
  Limit limit = Limit::none;
  std::vector<Axis> axes, check_at, quick;
  Backend backend = Backend::cpu;
  Cache cache     = Cache::rotated;
  Clock clock     = Clock::wall;
  int sets        = 3;
  std::vector<std::string> catalog, aliases;
  std::string group;
  int ranks            = 1;
  RanksAs ranks_as     = RanksAs::processes;
  int64_t shared_bytes = 0;
  std::string goal;  // of a session
  std::vector<VariantInfo> variants;
  std::shared_ptr<std::vector<ForeignLaunch>> foreign;  // one for each variant; null: a session
  // A problem in the memory of that device, or of the host where it is null; `rank` is null without ranks.
  // Sessions have none.
  std::function<std::unique_ptr<Problem>(const Point&, Device*, const Rank*)> make;
};

// Called by FATHOM_REGISTER at start-up; `file` is the declaration's __FILE__ and gives the id.
void register_experiment(ExperimentInfo info, std::string_view file);

}  // namespace fathom::lab

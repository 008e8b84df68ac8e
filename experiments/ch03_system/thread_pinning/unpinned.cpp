// `steps` steps of diffusion over n cells, one barrier a step                 fp32, all threads
//
// bytes   8 n: the rod is read and written once; between steps it stays in the caches of its cores
// flops   4 n steps
// limit   none physical: a step of a rod that fits in L2 takes as long as its barrier
// idea    baseline: as many threads as before on the same CPUs, but the scheduler decides which of them runs
//         where
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <vector>

#include "core/cpus.h"
#include "core/thread_pool.h"
#include "thread_pinning.h"

namespace fathom::lab::thread_pinning {
namespace {

class Mask {
 public:
  explicit Mask(const std::vector<int>& cpus)
      : words_(static_cast<size_t>(*std::max_element(cpus.begin(), cpus.end())) / CPU_SETSIZE + 1) {
    for (const int cpu : cpus) CPU_SET_S(static_cast<size_t>(cpu), bytes(), words_.data());
  }
  // The calling thread, and those it starts from now on, may run on these CPUs.
  void apply() const { FATHOM_SYSTEM(sched_setaffinity(0, bytes(), words_.data())); }

 private:
  size_t bytes() const { return words_.size() * sizeof(cpu_set_t); }
  std::vector<cpu_set_t> words_;
};

// The harness binds the calling thread to one CPU. During a call this releases it, like the workers.
class Unbound {
 public:
  Unbound(const Mask& everywhere, const Mask& home) : home_(home) { everywhere.apply(); }
  ~Unbound() {
    try {
      home_.apply();
    } catch (const SystemError&) {  // a destructor cannot report an error
    }
  }

 private:
  const Mask& home_;
};

struct FreeThreads {
  Mask everywhere, home;
  std::unique_ptr<ThreadPool> pool;
};

}  // namespace

Launch<Diffusion> prepare_unpinned(const Diffusion&, Context& context) {
  // The CPUs that the harness' pool is bound to, so that both variants have the same ones.
  const int threads = context.pool.threads();
  std::vector<std::vector<int>> of_worker(static_cast<size_t>(threads));
  context.pool.run([&](int worker) { of_worker[static_cast<size_t>(worker)] = allowed_cpus(); });
  std::vector<int> all;
  for (const std::vector<int>& cpus : of_worker) all.insert(all.end(), cpus.begin(), cpus.end());

  auto free = std::make_shared<FreeThreads>(FreeThreads{Mask(all), Mask(of_worker[0]), nullptr});
  const Unbound here(free->everywhere, free->home);  // threads inherit the mask of their creator
  free->pool = std::make_unique<ThreadPool>(threads);
  return [free](const Diffusion& p, Context&) {
    const Unbound caller(free->everywhere, free->home);
    diffuse(p, *free->pool);
  };
}

}  // namespace fathom::lab::thread_pinning

// One call of a variant and one of its baseline under valgrind --tool=callgrind, which writes what each of
// them cost (instructions, misses of its simulated caches) to a dump of its own; tests/variant_cost_test.py
// reads those.
//   variant_cost ch08/simd_dot/highway?n=4096 ...
#include <fmt/format.h>
#include <valgrind/callgrind.h>

#include "core/thread_pool.h"
#include "lab/registry.h"
#include "lab/source_hash.h"
#include "lab/target.h"

namespace fathom::lab {
namespace {

template <class T>
T value_of(Result<T> result) {
  FATHOM_EXPECT(result.has_value(), result.error().message);
  return std::move(*result);
}

// The second of two calls: libraries are bound, vectors' width is chosen, and caches hold what fits.
void count_call(const ExperimentInfo& experiment, Problem& problem, int variant, const std::string& name) {
  ThreadPool pool(1);
  Context context{.pool = pool};
  if (experiment.variants[static_cast<size_t>(variant)].has_prepare) problem.prepare(variant, context);
  problem.call(variant, context);
  CALLGRIND_ZERO_STATS;
  problem.call(variant, context);
  CALLGRIND_DUMP_STATS_AT(name.c_str());
}

void count_pair(const std::string& id) {
  const Targets targets =
      value_of(resolve_targets({id}, experiments(), value_of(parse_labels(labels_toml()))));
  FATHOM_EXPECT(targets.selections.size() == 1 && targets.selections.front().variants.size() == 1,
                id + " is not one variant");
  const ExperimentInfo& experiment = *find_experiment(targets.selections.front().experiment);
  const auto axes    = value_of(override_axes(experiment.axes, targets.axes, experiment.check_at));
  const auto problem = experiment.make(cross_product(axes).front(), nullptr, nullptr);
  problem->arena().fill(1);
  int chosen = 0;
  while (experiment.variants[static_cast<size_t>(chosen)].id != targets.selections.front().variants.front())
    ++chosen;
  count_call(experiment, *problem, 0, "baseline of " + id);
  count_call(experiment, *problem, chosen, id);
}

}  // namespace
}  // namespace fathom::lab

int main(int argc, char** argv) {
  try {
    for (int i = 1; i < argc; ++i) fathom::lab::count_pair(argv[i]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "variant_cost: {}\n", error.what());
    return 1;
  }
}

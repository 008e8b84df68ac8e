// A search runs level by level, and only the GPU knows how large the next level is, and whether there is one.
// The host can ask, a kernel can launch the next one, or one kernel can do all.
#include "lab/experiment.h"

#include <vector>

#include "core/rng.h"
#include "search.h"

namespace fathom::lab::dynamic_parallelism {
namespace {

Generate edges() {
  return generate<uint32_t>([](uint32_t* to, int64_t count, uint64_t seed) {
    const int64_t vertices = count / kDegree;
    if (vertices == 0) return;  // no vertex that an edge could lead to
    fill_integers(to, count, seed, 0, vertices);
    for (int64_t e = 0; vertices <= kRing && e < count; ++e)
      to[e] = static_cast<uint32_t>((e / kDegree + e % kDegree + 1) % vertices);
  });
}

}  // namespace

Search::Search(const Point& at, Arena& arena)
    : neighbours(arena.input<uint32_t>({at["vertices"], kDegree}, edges())),
      level(arena.output<uint32_t>({at["vertices"]})),
      frontier(arena.workspace<uint32_t>({2, at["vertices"]})),
      size(arena.workspace<uint32_t>({kMaxLevels + 1})),
      finished(arena.workspace<uint32_t>({kMaxLevels})),
      on_host(arena.workspace<uint32_t>({1}, Pages::small, Place::pinned)) {
  FATHOM_EXPECT(vertices() <= kMaxVertices, "edges are counted in 32 bits");
}

Cost Search::cost() const { return {.read = neighbours.bytes(), .written = level.bytes()}; }

void Search::check(Checker& checker) const {
  std::vector<int64_t> expected(static_cast<size_t>(vertices()), kUnreached);
  std::vector<uint32_t> reached;
  if (vertices() > 0) {
    expected[0] = 0;
    reached.push_back(0);
  }
  for (size_t r = 0; r < reached.size(); ++r) {
    const int64_t from = expected[reached[r]];
    for (int64_t k = 0; k < kDegree && from < kMaxLevels; ++k)
      if (const uint32_t to = neighbours(reached[r], k); expected[to] == kUnreached) {
        expected[to] = from + 1;
        reached.push_back(to);
      }
  }
  checker.values("level", level, [&](int64_t v) { return expected[static_cast<size_t>(v)]; });
}

namespace {

const Experiment<Search> search{
    .question =
        "A kernel finds out how large the next one must be: what does it cost that the host asks and "
        "launches, "
        "that a kernel launches it, that it is launched too large, or that one kernel does all?",
    .limit = Limit::none,
    // Eight and ten levels.
    .axes = {{"vertices", {1 << 14, 1 << 20}}},
    // 129 is the longest ring that 16 levels reach. Warps of 4 vertices, blocks of 32.
    .check_at = {{"vertices", {0, 1, 2, 4, 5, 9, 128, 129, 130, 512, 513, 4099, 40009}}},
    .variants =
        {
            {.id         = "host_decides",
             .launch     = on_gpu(host_decides),
             .techniques = {},
             .idea       = "a launch, a copy of the size and a wait for each level",
             .syncs      = true},  // here and below: the host's part is the subject
            // 17 launches at 2 to 3 us; the baseline takes some 14 us a level.
            {.id         = "fixed_grid",
             .launch     = on_gpu(fixed_grid),
             .techniques = {},
             .idea       = "16 launches with as many blocks as the GPU holds, needed or not",
             .prediction = predict::ratio_at_least(1.3),
             .syncs      = true},
            // Assumed: 4 to 5 us from the launch in a kernel to the start of the next.
            {.id         = "planner",
             .launch     = on_gpu(planner),
             .techniques = {"dynamic_parallelism"},
             .idea       = "a kernel of one thread launches a level, and itself again after it",
             .prediction = predict::ratio_at_least(1.0),
             .syncs      = true},
            {.id         = "tail_launch",
             .launch     = on_gpu(tail_launch),
             .techniques = {"dynamic_parallelism"},
             .idea       = "the block that ends last launches the next level",
             .prediction = predict::ratio_at_least(1.3),
             .syncs      = true},
            {.id         = "persistent",
             .launch     = on_gpu(persistent),
             .techniques = {"persistent_kernel", "cooperative_groups"},
             .idea       = "one cooperative kernel, whose blocks wait for each other after each level",
             .prediction = predict::ratio_at_least(1.5),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .cache   = Cache::hot,
    .catalog = {"graphs-010"},
};
FATHOM_REGISTER(search);

}  // namespace
}  // namespace fathom::lab::dynamic_parallelism

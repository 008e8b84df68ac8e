// The host does not know when a decode loop ends: a token decides, and tokens are on the GPU. If the host
// asks after every step, the GPU waits for its answer. A conditional node leaves the decision to the GPU.
#include "lab/experiment.h"

#include <vector>

#include "core/rng.h"
#include "decode.h"

namespace fathom::lab::conditional_loop {
namespace {

// The next token, on the host.
uint32_t step_of(std::vector<uint32_t>& x) {
  std::vector<uint32_t> next(x.size());
  for (int l = 0; l < kLayers; ++l, x.swap(next))
    for (size_t i = 0; i < x.size(); ++i) next[i] = mix(x[i] + x[(i + (size_t{1} << l)) % kWidth]);
  uint32_t token = 0;
  for (const uint32_t v : x) token += v;
  return token;
}

// The stop token is one that comes in the last eighth of the steps, or for one seed in eight none at all.
Generate prompt_of(int64_t steps) {
  return generate<uint32_t>([steps](uint32_t* prompt, int64_t n, uint64_t seed) {
    fill_integers(prompt, n, seed, 0, int64_t{1} << 32);
    if (steps == 0 || seed % 8 == 0) return;
    const auto last = steps - static_cast<int64_t>(seed / 8 % static_cast<uint64_t>(steps / 8 + 1));
    std::vector<uint32_t> x(prompt, prompt + kWidth);
    for (int64_t step = 0; step < last; ++step) prompt[kWidth] = step_of(x);
  });
}

}  // namespace

Decode::Decode(const Point& at, Arena& arena)
    : steps(at["steps"]),
      prompt(arena.input<uint32_t>({kWidth + 1}, prompt_of(steps))),
      tokens(arena.output<uint32_t>({steps})),
      state(arena.workspace<uint32_t>({2, kWidth})),
      count(arena.workspace<uint32_t>({1})),
      done(arena.workspace<uint32_t>({1})),
      done_on_host(arena.workspace<uint32_t>({1}, Pages::small, Place::pinned)) {}

Cost Decode::cost() const { return {.read = prompt.bytes(), .written = tokens.bytes()}; }

void Decode::check(Checker& checker) const {
  std::vector<uint32_t> x(prompt.data(), prompt.data() + kWidth);
  std::vector<int64_t> expected(static_cast<size_t>(steps), 0);
  for (int64_t& token : expected) {
    token = step_of(x);
    if (token == prompt(kWidth)) break;
  }
  checker.values("tokens", tokens, [&](int64_t t) { return expected[static_cast<size_t>(t)]; });
}

namespace {

const Experiment<Decode> decode{
    .question =
        "A loop of small steps ends when the GPU says so: what does it cost that the host asks after each "
        "step, and what does a WHILE node of a graph cost instead?",
    .limit    = Limit::none,
    .axes     = {{"steps", {128}}},
    .check_at = {{"steps", {0, 1, 2, 7, 8, 9, 17, 61}}},
    .variants =
        {
            {.id         = "host_loop",
             .launch     = on_gpu(host_loop),
             .techniques = {},
             .idea       = "five launches, a copy of the flag and a wait for each step",
             .syncs      = true},  // here and below: the host's part is the subject
            // A step: five launches and a copy, then some 10 us until the host has the flag and the GPU the
            // next launch.
            {.id         = "host_graph",
             .techniques = {"graph_replay"},
             .idea       = "a step is one graph; a wait for each",
             .prediction = predict::ratio_at_least(1.2),
             .prepare    = prepared_on_gpu(host_graph),
             .syncs      = true},
            {.id         = "eight_steps",
             .techniques = {"graph_replay"},
             .idea       = "a graph of eight steps; up to seven steps too many, which do nothing",
             .prediction = predict::ratio_at_least(2),
             .prepare    = prepared_on_gpu(eight_steps),
             .syncs      = true},
            {.id         = "while_node",
             .techniques = {"graph_replay", "conditional_nodes"},
             .idea       = "the whole loop is one graph: a WHILE node, and a kernel that sets its condition",
             .prediction = predict::ratio_at_least(2),
             .prepare    = prepared_on_gpu(while_node),
             .syncs      = true},
        },
    .backend = Backend::cuda,
    .cache   = Cache::hot,
    .sets    = 1,  // a graph holds the addresses it was captured with
    .catalog = {"graphs-003"},
};
FATHOM_REGISTER(decode);

}  // namespace
}  // namespace fathom::lab::conditional_loop

// Before an MoE layer every token's row goes to each of its experts. Gathering by place reads a row once for
// each expert, with a whole expert's traffic in between: too far apart for any cache. Token by token, each
// row is read once.
#include "lab/experiment.h"

#include <array>

#include "core/rng.h"
#include "dispatch.h"

namespace fathom::lab::gather_gpu {
namespace {

// Four different experts for each token, all equally likely. Writes the token of every place, then the places
// of every token.
void route(int32_t* to, int64_t elements, uint64_t seed) {
  const int64_t tokens = elements / (2 * kTopK);
  const PhiloxKey key  = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  std::vector<std::array<int, kTopK>> experts(static_cast<size_t>(tokens));
  std::array<int32_t, kExperts> next{};  // first the number of places of an expert, then its next free one
  for (int64_t t = 0; t < tokens; ++t) {
    const PhiloxCounter draws = philox({static_cast<uint32_t>(t), 0, 0, 0}, key);
    std::array<int, kExperts> left;
    for (int e = 0; e < kExperts; ++e) left[e] = e;
    for (int k = 0; k < kTopK; ++k) {
      const auto pick = draws[k] % static_cast<uint32_t>(kExperts - k);
      experts[t][k]   = left[pick];
      left[pick]      = left[kExperts - 1 - k];
      ++next[experts[t][k]];
    }
  }
  int32_t places = 0;
  for (int32_t& first : next) places += std::exchange(first, places);
  int32_t* token = to;
  int32_t* place = to + kTopK * tokens;
  for (int64_t t = 0; t < tokens; ++t)
    for (int k = 0; k < kTopK; ++k) {
      const int32_t r      = next[experts[t][k]]++;
      token[r]             = static_cast<int32_t>(t);
      place[t * kTopK + k] = r;
    }
}

}  // namespace

Dispatch::Dispatch(const Point& at, Arena& arena)
    : in(arena.input<bf16>({at["tokens"], at["hidden"]}, Normal{})),
      routing(arena.input<int32_t>({2 * kTopK * at["tokens"]}, generate<int32_t>(route))),
      token(routing.data(), {kTopK * at["tokens"]}),
      place(routing.data() + kTopK * at["tokens"], {at["tokens"], kTopK}),
      out(arena.output<bf16>({kTopK * at["tokens"], at["hidden"]})) {
  FATHOM_EXPECT(out.size() < int64_t{1} << 31, "elements are counted in 32 bits");
}

// Every row is read once, and one of the two maps.
Cost Dispatch::cost() const { return {.read = in.bytes() + token.bytes(), .written = out.bytes()}; }

double Dispatch::expected(int64_t r, int64_t c) const { return static_cast<float>(in(token(r), c)); }

namespace {

const Experiment<Dispatch> dispatch{
    .question =
        "What does dispatching tokens to their experts cost: by element, by row, and with every row read "
        "only once?",
    .limit = Limit::memory,
    // gpt-oss: 0.19 GB read, 0.75 GB written. DeepSeek's width: 0.47 and 1.88 GB.
    .axes     = {{"tokens", {32768}}, {"hidden", {2880, 7168}}},
    .check_at = {{"tokens", {0, 1, 2, 7, 251}}, {"hidden", {1, 7, 8, 33, 1016, 1032, 2880}}},
    .variants =
        {
            {.id         = "element",
             .launch     = on_gpu(element),
             .techniques = {},
             .idea       = "a thread for each element of the result",
             .prediction = predict::share(0.16)},
            {.id         = "row_vectors",
             .launch     = on_gpu(row_vectors),
             .techniques = {"coalescing", "vectorization"},
             .idea       = "a warp for each row, 16 bytes a lane, four in flight",
             .prediction = predict::share(0.6)},
            {.id         = "read_once",
             .launch     = on_gpu(read_once),
             .techniques = {"coalescing", "vectorization", "layout_change", "access_order"},
             .idea       = "a warp for each token: its row is read once and written to all four places",
             .prediction = predict::share_at_least(0.92)},
            {.id         = "bulk_rows",
             .launch     = on_gpu(bulk_rows),
             .techniques = {"tiling_in_shared_memory", "tma", "layout_change", "access_order"},
             .idea       = "a thread for each token: one bulk copy of the row in, four out",
             .prediction = predict::share_at_least(0.92),
             .needs      = {machine::Feature::tma}},
        },
    .backend = Backend::cuda,
    .catalog = {"memory-018"},
};
FATHOM_REGISTER(dispatch);

}  // namespace
}  // namespace fathom::lab::gather_gpu

// A decode step of one sequence is a chain of short kernels that read each weight once. How much of the step
// is the reading, and how much goes at the seams: launches by the host, boundaries between kernels, pipelines
// that fill and drain? Each rung takes one seam away.
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "engine/config.h"
#include "engine/resolve_config.h"
#include "experiments/decoding_session.h"
#include "lab/experiment.h"
#include "lab/session.h"
#include "machine/gpu_ceilings.h"
#include "model/config.h"

namespace fathom::lab::decode_step {

using namespace decoding_session;
using CudaGraphMode = engine::EngineConfig::CudaGraphMode;

constexpr int64_t kPrompt = 1032, kTokens = 256;

struct Rungs {
  CudaGraphMode graphs = CudaGraphMode::full;
  bool async           = true;
  bool fused_experts = false, early_output_projection = false, screened_argmax = false;
  auto operator<=>(const Rungs&) const = default;
};

// One for each configuration; they live as long as the process.
engine::Engine& engine_of(int64_t layers, const Rungs& rungs) {
  using Key          = std::pair<int64_t, Rungs>;
  static auto& alive = *new std::map<Key, std::unique_ptr<engine::Engine>>;  // CUDA may end before it would
  auto& one          = alive[{layers, rungs}];
  if (one) return *one;
  engine::EngineConfig config = shaped_engine({.sequences = 1, .prompt_tokens = kPrompt, .tokens = kTokens});
  config.cudagraph_mode       = rungs.graphs;
  config.async_scheduling     = rungs.async;
  config.fused_experts        = rungs.fused_experts;
  config.early_output_projection = rungs.early_output_projection;
  config.screened_argmax         = rungs.screened_argmax;
  auto started                   = engine::Engine::start(shaped_model(layers), config);
  if (!started) throw std::runtime_error(started.error().message);
  one = std::move(started).value();
  return *one;
}

class Decode final : public Session {
 public:
  Decode(int64_t layers, const Rungs& rungs) : engine_(engine_of(layers, rungs)) {}

  void prepare(uint64_t seed) override {
    asked_ = {.sequences = 1, .prompt_tokens = kPrompt, .tokens = kTokens, .seed = seed};
  }

  Replay replay() override {
    const Decoded seen = decode(engine_, asked_);
    Replay replay{.metrics = metrics_of(seen, 1)};
    replay.outputs.emplace_back(seen.answers[0].begin(), seen.answers[0].end());
    // Weights, and keys and values at the middle of the window.
    const model::Config& c = engine_.checkpoint().config;
    const auto f           = model::footprint(c);
    const int64_t unread   = engine::has_screening(c, engine_.config()) ? c.vocab_size * c.hidden_size : 0;
    const double bytes     = static_cast<double>(f.bytes_read_by_token - unread + f.kv_window_bytes +
                                             f.kv_bytes_per_token * (kPrompt + kTokens / 2));
    const double rate      = bytes / (seen.step_ns() * 1e-9);
    replay.metrics["bytes_per_s"] = {rate, "higher"};
    replay.metrics["read_share"]  = {
         rate / machine::gpu_median_rate(machine::GpuLevel::dram, machine::Traffic::read), "higher"};
    return replay;
  }

 private:
  engine::Engine& engine_;
  Decoding asked_;
};

auto starts(const Rungs& rungs) {
  return [=](const Point& at) -> std::unique_ptr<Session> {
    return std::make_unique<Decode>(at["layers"], rungs);
  };
}

const Experiment<Session> experiment{
    .question =
        "One sequence of gpt-oss-20b's shape with four layers: what does a decode step gain as launches, "
        "boundaries and waits are taken out of it one by one?",
    .axes = {{"layers", {4}}},
    .variants =
        {
            {.id         = "launched",
             .start      = starts({.graphs = CudaGraphMode::none, .async = false}),
             .techniques = {"batching"},
             .idea       = "the host plans a step, launches its kernels one by one, and waits for its token"},
            {.id         = "launched_ahead",
             .start      = starts({.graphs = CudaGraphMode::none}),
             .techniques = {"latency_hiding"},
             .idea       = "the next step is planned and launched during the one before",
             .prediction = predict::ratio(1.15)},
            {.id         = "piecewise_graphs",
             .start      = starts({.graphs = CudaGraphMode::piecewise}),
             .techniques = {"latency_hiding", "graph_replay"},
             .idea       = "graphs between the attentions, which are launched",
             .prediction = predict::ratio(1.15)},
            {.id         = "one_graph",
             .start      = starts({}),
             .techniques = {"latency_hiding", "graph_replay"},
             .idea       = "one graph with programmatic dependent launches",
             .prediction = predict::ratio(1.2)},
            {.id         = "screened_argmax",
             .start      = starts({.screened_argmax = true}),
             .techniques = {"latency_hiding", "graph_replay", "weight_quantization"},
             .idea =
                 "and an int8 copy of the unembedding says which of its rows are read: the engine's default",
             .prediction = predict::ratio(1.35)},
            {.id         = "fused_experts",
             .start      = starts({.fused_experts = true}),
             .techniques = {"latency_hiding", "graph_replay", "megakernel"},
             .idea       = "and both layers of the experts in one persistent launch with a grid barrier",
             .prediction = predict::ratio(1.2)},
            {.id         = "early_output_projection",
             .start      = starts({.fused_experts = true, .early_output_projection = true}),
             .techniques = {"latency_hiding", "graph_replay", "megakernel"},
             .idea       = "and the output projection fetches its weights under attention",
             .prediction = predict::ratio(1.22)},
        },
    .backend = Backend::cuda,
    .catalog = {"lab-022"},
    .goal    = "token_ns",
};
FATHOM_REGISTER(experiment);

}  // namespace fathom::lab::decode_step

#include "experiments/decoding_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <stdexcept>
#include <utility>
#include <variant>

#include "core/expect.h"
#include "core/rng.h"
#include "engine/model_runner.h"
#include "experiments/engine_session.h"
#include "lab/problem.h"

namespace fathom::lab::decoding_session {
namespace {

using Clock = std::chrono::steady_clock;
using engine::TimePoint;
using model::TokenId;

constexpr int64_t kBeyond = 16;  // tokens after the window

double seconds(TimePoint from, TimePoint to) { return std::chrono::duration<double>(to - from).count(); }

// What a step told one sequence.
struct Told {
  TimePoint at;
  int64_t tokens = 0;  // so far
};

std::filesystem::path models_folder() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && *folder == '/')
    return std::filesystem::path(folder) / "fathom" / "models";
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home && *home ? home : "/root") / ".cache" / "fathom" / "models";
}

model::Checkpoint open_shaped(int64_t layers) {
  if (const Status can =
          engine::gpu_can_run(engine_session::bundled().checkpoint, engine::EngineConfig::on_gpu());
      !can)
    throw Unavailable("needs_cuda", can.error().message);
  const auto folder = models_folder() / fmt::format("gpt-oss-20b-{}-layers", layers);
  if (!std::filesystem::exists(folder / "model.safetensors"))
    throw Unavailable("needs_model", fmt::format("fathom model make --shape gpt-oss-20b --layers {} {}",
                                                 layers, folder.string()));
  auto opened = model::Checkpoint::open(folder);
  if (!opened) throw std::runtime_error(opened.error().message);
  const model::Config& c = opened->config;
  if (c.num_hidden_layers != layers || c.hidden_size != 2880 || c.num_local_experts != 32)
    throw Unavailable("needs_model", folder.string() + " with gpt-oss-20b's shape, and it has another");
  return std::move(opened).value();
}

}  // namespace

std::vector<std::vector<TokenId>> prompts_of(const Decoding& asked, int64_t vocab) {
  std::vector<std::vector<TokenId>> prompts(static_cast<size_t>(asked.sequences));
  for (size_t b = 0; b < prompts.size(); ++b) {
    prompts[b].resize(static_cast<size_t>(asked.prompt_tokens));
    fill_integers(prompts[b].data(), asked.prompt_tokens, asked.seed * 1000003 + b, 0, vocab);
  }
  return prompts;
}

// All prompts are submitted from a listener, on the engine's thread, so that they are in the same first step.
Decoded decode(engine::Engine& engine, const Decoding& asked) {
  const auto B = static_cast<size_t>(asked.sequences);
  auto prompts = prompts_of(asked, engine.checkpoint().config.vocab_size);
  std::vector<std::vector<Told>> told(B);
  Decoded seen{.answers = std::vector<std::vector<TokenId>>(B)};
  engine::GeneratorStats begun, ended;
  bool has_begun = false, has_ended = false;
  std::promise<std::string> all_ended;
  std::string error;
  size_t left    = B;
  const auto end = [&](size_t sequences) {
    left -= sequences;
    if (left == 0) all_ended.set_value(error);
  };
  const auto note = [&](size_t b, const engine::RequestOutput& output) {
    if (!output.tokens.empty()) {
      for (const engine::Sampled& token : output.tokens) seen.answers[b].push_back(token.id);
      told[b].push_back({Clock::now(), std::ssize(seen.answers[b])});
      if (!std::exchange(has_begun, true)) begun = engine.stats();
      if (told[b].back().tokens >= asked.tokens && !std::exchange(has_ended, true)) ended = engine.stats();
    }
    if (!output.error.empty()) error = output.error;
    if (output.finish) end(1);
  };
  const auto submit_all = [&] {
    for (size_t b = 0; b < B; ++b) {
      const auto taken = engine.submit(
          {.prompt = prompts[b], .sampling = {.temperature = 0}, .max_tokens = asked.tokens + kBeyond},
          [&note, b](const engine::RequestOutput& output) { note(b, output); });
      if (const auto* refusal = std::get_if<engine::Refusal>(&taken)) {
        error = refusal->message;
        return end(B - b);
      }
    }
  };
  const auto forerun =
      engine.submit({.prompt = {0}, .max_tokens = 1}, [&](const engine::RequestOutput& output) {
        if (!output.finish) return;
        error = output.error;
        error.empty() ? submit_all() : end(B);
      });
  if (const auto* refusal = std::get_if<engine::Refusal>(&forerun))
    throw std::runtime_error(refusal->message);
  if (const std::string failed = all_ended.get_future().get(); !failed.empty())
    throw std::runtime_error(failed);

  // The window's steps, each of which told every sequence something.
  size_t last = SIZE_MAX;
  for (const auto& its : told) {
    const auto full =
        std::find_if(its.begin(), its.end(), [&](const Told& t) { return t.tokens >= asked.tokens; });
    last = std::min(last, static_cast<size_t>(full - its.begin()));
  }
  TimePoint from = told[0][0].at, to = told[0][last].at;
  for (size_t b = 0; b < B; ++b) {
    FATHOM_EXPECT(last < told[b].size() && told[b][0].tokens == 1, "a step told a sequence nothing");
    from = std::max(from, told[b][0].at), to = std::max(to, told[b][last].at);
    seen.tokens += told[b][last].tokens - 1;
    seen.answers[b].resize(static_cast<size_t>(told[b][last].tokens));
  }
  for (const auto& its : told)
    FATHOM_EXPECT(last == 0 || from <= its[1].at, "the prompts were not computed in one step");
  seen.steps        = static_cast<int64_t>(last);
  seen.seconds      = seconds(from, to);
  seen.scheduling_s = ended.schedule_s - begun.schedule_s;
  seen.forward_s    = ended.forward_s - begun.forward_s;
  return seen;
}

std::map<std::string, Metric> metrics_of(const Decoded& seen, int64_t sequences) {
  return {{"token_ns", {seen.token_ns(), "lower"}},
          {"step_ns", {seen.step_ns(), "lower"}},
          {"tokens_per_step",
           {static_cast<double>(seen.tokens) / static_cast<double>(seen.steps * sequences), "higher"}},
          {"scheduling_share", {seen.scheduling_s / seen.seconds, "lower"}},
          {"forward_share", {seen.forward_s / seen.seconds, "higher"}}};
}

const model::Checkpoint& shaped_model(int64_t layers) {
  static std::map<int64_t, model::Checkpoint> opened;
  const auto found = opened.find(layers);
  return found != opened.end() ? found->second : opened.emplace(layers, open_shaped(layers)).first->second;
}

engine::EngineConfig shaped_engine(const Decoding& largest) {
  engine::EngineConfig config = engine::EngineConfig::on_gpu();
  config.max_sequences        = largest.sequences;
  config.max_context          = largest.prompt_tokens + largest.tokens + 4 * kBeyond;
  config.kv_tokens            = largest.sequences * (config.max_context + engine::kGpuPageSize);
  config.step_tokens          = largest.sequences * (largest.prompt_tokens + 1);
  config.prefix_cache         = false;
  config.gpu_memory           = 0.97;
  return config;
}

}  // namespace fathom::lab::decoding_session

#include "engine/gpu_runner.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "core/cpus.h"
#include "core/cuda.h"
#include "core/expect.h"
#include "engine/row_choice.h"
#include "kernels/token_choice.h"

namespace fathom::engine {
namespace {

using kernels::TokenRule;
using model::TokenId;
using Graphs = EngineConfig::Graphs;

// Prompts of so few rows are computed row by row, as decoding is, and so are drafts.
constexpr int64_t kSingleRows = 4;
// Of device memory: for graphs, modules, and the copies through which weights come.
constexpr int64_t kReserveBytes = int64_t{1} << 30;

GpuPassRules rules_of(const EngineConfig& c) {
  return {.single_rows = std::max(kSingleRows, c.draft_tokens + 1),
          .max_context = c.max_context,
          .round_rows  = c.graph_buckets,
          .tiles_only  = c.batch_invariant};
}
model::KvFormat kv_format_of(const EngineConfig& c) {
  return c.kv_dtype == EngineConfig::KvDtype::fp8 ? model::KvFormat::fp8 : model::KvFormat::bf16;
}
int64_t max_chosen_of(const EngineConfig& c) {
  return padded_rows(c.max_sequences + c.draft_sequences * c.draft_tokens);
}
int64_t max_rows_of(const EngineConfig& c) { return std::max(c.step_tokens, max_chosen_of(c)); }

// Of one pass, at most.
GpuPassShape largest_shape(const EngineConfig& c) {
  const int64_t rows = max_rows_of(c);
  return {.rows        = rows,
          .single_rows = rows,
          .tiles       = (c.batch_invariant ? rows : rows / kernels::kPromptRows) + 2 * c.max_sequences,
          .sequences   = std::max(c.max_sequences, max_chosen_of(c)),
          .columns     = std::max<int64_t>(1024, c.max_context) / kGpuPageSize + 1,
          .chosen      = max_chosen_of(c)};
}

int64_t input_bytes(const EngineConfig& c) { return GpuPassInput(largest_shape(c), nullptr).bytes; }

// What the GPU's choice knows nothing of.
bool host_chooses(const StepEntry& entry) {
  const Request& request      = entry.sequence->request;
  const SamplingParameters& p = request.sampling;
  const int64_t answered =
      entry.first + entry.rows - static_cast<int64_t>(entry.drafts.size()) - entry.sequence->prompt_tokens();
  return request.constraint || p.logprobs || p.repetition_penalty != 1 || p.presence_penalty != 0 ||
         p.frequency_penalty != 0 || !p.logit_bias.empty() ||
         (!request.stop_ids.empty() && answered < request.min_tokens);
}

TokenRule rule_of(const SamplingParameters& p, int64_t position, int32_t place) {
  return {.temperature = static_cast<float>(p.temperature),
          .top_p       = static_cast<float>(p.top_p),
          .min_p       = static_cast<float>(p.min_p),
          .top_k       = static_cast<int32_t>(std::min<int64_t>(p.top_k, INT32_MAX)),
          .seed        = p.seed,
          .position    = position,
          .place       = place};
}

Device& the_gpu() {
  Device* device = cuda_device();
  FATHOM_EXPECT(device, "gpu_can_run() says no");
  return *device;
}

}  // namespace

Status gpu_can_run(const model::Checkpoint& checkpoint) {
  if (!cuda_device()) return Error{"there is no GPU to run on: " + why_no_cuda_device()};
  cudaDeviceProp properties{};
  FATHOM_CUDA(cudaGetDeviceProperties(&properties, 0));
  if (properties.major != 9)
    return Error{
        fmt::format("the kernels are made for GPUs of compute capability 9.0 (H100, H200), and {} has "
                    "{}.{}: run on the CPU",
                    properties.name, properties.major, properties.minor)};
  return model::GpuWeights::check(checkpoint.config, checkpoint.weights);
}

int64_t gpu_page_bytes(const model::Config& model, const EngineConfig& config) {
  return model::GpuKvCache::page_bytes(model, kv_format_of(config));
}

int64_t gpu_kv_bytes(const model::Config& model, const EngineConfig& config) {
  size_t free = 0, total = 0;
  FATHOM_CUDA(cudaMemGetInfo(&free, &total));
  const double budget = static_cast<double>(total) * config.gpu_memory - static_cast<double>(total - free);
  return static_cast<int64_t>(budget) - model::GpuWeights::bytes(model) -
         model::GptOssGpu::bytes(model, max_rows_of(config), max_chosen_of(config)) - input_bytes(config) -
         kReserveBytes;
}

std::unique_ptr<ModelRunner> make_gpu_runner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                             const std::array<int64_t, kGroups>& pages) {
  return std::make_unique<GpuRunner>(checkpoint, config, pages);
}

GpuRunner::GpuRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                     const std::array<int64_t, kGroups>& pages)
    : model_config_(checkpoint.config),
      config_(config),
      rules_(rules_of(config)),
      max_rows_(max_rows_of(config)),
      max_chosen_(max_chosen_of(config)),
      device_(the_gpu()),
      threads_(config.threads > 0 ? config.threads : host_threads()),
      weights_(checkpoint.config, checkpoint.weights, device_, threads_, config.loading),
      model_(checkpoint.config, weights_, max_rows_, max_chosen_,
             config.batch_invariant ? kernels::SumOrder::one : kernels::SumOrder::by_rows, device_),
      kv_(checkpoint.config, pages[kFull], pages[kWindow], kv_format_of(config), device_),
      input_(device_, input_bytes(config)),
      chosen_(device_, max_chosen_),
      samplers_(static_cast<size_t>(threads_.threads()), Sampler(checkpoint.config.vocab_size)) {
  device_.set_words(chosen_.data(), chosen_.bytes(), 0);
  for (Flight& flight : flights_) {
    flight.input  = PinnedBuffer<std::byte>(device_, input_.size());
    flight.chosen = PinnedBuffer<int32_t>(device_, max_chosen_);
    FATHOM_CUDA(cudaEventCreate(&flight.begun));
    FATHOM_CUDA(cudaEventCreate(&flight.ended));
  }
  // The first pass of each number of rows loads kernels, which no capture may do, and the graphs are there
  // before the first request is.
  for (int64_t rows = 1; rows <= max_chosen_; rows = padded_rows(rows + 1)) {
    const StepPlan nobody;
    GpuPassShape shape = shape_of(nobody, {}, rules_, max_chosen_);
    shape.rows = shape.single_rows = shape.sequences = shape.chosen = rows;
    if (shape.tiles_only) shape.tiles = rows;
    const GpuPassInput input(shape, flights_[0].input.data());
    describe(nobody, {}, shape, input);
    std::fill_n(input.rules.data(), rows, rule_of({.temperature = 0}, 0, -1));
    device_.enqueue_to_device(input_.data(), flights_[0].input.data(), input.bytes);
    compute(shape, 0);
    device_.synchronize();
    if (config_.graphs == Graphs::none || !config_.graph_buckets) continue;
    replay(shape);
    device_.synchronize();
  }
}

GpuRunner::~GpuRunner() {
  (void)cudaStreamSynchronize(device_.stream());
  for (Flight& flight : flights_) {
    (void)cudaEventDestroy(flight.begun);
    (void)cudaEventDestroy(flight.ended);
  }
}

std::string GpuRunner::where() const {
  cudaDeviceProp properties{};
  FATHOM_CUDA(cudaGetDeviceProperties(&properties, 0));
  return properties.name;
}

bool GpuRunner::can_follow(const StepPlan& plan) const {
  if (in_flight_ == 0 || in_flight_ == flights_.size() || plan.rows() > max_rows_) return false;
  const Flight& last = flights_[(first_flight_ + in_flight_ - 1) % flights_.size()];
  return !last.on_host && last.error.empty();
}

void GpuRunner::launch(const StepPlan& plan) {
  FATHOM_EXPECT(in_flight_ < flights_.size() && !plan.empty(), "two steps at a time, and something in each");
  Flight& flight     = flights_[(first_flight_ + in_flight_++) % flights_.size()];
  flight.error       = {};
  flight.on_host     = false;
  flight.chosen_rows = 0;
  flight.place.assign(plan.entries.size(), -1);
  try {
    enqueue(plan, flight);
  } catch (const std::exception& error) {
    flight.error = error.what();
  }
}

void GpuRunner::enqueue(const StepPlan& plan, Flight& flight) {
  const cudaStream_t stream = device_.stream();
  FATHOM_CUDA(cudaEventRecord(flight.begun, stream));
  bool first = true;
  for (const auto& pass : passes_of(plan, rules_.single_rows, max_rows_)) {
    if (!first) FATHOM_CUDA(cudaStreamSynchronize(stream));  // its input has been read
    first                      = false;
    const int64_t first_chosen = flight.chosen_rows;
    const GpuPassShape shape   = shape_of(plan, pass, rules_, max_chosen_ - first_chosen);
    const GpuPassInput input(shape, flight.input.data());
    FATHOM_EXPECT(input.bytes <= input_.size(), "a step's input is larger than was planned for");
    describe(plan, pass, shape, input);
    fill_rules(plan, pass, shape, input, flight);
    device_.enqueue_to_device(input_.data(), flight.input.data(), input.bytes);
    if (config_.graphs != Graphs::none && !shape.has_prompts() && first_chosen == 0 &&
        shape.rows <= max_chosen_)
      replay(shape);
    else
      compute(shape, first_chosen);
  }
  FATHOM_CUDA(cudaMemcpyAsync(flight.chosen.data(), chosen_.data(),
                              static_cast<size_t>(flight.chosen_rows) * sizeof(int32_t),
                              cudaMemcpyDeviceToHost, stream));
  FATHOM_CUDA(cudaEventRecord(flight.ended, stream));
  latest_.clear();
  for (size_t e = 0; e < plan.entries.size(); ++e)
    if (flight.place[e] >= 0) latest_[plan.entries[e].sequence->id] = static_cast<int32_t>(flight.place[e]);
}

// How tokens are chosen, and which row's token was chosen by the step before.
void GpuRunner::fill_rules(const StepPlan& plan, const std::vector<GpuPiece>& pass, const GpuPassShape& shape,
                           const GpuPassInput& input, Flight& flight) const {
  int64_t row = 0, rule = 0;
  for (const GpuPiece& piece : pass) {
    const StepEntry& entry   = plan.entries[piece.entry];
    const Sequence& sequence = *entry.sequence;
    const int64_t end        = entry.first + piece.first + piece.rows;
    const int64_t own_end    = entry.first + entry.rows - static_cast<int64_t>(entry.drafts.size());
    row += piece.rows;
    if (std::min(end, own_end) > sequence.known()) {
      const auto found = latest_.find(sequence.id);
      FATHOM_EXPECT(found != latest_.end() && piece.rows >= 1 && end - 1 == sequence.known(),
                    "a row's token is not known, and no step in flight yields it");
      input.source(row - 1) = found->second;
    }
    if (piece.chosen == 0) continue;
    const bool host            = host_chooses(entry);
    flight.on_host             = flight.on_host || host;
    flight.place[piece.entry]  = flight.chosen_rows;
    const SamplingParameters p = host ? SamplingParameters{.temperature = 0} : sequence.request.sampling;
    for (int64_t c = 0; c < piece.chosen; ++c)
      input.rules(rule++) =
          rule_of(p, end - piece.chosen + c + 1, static_cast<int32_t>(flight.chosen_rows++));
  }
  for (; rule < shape.chosen; ++rule) input.rules(rule) = rule_of({.temperature = 0}, 0, -1);
}

void GpuRunner::compute(const GpuPassShape& shape, int64_t first_chosen) {
  model_.forward(device_input(shape).batch(shape, chosen_.view()), kv_, device_.stream());
  choose(shape, first_chosen);
}

void GpuRunner::choose(const GpuPassShape& shape, int64_t first_chosen) {
  if (shape.chosen == 0) return;
  const StreamRef stream   = device_.stream();
  const GpuPassInput input = device_input(shape);
  kernels::choose_tokens(model_.logits(input.chosen_rows, first_chosen, stream), input.rules, chosen_.view(),
                         stream);
}

// What compute(shape, 0) does, of a pass without prompts.
void GpuRunner::replay(const GpuPassShape& shape) {
  const StreamRef stream = device_.stream();
  if (config_.graphs == Graphs::whole) return replay({shape.rows, shape.columns}, [&] { compute(shape, 0); });
  const auto batch = device_input(shape).batch(shape, chosen_.view());
  replay({shape.rows, 0}, [&] { model_.enter(batch, kv_, stream); });
  for (size_t l = 0; l < model_config_.layers.size(); ++l) {
    model_.attend(l, batch, kv_, stream);
    replay({shape.rows, 0, l + 1}, [&] { model_.leave(l, batch, kv_, stream); });
  }
  choose(shape, 0);
}

void GpuRunner::replay(const GraphKey& key, const std::function<void()>& enqueue) {
  const StreamRef stream = device_.stream();
  auto graph             = graphs_.find(key);
  if (graph == graphs_.end()) graph = graphs_.emplace(key, CudaGraph(stream, enqueue)).first;
  graph->second.launch(stream);
}

std::vector<StepOutput> GpuRunner::collect(const StepPlan& plan) {
  FATHOM_EXPECT(in_flight_ > 0, "no step is in flight");
  Flight& flight = flights_[first_flight_];
  first_flight_  = (first_flight_ + 1) % flights_.size();
  --in_flight_;
  std::vector<StepOutput> outputs(plan.entries.size());
  try {
    if (!flight.error.empty()) throw SystemError(flight.error);
    FATHOM_CUDA(cudaEventSynchronize(flight.ended));
    float ms = 0;
    FATHOM_CUDA(cudaEventElapsedTime(&ms, flight.begun, flight.ended));
    forward_s_ += ms * 1e-3;
    for (size_t e = 0; e < outputs.size(); ++e) {
      const StepEntry& entry = plan.entries[e];
      if (!entry.sequence || flight.place[e] < 0 || (flight.on_host && host_chooses(entry))) continue;
      take_chosen(entry, std::span(flight.chosen.data() + flight.place[e], 1 + entry.drafts.size()),
                  outputs[e]);
    }
    if (flight.on_host) choose_on_host(plan, flight, outputs);
  } catch (const std::exception& error) {
    for (StepOutput& output : outputs) output = {.error = error.what()};
  }
  return outputs;
}

// Nothing follows a step of which the host chooses, so its logits are still there.
void GpuRunner::choose_on_host(const StepPlan& plan, const Flight& flight, std::vector<StepOutput>& outputs) {
  const auto start    = std::chrono::steady_clock::now();
  const int64_t vocab = model_config_.vocab_size;
  std::vector<RowsToChoose> asking;
  int64_t rows = 0;
  for (size_t e = 0; e < outputs.size(); ++e)
    if (const StepEntry& entry = plan.entries[e];
        entry.sequence && flight.place[e] >= 0 && host_chooses(entry)) {
      asking.push_back({.entry = &entry, .logits = model_.logits_of(flight.place[e]), .output = &outputs[e]});
      rows += 1 + static_cast<int64_t>(entry.drafts.size());
    }
  if (host_logits_.size() < rows * vocab) host_logits_ = Buffer<float>(rows * vocab);
  float* to = host_logits_.data();
  for (RowsToChoose& its : asking) {
    const int64_t size = (1 + static_cast<int64_t>(its.entry->drafts.size())) * vocab;
    device_.to_host(to, its.logits, size * static_cast<int64_t>(sizeof(float)));
    its.logits = to;
    to += size;
  }
  choose_from_rows(asking, vocab, threads_, samplers_);
  sample_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace fathom::engine

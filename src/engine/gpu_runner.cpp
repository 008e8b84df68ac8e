#include "engine/gpu_runner.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>

#include "core/cpus.h"
#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/device_guard.h"
#include "cuda/nvtx_range.h"
#include "engine/kv_format.h"
#include "engine/rejection_sampler.h"
#include "kernels/sampling/sample.h"

namespace fathom::engine {
namespace {

using kernels::SamplingRow;
using model::TokenId;
using CudaGraphMode = EngineConfig::CudaGraphMode;

// Prompts of at most this many tokens use the decode attention kernel, and so do drafts.
constexpr int64_t kMaxDecodeRows = 4;
// Device memory kept free for graphs, modules and the staging buffers of the weights.
constexpr int64_t kReserveBytes = int64_t{1} << 30;

GpuBatchOptions batch_options(const EngineConfig& c) {
  return {.max_decode_rows   = std::max(kMaxDecodeRows, c.draft_tokens + 1),
          .max_context       = c.max_context,
          .pad_rows          = c.graph_buckets,
          .decode_as_prefill = c.batch_invariant};
}
int64_t max_sampled_rows_of(const EngineConfig& c) {
  return padded_rows(c.max_sequences + c.draft_sequences * c.draft_tokens);
}
int64_t max_rows_of(const EngineConfig& c) { return std::max(c.step_tokens, max_sampled_rows_of(c)); }

// The largest batch of such an engine.
GpuBatchShape largest_shape(const EngineConfig& c) {
  const int64_t rows = max_rows_of(c);
  return {.rows        = rows,
          .decode_rows = rows,
          .tiles       = (c.batch_invariant ? rows : rows / kernels::kPrefillTileRows) + 2 * c.max_sequences,
          .sequences   = std::max(c.max_sequences, max_sampled_rows_of(c)),
          .pages_per_sequence = std::max<int64_t>(1024, c.max_context) / kGpuPageSize + 1,
          .sampled_rows       = max_sampled_rows_of(c)};
}

int64_t input_bytes(const EngineConfig& c) { return GpuInputBatch(largest_shape(c), nullptr).bytes; }

// Whether a request uses a feature that the GPU's sampling kernel lacks.
bool needs_host_sampling(const ScheduledSequence& scheduled) {
  const Request& request      = scheduled.sequence->request;
  const SamplingParameters& p = request.sampling;
  const int64_t answered = scheduled.first + scheduled.rows - static_cast<int64_t>(scheduled.drafts.size()) -
                           scheduled.sequence->num_prompt_tokens();
  return request.constraint || p.logprobs || p.repetition_penalty != 1 || p.presence_penalty != 0 ||
         p.frequency_penalty != 0 || !p.logit_bias.empty() ||
         (!request.stop_ids.empty() && answered < request.min_tokens);
}

SamplingRow sampling_row(const SamplingParameters& p, int64_t position, int32_t place) {
  return {.temperature = static_cast<float>(p.temperature),
          .top_p       = static_cast<float>(p.top_p),
          .min_p       = static_cast<float>(p.min_p),
          .top_k       = static_cast<int32_t>(std::min<int64_t>(p.top_k, INT32_MAX)),
          .seed        = p.seed,
          .position    = position,
          .place       = place};
}

void warn_of_capture(const std::string& why) {
  fmt::print(stderr,
             "warning: steps run without a CUDA graph, and slower, where it could not be captured: {}\n",
             why);
}

}  // namespace

Status gpu_can_run(const model::Checkpoint& checkpoint, DeviceId device) {
  if (!find_device(device)) return Error{"there is no GPU to run on: " + why_no_device(device)};
  cudaDeviceProp properties{};
  FATHOM_CUDA(cudaGetDeviceProperties(&properties, device.ordinal));
  if (properties.major != 9)
    return Error{
        fmt::format("the kernels are made for GPUs of compute capability 9.0 (H100, H200), and {} has "
                    "{}.{}: run on the CPU",
                    properties.name, properties.major, properties.minor)};
  return model::GpuWeights::check(checkpoint.config, checkpoint.weights);
}

int64_t gpu_page_bytes(const model::Config& model, const EngineConfig& config, model::Attention layer) {
  return model::GpuKvCache::page_bytes(model, layer, kv_format_of(config));
}

int64_t gpu_kv_bytes(const model::Config& model, const EngineConfig& config) {
  const DeviceGuard current(config.device);
  size_t free = 0, total = 0;
  FATHOM_CUDA(cudaMemGetInfo(&free, &total));
  const double budget = static_cast<double>(total) * config.gpu_memory - static_cast<double>(total - free);
  return static_cast<int64_t>(budget) - model::GpuWeights::bytes(model) -
         model::GptOssGpu::bytes(model, max_rows_of(config), max_sampled_rows_of(config)) -
         input_bytes(config) - kReserveBytes;
}

std::unique_ptr<ModelRunner> make_gpu_runner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                             const std::array<int64_t, kKvKinds>& pages) {
  const DeviceGuard current(config.device);
  return std::make_unique<GpuRunner>(checkpoint, config, pages);
}

GpuRunner::GpuRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                     const std::array<int64_t, kKvKinds>& pages)
    : model_config_(checkpoint.config),
      config_(config),
      options_(batch_options(config)),
      max_rows_(max_rows_of(config)),
      max_sampled_rows_(max_sampled_rows_of(config)),
      pages_(pages),
      device_(device(config.device)),
      threads_(config.threads > 0 ? config.threads : host_threads()),
      weights_(checkpoint.config, checkpoint.weights, device_, threads_, config.loading),
      model_(checkpoint.config, weights_, max_rows_, max_sampled_rows_,
             config.batch_invariant ? kernels::SumOrder::one : kernels::SumOrder::by_rows, device_,
             {.fused_experts           = config.fused_experts,
              .early_experts           = config.early_experts,
              .qkv_prefetch_eighths    = config.qkv_prefetch_eighths,
              .early_output_projection = config.early_output_projection}),
      kv_(checkpoint.config, pages[kFull], pages[kWindow], kv_format_of(config), device_),
      input_(device_, input_bytes(config)),
      sampled_(device_, max_sampled_rows_),
      graphs_(warn_of_capture),
      samplers_(static_cast<size_t>(threads_.threads()), Sampler(checkpoint.config.vocab_size)) {
  device_.set_words(sampled_.data(), sampled_.bytes(), 0);
  for (StepInFlight& in_flight : steps_in_flight_) {
    in_flight.input   = PinnedBuffer<std::byte>(device_, input_.size());
    in_flight.sampled = PinnedBuffer<int32_t>(device_, max_sampled_rows_);
  }
  // Runs and captures every bucket before the first request. The first run of a bucket loads kernels, which
  // is not allowed during capture.
  for (int64_t rows = 1; rows <= max_sampled_rows_; rows = padded_rows(rows + 1)) {
    const SchedulerOutput empty;
    GpuBatchShape shape = batch_shape(empty, {}, options_, max_sampled_rows_);
    shape.rows = shape.decode_rows = shape.sequences = shape.sampled_rows = rows;
    if (shape.decode_as_prefill) shape.tiles = rows;
    const GpuInputBatch input(shape, steps_in_flight_[0].input.data());
    fill_input_batch(empty, {}, shape, input);
    std::fill_n(input.sampling.data(), rows, sampling_row({.temperature = 0}, 0, -1));
    device_.enqueue_to_device(input_.data(), steps_in_flight_[0].input.data(), input.bytes);
    forward(shape, 0);
    device_.synchronize();
    if (config_.cudagraph_mode == CudaGraphMode::none || !config_.graph_buckets) continue;
    replay(shape);
    device_.synchronize();
  }
}

GpuRunner::~GpuRunner() { (void)cudaStreamSynchronize(device_.stream()); }

std::string GpuRunner::device_name() const {
  cudaDeviceProp properties{};
  FATHOM_CUDA(cudaGetDeviceProperties(&properties, device_.id().ordinal));
  return properties.name;
}

MemoryUse GpuRunner::memory() const {
  MemoryUse use{.weights   = model::GpuWeights::bytes(model_config_),
                .workspace = model::GptOssGpu::bytes(model_config_, max_rows_, max_sampled_rows_) +
                             input_.bytes() + sampled_.bytes()};
  for (const model::Attention kind : model_config_.layers)
    use.kv_cache += gpu_page_bytes(model_config_, config_, kind) *
                    pages_[kind == model::Attention::sliding ? kWindow : kFull];
  return use;
}

bool GpuRunner::can_overlap(const SchedulerOutput& step) const {
  if (num_in_flight_ == 0 || num_in_flight_ == steps_in_flight_.size() || step.rows() > max_rows_)
    return false;
  const StepInFlight& last =
      steps_in_flight_[(oldest_in_flight_ + num_in_flight_ - 1) % steps_in_flight_.size()];
  return !last.needs_host && last.error.empty();
}

void GpuRunner::execute_model(const SchedulerOutput& step) {
  FATHOM_EXPECT(num_in_flight_ < steps_in_flight_.size() && !step.empty(),
                "two steps at a time, and something in each");
  device_.make_current();  // for the engine's thread
  StepInFlight& in_flight =
      steps_in_flight_[(oldest_in_flight_ + num_in_flight_++) % steps_in_flight_.size()];
  in_flight.error        = {};
  in_flight.needs_host   = false;
  in_flight.sampled_rows = 0;
  in_flight.first_sampled.assign(step.sequences.size(), -1);
  try {
    enqueue(step, in_flight);
  } catch (const std::exception& error) {
    in_flight.error = error.what();
  }
}

void GpuRunner::enqueue(const SchedulerOutput& step, StepInFlight& in_flight) {
  const cudaStream_t stream = device_.stream();
  in_flight.start.record(stream);
  if (recorded_) recorded_->push_back({.launched = std::chrono::steady_clock::now()});
  bool first = true;
  for (const auto& batch : split_into_batches(step, options_.max_decode_rows, max_rows_)) {
    if (!first) FATHOM_CUDA(cudaStreamSynchronize(stream));  // the device has read the input
    first                       = false;
    const int64_t first_sampled = in_flight.sampled_rows;
    const GpuBatchShape shape   = batch_shape(step, batch, options_, max_sampled_rows_ - first_sampled);
    const GpuInputBatch input(shape, in_flight.input.data());
    FATHOM_EXPECT(input.bytes <= input_.size(), "a step's input is larger than was planned for");
    fill_input_batch(step, batch, shape, input);
    fill_sampling(step, batch, shape, input, in_flight);
    if (recorded_) add_costs(step, batch, shape, input, recorded_->back());
    device_.enqueue_to_device(input_.data(), in_flight.input.data(), input.bytes);
    if (config_.cudagraph_mode != CudaGraphMode::none && !shape.has_prefill() && first_sampled == 0 &&
        shape.rows <= max_sampled_rows_)
      replay(shape);
    else
      forward(shape, first_sampled);
  }
  FATHOM_CUDA(cudaMemcpyAsync(in_flight.sampled.data(), sampled_.data(),
                              static_cast<size_t>(in_flight.sampled_rows) * sizeof(int32_t),
                              cudaMemcpyDeviceToHost, stream));
  in_flight.end.record(stream);
  sampled_index_.clear();
  for (size_t e = 0; e < step.sequences.size(); ++e)
    if (in_flight.first_sampled[e] >= 0)
      sampled_index_[step.sequences[e].sequence->id] = static_cast<int32_t>(in_flight.first_sampled[e]);
}

// Fills the sampling parameters, and prev_sampled_index of rows whose token a step in flight samples.
void GpuRunner::fill_sampling(const SchedulerOutput& step, const std::vector<ScheduledChunk>& batch,
                              const GpuBatchShape& shape, const GpuInputBatch& input,
                              StepInFlight& in_flight) const {
  int64_t row = 0, rule = 0;
  for (const ScheduledChunk& chunk : batch) {
    const ScheduledSequence& scheduled = step.sequences[chunk.index];
    const Sequence& sequence           = *scheduled.sequence;
    const int64_t end                  = scheduled.first + chunk.first + chunk.rows;
    const int64_t own_end = scheduled.first + scheduled.rows - static_cast<int64_t>(scheduled.drafts.size());
    row += chunk.rows;
    if (std::min(end, own_end) > sequence.num_tokens()) {
      const auto found = sampled_index_.find(sequence.id);
      FATHOM_EXPECT(found != sampled_index_.end() && chunk.rows >= 1 && end - 1 == sequence.num_tokens(),
                    "a row's token is not known, and no step in flight yields it");
      input.prev_sampled_index(row - 1) = found->second;
    }
    if (chunk.sampled_rows == 0) continue;
    const bool host                      = needs_host_sampling(scheduled);
    in_flight.needs_host                 = in_flight.needs_host || host;
    in_flight.first_sampled[chunk.index] = in_flight.sampled_rows;
    const SamplingParameters p = host ? SamplingParameters{.temperature = 0} : sequence.request.sampling;
    for (int64_t c = 0; c < chunk.sampled_rows; ++c)
      input.sampling(rule++) =
          sampling_row(p, end - chunk.sampled_rows + c + 1, static_cast<int32_t>(in_flight.sampled_rows++));
  }
  for (; rule < shape.sampled_rows; ++rule) input.sampling(rule) = sampling_row({.temperature = 0}, 0, -1);
}

void GpuRunner::add_costs(const SchedulerOutput& step, const std::vector<ScheduledChunk>& batch,
                          const GpuBatchShape& shape, const GpuInputBatch& input, StepCosts& to) const {
  model::PassExtents extents{.rows          = shape.rows,
                             .logit_rows    = shape.sampled_rows,
                             .fixed_order   = config_.batch_invariant,
                             .fused_experts = config_.fused_experts};
  for (const ScheduledChunk& chunk : batch) {
    const ScheduledSequence& scheduled = step.sequences[chunk.index];
    const int64_t first                = scheduled.first + chunk.first;
    const bool decode = scheduled.rows <= options_.max_decode_rows && !shape.decode_as_prefill;
    (decode ? extents.decodes : extents.prompts).push_back({first, chunk.rows});
    to.prompts = to.prompts || first < scheduled.sequence->num_prompt_tokens();
  }
  for (int64_t r = 0; r < shape.sampled_rows; ++r) extents.random_rows += input.sampling(r).temperature > 0;
  model::add_costs(to.kernels, model::kernel_costs(model_config_, kv_format_of(config_), extents));
}

void GpuRunner::forward(const GpuBatchShape& shape, int64_t first_sampled) {
  model_.forward(device_input(shape).batch(shape, sampled_.view()), kv_, device_.stream());
  sample(shape, first_sampled);
}

void GpuRunner::sample(const GpuBatchShape& shape, int64_t first_sampled) {
  if (shape.sampled_rows == 0) return;
  const NvtxRange range("sample");
  const StreamRef stream    = device_.stream();
  const GpuInputBatch input = device_input(shape);
  kernels::sample_tokens(model_.logits(input.logits_rows, first_sampled, stream), input.sampling,
                         sampled_.view(), stream);
}

// The same as forward(shape, 0) for a batch without prefill, from CUDA graphs where they can be captured.
void GpuRunner::replay(const GpuBatchShape& shape) {
  const StreamRef stream = device_.stream();
  if (config_.cudagraph_mode == CudaGraphMode::full)
    return graphs_.run({shape.rows, shape.pages_per_sequence}, stream, [&] { forward(shape, 0); });
  const auto batch = device_input(shape).batch(shape, sampled_.view());
  graphs_.run({shape.rows, 0}, stream, [&] { model_.before_attention(batch, kv_, stream); });
  for (size_t l = 0; l < model_config_.layers.size(); ++l) {
    model_.attention(l, batch, kv_, stream);
    graphs_.run({shape.rows, 0, l + 1}, stream, [&] { model_.after_attention(l, batch, kv_, stream); });
  }
  sample(shape, 0);
}

std::vector<SequenceOutput> GpuRunner::get_output(const SchedulerOutput& step) {
  FATHOM_EXPECT(num_in_flight_ > 0, "no step is in flight");
  StepInFlight& in_flight = steps_in_flight_[oldest_in_flight_];
  oldest_in_flight_       = (oldest_in_flight_ + 1) % steps_in_flight_.size();
  --num_in_flight_;
  std::vector<SequenceOutput> outputs(step.sequences.size());
  try {
    if (!in_flight.error.empty()) throw SystemError(in_flight.error);
    in_flight.end.synchronize();
    forward_s_ += elapsed_ms(in_flight.start, in_flight.end) * 1e-3;
    for (size_t e = 0; e < outputs.size(); ++e) {
      const ScheduledSequence& scheduled = step.sequences[e];
      if (!scheduled.sequence || in_flight.first_sampled[e] < 0 ||
          (in_flight.needs_host && needs_host_sampling(scheduled)))
        continue;
      verify_sampled(
          scheduled,
          std::span(in_flight.sampled.data() + in_flight.first_sampled[e], 1 + scheduled.drafts.size()),
          outputs[e]);
    }
    if (in_flight.needs_host) sample_on_host(step, in_flight, outputs);
  } catch (const std::exception& error) {
    for (SequenceOutput& output : outputs) output = {.error = error.what()};
  }
  return outputs;
}

// No step overlaps a step with host sampling, so its logits are still in device memory.
void GpuRunner::sample_on_host(const SchedulerOutput& step, const StepInFlight& in_flight,
                               std::vector<SequenceOutput>& outputs) {
  const NvtxRange range("sample");
  const auto start    = std::chrono::steady_clock::now();
  const int64_t vocab = model_config_.vocab_size;
  std::vector<SequenceLogits> batch;
  int64_t rows = 0;
  for (size_t e = 0; e < outputs.size(); ++e)
    if (const ScheduledSequence& scheduled = step.sequences[e];
        scheduled.sequence && in_flight.first_sampled[e] >= 0 && needs_host_sampling(scheduled)) {
      batch.push_back({.scheduled = &scheduled,
                       .logits    = model_.logits_of(in_flight.first_sampled[e]),
                       .output    = &outputs[e]});
      rows += 1 + static_cast<int64_t>(scheduled.drafts.size());
    }
  if (host_logits_.size() < rows * vocab) host_logits_ = Buffer<float>(rows * vocab);
  float* to = host_logits_.data();
  for (SequenceLogits& sequence : batch) {
    const int64_t size = (1 + static_cast<int64_t>(sequence.scheduled->drafts.size())) * vocab;
    device_.to_host(to, sequence.logits, size * static_cast<int64_t>(sizeof(float)));
    sequence.logits = to;
    to += size;
  }
  sample_and_verify(batch, vocab, threads_, samplers_);
  sample_s_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace fathom::engine

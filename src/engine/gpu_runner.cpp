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
#include "cuda/device_name.h"
#include "cuda/nvtx_range.h"
#include "cuda/peer_access.h"
#include "engine/kv_format.h"
#include "engine/rejection_sampler.h"
#include "engine/resolve_config.h"
#include "kernels/sampling/sample.h"
#include "model/shard.h"

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

DeviceId device_of(const EngineConfig& c, int64_t rank) {
  return {c.device.ordinal + static_cast<int>(rank)};
}
std::vector<DeviceId> devices_of(const EngineConfig& c) {
  std::vector<DeviceId> devices;
  for (int64_t r = 0; r < c.tensor_parallel; ++r) devices.push_back(device_of(c, r));
  return devices;
}

int64_t workspace_bytes(const model::Config& part, const EngineConfig& c) {
  return model::GptOssGpu::bytes(part, max_rows_of(c), max_sampled_rows_of(c), c.tensor_parallel) +
         input_bytes(c);
}
int64_t weight_bytes(const model::Config& part, const EngineConfig& c) {
  return model::GpuWeights::bytes(part, shard_options(c), has_screening(part, c));
}
// Weights and workspace of a rank.
int64_t rank_bytes(const model::Config& part, const EngineConfig& c) {
  return weight_bytes(part, c) + workspace_bytes(part, c);
}

// Progress of loading all ranks, one after another.
std::function<void(int64_t, int64_t)> loading_of(const EngineConfig& c, int64_t rank) {
  if (!c.loading) return {};
  return
      [&c, rank](int64_t done, int64_t total) { c.loading(rank * total + done, c.tensor_parallel * total); };
}

SamplingRow sampling_row(const SamplingParameters& p, int64_t position, int32_t place) {
  constexpr double kLeast = 0x1p-60;  // kernels/sampling/sampling_row.h
  return {.temperature = p.temperature > kLeast ? static_cast<float>(p.temperature) : 0,
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

Status gpu_can_run(const model::Checkpoint& checkpoint, const EngineConfig& config) {
  if (config.tensor_parallel > kernels::kMaxRanks)
    return Error{fmt::format("--tensor-parallel-size {} is more than the {} GPUs that the kernels connect",
                             config.tensor_parallel, kernels::kMaxRanks)};
  const std::vector<DeviceId> devices = devices_of(config);
  for (size_t r = 0; r < devices.size(); ++r) {
    if (!find_device(devices[r])) {
      if (r == 0) return Error{"there is no GPU to run on: " + why_no_device(devices[r])};
      return Error{fmt::format("--tensor-parallel-size {} needs as many GPUs, from {} on: {}", devices.size(),
                               to_string(devices[0]), why_no_device(devices[r]))};
    }
    cudaDeviceProp properties{};
    FATHOM_CUDA(cudaGetDeviceProperties(&properties, devices[r].ordinal));
    if (properties.major != 9)
      return Error{
          fmt::format("the kernels are made for GPUs of compute capability 9.0 (H100, H200), and {} has "
                      "{}.{}: run on the CPU",
                      properties.name, properties.major, properties.minor)};
    const model::Config part =
        model::shard_config(checkpoint.config, shard_options(config), static_cast<int64_t>(r));
    if (const Status can = model::GpuWeights::check(part, checkpoint.weights); !can) return can;
  }
  return can_access_peers(devices);
}

int64_t gpu_page_bytes(const model::Config& model, const EngineConfig& config, model::Attention layer) {
  return model::GpuKvCache::page_bytes(model::shard_config(model, shard_options(config), 0), layer,
                                       kv_format_of(config));
}

int64_t gpu_kv_bytes(const model::Config& model, const EngineConfig& config) {
  int64_t least = INT64_MAX;
  for (int64_t r = 0; r < config.tensor_parallel; ++r) {
    const model::Config part = model::shard_config(model, shard_options(config), r);
    const DeviceGuard current(device_of(config, r));
    size_t free = 0, total = 0;
    FATHOM_CUDA(cudaMemGetInfo(&free, &total));
    const double budget = static_cast<double>(total) * config.gpu_memory - static_cast<double>(total - free);
    least = std::min(least, static_cast<int64_t>(budget) - rank_bytes(part, config) - kReserveBytes);
  }
  return least;
}

std::unique_ptr<ModelRunner> make_gpu_runner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                             const std::array<int64_t, kKvKinds>& pages) {
  const DeviceGuard current(config.device);
  enable_peer_access(devices_of(config));
  return std::make_unique<GpuRunner>(checkpoint, config, pages);
}

GpuRunner::Rank::Rank(const model::Checkpoint& checkpoint, const EngineConfig& c,
                      const std::array<int64_t, kKvKinds>& pages, int64_t rank, ThreadPool& threads)
    : rank(rank),
      config(model::shard_config(checkpoint.config, shard_options(c), rank)),
      device(fathom::device(device_of(c, rank))),
      weights(config, model::shard_of(checkpoint.config, checkpoint.weights, shard_options(c), rank).weights,
              device, threads, loading_of(c, rank), has_screening(config, c)),
      model(config, weights, max_rows_of(c), max_sampled_rows_of(c),
            c.batch_invariant ? kernels::SumOrder::one : kernels::SumOrder::by_rows, device,
            {.fused_experts = c.fused_experts, .early_output_projection = c.early_output_projection}, rank,
            c.tensor_parallel),
      kv(config, pages[kFull], pages[kWindow], kv_format_of(c), device),
      input(device, input_bytes(c)),
      graphs(warn_of_capture) {}

template <class F>
void GpuRunner::on_each_rank(F&& f) {
  for (const auto& rank : ranks_) {
    if (ranks_.size() > 1) rank->device.make_current();
    f(*rank);
  }
  if (ranks_.size() > 1) device_.make_current();
}

namespace {

// Makes them one after another, each on its GPU.
template <class Rank>
std::vector<std::unique_ptr<Rank>> make_ranks(const model::Checkpoint& checkpoint, const EngineConfig& config,
                                              const std::array<int64_t, kKvKinds>& pages,
                                              ThreadPool& threads) {
  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<model::GptOssGpu*> models;
  for (int64_t r = 0; r < config.tensor_parallel; ++r) {
    const DeviceGuard current(device_of(config, r));
    ranks.push_back(std::make_unique<Rank>(checkpoint, config, pages, r, threads));
    models.push_back(&ranks.back()->model);
  }
  model::GptOssGpu::join(models);
  return ranks;
}

}  // namespace

GpuRunner::GpuRunner(const model::Checkpoint& checkpoint, const EngineConfig& config,
                     const std::array<int64_t, kKvKinds>& pages)
    : model_config_(checkpoint.config),
      config_(config),
      options_(batch_options(config)),
      max_rows_(max_rows_of(config)),
      max_sampled_rows_(max_sampled_rows_of(config)),
      pages_(pages),
      threads_(config.threads > 0 ? config.threads : host_threads()),
      ranks_(make_ranks<Rank>(checkpoint, config, pages, threads_)),
      device_(ranks_[0]->device),
      sampled_(device_, max_sampled_rows_),
      samplers_(static_cast<size_t>(threads_.threads()), Sampler(checkpoint.config.vocab_size)) {
  device_.set_words(sampled_.data(), sampled_.bytes(), 0);
  std::vector<GpuKvCopy::Part> parts;
  for (const auto& rank : ranks_) parts.push_back({.device = &rank->device, .kv = &rank->kv});
  kv_copy_.emplace(parts, model_config_.layers, std::max(kv_block_bytes(kFull), kv_block_bytes(kWindow)));
  for (StepInFlight& in_flight : steps_in_flight_) {
    in_flight.input   = PinnedBuffer<std::byte>(device_, ranks_[0]->input.size());
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
    const bool graphs = config_.cudagraph_mode != CudaGraphMode::none && config_.graph_buckets;
    for (const bool captured : {false, true})
      for (const bool screened : {false, true}) {
        if ((captured && !graphs) || (screened && !ranks_[0]->model.can_screen(rows))) continue;
        send_input(steps_in_flight_[0], input);
        captured ? replay(shape, screened) : forward(shape, 0, screened);
        synchronize();
      }
  }
}

GpuRunner::~GpuRunner() {
  for (const auto& rank : ranks_) (void)cudaStreamSynchronize(rank->stream());
}

void GpuRunner::synchronize() const {
  for (const auto& rank : ranks_) FATHOM_CUDA(cudaStreamSynchronize(rank->stream()));
}

// To every rank, as a new pass.
void GpuRunner::send_input(StepInFlight& in_flight, const GpuInputBatch& input) {
  input.pass(0) = static_cast<int32_t>(++passes_);
  for (const auto& rank : ranks_)
    rank->device.enqueue_to_device(rank->input.data(), in_flight.input.data(), input.bytes);
}

std::string GpuRunner::device_name() const {
  cudaDeviceProp properties{};
  FATHOM_CUDA(cudaGetDeviceProperties(&properties, device_.id().ordinal));
  return ranks_.size() == 1 ? properties.name : fmt::format("{} x {}", ranks_.size(), properties.name);
}

MemoryUse GpuRunner::memory() const {
  MemoryUse use{.workspace = sampled_.bytes()};
  for (const auto& rank : ranks_) {
    use.weights += weight_bytes(rank->config, config_);
    use.workspace += workspace_bytes(rank->config, config_);
    for (const model::Attention kind : model_config_.layers)
      use.kv_cache += gpu_page_bytes(model_config_, config_, kind) *
                      pages_[kind == model::Attention::sliding ? kWindow : kFull];
  }
  return use;
}

int64_t GpuRunner::kv_block_bytes(KvKind kind) const {
  // Where ranks outnumber key-value heads, some hold copies, and a block would have heads twice.
  if (config_.tensor_parallel > model_config_.num_key_value_heads) return 0;
  int64_t bytes = 0;
  for (const model::Attention layer : model_config_.layers)
    if ((layer == model::Attention::sliding) == (kind == kWindow))
      bytes += config_.tensor_parallel * gpu_page_bytes(model_config_, config_, layer);
  return bytes;
}

std::shared_ptr<void> GpuRunner::pin_host_memory(std::span<std::byte> memory) {
  try {
    device_.pin(memory.data(), std::ssize(memory));
  } catch (const SystemError&) {
    (void)cudaGetLastError();  // or the next launch would report it
    return nullptr;
  }
  return {memory.data(), [device = &device_](void* pinned) {
            const DeviceGuard current(device->id());
            device->unpin(pinned);
          }};
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
  for (const auto& rank : ranks_)  // they read rank 0's tokens
    if (rank->rank > 0) sampled_event_.wait_on(rank->stream());
  bool first = true;
  for (const auto& batch : split_into_batches(step, options_.max_decode_rows, max_rows_)) {
    if (!first) synchronize();  // the devices have read the input
    first                       = false;
    const int64_t first_sampled = in_flight.sampled_rows;
    const GpuBatchShape shape   = batch_shape(step, batch, options_, max_sampled_rows_ - first_sampled);
    const GpuInputBatch input(shape, in_flight.input.data());
    FATHOM_EXPECT(input.bytes <= in_flight.input.size(), "a step's input is larger than was planned for");
    fill_input_batch(step, batch, shape, input);
    fill_sampling(step, batch, shape, input, in_flight);
    const bool screened = can_screen(shape, input, in_flight);
    if (recorded_) add_costs(step, batch, shape, input, screened, recorded_->back());
    send_input(in_flight, input);
    if (config_.cudagraph_mode != CudaGraphMode::none && !shape.has_prefill() && first_sampled == 0 &&
        shape.rows <= max_sampled_rows_)
      replay(shape, screened);
    else
      forward(shape, first_sampled, screened);
  }
  FATHOM_CUDA(cudaMemcpyAsync(in_flight.sampled.data(), sampled_.data(),
                              static_cast<size_t>(in_flight.sampled_rows) * sizeof(int32_t),
                              cudaMemcpyDeviceToHost, stream));
  in_flight.end.record(stream);
  sampled_event_.record(stream);
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
    const bool host                      = needs_raw_logits(scheduled);
    in_flight.needs_host                 = in_flight.needs_host || host;
    in_flight.first_sampled[chunk.index] = in_flight.sampled_rows;
    const SamplingParameters p = host ? SamplingParameters{.temperature = 0} : sequence.request.sampling;
    for (int64_t c = 0; c < chunk.sampled_rows; ++c)
      input.sampling(rule++) =
          sampling_row(p, end - chunk.sampled_rows + c + 1, static_cast<int32_t>(in_flight.sampled_rows++));
  }
  for (; rule < shape.sampled_rows; ++rule) input.sampling(rule) = sampling_row({.temperature = 0}, 0, -1);
}

// Rows that are sampled on the host have a rule for greedy rows, but need their logits.
bool GpuRunner::can_screen(const GpuBatchShape& shape, const GpuInputBatch& input,
                           const StepInFlight& in_flight) const {
  if (in_flight.needs_host || !ranks_[0]->model.can_screen(shape.sampled_rows)) return false;
  for (int64_t r = 0; r < shape.sampled_rows; ++r)
    if (!kernels::can_be_screened(input.sampling(r), model_config_.vocab_size)) return false;
  return true;
}

void GpuRunner::add_costs(const SchedulerOutput& step, const std::vector<ScheduledChunk>& batch,
                          const GpuBatchShape& shape, const GpuInputBatch& input, bool screened,
                          StepCosts& to) const {
  model::PassExtents extents{.rows          = shape.rows,
                             .logit_rows    = shape.sampled_rows,
                             .fixed_order   = config_.batch_invariant,
                             .ranks         = config_.tensor_parallel,
                             .fused_experts = config_.fused_experts,
                             .screened      = screened};
  for (const ScheduledChunk& chunk : batch) {
    const ScheduledSequence& scheduled = step.sequences[chunk.index];
    const int64_t first                = scheduled.first + chunk.first;
    const bool decode = is_decode(scheduled, options_.max_decode_rows) && !shape.decode_as_prefill;
    (decode ? extents.decodes : extents.prompts).push_back({first, chunk.rows});
    to.prompts = to.prompts || first < scheduled.sequence->num_prompt_tokens();
  }
  for (int64_t r = 0; r < shape.sampled_rows; ++r)
    extents.filtered_rows += !kernels::can_be_screened(input.sampling(r), model_config_.vocab_size);
  model::add_costs(to.kernels, model::kernel_costs(ranks_[0]->config, kv_format_of(config_), extents));
}

// All ranks in turn, up to each sum over them (model/gpt_oss_gpu.h).
void GpuRunner::forward(const GpuBatchShape& shape, int64_t first_sampled, bool screened) {
  on_each_rank([&](Rank& r) { r.model.before_attention(batch_on(r, shape), r.kv, r.stream()); });
  for (size_t l = 0; l < model_config_.layers.size(); ++l) {
    on_each_rank([&](Rank& r) {
      r.model.attention(l, batch_on(r, shape), r.kv, r.stream());
      r.model.project_out(l, batch_on(r, shape), r.stream());
    });
    on_each_rank([&](Rank& r) { r.model.mlp(l, batch_on(r, shape), r.stream()); });
    if (l + 1 == model_config_.layers.size()) break;
    on_each_rank([&](Rank& r) { r.model.project_qkv(l + 1, batch_on(r, shape), r.kv, r.stream()); });
  }
  sample(shape, first_sampled, screened);
}

// The logits end with a barrier of the ranks.
void GpuRunner::sample(const GpuBatchShape& shape, int64_t first_sampled, bool screened) {
  const NvtxRange range("sample");
  if (screened) return screened_tokens(*ranks_[0], shape, first_sampled);
  on_each_rank([&](Rank& r) { logits(r, shape, first_sampled); });
  sample_tokens(shape, first_sampled);
}

void GpuRunner::logits(Rank& r, const GpuBatchShape& shape, int64_t first_sampled) {
  if (shape.sampled_rows > 0)
    r.model.logits(batch_on(r, shape), r.input_batch(shape).logits_rows, first_sampled, r.stream());
}

void GpuRunner::screened_tokens(Rank& r, const GpuBatchShape& shape, int64_t first_sampled) {
  const GpuInputBatch input = r.input_batch(shape);
  r.model.screened_tokens(input.logits_rows, first_sampled, input.sampling, sampled_.view(), r.stream());
}

void GpuRunner::sample_tokens(const GpuBatchShape& shape, int64_t first_sampled) {
  if (shape.sampled_rows == 0) return;
  const Rank& r = *ranks_[0];
  const View<const float, 2> all(r.model.logits_of(first_sampled),
                                 {shape.sampled_rows, model_config_.vocab_size});
  kernels::sample_tokens(all, r.input_batch(shape).sampling, sampled_.view(), r.stream());
}

// The same as forward(shape, 0, screened) for a batch without prefill, from CUDA graphs where they can be
// captured. All ranks' are captured before one runs: a rank that runs waits for the others.
void GpuRunner::replay(const GpuBatchShape& shape, bool screened) {
  const auto run = [&](const GraphKey& key, const std::function<void(Rank&)>& enqueue) {
    on_each_rank([&](Rank& r) { r.graphs.prepare(key, r.stream(), [&] { enqueue(r); }); });
    on_each_rank([&](Rank& r) { r.graphs.run(key, r.stream(), [&] { enqueue(r); }); });
  };
  if (config_.cudagraph_mode == CudaGraphMode::full)
    return run({shape.rows, shape.pages_per_sequence, 0, screened}, [&](Rank& r) {
      r.model.forward(batch_on(r, shape), r.kv, r.stream());
      if (screened) return screened_tokens(r, shape, 0);
      logits(r, shape, 0);
      if (r.rank == 0) sample_tokens(shape, 0);
    });
  run({shape.rows, 0}, [&](Rank& r) { r.model.before_attention(batch_on(r, shape), r.kv, r.stream()); });
  for (size_t l = 0; l < model_config_.layers.size(); ++l) {
    on_each_rank([&](Rank& r) { r.model.attention(l, batch_on(r, shape), r.kv, r.stream()); });
    run({shape.rows, 0, l + 1},
        [&](Rank& r) { r.model.after_attention(l, batch_on(r, shape), r.kv, r.stream()); });
  }
  sample(shape, 0, screened);
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
          (in_flight.needs_host && needs_raw_logits(scheduled)))
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
        scheduled.sequence && in_flight.first_sampled[e] >= 0 && needs_raw_logits(scheduled)) {
      batch.push_back({.scheduled = &scheduled,
                       .logits    = ranks_[0]->model.logits_of(in_flight.first_sampled[e]),
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

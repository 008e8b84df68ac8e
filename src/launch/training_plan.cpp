#include "launch/training_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace fathom::launch {
namespace {

constexpr double kBf16 = 2, kFp32 = 4;

double real(int64_t n) { return static_cast<double>(n); }

int size_of(const std::vector<comm::MeshAxis>& mesh, std::string_view name) {
  for (const comm::MeshAxis& axis : mesh)
    if (axis.name == name) return axis.size;
  return 1;
}

// "layers (80) do not divide by pp (3)", or nothing.
Status divides(std::string_view what, int64_t n, std::string_view by_what, int64_t by) {
  if (n % by == 0) return Ok{};
  return Error{fmt::format("{} ({}) do not divide by {} ({}); choose a mesh or a batch that divides them",
                           what, n, by_what, by)};
}

Status check_axes(const TrainingRun& run) {
  for (const comm::MeshAxis& axis : run.mesh)
    if (axis.name != "pp" && axis.name != "dp" && axis.name != "tp")
      return Error{fmt::format("mesh {}: the axes of a dense model's training are pp, dp and tp, not {}",
                               comm::to_string(run.mesh), axis.name)};
  return Ok{};
}

Status check_divisible(const TrainingRun& run, int pp, int dp, int tp) {
  const ModelShape& m = run.model;
  const struct {
    std::string_view what;
    int64_t n;
    std::string_view by_what;
    int64_t by;
  } checks[] = {{"layers", m.layers, "pp", pp},
                {"attention heads", m.heads, "tp", tp},
                {"key-value heads", m.kv_heads, "tp", tp},
                {"intermediate units", m.intermediate, "tp", tp},
                {"vocabulary entries", m.vocabulary, "tp", tp},
                {"tokens of a sequence", run.sequence, "tp", tp},
                {"sequences of a step", run.global_batch, "dp x micro-batch", dp * run.micro_batch}};
  for (const auto& check : checks)
    if (const Status good = divides(check.what, check.n, check.by_what, check.by); !good) return good;
  return Ok{};
}

// Bytes that a layer keeps for the backward pass, for one token, on one of tp ranks: inputs and outputs of
// both norms, queries, keys, values, attention's output, gate, up and their product. Scores are computed
// again.
double activation_bytes(const ModelShape& m, int tp) {
  const int64_t numbers =
      4 * m.hidden + 2 * m.heads * m.head_size + 2 * m.kv_heads * m.head_size + 3 * m.intermediate;
  return kBf16 * real(numbers) / tp;
}

double stage_parameters(const ModelShape& m, int pp, int tp, int stage) {
  double sum            = real(m.layers) / pp * (m.layer_matrices() / tp + 2 * real(m.hidden));
  const double embedded = real(m.vocabulary * m.hidden) / tp;
  if (stage == 0) sum += embedded;
  if (stage == pp - 1) sum += embedded + real(m.hidden);
  return sum;
}

StageMemory stage_memory(const TrainingRun& run, int pp, int dp, int tp, int64_t micro_batches, int stage) {
  const double parameters = stage_parameters(run.model, pp, tp, stage);
  const double tokens     = real(run.sequence * run.micro_batch);
  const double in_flight  = real(std::min<int64_t>(pp - stage, micro_batches));
  StageMemory memory{
      .stage       = stage,
      .weights     = kBf16 * parameters,
      .gradients   = kFp32 * parameters,
      .optimizer   = 3 * kFp32 * parameters / dp,
      .activations = in_flight * tokens * real(run.model.layers) / pp * activation_bytes(run.model, tp)};
  // Logits in bf16, and in fp32 for the loss.
  if (stage == pp - 1) memory.activations += tokens * real(run.model.vocabulary) / tp * (kBf16 + kFp32);
  return memory;
}

bool within_domains(int ranks, int size, int stride, int domain) {
  for (int rank = 0; rank < ranks; ++rank) {
    const int first = rank - rank / stride % size * stride;  // of its group
    if (first / domain != (first + (size - 1) * stride) / domain) return false;
  }
  return true;
}

std::string gb(double bytes) { return fmt::format("{:.1f} GB", bytes * 1e-9); }

}  // namespace

double ModelShape::layer_matrices() const {
  return real(hidden * head_size * (2 * heads + 2 * kv_heads)) + 3 * real(hidden * intermediate);
}

double ModelShape::parameters() const {
  return real(layers) * (layer_matrices() + 2 * real(hidden)) + 2 * real(vocabulary * hidden) + real(hidden);
}

const std::vector<ModelShape>& model_shapes() {
  static const std::vector<ModelShape> shapes{{"llama-3-8b", 32, 4096, 32, 8, 128, 14'336, 128'256},
                                              {"llama-3-70b", 80, 8192, 64, 8, 128, 28'672, 128'256},
                                              {"llama-3-405b", 126, 16'384, 128, 8, 128, 53'248, 128'256}};
  return shapes;
}

Result<ModelShape> find_model_shape(std::string_view name) {
  std::vector<std::string> names;
  for (const ModelShape& shape : model_shapes()) {
    if (shape.name == name) return shape;
    names.push_back(shape.name);
  }
  return Error{fmt::format("no model shape is called '{}'; there are {}", name, fmt::join(names, ", "))};
}

int TrainingPlan::coordinate(int rank, size_t axis) const {
  return rank / axes[axis].stride % axes[axis].size;
}

Result<TrainingPlan> plan_training(const TrainingRun& run) {
  if (const Status good = check_axes(run); !good) return good.error();
  const int pp = size_of(run.mesh, "pp"), dp = size_of(run.mesh, "dp"), tp = size_of(run.mesh, "tp");
  if (const Status good = check_divisible(run, pp, dp, tp); !good) return good.error();
  const ModelShape& m = run.model;
  if (const int64_t ranks = int64_t{pp} * dp * tp; ranks > kMostPlannedRanks)
    return Error{fmt::format("pp x dp x tp is {} ranks: a plan is for at most {}", ranks, kMostPlannedRanks)};
  TrainingPlan plan{.ranks = pp * dp * tp, .micro_batches = run.global_batch / (dp * run.micro_batch)};
  plan.bubble = (pp - 1) / (real(plan.micro_batches) + pp - 1);

  const double tokens_of_step = real(run.global_batch * run.sequence);
  // Forward and backward of every matrix but the input embedding, and of causal attention.
  plan.flops = tokens_of_step / plan.ranks *
               (6 * (m.parameters() - real(m.vocabulary * m.hidden)) +
                6 * real(m.layers * m.heads * m.head_size * run.sequence));

  // Hidden states of a micro-batch.
  const double states = kBf16 * real(run.sequence * run.micro_batch * m.hidden),
               passes = real(plan.micro_batches);
  int stride          = plan.ranks;
  for (const comm::MeshAxis& axis : run.mesh) {
    stride /= axis.size;
    AxisPlan of{.name   = axis.name,
                .size   = axis.size,
                .stride = stride,
                .nvlink = within_domains(plan.ranks, axis.size, stride, run.domain)};
    const double others =
        real(axis.size - 1) / axis.size;  // of an all-gather or reduce-scatter, what a rank sends
    if (axis.name == "tp") {
      of.carries    = "8 all-gathers or reduce-scatters of hidden states, a layer and micro-batch";
      of.sent_bytes = 8 * others * states * passes * real(m.layers) / pp;
    } else if (axis.name == "dp") {
      of.carries    = "a reduce-scatter of gradients, an all-gather of weights";
      of.sent_bytes = others * (kFp32 + kBf16) *
                      std::max(stage_parameters(m, pp, tp, 0), stage_parameters(m, pp, tp, pp - 1));
    } else {
      of.carries = "hidden states and their gradients, to the next stage and back";
      of.sent_bytes =
          std::min(2, axis.size - 1) * states / tp * passes;  // a stage in the middle sends both ways
    }
    plan.axes.push_back(of);
    if (axis.name == "tp" && !of.nvlink)
      return Error{
          fmt::format("mesh {}: tp{} crosses NVLink domains of {} GPUs, and sends most; write it last, "
                      "and at most as large as a domain",
                      comm::to_string(run.mesh), tp, run.domain)};
  }
  plan.stages.push_back(stage_memory(run, pp, dp, tp, plan.micro_batches, 0));
  if (pp > 1) plan.stages.push_back(stage_memory(run, pp, dp, tp, plan.micro_batches, pp - 1));
  for (const StageMemory& stage : plan.stages)
    if (stage.total() > run.gpu_bytes)
      return Error{
          fmt::format("{} on {}: a rank of stage {} needs {} ({} weights, {} gradients, {} optimizer, {} "
                      "activations), its GPU has {}; use more of tp or pp, or shorter sequences",
                      m.name, comm::to_string(run.mesh), stage.stage, gb(stage.total()), gb(stage.weights),
                      gb(stage.gradients), gb(stage.optimizer), gb(stage.activations), gb(run.gpu_bytes))};
  return plan;
}

}  // namespace fathom::launch

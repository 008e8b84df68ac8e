// The plan of a training run of a dense transformer on GPUs of which each `domain` share NVLink: which ranks
// work together and over which link, what each holds, what it sends in a step. Modelled from shapes alone,
// never measured.
//
// Tensor parallel with sequence parallel activations, selective recomputation of attention (Korthikanti et
// al., 2022, arXiv 2205.05198) and one-forward-one-backward pipelines (Narayanan et al., 2021, arXiv
// 2104.04473). Weights and activations in bf16, gradients, master weights and AdamW's moments in fp32, the
// last three of them in shards over dp (ZeRO stage 1: Rajbhandari et al., 2020, arXiv 1910.02054).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "comm/device_mesh.h"
#include "core/result.h"

namespace fathom::launch {

// Grouped-query attention, SwiGLU, input and output embeddings apart, no biases.
struct ModelShape {
  std::string name;
  int64_t layers, hidden, heads, kv_heads, head_size, intermediate, vocabulary;

  double layer_matrices() const;  // parameters of a layer in its matrices
  double parameters() const;
};
const std::vector<ModelShape>& model_shapes();
Result<ModelShape> find_model_shape(std::string_view name);

struct TrainingRun {
  ModelShape model;
  std::vector<comm::MeshAxis> mesh;  // of pp, dp and tp; the last one's ranks are neighbours
  int domain           = 8;          // consecutive ranks whose GPUs share NVLink
  int64_t sequence     = 4096;       // tokens
  int64_t micro_batch  = 1;          // sequences
  int64_t global_batch = 64;         // sequences of a step, all ranks together
  double gpu_bytes     = 80e9;
};

struct AxisPlan {
  std::string name;
  int size    = 1;
  int stride  = 1;      // between the ranks of a group
  bool nvlink = false;  // every group lies within a domain
  std::string carries;
  double sent_bytes = 0;  // by the rank that sends most, in a step
};

// Bytes of a rank.
struct StageMemory {
  int stage      = 0;  // of the pipeline
  double weights = 0, gradients = 0, optimizer = 0, activations = 0;
  double total() const { return weights + gradients + optimizer + activations; }
};

inline constexpr int kMostPlannedRanks = 4096;

struct TrainingPlan {
  int ranks = 1;
  std::vector<AxisPlan> axes;       // in the order of the mesh
  std::vector<StageMemory> stages;  // the first and the last, where they differ
  int64_t micro_batches = 1;        // of a pipeline in a step
  double bubble         = 0;        // of a stage's time, idle
  double flops          = 0;        // of a rank in a step

  int coordinate(int rank, size_t axis) const;
};

// An error where something does not divide, where tensor parallel ranks would talk over the network, or where
// a rank's part does not fit its GPU.
Result<TrainingPlan> plan_training(const TrainingRun& run);

}  // namespace fathom::launch

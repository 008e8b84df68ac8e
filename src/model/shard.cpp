#include "model/shard.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <variant>
#include <vector>

#include "core/expect.h"
#include "core/int8_group.h"
#include "core/mxfp4_nvfp4.h"

namespace fathom::model {
namespace {

struct Range {
  int64_t first = 0, count = 0;
};

// Piece `i` of `pieces` of 0 .. n, which need not divide.
Range piece(int64_t n, int64_t pieces, int64_t i) {
  const int64_t first = n * i / pieces;
  return {first, n * (i + 1) / pieces - first};
}

Range layers_of_stage(const Config& config, const ShardOptions& options, int64_t rank) {
  return piece(config.num_hidden_layers, options.stages, options.stage_of(rank));
}

template <class T>
std::vector<T> slice(const std::vector<T>& all, Range range) {
  return {all.begin() + range.first, all.begin() + range.first + range.count};
}

template <class T, int Rank>
View<const T, Rank> slice(const View<const T, Rank>& all, int dimension, Range range) {
  int64_t extents[Rank], strides[Rank];
  for (int d = 0; d < Rank; ++d) extents[d] = all.extent(d), strides[d] = all.stride(d);
  extents[dimension] = range.count;
  return {all.data() + range.first * strides[dimension], extents, strides};
}

// Columns of an int8 matrix come in whole groups.
DenseMatrix slice(const DenseMatrix& all, int dimension, Range range) {
  if (const auto* plain = std::get_if<View<const bf16, 2>>(&all)) return slice(*plain, dimension, range);
  const auto& packed  = std::get<kernels::Int8Weights>(all);
  const int64_t group = dimension == 0 ? 1 : kInt8Group;
  return kernels::Int8Weights{
      .values = slice(packed.values, dimension, range),
      .scales = slice(packed.scales, dimension, {range.first / group, range.count / group})};
}

// Columns (dimension 2) of MXFP4 matrices come in whole blocks.
ExpertMatrices slice(const ExpertMatrices& all, int dimension, Range range) {
  if (const auto* plain = std::get_if<View<const bf16, 3>>(&all)) return slice(*plain, dimension, range);
  const auto& packed  = std::get<Mxfp4Matrices>(all);
  const int64_t block = dimension == 2 ? kMxfp4Block : 1;
  range               = {range.first / block, range.count / block};
  return Mxfp4Matrices{.blocks = slice(packed.blocks, dimension, range),
                       .scales = slice(packed.scales, dimension, range)};
}

// Of the experts' intermediate columns; `rank` is that within the stage.
Range columns_of_rank(const Config& config, const ShardOptions& options, int64_t rank) {
  const Range blocks = piece(config.intermediate_size / kMxfp4Block, options.ranks, rank);
  return {blocks.first * kMxfp4Block, blocks.count * kMxfp4Block};
}

}  // namespace

Status can_shard(const Config& config, const ShardOptions& options) {
  const int64_t N = options.ranks;
  if (options.stages > config.num_hidden_layers)
    return Error{
        fmt::format("--pipeline-parallel-size {} needs a layer for each stage, and the model has {}: give at "
                    "most {}",
                    options.stages, config.num_hidden_layers, config.num_hidden_layers)};
  if (N == 1) {
    if (options.expert_parallel)
      return Error{
          "--enable-expert-parallel deals experts to ranks, and there is one: give "
          "--tensor-parallel-size too"};
    return Ok{};
  }
  const auto divides = [&](int64_t n, const char* what) -> Status {
    if (n % N == 0) return Ok{};
    return Error{fmt::format("--tensor-parallel-size {} does not divide the model's {} {}: give a divisor", N,
                             n, what)};
  };
  const int64_t heads = config.num_attention_heads, kv_heads = config.num_key_value_heads;
  if (const Status good = divides(heads, "attention heads"); !good) return good;
  if (kv_heads % N != 0 && N % kv_heads != 0)
    return Error{
        fmt::format("--tensor-parallel-size {} neither divides the model's {} key-value heads nor is "
                    "a multiple of them",
                    N, kv_heads)};
  if (const Status good = divides(config.vocab_size, "tokens of vocabulary"); !good) return good;
  if (const int64_t columns = heads / N * config.head_dim; config.int8_dense && columns % kInt8Group != 0)
    return Error{
        fmt::format("--tensor-parallel-size {} gives a rank {} columns of the output projection, and "
                    "in int8 they come in groups of {}: give fewer ranks",
                    N, columns, kInt8Group)};
  if (options.expert_parallel) return divides(config.num_local_experts, "experts (--enable-expert-parallel)");
  const int64_t blocks = config.intermediate_size / kMxfp4Block;
  if (config.intermediate_size % kMxfp4Block != 0 || blocks < N)
    return Error{
        fmt::format("--tensor-parallel-size {} needs experts of at least {} x {} columns in blocks of "
                    "{}, and the model's have {}: give fewer ranks, or --enable-expert-parallel",
                    N, N, kMxfp4Block, kMxfp4Block, config.intermediate_size)};
  return Ok{};
}

Config shard_config(const Config& config, const ShardOptions& options, int64_t rank) {
  FATHOM_EXPECT(can_shard(config, options) && rank >= 0 && rank < options.all_ranks(),
                "a model is cut into parts that can_shard() accepts, one for each rank");
  const Range layers       = layers_of_stage(config, options, rank);
  Config part              = config;
  part.num_hidden_layers   = layers.count;
  part.layers              = slice(config.layers, layers);
  part.num_attention_heads = config.num_attention_heads / options.ranks;
  part.num_key_value_heads = std::max<int64_t>(config.num_key_value_heads / options.ranks, 1);
  if (!options.expert_parallel && options.ranks > 1)
    part.intermediate_size = columns_of_rank(config, options, rank % options.ranks).count;
  return part;
}

Shard shard_of(const Config& config, const Weights& weights, const ShardOptions& options, int64_t rank) {
  Shard shard{.config = shard_config(config, options, rank), .weights = weights};
  shard.weights.layers = slice(weights.layers, layers_of_stage(config, options, rank));
  if (options.ranks == 1) return shard;
  rank %= options.ranks;
  const int64_t Dh = config.head_dim, group = config.num_attention_heads / config.num_key_value_heads;
  const Range heads    = piece(config.num_attention_heads, options.ranks, rank);
  const Range kv_heads = {heads.first / group, std::max<int64_t>(heads.count / group, 1)};
  const Range q = {heads.first * Dh, heads.count * Dh}, kv = {kv_heads.first * Dh, kv_heads.count * Dh};
  const Range columns = columns_of_rank(config, options, rank);
  const Range experts = piece(config.num_local_experts, options.ranks, rank);

  const bool cut_experts = options.expert_parallel && !options.movable_experts;
  if (cut_experts) shard.weights.first_expert = experts.first;
  shard.weights.unembedding = slice(weights.unembedding, 0, piece(config.vocab_size, options.ranks, rank));

  const int64_t biases = config.num_local_experts * config.hidden_size;
  const std::shared_ptr<bf16[]> zeros(new bf16[static_cast<size_t>(biases)]());
  const View<const bf16, 2> no_bias(zeros.get(), {config.num_local_experts, config.hidden_size});
  shard.weights.converted.push_back(zeros);
  for (LayerWeights& w : shard.weights.layers) {
    w.q      = slice(w.q, 0, q);
    w.q_bias = slice(w.q_bias, 0, q);
    w.k      = slice(w.k, 0, kv);
    w.k_bias = slice(w.k_bias, 0, kv);
    w.v      = slice(w.v, 0, kv);
    w.v_bias = slice(w.v_bias, 0, kv);
    w.sinks  = slice(w.sinks, 0, heads);
    w.out    = slice(w.out, 1, q);
    if (rank > 0) w.out_bias = {};  // it is in the sum once
    if (cut_experts) {
      w.mlp1      = slice(w.mlp1, 0, experts);
      w.mlp1_bias = slice(w.mlp1_bias, 0, experts);
      w.mlp2      = slice(w.mlp2, 0, experts);
      w.mlp2_bias = slice(w.mlp2_bias, 0, experts);
    } else if (!options.expert_parallel) {
      // Gate and up rows are interleaved, so a part's rows lie together.
      const Range rows{2 * columns.first, 2 * columns.count};
      w.mlp1      = slice(w.mlp1, 1, rows);
      w.mlp1_bias = slice(w.mlp1_bias, 1, rows);
      w.mlp2      = slice(w.mlp2, 2, columns);
      if (rank > 0) w.mlp2_bias = no_bias;
    }
  }
  return shard;
}

}  // namespace fathom::model

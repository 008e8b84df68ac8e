#include "model/gpu_weights.h"

#include <cuda_runtime.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <utility>

#include "core/expect.h"
#include "cuda/check.h"
#include "cuda/event.h"
#include "kernels/gemm/pack_weights.h"
#include "kernels/moe/experts_gemv.h"
#include "kernels/moe/pack_experts.h"
#include "kernels/sampling/sample.h"

namespace fathom::model {
namespace {

using kernels::kHeadDim;
using kernels::kTile;
using kernels::PackedExperts;
using kernels::PackedMatrix;
using kernels::padded;
using kernels::RowOrder;

// Bytes of the checkpoint: rows at equal distances, in blocks at equal distances. A rank's part of a matrix
// is not contiguous (model/shard.h).
struct Piece {
  const std::byte* data;
  int64_t blocks, block_stride, rows, row_stride, row_bytes;

  int64_t bytes() const { return blocks * rows * row_bytes; }
  // Bytes begin .. end, without what lies between rows.
  void copy(std::byte* to, int64_t begin, int64_t end) const {
    while (begin < end) {
      const int64_t row = begin / row_bytes, in_row = begin % row_bytes;
      const int64_t count   = std::min(row_bytes - in_row, end - begin);
      const std::byte* from = data + row / rows * block_stride + row % rows * row_stride + in_row;
      std::memcpy(to, from, static_cast<size_t>(count));
      to += count;
      begin += count;
    }
  }
};

// Dimensions 0 and 1 of three or more are blocks and rows; of two, 0 is the rows.
template <class T, int Rank>
Piece piece_of(const View<const T, Rank>& view) {
  constexpr int kRows = Rank > 2 ? 1 : 0;
  int64_t numbers     = 1;
  for (int d = Rank - 1; d > kRows; --d) {
    FATHOM_EXPECT(view.stride(d) == numbers, "a row of weights is contiguous in the file");
    numbers *= view.extent(d);
  }
  constexpr auto kBytes = static_cast<int64_t>(sizeof(T));
  Piece piece{.data         = reinterpret_cast<const std::byte*>(view.data()),
              .blocks       = Rank > 2 ? view.extent(0) : 1,
              .block_stride = view.stride(0) * kBytes,
              .rows         = view.extent(kRows),
              .row_stride   = view.stride(kRows) * kBytes,
              .row_bytes    = numbers * kBytes};
  if (piece.row_stride == piece.row_bytes) piece.row_bytes *= std::exchange(piece.rows, 1);
  if (piece.rows == 1 && piece.block_stride == piece.row_bytes)
    piece.row_bytes *= std::exchange(piece.blocks, 1);
  return piece;
}

// GpuWeights::check() refuses the others.
View<const bf16, 2> plain(const DenseMatrix& matrix) { return std::get<View<const bf16, 2>>(matrix); }

int64_t qkv_rows(const Config& c) { return (c.num_attention_heads + 2 * c.num_key_value_heads) * kHeadDim; }

int64_t matrix_bytes(int64_t rows, int64_t depth) {
  return PackedMatrix{.rows = padded(rows), .depth = padded(depth)}.bytes() + padded(rows) * 4;
}

int64_t expert_bytes(int64_t experts, int64_t rows, int64_t depth) {
  const PackedExperts w{.experts = experts, .rows = padded(rows), .depth = padded(depth)};
  return experts * (w.tiles_of_one() * (PackedExperts::kTileBytes + PackedExperts::kScaleBytes) + w.rows * 4);
}

// The largest E8M0 code among the scales [E, rows, groups] of all experts of a layer.
int largest_code(View<const uint8_t, 3> scales, ThreadPool& threads) {
  std::vector<uint8_t> largest(static_cast<size_t>(threads.threads()), 0);
  const int64_t rows = scales.extent(1), all = scales.extent(0) * rows;
  const int64_t share = (all + threads.threads() - 1) / threads.threads();
  threads.run([&](int worker) {
    uint8_t most = 0;
    for (int64_t r = worker * share; r < std::min(all, (worker + 1) * share); ++r)
      for (int64_t g = 0; g < scales.extent(2); ++g) most = std::max(most, scales(r / rows, r % rows, g));
    largest[static_cast<size_t>(worker)] = most;
  });
  return *std::max_element(largest.begin(), largest.end());
}

}  // namespace

// A pipeline from the file to packed weights: all threads copy a piece to page-locked memory, a DMA copies it
// to the device, and a kernel packs it, each while the others work on other pieces.
class GpuWeights::Upload {
 public:
  static constexpr int64_t kPieceBytes = int64_t{64} << 20;

  Upload(Device& device, ThreadPool& threads, int64_t total,
         const std::function<void(int64_t, int64_t)>& progress)
      : device_(device), threads_(threads), total_(total), progress_(progress) {
    for (Slot& slot : slots_) {
      slot.pinned = PinnedBuffer<std::byte>(device, kPieceBytes);
      slot.copy   = DeviceBuffer<std::byte>(device, kPieceBytes);
    }
  }
  ~Upload() { (void)cudaStreamSynchronize(device_.stream()); }

  Device& device() const { return device_; }
  ThreadPool& threads() const { return threads_; }
  StreamRef stream() const { return device_.stream(); }

  // Sends the parts of a piece, at most kPieceBytes in all, each aligned to 256 bytes. `use` gets their
  // addresses on the device and enqueues the kernels that read them.
  template <class F>
  void send(std::initializer_list<Piece> parts, F&& use) {
    Slot& slot = slots_[next_++ % slots_.size()];
    slot.free.synchronize();
    std::array<std::byte*, 2> places{};
    FATHOM_EXPECT(parts.size() <= places.size(), "a piece has at most two parts");
    int64_t end = 0;
    size_t p    = 0;
    for (const Piece& part : parts) {
      const int64_t size = part.bytes();
      std::byte* pinned  = slot.pinned.data() + end;
      FATHOM_EXPECT(end + size <= kPieceBytes, "a piece of weights is too large");
      threads_.parallel_for(size, 1 << 16,
                            [&](int64_t begin, int64_t until) { part.copy(pinned + begin, begin, until); });
      places[p++] = slot.copy.data() + end;
      end += (size + 255) / 256 * 256;
      sent_ += size;
    }
    device_.enqueue_to_device(slot.copy.data(), slot.pinned.data(), std::min(end, kPieceBytes));
    use(places);
    slot.free.record(stream());
    if (progress_) progress_(sent_, total_);
  }

  // Packs a matrix of the checkpoint into `to`, from packed row `first_row` on, in pieces of whole tiles.
  void pack(View<const bf16, 2> w, RowOrder order, int64_t row_head_dim, int64_t column_head_dim,
            int64_t first_row, const PackedMatrix& to, bf16* tiles) {
    const int64_t columns = w.extent(1);
    // The rows of a packed tile come from 64 consecutive rows, or from one head.
    const int64_t unit = order == RowOrder::rotary_pairs ? row_head_dim : kTile;
    const int64_t rows = std::max<int64_t>(1, kPieceBytes / (columns * 2) / unit) * unit;
    for (int64_t row = 0; row < w.extent(0); row += rows) {
      const int64_t count = std::min(rows, w.extent(0) - row);
      const View<const bf16, 2> part(&w(row, 0), {count, columns}, {w.stride(0), w.stride(1)});
      send({piece_of(part)}, [&](const auto& at) {
        const int64_t packed_row = first_row + row / unit * kTile;
        bf16* to_tiles           = tiles + packed_row / kTile * (to.depth / kTile) * (kTile * kTile);
        kernels::pack_matrix(View<const bf16, 2>(reinterpret_cast<bf16*>(at[0]), {count, columns}), order,
                             row_head_dim, column_head_dim, to_tiles, stream());
      });
    }
  }

  void bias(View<const bf16, 2> bias, RowOrder order, int64_t head_dim, int64_t padded_rows, float* to) {
    send({piece_of(bias)}, [&](const auto& at) {
      kernels::pack_bias(
          View<const bf16, 2>(reinterpret_cast<bf16*>(at[0]), {bias.extent(0), bias.extent(1)}), order,
          head_dim, padded_rows, to, stream());
    });
  }

 private:
  struct Slot {
    PinnedBuffer<std::byte> pinned;
    DeviceBuffer<std::byte> copy;
    Event free{Event::Timing::off};  // recorded behind the reads of `copy`
  };

  Device& device_;
  ThreadPool& threads_;
  const int64_t total_;
  const std::function<void(int64_t, int64_t)>& progress_;
  std::array<Slot, 3> slots_;
  size_t next_  = 0;
  int64_t sent_ = 0;
};

Status GpuWeights::check(const Config& c, const Weights& weights) {
  const auto no = [](std::string what) {
    return Error{"the GPU's kernels can't run this model: " + std::move(what)};
  };
  if (c.int8_dense)
    return no(
        "its attention and (un)embedding are in int8, which CPUs compute with; run the checkpoint that "
        "`fathom model quantize` made it of");
  if (c.hidden_size % kTile != 0)
    return no(fmt::format("hidden_size is {}, and must be a multiple of {}", c.hidden_size, kTile));
  if (c.vocab_size % 4 != 0 || c.vocab_size > kernels::kMaxVocabulary)
    return no(fmt::format("vocab_size is {}, and must be a multiple of 4 and at most {}", c.vocab_size,
                          kernels::kMaxVocabulary));
  for (const auto& [size, name] :
       {std::pair{c.hidden_size, "hidden_size"}, {c.intermediate_size, "intermediate_size"}})
    if (padded(size) > kernels::kMaxGemvColumns)
      return no(fmt::format("{} is {}, and may be {}", name, size, kernels::kMaxGemvColumns));
  if (c.num_attention_heads % (4 * c.num_key_value_heads) != 0)
    return no(fmt::format("{} query heads share {} key-value heads, and 4 or 8 must share one",
                          c.num_attention_heads, c.num_key_value_heads));
  if (c.head_dim % 16 != 0 || c.head_dim > kHeadDim)
    return no(fmt::format("head_dim is {}, and must be 16, 32, 48 or 64", c.head_dim));
  if (c.num_attention_heads > 8 * c.num_key_value_heads)
    return no(fmt::format("{} query heads share {} key-value heads, and at most 8 may share one",
                          c.num_attention_heads, c.num_key_value_heads));
  if (c.num_local_experts > 128 || c.num_experts_per_tok > 8)
    return no(fmt::format("it has {} experts, {} a token, and may have 128 and 8", c.num_local_experts,
                          c.num_experts_per_tok));
  for (const LayerWeights& layer : weights.layers)
    for (const ExpertMatrices* matrices : {&layer.mlp1, &layer.mlp2})
      if (!std::holds_alternative<Mxfp4Matrices>(*matrices))
        return no("its experts are in BF16; `fathom model quantize` writes them in MXFP4");
  return Ok{};
}

int64_t GpuWeights::bytes(const Config& c, const ShardOptions& shards, bool screening) {
  const int64_t H = c.hidden_size, I = c.intermediate_size, E = c.num_local_experts;
  const int64_t here  = shards.expert_parallel ? E / shards.ranks : E;
  const int64_t heads = c.num_attention_heads * kHeadDim;
  const int64_t layer = matrix_bytes(qkv_rows(c), H) + matrix_bytes(H, heads) +
                        expert_bytes(here, 2 * padded(I), H) + expert_bytes(here, H, I) + 2 * E * H +
                        4 * (2 * H + E + c.num_attention_heads);
  const int64_t copy =
      screening ? kernels::ScreeningWeights{.rows = padded(c.vocab_size), .depth = padded(H)}.bytes() : 0;
  return c.num_hidden_layers * layer + 2 * c.vocab_size * H + matrix_bytes(c.vocab_size / shards.ranks, H) +
         4 * H + copy;
}

template <class T>
T* GpuWeights::keep(int64_t size) {
  return reinterpret_cast<T*>(memory_.emplace_back(device_, size * static_cast<int64_t>(sizeof(T))).data());
}

GpuWeights::GpuWeights(const Config& config, const Weights& weights, Device& device, ThreadPool& threads,
                       const std::function<void(int64_t, int64_t)>& progress, bool screening)
    : device_(device),
      vocab_size_(config.vocab_size),
      hidden_(config.hidden_size),
      first_expert_(weights.first_expert) {
  Upload upload(device, threads, footprint(config).checkpoint_bytes, progress);
  const int64_t V = config.vocab_size, H = config.hidden_size, E = config.num_local_experts;

  embedding_           = DeviceBuffer<bf16>(device, V * H);
  const int64_t piece  = Upload::kPieceBytes / (2 * H);
  const auto embedding = plain(weights.embedding);
  for (int64_t row = 0; row < V; row += piece) {
    const int64_t rows = std::min(piece, V - row);
    const auto part    = piece_of(View<const bf16, 2>(&embedding(row, 0), {rows, H}));
    upload.send({part}, [&](const auto& at) {
      FATHOM_CUDA(cudaMemcpyAsync(embedding_.data() + row * H, at[0], static_cast<size_t>(part.bytes()),
                                  cudaMemcpyDeviceToDevice, upload.stream()));
    });
  }
  unembedding_ = {.rows = padded(plain(weights.unembedding).extent(0)), .depth = padded(H)};
  auto* tiles  = keep<bf16>(unembedding_.rows * unembedding_.depth);
  upload.pack(plain(weights.unembedding), RowOrder::plain, 0, 0, 0, unembedding_, tiles);
  unembedding_.tiles = tiles;
  if (screening) {
    screening_        = {.rows = unembedding_.rows, .depth = unembedding_.depth};
    auto* copy        = keep<uint8_t>(screening_.tile_bytes());
    auto* scales      = keep<float>(2 * screening_.rows);
    screening_.tiles  = copy;
    screening_.scales = scales;
    screening_.errors = scales + screening_.rows;
    kernels::pack_screening_weights(unembedding_, copy, scales, scales + screening_.rows, upload.stream());
  }
  norm_ = floats(upload, weights.norm);

  for (const LayerWeights& w : weights.layers) {
    GpuLayerWeights layer{.attn_norm   = floats(upload, w.attn_norm),
                          .qkv         = attention_in(upload, config, w),
                          .sinks       = floats(upload, w.sinks),
                          .out         = attention_out(upload, config, w),
                          .mlp_norm    = floats(upload, w.mlp_norm),
                          .router      = {},
                          .router_bias = floats(upload, w.router_bias),
                          .mlp1        = experts(upload, w.mlp1, w.mlp1_bias, RowOrder::gate_pairs),
                          .mlp2        = experts(upload, w.mlp2, w.mlp2_bias, RowOrder::plain)};
    auto* router = keep<bf16>(E * H);
    device.to_device(router, w.router.data(), E * H * 2);
    layer.router = View<const bf16, 2>(router, {E, H});
    layers_.push_back(layer);
  }
}

View<const float, 1> GpuWeights::floats(Upload& upload, const NormWeights& weights) {
  return std::visit(
      [&](const auto& w) {
        std::vector<float> host(static_cast<size_t>(w.extent(0)));
        for (size_t i = 0; i < host.size(); ++i) host[i] = static_cast<float>(w(i));
        auto* to = keep<float>(w.extent(0));
        upload.device().to_device(to, host.data(), w.extent(0) * 4);
        return View<const float, 1>(to, {w.extent(0)});
      },
      weights);
}

PackedMatrix GpuWeights::attention_in(Upload& upload, const Config& c, const LayerWeights& w) {
  PackedMatrix packed{.rows = qkv_rows(c), .depth = padded(c.hidden_size)};
  auto* tiles = keep<bf16>(packed.rows * packed.depth);
  auto* bias  = keep<float>(packed.rows);
  int64_t row = 0;
  for (const auto& [matrix, its_bias] :
       {std::pair{plain(w.q), w.q_bias}, {plain(w.k), w.k_bias}, {plain(w.v), w.v_bias}}) {
    const int64_t rows = matrix.extent(0) / c.head_dim * kHeadDim;
    upload.pack(matrix, RowOrder::rotary_pairs, c.head_dim, 0, row, packed, tiles);
    upload.bias(View<const bf16, 2>(its_bias.data(), {1, its_bias.extent(0)}), RowOrder::rotary_pairs,
                c.head_dim, rows, bias + row);
    row += rows;
  }
  packed.tiles = tiles;
  packed.bias  = bias;
  return packed;
}

PackedMatrix GpuWeights::attention_out(Upload& upload, const Config& c, const LayerWeights& w) {
  PackedMatrix packed{.rows = padded(c.hidden_size), .depth = c.num_attention_heads * kHeadDim};
  auto* tiles = keep<bf16>(packed.rows * packed.depth);
  upload.pack(plain(w.out), RowOrder::plain, 0, c.head_dim, 0, packed, tiles);
  packed.tiles = tiles;
  if (w.out_bias.extent(0) == 0) return packed;  // it is in another rank's part
  auto* bias = keep<float>(packed.rows);
  upload.bias(View<const bf16, 2>(w.out_bias.data(), {1, w.out_bias.extent(0)}), RowOrder::plain, 0,
              packed.rows, bias);
  packed.bias = bias;
  return packed;
}

PackedExperts GpuWeights::experts(Upload& upload, const ExpertMatrices& matrices,
                                  const View<const bf16, 2>& bias, RowOrder order) {
  const auto& w   = std::get<Mxfp4Matrices>(matrices);
  const int64_t E = w.blocks.extent(0), out = w.blocks.extent(1), groups = w.blocks.extent(2);
  // The units of the first matrix, with padding, are the columns of the second.
  PackedExperts packed{.experts = E,
                       .rows    = order == RowOrder::gate_pairs ? 2 * padded(out / 2) : padded(out),
                       .depth   = padded(groups * 32)};
  const int exponent        = kernels::output_exponent(largest_code(w.scales, upload.threads()));
  const int64_t tiles_bytes = packed.tiles_of_one() * PackedExperts::kTileBytes;
  const int64_t scale_bytes = packed.tiles_of_one() * PackedExperts::kScaleBytes;
  auto* tiles               = keep<uint8_t>(E * tiles_bytes);
  auto* scales              = keep<uint8_t>(E * scale_bytes);
  auto* packed_bias         = keep<float>(E * packed.rows);
  const int64_t a_piece =
      std::clamp<int64_t>((Upload::kPieceBytes - 4096) / (out * groups * 17), 1, E);  // experts
  for (int64_t e = 0; e < E; e += a_piece) {
    const int64_t n = std::min(a_piece, E - e);
    const View<const uint8_t, 4> blocks(&w.blocks(e, 0, 0, 0), {n, out, groups, 16},
                                        {w.blocks.stride(0), w.blocks.stride(1), 16, 1});
    const View<const uint8_t, 3> codes(&w.scales(e, 0, 0), {n, out, groups},
                                       {w.scales.stride(0), w.scales.stride(1), 1});
    upload.send({piece_of(blocks), piece_of(codes)}, [&](const auto& at) {
      kernels::pack_experts(View<const uint8_t, 4>(reinterpret_cast<uint8_t*>(at[0]), {n, out, groups, 16}),
                            View<const uint8_t, 3>(reinterpret_cast<uint8_t*>(at[1]), {n, out, groups}),
                            order, exponent, tiles + e * tiles_bytes, scales + e * scale_bytes,
                            upload.stream());
    });
  }
  upload.bias(bias, order, 0, packed.rows, packed_bias);
  packed.tiles        = tiles;
  packed.scales       = scales;
  packed.bias         = packed_bias;
  packed.output_scale = std::ldexp(1.0f, exponent);
  return packed;
}

}  // namespace fathom::model

// Compares with Hugging Face transformers, whose logits and greedy tokens for two checkpoints of `fathom
// model make` are in tests/goldens; and with itself, for the same tokens in other chunks.
#include "model/gpt_oss.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/thread_pool.h"
#include "kernels/for_each_simd_target.h"
#include "kernels/moe/experts_int8.h"
#include "model/quantize.h"
#include "model/safetensors.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"
#include "model/weights.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fathom::model {
namespace {

constexpr int64_t kPageSize = 8;
const std::filesystem::path kGoldens(FATHOM_SOURCE_TREE "/tests/goldens");

std::string bytes_of(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  EXPECT_TRUE(in) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

// A checkpoint of `fathom model make` in a temporary folder.
struct GoldenCheckpoint {
  explicit GoldenCheckpoint(const SyntheticCheckpointOptions& options,
                            DenseFormat dense = DenseFormat::bf16) {
    ThreadPool pool(2);
    const auto bytes = make_synthetic_checkpoint(options, folder.path(), pool);
    if (!bytes) throw std::runtime_error(bytes.error().message);
    std::filesystem::path at = folder.path();
    if (dense == DenseFormat::int8) {
      at /= "int8";
      const auto quantized = quantize_model(folder.path(), at, dense, pool);
      if (!quantized) throw std::runtime_error(quantized.error().message);
    }
    config  = read_config(at / "config.json").value();
    tensors = std::make_unique<Safetensors>(Safetensors::open(at).value());
    weights = find_weights(config, *tensors).value();
  }
  TempFolder folder;
  Config config;
  std::unique_ptr<Safetensors> tensors;
  Weights weights;
};

SyntheticCheckpointOptions tiny_options() { return {.shape = ModelShape::tiny, .seed = 1}; }
SyntheticCheckpointOptions wide_options() {
  return {.shape = ModelShape::gpt_oss_20b, .layers = 2, .experts = 4, .vocab = 512, .seed = 2};
}

using Logits = std::vector<float>;

// Sequences that share a model and a KV cache. Their pages are interleaved in descending order; those of the
// sliding layers ascend and have numbers of their own, so that confusing pages changes the result.
class Runner {
 public:
  Runner(const GoldenCheckpoint& checkpoint, const Ops& ops, int64_t context, int64_t sequences = 1,
         int threads = 2)
      : vocab_(checkpoint.config.vocab_size),
        pages_((context + kPageSize - 1) / kPageSize),
        pool_(threads),
        model_(checkpoint.config, checkpoint.weights, ops, sequences * context, sequences * context, pool_),
        kv_(checkpoint.config, 2 * pages_ * sequences + 1, pages_ * sequences + 1, kPageSize),
        lengths_(static_cast<size_t>(sequences)) {}

  // `pieces[s]` are the next tokens of sequence s. Returns the logits of all of them, concatenated.
  Logits step(const std::vector<std::vector<int32_t>>& pieces) {
    std::vector<int32_t> tokens, positions, first = {0}, full, window, all;
    const auto S = static_cast<int64_t>(pieces.size());
    for (size_t s = 0; s < pieces.size(); ++s) {
      for (const int32_t token : pieces[s]) {
        tokens.push_back(token);
        positions.push_back(static_cast<int32_t>(lengths_[s]++));
      }
      first.push_back(static_cast<int32_t>(tokens.size()));
      for (int64_t p = 0; p < pages_; ++p) {
        const int64_t page = (pages_ - 1 - p) * S + static_cast<int64_t>(s);
        full.push_back(static_cast<int32_t>(pages_ * S + 1 + page));
        window.push_back(static_cast<int32_t>(pages_ * S - page));
      }
    }
    const auto T = static_cast<int64_t>(tokens.size());
    model_.forward({.tokens       = {tokens.data(), {T}},
                    .rows         = {.first_row = {first.data(), {S + 1}},
                                     .positions = {positions.data(), {T}},
                                     .pages     = {full.data(), {S, pages_}}},
                    .window_pages = {window.data(), {S, pages_}}},
                   kv_);
    all.resize(static_cast<size_t>(T));
    std::iota(all.begin(), all.end(), 0);
    Logits logits(static_cast<size_t>(T * vocab_));
    model_.logits({all.data(), {T}}, {logits.data(), {T, vocab_}});
    return logits;
  }
  Logits step(const std::vector<int32_t>& tokens) { return step(std::vector<std::vector<int32_t>>{tokens}); }

 private:
  int64_t vocab_, pages_;
  ThreadPool pool_;
  GptOss model_;
  KvCache kv_;
  std::vector<int64_t> lengths_;
};

double distance(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(std::isfinite(a[i]));
    largest = std::max(largest, std::abs(static_cast<double>(a[i]) - b[i]));
  }
  return largest;
}

struct Golden {
  explicit Golden(const std::string& name)
      : json(nlohmann::ordered_json::parse(bytes_of(kGoldens / (name + ".json")))),
        tensors(Safetensors::open(kGoldens / (name + ".safetensors")).value()),
        logits(tensors.view<float, 2>("logits").value()),
        trap_logits(tensors.view<float, 2>("trap_logits").value()) {}

  nlohmann::ordered_json json;
  Safetensors tensors;
  View<const float, 2> logits;       // [positions, V]
  View<const float, 2> trap_logits;  // [traps, V], at the last position
};

std::span<const float> row(View<const float, 2> matrix, int64_t r) {
  return {&matrix(r, 0), static_cast<size_t>(matrix.extent(1))};
}

void agrees_with_transformers(const Golden& golden, const GoldenCheckpoint& checkpoint, const Ops& ops) {
  const std::string file = bytes_of(checkpoint.folder.path() / "model.safetensors");
  ASSERT_EQ(fmt::format("{:016x}", XXH64(file.data(), file.size(), 0)), golden.json["model_xxh64"])
      << "these are not the weights that transformers ran: see tests/goldens/README.md";
  const std::vector<int32_t> prompt = golden.json["prompt_ids"], greedy = golden.json["greedy_ids"];
  const auto V = static_cast<size_t>(checkpoint.config.vocab_size);
  Runner runner(checkpoint, ops, static_cast<int64_t>(prompt.size() + greedy.size()));
  const Logits logits = runner.step(prompt);

  const std::vector<size_t> positions = golden.json["positions"];
  for (size_t p = 0; p < positions.size(); ++p)
    EXPECT_LT(distance({logits.data() + positions[p] * V, V}, row(golden.logits, static_cast<int64_t>(p))),
              1e-4)
        << "position " << positions[p];

  Logits last(logits.end() - static_cast<std::ptrdiff_t>(V), logits.end());
  // Each trap holds transformers' logits with one deliberate mistake, and their distance from the correct
  // ones
  // (`astray`), which ours must have too. The mistake that hardly changes logits has a test of its own, in
  // kernels/moe/experts_test.cpp.
  int64_t trap = 0;
  for (const auto& [name, astray] : golden.json["traps"].items()) {
    const double ours = distance(last, row(golden.trap_logits, trap++));
    if (name == "gate clamped on both sides") continue;
    EXPECT_GT(astray, 5e-3) << name;
    EXPECT_NEAR(ours, astray, 1e-4) << name;
  }
  EXPECT_EQ(trap, golden.trap_logits.extent(0));

  for (size_t i = 0; i < greedy.size(); ++i) {
    const auto best = static_cast<int32_t>(std::max_element(last.begin(), last.end()) - last.begin());
    ASSERT_EQ(best, greedy[i]) << "greedy token " << i;
    last = runner.step(std::vector{best});
  }
}

TEST(GptOss, ReferenceAgreesWithTransformers) {
  agrees_with_transformers(Golden("tiny"), GoldenCheckpoint(tiny_options()), reference_ops());
}
TEST(GptOss, CpuAgreesWithTransformers) {
  agrees_with_transformers(Golden("tiny"), GoldenCheckpoint(tiny_options()), cpu_ops());
}
// The published model's widths are multiples of 64 but not of 128.
TEST(GptOssWide, CpuAgreesWithTransformers) {
  agrees_with_transformers(Golden("wide"), GoldenCheckpoint(wide_options()), cpu_ops());
}

std::vector<int32_t> some_tokens(int64_t count, int64_t vocab, int64_t salt = 0) {
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < count; ++t)
    tokens.push_back(static_cast<int32_t>((t * t * 7 + t * (3 + salt) + salt) % vocab));
  return tokens;
}

// Equal bits, so that a greedy answer never depends on the other sequences of a batch.
TEST(GptOss, ChunksAndThreadsDoNotChangeBits) {
  const GoldenCheckpoint checkpoint(tiny_options());
  const std::vector<int32_t> prompt = some_tokens(61, checkpoint.config.vocab_size);
  Runner whole(checkpoint, cpu_ops(), 61);
  const Logits expected = whole.step(prompt);
  for (const size_t piece : {1u, 2u, 7u, 8u, 9u, 60u})
    for (const int threads : {1, 2, 3}) {
      Runner runner(checkpoint, cpu_ops(), 61, 1, threads);
      Logits logits;
      for (size_t at = 0; at < prompt.size(); at += piece) {
        const auto end = std::min(prompt.size(), at + piece);
        const Logits part =
            runner.step(std::vector<int32_t>(prompt.begin() + static_cast<std::ptrdiff_t>(at),
                                             prompt.begin() + static_cast<std::ptrdiff_t>(end)));
        logits.insert(logits.end(), part.begin(), part.end());
      }
      EXPECT_EQ(logits, expected) << "pieces of " << piece << ", " << threads << " threads";
    }
}

TEST(GptOss, SequencesOfABatchAreIndependent) {
  const GoldenCheckpoint checkpoint(tiny_options());
  const int64_t V = checkpoint.config.vocab_size;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<Logits> alone;
  for (const int64_t length : {1, 17, 8, 33}) {
    prompts.push_back(some_tokens(length, V, length));
    Runner runner(checkpoint, cpu_ops(), 40);
    alone.push_back(runner.step(prompts.back()));
    const Logits next = runner.step(std::vector<int32_t>{5, 6});
    alone.back().insert(alone.back().end(), next.begin(), next.end());
  }
  Runner runner(checkpoint, cpu_ops(), 40, 4);
  const Logits first = runner.step(prompts), second = runner.step({{5, 6}, {5, 6}, {5, 6}, {5, 6}});
  auto of_first = first.begin(), of_second = second.begin();
  for (size_t s = 0; s < prompts.size(); ++s) {
    Logits together(of_first, of_first + static_cast<std::ptrdiff_t>(prompts[s].size()) * V);
    of_first += static_cast<std::ptrdiff_t>(prompts[s].size()) * V;
    together.insert(together.end(), of_second, of_second + 2 * V);
    of_second += 2 * V;
    EXPECT_EQ(together, alone[s]) << "sequence " << s;
  }
}

TEST(GptOss, AcceptsNoTokensAndRefusesTooMany) {
  const GoldenCheckpoint checkpoint(tiny_options());
  Runner runner(checkpoint, cpu_ops(), 4);
  EXPECT_TRUE(runner.step(std::vector<int32_t>()).empty());
  EXPECT_THROW(runner.step(some_tokens(5, 300)), ContractError);
}

// A BF16 checkpoint stores its experts transposed. The MXFP4 checkpoint of the same seed is its quantization,
// so the two differ by the quantization error only.
TEST(GptOss, UnquantizedExperts) {
  const GoldenCheckpoint packed(tiny_options());
  SyntheticCheckpointOptions options = tiny_options();
  options.bf16                       = true;
  const GoldenCheckpoint plain(options);
  const std::vector<int32_t> prompt = some_tokens(23, plain.config.vocab_size);
  Runner reference(plain, reference_ops(), 23), fast(plain, cpu_ops(), 23), quantised(packed, cpu_ops(), 23);
  const Logits expected = reference.step(prompt);
  EXPECT_LT(distance(fast.step(prompt), expected), 1e-4);
  EXPECT_GT(distance(quantised.step(prompt), expected), 1e-2);
}

// Products with int8 weights are exact in fp32, so that the fast kernels are as near the reference as in
// BF16.
TEST(GptOss, Int8AttentionAndEmbedding) {
  const GoldenCheckpoint plain(tiny_options()), int8(tiny_options(), DenseFormat::int8);
  const std::vector<int32_t> prompt = some_tokens(23, plain.config.vocab_size);
  Runner reference(int8, reference_ops(), 23), fast(int8, cpu_ops(), 23), bf16(plain, cpu_ops(), 23);
  const Logits expected = reference.step(prompt), logits = fast.step(prompt);
  EXPECT_LT(distance(logits, expected), 1e-4);
  EXPECT_GT(distance(bf16.step(prompt), expected), 1e-3);  // and yet int8 is not BF16

  Runner one_by_one(int8, cpu_ops(), 23, 1, 3);
  Logits steps;
  for (const int32_t token : prompt) {
    const Logits part = one_by_one.step(std::vector{token});
    steps.insert(steps.end(), part.begin(), part.end());
  }
  EXPECT_EQ(steps, logits);
}

// The reference quantizes what the fast kernels quantize, but for the rounding of fp32, which moves an
// activation between two codes now and then.
TEST(GptOss, Int8Activations) {
  const GoldenCheckpoint checkpoint(tiny_options());
  const std::vector<int32_t> prompt = some_tokens(23, checkpoint.config.vocab_size);
  Ops plain                         = reference_ops();
  plain.experts                     = kernels::experts_int8_reference;
  Runner reference(checkpoint, plain, 23), fp32(checkpoint, cpu_ops(), 23);
  const Logits expected = reference.step(prompt);
  const double lost     = distance(fp32.step(prompt), expected);
  EXPECT_GT(lost, 1e-3);

  const Ops int8 = with_int8_activations(cpu_ops());
  kernels::for_each_simd_target([&] {
    Runner fast(checkpoint, int8, 23), one_by_one(checkpoint, int8, 23, 1, 3);
    const Logits logits = fast.step(prompt);
    EXPECT_LT(distance(logits, expected), 0.2 * lost);
    Logits steps;
    for (const int32_t token : prompt) {
      const Logits part = one_by_one.step(std::vector{token});
      steps.insert(steps.end(), part.begin(), part.end());
    }
    EXPECT_EQ(steps, logits);
  });
}

}  // namespace
}  // namespace fathom::model

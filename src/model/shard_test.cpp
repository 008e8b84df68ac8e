// Ranks against the whole model: the same logits, up to the order of summation.
#include "model/shard.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "comm/thread_group.h"
#include "core/thread_pool.h"
#include "model/contiguous_experts.h"
#include "model/gpt_oss.h"
#include "model/quantize.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::model {
namespace {

constexpr int64_t kTokens = 41, kPieceRows = 17, kPage = 8;  // a prompt in pieces, beyond the window of 8

enum class Form { mxfp4, bf16, int8_dense };

struct CutCheckpoint {
  explicit CutCheckpoint(Form form, int64_t experts = 8) {
    ThreadPool pool(2);
    EXPECT_TRUE(make_synthetic_checkpoint(
        {.shape = ModelShape::tiny, .experts = experts, .seed = 5, .bf16 = form == Form::bf16}, folder.path(),
        pool));
    std::filesystem::path at = folder.path();
    if (form == Form::int8_dense) {
      at /= "int8";
      EXPECT_TRUE(quantize_model(folder.path(), at, DenseFormat::int8, pool));
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

using BeforePiece = std::function<void(GptOss&, int64_t rank, int64_t piece)>;

// The logits of all tokens of a prompt; of a rank where there is a group.
std::vector<float> logits_of(const Shard& shard, const Ops& ops, comm::Group* group,
                             const BeforePiece& before_piece = {}, int64_t piece_rows = kPieceRows) {
  const int64_t V = shard.config.vocab_size, pages = (kTokens + kPage - 1) / kPage;
  ThreadPool pool(1);
  GptOss model(shard.config, shard.weights, ops, kPieceRows, kPieceRows, pool);
  model.join(group);
  const KvCache kv(shard.config, pages, pages, kPage);
  std::vector<int32_t> table(static_cast<size_t>(pages)), tokens, positions, rows(kPieceRows);
  std::iota(table.begin(), table.end(), 0);
  std::iota(rows.begin(), rows.end(), 0);
  for (int32_t t = 0; t < kTokens; ++t) tokens.push_back((t * 37 + 11) % 384), positions.push_back(t);
  std::vector<float> logits(static_cast<size_t>(kTokens * V));
  for (int64_t first = 0; first < kTokens; first += piece_rows) {
    const int64_t T        = std::min(piece_rows, kTokens - first);
    const int32_t firsts[] = {0, static_cast<int32_t>(T)};
    const View<const int32_t, 2> block_table(table.data(), {1, pages});
    if (before_piece) before_piece(model, group->rank(), first / piece_rows);
    model.forward({.tokens       = {tokens.data() + first, {T}},
                   .rows         = {.first_row = {firsts, {2}},
                                    .positions = {positions.data() + first, {T}},
                                    .pages     = block_table},
                   .window_pages = block_table},
                  kv);
    model.logits({rows.data(), {T}}, {logits.data() + first * V, {T, V}});
  }
  return logits;
}

// What ops of a rank's thread were given, where a test wants to know: experts [T top_k] of each layer of each
// piece.
struct SeenExperts {
  std::vector<std::vector<int32_t>> routed, computed;
};
thread_local SeenExperts* seen_by_rank = nullptr;

std::vector<std::vector<float>> logits_of_ranks(const CutCheckpoint& checkpoint, const ShardOptions& options,
                                                const Ops& ops, const BeforePiece& before_piece = {},
                                                std::vector<SeenExperts>* seen = nullptr,
                                                int64_t piece_rows             = kPieceRows) {
  auto groups = comm::make_thread_groups(static_cast<int>(options.ranks));
  std::vector<std::vector<float>> logits(groups.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < groups.size(); ++r)
    threads.emplace_back([&, r] {
      if (seen) seen_by_rank = &(*seen)[r];
      const Shard shard = shard_of(checkpoint.config, checkpoint.weights, options, static_cast<int64_t>(r));
      logits[r]         = logits_of(shard, ops, groups[r].get(), before_piece, piece_rows);
    });
  for (std::thread& thread : threads) thread.join();
  return logits;
}

float largest(const std::vector<float>& numbers) {
  return std::abs(*std::max_element(numbers.begin(), numbers.end(),
                                    [](float a, float b) { return std::abs(a) < std::abs(b); }));
}

// All ranks have the same bits. They differ from one rank's by sums in another order alone: of the residual
// stream, twice a layer, and of columns that ranks share. A rounding is 2^-24 of a sum. Some ten such sums on
// the way through four layers came to 2^-20 of the largest logit; the bound is eight times that.
void expect_logits_of_one_rank(const CutCheckpoint& checkpoint, const ShardOptions& options, const Ops& ops,
                               const BeforePiece& before_piece = {},
                               std::vector<SeenExperts>* seen  = nullptr) {
  ASSERT_TRUE(can_shard(checkpoint.config, options)) << can_shard(checkpoint.config, options).error().message;
  const std::vector<float> one = logits_of({checkpoint.config, checkpoint.weights}, ops, nullptr);
  const auto ranks             = logits_of_ranks(checkpoint, options, ops, before_piece, seen);
  const float bound            = 0x1p-17f * largest(one);
  ASSERT_GT(bound, 0);
  for (const auto& rank : ranks) EXPECT_EQ(rank, ranks[0]);
  float off = 0;
  for (size_t i = 0; i < one.size(); ++i) off = std::max(off, std::abs(ranks[0][i] - one[i]));
  EXPECT_LE(off, bound);
}

TEST(Shard, RanksHaveTheLogitsOfOneRank) {
  for (const Form form : {Form::mxfp4, Form::bf16, Form::int8_dense}) {
    const CutCheckpoint checkpoint(form);
    // 8 heads on 2 KV heads: with four ranks, two have a copy of each. 96 columns of an expert are 3 blocks,
    // so two ranks have 1 and 2.
    for (const ShardOptions& options :
         {ShardOptions{.ranks = 2}, ShardOptions{.ranks = 2, .expert_parallel = true},
          ShardOptions{.ranks = 4, .expert_parallel = true}}) {
      SCOPED_TRACE(testing::Message() << "form " << static_cast<int>(form) << ", ranks " << options.ranks
                                      << (options.expert_parallel ? ", expert parallel" : ""));
      expect_logits_of_one_rank(checkpoint, options, cpu_ops());
    }
  }
}

TEST(Shard, RanksHaveTheLogitsOfOneRankWithReferenceOps) {
  const CutCheckpoint checkpoint(Form::mxfp4);
  for (const bool expert_parallel : {false, true})
    expect_logits_of_one_rank(checkpoint, {.ranks = 2, .expert_parallel = expert_parallel}, reference_ops());
}

TEST(Shard, ARankWithoutATokensExpertsAddsNothing) {
  const CutCheckpoint checkpoint(Form::mxfp4);
  // 4 of 8 experts a token: with eight ranks of one head each, half of them have none of a token's.
  expect_logits_of_one_rank(checkpoint, {.ranks = 8, .expert_parallel = true}, cpu_ops());
}

// CPU ops that note what they are given.
Ops seeing_ops() {
  Ops ops    = cpu_ops();
  ops.router = [](View<const float, 2> logits, View<int32_t, 2> experts, View<float, 2> weights,
                  const Execution& on) {
    cpu_ops().router(logits, experts, weights, on);
    if (seen_by_rank) seen_by_rank->routed.emplace_back(experts.data(), experts.data() + experts.size());
  };
  ops.experts = [](View<const float, 2> x, View<const int32_t, 2> experts, View<const float, 2> weights,
                   const kernels::ExpertWeights& w, View<float, 2> y, const Execution& on) {
    if (seen_by_rank) seen_by_rank->computed.emplace_back(experts.data(), experts.data() + experts.size());
    cpu_ops().experts(x, experts, weights, w, y, on);
  };
  return ops;
}

// Each expert of each layer on one rank, on several or on all.
std::shared_ptr<const ExpertTable> random_table(const Config& config, int64_t ranks, std::mt19937& random) {
  std::vector<ExpertTable::Layer> layers(static_cast<size_t>(config.num_hidden_layers));
  std::vector<int32_t> all(static_cast<size_t>(ranks));
  std::iota(all.begin(), all.end(), 0);
  for (ExpertTable::Layer& layer : layers)
    for (int64_t e = 0; e < config.num_local_experts; ++e) {
      std::shuffle(all.begin(), all.end(), random);
      auto& of =
          layer.emplace_back(all.begin(), all.begin() + 1 + static_cast<int64_t>(random() % all.size()));
      std::sort(of.begin(), of.end());
    }
  return std::make_shared<const ExpertTable>(ranks, layers);
}

// The experts move between the pieces of a prompt, and have replicas.
TEST(Shard, WhereverExpertsLieEachIsComputedOnceForEachOfItsTokens) {
  std::mt19937 random(3);
  for (const Form form : {Form::mxfp4, Form::bf16}) {
    CutCheckpoint checkpoint(form);
    ThreadPool pool(2);
    const ContiguousExperts shared = with_contiguous_experts(checkpoint.weights, pool);
    EXPECT_EQ(shared.copied_bytes > 0, form == Form::bf16);
    checkpoint.weights = shared.weights;
    for (const int64_t ranks : {2, 2, 4, 8}) {
      SCOPED_TRACE(testing::Message() << "form " << static_cast<int>(form) << ", ranks " << ranks);
      std::vector<std::shared_ptr<const ExpertTable>> tables;
      for (int piece = 0; piece * kPieceRows < kTokens; ++piece)
        tables.push_back(random_table(checkpoint.config, ranks, random));
      std::vector<SeenExperts> seen(static_cast<size_t>(ranks));
      const auto place = [&](GptOss& model, int64_t rank, int64_t piece) {
        model.place_experts(tables[static_cast<size_t>(piece)], rank);
      };
      expect_logits_of_one_rank(checkpoint,
                                {.ranks = ranks, .expert_parallel = true, .movable_experts = true},
                                seeing_ops(), place, &seen);
      const auto& routed = seen[0].routed;
      ASSERT_EQ(routed.size(), tables.size() * static_cast<size_t>(checkpoint.config.num_hidden_layers));
      for (size_t call = 0; call < routed.size(); ++call)
        for (size_t i = 0; i < routed[call].size(); ++i) {
          int times = 0;
          for (const SeenExperts& of_rank : seen) {
            ASSERT_EQ(of_rank.routed[call], routed[call]);
            const int32_t computed = of_rank.computed[call][i];
            if (computed == kernels::kNoExpert) continue;
            ASSERT_EQ(computed, routed[call][i]);
            ++times;
          }
          ASSERT_EQ(times, 1) << "call " << call << ", expert " << i % 4 << " of token " << i / 4;
        }
    }
  }
}

// Which replica computes a token depends on the token, so its sums are the same in any batch.
TEST(Shard, WithReplicasATokensLogitsDoNotDependOnItsBatch) {
  const CutCheckpoint checkpoint(Form::mxfp4);
  std::mt19937 random(6);
  const ShardOptions options{.ranks = 4, .expert_parallel = true, .movable_experts = true};
  const auto table = random_table(checkpoint.config, options.ranks, random);
  const auto place = [&](GptOss& model, int64_t rank, int64_t) { model.place_experts(table, rank); };
  const auto whole = logits_of_ranks(checkpoint, options, cpu_ops(), place);
  for (const int64_t piece_rows : {1, 2, 7})
    EXPECT_EQ(logits_of_ranks(checkpoint, options, cpu_ops(), place, nullptr, piece_rows), whole)
        << "in pieces of " << piece_rows;
}

TEST(Shard, RanksCountWhatEachOfThemComputes) {
  const CutCheckpoint checkpoint(Form::mxfp4);
  std::mt19937 random(4);
  const auto table = random_table(checkpoint.config, 2, random);
  for (const bool movable : {false, true}) {
    std::vector<std::vector<int64_t>> loads(2);
    std::vector<SeenExperts> seen(2);
    // Counts before the last piece, whose experts are not counted below either.
    const auto note = [&](GptOss& model, int64_t rank, int64_t piece) {
      if (movable && piece == 0) model.place_experts(table, rank);
      const View<const int64_t, 2> load = model.rank_load();
      if (piece == 2) loads[static_cast<size_t>(rank)].assign(load.data(), load.data() + load.size());
    };
    logits_of_ranks(checkpoint, {.ranks = 2, .expert_parallel = true, .movable_experts = movable},
                    seeing_ops(), note, &seen);
    EXPECT_EQ(loads[0], loads[1]);
    std::vector<int64_t> expected(4 * 2, 0);
    for (size_t call = 0; call < 2 * 4; ++call)
      for (size_t r = 0; r < 2; ++r)
        expected[call % 4 * 2 + r] +=
            std::count_if(seen[r].computed[call].begin(), seen[r].computed[call].end(),
                          [](int32_t e) { return e != kernels::kNoExpert; });
    EXPECT_EQ(loads[0], expected);
  }
}

// Stages compute what the layers of one model do, so every bit is the same: with a layer each, and where the
// stages have 1, 1 and 2 of the four.
TEST(Shard, StagesHaveTheLogitsOfTheWholeModel) {
  const CutCheckpoint checkpoint(Form::mxfp4);
  const int64_t V = checkpoint.config.vocab_size, H = checkpoint.config.hidden_size;
  const int64_t pages = (kTokens + kPage - 1) / kPage;
  const auto expected = logits_of({checkpoint.config, checkpoint.weights}, cpu_ops(), nullptr);
  std::vector<int32_t> table(static_cast<size_t>(pages)), tokens, positions, rows(kTokens);
  std::iota(table.begin(), table.end(), 0);
  std::iota(rows.begin(), rows.end(), 0);
  for (int32_t t = 0; t < kTokens; ++t) tokens.push_back((t * 37 + 11) % 384), positions.push_back(t);
  const int32_t firsts[] = {0, kTokens};
  const View<const int32_t, 2> block_table(table.data(), {1, pages});
  ThreadPool pool(1);
  for (const int64_t stages : {1, 2, 3, 4}) {
    SCOPED_TRACE(testing::Message() << stages << " stages");
    std::vector<float> logits(static_cast<size_t>(kTokens * V)), stream(static_cast<size_t>(kTokens * H));
    int64_t layers = 0;
    for (int64_t stage = 0; stage < stages; ++stage) {
      const Shard shard = shard_of(checkpoint.config, checkpoint.weights, {.stages = stages}, stage);
      layers += std::ssize(shard.weights.layers);
      EXPECT_EQ(shard.config.num_hidden_layers, std::ssize(shard.weights.layers));
      EXPECT_EQ(std::ssize(shard.config.layers), std::ssize(shard.weights.layers));
      GptOss model(shard.config, shard.weights, cpu_ops(), kTokens, kTokens, pool);
      const KvCache kv(shard.config, pages, pages, kPage);
      const View<float, 2> x = model.hidden_states(kTokens);
      std::copy(stream.begin(), stream.end(), x.data());
      model.forward({.tokens       = {tokens.data(), {kTokens}},
                     .rows         = {.first_row = {firsts, {2}},
                                      .positions = {positions.data(), {kTokens}},
                                      .pages     = block_table},
                     .window_pages = block_table,
                     .embed        = stage == 0},
                    kv);
      std::copy_n(x.data(), stream.size(), stream.begin());
      if (stage + 1 == stages) model.logits({rows.data(), {kTokens}}, {logits.data(), {kTokens, V}});
    }
    EXPECT_EQ(layers, 4);
    EXPECT_EQ(logits, expected);
  }
}

TEST(Shard, RanksOfAStageHaveItsLayersAndTheirPartOfThem) {
  const CutCheckpoint checkpoint(Form::mxfp4);
  const ShardOptions options{.ranks = 2, .stages = 2};
  EXPECT_EQ(options.all_ranks(), 4);
  for (int64_t rank = 0; rank < 4; ++rank) {
    const Shard part  = shard_of(checkpoint.config, checkpoint.weights, options, rank);
    const Shard alone = shard_of(checkpoint.config, checkpoint.weights, {.ranks = 2}, rank % 2);
    EXPECT_EQ(part.config.num_attention_heads, alone.config.num_attention_heads);
    EXPECT_EQ(part.config.intermediate_size, alone.config.intermediate_size);
    ASSERT_EQ(part.weights.layers.size(), 2u);
    for (size_t l = 0; l < 2; ++l)
      EXPECT_EQ(part.weights.layers[l].sinks.data(),
                alone.weights.layers[static_cast<size_t>(rank / 2 * 2) + l].sinks.data());
  }
}

TEST(Shard, OneRankIsTheModel) {
  const CutCheckpoint checkpoint(Form::mxfp4);
  const Shard whole = shard_of(checkpoint.config, checkpoint.weights, {}, 0);
  EXPECT_EQ(whole.config.num_attention_heads, 8);
  EXPECT_EQ(whole.config.intermediate_size, 96);
  EXPECT_EQ(kernels::rows_of(whole.weights.unembedding), 384);
  auto groups = comm::make_thread_groups(1);
  EXPECT_EQ(logits_of(whole, cpu_ops(), groups[0].get()), logits_of(whole, cpu_ops(), nullptr));
}

TEST(Shard, WhatDoesNotDivideIsNamed) {
  const Config tiny = parse_config(tiny_config().dump(), "config.json").value();
  const auto error  = [&](const ShardOptions& options, auto&& change) {
    Config config = tiny;
    change(config);
    const Status good = can_shard(config, options);
    return good ? std::string() : good.error().message;
  };
  const auto as_it_is = [](Config&) {};
  EXPECT_EQ(error({.stages = 4}, as_it_is), "");
  EXPECT_EQ(error({.stages = 5}, as_it_is),
            "--pipeline-parallel-size 5 needs a layer for each stage, and the model has 4: give at most 4");
  EXPECT_EQ(error({}, as_it_is), "");
  EXPECT_EQ(error({.ranks = 2}, as_it_is), "");
  EXPECT_EQ(error({.ranks = 3}, as_it_is),
            "--tensor-parallel-size 3 does not divide the model's 8 attention heads: give a divisor");
  EXPECT_EQ(
      error({.ranks = 2}, [](Config& c) { c.num_attention_heads = 6, c.num_key_value_heads = 3; }),
      "--tensor-parallel-size 2 neither divides the model's 3 key-value heads nor is a multiple of them");
  EXPECT_EQ(error({.ranks = 2}, [](Config& c) { c.vocab_size = 385; }),
            "--tensor-parallel-size 2 does not divide the model's 385 tokens of vocabulary: give a divisor");
  EXPECT_EQ(
      error({.ranks = 4}, as_it_is),
      "--tensor-parallel-size 4 needs experts of at least 4 x 32 columns in blocks of 32, and the model's "
      "have 96: give fewer ranks, or --enable-expert-parallel");
  EXPECT_EQ(
      error({.ranks = 4, .expert_parallel = true}, [](Config& c) { c.num_local_experts = 6; }),
      "--tensor-parallel-size 4 does not divide the model's 6 experts (--enable-expert-parallel): give a "
      "divisor");
  EXPECT_EQ(
      error({.ranks = 8, .expert_parallel = true}, [](Config& c) { c.int8_dense = true; }),
      "--tensor-parallel-size 8 gives a rank 16 columns of the output projection, and in int8 they come in "
      "groups of 32: give fewer ranks");
  EXPECT_EQ(
      error({.expert_parallel = true}, as_it_is),
      "--enable-expert-parallel deals experts to ranks, and there is one: give --tensor-parallel-size too");
}

}  // namespace
}  // namespace fathom::model

// Blocks computed by one engine and used by another, and answers that go on where another engine stopped: the
// tokens are those of one engine.
#include "engine/kv_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "model/synthetic_checkpoint.h"
#include "model/tiny_checkpoint.h"

namespace fathom::engine {
namespace {

using model::TokenId;
using Blocks = std::map<std::pair<KvKind, int64_t>, KvBlock>;

class KvStoreTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new model::TempFolder;
    ThreadPool pool(2);
    ASSERT_TRUE(model::make_synthetic_checkpoint({.shape = model::ModelShape::tiny, .seed = 3},
                                                 folder_->path(), pool));
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }
  static std::unique_ptr<Engine> engine(int64_t kv_tokens = 4096, int64_t ranks = 1, int64_t stages = 1) {
    EngineConfig config{.threads           = 1,
                        .tensor_parallel   = ranks,
                        .expert_parallel   = ranks > 1,
                        .pipeline_parallel = stages,
                        .max_context       = 512,
                        .kv_tokens         = kv_tokens,
                        .step_tokens       = 48};
    auto opened = Engine::open(folder_->path(), config);
    EXPECT_TRUE(opened) << opened.error().message;
    return std::move(opened).value();
  }

  struct Answer {
    std::vector<TokenId> ids;
    int64_t cached = 0;
  };
  static Answer answer(Engine& engine, Request request) {
    Answer answer;
    std::promise<void> ended;
    const auto submitted = engine.submit(std::move(request), [&](const RequestOutput& output) {
      for (const Sampled& token : output.tokens) answer.ids.push_back(token.id);
      answer.cached = output.cached_tokens;
      if (output.finish) ended.set_value();
    });
    EXPECT_TRUE(std::holds_alternative<RequestId>(submitted));
    ended.get_future().wait();
    return answer;
  }
  template <class Work>
  static auto with_kv(Engine& engine, Work work) {
    std::promise<decltype(work(std::declval<KvStore&>()))> done;
    engine.with_kv([&](KvStore& store) { done.set_value(work(store)); });
    return done.get_future().get();
  }
  // The blocks that an engine reports while it computes a prompt.
  static Blocks prefill(Engine& engine, const std::vector<TokenId>& prompt) {
    Blocks blocks;
    Request request{.prompt = prompt, .max_tokens = 1};
    request.on_kv_block = [&](const KvBlock& block) {
      EXPECT_TRUE(block.owner) << "it may be kept";
      EXPECT_TRUE(blocks.emplace(std::pair(block.kind, block.block), block).second)
          << "block " << block.block << " twice";
    };
    (void)answer(engine, std::move(request));
    return blocks;
  }
  static std::vector<KvBlock> list_of(const Blocks& blocks) {
    std::vector<KvBlock> list;
    for (const auto& [place, block] : blocks) list.push_back(block);
    return list;
  }
  static std::vector<TokenId> prompt_of(int64_t length, int salt = 0) {
    std::vector<TokenId> prompt;
    for (int64_t t = 0; t < length; ++t) prompt.push_back(static_cast<TokenId>((t * t + 7 * t + salt) % 384));
    return prompt;
  }

  static model::TempFolder* folder_;
};
model::TempFolder* KvStoreTest::folder_ = nullptr;

// Shorter than a page, around its edges, around the window's, several chunks.
TEST_F(KvStoreTest, BlocksOfAnotherEngineGiveTheSameAnswers) {
  const auto alone = engine(), prefiller = engine(), decoder = engine();
  for (const int64_t length : {1, 15, 16, 17, 32, 33, 64, 65, 80, 81, 95, 96, 97, 200}) {
    const auto prompt   = prompt_of(length, static_cast<int>(length));
    const Blocks blocks = prefill(*prefiller, prompt);
    const auto missing  = with_kv(*decoder, [&](KvStore& store) { return store.missing(prompt, ""); });
    for (const KvBlock& block : missing) EXPECT_TRUE(blocks.contains({block.kind, block.block}));
    EXPECT_EQ(missing.size(), blocks.size()) << "what is not needed is not reported";
    EXPECT_TRUE(with_kv(*decoder, [&](KvStore& store) { return store.insert(prompt, "", list_of(blocks)); }));
    EXPECT_EQ(with_kv(*decoder, [&](KvStore& store) { return store.cached_tokens(prompt, ""); }),
              (length - 1) / 16 * 16);
    for (const SamplingParameters& sampling :
         {SamplingParameters{.temperature = 0}, SamplingParameters{.temperature = 1, .seed = 5}}) {
      const auto ask = [&] { return Request{.prompt = prompt, .sampling = sampling, .max_tokens = 12}; };
      const Answer answered = answer(*decoder, ask());
      EXPECT_EQ(answered.ids, answer(*alone, ask()).ids) << "a prompt of " << length;
      EXPECT_EQ(answered.cached, (length - 1) / 16 * 16);
    }
  }
  EXPECT_EQ(decoder->stats().pages_in_use, 0);
}

// A block is its owner's while it is read, and no longer.
TEST_F(KvStoreTest, OwnersAreReleased) {
  const auto prefiller = engine(), decoder = engine();
  const auto prompt = prompt_of(97);
  Blocks blocks     = prefill(*prefiller, prompt);
  const auto owner  = std::make_shared<int>();
  for (auto& [place, block] : blocks) {
    EXPECT_EQ(block.owner.use_count(), 1) << "the engine keeps none";
    block.owner = std::shared_ptr<const void>(block.owner.get(), [owner, kept = block.owner](const void*) {});
  }
  EXPECT_TRUE(with_kv(*decoder, [&](KvStore& store) { return store.insert(prompt, "", list_of(blocks)); }));
  EXPECT_EQ(owner.use_count(), 1 + std::ssize(blocks));
  blocks.clear();
  EXPECT_EQ(owner.use_count(), 1);
}

// With four ranks on two KV heads, two have a copy of each. Four stages have a layer each, so that two have
// no blocks of a kind; three have 1, 1 and 2.
TEST_F(KvStoreTest, BlocksAreTheSameForAnyNumberOfRanksAndStages) {
  const auto alone = engine(), two = engine(4096, 2), four = engine(4096, 4), stages = engine(4096, 1, 4),
             both = engine(4096, 2, 3);
  int salt        = 0;
  for (const auto& [prefiller, decoder] : {std::pair{alone.get(), two.get()},
                                           {two.get(), four.get()},
                                           {four.get(), two.get()},
                                           {four.get(), alone.get()},
                                           {alone.get(), stages.get()},
                                           {stages.get(), both.get()},
                                           {both.get(), alone.get()}}) {
    const auto prompt   = prompt_of(97, ++salt);
    const Blocks blocks = prefill(*prefiller, prompt);
    EXPECT_TRUE(with_kv(*decoder, [&](KvStore& store) { return store.insert(prompt, "", list_of(blocks)); }));
    const auto ask = [&] {
      return Request{.prompt = prompt, .sampling = {.temperature = 0}, .max_tokens = 12};
    };
    const Answer answered = answer(*decoder, ask());
    EXPECT_EQ(answered.cached, 96);
    EXPECT_EQ(answered.ids, answer(*engine(), ask()).ids);
  }
}

// A conversation's second turn: both engines have its beginning, and only the rest is reported and moved.
TEST_F(KvStoreTest, OnlyWhatLacksIsMissing) {
  const auto alone = engine(), prefiller = engine(), decoder = engine();
  const auto whole = prompt_of(180);
  const std::vector<TokenId> beginning(whole.begin(), whole.begin() + 100);
  (void)prefill(*prefiller, beginning);
  (void)answer(*decoder, {.prompt = beginning, .max_tokens = 4});
  const auto missing = with_kv(*decoder, [&](KvStore& store) { return store.missing(whole, ""); });
  EXPECT_TRUE(std::all_of(missing.begin(), missing.end(), [](const KvBlock& b) { return b.block >= 6; }));
  const Blocks blocks = prefill(*prefiller, whole);
  EXPECT_TRUE(with_kv(*decoder, [&](KvStore& store) { return store.insert(whole, "", list_of(blocks)); }));
  const auto ask = [&] { return Request{.prompt = whole, .sampling = {.temperature = 0}, .max_tokens = 9}; };
  const Answer answered = answer(*decoder, ask());
  EXPECT_EQ(answered.cached, 176);
  EXPECT_EQ(answered.ids, answer(*alone, ask()).ids);
  // Another salt shares nothing.
  EXPECT_EQ(with_kv(*decoder, [&](KvStore& store) { return store.cached_tokens(whole, "other"); }), 0);
}

// Blocks that are read from a cache are those that were reported while they were computed. With some of them
// at hand, a longer prefix could be found: all but the window's blocks are not enough.
TEST_F(KvStoreTest, WhatIsCachedCanBeRead) {
  const auto prefiller = engine(), decoder = engine();
  const auto prompt   = prompt_of(161);
  const Blocks blocks = prefill(*prefiller, prompt);
  std::vector<KvBlock> all;
  for (int64_t block = 0; block < 10; ++block)
    for (const KvKind kind : {kFull, kWindow}) all.push_back({.kind = kind, .block = block, .bytes = {}});
  std::vector<KvBlock> read;
  with_kv(*prefiller, [&](KvStore& store) {
    store.read(prompt, "", all, [&](const KvBlock& block) { read.push_back(block); });
    return 0;
  });
  ASSERT_EQ(read.size(), 20u);
  for (const KvBlock& block : read) {
    const auto reported = blocks.find({block.kind, block.block});
    if (reported == blocks.end()) continue;  // of the window, and not needed at the end
    EXPECT_TRUE(std::ranges::equal(block.bytes, reported->second.bytes));
  }
  const auto found = [&](const BlockManager::IsBlock& more) {
    return with_kv(*decoder, [&](KvStore& store) { return store.cached_tokens(prompt, "", more); });
  };
  EXPECT_EQ(found({}), 0);
  EXPECT_EQ(found([](KvKind, int64_t) { return true; }), 160);
  EXPECT_EQ(found([](KvKind, int64_t block) { return block != 5; }), 80);
  EXPECT_EQ(found([](KvKind kind, int64_t) { return kind == kFull; }), 0);
  EXPECT_EQ(found([](KvKind kind, int64_t block) { return kind == kFull || block > 3; }), 160);
  with_kv(*decoder, [&](KvStore& store) {
    store.read(prompt, "", all, [](const KvBlock&) { ADD_FAILURE() << "nothing is cached"; });
    return 0;
  });
}

TEST_F(KvStoreTest, AnIncompleteSetOrTooFewPagesChangeNothing) {
  const auto prefiller = engine(), decoder = engine(), small = engine(512);
  const auto prompt   = prompt_of(300);
  const Blocks blocks = prefill(*prefiller, prompt);
  auto list           = list_of(blocks);
  list.erase(list.begin() + 3);
  EXPECT_FALSE(with_kv(*decoder, [&](KvStore& store) { return store.insert(prompt, "", list); }));
  EXPECT_EQ(with_kv(*decoder, [&](KvStore& store) { return store.cached_tokens(prompt, ""); }), 0);

  // A long answer holds most of the pages.
  std::promise<void> begun, ended;
  std::atomic<bool> told = false;
  const auto running =
      small->submit({.prompt = prompt_of(400, 1), .max_tokens = 100}, [&](const RequestOutput& output) {
        if (!told.exchange(true)) begun.set_value();
        if (output.finish) ended.set_value();
      });
  begun.get_future().wait();
  const bool inserted =
      with_kv(*small, [&](KvStore& store) { return store.insert(prompt, "", list_of(blocks)); });
  small->cancel(std::get<RequestId>(running));
  ended.get_future().wait();
  EXPECT_FALSE(inserted);
  EXPECT_TRUE(small->drain(std::chrono::seconds(60)));
  EXPECT_EQ(small->stats().pages_in_use, 0);
}

// An answer cut at any token goes on as if it had not been, whatever its tokens depend on.
TEST_F(KvStoreTest, AResumedAnswerGoesOnWithTheSameTokens) {
  const auto first = engine(), second = engine();
  const std::vector<SamplingParameters> all = {{.temperature = 0},
                                               {.temperature = 1, .top_p = 0.9, .seed = 7},
                                               {.temperature        = 0.8,
                                                .repetition_penalty = 1.3,
                                                .presence_penalty   = 0.5,
                                                .frequency_penalty  = 0.7,
                                                .seed               = 9}};
  for (const SamplingParameters& sampling : all)
    for (const int64_t length : {1, 16, 70}) {
      const auto ask = [&] {
        return Request{.prompt = prompt_of(length), .sampling = sampling, .max_tokens = 40};
      };
      const auto whole = answer(*first, ask()).ids;
      ASSERT_EQ(whole.size(), 40u);
      for (const int64_t cut : {1, 17, 39}) {
        Request rest = ask();
        rest.resumed.assign(whole.begin(), whole.begin() + cut);
        const Answer answered = answer(*second, std::move(rest));
        EXPECT_EQ(answered.ids, std::vector<TokenId>(whole.begin() + cut, whole.end()));
        EXPECT_LE(answered.cached, length);
      }
    }
  Request over{.prompt = {1}, .max_tokens = 2};
  over.resumed = {1, 2};
  EXPECT_TRUE(std::holds_alternative<Refusal>(second->submit(std::move(over), {})));
}

}  // namespace
}  // namespace fathom::engine

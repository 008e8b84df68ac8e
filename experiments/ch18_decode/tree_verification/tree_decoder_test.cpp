#include "tree_decoder.h"

#include <gtest/gtest.h>

#include <future>
#include <vector>

#include "engine/engine.h"
#include "experiments/engine_session.h"

namespace fathom::lab::tree_verification {
namespace {

using engine_session::bundled;
using model::Eagle;
using model::TokenId;

TEST(TreeOf, TakesTheLikeliestPaths) {
  // Place 0: 10 (.6) or 11 (.3); after 10: 20 (.5) or 21 (.4); after 20: 30 (.9).
  const std::vector<std::vector<Eagle::Drafted>> places = {
      {{10, 0.6}, {11, 0.3}}, {{20, 0.5}, {21, 0.4}}, {{30, 0.9}, {31, 0.1}}};
  struct Want {
    TokenId token;
    int64_t parent;
    double probability;
  };
  const std::vector<Want> want = {{10, -1, .6}, {11, -1, .3}, {20, 0, .3},
                                  {30, 2, .27}, {21, 0, .24}, {31, 2, .03}};
  for (const int64_t nodes : {0, 1, 2, 3, 5, 6, 7}) {
    const std::vector<Node> tree = tree_of(places, nodes);
    ASSERT_EQ(std::ssize(tree), std::min<int64_t>(nodes, 6));
    for (size_t n = 0; n < tree.size(); ++n) {
      EXPECT_EQ(tree[n].token, want[n].token) << n;
      EXPECT_EQ(tree[n].parent, want[n].parent) << n;
      EXPECT_NEAR(tree[n].probability, want[n].probability, 1e-12) << n;
    }
  }
  EXPECT_TRUE(tree_of({}, 8).empty());
}

std::vector<int64_t> of_the_engine(engine::Engine& engine, const std::vector<TokenId>& prompt,
                                   int64_t max_tokens) {
  std::vector<int64_t> answer;
  std::promise<void> ended;
  engine::Request request{.prompt = prompt, .sampling = {.temperature = 0}, .max_tokens = max_tokens};
  request.stop_ids = bundled().checkpoint.eos_ids;
  engine.submit(std::move(request), [&](const engine::RequestOutput& output) {
    for (const engine::Sampled& token : output.tokens) answer.push_back(token.id);
    if (output.finish) ended.set_value();
  });
  ended.get_future().wait();
  return answer;
}

// Drafts of any shape, and none, leave the engine's answers as they are: also where the answer is cut off
// within a draft, and where the text has outgrown the window of 64 positions.
TEST(TreeDecoder, AnswersAsTheEngineDoes) {
  engine::EngineConfig config;
  config.max_context = 512, config.kv_tokens = 1024, config.max_sequences = 1;
  auto engine = engine::Engine::start(bundled().checkpoint, config);
  ASSERT_TRUE(engine.has_value());
  struct Case {
    std::vector<TokenId> prompt;
    int64_t max_tokens;
    std::vector<int64_t> answer;
  };
  std::vector<Case> cases;
  for (uint64_t i = 0; i < 4; ++i)
    for (const int64_t max_tokens : {1, 6, 80}) {
      const auto prompt =
          engine_session::prompt_of({.seed = 5, .index = i, .shots = i == 3 ? 3 : 0, .about = 9});
      cases.push_back({prompt, max_tokens, of_the_engine(**engine, prompt, max_tokens)});
    }
  for (const Shape& shape :
       {Shape{}, Shape{1, 1, 1}, Shape{8, 8, 1}, Shape{8, 5, 4}, Shape{16, 7, 6}, Shape{5, 1, 9}}) {
    SCOPED_TRACE(testing::Message() << shape.nodes << " nodes, depth " << shape.depth);
    TreeDecoder decoder(bundled().checkpoint, shape);
    for (const Case& one : cases) EXPECT_EQ(decoder.decode(one.prompt, one.max_tokens), one.answer);
    const TreeDecoder::Counts& counts = decoder.counts();
    EXPECT_EQ(counts.tokens, counts.steps + counts.accepted);
    EXPECT_EQ(counts.rows, counts.steps + counts.drafted);
    if (shape.nodes == 8) {
      EXPECT_GT(counts.accepted, counts.steps / 2);
    }
  }
}

}  // namespace
}  // namespace fathom::lab::tree_verification

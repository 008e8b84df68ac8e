#include "train/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "model/bundled_model.h"
#include "model/tiny_checkpoint.h"

namespace fathom::train {
namespace {

const model::Checkpoint& bundled() {
  static const auto checkpoint =
      model::Checkpoint::open(std::filesystem::path(FATHOM_SOURCE_TREE) / "models/tiny").value();
  return checkpoint;
}

Example parsed(const std::string& line, int64_t max_tokens = 1000) {
  auto example = parse_example(line, bundled(), max_tokens);
  EXPECT_TRUE(example) << (example ? "" : example.error().message);
  return example ? *example : Example();
}
std::string error_of(const std::string& line, int64_t max_tokens = 1000) {
  const auto example = parse_example(line, bundled(), max_tokens);
  EXPECT_FALSE(example) << line;
  return example ? "" : example.error().message;
}
// The text that is learnt.
std::string learnt(const Example& example) {
  std::vector<model::TokenId> ids;
  for (const int32_t target : example.targets)
    if (target >= 0) ids.push_back(target);
  return bundled().tokenizer->decode(ids);
}

TEST(Dataset, AChatLearnsItsAnswer) {
  const auto one = parsed(R"({"prompt": "2+3", "thought": "easy", "answer": "5"})");
  EXPECT_EQ(
      learnt(one),
      "<|channel|>analysis<|message|>easy<|end|><|start|>assistant<|channel|>final<|message|>5<|return|>");
  const auto same = parsed(
      R"({"messages": [{"role": "user", "content": "2+3"}, {"role": "assistant", "content": "5", "thinking": "easy"}]})");
  EXPECT_EQ(one.tokens, same.tokens);
  EXPECT_EQ(one.targets, same.targets);
  // Each target is the next token.
  for (size_t i = 0; i + 1 < one.tokens.size(); ++i)
    EXPECT_TRUE(one.targets[i] < 0 || one.targets[i] == one.tokens[i + 1]) << i;
  EXPECT_EQ(one.targets.back(), -1);
}

TEST(Dataset, PlainTextLearnsWhatFollows) {
  EXPECT_EQ(learnt(parsed(R"({"prompt": "a b", "completion": " c"})")).substr(0, 2), " c");
  const auto ended = parsed(R"({"prompt": "", "completion": "c"})");
  EXPECT_EQ(ended.targets.front(), ended.tokens.back()) << "the token that ends a text";
  const auto text = parsed(R"({"text": "a b c"})");
  EXPECT_EQ(text.counted(), static_cast<int64_t>(text.tokens.size()) - 1);
  const auto ids = parsed(R"({"input_ids": [5, 6, 7, 8], "labels": [-100, -100, 7, 8]})");
  EXPECT_EQ(ids.targets, (std::vector<int32_t>{-1, 7, 8, -1}));
  EXPECT_EQ(parsed(R"({"input_ids": [5, 6, 7]})").targets, (std::vector<int32_t>{6, 7, -1}));
}

TEST(Dataset, LongExamplesAreCut) {
  const auto cut = parsed(R"({"input_ids": [1, 2, 3, 4, 5]})", 3);
  EXPECT_EQ(cut.tokens, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(cut.targets, (std::vector<int32_t>{2, 3, -1}));
  EXPECT_NE(
      error_of(R"({"input_ids": [1, 2, 3, 4], "labels": [-100, -100, -100, 4]})", 3).find("--max-length"),
      std::string::npos);
}

TEST(Dataset, ErrorsSayWhatIsWrong) {
  for (const auto& [line, words] : std::vector<std::pair<std::string, std::string>>{
           {"{", "no JSON"},
           {"[]", "no JSON object"},
           {"{}", "none of"},
           {R"({"messages": []})", "no list"},
           {R"({"messages": [{"role": "user", "content": "x"}]})", "'user'"},
           {R"({"messages": [{"role": "user"}]})", "message 0"},
           {R"({"input_ids": [1, 100000]})", "ids 0 to"},
           {R"({"input_ids": "1 2"})", "no list of token ids"},
           {R"({"input_ids": [1, 2], "labels": [1]})", "1 labels for 2"},
           {R"({"input_ids": [1]})", "nothing to learn"},
           {R"({"input_ids": [1, 2.5]})", "2.5"},
           {R"({"input_ids": [1, [2]]})", "array"},
           {R"({"input_ids": [1, 2], "labels": [1, -1]})", "-1"},
           {R"({"input_ids": [1, 2], "labels": [1, 18446744073709551615]})", "18446744073709551615"},
           {R"({"prompt": "2+3", "answer": 5})", "\"answer\" is no text"},
           {"{\"input_ids\": " + std::string(100'000, '[') + std::string(100'000, ']') + "}", "no JSON"},
           {"{\"text\": \"\xff\"}", "no JSON"}})
    EXPECT_NE(error_of(line).find(words), std::string::npos) << line << ": " << error_of(line);
}

TEST(Dataset, AFileNamesItsLines) {
  const model::TempFolder folder;
  const auto file = folder.path() / "data.jsonl";
  model::write_file(file, "{\"input_ids\": [1, 2]}\n\n{\"input_ids\": [3, 4]}\n");
  EXPECT_EQ(read_examples(file, bundled(), 10).value().size(), 2u);
  model::write_file(file, "{\"input_ids\": [1, 2]}\n\nnonsense\n");
  EXPECT_NE(read_examples(file, bundled(), 10).error().message.find("data.jsonl:3"), std::string::npos);
  model::write_file(file, "\n");
  EXPECT_NE(read_examples(file, bundled(), 10).error().message.find("no examples"), std::string::npos);
  EXPECT_NE(read_examples(folder.path() / "none", bundled(), 10).error().message.find("cannot be read"),
            std::string::npos);
}

TEST(Batches, TakeEachExampleOnceAnEpoch) {
  std::vector<Example> examples;
  for (int32_t i = 0; i < 10; ++i) {
    const std::vector<int32_t> tokens(static_cast<size_t>(1 + i % 4), i);
    examples.push_back({.tokens = tokens, .targets = tokens});
  }
  Batches batches(examples, 6, 1);
  std::vector<int32_t> order;
  while (order.size() < 20) {
    const TokenBatch batch = batches.next();
    EXPECT_LE(batch.tokens.size(), 6u);
    ASSERT_EQ(batch.first_row.back(), static_cast<int64_t>(batch.tokens.size()));
    for (size_t s = 0; s + 1 < batch.first_row.size(); ++s)
      order.push_back(batch.tokens[static_cast<size_t>(batch.first_row[s])]);
  }
  const std::vector<int32_t> first(order.begin(), order.begin() + 10),
      second(order.begin() + 10, order.begin() + 20);
  EXPECT_EQ(std::set<int32_t>(first.begin(), first.end()).size(), 10u);
  EXPECT_EQ(std::set<int32_t>(second.begin(), second.end()).size(), 10u);
  EXPECT_NE(first, second);
  // A batch ends with its epoch.
  Batches large(examples, 1000, 1);
  EXPECT_EQ(large.next().first_row.size(), 11u);
  EXPECT_EQ(large.epochs(), 1);
  // One example with more tokens is a batch of its own.
  Batches single(examples, 1, 1);
  EXPECT_EQ(single.next().first_row.size(), 2u);
}

}  // namespace
}  // namespace fathom::train

#include "load/workload.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "model/byte_level_tokenizer.h"

namespace fathom::load {
namespace {

using Dataset = WorkloadSpec::Dataset;
using Ids     = std::vector<model::TokenId>;

std::vector<Request> made(const WorkloadSpec& spec, int64_t count, uint64_t seed = 1) {
  auto requests = make_workload(spec, count, seed);
  EXPECT_TRUE(requests) << (requests ? "" : requests.error().message);
  return requests ? std::move(*requests) : std::vector<Request>{};
}

class File {
 public:
  explicit File(const std::string& text)
      : path_(std::filesystem::path(testing::TempDir()) /
              fmt::format("workload_{}_{}.jsonl", getpid(), files_++)) {
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  static inline int files_ = 0;
  std::filesystem::path path_;
};

TEST(Workload, RandomPromptsHaveTheirLengthsAndOrdinaryIds) {
  const auto requests = made({.input_len = 100, .output_len = 20, .range_ratio = 0.25}, 2000);
  std::set<int64_t> inputs, outputs;
  std::set<model::TokenId> ids;
  for (const auto& r : requests) {
    EXPECT_EQ(r.input_tokens, static_cast<int64_t>(r.ids.size()));
    inputs.insert(r.input_tokens);
    outputs.insert(r.output_tokens);
    ids.insert(r.ids.begin(), r.ids.end());
  }
  // Every length in 75..125 and 15..25 and every id in 300..799 occurs: 2000 draws miss none.
  EXPECT_EQ(inputs.size(), 51u);
  EXPECT_EQ(*inputs.begin(), 75);
  EXPECT_EQ(outputs.size(), 11u);
  EXPECT_EQ(*outputs.rbegin(), 25);
  EXPECT_EQ(ids.size(), 500u);
  EXPECT_EQ(*ids.begin(), 300);
  EXPECT_EQ(*ids.rbegin(), 799);
}

TEST(Workload, TheSeedDecides) {
  const WorkloadSpec spec{.input_len = 8, .range_ratio = 0.5, .prefix_len = 4};
  const auto ids = [&](uint64_t seed) {
    std::vector<Ids> all;
    for (auto& r : made(spec, 20, seed)) all.push_back(r.ids);
    return all;
  };
  EXPECT_EQ(ids(1), ids(1));
  EXPECT_NE(ids(1), ids(2));
  EXPECT_NE(ids(1)[0], ids(1)[1]);
}

TEST(Workload, PrefixesAreSharedByEquallyManyAndBeginThePrompt) {
  const auto requests = made({.input_len = 6, .prefix_len = 40, .num_prefixes = 4}, 40);
  std::map<Ids, int> prefixes;
  std::set<Ids> own;
  for (const auto& r : requests) {
    ASSERT_EQ(r.ids.size(), 46u);
    ++prefixes[Ids(r.ids.begin(), r.ids.begin() + 40)];
    own.insert(Ids(r.ids.begin() + 40, r.ids.end()));
  }
  EXPECT_EQ(prefixes.size(), 4u);
  for (const auto& [prefix, count] : prefixes) EXPECT_EQ(count, 10);
  EXPECT_EQ(own.size(), 40u);
}

TEST(Workload, ATraceHasTimesLengthsAndSharedBlocks) {
  const File file(
      "{\"timestamp\": 1000, \"input_length\": 600, \"output_length\": 5, \"hash_ids\": [7, 8]}\n\n"
      "{\"timestamp\": 1500.5, \"input_length\": 1024, \"output_length\": 6, \"hash_ids\": [7, 9]}\r\n"
      "{\"timestamp\": 4000, \"prompt\": [3, 1], \"output_length\": 7}");
  const auto requests = made({.dataset = Dataset::trace, .path = file.path()}, 0);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_DOUBLE_EQ(*requests[0].at_s, 0);
  EXPECT_DOUBLE_EQ(*requests[1].at_s, 0.5005);
  EXPECT_DOUBLE_EQ(*requests[2].at_s, 3);
  const Ids &a = requests[0].ids, &b = requests[1].ids;
  ASSERT_EQ(a.size(), 600u);
  ASSERT_EQ(b.size(), 1024u);
  EXPECT_TRUE(std::equal(a.begin(), a.begin() + 512, b.begin()));
  EXPECT_FALSE(std::equal(a.begin() + 512, a.end(), b.begin() + 512));
  EXPECT_EQ(requests[2].ids, (Ids{3, 1}));
  EXPECT_EQ(requests[1].output_tokens, 6);
}

TEST(Workload, AFileStartsAgainWithoutTimesAndIsCutToTheCount) {
  const File file(
      "{\"timestamp\": 0, \"input_length\": 2, \"output_length\": 1}\n"
      "{\"timestamp\": 9, \"input_length\": 3, \"output_length\": 1}\n");
  const WorkloadSpec spec{.dataset = Dataset::trace, .path = file.path()};
  EXPECT_EQ(made(spec, 1).size(), 1u);
  const auto five = made(spec, 5);
  ASSERT_EQ(five.size(), 5u);
  EXPECT_EQ(five[4].input_tokens, 2);
  EXPECT_TRUE(five[1].at_s);
  EXPECT_FALSE(five[2].at_s);
}

TEST(Workload, CustomLinesAndShareGptConversations) {
  const File file(
      "{\"prompt\": \"Hello\", \"output_tokens\": 9}\n"
      "{\"conversations\": [{\"from\": \"human\", \"value\": \"Why?\"}, {\"from\": \"gpt\", \"value\": "
      "\"So\"}]}\n"
      "{\"prompt\": [1, 2, 3]}\n");
  const auto requests = made({.dataset = Dataset::custom, .output_len = 33, .path = file.path()}, 0);
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_EQ(requests[0].text, "Hello");
  EXPECT_EQ(requests[0].output_tokens, 9);
  EXPECT_EQ(requests[1].text, "Why?");
  EXPECT_EQ(requests[1].output_tokens, 33);
  EXPECT_EQ(requests[2].ids, (Ids{1, 2, 3}));
}

TEST(Workload, WhatAFileHasWrongIsNamedWithItsLine) {
  const std::string good = "{\"timestamp\": 5, \"input_length\": 2, \"output_length\": 1}\n";
  const struct {
    Dataset dataset;
    std::string line, named;
  } kCases[] = {
      {Dataset::trace, "nonsense", "not a JSON object"},
      {Dataset::trace, "[1]", "not a JSON object"},
      {Dataset::trace, "{\"input_length\": 2, \"output_length\": 1}", "'timestamp'"},
      {Dataset::trace, "{\"timestamp\": \"9\", \"input_length\": 2, \"output_length\": 1}", "'timestamp'"},
      {Dataset::trace, "{\"timestamp\": -1, \"input_length\": 2, \"output_length\": 1}", "'timestamp'"},
      {Dataset::trace, "{\"timestamp\": 1e300, \"input_length\": 2, \"output_length\": 1}", "'timestamp'"},
      {Dataset::trace, "{\"timestamp\": 9, \"input_length\": 0, \"output_length\": 1}", "'input_length'"},
      {Dataset::trace, "{\"timestamp\": 9, \"input_length\": 1e9, \"output_length\": 1}", "'input_length'"},
      {Dataset::trace, "{\"timestamp\": 9, \"input_length\": 99999999999, \"output_length\": 1}",
       "'input_length'"},
      {Dataset::trace, "{\"timestamp\": 9, \"input_length\": 4}", "'output_length'"},
      {Dataset::trace, "{\"timestamp\": 9, \"input_length\": 4, \"output_length\": 1, \"hash_ids\": []}",
       "'hash_ids'"},
      {Dataset::trace, "{\"timestamp\": 9, \"input_length\": 4, \"output_length\": 1, \"hash_ids\": [\"a\"]}",
       "'hash_ids'"},
      {Dataset::trace, "{\"timestamp\": 9, \"prompt\": \"\", \"output_length\": 1}", "'prompt'"},
      {Dataset::trace, "{\"timestamp\": 9, \"prompt\": [1.5], \"output_length\": 1}", "'prompt'"},
      {Dataset::trace, "{\"timestamp\": 9, \"prompt\": [-1], \"output_length\": 1}", "'prompt'"},
      {Dataset::trace, "{\"timestamp\": 9, \"prompt\": [2147483648], \"output_length\": 1}", "'prompt'"},
      {Dataset::custom, "{}", "'prompt'"},
      {Dataset::custom, "{\"conversations\": []}", "'conversations'"},
      {Dataset::custom, "{\"conversations\": [3]}", "'conversations'"},
      {Dataset::custom, "{\"prompt\": \"a\", \"output_tokens\": 0}", "'output_tokens'"},
  };
  for (const auto& [dataset, line, named] : kCases) {
    const File file((dataset == Dataset::trace ? good : "{\"prompt\": \"a\"}\n") + line + "\n");
    const auto refused = make_workload({.dataset = dataset, .path = file.path()}, 0, 1);
    ASSERT_FALSE(refused) << line;
    EXPECT_NE(refused.error().message.find(file.path() + ":2: "), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find(named), std::string::npos) << refused.error().message;
  }
  const File unsorted(good + "{\"timestamp\": 4, \"input_length\": 2, \"output_length\": 1}\n"),
      empty("\n \n");
  EXPECT_FALSE(make_workload({.dataset = Dataset::trace, .path = empty.path()}, 0, 1));
  EXPECT_FALSE(make_workload({.dataset = Dataset::trace, .path = "/nowhere/at.jsonl"}, 0, 1));
}

// Ids of the letters a to z; "ab" is one token when the text is encoded.
TEST(Workload, RandomIdsBecomeTextOfAsManyTokens) {
  const auto tokenizer =
      model::Tokenizer::parse(model::byte_level_tokenizer_json({{"a", "b"}, {"c", "d"}}).dump(), "t");
  ASSERT_TRUE(tokenizer);
  auto requests = made({.input_len = 300, .first_id = 'a', .end_id = 'z' + 1}, 30);
  ASSERT_TRUE(write_as_text(requests, *tokenizer));
  int joined = 0;
  for (const auto& r : requests) {
    EXPECT_TRUE(r.ids.empty());
    EXPECT_EQ(r.input_tokens, static_cast<int64_t>(tokenizer->encode(r.text)->size()));
    EXPECT_NEAR(static_cast<double>(r.input_tokens), 300, 1);
    joined += r.text.size() > 300;
  }
  EXPECT_GT(joined, 0) << "no prompt had two tokens that join: the test proves nothing";

  auto again = requests;
  ASSERT_TRUE(write_as_ids(again, *tokenizer));
  for (size_t i = 0; i < again.size(); ++i) EXPECT_EQ(again[i].ids, *tokenizer->encode(requests[i].text));
}

}  // namespace
}  // namespace fathom::load

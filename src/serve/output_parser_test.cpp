#include "serve/output_parser.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "core/utf8.h"
#include "serve/stop_strings_reference.h"

namespace fathom::serve {
namespace {

using model::TokenId;

const model::Tokenizer& bundled_tokenizer() {
  static const auto kTokenizer =
      model::Tokenizer::load(FATHOM_SOURCE_TREE "/models/tiny/tokenizer.json").value();
  return kTokenizer;
}

std::vector<TokenId> token_ids(std::string_view text) {
  return bundled_tokenizer().encode(text, model::AddedTokens::recognised).value();
}

OutputParser::Options harmony() {
  return {.harmony = model::HarmonyTokens::find(bundled_tokenizer()).value(), .tool_calls = true};
}

// One line for each message, R(easoning), C(ontent) or F(unction call), however its text was cut.
std::string lines(const std::vector<OutputDelta>& pieces) {
  std::string text;
  for (const OutputDelta& piece : pieces) {
    EXPECT_TRUE(is_well_formed(piece.text));
    if (piece.begins)
      text += std::string(text.empty() ? "" : "\n") + "RCF"[static_cast<int>(piece.kind)] + ":";
    text += piece.text + (piece.kind == OutputDelta::Kind::tool_call ? "=" : "");
  }
  return text;
}

// Feeds the tokens one by one, with new deltas for each; joined, they must equal the deltas of a single run.
std::vector<OutputDelta> pieces_of(std::string_view output, const OutputParser::Options& options) {
  OutputParser one(bundled_tokenizer(), options), all(bundled_tokenizer(), options);
  std::vector<OutputDelta> joined, at_once;
  for (const TokenId id : token_ids(output)) {
    std::vector<OutputDelta> pieces;
    one.add({.id = id}, pieces);
    joined.insert(joined.end(), pieces.begin(), pieces.end());
    all.add({.id = id}, at_once);
  }
  one.finish(joined);
  all.finish(at_once);
  EXPECT_EQ(lines(joined), lines(at_once));
  return joined;
}

TEST(OutputParser, TellsReasoningContentAndCallsApart) {
  const std::string
      reasoning = "<|channel|>analysis<|message|>2 + 2é<|end|>",
      preamble  = "<|start|>assistant<|channel|>commentary<|message|>Let me see.<|end|>",
      call =
          "<|start|>assistant<|channel|>commentary to=functions.add <|constrain|>json<|message|>"
          "{\"a\": 2}<|call|>",
      answer = "<|start|>assistant<|channel|>final<|message|>4 €.<|return|>";
  EXPECT_EQ(lines(pieces_of(reasoning + answer, harmony())), "R:2 + 2é\nC:4 €.");
  EXPECT_EQ(lines(pieces_of(reasoning + preamble + call, harmony())),
            "R:2 + 2é\nC:Let me see.\nF:add={\"a\": 2}");
  EXPECT_EQ(lines(pieces_of(call + call, harmony())), "F:add={\"a\": 2}\nF:add={\"a\": 2}");
  EXPECT_EQ(lines(pieces_of("just text", harmony())), "C:just text");
  EXPECT_EQ(lines(pieces_of("", harmony())), "");
}

TEST(OutputParser, ACallNobodyOfferedIsContent) {
  OutputParser::Options options = harmony();
  options.tool_calls            = false;
  EXPECT_EQ(lines(pieces_of("<|channel|>commentary to=functions.add<|message|>{}<|call|>", options)), "C:{}");
  EXPECT_EQ(lines(pieces_of("<|channel|>commentary to=browser.open<|message|>{}<|call|>", harmony())),
            "C:{}");
}

TEST(OutputParser, StopStringsAreOfContentOnly) {
  OutputParser::Options options = harmony();
  options.stop_strings          = {"+", "{"};
  const std::string thought     = "<|channel|>analysis<|message|>2 + 2<|end|><|start|>assistant<|channel|>",
                    call = "commentary to=functions.f<|message|>{}<|call|>", answer = "final<|message|>1 + 1";
  EXPECT_EQ(lines(pieces_of(thought + call, options)), "R:2 + 2\nF:f={}");
  EXPECT_EQ(lines(pieces_of(thought + answer, options)), "R:2 + 2\nC:1 ");
  // A tail that could have become a stop string belongs to its own message.
  options.stop_strings = {".<"};
  EXPECT_EQ(lines(pieces_of(
                "<|channel|>commentary<|message|>Hm.<|end|><|start|>assistant<|channel|>" + answer, options)),
            "C:Hm.\nC:1 + 1");
}

TEST(OutputParser, CountsTokens) {
  OutputParser text(bundled_tokenizer(), harmony());
  std::vector<OutputDelta> pieces;
  const auto thought = token_ids("a thought"), all = token_ids(
                                                   "<|channel|>analysis<|message|>a thought<|end|><|start|>"
                                                   "assistant<|channel|>final<|message|>4<|return|>");
  for (const TokenId id : all) text.add({.id = id}, pieces);
  text.finish(pieces);
  EXPECT_EQ(text.tokens(), static_cast<int64_t>(all.size()));
  EXPECT_GE(text.reasoning_tokens(), static_cast<int64_t>(thought.size()));
  EXPECT_LT(text.reasoning_tokens(), text.tokens());
}

TEST(OutputParser, StopTokensAreNotShownUnlessKept) {
  const auto ids = token_ids("ab#");
  OutputParser::Options options{.stop_token_ids = {ids.back()}};
  EXPECT_EQ(lines(pieces_of("ab#", options)), "C:ab");
  options.keep_stop = true;
  EXPECT_EQ(lines(pieces_of("ab#", options)), "C:ab#");
  OutputParser text(bundled_tokenizer(), options);
  std::vector<OutputDelta> pieces;
  EXPECT_TRUE(std::holds_alternative<std::monostate>(text.stop_reason()));
  for (const TokenId id : ids) text.add({.id = id}, pieces);
  EXPECT_EQ(std::get<TokenId>(text.stop_reason()), ids.back());
  OutputParser ended(bundled_tokenizer(), {.eos_ids = {ids.back()}, .stop_token_ids = {ids.back()}});
  for (const TokenId id : ids) ended.add({.id = id}, pieces);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(ended.stop_reason()));
}

TEST(OutputParser, StopStringsDoNotCountBeforeMinTokens) {
  const auto ids = token_ids("#a#b");
  OutputParser text(bundled_tokenizer(), {.stop_strings = {"#"}, .min_tokens = 1});
  std::vector<OutputDelta> pieces;
  for (const TokenId id : ids) text.add({.id = id}, pieces);
  text.finish(pieces);
  EXPECT_EQ(lines(pieces), "C:#a");
  EXPECT_EQ(std::get<std::string>(text.stop_reason()), "#");
}

// Random texts, stop strings and tokens, including merged tokens and single bytes of a character.
TEST(OutputParser, ShowsTheTextUpToTheStop) {
  std::mt19937 random(11);
  const auto below   = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto text_of = [&](size_t count) {
    const std::array<std::string, 7> alphabet = {"a", "b", " ", "é", "€", "è", "😀"};
    std::string text;
    for (; count > 0; --count) text += alphabet[below(alphabet.size())];
    return text;
  };
  int64_t hits = 0, held = 0;
  for (int round = 0; round < 4000; ++round) {
    OutputParser::Options options{.keep_stop = below(2) == 0};
    if (below(2) == 0) options = harmony();
    options.stop_strings.resize(below(4));
    for (std::string& stop : options.stop_strings) stop = text_of(1 + below(4));
    const std::string content = text_of(below(30));
    const auto header         = token_ids(options.harmony ? "<|channel|>final<|message|>" : "");
    const auto ids            = token_ids(content);

    OutputParser text(bundled_tokenizer(), options);
    std::vector<OutputDelta> all;
    for (const TokenId id : header) text.add({.id = id, .logprob = -1}, all);
    ASSERT_TRUE(all.empty());
    std::string shown;
    std::vector<TokenId> tokens;
    const auto take = [&](const std::vector<OutputDelta>& pieces) {
      for (const OutputDelta& piece : pieces) {
        ASSERT_FALSE(piece.text.empty());
        ASSERT_TRUE(is_well_formed(piece.text));
        for (const ContentToken& token : piece.tokens) {
          // A token arrives with its first character and has that character's offset.
          ASSERT_GE(token.offset, characters(shown));
          ASSERT_LT(token.offset, characters(shown + piece.text));
          tokens.push_back(token.sampled.id);
        }
        shown += piece.text;
      }
    };
    for (const TokenId id : ids) {
      std::vector<OutputDelta> pieces;
      text.add({.id = id, .logprob = -1}, pieces);
      held += pieces.empty();
      take(pieces);
    }
    std::vector<OutputDelta> pieces;
    text.finish(pieces);
    take(pieces);

    const std::string expected = up_to_stop(content, options.stop_strings, options.keep_stop);
    ASSERT_EQ(shown, expected) << content;
    hits += text.stopped();
    // The tokens shown are the first ones, exactly as many as the text needs.
    ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), ids.begin()));
    const std::string spelt = bundled_tokenizer().decode(tokens);
    ASSERT_TRUE(spelt.starts_with(shown) || shown.empty());
    ASSERT_TRUE(text.stopped() || tokens.size() == ids.size());
    if (!tokens.empty()) {
      tokens.pop_back();
      ASSERT_LT(bundled_tokenizer().decode(tokens).size(), shown.size() + 4);
    }
  }
  EXPECT_GT(hits, 1000);
  EXPECT_GT(held, 1000);
}

}  // namespace
}  // namespace fathom::serve

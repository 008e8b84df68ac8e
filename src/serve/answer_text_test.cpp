#include "serve/answer_text.h"

#include <gtest/gtest.h>

#include <array>
#include <random>

#include "model/utf8.h"
#include "serve/stop_reference.h"

namespace fathom::serve {
namespace {

using model::TokenId;

const model::Tokenizer& tokenizer() {
  static const auto kTokenizer =
      model::Tokenizer::load(FATHOM_SOURCE_TREE "/models/tiny/tokenizer.json").value();
  return kTokenizer;
}

std::vector<TokenId> ids_of(std::string_view text) {
  return tokenizer().encode(text, model::AddedTokens::recognised).value();
}

AnswerText::Options harmony() {
  return {.harmony = model::HarmonyTokens::find(tokenizer()).value(), .tool_calls = true};
}

// One line a message, R(easoning), C(ontent) or F(unction call), however its text was cut.
std::string lines(const std::vector<Piece>& pieces) {
  std::string text;
  for (const Piece& piece : pieces) {
    EXPECT_TRUE(model::is_well_formed(piece.text));
    if (piece.begins)
      text += std::string(text.empty() ? "" : "\n") + "RCF"[static_cast<int>(piece.kind)] + ":";
    text += piece.text + (piece.kind == Piece::Kind::call ? "=" : "");
  }
  return text;
}

// The tokens one by one, each in pieces of its own; joined they must be what comes of all in one go.
std::vector<Piece> pieces_of(std::string_view output, const AnswerText::Options& options) {
  AnswerText one(tokenizer(), options), all(tokenizer(), options);
  std::vector<Piece> joined, at_once;
  for (const TokenId id : ids_of(output)) {
    std::vector<Piece> pieces;
    one.add({.id = id}, pieces);
    joined.insert(joined.end(), pieces.begin(), pieces.end());
    all.add({.id = id}, at_once);
  }
  one.finish(joined);
  all.finish(at_once);
  EXPECT_EQ(lines(joined), lines(at_once));
  return joined;
}

TEST(AnswerText, TellsReasoningContentAndCallsApart) {
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

TEST(AnswerText, ACallNobodyOfferedIsContent) {
  AnswerText::Options options = harmony();
  options.tool_calls          = false;
  EXPECT_EQ(lines(pieces_of("<|channel|>commentary to=functions.add<|message|>{}<|call|>", options)), "C:{}");
  EXPECT_EQ(lines(pieces_of("<|channel|>commentary to=browser.open<|message|>{}<|call|>", harmony())),
            "C:{}");
}

TEST(AnswerText, StopStringsAreOfContentOnly) {
  AnswerText::Options options = harmony();
  options.stop_strings        = {"+", "{"};
  const std::string thought   = "<|channel|>analysis<|message|>2 + 2<|end|><|start|>assistant<|channel|>",
                    call = "commentary to=functions.f<|message|>{}<|call|>", answer = "final<|message|>1 + 1";
  EXPECT_EQ(lines(pieces_of(thought + call, options)), "R:2 + 2\nF:f={}");
  EXPECT_EQ(lines(pieces_of(thought + answer, options)), "R:2 + 2\nC:1 ");
  // A tail that might have become a stop belongs to its own message.
  options.stop_strings = {".<"};
  EXPECT_EQ(lines(pieces_of(
                "<|channel|>commentary<|message|>Hm.<|end|><|start|>assistant<|channel|>" + answer, options)),
            "C:Hm.\nC:1 + 1");
}

TEST(AnswerText, CountsTokens) {
  AnswerText text(tokenizer(), harmony());
  std::vector<Piece> pieces;
  const auto thought = ids_of("a thought"), all = ids_of(
                                                "<|channel|>analysis<|message|>a thought<|end|><|start|>"
                                                "assistant<|channel|>final<|message|>4<|return|>");
  for (const TokenId id : all) text.add({.id = id}, pieces);
  text.finish(pieces);
  EXPECT_EQ(text.tokens(), static_cast<int64_t>(all.size()));
  EXPECT_GE(text.reasoning_tokens(), static_cast<int64_t>(thought.size()));
  EXPECT_LT(text.reasoning_tokens(), text.tokens());
}

TEST(AnswerText, StopTokensAreNotShownUnlessKept) {
  const auto ids = ids_of("ab#");
  AnswerText::Options options{.stop_token_ids = {ids.back()}};
  EXPECT_EQ(lines(pieces_of("ab#", options)), "C:ab");
  options.keep_stop = true;
  EXPECT_EQ(lines(pieces_of("ab#", options)), "C:ab#");
  AnswerText text(tokenizer(), options);
  std::vector<Piece> pieces;
  EXPECT_TRUE(std::holds_alternative<std::monostate>(text.stop_reason()));
  for (const TokenId id : ids) text.add({.id = id}, pieces);
  EXPECT_EQ(std::get<TokenId>(text.stop_reason()), ids.back());
  AnswerText ended(tokenizer(), {.eos_ids = {ids.back()}, .stop_token_ids = {ids.back()}});
  for (const TokenId id : ids) ended.add({.id = id}, pieces);
  EXPECT_TRUE(std::holds_alternative<std::monostate>(ended.stop_reason()));
}

TEST(AnswerText, StopStringsDoNotCountBeforeMinTokens) {
  const auto ids = ids_of("#a#b");
  AnswerText text(tokenizer(), {.stop_strings = {"#"}, .min_tokens = 1});
  std::vector<Piece> pieces;
  for (const TokenId id : ids) text.add({.id = id}, pieces);
  text.finish(pieces);
  EXPECT_EQ(lines(pieces), "C:#a");
  EXPECT_EQ(std::get<std::string>(text.stop_reason()), "#");
}

// Texts of random characters, stop strings and tokens: merged ones, and bytes of a character one by one.
TEST(AnswerText, ShowsTheTextUpToTheStop) {
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
    AnswerText::Options options{.keep_stop = below(2) == 0};
    if (below(2) == 0) options = harmony();
    options.stop_strings.resize(below(4));
    for (std::string& stop : options.stop_strings) stop = text_of(1 + below(4));
    const std::string content = text_of(below(30));
    const auto header         = ids_of(options.harmony ? "<|channel|>final<|message|>" : "");
    const auto ids            = ids_of(content);

    AnswerText text(tokenizer(), options);
    std::vector<Piece> all;
    for (const TokenId id : header) text.add({.id = id, .logprob = -1}, all);
    ASSERT_TRUE(all.empty());
    std::string shown;
    std::vector<TokenId> tokens;
    const auto take = [&](const std::vector<Piece>& pieces) {
      for (const Piece& piece : pieces) {
        ASSERT_FALSE(piece.text.empty());
        ASSERT_TRUE(model::is_well_formed(piece.text));
        for (const ShownToken& token : piece.tokens) {
          // It comes with its first character, and knows where that is.
          ASSERT_GE(token.offset, characters(shown));
          ASSERT_LT(token.offset, characters(shown + piece.text));
          tokens.push_back(token.sampled.id);
        }
        shown += piece.text;
      }
    };
    for (const TokenId id : ids) {
      std::vector<Piece> pieces;
      text.add({.id = id, .logprob = -1}, pieces);
      held += pieces.empty();
      take(pieces);
    }
    std::vector<Piece> pieces;
    text.finish(pieces);
    take(pieces);

    const std::string expected = up_to_stop(content, options.stop_strings, options.keep_stop);
    ASSERT_EQ(shown, expected) << content;
    hits += text.stopped();
    // The tokens shown are the first ones, just enough for the text.
    ASSERT_TRUE(std::equal(tokens.begin(), tokens.end(), ids.begin()));
    const std::string spelt = tokenizer().decode(tokens);
    ASSERT_TRUE(spelt.starts_with(shown) || shown.empty());
    ASSERT_TRUE(text.stopped() || tokens.size() == ids.size());
    if (!tokens.empty()) {
      tokens.pop_back();
      ASSERT_LT(tokenizer().decode(tokens).size(), shown.size() + 4);
    }
  }
  EXPECT_GT(hits, 1000);
  EXPECT_GT(held, 1000);
}

}  // namespace
}  // namespace fathom::serve

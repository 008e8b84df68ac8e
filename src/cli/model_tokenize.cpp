// fathom model tokenize: the tokens of texts on standard input.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/usage_error.h"
#include "cli/verbs.h"
#include "core/exit_code.h"
#include "model/tokenizer.h"

namespace fathom::cli {
namespace {

using nlohmann::json;

struct TokenizeFlags {
  std::string folder;
  bool json = false, added_tokens = false;
};

// Reads one JSON string a line and writes one list of ids a line.
void tokenize_lines(const model::Tokenizer& tokenizer, model::AddedTokens added) {
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    const json text = json::parse(line, nullptr, false);
    if (!text.is_string())
      throw UsageError(
          fmt::format("line {} of standard input is no JSON string, such as \"a text\"", number));
    const auto ids = value_or_usage_error(tokenizer.encode(text.get_ref<const std::string&>(), added));
    fmt::print("{}\n", json(ids).dump());
  }
}

// Reads the whole input as one text and writes one token a line.
void tokenize_text(const model::Tokenizer& tokenizer, model::AddedTokens added) {
  const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
  for (const model::TokenId id : value_or_usage_error(tokenizer.encode(text, added)))
    fmt::print("{:>7}  {}\n", id, json(tokenizer.decode({&id, 1})).dump());
}

}  // namespace

void add_model_tokenize(CLI::App& model_verb, int& exit_code) {
  auto flags     = std::make_shared<TokenizeFlags>();
  CLI::App& verb = *model_verb.add_subcommand("tokenize", "The tokens of a text on standard input");
  verb.add_option("folder", flags->folder, "With tokenizer.json")->required();
  verb.add_flag("--json", flags->json, "Read one JSON string a line; print a list of token ids for each");
  verb.add_flag("--added-tokens", flags->added_tokens,
                "Take <|start|> and its like for tokens, not for text");
  verb.callback([flags, &exit_code] {
    const auto tokenizer =
        value_or_usage_error(model::Tokenizer::load(std::filesystem::path(flags->folder) / "tokenizer.json"));
    const auto added = flags->added_tokens ? model::AddedTokens::recognised : model::AddedTokens::as_text;
    flags->json ? tokenize_lines(tokenizer, added) : tokenize_text(tokenizer, added);
    exit_code = kExitOk;
  });
}

}  // namespace fathom::cli

#include "lab/source_tokens.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace fathom::lab {
namespace {

bool is_name(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Longest first, so that the first match is the longest.
constexpr std::array<std::string_view, 28> kOperators = {
    "<<<", ">>>", "<<=", ">>=", "<=>", "->*", "...", "::", "->", ".*", "++", "--", "&&", "||",
    "<<",  ">>",  "<=",  ">=",  "==",  "!=",  "+=",  "-=", "*=", "/=", "%=", "&=", "|=", "^="};

class Lexer {
 public:
  explicit Lexer(std::string_view source) : rest_(source) {}

  SourceTokens run() {
    while (skip_space_and_comments()) {
      const std::string_view token = next();
      if (token.empty()) continue;
      emit(token);
    }
    end_line();
    flush();
    return std::move(tokens_);
  }

 private:
  static constexpr std::string_view kEndOfDirective = "#end";

  // False at the end of the source.
  bool skip_space_and_comments() {
    while (!rest_.empty()) {
      if (rest_.starts_with("//")) {
        drop(line_end());
      } else if (rest_.starts_with("/*")) {
        const size_t end = rest_.find("*/", 2);
        drop(end == std::string_view::npos ? rest_.size() : end + 2);
      } else if (rest_.starts_with("\\\n")) {
        drop(2);
      } else if (rest_.front() == '\n') {
        end_line();
        drop(1);
        at_line_start_ = true;
      } else if (std::isspace(static_cast<unsigned char>(rest_.front()))) {
        drop(1);
      } else {
        return true;
      }
    }
    return false;
  }

  // The end of the line, past lines that a backslash continues.
  size_t line_end() const {
    size_t end = rest_.find('\n');
    while (end != std::string_view::npos && end > 0 && rest_[end - 1] == '\\')
      end = rest_.find('\n', end + 1);
    return std::min(end, rest_.size());
  }

  void end_line() {
    if (directive_.empty()) return;
    flush();
    if (directive_ == "#pragma once")
      tokens_.text.resize(directive_began_);
    else
      put(kEndOfDirective);
    directive_.clear();
  }

  std::string_view next() {
    if (is_name(rest_.front())) {
      size_t n = 0;
      while (n < rest_.size() && is_name(rest_[n])) ++n;
      const std::string_view name = rest_.substr(0, n);
      if (n < rest_.size() && rest_[n] == '"' && is_prefix(name)) return literal(n);
      if (n < rest_.size() && rest_[n] == '\'' && is_prefix(name) && name.back() != 'R') return literal(n);
      return take(std::isdigit(static_cast<unsigned char>(rest_.front())) ? number_length() : n);
    }
    if (rest_.front() == '.' && rest_.size() > 1 && std::isdigit(static_cast<unsigned char>(rest_[1])))
      return take(number_length());
    if (rest_.front() == '"' || rest_.front() == '\'') return literal(0);
    if (directive_ == "#include" && rest_.front() == '<')
      return take(std::min(rest_.find('>'), line_end() - 1) + 1);
    for (const std::string_view op : kOperators)
      if (rest_.starts_with(op)) return take(op.size());
    return take(1);
  }

  static bool is_prefix(std::string_view name) {
    return name == "R" || name == "u8" || name == "u" || name == "U" || name == "L" || name == "u8R" ||
           name == "uR" || name == "UR" || name == "LR";
  }

  // 1'000'000, 1.5e-3f, 0x1p-4
  size_t number_length() const {
    size_t n = 1;
    for (; n < rest_.size(); ++n) {
      const char c    = rest_[n];
      const char last = static_cast<char>(std::tolower(static_cast<unsigned char>(rest_[n - 1])));
      const bool sign = (c == '+' || c == '-') && (last == 'p' || (last == 'e' && !rest_.starts_with("0x")));
      const bool tick = c == '\'' && n + 1 < rest_.size() && is_name(rest_[n + 1]);
      if (!is_name(c) && c != '.' && !sign && !tick) break;
    }
    return n;
  }

  // A string or a character, behind a prefix of so many characters.
  std::string_view literal(size_t prefix) {
    if (prefix > 0 && rest_[prefix - 1] == 'R') {
      const size_t open       = rest_.find('(', prefix);
      const std::string close = ")" + std::string(rest_.substr(prefix + 1, open - prefix - 1)) + "\"";
      const size_t end        = rest_.find(close, open);
      return take(end == std::string_view::npos ? rest_.size() : end + close.size());
    }
    const char quote = rest_[prefix];
    size_t n         = prefix + 1;
    while (n < rest_.size() && rest_[n] != quote && rest_[n] != '\n') n += rest_[n] == '\\' ? 2 : 1;
    return take(std::min(n + 1, rest_.size()));
  }

  void emit(std::string_view token) {
    if (token == "#" && at_line_start_) {
      flush();
      directive_       = "#";
      directive_began_ = tokens_.text.size();
    } else if (directive_ == "#") {
      directive_ += token;
    } else if (directive_ == "#pragma" && token == "once") {
      directive_ = "#pragma once";
    } else if (directive_ == "#include" && token.front() == '"') {
      tokens_.quoted_includes.emplace_back(token.substr(1, token.size() - 2));
    }
    at_line_start_   = false;
    const bool plain = token.size() >= 2 && token.front() == '"' && token.back() == '"';
    if (plain && !string_.empty()) {
      string_.back() = token[1];  // in place of the quote that closed the one before
      string_.append(token.substr(2));
    } else {
      flush();
      if (plain)
        string_ = token;
      else
        put(token);
    }
  }
  void flush() {
    if (string_.empty()) return;
    put(string_);
    string_.clear();
  }
  void put(std::string_view token) {
    tokens_.text += token;
    tokens_.text += '\n';
  }

  std::string_view take(size_t n) {
    const std::string_view token = rest_.substr(0, n);
    drop(n);
    return token;
  }
  void drop(size_t n) { rest_.remove_prefix(n); }

  std::string_view rest_;
  bool at_line_start_ = true;
  std::string directive_;  // "#include" while one is read
  size_t directive_began_ = 0;
  std::string string_;  // a literal that the next may continue
  SourceTokens tokens_;
};

}  // namespace

SourceTokens tokens_of(std::string_view source) { return Lexer(source).run(); }

}  // namespace fathom::lab

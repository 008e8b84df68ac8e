#include "report/markdown.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "lab/quantity.h"

namespace fathom::report {
namespace {

using lab::escape;

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

// The text between `mark` at the start of `text` and the next one; empty if there is none.
std::string_view enclosed(std::string_view text, std::string_view mark) {
  if (!text.starts_with(mark)) return {};
  const size_t end = text.find(mark, mark.size());
  return end == std::string_view::npos ? std::string_view() : text.substr(mark.size(), end - mark.size());
}

// "- item" or "3. item": the width of what marks it, 0 for any other line.
size_t item_mark(std::string_view line) {
  if (line.starts_with("- ") || line.starts_with("* ")) return 2;
  const size_t digits = line.find_first_not_of("0123456789");
  return digits != std::string_view::npos && digits > 0 && line.substr(digits).starts_with(". ") ? digits + 2
                                                                                                 : 0;
}

size_t heading_level(std::string_view line) {
  const size_t level = line.find_first_not_of('#');
  return level != std::string_view::npos && level >= 1 && level <= 6 && line[level] == ' ' ? level : 0;
}

std::vector<std::string_view> table_cells(std::string_view line) {
  line = trimmed(line);
  line.remove_prefix(1);
  if (line.ends_with('|')) line.remove_suffix(1);
  std::vector<std::string_view> cells;
  bool code    = false;
  size_t begin = 0;
  for (size_t i = 0; i <= line.size(); ++i) {
    if (i < line.size() && line[i] == '`') code = !code;
    if (i < line.size() && (line[i] != '|' || code)) continue;
    cells.push_back(trimmed(line.substr(begin, i - begin)));
    begin = i + 1;
  }
  return cells;
}

bool is_table_rule(std::string_view line) {
  return line.starts_with('|') && line.find_first_not_of("|-: ") == std::string_view::npos;
}

// Reads blocks from lines; a block ends where a line of another kind begins.
class MarkdownBlocks {
 public:
  explicit MarkdownBlocks(std::string_view text) {
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      lines_.push_back(text.substr(0, end));
      text.remove_prefix(std::min(end + 1, text.size()));
    }
  }

  std::string html(bool skip_title) {
    std::string out;
    while (at_ < lines_.size()) {
      const std::string_view line = trimmed(lines_[at_]);
      if (line.empty())
        ++at_;
      else if (line.starts_with("```"))
        out += code_block();
      else if (line.starts_with('|'))
        out += table();
      else if (item_mark(line) > 0)
        out += list();
      else if (const size_t level = heading_level(line); level > 0) {
        ++at_;
        if (level > 1 || !skip_title)
          out += fmt::format("<h6>{}</h6>\n", inline_html(trimmed(line.substr(level))));
      } else
        out += "<p>" + paragraph() + "</p>\n";
    }
    return out;
  }

 private:
  bool ends_paragraph(std::string_view line) const {
    return line.empty() || line.starts_with("```") || line.starts_with('|') || item_mark(line) > 0 ||
           heading_level(line) > 0;
  }

  std::string paragraph() {
    std::string text;
    do {
      text += (text.empty() ? "" : " ") + std::string(trimmed(lines_[at_++]));
    } while (at_ < lines_.size() && !ends_paragraph(trimmed(lines_[at_])));
    return inline_html(text);
  }

  std::string code_block() {
    std::string code;
    for (++at_; at_ < lines_.size() && !trimmed(lines_[at_]).starts_with("```"); ++at_)
      code += escape(lines_[at_]) + "\n";
    ++at_;
    return "<pre>" + code + "</pre>\n";
  }

  std::string list() {
    const char* tag = std::isdigit(static_cast<unsigned char>(trimmed(lines_[at_])[0])) ? "ol" : "ul";
    std::string items;
    while (at_ < lines_.size()) {
      const std::string_view line = trimmed(lines_[at_]);
      const size_t mark           = item_mark(line);
      if (mark == 0) break;
      lines_[at_] = line.substr(mark);
      items += "<li>" + paragraph() + "</li>\n";
    }
    return fmt::format("<{0}>\n{1}</{0}>\n", tag, items);
  }

  std::string table() {
    const bool headed = at_ + 1 < lines_.size() && is_table_rule(trimmed(lines_[at_ + 1]));
    std::string rows;
    for (size_t row = 0; at_ < lines_.size() && trimmed(lines_[at_]).starts_with('|'); ++at_, ++row) {
      if (is_table_rule(trimmed(lines_[at_]))) continue;
      rows += "<tr>";
      for (const std::string_view cell : table_cells(lines_[at_]))
        rows += fmt::format("<{0}>{1}</{0}>", headed && row == 0 ? "th" : "td", inline_html(cell));
      rows += "</tr>\n";
    }
    return "<div class=\"scroll\"><table>\n" + rows + "</table></div>\n";
  }

  std::vector<std::string_view> lines_;
  size_t at_ = 0;
};

}  // namespace

std::string inline_html(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (const std::string_view code = enclosed(text, "`"); !code.empty()) {
      out += "<code>" + escape(code) + "</code>";
      text.remove_prefix(code.size() + 2);
    } else if (const std::string_view bold = enclosed(text, "**"); !bold.empty()) {
      out += "<b>" + inline_html(bold) + "</b>";
      text.remove_prefix(bold.size() + 4);
    } else {
      const size_t plain = std::max<size_t>(1, std::min(text.find_first_of("`*", 1), text.size()));
      out += escape(text.substr(0, plain));
      text.remove_prefix(plain);
    }
  }
  return out;
}

std::string markdown_html(std::string_view text, bool skip_title) {
  return MarkdownBlocks(text).html(skip_title);
}

}  // namespace fathom::report

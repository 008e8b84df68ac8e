// Tables: aligned for a terminal, Markdown for a page, CSV for a program.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fathom::cli {

struct Column {
  std::string name;
  bool right  = false;  // numbers
  bool repeat = true;   // false: a value equal to the one above is left blank in text
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells as columns
};

std::string to_text(const Table& table);      // no trailing blanks; empty for no rows
std::string to_markdown(const Table& table);  // GitHub's
std::string to_csv(const Table& table);       // RFC 4180, with a header line

// Terminal columns of UTF-8 text with single-width characters.
int display_width(std::string_view text);

}  // namespace fathom::cli

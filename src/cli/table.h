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
  // Of the first column: in text its value is a line of its own above the rows that share it.
  bool heading = false;
};

struct Table {
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;  // as many cells as columns
};

// Columns of the terminal that standard output is; 100 where it is a file or a pipe.
int text_columns();

// No trailing blanks; empty for no rows. Where the table is wider than `columns`, the widest cells are broken
// into several lines.
std::string to_text(const Table& table, int columns = text_columns());
std::string to_markdown(const Table& table);  // GitHub's
std::string to_csv(const Table& table);       // RFC 4180, with a header line

// Terminal columns of UTF-8 text with single-width characters.
int display_width(std::string_view text);

// The text in lines of at most `columns`, broken at blanks, or after punctuation where a word is longer than
// a line. The first line begins with `first`, the others with as many blanks. Each ends with a line break.
std::string wrapped(std::string_view text, int columns = text_columns(), std::string_view first = "");

}  // namespace fathom::cli

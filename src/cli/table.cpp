#include "cli/table.h"

#include <unistd.h>

#include <algorithm>

#include "cli/progress.h"
#include "core/expect.h"

namespace fathom::cli {
namespace {

void expect_whole(const Table& table) {
  for (const auto& row : table.rows)
    FATHOM_EXPECT(row.size() == table.columns.size(), "a row of a table has too many or too few cells");
}

std::string padded(const std::string& text, int width, bool right) {
  const std::string blanks(static_cast<size_t>(std::max(0, width - display_width(text))), ' ');
  return right ? blanks + text : text + blanks;
}

constexpr int kNarrowest = 8;  // of a column that is made to fit

// How many bytes of `text` fill at most `columns`.
size_t bytes_of_columns(std::string_view text, int columns) {
  size_t bytes = 0;
  for (int seen = 0; bytes < text.size(); ++bytes)
    if ((static_cast<unsigned char>(text[bytes]) & 0xC0) != 0x80 && ++seen > columns) break;
  return bytes;
}

// Where a line of at most `columns` ends: at a blank, else after punctuation, else anywhere.
size_t line_end(std::string_view text, int columns) {
  const size_t most = bytes_of_columns(text, columns);
  if (most == text.size() || text[most] == ' ') return most;
  if (const size_t blank = text.rfind(' ', most); blank != std::string_view::npos && blank > 0) return blank;
  const size_t mark = text.find_last_of("/?&,:;_=-", most - 1);
  return mark != std::string_view::npos && mark > 0 ? mark + 1 : most;
}

std::vector<std::string> broken(std::string_view text, int columns) {
  std::vector<std::string> lines;
  while (display_width(text) > columns) {
    const size_t end = line_end(text, columns);
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
  }
  lines.emplace_back(text);
  return lines;
}

// The widths of the columns from `first` on. Takes from the widest until the table fits, or all are at their
// narrowest.
std::vector<int> widths_of(const Table& table, size_t first, int columns) {
  std::vector<int> widths(table.columns.size(), 0);
  int all = -2;
  for (size_t c = first; c < widths.size(); ++c) {
    widths[c] = display_width(table.columns[c].name);
    for (const auto& row : table.rows) widths[c] = std::max(widths[c], display_width(row[c]));
    all += widths[c] + 2;
  }
  for (; all > columns; --all) {
    const auto widest = std::max_element(widths.begin(), widths.end());
    if (*widest <= kNarrowest) break;
    --*widest;
  }
  return widths;
}

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string markdown_cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '|') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

}  // namespace

int display_width(std::string_view text) {
  // Continuation bytes take no column.
  return static_cast<int>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

int text_columns() {
  constexpr int kOfPipe = 100;
  const int terminal    = terminal_columns(STDOUT_FILENO);
  return terminal > 0 ? std::max(terminal, 40) : kOfPipe;
}

std::string wrapped(std::string_view text, int columns, std::string_view first) {
  const int indent = display_width(first);
  std::string out, lead(first);
  for (const std::string& line : broken(text, std::max(columns - indent, kNarrowest))) {
    out += lead + line;
    out.erase(out.find_last_not_of(' ') + 1);
    out += "\n";
    lead.assign(static_cast<size_t>(indent), ' ');
  }
  return out;
}

std::string to_text(const Table& table, int columns) {
  expect_whole(table);
  if (table.rows.empty()) return "";
  const bool heading            = table.columns.front().heading;
  const std::string indent      = heading ? "  " : "";
  const size_t first            = heading ? 1 : 0;
  const std::vector<int> widths = widths_of(table, first, columns - display_width(indent));
  std::string out;
  const auto add = [&](auto&& cell) {
    std::vector<std::vector<std::string>> cells(table.columns.size());
    size_t lines = 1;
    for (size_t c = first; c < table.columns.size(); ++c) {
      cells[c] = broken(cell(c), widths[c]);
      lines    = std::max(lines, cells[c].size());
    }
    for (size_t l = 0; l < lines; ++l) {
      std::string text = indent;
      for (size_t c = first; c < table.columns.size(); ++c)
        text += (c == first ? "" : "  ") +
                padded(l < cells[c].size() ? cells[c][l] : "", widths[c], table.columns[c].right);
      out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
    }
  };
  add([&](size_t c) { return table.columns[c].name; });
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const auto same = [&](size_t c) { return r > 0 && table.rows[r][c] == table.rows[r - 1][c]; };
    if (heading && !same(0)) out += wrapped(table.rows[r][0], columns);
    add([&](size_t c) { return !table.columns[c].repeat && same(c) ? std::string() : table.rows[r][c]; });
  }
  return out;
}

std::string to_markdown(const Table& table) {
  expect_whole(table);
  std::string head = "|", rule = "|", out;
  for (const Column& column : table.columns) {
    head += " " + markdown_cell(column.name) + " |";
    rule += column.right ? " ---: |" : " --- |";
  }
  out = head + "\n" + rule + "\n";
  for (const auto& row : table.rows) {
    out += "|";
    for (const std::string& cell : row) out += " " + markdown_cell(cell) + " |";
    out += "\n";
  }
  return out;
}

std::string to_csv(const Table& table) {
  expect_whole(table);
  std::string out;
  for (size_t c = 0; c < table.columns.size(); ++c)
    out += (c == 0 ? "" : ",") + csv_cell(table.columns[c].name);
  out += "\n";
  for (const auto& row : table.rows) {
    for (size_t c = 0; c < row.size(); ++c) out += (c == 0 ? "" : ",") + csv_cell(row[c]);
    out += "\n";
  }
  return out;
}

}  // namespace fathom::cli

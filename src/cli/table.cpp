#include "cli/table.h"

#include <algorithm>

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

std::string to_text(const Table& table) {
  expect_whole(table);
  if (table.rows.empty()) return "";
  const size_t columns = table.columns.size();
  std::vector<int> widths;
  for (size_t c = 0; c < columns; ++c) {
    int width = display_width(table.columns[c].name);
    for (const auto& row : table.rows) width = std::max(width, display_width(row[c]));
    widths.push_back(width);
  }
  std::string out;
  const auto line = [&](auto&& cell) {
    std::string text;
    for (size_t c = 0; c < columns; ++c)
      text += (c == 0 ? "" : "  ") + padded(cell(c), widths[c], table.columns[c].right);
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  };
  line([&](size_t c) { return table.columns[c].name; });
  for (size_t r = 0; r < table.rows.size(); ++r)
    line([&](size_t c) {
      const bool again = !table.columns[c].repeat && r > 0 && table.rows[r][c] == table.rows[r - 1][c];
      return again ? std::string() : table.rows[r][c];
    });
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

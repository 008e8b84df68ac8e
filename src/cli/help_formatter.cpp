#include "cli/help_formatter.h"

#include <fmt/format.h>

#include <sstream>
#include <utility>

#include "cli/table.h"

namespace fathom::cli {
namespace {

struct Value {
  std::string name;   // "INT=8000", "{tcp,shm}=tcp", "TEXT ..."; empty of a flag
  std::string range;  // "a whole number between 0 and 65535"; empty where the name says it all
};

// CLI11 has the type and what its validators say as "UINT:a whole number between 0 and 65535".
Value value_of(const CLI::Option& option) {
  if (option.get_type_size() == 0) return {};
  const std::string type = option.get_type_name();
  const size_t colon     = type.find(':');
  Value value{.name  = type.substr(0, colon),
              .range = colon == std::string::npos ? "" : type.substr(colon + 1)};
  if (value.name == "UINT") value.name = "INT";
  if (value.range.starts_with('{')) value.name = std::exchange(value.range, "");
  if (!option.get_default_str().empty()) value.name += "=" + option.get_default_str();
  if (option.get_expected_max() == CLI::detail::expected_max_vector_size) value.name += " ...";
  return value;
}

}  // namespace

std::string HelpFormatter::entry(const std::string& name, const std::string& text) const {
  std::string first   = "  " + name, before;
  const size_t indent = get_column_width();
  if (first.size() + 2 > indent) {
    before = wrapped(name, columns_, "  ");
    first.clear();
  }
  first.resize(indent, ' ');
  return before + wrapped(text, columns_, first);
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  const Value value = value_of(*option);
  std::string name = make_option_name(option, is_positional), text = option->get_description();
  if (!value.name.empty()) name += " " + value.name;
  if (option->get_required()) name += " (required)";
  if (!value.range.empty()) text += fmt::format(" ({})", value.range);
  for (const CLI::Option* other : option->get_needs()) text += "; needs " + other->get_name();
  for (const CLI::Option* other : option->get_excludes()) text += "; not with " + other->get_name();
  return entry(name, text);
}

std::string HelpFormatter::make_subcommand(const CLI::App* verb) const {
  return entry(verb->get_display_name(true), verb->get_description());
}

std::string HelpFormatter::make_footer(const CLI::App* verb) const {
  std::string footer;
  std::istringstream lines(verb->get_footer());
  for (std::string line; std::getline(lines, line);)
    footer += display_width(line) > columns_ ? wrapped(line, columns_) : line + "\n";
  return footer;
}

}  // namespace fathom::cli

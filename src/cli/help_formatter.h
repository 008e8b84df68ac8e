// Help that fits a terminal: an option with its value and default in one column, what it does in the next,
// wrapped.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace fathom::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(int columns) : columns_(columns) {}

  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* verb) const override;
  std::string make_footer(const CLI::App* verb) const override;

 private:
  // "  NAME   TEXT", where lines of the text after the first begin below the text.
  std::string entry(const std::string& name, const std::string& text) const;

  int columns_;
};

}  // namespace fathom::cli

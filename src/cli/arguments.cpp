#include "cli/arguments.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "lab/target.h"

namespace fathom::cli {
namespace {

// The innermost subcommand that the arguments chose, or `app` itself.
const CLI::App& chosen(const CLI::App& app) {
  for (const CLI::App* verb : app.get_subcommands()) return chosen(*verb);
  return app;
}

std::vector<std::string> long_flags(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  return names;
}

}  // namespace

void add_environment_variables(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty()) continue;
    std::string name = option->get_lnames().front();
    if (name == "help" || name == "version") continue;
    for (char& c : name) c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    option->envname("FATHOM_" + name);
  }
  for (CLI::App* verb : app.get_subcommands({})) add_environment_variables(*verb);
}

void forget_service_links() {
  const char* port = std::getenv("FATHOM_PORT");
  if (port && std::string_view(port).starts_with("tcp://")) unsetenv("FATHOM_PORT");
}

std::vector<std::string> with_long_names(int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    for (const auto& [name, long_name] :
         {std::pair{"-tp", "--tensor-parallel-size"}, {"-pp", "--pipeline-parallel-size"}})
      if (argument == name || argument.starts_with(std::string(name) + "="))
        argument = long_name + argument.substr(3);
  }
  return arguments;
}

std::string suggestion(const CLI::App& app, const std::vector<std::string>& arguments) {
  const CLI::App& verb = chosen(app);
  std::vector<std::string> verbs;
  for (const CLI::App* part : verb.get_subcommands({})) verbs.push_back(part->get_name());
  for (const std::string& argument : arguments) {
    const bool flag        = argument.starts_with("-");
    const std::string name = argument.substr(0, argument.find('='));
    const std::string near = lab::nearest(name, flag ? long_flags(verb) : verbs);
    if (!near.empty() && near != name) return fmt::format("did you mean '{}'?", near);
  }
  return "";
}

}  // namespace fathom::cli

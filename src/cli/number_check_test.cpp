#include "cli/number_check.h"

#include <gtest/gtest.h>

#include <functional>
#include <regex>
#include <string>

#include "cli/verbs.h"

namespace fathom::cli {
namespace {

// The validator's message; "" where the value passes.
std::string message(CLI::Validator check, std::string value) { return check(value); }

TEST(NumberCheck, SaysInWordsWhatIsAllowed) {
  EXPECT_EQ(message(whole_between(1, 65535), "0"), "must be a whole number between 1 and 65535, not '0'");
  EXPECT_EQ(message(whole_at_least(1), "0"), "must be a whole number of at least 1, not '0'");
  EXPECT_EQ(message(whole_at_least(1, 1 << 20), "1048577"), "must be at most 1048576, not '1048577'");
  EXPECT_EQ(message(between(0, 2), "2.5"), "must be between 0 and 2, not '2.5'");
  EXPECT_EQ(message(at_least(0), "-1e-9"), "must be at least 0, not '-1e-9'");
  EXPECT_EQ(message(above_zero(), "0"), "must be above 0, not '0'");
  EXPECT_EQ(message(above_zero_or_inf(), "-inf"), "must be above 0, or inf, not '-inf'");
}

TEST(NumberCheck, TakesTheBoundsAndNothingBeyond) {
  for (const char* good : {"1", "7", "4096"}) EXPECT_EQ(message(whole_between(1, 4096), good), "") << good;
  for (const char* bad : {"0", "4097", "-3", "1.5", "ten", "", "99999999999999999999", "nan"})
    EXPECT_NE(message(whole_between(1, 4096), bad), "") << bad;
  for (const char* bad : {"-1", "2.5", "x", "99999999999999999999"})
    EXPECT_NE(message(whole_at_least(0), bad), "") << bad;
  for (const char* good : {"0", "0.5", "2"}) EXPECT_EQ(message(between(0, 2), good), "") << good;
  for (const char* bad : {"nan", "inf", "-0.1", "2.0001"}) EXPECT_NE(message(between(0, 2), bad), "") << bad;
  for (const char* bad : {"0", "-1", "nan", "inf"}) EXPECT_NE(message(above_zero(), bad), "") << bad;
  for (const char* good : {"1e-300", "3", "inf", "Infinity"})
    EXPECT_EQ(message(above_zero_or_inf(), good), "") << good;
  for (const char* bad : {"nan", "0", "-inf"}) EXPECT_NE(message(above_zero_or_inf(), bad), "") << bad;
}

// The real verbs: whatever is typed, no check answers with a row of digits.
TEST(NumberCheck, NoFlagOfAnyVerbPrintsAnEndlessNumber) {
  int exit_code = 0;
  CLI::App app;
  for (const auto add : {add_list, add_run, add_verify, add_compare, add_expect, add_report, add_roofline,
                         add_diff, add_techniques, add_history, add_model, add_generate, add_chat, add_serve})
    add(app, exit_code);
  add_bench(app, exit_code);
  int checked = 0;
  const std::regex endless("[0-9]{17}");
  const std::function<void(const CLI::App&)> look = [&](const CLI::App& part) {
    for (const CLI::Option* option : part.get_options())
      for (int index = 0;; ++index) try {
          const CLI::Validator& check = *const_cast<CLI::Option*>(option)->get_validator(index);
          for (std::string value : {"-5", "1e999", "inf", "nonsense"}) {
            const std::string said = check(value);
            EXPECT_FALSE(std::regex_search(said, endless)) << option->get_name() << ": " << said;
          }
          EXPECT_FALSE(std::regex_search(check.get_description(), endless)) << option->get_name();
          ++checked;
        } catch (const CLI::OptionNotFound&) {
          break;
        }
    for (const CLI::App* below : part.get_subcommands({})) look(*below);
  };
  look(app);
  EXPECT_GT(checked, 50);
}

}  // namespace
}  // namespace fathom::cli

#include "cli/arguments.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <iterator>

#include "cli/output_flags.h"
#include "cli/verbs.h"

namespace fathom::cli {
namespace {

struct Program {
  Program() : app("test", "fathom") {
    app.require_subcommand(1);
    CLI::App& run = *app.add_subcommand("run", "");
    run.add_flag("--quick", quick);
    run.add_option("--artifacts-dir", artifacts);
    run.add_option("-a,--axis", axes)->allow_extra_args(false);
    run.add_option("target", targets);
    add_output_flags(run, outputs);
    app.add_subcommand("report", "");
    add_environment_variables(app);
  }
  void parse(const std::string& line) { app.parse(line); }

  CLI::App app;
  bool quick = false;
  std::string artifacts;
  std::vector<std::string> axes, targets;
  OutputFlags outputs;
};

TEST(Arguments, EveryFlagIsAlsoAnEnvironmentVariable) {
  setenv("FATHOM_QUICK", "1", 1);
  setenv("FATHOM_ARTIFACTS_DIR", "elsewhere", 1);
  Program program;
  program.parse("run");
  EXPECT_TRUE(program.quick);
  EXPECT_EQ(program.artifacts, "elsewhere");
  Program explicitly;
  explicitly.parse("run --artifacts-dir here");
  EXPECT_EQ(explicitly.artifacts, "here");  // the command line wins over the variable
  unsetenv("FATHOM_QUICK");
  unsetenv("FATHOM_ARTIFACTS_DIR");
}

TEST(Arguments, AServiceLinkOfKubernetesIsNoPort) {
  setenv("FATHOM_PORT", "tcp://10.43.0.7:80", 1);
  forget_service_links();
  EXPECT_EQ(getenv("FATHOM_PORT"), nullptr);
  forget_service_links();
  setenv("FATHOM_PORT", "8123", 1);
  forget_service_links();
  EXPECT_STREQ(getenv("FATHOM_PORT"), "8123");
  unsetenv("FATHOM_PORT");
}

// The real verbs: no long flag may lack a variable.
TEST(Arguments, NoVerbHasAFlagWithoutAVariable) {
  int exit_code = 0;
  CLI::App app;
  for (const auto add : {add_list, add_run, add_verify, add_compare, add_expect, add_report, add_roofline,
                         add_diff, add_techniques, add_history})
    add(app, exit_code);
  add_environment_variables(app);
  int flags                                        = 0;
  const std::function<void(const CLI::App&)> check = [&](const CLI::App& part) {
    for (const CLI::Option* option : part.get_options()) {
      if (option->get_lnames().empty() || option->get_lnames().front() == "help") continue;
      ++flags;
      EXPECT_TRUE(option->get_envname().starts_with("FATHOM_"))
          << part.get_name() << " " << option->get_name();
    }
    for (const CLI::App* below : part.get_subcommands({})) check(*below);
  };
  check(app);
  EXPECT_GT(flags, 40);
}

TEST(Arguments, AFormatTakesAFileOnlyBehindAnEqualsSign) {
  Program program;
  program.parse("run --json ch07 --csv=out.csv -a n=[1,2] ch09");
  EXPECT_EQ(program.targets, (std::vector<std::string>{"ch07", "ch09"}));
  EXPECT_EQ(program.outputs.json, "true");
  EXPECT_EQ(program.outputs.csv, "out.csv");
  EXPECT_EQ(program.outputs.md, "");
  EXPECT_EQ(program.axes, std::vector<std::string>{"n=[1,2]"});
}

TEST(Arguments, ShortFlagsOfSeveralLettersHaveLongNames) {
  const char* const line[] = {"fathom", "serve", "-tp", "2",      "-tp=4",    "-pp",
                              "3",      "-tpx",  "--",  "launch", "generate", "-tp"};
  EXPECT_EQ(
      with_long_names(std::size(line), line),
      (std::vector<std::string>{"serve", "--tensor-parallel-size", "2", "--tensor-parallel-size=4",
                                "--pipeline-parallel-size", "3", "-tpx", "--", "launch", "generate", "-tp"}));
}

TEST(Arguments, AMisspeltFlagOrVerbIsRecognised) {
  Program program;
  EXPECT_THROW(program.parse("run --quik"), CLI::ParseError);
  EXPECT_EQ(suggestion(program.app, program.app.remaining(true)), "did you mean '--quick'?");
  EXPECT_EQ(suggestion(program.app, {"--artifact-dir=x"}), "did you mean '--artifacts-dir'?");
  EXPECT_EQ(suggestion(program.app, {"--nothing-like-it"}), "");
  Program verbless;
  EXPECT_THROW(verbless.parse("rnu"), CLI::ParseError);
  EXPECT_EQ(suggestion(verbless.app, {"rnu"}), "did you mean 'run'?");
  EXPECT_EQ(suggestion(verbless.app, {"reprot"}), "did you mean 'report'?");
}

}  // namespace
}  // namespace fathom::cli

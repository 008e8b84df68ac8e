// Records under results/ on the command line: where they are, who writes them, and what a run says of them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "lab/expectation.h"

namespace fathom::cli {

struct ExpectationFlags {
  std::string results;  // folder
  std::string by;       // who writes a record
  double margin_percent = 2;
};

void add_expectation_flags(CLI::App& verb, ExpectationFlags& flags);

// Throws UsageError where a record is broken.
lab::ExpectationCheck check_expectations(const ExpectationFlags& flags, const lab::RunRecord& run,
                                         const std::string& filter = {});

// Prints what was missed, and what could not be compared, to stderr. True when something was missed.
bool report_expectations(const ExpectationFlags& flags, const lab::RunRecord& run);

// Writes records and prints to stderr which, and which were refused. Returns how many were written.
int write_expectations(const ExpectationFlags& flags, const lab::RunRecord& run);

}  // namespace fathom::cli

// Flags about the records under results/, and the comparison of a run with them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "lab/expectation.h"
#include "lab/run_options.h"

namespace fathom::cli {

// `given`, or, where it is empty, results/ of the source tree, or else of the current folder.
std::string results_folder(const std::string& given);

// Where `run --book` keeps what a reader measured: $XDG_DATA_HOME/fathom/results, by default under
// ~/.local/share. book/_ext/records.py finds it there. Throws UsageError where HOME is not set either.
std::string readers_results();

struct ExpectationFlags {
  std::string results;  // folder
  std::string by;       // who writes a record
  double margin_percent = 2;
};

void add_expectation_flags(CLI::App& verb, ExpectationFlags& flags);

// Throws UsageError if a record is malformed.
lab::ExpectationCheck check_expectations(const ExpectationFlags& flags, const lab::RunRecord& run,
                                         const std::string& filter = {});

// Leaves out the experiments that have a record of `machine` from today's sources, with all their variants.
// Throws UsageError if a record is malformed.
void keep_stale(const ExpectationFlags& flags, const std::string& machine,
                std::vector<lab::Selection>& selections);

// Prints missed expectations and stale records to stderr. True if an expectation was missed.
bool report_expectations(const ExpectationFlags& flags, const lab::RunRecord& run);

// Writes records, prints refused ones and the number written to stderr, and returns that number.
int write_expectations(const ExpectationFlags& flags, const lab::RunRecord& run);

}  // namespace fathom::cli
